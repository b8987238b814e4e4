"""Where Envoy asks: in the clear or under TLS, by `steplane epp` as a process."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import grpc
import pytest
from envoy.service.ext_proc.v3 import external_processor_pb2_grpc

from tests.integration.epp.envoys import BUFFERED, STREAMED, Talk, asking, json_of, picker
from tests.integration.gateway.harness import CHAT, PLAIN
from tests.integration.test_cli_serve import ENVIRONMENT, REPOSITORY
from tests.integration.wire.certificates import make_authority

BODY = json.dumps(PLAIN[CHAT]).encode()


async def test_tls_is_spoken_where_there_is_a_certificate(tmp_path: Path) -> None:
    authority = make_authority(tmp_path)
    chain, key = authority.sign("picker")
    async with picker(epp={"tls": {"certificate": str(chain), "key": str(key)}}) as there:
        port = there.house.gateway.data_address[1]
        credentials = grpc.ssl_channel_credentials(authority.file.read_bytes())
        async with grpc.aio.secure_channel(f"localhost:{port}", credentials) as channel:
            stub: Any = external_processor_pb2_grpc.ExternalProcessorStub(channel)
            sent = await Talk(stub.Process(), BUFFERED, STREAMED).ask(asking(), BODY)
            assert sent.endpoint == there.endpoint("interactive-0")


async def test_the_command_answers_until_it_is_told_to_stop(tmp_path: Path) -> None:
    config = tmp_path / "f.yaml"
    config.write_text(
        'epp: {listen: "127.0.0.1:0"}\nadmin: {listen: "127.0.0.1:0"}\ndefault_pool: only\n'
        "pools:\n  only: {replicas: [http://127.0.0.1:1], hedge: {}}\n"
    )
    process = subprocess.Popen(  # noqa: ASYNC220
        [sys.executable, "-m", "gateway.cli", "epp", "-c", str(config)],
        cwd=REPOSITORY,
        env=ENVIRONMENT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        words = process.stdout.readline().replace(",", "").split()
        async with grpc.aio.insecure_channel(words[4]) as channel:
            stub: Any = external_processor_pb2_grpc.ExternalProcessorStub(channel)
            talk = Talk(stub.Process(), BUFFERED, STREAMED)
            refused = await talk.ask(asking("/flush_cache"), b"{}")
            assert json_of(refused)["code"] == "control_path"
            await talk.call.done_writing()
            await talk.says_nothing()
        process.send_signal(signal.SIGTERM)
        _, logged = process.communicate(timeout=60)
        assert process.returncode == 0
        assert "pools.only.hedge: Envoy has sent the request" in logged
    finally:
        process.kill()
        process.communicate()


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ("pools:\n  only: {replicas: [{url: 'unix:/a', name: b}]}\n", "pools.only: replica b is at unix:/a"),
        ("epp: {listen: '192.0.2.1:1'}\npools:\n  only: {replicas: [http://127.0.0.1:1]}\n", "can't listen"),
    ],
)
def test_what_keeps_it_from_answering_is_said(tmp_path: Path, config: str, said: str) -> None:
    file = tmp_path / "f.yaml"
    file.write_text('admin: {listen: "127.0.0.1:0"}\ndefault_pool: only\n' + config)
    ended = subprocess.run(
        [sys.executable, "-m", "gateway.cli", "epp", "-c", str(file)],
        cwd=REPOSITORY,
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ended.returncode == 1
    assert said in ended.stderr
