"""How a request over a limit is ended in SGLang, so that its client hears why and its batch-mates go on.

SGLang's scheduler asks itself once a step for aborts of its own (`_poll_timeout_aborts`); what is returned there is
broadcast to all ranks and handled like a client's abort, with a message that reaches the client. We add ours to it.
An abort there means every id that starts with the given one; ours mean exactly one request, so the others are hidden
from it by renaming them while the abort runs.
"""

from collections.abc import Callable, Iterator
from typing import Any

from replica.recorder.judge import Verdict
from replica.verdicts import REASON, VerdictQueue, told

_HIDDEN = "\0"
UNAVAILABLE = 503


class Endings(VerdictQueue):
    """Verdicts on their way to SGLang."""

    def poll_timeout_aborts(self, original: Callable[..., list[Any]], scheduler: Any) -> list[Any]:
        """Around `Scheduler._poll_timeout_aborts`."""
        aborts = original(scheduler)
        return [*aborts, *map(abort_request, self.take())]

    def abort_request(self, original: Callable[..., None], scheduler: Any, recv_req: Any) -> None:
        """Around `Scheduler.abort_request`, on every rank."""
        reason = recv_req.abort_message or ""
        if recv_req.abort_all or not reason.startswith(REASON):
            original(scheduler, recv_req)
            return
        rid = recv_req.rid
        queued = [req for req in scheduler.grammar_manager.grammar_queue if req.rid == rid]
        hidden = [req for req in live_requests(scheduler) if req.rid != rid and req.rid.startswith(rid)]
        for req in hidden:
            req.rid = _HIDDEN + req.rid
        try:
            original(scheduler, recv_req)
        finally:
            for req in hidden:
                req.rid = req.rid.removeprefix(_HIDDEN)
        for req in queued:
            tell(req, reason)


def abort_request(verdict: Verdict) -> Any:
    """SGLang's message for ending one request with a reason."""
    from sglang.srt.managers.io_struct import AbortReq

    reason = told(verdict)
    return AbortReq(
        rid=verdict.rid,
        abort_message=reason,
        finished_reason={"type": "abort", "status_code": UNAVAILABLE, "message": reason},
    )


def tell(req: Any, reason: str) -> None:
    """Make `reason` what the client of a request that is being aborted hears."""
    from http import HTTPStatus

    from sglang.srt.managers.schedule_batch import FINISH_ABORT

    req.to_finish = FINISH_ABORT(reason, HTTPStatus(UNAVAILABLE), REASON)


def live_requests(scheduler: Any) -> Iterator[Any]:
    """Every request that an abort could mean, once each."""
    seen: set[int] = set()
    sources = [scheduler.waiting_queue, scheduler.grammar_manager.grammar_queue, scheduler.collect_inflight_reqs()]
    if scheduler.chunked_req is not None:
        sources.append([scheduler.chunked_req])
    for source in sources:
        for req in source:
            if id(req) not in seen:
                seen.add(id(req))
                yield req
