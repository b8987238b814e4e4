"""Several models behind one gateway: one list of them, names of their own for clients, and no guessing."""

import json
from typing import Any

import pytest

from .harness import CHAT, PLAIN, Engine, House, Message, Served, error_of, house, ok, until

BODY = PLAIN[CHAT]


def serving(*models: str) -> Any:
    """An engine's answer: its list of models where that is asked for."""

    async def answer(served: Served, message: Message) -> None:
        target = message.start.split(b" ")[1]
        if target != b"/v1/models":
            await ok(served, message)
            return
        body = json.dumps({"object": "list", "data": [{"id": name, "object": "model"} for name in models]}).encode()
        await served.send(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body))

    return answer


def two_models() -> dict[str, list[Engine]]:
    return {
        "interactive": [Engine("interactive-0", serving("qwen", "qwen:polite"))],
        "grammar": [Engine("grammar-0", serving("llama"))],
    }


async def known(running: House) -> None:
    """Wait until every replica has said what it serves."""
    models = running.gateway._models
    assert models is not None
    await until(lambda: models.catalogue.complete)


def asked_to_generate(engine: Engine) -> list[Message]:
    return [message for message in engine.asked if b"/v1/models" not in message.start]


async def test_the_list_of_models_is_that_of_all_replicas_and_the_aliases() -> None:
    config = {"models": {"list": "merged", "aliases": {"gpt-4o": "qwen", "gone": "nobody"}}}
    async with house(two_models(), config=config) as running:
        await known(running)
        answer = await running.ask("/v1/models", method="GET")
        listed = json.loads(answer.body)
        assert listed["object"] == "list"
        assert [model["id"] for model in listed["data"]] == ["qwen", "qwen:polite", "llama", "gpt-4o"]
        one = await running.ask("/v1/models/llama", method="GET")
        assert json.loads(one.body) == {"id": "llama", "object": "model"}
        alias = await running.ask("/v1/models/gpt-4o", method="GET")
        assert json.loads(alias.body) == {"id": "gpt-4o", "object": "model", "root": "qwen"}
        none = await running.ask("/v1/models/gpt-5", method="GET")
        assert (none.status, error_of(none)["code"]) == (404, "model_not_found")
        assert none.header(b"x-request-id")


async def test_where_it_is_passed_on_a_replica_of_the_default_pool_answers() -> None:
    async with house(two_models(), config={"models": {"list": "pass"}}) as running:
        answer = await running.ask("/v1/models", method="GET")
        assert [model["id"] for model in json.loads(answer.body)["data"]] == ["qwen", "qwen:polite"]
        assert answer.header(b"x-steplane-replica") == b"interactive-0"


SPELLED: dict[str, tuple[bytes, bytes]] = {
    "plain": (b'{"model":"gpt-4o","messages":[]}', b'"model":"qwen","messages":[]}'),
    "with white space": (b'{ "model" : "gpt-4o" , "messages":[] }', b'"model" : "qwen" , "messages":[] }'),
    "escaped": (b'{"model":"gpt\\u002d4o","messages":[]}', b'"model":"qwen","messages":[]}'),
    "in a field, too": (
        b'{"messages":[{"role":"user","content":"gpt-4o"}],"model":"gpt-4o"}',
        b'"messages":[{"role":"user","content":"gpt-4o"}],"model":"qwen"}',
    ),
}


@pytest.mark.parametrize("how", SPELLED)
async def test_an_alias_is_replaced_by_the_models_name_and_nothing_else_changes(how: str) -> None:
    body, sent = SPELLED[how]
    rules = [{"name": "llama", "when": {"model": "gpt*"}, "pool": "grammar"}]
    config = {"models": {"aliases": {"gpt-4o": "qwen"}}}
    async with house(two_models(), rules=rules, config=config) as running:
        answer = await running.ask(CHAT, body)
        assert (answer.status, answer.header(b"x-steplane-pool")) == (200, b"interactive")
        (message,) = asked_to_generate(running.engines["interactive-0"])
        document = json.loads(message.body)
        assert document["model"] == "qwen"
        spliced = document.pop("rid")
        assert message.body.replace(b',"rid":"%b"' % spliced.encode(), b"").lstrip(b"{ ") == sent


@pytest.mark.parametrize(
    ("model", "status"),
    [("qwen", 200), ("qwen:polite", 200), ("qwen:new-adapter", 200), ("gpt-4o", 200), ("gpt-5", 404), (None, 200)],
)
async def test_a_model_that_nobody_serves_is_refused_where_that_is_wanted(model: str | None, status: int) -> None:
    config = {"models": {"unknown": "refuse", "aliases": {"gpt-4o": "qwen"}}}
    body = {name: value for name, value in BODY.items() if name != "model"} | (
        {} if model is None else {"model": model}
    )
    async with house(two_models(), config=config) as running:
        await known(running)
        answer = await running.ask(CHAT, body)
        assert answer.status == status
        if status == 404:
            assert error_of(answer)["code"] == "model_not_found"
            assert asked_to_generate(running.engines["interactive-0"]) == []


async def test_nothing_is_refused_while_a_replica_has_not_said_what_it_serves() -> None:
    async def silent(served: Served, message: Message) -> None:
        if b"/v1/models" in message.start:
            await served.send(b"HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\n\r\n")
        else:
            await ok(served, message)

    pools = {**two_models(), "grammar": [Engine("grammar-0", silent)]}
    async with house(pools, config={"models": {"unknown": "refuse"}}) as running:
        models = running.gateway._models
        assert models is not None
        await until(lambda: models.catalogue.names())
        assert (await running.ask(CHAT, {**BODY, "model": "gpt-5"})).status == 200


async def test_a_replica_that_was_started_anew_with_another_model_is_noticed_at_once() -> None:
    config = {"models": {"list": "merged", "unknown": "refuse", "refresh_s": 3600}}
    async with house(two_models(), config=config) as running:
        await known(running)
        engine = running.engines["interactive-0"]
        await engine.stop()
        assert (await running.ask(CHAT, BODY | {"model": "qwen"})).status in (502, 503)
        engine.answer = serving("mistral")
        await engine.start()
        models = running.gateway._models
        assert models is not None
        await until(lambda: "mistral" in models.catalogue.names() and running.available("interactive-0"))
        assert (await running.ask(CHAT, BODY | {"model": "mistral"})).status == 200
        gone = await running.ask(CHAT, BODY | {"model": "qwen"})
        assert (gone.status, error_of(gone)["code"]) == (404, "model_not_found")
