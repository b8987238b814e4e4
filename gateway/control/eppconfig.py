"""The configuration of the endpoint picker, `steplane epp`; a gateway that serves clients itself does not read it."""

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

from pydantic import BeforeValidator

from gateway.control.document import Document
from gateway.control.listenconfig import TlsConfig
from gateway.control.network import Address, AddressError, parse_address
from gateway.control.part import Part
from gateway.control.problem import Problem
from gateway.control.validation import custom_error
from gateway.wire.certificate import CertificateError


def _address(value: object) -> Address:
    if isinstance(value, Address):
        return value
    try:
        return parse_address(value)
    except AddressError as error:
        raise custom_error(error.expected, error.hint) from None


class EppConfig(Part):
    """Where Envoy asks, by gRPC (`envoy.service.ext_proc.v3`).

    listen: HOST:PORT. tls: what is shown there, as for `listen`; without it gRPC is spoken in the clear.
    """

    listen: Annotated[Address, BeforeValidator(_address)] = Address("127.0.0.1", 9002)
    tls: TlsConfig | None = None


def check_epp(epp: EppConfig, folder: Path, document: Document) -> Iterator[Problem]:
    """What is wrong with an endpoint picker of the right shape: a certificate that is none."""
    if epp.tls is not None:
        try:
            epp.tls.load(folder)
        except CertificateError as error:
            yield document.problem(("epp", "tls"), "a certificate and its key in PEM files", str(error), at_key=True)
