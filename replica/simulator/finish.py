"""Why a sequence ended, in SGLang's terms (`managers/schedule_batch.py`, 0.5.23)."""

from dataclasses import dataclass
from typing import Any, Literal


@dataclass(frozen=True, slots=True)
class Finish:
    """`matched` is the stop token's id or the stop string; an abort with a `status` is an error, without one a wish."""

    type: Literal["stop", "length", "abort"]
    matched: int | str | None = None
    length: int | None = None
    message: str | None = None
    status: int | None = None
    error_type: str | None = None

    def as_json(self) -> dict[str, Any]:
        """The `finish_reason` object of `meta_info`."""
        if self.type == "stop":
            return {"type": "stop", "matched": self.matched}
        if self.type == "length":
            return {"type": "length", "length": self.length}
        return {"type": "abort", "message": self.message, "status_code": self.status, "err_type": self.error_type}


ABORTED = Finish("abort", message="Aborted")


def failed(message: str) -> Finish:
    """The engine itself failed at this sequence, in mid-generation."""
    return Finish("abort", message=message, status=500, error_type="InternalServerError")


def refused(message: str) -> Finish:
    """The request turned out to be at fault after it was accepted."""
    return Finish("abort", message=message, status=400, error_type="BadRequestError")


def over_budget(message: str) -> Finish:
    """The request's hooks held the others up, or its grammar took too long to compile; `message` says which."""
    return Finish("abort", message=message, status=503, error_type="step_budget_exceeded")


def overloaded(message: str) -> Finish:
    return Finish("abort", message=message, status=503, error_type="ServiceUnavailable")
