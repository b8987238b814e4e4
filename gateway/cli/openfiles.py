"""How many connections this process may have open: each is a file to the system, and shells allow about a thousand."""

import resource

import structlog

_FEW = 4096
_log = structlog.get_logger("steplane")


def allow_open_files() -> int:
    """Raise the limit of open files to the most that the system allows this user, as HAProxy does; returns it.

    A stream needs two, one to its client and one to its replica. Processes that are started later inherit the limit.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    if hard != resource.RLIM_INFINITY and hard < _FEW:
        hint = "raise it with LimitNOFILE (systemd), --ulimit nofile (Docker) or ulimit -n"
        _log.warning("few_open_files", limit=hard, streams=hard // 2, hint=hint)
    return hard
