"""TLS towards servers: what is trusted, what we show, and certificates that are renewed while the process runs.

A changed file counts from the next connection on; one that cannot be used leaves what was read before in force.
"""

from __future__ import annotations

import asyncio
import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import structlog

from gateway.wire.filestamps import FileStamps

log = structlog.get_logger("steplane.wire")

_LOOK_EVERY_S: Final = 1.0


class TlsError(Exception):
    """Files that cannot be used; the message names them and says why."""


@dataclass(frozen=True, slots=True)
class TlsOptions:
    """How a server is authenticated, and we to it.

    ca:          the authorities that are trusted, PEM; None: the system's.
    certificate: ours, PEM with its chain, where the server asks for one; `key` if that is not in the same file.
    server_name: the name in the server's certificate, where that is not the one that is dialled; also sent as SNI.
    verify:      False trusts whoever answers.
    """

    ca: Path | None = None
    certificate: Path | None = None
    key: Path | None = None
    server_name: str | None = None
    verify: bool = True

    @property
    def files(self) -> tuple[Path, ...]:
        """What is read."""
        return tuple(file for file in (self.ca, self.certificate, self.key) if file is not None)


class ClientTls:
    """A TLS context that follows its files. One for all servers that are reached alike."""

    def __init__(self, options: TlsOptions, look_every_s: float = _LOOK_EVERY_S) -> None:
        """Reads the files. Raises TlsError. look_every_s: how often they are looked at, at most."""
        self.options = options
        self._stamps = FileStamps(options.files)
        self._context = _load(options)
        self._look_every_s = look_every_s
        self._looked_at = 0.0
        self._reading: asyncio.Task[None] | None = None

    @property
    def context(self) -> ssl.SSLContext:
        """What was read last."""
        return self._context

    async def refreshed(self) -> ssl.SSLContext:
        """The context after a look at the files; they are read in a thread."""
        loop = asyncio.get_running_loop()
        now = loop.time()
        if self.options.files and now - self._looked_at >= self._look_every_s and self._reading is None:
            self._looked_at = now
            if self._stamps.changed():
                self._reading = loop.create_task(self._read())
        if self._reading is not None:
            await asyncio.wait((self._reading,))
        return self._context

    async def _read(self) -> None:
        files = [str(file) for file in self.options.files]
        try:
            self._context = await asyncio.get_running_loop().run_in_executor(None, _load, self.options)
        except TlsError as error:
            log.warning("tls_files_not_used", error=str(error))  # half written: the next look finds a change again
        else:
            log.info("tls_files_read", files=files)
        finally:
            self._reading = None


def _load(options: TlsOptions) -> ssl.SSLContext:
    ca, certificate, key = options.ca, options.certificate, options.key
    try:
        context = ssl.create_default_context(cafile=None if ca is None else str(ca))
    except (OSError, ssl.SSLError) as error:
        raise TlsError(f"{ca}: expected certificates of authorities in PEM, found {_said(error)}") from None
    if not options.verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if certificate is not None:
        try:
            context.load_cert_chain(str(certificate), None if key is None else str(key), password=_refuse_password)
        except (OSError, ssl.SSLError, ValueError) as error:
            both = certificate if key is None else f"{certificate} and {key}"
            raise TlsError(f"{both}: expected a certificate and its key in PEM, found {_said(error)}") from None
    context.set_alpn_protocols(["http/1.1"])
    return context


def _refuse_password() -> str:
    """OpenSSL would ask at the terminal."""
    raise ValueError("a key that is encrypted")


def _said(error: Exception) -> str:
    if isinstance(error, FileNotFoundError):
        return "no such file"
    return getattr(error, "strerror", None) or str(error)
