"""The wheel of `python -m build`: installs without a compiler, serves a request, leaves nothing when it goes."""

import json
import urllib.request
from pathlib import Path

import pytest

from gateway import __version__
from tests.deploy.installed import Environment, run, up

REQUEST = {"model": "steplane-simulator", "messages": [{"role": "user", "content": "Hello"}], "max_tokens": 4}


def test_the_wheel_is_for_every_machine_and_says_what_it_is(wheel: Path) -> None:
    assert wheel.name == f"steplane-{__version__}-py3-none-any.whl"
    assert (wheel.parent / f"steplane-{__version__}.tar.gz").exists()


def test_the_licence_comes_along(environment: Environment) -> None:
    [licence] = environment.folder.rglob(f"steplane-{__version__}.dist-info/licenses/LICENSE")
    assert "Apache License" in licence.read_text()


def test_it_says_its_version(environment: Environment) -> None:
    assert run(environment.command, "--version") == f"steplane {__version__}\n"


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_shells_complete_its_commands(environment: Environment, shell: str) -> None:
    assert "_STEPLANE_COMPLETE" in run(environment.command, "--show-completion", shell)


def test_a_shell_completes_commands_once_completion_is_installed(environment: Environment, tmp_path: Path) -> None:
    """As somebody who types `steplane quar`, and then tab."""
    variables = {"HOME": str(tmp_path), "PATH": f"{environment.command.parent}:/usr/bin:/bin"}
    run("bash", "-c", "steplane --install-completion; true", **variables)
    completes = "$(complete -p steplane | sed 's/.* -F \\([^ ]*\\) .*/\\1/') steplane"
    typed = f"COMP_WORDS=(steplane quar); COMP_CWORD=1; {completes}; echo ${{COMPREPLY[@]}}"
    assert run("bash", "-c", f"source ~/.bashrc; {typed}", **variables) == "quarantine\n"


def test_up_serves_a_request(environment: Environment, tmp_path: Path) -> None:
    with up(environment, tmp_path) as (url, _):
        request = urllib.request.Request(
            f"{url}/v1/chat/completions",
            data=json.dumps(REQUEST).encode(),
            headers={"content-type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=60) as reply:
            assert reply.headers["x-steplane-pool"] == "interactive"
            assert json.load(reply)["choices"][0]["message"]["content"]


def test_it_leaves_nothing(environment: Environment) -> None:
    """Runs last: it takes away what the others use."""
    names = [each["name"] for each in json.loads(environment.pip("list", "--format", "json"))]
    others = [name for name in names if name not in ("pip", "setuptools")]
    assert "steplane" in others
    environment.pip("uninstall", "--quiet", "--yes", *others)
    assert environment.files() - environment.empty == set()
