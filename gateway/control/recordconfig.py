"""The configuration of recorded decisions."""

from typing import Annotated

from pydantic import Field

from gateway.control.part import Part, Size


class RecordConfig(Part):
    """Decisions written to a file, for `steplane check --against FILE`: features and costs, no body, prompt or key.

    path:      of the file, relative to this one; one JSON object a line.
    sample:    share of the requests.
    max_bytes: of the file; then it is kept as `PATH.1`, in the place of an older one, and a new one is begun.
    """

    path: str
    sample: Annotated[float, Field(gt=0, le=1)] = 1
    max_bytes: Size = 64 * 1024 * 1024
