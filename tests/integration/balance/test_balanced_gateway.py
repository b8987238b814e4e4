"""Balancing as clients and engines see it, through a whole gateway."""

import json
from typing import Any

import pytest

from tests.integration.gateway.harness import ANSWER, CHAT, Engine, Held, House, error_of, house, request
from tests.integration.wire.harness import Message, until

SCHEMA = {"type": "object", "required": ["b"], "properties": {"b": {"type": "string", "maxLength": 5}, "a": {}}}
SPELLED = b'{"properties":{"b":{"maxLength":5,"type":"string"},"a":{}},"required":["b"],"type":"object"}'


def chat(text: str = "hi", **fields: Any) -> dict[str, Any]:
    return {"model": "m", "messages": [{"role": "user", "content": text}], **fields}


def structured(schema: object = SCHEMA) -> dict[str, Any]:
    return chat(response_format={"type": "json_schema", "json_schema": {"name": "n", "schema": schema}})


def engines(count: int = 3) -> dict[str, list[Engine]]:
    return {"p": [Engine(f"e{at}") for at in range(count)]}


def replica_of(answer: Message) -> str:
    return dict(answer.headers)[b"x-steplane-replica"].decode()


def asked_by(running: House) -> dict[str, int]:
    return {name: len(engine.asked) for name, engine in running.engines.items()}


@pytest.mark.parametrize(
    ("balance", "by_header"),
    [({"session_affinity": {"header": "X-Session"}}, True), ({"session_affinity": "user"}, False)],
)
async def test_a_session_stays_with_its_replica(balance: dict[str, Any], by_header: bool) -> None:
    async with house(engines(), options={"p": {"balance": balance}}, rules=[]) as running:
        homes: dict[int, set[str]] = {}
        for _ in range(2):
            for at in range(12):
                lines = [f"x-SESSION: s{at}"] if by_header else []
                answer = await running.ask(CHAT, chat() if by_header else chat(user=f"s{at}"), *lines)
                homes.setdefault(at, set()).add(replica_of(answer))
        assert all(len(each) == 1 for each in homes.values())
        assert len(set().union(*homes.values())) > 1


async def test_a_session_goes_elsewhere_when_its_replica_is_gone() -> None:
    async with house(engines(), options={"p": {"balance": {"session_affinity": "user"}}}, rules=[]) as running:
        home = replica_of(await running.ask(CHAT, chat(user="u")))
        await running.engines[home].stop()
        for _ in range(2):
            answer = await running.ask(CHAT, chat(user="u"))
            assert answer.status == 200
            assert replica_of(answer) != home


async def test_a_grammar_goes_where_it_was_compiled() -> None:
    async with house(engines(), options={"p": {"balance": "grammar_affinity"}}, rules=[]) as running:
        for _ in range(6):
            assert (await running.ask(CHAT, structured())).status == 200
        assert sorted(asked_by(running).values()) == [0, 0, 6]


async def test_a_conversation_goes_on_where_it_began_though_it_had_to_wait_there() -> None:
    held = Held(end=ANSWER)
    pools = {"p": [Engine("e0", held), Engine("e1", held)]}
    options = {"p": {"balance": "prefix_affinity", "admission": {"max_in_flight": 1}}}
    async with house(pools, options=options, rules=[]) as running:
        clients = [await running.client() for _ in range(3)]
        texts = [letter * 2000 for letter in "ABC"]
        for client, text in zip(clients, texts, strict=True):
            body = chat(text)
            await client.send(request(CHAT, body))
        await until(lambda: running.in_flight == 2 and running.gateway.router.pools["p"].waiting == 1)
        held.finish.set()
        homes = [replica_of(await client.response(b"POST")) for client in clients]
        again = [replica_of(await running.ask(CHAT, chat(text + "!" * 300))) for text in texts]
        assert again == homes


async def test_a_schema_reaches_engines_in_one_spelling_and_all_else_as_it_came() -> None:
    pools = {"p": [Engine("e0")]}
    options = {"p": {"canonicalize_schema": True, "engine": "vllm"}}
    before, after = (
        b'{ "messages":[ ],"response_format":{"json_schema":{"schema" :',
        b' ,"name":"n"},\n"type":"json_schema"}, "seed":1.0 }',
    )
    async with house(pools, options=options, rules=[]) as running:
        await running.ask(CHAT, before + json.dumps(SCHEMA).encode() + after)
        await running.ask(CHAT, before + SPELLED + after)
        assert [each.body for each in running.asked] == [before + SPELLED + after] * 2


async def test_what_no_pool_can_take_is_answered_with_what_is_missing() -> None:
    can = {"grammar": False, "models": ["m"], "max_top_logprobs": 5}
    async with house({"p": [Engine("e0")]}, options={"p": {"capabilities": can}}, rules=[]) as running:
        refused = await running.ask(CHAT, structured())
        unknown = await running.ask(CHAT, chat() | {"model": "other"})
        many = await running.ask(CHAT, chat(logprobs=True, top_logprobs=6))
        assert (refused.status, error_of(refused)["code"]) == (400, "grammar_unsupported")
        assert (unknown.status, error_of(unknown)["code"], error_of(unknown)["param"]) == (
            404,
            "model_not_found",
            "model",
        )
        assert (many.status, error_of(many)["code"]) == (400, "too_many_logprobs")
        assert b"retry-after" not in dict(refused.headers)
        assert running.asked == []
        assert (await running.ask(CHAT, chat())).status == 200


async def test_a_grammar_is_booked_at_what_it_costs_on_the_backend_that_runs_it() -> None:
    held = Held(end=ANSWER)
    pools = {"xg": [Engine("e0", held)], "llg": [Engine("e1", held)]}
    options = {"llg": {"grammar_backend": "llguidance", "step_budget_us": 100_000}}
    rules = [{"name": "structured", "when": {"grammar": "any"}, "cheapest_backend": ["xg", "llg"]}]
    costly = {"type": "string", "pattern": "^.{1,255}$"}
    async with house(pools, options=options, rules=rules) as running:
        client = await running.client()
        body = structured(costly)
        await client.send(request(CHAT, body))
        await until(lambda: running.in_flight == 1)
        (replica,) = running.gateway.router.pools["llg"].replicas
        assert replica.in_flight == 1
        assert 0.0 < replica.booked_us < 5_000  # 40,000 on the other
        held.finish.set()
        assert (await client.response(b"POST")).status == 200
        await until(lambda: replica.booked_us == 0.0)
