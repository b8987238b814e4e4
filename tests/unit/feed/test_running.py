"""From an engine's request id back to the gateway's request."""

import pytest

from gateway.feed.running import GENERATIONS, RunningRequests
from tests.unit.feed.attempts import REPLICA, attempt

ID = "a1b2c3d4e5f6-00000000000a"


@pytest.mark.parametrize(
    ("engine_id", "rid", "found"),
    [
        (ID, ID, True),
        # SGLang: prompts of a batch.
        (ID, f"{ID}_0", True),
        (ID, f"{ID}_17", True),
        (ID, f"{ID}_0_17", True),
        (ID, f"{ID}_0_1_2", False),
        (ID, f"{ID}_", False),
        (ID, f"{ID}_x", False),
        (ID, ID[:-1], False),
        ("batch_3", "batch_3", True),
        # vLLM: the API's prefix, eight random digits, samples, prompts.
        (ID, f"chatcmpl-{ID}-0123abcd", True),
        (ID, f"chatcmpl-{ID}", True),
        (ID, f"0_chatcmpl-{ID}-0123abcd", True),
        (ID, f"cmpl-{ID}-0-0123abcd", True),
        (ID, f"11_cmpl-{ID}-3-0123abcd", True),
        (ID, f"cmpl-{ID}-0", True),
        (ID, f"cmpl-{ID}-x-0123abcd", False),
        ("mine", "chatcmpl-mine-0123abcd", True),
        ("ends-0123abcd", "chatcmpl-ends-0123abcd", True),
        ("ends-0123abcd", "chatcmpl-ends-0123abcd-99999999", True),
        ("", "chatcmpl-", False),
        (ID, "", False),
    ],
)
def test_a_sequence_is_found_by_whatever_an_engine_makes_of_the_id(engine_id: str, rid: str, found: bool) -> None:
    running = RunningRequests()
    mine = attempt()
    running.add(engine_id, mine)
    assert running.find(rid, REPLICA) is (mine if found else None)


def test_an_id_of_its_own_comes_before_one_that_it_could_be_made_of() -> None:
    running = RunningRequests()
    whole, part = attempt("whole"), attempt("part")
    running.add("a", whole)
    running.add("a_1", part)
    assert running.find("a_1", REPLICA) is part
    assert running.find("a_0", REPLICA) is whole


def test_a_record_of_another_replica_is_not_about_the_attempt_on_this_one() -> None:
    running = RunningRequests()
    first, second = attempt(replica="r1"), attempt(replica="r2")
    running.add(ID, first)
    running.discard(ID, first)
    running.add(ID, second)
    assert running.find(ID, "r1") is first
    assert running.find(ID, "r2") is second
    assert running.find(ID, "r3") is None


def test_an_ended_attempt_is_found_for_some_seconds() -> None:
    running = RunningRequests()
    mine = attempt()
    running.add(ID, mine)
    running.discard(ID, mine)
    assert len(running) == 0
    for _ in range(GENERATIONS - 1):
        assert running.find(f"{ID}_0", REPLICA) is mine
        running.rotate()
    assert running.find(ID, REPLICA) is mine
    running.rotate()
    assert running.find(ID, REPLICA) is None


def test_what_ended_a_moment_ago_counts_as_what_ran_when_a_replica_died() -> None:
    running = RunningRequests()
    early, late, elsewhere, now = attempt("1"), attempt("2"), attempt("3", replica="r9"), attempt("4")
    for number, each in enumerate((early, late, elsewhere, now)):
        running.add(str(number), each)
    running.discard("0", early)
    running.rotate()
    running.rotate()
    running.discard("1", late)
    running.discard("2", elsewhere)
    assert running.ended_on(REPLICA) == [late]
    assert running.on_replica(REPLICA) == [now]


def test_ended_attempts_are_bounded_however_many_there_are() -> None:
    running = RunningRequests()
    last = attempt()
    for number in range(200_000):
        running.add(str(number), last)
        running.discard(str(number), last)
    assert running.find("0", REPLICA) is None
    assert running.find("199999", REPLICA) is last


