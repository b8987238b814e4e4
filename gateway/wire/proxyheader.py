"""The PROXY protocol, versions 1 and 2: what a TCP balancer writes in front of a connection to say whose it is.

As HAProxy's doc/proxy-protocol.txt has it. Bytes in, an address out; knows nothing of sockets.
"""

import socket
from typing import Final


class ProxyHeaderError(ValueError):
    """Not the header that must stand there; the message says what is wrong with it."""


def header_end(data: bytes) -> int:
    """Where the header at the beginning of `data` ends; -1 if it goes on behind `data`. Raises ProxyHeaderError."""
    start = data[: len(_SIGNATURE)]
    if start == _SIGNATURE:
        if len(data) < _FIXED:
            return -1
        end = _FIXED + int.from_bytes(data[14:16], "big")
        if end > MAX_BYTES:
            raise ProxyHeaderError(f"the PROXY header is longer than {MAX_BYTES} bytes")
        return end if len(data) >= end else -1
    if _SIGNATURE.startswith(start):
        return -1
    if not (data.startswith(_TEXT) or _TEXT.startswith(data[: len(_TEXT)])):
        raise ProxyHeaderError("there is no PROXY header, which this listener expects in front of each connection")
    end = data.find(b"\n", 0, _MAX_LINE) + 1
    if not end and len(data) >= _MAX_LINE:
        raise ProxyHeaderError("the PROXY line does not end")
    return end or -1


def announced(header: bytes) -> str | None:
    """The client's address in a whole header; None where it names none (LOCAL, UNKNOWN). Raises ProxyHeaderError."""
    return _of_text(header) if header.startswith(_TEXT) else _of_binary(header)


def _of_text(header: bytes) -> str | None:
    if not header.endswith(b"\r\n"):
        raise ProxyHeaderError("the PROXY line does not end with CRLF")
    words = header[:-2].split(b" ")
    if words[1:2] == [b"UNKNOWN"]:
        return None
    if len(words) != 6 or words[1] not in (b"TCP4", b"TCP6"):
        raise ProxyHeaderError("the PROXY line is not `PROXY TCP4|TCP6 source destination port port`")
    _, family, source, destination, *ports = words
    if not all(port.isdigit() and len(port) <= 5 and int(port) <= 65535 for port in ports):
        raise ProxyHeaderError("a port of the PROXY line is no number up to 65535")
    kind = socket.AF_INET if family == b"TCP4" else socket.AF_INET6
    try:
        socket.inet_pton(kind, destination.decode("ascii"))
        return socket.inet_ntop(kind, socket.inet_pton(kind, source.decode("ascii")))
    except (OSError, UnicodeDecodeError):
        raise ProxyHeaderError(f"an address of the PROXY line is not one of {family.decode()}") from None


def _of_binary(header: bytes) -> str | None:
    version, command = header[12] >> 4, header[12] & 15
    if version != 2 or command > 1:
        raise ProxyHeaderError(f"the PROXY header is of version {version} and command {command}")
    if command == 0:
        return None  # LOCAL: the balancer's own, a health check
    family = header[13]
    size = _ADDRESS_BYTES.get(family)
    if size is None:
        return None  # of a kind that has no address: the receiver must then use the connection's own
    addresses = header[_FIXED : _FIXED + 2 * size + 4]
    if len(addresses) < 2 * size + 4:
        raise ProxyHeaderError("the PROXY header is too short for its addresses")
    return socket.inet_ntop(socket.AF_INET if size == 4 else socket.AF_INET6, addresses[:size])


_SIGNATURE: Final = b"\r\n\r\n\0\r\nQUIT\n"
_FIXED: Final = 16
_TEXT: Final = b"PROXY "
_MAX_LINE: Final = 107
MAX_BYTES: Final = 16 * 1024
"""Of a header of version 2 with all that stands behind its addresses: mostly some hundreds, more where a balancer sends
a client's certificate. HAProxy takes as many."""
_ADDRESS_BYTES: Final = {0x11: 4, 0x21: 16}
"""Of TCP over IPv4 and over IPv6, by the byte that names both."""
