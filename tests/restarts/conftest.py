"""What the tests of workers begin with."""

from tests.integration.workers.conftest import replica, start

__all__ = ["replica", "start"]  # fixtures
