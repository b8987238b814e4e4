import pytest
from asks import ask, replicas

from gateway.hookcost import Api, Classification, Features, HookCost
from gateway.routing.balance.ask import Ask
from gateway.routing.balance.prefix_affinity import PrefixAffinity, PrefixMemory
from gateway.routing.replica import Replica

SYSTEM = "You are a helpful assistant. " * 40


def score(memory: PrefixMemory, request: Ask, members: tuple[Replica, ...]) -> list[float]:
    return memory.score(request, members, members)


def test_the_longest_known_beginning_counts_most() -> None:
    memory = PrefixAffinity().build()
    members = replicas(3)
    memory.learn(ask(prompt=SYSTEM + "A" * 1000), members[0])
    memory.learn(ask(prompt=SYSTEM + "A" * 1000 + "B" * 1000), members[2])

    scores = score(memory, ask(prompt=SYSTEM + "A" * 1000 + "B" * 1000 + "and now?"), members)

    assert scores[2] > scores[0] > scores[1] == 0.0
    assert scores[2] > 0.9


def test_a_prompt_that_nobody_knows_has_one_home_for_every_gateway() -> None:
    members = replicas(4)
    one, other = PrefixAffinity().build(), PrefixAffinity().build()
    for at in range(20):
        request = ask(prompt=f"{at} {SYSTEM}")
        scores = score(one, request, members)
        assert sorted(scores) == [0.0, 0.0, 0.0, 1.0]
        assert scores == score(other, request, members)


def test_a_common_beginning_alone_binds_nobody() -> None:
    memory = PrefixAffinity(threshold=0.5).build()
    members = replicas(4)
    memory.learn(ask(prompt=SYSTEM + "A" * 9000), members[0])

    homes = {tuple(score(memory, ask(prompt=SYSTEM + letter * 9000), members)) for letter in "BCDEFGHIJKLMNOP"}

    assert len(homes) > 1


def test_a_replica_above_its_bound_gets_no_more_for_what_it_knows() -> None:
    memory = PrefixAffinity(floor=2).build()
    members = replicas(3)
    request = ask(prompt=SYSTEM)
    memory.learn(request, members[0])
    assert score(memory, request, members)[0] == 1.0

    members[0].in_flight = 2

    assert score(memory, request, members)[0] == 0.0


def test_another_model_has_another_cache() -> None:
    memory = PrefixAffinity().build()
    members = replicas(3)
    memory.learn(ask(prompt=SYSTEM, model="lora-a"), members[0])
    known = score(memory, ask(prompt=SYSTEM, model="lora-a"), members)
    unknown = [score(memory, ask(prompt=SYSTEM, model=f"lora-{at}"), members) for at in range(10)]
    assert known == [1.0, 0.0, 0.0]
    assert any(each != known for each in unknown)


def test_the_least_recently_used_is_forgotten() -> None:
    memory = PrefixAffinity(blocks=200).build()
    members = replicas(2)
    kept = ask(prompt="kept " + SYSTEM)
    memory.learn(kept, members[1])
    for at in range(100):
        memory.learn(ask(prompt=f"{at} {SYSTEM}"), members[0])
        memory.learn(kept, members[1])
    assert len(memory) <= 200
    assert score(memory, kept, members) == [0.0, 1.0]
    assert sum(score(memory, ask(prompt=f"{at} {SYSTEM}"), members)[0] == 1.0 for at in range(90, 100)) >= 5


@pytest.mark.parametrize(
    ("api", "body"),
    [
        (Api.other, b'{"input": "' + SYSTEM.encode() + b'"}'),
        (Api.completions, b'{"model": "m"}'),
        (Api.chat, b'{"messages": []}'),
        (Api.chat, b""),
        (Api.chat, b'{"metadata": "' + b"x" * (1 << 20) + b'", "messages": ["' + SYSTEM.encode() + b'"]}'),
    ],
)
def test_what_has_no_prompt_to_speak_of_is_nowhere_at_home(api: Api, body: bytes) -> None:
    memory = PrefixAffinity().build()
    members = replicas(3)
    request = Ask(Classification(Features(api=api), HookCost(), "s1-0"), body)
    assert score(memory, request, members) == [0.0, 0.0, 0.0]
    memory.learn(request, members[0])
    assert len(memory) == 0


def test_no_more_of_a_prompt_is_looked_at_than_is_allowed() -> None:
    memory = PrefixAffinity(most_bytes=1280, block_bytes=128).build()
    memory.learn(ask(prompt=SYSTEM * 50), replicas(1)[0])
    assert len(memory) == 10


def test_a_large_body_is_not_held_after_its_request_was_placed() -> None:
    memory = PrefixAffinity().build()
    members = replicas(2)
    request = ask(prompt=SYSTEM)
    score(memory, request, members)
    memory.learn(request, members[0])
    assert memory._chained is None
