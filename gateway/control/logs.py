"""How the gateway logs: to stderr, for people on a terminal and one JSON object a line everywhere else.

The processors are kept in one list, which loggers that were used already share: so a reload can change how they log.
"""

import logging
import sys
from collections.abc import Callable
from typing import Any

import orjson
import structlog
from structlog.typing import EventDict, Processor, WrappedLogger

from gateway.control.logsconfig import LogsConfig

_processors: list[Processor] = []


def configure_logs(config: LogsConfig | None = None) -> None:
    """Log as `config` says, or as it is by default; called by the command that runs the gateway, and by reloads."""
    config = config or LogsConfig()
    _processors[:] = [
        _at_least(logging.getLevelNamesMapping()[config.level.upper()]),
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.StackInfoRenderer(),
    ]
    if not is_for_people(config):
        _processors.append(structlog.processors.format_exc_info)
    _processors.append(renderer(config))
    structlog.configure(
        processors=_processors,
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=True,
    )


def is_for_people(config: LogsConfig) -> bool:
    """Whether lines are to be read as they are, rather than by a program."""
    return config.format == "console" or (config.format == "auto" and sys.stderr.isatty())


def renderer(config: LogsConfig) -> Processor:
    """What makes text of an event, without its line end."""
    if is_for_people(config):
        return structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty())
    return structlog.processors.JSONRenderer(serializer=_json)


def line_renderer(config: LogsConfig) -> Callable[[dict[str, Any]], str]:
    """What makes text of a line that has its time and level already."""
    render = renderer(config)

    def rendered(line: dict[str, Any]) -> str:
        return str(render(None, "info", line))

    return rendered


def _json(event: EventDict, **_: object) -> str:
    return orjson.dumps(event, default=repr, option=orjson.OPT_NON_STR_KEYS).decode()


def _at_least(level: int) -> Processor:
    levels = logging.getLevelNamesMapping()

    def drop(_: WrappedLogger, method: str, event: EventDict) -> EventDict:
        # `exception` is no level: it is an error.
        if levels.get(method.upper(), logging.ERROR) < level:
            raise structlog.DropEvent
        return event

    return drop
