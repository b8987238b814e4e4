"""Who takes clients from which socket, whoever is missing."""

import pytest

from gateway.workers.assignment import assign


@pytest.mark.parametrize(
    ("slots", "workers", "assigned"),
    [
        (2, [(0, 10), (1, 11)], {10: [0], 11: [1]}),
        (2, [(0, 10)], {10: [0, 1]}),
        (3, [(1, 11), (2, 12)], {11: [0, 1], 12: [2]}),
        (4, [(3, 13), (1, 11)], {11: [0, 1], 13: [2, 3]}),
        # Fewer workers than before: what was theirs is taken over for good.
        (4, [(0, 10), (1, 11)], {10: [0, 2], 11: [1, 3]}),
        (2, [], {}),
    ],
)
def test_every_socket_has_its_worker_or_one_that_stands_in(
    slots: int, workers: list[tuple[int, int]], assigned: dict[int, list[int]]
) -> None:
    assert assign(slots, workers) == assigned
