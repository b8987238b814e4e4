"""Where the gateway listens, and what connections begin with there: TLS, or a balancer's PROXY header."""

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, StringConstraints, model_validator

from gateway.control.document import Document
from gateway.control.network import Address, UnixPath, parse_endpoint
from gateway.control.part import Endpoint, Part, checked_by
from gateway.control.problem import Problem, shown
from gateway.control.validation import MODE_PATTERN, as_written
from gateway.wire.certificate import Certificate, CertificateError

_endpoint = checked_by(parse_endpoint)


def _listed(value: object) -> object:
    return value if isinstance(value, list) else [value]


class TlsConfig(Part):
    """What a listener shows, as PEM files; relative ones are looked for beside the configuration.

    certificate: with the chain behind it. A renewed one is taken up within seconds, without a restart.
    key:         without a passphrase; may stand in the file of the certificate instead.
    client_ca:   authorities that clients' certificates must come from; without it clients need none.
    """

    certificate: str
    key: str | None = None
    client_ca: str | None = None

    def load(self, folder: Path) -> Certificate:
        """The certificate. Raises CertificateError."""
        return Certificate(str(folder / self.certificate), _beside(folder, self.key), _beside(folder, self.client_ca))


class ListenConfig(Part):
    """One listener: just its address, or a mapping.

    address:        HOST:PORT (an IPv6 host in brackets) or unix:/PATH.
    mode:           permissions of the Unix socket, in octal, as in 0660; by default what the umask leaves.
    tls:            TLS is spoken there, and nothing else.
    proxy_protocol: every connection begins with a PROXY header (version 1 or 2), which says whose it is. Only for
                    listeners that nobody but the balancer can reach, for what it says is believed.
    """

    address: Endpoint
    mode: Annotated[str, StringConstraints(pattern=MODE_PATTERN)] | None = None
    tls: TlsConfig | None = None
    proxy_protocol: bool = False

    @model_validator(mode="before")
    @classmethod
    def _from_text(cls, value: object) -> object:
        return value if isinstance(value, dict | ListenConfig) else {"address": _endpoint(value)}

    def arguments(self, folder: Path) -> dict[str, Any]:
        """What `wire.server.Server.listen` takes for it. Raises CertificateError."""
        place: dict[str, Any]
        if isinstance(self.address, UnixPath):
            place = {"path": self.address.path, "mode": None if self.mode is None else int(self.mode, 8)}
        else:
            place = {"host": self.address.host, "port": self.address.port}
        certificate = None if self.tls is None else self.tls.load(folder)
        return {**place, "certificate": certificate, "proxy_protocol": self.proxy_protocol}

    @property
    def url(self) -> str:
        """As a client would write it; of a Unix socket `unix:/PATH`."""
        if isinstance(self.address, UnixPath):
            return str(self.address)
        return f"{'http' if self.tls is None else 'https'}://{self.address}"


ListenConfigs = Annotated[list[ListenConfig], BeforeValidator(_listed), Field(min_length=1)]
"""One listener, or a list of them."""


def check_listeners(listeners: list[ListenConfig], folder: Path, document: Document) -> Iterator[Problem]:
    """What is wrong with listeners of the right shape: an address twice, a useless mode, a certificate that is none."""
    seen: set[Address | UnixPath] = set()
    for at, listener in enumerate(listeners):
        location = as_written(("listen", at), document)
        address = listener.address
        if address in seen:
            yield document.problem(location, "each address once", shown(str(address)))
        if not isinstance(address, Address) or address.port:
            seen.add(address)
        if listener.mode is not None and not isinstance(address, UnixPath):
            yield document.problem((*location, "mode"), "no mode, for only a Unix socket has one", shown(listener.mode))
        if listener.tls is not None:
            try:
                listener.tls.load(folder)
            except CertificateError as error:
                yield document.problem(
                    (*location, "tls"), "a certificate and its key in PEM files", str(error), at_key=True
                )


def _beside(folder: Path, file: str | None) -> str | None:
    return None if file is None else str(folder / file)
