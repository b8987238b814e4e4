"""Puts the parts together inside an engine's process: ring, recorder, watchdog, feed process.

Whatever cannot be had is left out with one clear line in the engine's log; the engine runs on without it. Nothing here
raises into the engine.
"""

import contextlib
import logging
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from replica.feed.process import EngineName, FeedProcess
from replica.recorder.judge import Verdict
from replica.recorder.recorder import StepRecorder, ignore
from replica.recorder.ring import RingWriter
from replica.settings import ReplicaSettings
from replica.watchdog import StepWatchdog

log = logging.getLogger("steplane")


@dataclass(frozen=True, slots=True)
class Attachment:
    """A recorder that an engine feeds, and the watchdog over it."""

    recorder: StepRecorder
    watchdog: StepWatchdog
    ring: RingWriter | None

    def close(self) -> None:
        """End the watchdog and the feed process, and give the ring's memory back."""
        self.watchdog.close()
        if self.ring is not None:
            self.ring.close()


def attach(settings: ReplicaSettings, name: EngineName, on_verdict: Callable[[Verdict], None] = ignore) -> Attachment:
    """Start recording. `on_verdict` is called on the step thread or the watchdog's and must only take note."""
    for problem in settings.problems:
        log.warning("steplane: %s", problem)
    ring: RingWriter | None = None
    if settings.feed is not None:
        try:
            ring = RingWriter(settings.ring_bytes)
        except OSError as error:
            log.warning(
                "steplane: no step feed: %d MiB of shared memory cannot be had (%s); STEPLANE_RING_MIB sets less",
                settings.ring_bytes >> 20,
                error.strerror or error,
            )
    feed = None
    if ring is not None and settings.feed is not None:
        feed = FeedProcess(ring.fd, settings.feed, settings.feed_token, name)
    recorder = StepRecorder(ring, settings.limits)
    recorder.on_verdict = on_verdict
    watchdog = StepWatchdog(recorder, feed)
    watchdog.start()
    return Attachment(recorder, watchdog, ring)


@contextlib.contextmanager
def measured(start: Callable[[], Attachment | None], name: str, missing: Sequence[str]) -> Iterator[None]:
    """Attach for as long as the engine's loop runs in the block. `missing`: what could not be hooked, for the feed."""
    attachment: Attachment | None = None
    try:
        attachment = start()
        if attachment is not None:
            for problem in missing:
                attachment.recorder.note(problem)
            log.info("steplane: measuring the steps of this %s", name)
    except Exception:
        log.exception("steplane: cannot measure this %s; it runs on without", name)
    try:
        yield
    finally:
        if attachment is not None:
            attachment.close()


def set_up(install: Callable[[], None]) -> None:
    """What an engine's plugin entry point does: `install`, unless `STEPLANE_OFF` says no."""
    if os.environ.get("STEPLANE_OFF", "") not in {"", "0"}:
        return
    try:
        install()
    except Exception:
        log.exception("steplane: the plugin could not be set up; the engine runs on without it")
