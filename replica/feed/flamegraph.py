"""`GET /flamegraph`: where the engine's threads spend their time, by py-spy, without stopping them.

Answers "is it the step thread or the GPU?": a wide tower of hooks is the step thread, a wide `synchronize` is the GPU.
"""

import asyncio
import shutil
import sys
from pathlib import Path

LONGEST_S = 60
_SAMPLES_PER_S = 100
_STARTS_WITHIN_S = 20.0


class FlamegraphError(Exception):
    """Why there is no graph; `status` is the HTTP status that says it."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class Flamegraph:
    """Draws one graph at a time of the process `pid`."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._busy = asyncio.Lock()

    async def draw(self, seconds: int) -> bytes:
        """An SVG of the next `seconds`. FlamegraphError: py-spy is missing, busy or not permitted to look."""
        tool = find_tool()
        if tool is None:
            raise FlamegraphError(501, "py-spy is not installed beside the engine: pip install py-spy")
        if self._busy.locked():
            raise FlamegraphError(409, "a flamegraph is being recorded; try again when it is done")
        async with self._busy:
            process = await asyncio.create_subprocess_exec(
                *(tool, "record", "--nonblocking", "--threads", "--pid", str(self._pid)),
                *("--duration", str(seconds), "--rate", str(_SAMPLES_PER_S)),
                *("--format", "flamegraph", "--output", "/dev/stdout"),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
            )
            try:
                output, errors = await asyncio.wait_for(process.communicate(), seconds + _STARTS_WITHIN_S)
            except TimeoutError:
                raise FlamegraphError(504, "py-spy did not finish in time; the machine may be too busy") from None
            finally:
                if process.returncode is None:
                    process.kill()
                    await process.wait()
        begin = output.find(b"<?xml")
        if process.returncode != 0 or begin < 0:
            said = errors.decode(errors="replace").strip().rpartition("\n")[2] or f"status {process.returncode}"
            raise FlamegraphError(502, f"py-spy could not look into process {self._pid}: {said}")
        return output[begin:]


def find_tool() -> str | None:
    """py-spy of the engine's own environment, else the one on PATH."""
    beside = Path(sys.executable).with_name("py-spy")
    return str(beside) if beside.exists() else shutil.which("py-spy")
