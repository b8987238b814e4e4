"""How a request over a limit is ended in vLLM, so that its client hears why and its batch-mates go on.

Verdicts wait until the step thread comes round. The scheduler then finishes the request, and the front end is sent a
last, empty output with the finish reason `abort` and the verdict as `stop_reason`, which vLLM's API shows.
"""

from collections.abc import Iterable
from typing import Any

from replica.recorder.judge import Verdict
from replica.verdicts import VerdictQueue, told

_SUFFIX = 8


class Endings(VerdictQueue):
    """Verdicts on their way to vLLM."""

    def act(self, core: Any) -> None:
        """End, at `core` (an `EngineCoreProc`), every request that has a verdict and still runs."""
        for verdict in self.take():
            end(core, verdict)


def end(core: Any, verdict: Verdict) -> None:
    """Finish one request and tell its client."""
    from vllm.v1.engine import EngineCoreOutput, EngineCoreOutputs, FinishReason
    from vllm.v1.request import RequestStatus

    reason = told(verdict)
    ids = engine_ids(core.scheduler.requests, verdict.rid)
    for request in core.scheduler.finish_requests(ids, RequestStatus.FINISHED_ABORTED):
        output = EngineCoreOutput(
            request_id=request.request_id,
            new_token_ids=[],
            finish_reason=FinishReason.ABORT,
            stop_reason=reason,
        )
        core.output_queue.put_nowait(
            (request.client_index, EngineCoreOutputs(outputs=[output], finished_requests={request.request_id}))
        )


def engine_ids(known: Iterable[str], rid: str) -> list[str]:
    """The engine's own ids of `rid`: vLLM adds eight hexadecimal digits to the id that its client sees."""
    if rid in known:
        return [rid]
    return [engine_id for engine_id in known if engine_id[:-_SUFFIX] == f"{rid}-"]
