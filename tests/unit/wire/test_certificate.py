"""Which files make a usable certificate, and when a renewed one is taken up."""

import os
import ssl
from pathlib import Path

import pytest

from gateway.wire.certificate import LOOK_EVERY_S, Certificate, CertificateError
from tests.integration.wire.certificates import Authority, lock, make_authority


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return make_authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture
def files(authority: Authority, tmp_path: Path) -> tuple[Path, Path]:
    certificate, key = tmp_path / "tls.pem", tmp_path / "tls.key"
    for source, target in zip(authority.sign("first"), (certificate, key), strict=True):
        target.write_bytes(source.read_bytes())
    return certificate, key


def test_only_tls_1_2_and_1_3_with_forward_secrecy_are_spoken(files: tuple[Path, Path]) -> None:
    context = Certificate(*map(str, files)).context
    assert context.minimum_version is ssl.TLSVersion.TLSv1_2
    names = [cipher["name"] for cipher in context.get_ciphers()]
    assert all(name.startswith(("TLS_", "ECDHE-")) for name in names), names
    assert context.verify_mode is ssl.CERT_NONE


def test_the_key_may_stand_behind_the_certificate(files: tuple[Path, Path]) -> None:
    certificate, key = files
    certificate.write_bytes(certificate.read_bytes() + key.read_bytes())
    assert Certificate(str(certificate)).context


def test_clients_must_show_a_certificate_where_authorities_are_named(
    files: tuple[Path, Path], authority: Authority
) -> None:
    certificate, key = map(str, files)
    assert Certificate(certificate, key, str(authority.file)).context.verify_mode is ssl.CERT_REQUIRED


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda certificate, key: certificate.unlink(), "tls.pem is not there or cannot be read"),
        (lambda certificate, key: key.unlink(), "tls.key is not there or cannot be read"),
        (lambda certificate, key: certificate.write_text("nonsense"), "tls.key cannot be used: no"),
        (lambda certificate, key: key.write_text("nonsense"), "tls.key cannot be used: "),
        (lambda certificate, key: lock(key), "the key is protected by a passphrase"),
        (lambda certificate, key: certificate.write_bytes(b""), "cannot be used: "),
    ],
    ids=["no certificate", "no key", "no PEM", "no key in PEM", "passphrase", "empty"],
)
def test_files_that_make_no_certificate_are_named(files: tuple[Path, Path], spoil: object, said: str) -> None:
    assert callable(spoil)
    spoil(*files)
    with pytest.raises(CertificateError) as raised:
        Certificate(*map(str, files))
    assert said in str(raised.value)


def test_a_key_of_another_certificate_is_refused(files: tuple[Path, Path], authority: Authority) -> None:
    files[1].write_bytes(authority.sign("other")[1].read_bytes())
    with pytest.raises(CertificateError, match="key values mismatch"):
        Certificate(*map(str, files))


def test_a_renewed_certificate_is_taken_up_at_the_next_look(files: tuple[Path, Path], authority: Authority) -> None:
    certificate = Certificate(*map(str, files))
    before = certificate.context
    certificate.look(100.0)
    assert certificate.context is before
    renew(files, authority.sign("second"))
    certificate.look(100.0 + LOOK_EVERY_S / 2)
    assert certificate.context is before
    certificate.look(100.0 + LOOK_EVERY_S)
    assert certificate.context is not before


def test_one_that_was_replaced_through_a_link_is_taken_up(authority: Authority, tmp_path: Path) -> None:
    """As Kubernetes replaces a secret: the file is a link into a folder that is itself a link."""
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
        renew((tmp_path / name / "tls.pem", tmp_path / name / "tls.key"), authority.sign(name))
    (tmp_path / "data").symlink_to("first")
    certificate = Certificate(str(tmp_path / "data" / "tls.pem"), str(tmp_path / "data" / "tls.key"))
    before = certificate.context
    (tmp_path / "next").symlink_to("second")
    os.rename(tmp_path / "next", tmp_path / "data")
    assert certificate.reload()
    assert certificate.context is not before


def test_a_bad_one_leaves_the_one_before_until_the_files_are_right(
    files: tuple[Path, Path], authority: Authority
) -> None:
    certificate = Certificate(*map(str, files))
    before = certificate.context
    renewed = authority.sign("second")
    files[0].write_bytes(renewed[0].read_bytes())  # the key has not been written yet
    assert not certificate.reload()
    assert certificate.context is before
    assert certificate.reload()  # nothing new
    files[1].write_bytes(renewed[1].read_bytes())
    assert certificate.reload()
    assert certificate.context is not before


def renew(files: tuple[Path, Path], renewed: tuple[Path, Path]) -> None:
    for source, target in zip(renewed, files, strict=True):
        target.write_bytes(source.read_bytes())
