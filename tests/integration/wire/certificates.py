"""Certificates for tests, made by the openssl command: an authority, and what it has signed."""

import ssl
import subprocess
from dataclasses import dataclass
from pathlib import Path

_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2")


@dataclass(frozen=True, slots=True)
class Authority:
    """One that signs; `folder` holds its files and those it makes."""

    folder: Path

    @property
    def file(self) -> Path:
        return self.folder / "ca.pem"

    def sign(self, name: str, common_name: str = "localhost") -> tuple[Path, Path]:
        """A certificate for 127.0.0.1 and its key, in files of that name."""
        key, request, certificate = (self.folder / f"{name}.{end}" for end in ("key", "csr", "pem"))
        names = self.folder / "names.txt"
        names.write_text("subjectAltName=DNS:localhost,IP:127.0.0.1\n")
        _openssl("req", *_KEY, "-keyout", key, "-out", request, "-subj", f"/CN={common_name}")
        _openssl(
            *("x509", "-req", "-in", request, "-CA", self.file, "-CAkey", self.folder / "ca.key", "-CAcreateserial"),
            *("-days", "2", "-extfile", names, "-out", certificate),
        )
        return certificate, key

    def trusting(self, *client: Path) -> ssl.SSLContext:
        """What a client of this authority uses; `client`: the certificate and the key that it shows."""
        context = ssl.create_default_context(cafile=str(self.file))
        if client:
            context.load_cert_chain(*map(str, client))
        return context


def make_authority(folder: Path, name: str = "authority") -> Authority:
    authority = Authority(folder)
    _openssl("req", "-x509", *_KEY, "-keyout", folder / "ca.key", "-out", authority.file, "-subj", f"/CN={name}")
    return authority


def lock(key: Path) -> None:
    """Protect a key by a passphrase."""
    locked = key.with_suffix(".locked")
    _openssl("pkcs8", "-topk8", "-in", key, "-out", locked, "-passout", "pass:secret")
    locked.replace(key)


def _openssl(*arguments: str | Path) -> None:
    subprocess.run(["openssl", *map(str, arguments)], check=True, capture_output=True)
