import pytest

from gateway.wire.minimumrate import MinimumRate


@pytest.mark.parametrize(
    ("moved", "slow_at"),
    [
        ([100 * second for second in range(60)], None),
        ([99 * second for second in range(60)], 10),
        ([0] * 60, 10),
        ([5000] * 60, 10),
        ([0, 1000] + [1000] * 58, 20),
        ([1000 * (second // 10) for second in range(60)], None),
    ],
    ids=["just enough", "just too slow", "nothing", "nothing more", "a burst", "in bursts"],
)
def test_each_spell_of_grace_is_judged_by_itself(moved: list[int], slow_at: int | None) -> None:
    rate: MinimumRate[str] = MinimumRate(100, 10.0)
    found = [second for second, bytes_moved in enumerate(moved) if rate.check([("it", bytes_moved)], float(second))]
    assert found[:1] == ([] if slow_at is None else [slow_at])


def test_whoever_was_not_to_move_gets_a_new_spell() -> None:
    rate: MinimumRate[str] = MinimumRate(100, 10.0)
    for second in range(100):
        movers = [] if second % 9 == 0 else [("it", 0)]
        assert rate.check(movers, float(second)) == []


def test_one_is_not_judged_by_another() -> None:
    rate: MinimumRate[str] = MinimumRate(100, 10.0)
    slow = [rate.check([("quick", 200 * second), ("slow", second)], float(second)) for second in range(11)]
    assert slow[-1] == ["slow"]
