"""The image of deploy/Dockerfile, built by a real builder and run as it would be: by nobody, on a read-only root.

Buildah builds in a chroot and needs no engine; what the Dockerfile begins from is made as Debian makes it. Both are
Debian's packages (`buildah`, `debootstrap`) and want root; without them nothing is built.
"""

import json
import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.clients.processes import answers, free_port, running
from tests.deploy.installed import REPOSITORY, run

NEEDED = ("buildah", "debootstrap", "unshare", "setpriv", "chroot")
MOST_BYTES = {"bare": 200_000_000, "latest": 300_000_000}
"""Without extras, and with those that are in by default."""
PATIENCE_S = 120.0
BASE = "debian:bookworm-slim"
NOT_IN_SLIM = tuple(f"usr/share/{name}" for name in ("doc", "info", "locale", "man"))
NOT_IN_SLIM += ("var/cache/apt", "var/lib/apt/lists")
"""What that image leaves out, too."""
KEEPS_SLIM = {
    "etc/apt/apt.conf.d/docker-clean": (
        'DPkg::Post-Invoke { "rm -f /var/cache/apt/archives/*.deb /var/cache/apt/*.bin || true"; };\n'
        'Dir::Cache::pkgcache "";\nDir::Cache::srcpkgcache "";\n'
    ),
    "etc/dpkg/dpkg.cfg.d/docker": "path-exclude /usr/share/doc/*\npath-exclude /usr/share/man/*\n",
}
"""How it sees to it that packages that are installed later leave nothing of that kind behind."""
AUTHORITIES = Path("/etc/ssl/certs/ca-certificates.crt")
"""Those of the host: a registry may be behind one that Debian does not know."""
CONFIG = """
listen: 127.0.0.1:{port}
admin: {{listen: "127.0.0.1:8081"}}
default_pool: only
pools:
  only: {{replicas: ["http://127.0.0.1:9"], feed: "off"}}
"""

pytestmark = [
    pytest.mark.timeout(7200),  # the data plane is compiled, which takes minutes on a machine that is busy
    pytest.mark.skipif(os.geteuid() != 0, reason="only root may make root file systems"),
    pytest.mark.skipif(any(shutil.which(each) is None for each in NEEDED), reason=f"not installed: {NEEDED}"),
]


class Builder:
    """Buildah with a store of its own, in a folder."""

    def __init__(self, folder: Path) -> None:
        index = os.environ.get("PIP_INDEX_URL")
        self._pip = folder / "pip.conf"
        self._pip.write_text(
            "\n".join(["[global]", "cert = /mnt/ca.crt", *([f"index-url = {index}"] if index else [])])
        )
        self._storage = ("--root", folder / "images", "--runroot", folder / "run", "--storage-driver", "vfs")

    def __call__(self, *words: str | Path) -> str:
        return run("buildah", *self._storage, *words).strip()

    def debian(self, folder: Path) -> None:
        """Make what the Dockerfile begins from."""
        mirror = os.environ.get("STEPLANE_TEST_DEBIAN", "http://deb.debian.org/debian")
        run("debootstrap", "--variant=minbase", "bookworm", folder, mirror)
        for path, text in KEEPS_SLIM.items():
            (folder / path).write_text(text)
        for name in NOT_IN_SLIM:
            shutil.rmtree(folder / name, ignore_errors=True)
            (folder / name).mkdir()
        self.commit_folder(folder, BASE)

    def commit_folder(self, folder: Path, name: str) -> None:
        container = self("from", "scratch")
        self("copy", container, folder, "/")
        self("commit", "--rm", container, name)

    def build(self, name: str, **arguments: str) -> None:
        told = [word for each, value in arguments.items() for word in ("--build-arg", f"{each}={value}")]
        mounts = ("--volume", f"{AUTHORITIES}:/mnt/ca.crt:ro", "--volume", f"{self._pip}:/etc/pip.conf:ro")
        fixed = ("--isolation", "chroot", "--pull-never", "--format", "docker", "--layers")
        self("bud", *fixed, *mounts, *told, "--tag", name, "--file", REPOSITORY / "deploy" / "Dockerfile", REPOSITORY)

    def settings(self, name: str) -> Mapping[str, Any]:
        found: Mapping[str, Any] = json.loads(self("inspect", "--type", "image", name))["Docker"]["config"]
        return found

    @contextmanager
    def unpacked(self, name: str) -> Iterator[Path]:
        """The files of an image."""
        container = self("from", "--pull-never", name)
        try:
            yield Path(self("mount", container))
        finally:
            self("rm", container)


