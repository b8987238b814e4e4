"""Where the shared store is and how to get in. Owns the URL's grammar; connects to nothing.

    redis://[user[:password]@]host[:port][/db]                       one server
    unix:///path/of/socket[?db=n]                                    one server on this machine
    redis+sentinel://[user[:password]@]host[:port],…/service[/db]    whichever server the sentinels name
    redis+cluster://[user[:password]@]host[:port],…                  a cluster, found through any of these

`rediss` in place of `redis` encrypts. User and password are the servers'; those of the sentinels are options.
"""

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from urllib.parse import parse_qsl, unquote, urlsplit

_PORT = 6379
_SENTINEL_PORT = 26379


class Topology(StrEnum):
    """What stands behind the URL."""

    single = "single"
    unix = "unix"
    sentinel = "sentinel"
    cluster = "cluster"


_SCHEMES: dict[str, tuple[Topology, bool]] = {
    "redis": (Topology.single, False),
    "rediss": (Topology.single, True),
    "unix": (Topology.unix, False),
    "redis+sentinel": (Topology.sentinel, False),
    "rediss+sentinel": (Topology.sentinel, True),
    "redis+cluster": (Topology.cluster, False),
    "rediss+cluster": (Topology.cluster, True),
}


@dataclass(frozen=True, slots=True)
class Address:
    """A URL, read.

    hosts:   host and port of the server, the sentinels, or some nodes of the cluster; empty for a socket.
    path:    of the socket; service: what the sentinels call the server. "" where there is none.
    """

    topology: Topology
    encrypted: bool
    hosts: tuple[tuple[str, int], ...]
    path: str = ""
    service: str = ""
    db: int = 0
    username: str | None = None
    password: str | None = None

    def __str__(self) -> str:
        """The URL without user and password."""
        scheme = next(scheme for scheme, of in _SCHEMES.items() if of == (self.topology, self.encrypted))
        hosts = ",".join(f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for host, port in self.hosts)
        match self.topology:
            case Topology.unix:
                return f"unix://{self.path}"
            case Topology.sentinel:
                return f"{scheme}://{hosts}/{self.service}/{self.db}"
            case Topology.cluster:
                return f"{scheme}://{hosts}"
            case Topology.single:
                return f"{scheme}://{hosts}/{self.db}"


@dataclass(frozen=True, slots=True)
class RedisOptions:
    """How the shared store is reached and used.

    url:              see the module.
    prefix:           of all keys, so that several installations can share a Redis.
    username, password: in place of the URL's. password_file: read at each connect, so that it can be changed.
    ca_file:          PEM file of the authorities that may have signed the server's certificate; None: the system's.
    cert_file, key_file: PEM files of the certificate to show and its key; key_file None: it stands in cert_file.
    sentinel_username, sentinel_password: for the sentinels themselves.
    timeout_s:        for connecting and for each exchange; longer counts as away.
    lease_timeout_s:  longer, and a lease is not granted.
    look_s:           between two looks at whether all changes were heard; a lost message costs up to twice this.
    count_s:          between two exchanges of counters.
    start_wait_s:     `start` waits so long for what the other gateways know.
    retry_s, retry_max_s: pause before the first and the slowest attempt to connect again, less up to half at random.
    capacity:         records, and counters, of each kind kept here at most.
    """

    url: str
    prefix: str = "steplane"
    username: str | None = None
    password: str | None = None
    password_file: Path | None = None
    ca_file: Path | None = None
    cert_file: Path | None = None
    key_file: Path | None = None
    sentinel_username: str | None = None
    sentinel_password: str | None = None
    timeout_s: float = 1.0
    lease_timeout_s: float = 0.1
    look_s: float = 1.0
    count_s: float = 2.0
    start_wait_s: float = 1.0
    retry_s: float = 0.05
    retry_max_s: float = 5.0
    capacity: int = 100_000

    def __post_init__(self) -> None:
        read_address(self.url)
        if not self.prefix or any(character in "{}" or character.isspace() for character in self.prefix):
            raise ValueError(f"prefix: expected a name without braces and blanks, found {self.prefix!r}")
        if self.password is not None and self.password_file is not None:
            raise ValueError("password_file: expected either password or password_file, found both")
        if self.key_file is not None and self.cert_file is None:
            raise ValueError("key_file: expected cert_file beside it, found none")
        tls = next((name for name in ("ca_file", "cert_file") if getattr(self, name) is not None), None)
        if tls is not None and not self.address.encrypted:
            raise ValueError(f"{tls}: expected a URL that encrypts (rediss://, rediss+…://), found {self.address}")

    @property
    def address(self) -> Address:
        """The URL, read."""
        return read_address(self.url)


def read_address(url: str) -> Address:
    """Read a URL. Raises ValueError saying what was expected, without repeating a password."""
    scheme, separator, rest = url.partition("://")
    if not separator or scheme not in _SCHEMES:
        expected = ", ".join(f"{name}://" for name in _SCHEMES)
        raise ValueError(f"url: expected one that begins with one of {expected}, found {scheme!r}")
    topology, encrypted = _SCHEMES[scheme]
    split = urlsplit(f"//{rest}")
    credentials, _, hosts = split.netloc.rpartition("@")
    user, _, password = credentials.partition(":")
    username = unquote(user) or None
    secret = unquote(password) or None
    options = dict(parse_qsl(split.query, keep_blank_values=True))
    if options.keys() - {"db"}:
        raise ValueError(f"url: expected no option but db, found {', '.join(sorted(options.keys() - {'db'}))}")
    parts = [unquote(part) for part in split.path.split("/")[1:] if part]
    if topology is Topology.unix:
        if hosts or not split.path.strip("/"):
            raise ValueError("url: expected an absolute path of a socket, as in unix:///run/redis.sock")
        db = _db(options.get("db", "0"))
        return Address(topology, False, (), path=unquote(split.path), db=db, username=username, password=secret)
    port = _SENTINEL_PORT if topology is Topology.sentinel else _PORT
    addresses = tuple(_host(host, port) for host in hosts.split(","))
    service = ""
    if topology is Topology.sentinel:
        if not parts:
            raise ValueError("url: expected the service's name, as in redis+sentinel://host1,host2/service/0")
        service = parts.pop(0)
    if topology is Topology.single and len(addresses) > 1:
        raise ValueError("url: expected one host; several take redis+sentinel:// or redis+cluster://")
    if len(parts) > (0 if topology is Topology.cluster else 1):
        raise ValueError(f"url: expected nothing more after the hosts, found {'/'.join(parts)!r}")
    db = _db(parts[0] if parts else options.get("db", "0"))
    if topology is Topology.cluster and db:
        raise ValueError("url: expected no database, since a cluster has only one")
    return Address(topology, encrypted, addresses, service=service, db=db, username=username, password=secret)


def _host(text: str, default_port: int) -> tuple[str, int]:
    try:
        split = urlsplit(f"//{text}")
        host, port = split.hostname, split.port
    except ValueError:
        host, port = None, None
    if not host:
        raise ValueError(f"url: expected host or host:port, found {text!r}")
    return host, default_port if port is None else port


def _db(text: str) -> int:
    if not (text.isascii() and text.isdigit()):
        raise ValueError(f"url: expected the number of a database, found {text!r}")
    return int(text)
