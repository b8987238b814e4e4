"""The configuration of the endpoint picker, `steplane epp`; a gateway that serves clients itself does not read it."""

from collections.abc import Iterator
from pathlib import Path

from gateway.control.document import Document
from gateway.control.listenconfig import TlsConfig
from gateway.control.network import Address
from gateway.control.part import HostPort, Part
from gateway.control.problem import Problem
from gateway.wire.certificate import CertificateError


class EppConfig(Part):
    """Where Envoy asks, by gRPC (`envoy.service.ext_proc.v3`).

    listen: HOST:PORT. tls: what is shown there, as for `listen`; without it gRPC is spoken in the clear.
    """

    listen: HostPort = Address("127.0.0.1", 9002)
    tls: TlsConfig | None = None


def check_epp(epp: EppConfig, folder: Path, document: Document) -> Iterator[Problem]:
    """What is wrong with an endpoint picker of the right shape: a certificate that is none."""
    if epp.tls is not None:
        try:
            epp.tls.load(folder)
        except CertificateError as error:
            yield document.problem(("epp", "tls"), "a certificate and its key in PEM files", str(error), at_key=True)
