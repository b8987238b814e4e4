"""A cable between two network namespaces, which loses packets or all of them.

Two TUN devices, one in each namespace, and a thread that carries packets from one to the other: what it drops is lost
as on a bad line, and TCP sends it again or does not. Linux, root in the namespaces.
"""

from __future__ import annotations

import fcntl
import os
import random
import select
import struct
import subprocess
import threading

_TUNSETIFF = 0x400454CA
_IFF_TUN = 0x0001
_IFF_NO_PI = 0x1000
_LARGEST_PACKET = 65_536


def device(name: str, address: str) -> int:
    """A TUN device in this process's namespace, up, and its file descriptor. Raises OSError."""
    descriptor = os.open("/dev/net/tun", os.O_RDWR)
    fcntl.ioctl(descriptor, _TUNSETIFF, struct.pack("16sH", name.encode(), _IFF_TUN | _IFF_NO_PI))
    for words in (["addr", "add", f"{address}/30", "dev", name], ["link", "set", name, "up"]):
        subprocess.run(["ip", *words], check=True)
    return descriptor


class Cable(threading.Thread):
    """`loss`: the share of packets that are lost from now on; 1.0: it is pulled out. `lost`: how many were."""

    def __init__(self, one_end: int, other_end: int) -> None:
        super().__init__(daemon=True)
        self.loss = 0.0
        self.lost = 0
        self._ends = {one_end: other_end, other_end: one_end}
        self._rng = random.Random(1)
        self._stop_read, self._stop_write = os.pipe()

    def run(self) -> None:
        """Carries packets until `stop`."""
        poll = select.poll()
        for descriptor in (*self._ends, self._stop_read):
            poll.register(descriptor, select.POLLIN)
        while True:
            for descriptor, _ in poll.poll():
                if descriptor == self._stop_read:
                    return
                packet = os.read(descriptor, _LARGEST_PACKET)
                if self._rng.random() < self.loss:
                    self.lost += 1
                else:
                    os.write(self._ends[descriptor], packet)

    def stop(self) -> None:
        """Ends the thread and closes both devices."""
        os.write(self._stop_write, b"x")
        self.join()
        for descriptor in (*self._ends, self._stop_read, self._stop_write):
            os.close(descriptor)
