"""Addresses as they are written in the configuration: where to listen, and where a replica is.

Parses text only; resolves no name and opens no socket.
"""

import re
from dataclasses import dataclass
from ipaddress import ip_address
from urllib.parse import urlsplit

_HOSTNAME = re.compile(r"(?=.{1,253}\Z)[A-Za-z0-9_](?:[A-Za-z0-9_-]*[A-Za-z0-9_])?(?:\.[A-Za-z0-9_-]+)*\.?")
_VISIBLE = re.compile(r"[!-~]+")
_UNIX = "unix:"
_LONGEST_UNIX_PATH = 95  # of the 107 that Linux has room for: it is bound under a longer name first
_LONGEST_PATH_TO_DIAL = 107
_DEFAULT_PORTS = {"http": 80, "https": 443}


class AddressError(ValueError):
    """Text that is no usable address; `expected` says what would be."""

    def __init__(self, expected: str, hint: str | None = None) -> None:
        super().__init__(expected)
        self.expected = expected
        self.hint = hint


@dataclass(frozen=True, slots=True)
class Address:
    """Where to listen. Port 0 lets the system choose."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"{_bracketed(self.host)}:{self.port}"

    @property
    def is_loopback(self) -> bool:
        """Only this machine can reach it."""
        try:
            return ip_address(self.host).is_loopback
        except ValueError:
            return self.host.lower() == "localhost"


@dataclass(frozen=True, slots=True)
class UnixPath:
    """A Unix socket to listen on."""

    path: str

    def __str__(self) -> str:
        return f"{_UNIX}{self.path}"


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a replica is: scheme, host and port, as in `http://10.0.0.7:30000`; `str()` gives that text.

    path: of a Unix socket, as in `unix:/run/engine.sock`; then the scheme is `unix`, and there is no host and no port.
    """

    scheme: str
    host: str
    port: int
    path: str = ""

    @property
    def authority(self) -> str:
        """`host:port`, or `unix:/path`."""
        return f"{_UNIX}{self.path}" if self.path else f"{_bracketed(self.host)}:{self.port}"

    def __str__(self) -> str:
        return self.authority if self.path else f"{self.scheme}://{self.authority}"


def parse_address(text: object) -> Address:
    """Parse `HOST:PORT`, an IPv6 host in brackets. Raises AddressError."""
    expected = "HOST:PORT, as in 127.0.0.1:8080"
    if not isinstance(text, str):
        raise AddressError(expected)
    host, colon, port = text.rpartition(":")
    if not colon or not port.isascii() or not port.isdigit():
        raise AddressError(expected)
    if not host:
        raise AddressError(expected, f"0.0.0.0:{port} listens on every interface")
    if int(port) > 65535:
        raise AddressError("a port from 0 to 65535")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        raise AddressError(expected, 'an IPv6 host stands in brackets and quotes: "[::1]:8080"')
    if not _is_host(host):
        raise AddressError(expected)
    return Address(host, int(port))


def parse_endpoint(text: object) -> Address | UnixPath:
    """Parse `HOST:PORT` or `unix:/PATH`. Raises AddressError."""
    if not isinstance(text, str) or not text.startswith(_UNIX):
        return parse_address(text)
    path = text.removeprefix(_UNIX)
    if not path.startswith("/") or path.endswith("/") or "\0" in path:
        raise AddressError("unix:/PATH with the whole path of a socket, as in unix:/run/steplane.sock")
    if len(path.encode()) > _LONGEST_UNIX_PATH:
        raise AddressError(f"a path of at most {_LONGEST_UNIX_PATH} bytes, for the system has no room for a longer one")
    return UnixPath(path)


def parse_origin(text: object) -> Origin:
    """Parse the URL of a replica; it has no path, query or credentials. Raises AddressError.

    Or of a Unix socket: `unix:/PATH`, also spelled `unix:///PATH` and `http+unix:///PATH`.
    """
    expected = "a URL such as http://10.0.0.7:30000"
    if not isinstance(text, str) or not _VISIBLE.fullmatch(text):  # urlsplit would drop line breaks and tabs
        raise AddressError(expected)
    if text.startswith((_UNIX, f"http+{_UNIX}")):
        return Origin("unix", "", 0, _socket_path(text.removeprefix("http+").removeprefix(_UNIX)))
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError:
        raise AddressError(expected) from None
    if parts.scheme not in _DEFAULT_PORTS:
        hint = f"did you mean http://{text}?" if "://" not in text else None
        raise AddressError(f"{expected}, with http:// or https://", hint)
    if parts.username is not None or parts.password is not None:
        raise AddressError(f"{expected}, without user or password")
    if parts.path not in ("", "/") or parts.query or parts.fragment:
        raise AddressError(f"{expected}, without a path", "the path of each request is passed on as it is")
    if not parts.hostname or not _is_host(parts.hostname) or port == 0:
        raise AddressError(expected)
    return Origin(parts.scheme, parts.hostname, port or _DEFAULT_PORTS[parts.scheme])


def _socket_path(text: str) -> str:
    path = text.removeprefix("//")
    if not path.startswith("/") or path.endswith("/"):
        raise AddressError("unix:/PATH with the whole path of a socket, as in unix:/run/engine.sock")
    if len(path) > _LONGEST_PATH_TO_DIAL:
        raise AddressError(f"a path of at most {_LONGEST_PATH_TO_DIAL} bytes, for the system has no room for more")
    return path


def _is_host(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        # What looks like a number is an address with a mistake in it, not a name.
        return _HOSTNAME.fullmatch(host) is not None and not host.rstrip(".").rpartition(".")[2].isdigit()
    return True


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host
