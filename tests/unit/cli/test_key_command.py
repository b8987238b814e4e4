"""`steplane key`: a key is shown once, and what the configuration needs is its digest."""

from typer.testing import CliRunner

from gateway.cli.commands import app
from gateway.tenants.keys import digest


def test_a_new_key_comes_with_its_digest() -> None:
    done = CliRunner().invoke(app, ["key", "new"])
    (_, key), (_, shown) = (line.split() for line in done.output.splitlines())
    assert done.exit_code == 0
    assert shown == digest(key.encode())
    assert CliRunner().invoke(app, ["key", "new"]).output != done.output


def test_the_digest_of_a_key_does_not_depend_on_how_a_header_spells_it() -> None:
    bare, header = (CliRunner().invoke(app, ["key", "hash"], input=line) for line in ("sk-1\n", "Bearer sk-1\r\n"))
    assert bare.output.strip() == digest(b"sk-1") == header.output.strip()


def test_no_key_is_an_error() -> None:
    done = CliRunner().invoke(app, ["key", "hash"], input="")
    assert done.exit_code != 0