def test_an_id_that_a_client_chose_is_found_while_one_kind_of_request_uses_it() -> None:
    running = RunningRequests()
    first, second = attempt("1", "s1-a"), attempt("2", "s1-a")
    running.add_given("chosen", first)
    assert running.find("chosen_0", REPLICA) is first
    running.add_given("chosen", second)
    assert running.find("chosen", REPLICA) is second
    running.discard("chosen", second)
    assert running.find("chosen", REPLICA) is first
    assert len(running) == 1
    running.discard("chosen", first)
    assert len(running) == 0
    assert running.find("chosen", REPLICA) is first
    assert running.on_replica(REPLICA) == []
    assert running.ended_on(REPLICA) == [first]


def test_nobody_can_be_framed_by_using_an_id_of_another_kind_of_request() -> None:
    running = RunningRequests()
    bomb, framed = attempt("1", "s1-bomb"), attempt("2", "s1-good")
    running.add_given("chosen", bomb)
    running.add_given("chosen", framed)
    assert running.find("chosen", REPLICA) is None
    running.discard("chosen", bomb)
    # The last steps of one may be reported when only the other runs any more.
    assert running.find("chosen", REPLICA) is None
    assert running.ambiguous == 2
    for _ in range(GENERATIONS):
        running.rotate()
    assert running.find("chosen", REPLICA) is framed


def test_an_id_that_the_gateway_has_made_is_not_taken_over_by_a_client_that_chose_it() -> None:
    running = RunningRequests()
    ours, theirs = attempt("1", "s1-a"), attempt("2", "s1-b")
    running.add(ID, ours)
    running.add_given(ID, theirs)
    assert running.find(ID, REPLICA) is ours
    running.discard(ID, theirs)
    assert running.find(ID, REPLICA) is ours


def test_it_is_known_which_chosen_ids_are_in_use_or_just_were() -> None:
    running = RunningRequests()
    mine = attempt()
    assert not running.known("chosen")
    running.add_given("chosen", mine)
    assert running.known("chosen")
    running.discard("chosen", mine)
    assert running.known("chosen")
    for _ in range(GENERATIONS):
        running.rotate()
    assert not running.known("chosen")


def test_chosen_ids_are_bounded_like_all_others() -> None:
    running = RunningRequests()
    for number in range(160_000):
        each = attempt(str(number), f"s1-{number % 3}")
        running.add_given("one" if number % 2 else str(number), each)
        running.discard("one" if number % 2 else str(number), each)
    assert len(running) == 0
    assert len(running.ended_on(REPLICA)) <= 3 * 8192
    assert running.find("0", REPLICA) is None


def test_the_ids_of_sequences_are_known_once_a_record_has_named_them() -> None:
    running = RunningRequests()
    running.add(ID, attempt())
    assert running.sequence_ids(ID) == ()
    for rid in (ID, f"{ID}_0_0000000017", f"{ID}_0_0000000018", "theirs_0"):
        running.find(rid, REPLICA)
    assert sorted(running.sequence_ids(ID)) == [f"{ID}_0_0000000017", f"{ID}_0_0000000018"]
    assert running.sequence_ids("theirs") == ()


def test_an_attempt_that_is_dropped_is_forgotten_at_once() -> None:
    running = RunningRequests()
    mine = attempt()
    running.add(ID, mine)
    assert running.drop(ID, None) is mine
    assert running.drop(ID, None) is None
    assert running.find(ID, REPLICA) is None
    assert len(running) == 0


def test_running_requests_of_a_signature_come_with_the_ids_to_abort() -> None:
    running = RunningRequests()
    mine, other = attempt("1", "s1-bad"), attempt("2", "s1-good")
    running.add("x", mine)
    running.add("y", other)
    assert running.of_signature("s1-bad") == [("x", mine)]
    chosen = attempt("3", "s1-bad")
    running.add_given("z", chosen)
    assert running.of_signature("s1-bad") == [("x", mine), ("z", chosen)]