@pytest.fixture(scope="module")
def builder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Builder]:
    folder = tmp_path_factory.mktemp("image")
    builder = Builder(folder)
    builder.debian(folder / "debian")
    shutil.rmtree(folder / "debian")
    builder.build("steplane:bare", EXTRAS="")
    builder.build("steplane:latest")
    yield builder
    builder("rmi", "--all", "--force")


def configure(root: Path, port: int) -> None:
    """As a volume would be mounted."""
    folder = root / "etc" / "steplane"
    folder.mkdir(exist_ok=True)  # this builder leaves an empty WORKDIR out
    (folder / "gateway.yaml").write_text(CONFIG.format(port=port))


def bytes_in(folder: Path) -> int:
    """What its files take, each once."""
    return int(run("du", "--bytes", "--summarize", folder).split()[0])


@pytest.mark.parametrize("tag", MOST_BYTES)
def test_it_is_small(builder: Builder, tag: str, record_property: Any) -> None:
    with builder.unpacked(f"steplane:{tag}") as root:
        size = bytes_in(root)
        record_property("bytes", size)
        record_property("ours", bytes_in(root / "opt" / "steplane"))
        assert size < MOST_BYTES[tag]


def test_there_is_nothing_in_it_to_build_or_install_with(builder: Builder) -> None:
    with builder.unpacked("steplane:latest") as root:
        for name in ("gcc", "cc", "pip", "pip3", "curl", "git"):
            assert not [each for each in (root / "usr/bin", root / "opt/steplane/bin") if (each / name).exists()], name
        told = root.glob("opt/steplane/lib/python3*/site-packages/*.dist-info")
        packages = {path.name.partition("-")[0] for path in told}
        assert {"steplane", "uvloop", "redis", "grpcio"} <= packages
        assert not packages & {"pip", "setuptools", "matplotlib", "numpy", "pytest"}


def test_its_data_plane_is_compiled(builder: Builder) -> None:
    with builder.unpacked("steplane:latest") as root:
        assert list(root.glob("opt/steplane/lib/python3*/site-packages/gateway/proxy.*.so"))


def test_it_says_how_it_is_to_be_run(builder: Builder) -> None:
    settings = builder.settings("steplane:latest")
    assert settings["User"] == "65532:65532"
    assert settings["Entrypoint"] == ["steplane"]
    assert settings["StopSignal"] == "SIGTERM"
    assert {"8080/tcp", "8081/tcp"} <= set(settings["ExposedPorts"])
    assert settings["Healthcheck"]["Test"][0] == "CMD"


def test_it_serves_as_nobody_on_a_read_only_root_and_its_health_check_finds_it_well(
    builder: Builder, tmp_path: Path
) -> None:
    settings = builder.settings("steplane:latest")
    port = free_port()
    with builder.unpacked("steplane:latest") as root:
        configure(root, port)
        [path] = [each for each in settings["Env"] if each.startswith("PATH=")]
        # What an engine does for `--read-only --tmpfs /tmp --user …`, on the network of the host.
        inside = (
            f"mount --bind {root} {root} && mount -o remount,bind,ro {root} && mount -t tmpfs tmpfs {root}/tmp"
            f" && chmod 1777 {root}/tmp && mount --bind /dev {root}/dev"
            f" && exec chroot --userspec={settings['User']} {root} /usr/bin/env -i {path} "
        )

        def command(*words: str) -> list[str]:
            return ["unshare", "--mount", "sh", "-c", inside + '"$@"', "sh", *words]

        start = command(*settings["Entrypoint"], *settings["Cmd"])
        ready = answers("http://127.0.0.1:8081/healthz")
        with running("image", start, ready=ready, start_s=PATIENCE_S) as served:
            status = Path(f"/proc/{served.pid}/status").read_text()
            assert "Uid:\t65532\t65532\t65532\t65532" in status
            subprocess.run(command(*settings["Healthcheck"]["Test"][1:]), check=True)
            denied = subprocess.run(command("touch", "/opt/steplane/x"), check=False, capture_output=True, text=True)
            assert "Read-only file system" in denied.stderr
        gone = subprocess.run(command(*settings["Healthcheck"]["Test"][1:]), check=False, capture_output=True)
        assert gone.returncode != 0


@pytest.mark.parametrize("words", [["epp", "--help"], ["check", "-c", "/etc/steplane/gateway.yaml"]], ids=str)
def test_commands_find_what_they_need(builder: Builder, words: list[str]) -> None:
    with builder.unpacked("steplane:latest") as root:
        configure(root, 8080)
        assert run("chroot", "--userspec=65532:65532", root, "/opt/steplane/bin/steplane", *words)
