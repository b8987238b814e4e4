"""How the page is told of kinds of requests: what is barred and why, and the dearest of what is not."""

from dataclasses import asdict
from typing import Any

from gateway.breaker.record import BreakerRecord, Kind, State
from gateway.control.api.record import record_document
from gateway.control.context import AdminContext
from gateway.control.inturns import giving_way, in_turns
from gateway.hookcost.costbook import CostEntry

_LISTED = 200
_TOP = 20
_TOP_EVERY_S = 5.0


class Offenders:
    """Of one gateway. Looks for the dearest now and then only: the cost book is large."""

    def __init__(self, context: AdminContext) -> None:
        self._context = context
        self._top: list[CostEntry] = []
        self._top_at_s = -_TOP_EVERY_S

    async def items(self) -> dict[str, Any]:
        """What is barred, and the dearest of what is not."""
        context = self._context
        shown: dict[str, Any] = {}
        async for record in giving_way(context.trust.snapshot()[:_LISTED]):
            shown[f"{record.kind.value}/{record.key}"] = self._item(record, context.book.entry(record.key))
        now_s = context.clock()
        if now_s - self._top_at_s >= _TOP_EVERY_S:
            self._top_at_s = now_s
            self._top = await in_turns(context.book.top_in_turns(_TOP))
            portraits = context.memory.portraits
            portraits.want([entry.signature for entry in self._top if portraits.of(entry.signature) is None])
        for entry in self._top:
            key = f"{Kind.signature.value}/{entry.signature}"
            if key not in shown:
                known = context.trust.record(Kind.signature, entry.signature)
                shown[key] = self._item(known or BreakerRecord(Kind.signature, entry.signature), entry)
        return shown

    def _item(self, record: BreakerRecord, entry: CostEntry | None) -> dict[str, Any]:
        document = record_document(record)
        portrait = self._context.memory.portraits.of(record.key)
        observed = predicted_us = predicted_ms = None
        if entry is not None:
            observed = entry.document()
            del observed["last_seen_s"]
            if entry.predicted is not None:
                predicted_us, predicted_ms = round(entry.predicted.step_us, 1), round(entry.predicted.compile_ms, 2)
        if portrait is not None:
            predicted_us, predicted_ms = portrait.predicted_us, portrait.predicted_ms
        latest = self._context.memory.namings.of(record.key)[:1] if record.kind is Kind.signature else []
        tenant = document["tenant"] or (latest[0].tenant if latest else None)
        barred = record.state is not State.closed
        return {
            "kind": record.kind.value,
            "key": record.key,
            "state": record.state.value,
            "since": round(record.since, 1) if record.since and barred else None,
            "until": record.until,
            "next_probe": record.next_probe,
            "probes": record.probes,
            "good_probes": record.good_probes,
            "trips": record.trips,
            "author": record.author if barred else None,
            "cause": document["cause"],
            "why": document["why"] if barred else "",
            "advice": document["advice"],
            "pool": document["pool"],
            "tenant": tenant,
            "observed": observed,
            "predicted_us": predicted_us,
            "predicted_ms": predicted_ms,
            "looks": None if portrait is None else asdict(portrait),
        }
