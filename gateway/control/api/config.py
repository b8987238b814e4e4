"""`/api/v1/config` and `/api/v1/reload`: what is in force, since when, and reading it again."""

from dataclasses import dataclass
from typing import Any

from aiohttp import web

from gateway.control.api.reply import ApiError, flag_of, instant, json_reply, large_json_reply
from gateway.control.context import AdminContext
from gateway.control.inturns import in_turns
from gateway.control.problem import Problem
from gateway.control.reloads import Outcome, Report
from gateway.control.secrets import shown_config_in_turns


@dataclass(frozen=True, slots=True)
class ConfigApi:
    """Reads, and reloads."""

    context: AdminContext

    def routes(self) -> list[web.RouteDef]:
        """What it answers."""
        return [web.get("/api/v1/config", self.show), web.post("/api/v1/reload", self.reload)]

    async def show(self, request: web.Request) -> web.Response:
        """Where the configuration came from, and the last reload; with `?full=true` all of it, without secrets."""
        reloads, config = self.context.reloader.reloads, self.context.config
        last = reloads.last
        shown = {
            "source": None if reloads.source is None else str(reloads.source),
            "files": [*config.files] if reloads.source is not None else [],
            "loaded_at": instant(reloads.loaded_at),
            "last_error": None if last is None or last.outcome.is_good else last.why,
            "last_reload": None if last is None else report_document(last),
            "last_failed": None if reloads.last_failed is None else report_document(reloads.last_failed),
            "reloads": {outcome.value: reloads.outcomes[outcome.value] for outcome in Outcome},
        }
        if flag_of(request, "full"):
            shown["config"] = await in_turns(shown_config_in_turns(config, config.origins))
        return await large_json_reply(shown)

    async def reload(self, request: web.Request) -> web.Response:
        """Read the file again and apply it; with `?check=true` only say what would come of it."""
        if self.context.reloader.reloads.source is None:
            raise ApiError(409, "no_configuration_file", "this gateway was not started from a configuration file")
        report = await self.context.reloader.reload("api", check=flag_of(request, "check"))
        document = report_document(report)
        if report.outcome.is_good:
            return json_reply(document)
        refused = report.outcome is Outcome.refused
        kind = "invalid_request_error" if refused else "server_error"
        message = f"the old configuration stays in force: {report.why}"
        document["error"] = {"message": message, "type": kind, "code": f"reload_{report.outcome.value}"}
        return json_reply(document, status=422 if refused else 500)


def report_document(report: Report) -> dict[str, Any]:
    """A reload for people and programs."""
    return {
        "outcome": report.outcome.value,
        "trigger": report.trigger,
        "at": instant(report.at),
        "took_ms": round(report.took_s * 1e3, 3),
        "error": report.error,
        "problems": [_problem(each) for each in report.problems],
        "warnings": [_problem(each) for each in report.warnings],
        "changes": [
            {"key": each.key, "before": each.before, "after": each.after, "needs_restart": each.restart}
            for each in report.changes
        ],
        "needs_restart": [*report.restart],
    }


def _problem(problem: Problem) -> dict[str, Any]:
    return {
        "file": problem.file,
        "line": problem.line,
        "column": problem.column,
        "key": problem.key,
        "said": problem.said,
    }
