"""A certificate and its key as they lie on disk, and the TLS settings of a listening socket that shows them.

Renewed certificates are taken up without a restart: connections that exist go on, handshakes from then on see the new
one. A certificate that cannot be used leaves the one before in place. Opens no socket.
"""

import os
import ssl
from typing import Final

import structlog

from gateway.wire.filestamps import FileStamps

log = structlog.get_logger("steplane.wire")


class CertificateError(OSError):
    """The files make no usable certificate; the message names them and says what is wrong."""


class Certificate:
    """The certificate that one listening socket shows.

    certificate: PEM file with the certificate and the chain behind it.
    key:         PEM file of its key, without a passphrase; None if `certificate` holds it.
    client_ca:   PEM file of the authorities that every client's certificate must come from; None: none is asked for.
    context:     what the next handshake is to use.
    """

    def __init__(self, certificate: str, key: str | None = None, client_ca: str | None = None) -> None:
        """Raises CertificateError."""
        self.certificate = certificate
        self.key = key
        self.client_ca = client_ca
        self._stamps = FileStamps(self._files())
        self._looked_at = 0.0
        self.context = self._load()

    def look(self, now: float) -> None:
        """Take up a renewed certificate, if some seconds have passed since the last look. `now`: the loop's time."""
        if now - self._looked_at >= LOOK_EVERY_S:
            self._looked_at = now
            self.reload()

    def reload(self) -> bool:
        """Take up the files if they have changed. False: they have, and cannot be used; the log says why."""
        if not self._stamps.changed():
            return True
        try:
            self.context = self._load()
        except CertificateError as error:
            log.error(
                "certificate_kept", reason=str(error), hint="the one before stays in use until the files are right"
            )
            return False
        log.info("certificate_renewed", certificate=self.certificate)
        return True

    def _files(self) -> list[str]:
        return [file for file in (self.certificate, self.key, self.client_ca) if file is not None]

    def _load(self) -> ssl.SSLContext:
        for file in self._files():
            if not os.access(file, os.R_OK):
                raise CertificateError(f"{file} is not there or cannot be read")
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.set_ciphers(_CIPHERS)
        context.options |= ssl.OP_NO_COMPRESSION | ssl.OP_NO_RENEGOTIATION
        context.set_alpn_protocols(["http/1.1"])
        try:
            context.load_cert_chain(self.certificate, self.key, password=_no_passphrase)
        except (ssl.SSLError, OSError, ValueError) as error:
            where = self.certificate if self.key is None else f"{self.certificate} with the key {self.key}"
            raise CertificateError(f"{where} cannot be used: {_reason(error)}") from None
        if self.client_ca is not None:
            try:
                context.load_verify_locations(self.client_ca)
            except (ssl.SSLError, OSError) as error:
                raise CertificateError(f"{self.client_ca} holds no authorities: {_reason(error)}") from None
            context.verify_mode = ssl.CERT_REQUIRED
        return context


def _no_passphrase() -> str:
    """Asked only for a key that has a passphrase; without this OpenSSL would ask the terminal."""
    raise ValueError("the key is protected by a passphrase")


def _reason(error: Exception) -> str:
    if isinstance(error, ssl.SSLError):
        return error.reason.replace("_", " ").lower() if error.reason else "no PEM text that OpenSSL can read"
    return str(error)


LOOK_EVERY_S: Final = 2.0
_CIPHERS: Final = "ECDHE+AESGCM:ECDHE+CHACHA20"
"""Of TLS 1.2, those with forward secrecy and authenticated encryption; all of TLS 1.3's are."""
