"""Who takes clients from which listening socket. Pure.

Each worker has a socket of its own on every port, and the system spreads connections over them. A socket whose worker
is gone would keep what comes to it waiting, so another one takes from it meanwhile.
"""

from collections.abc import Sequence


def assign(slots: int, workers: Sequence[tuple[int, int]]) -> dict[int, list[int]]:
    """The slots that each worker takes clients from, by the worker's key.

    workers: slot and key of those that can take clients, no two with one slot. Empty where there are none.
    """
    owners = {slot: key for slot, key in workers if slot < slots}
    assigned: dict[int, list[int]] = {key: [] for _, key in workers}
    stand_ins = [key for _, key in sorted(workers)]
    turn = 0
    for slot in range(slots):
        owner = owners.get(slot)
        if owner is None and stand_ins:
            owner = stand_ins[turn % len(stand_ins)]
            turn += 1
        if owner is not None:
            assigned[owner].append(slot)
    return assigned
