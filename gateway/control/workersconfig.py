"""How many processes serve clients: a number, or one for each core that we may use."""

import os
from typing import Literal

from gateway.control.validation import custom_error

MOST_WORKERS = 256


def checked_workers(value: object) -> object:
    """For pydantic: the value as it is. Raises where it is neither a sensible number nor `auto`."""
    if value == "auto" or (isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= MOST_WORKERS):
        return value
    raise custom_error(f"a whole number from 1 to {MOST_WORKERS}, or auto")


def worker_count(workers: int | Literal["auto"]) -> int:
    """How many that is here."""
    return len(os.sched_getaffinity(0)) if workers == "auto" else workers
