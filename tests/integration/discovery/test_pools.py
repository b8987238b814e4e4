"""A pool whose members are found: they serve, and go, beside those that the configuration names."""

import contextlib
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from tests.integration.gateway.harness import CHAT, PLAIN
from tests.integration.reload.harness import Site, site


def targets(running: Site, file: Path, *names: str) -> None:
    groups = [{"targets": [running.engines[name].url], "labels": {"name": name}} for name in names]
    draft = file.with_suffix(".new")
    draft.write_text(json.dumps(groups))
    draft.rename(file)


async def named_by(running: Site) -> dict[str, str]:
    _, answer = await running.ask_admin("GET", "/api/v1/replicas")
    return {each["name"]: each["named_by"] for each in answer["replicas"]}


def found_in(file: str, **more: Any) -> dict[str, Any]:
    return {"file": {"path": file}, "max_removed_percent": 100, **more}


@contextlib.asynccontextmanager
async def finding(folder: Path, *names: str, **more: Any) -> AsyncIterator[tuple[Site, Path]]:
    """A pool of `a` and of what a file names: engines of these names, once it has found them."""
    file = folder / "targets.json"
    file.write_text("[]")
    async with site(folder, {"chat": ["a"]}, chat__discover=found_in("targets.json", **more)) as running:
        for name in names:
            await running.engine(name)
        targets(running, file, *names)
        await running.replicas_named("a", *names)
        yield running, file


async def test_members_come_and_go_with_the_file_that_names_them(tmp_path: Path) -> None:
    async with finding(tmp_path, "b") as (running, file):
        assert await named_by(running) == {"a": "file", "b": "discovered"}

        targets(running, file)
        await running.replicas_named("a")


async def test_what_was_found_stays_through_a_reload_and_goes_when_nobody_looks_any_more(tmp_path: Path) -> None:
    async with finding(tmp_path, "b") as (running, _):
        running.write({"chat": ["a"]}, chat__discover=found_in("targets.json"), chat__step_budget_us=5)
        await running.take_over()
        await running.replicas_named("a", "b")

        running.write({"chat": ["a"]})
        await running.take_over()
        await running.replicas_named("a")


async def test_a_file_that_is_wrong_changes_nothing_and_is_shown(tmp_path: Path) -> None:
    async with finding(tmp_path, "b") as (running, file):
        file.write_text("{")
        await running.reaches("steplane_discovery_failing", 1, pool="chat")
        await running.replicas_named("a", "b")
        _, pools = await running.ask_admin("GET", "/api/v1/pools")
        assert "targets.json" in pools["pools"][0]["discovery"]["error"]


async def test_many_that_vanish_at_once_are_kept_for_a_while(tmp_path: Path) -> None:
    async with finding(tmp_path, "b", "c", "d", max_removed_percent=50, settle_s=600) as (running, file):
        targets(running, file)
        await running.reaches("steplane_discovery_failing", 1, pool="chat")
        await running.replicas_named("a", "b", "c", "d")
        assert (await running.ask(CHAT, PLAIN[CHAT])).status == 200


async def test_weights_that_are_found_count(tmp_path: Path) -> None:
    async with finding(tmp_path) as (running, file):
        heavy = await running.engine("b")
        pool = running.gateway.router.pools["chat"]
        before = pool.balancer
        draft = file.with_suffix(".new")
        draft.write_text(json.dumps([{"targets": [heavy.url], "labels": {"name": "b", "weight": "3"}}]))
        draft.rename(file)
        await running.replicas_named("a", "b")

        assert {each.name: each.weight for each in running.replicas} == {"a": 1, "b": 3}
        assert before is None
        assert pool.balancer is not None
