"""How the gateway logs: to stderr, for people on a terminal and one JSON object a line everywhere else."""

import sys

import structlog
from structlog.typing import Processor


def configure_logs() -> None:
    """Set up structlog for this process; called once, by the command that runs the gateway."""
    renderer: Processor = structlog.processors.JSONRenderer()
    shared: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.StackInfoRenderer(),
    ]
    if sys.stderr.isatty():
        renderer = structlog.dev.ConsoleRenderer()
    else:
        shared.append(structlog.processors.format_exc_info)
    structlog.configure(
        processors=[*shared, renderer],
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=True,
    )
