"""How many client connections the open files that the system allows this process are enough for.

Each is a file, and so is the connection to the replica that serves it. Taking clients without a file left for their
replicas would fail them all, so there is a limit where none is configured, as HAProxy has one.
"""

import resource


def connections_within(open_files: int) -> int:
    """Client connections for which `open_files` are enough; 0: there is no limit."""
    if open_files == resource.RLIM_INFINITY:
        return 0
    return max(1, (open_files - min(_RESERVED, open_files // 4)) // 2)


def connections_allowed() -> int:
    """Client connections that this process has files for; 0: there is no limit."""
    return connections_within(resource.getrlimit(resource.RLIMIT_NOFILE)[0])


_RESERVED = 1024
"""For listeners, health checks, step feeds, the admin port, and connections to replicas that rest."""
