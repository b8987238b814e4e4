import resource

import pytest

from gateway.wire.openfiles import connections_within


@pytest.mark.parametrize(
    ("open_files", "connections"),
    [(resource.RLIM_INFINITY, 0), (1_048_576, 523_776), (20_000, 9_488), (1024, 384), (256, 96), (3, 1)],
)
def test_each_client_has_room_for_its_replica(open_files: int, connections: int) -> None:
    assert connections_within(open_files) == connections
