"""When a set that was found is believed."""

import pytest

from gateway.discovery.guard import Guard


def members(count: int) -> frozenset[str]:
    return frozenset("abcdefgh"[:count])


@pytest.mark.parametrize(
    ("percent", "before", "after", "believed"),
    [
        (50, 4, 2, True),
        (50, 4, 1, False),
        (50, 4, 0, False),
        (50, 1, 0, False),
        (0, 4, 3, False),
        (0, 4, 4, True),
        (100, 4, 0, True),
        (50, 4, 8, True),
    ],
)
def test_no_more_than_a_share_goes_at_once(percent: float, before: int, after: int, believed: bool) -> None:
    guard = Guard(percent, 60.0, lambda: 0.0)
    assert guard.judge(members(before)) is None

    doubt = guard.judge(members(after))

    assert (doubt is None) is believed
    if doubt is not None:
        assert doubt.again_in_s == 60.0
        assert f"{before - after} of {before} members are gone" in doubt.why


def test_what_still_holds_after_a_while_is_believed() -> None:
    now_s = 0.0
    guard = Guard(50, 60.0, lambda: now_s)
    guard.judge(members(4))
    assert guard.judge(members(1)) is not None

    now_s = 59.0
    doubt = guard.judge(members(0))
    assert doubt is not None
    assert doubt.again_in_s == 1.0
    now_s = 60.0
    assert guard.judge(members(1)) is None
    assert guard.judge(members(1)) is None


def test_when_they_are_back_the_doubt_is_forgotten() -> None:
    now_s = 0.0
    guard = Guard(50, 60.0, lambda: now_s)
    guard.judge(members(4))
    guard.judge(members(1))
    guard.judge(members(4))

    now_s = 60.0
    doubt = guard.judge(members(1))

    assert doubt is not None
    assert doubt.again_in_s == 60.0
