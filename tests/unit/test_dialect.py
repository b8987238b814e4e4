"""What the dialects spell differently: where the request id goes, what is aborted, how a broken stream ends."""

import json

import pytest

from gateway.dialect import engine_ids, error_events, given_ids, overridden, spliced
from gateway.hookcost import Api, Features, classify

ID = "ab-000000000001"


@pytest.mark.parametrize(
    ("api", "body", "expected"),
    [
        (Api.chat, b'{"model":"m"}', b'{"model":"m","rid":"%b"}'),
        (Api.completions, b'{ "model" : "m" }', b'{ "model" : "m" ,"rid":"%b"}'),
        (Api.generate, b'\n\t {"text":"x"}\n', b'\n\t {"text":"x","rid":"%b"}\n'),
        (Api.responses, b'{"input":"x"}', b'{"input":"x","request_id":"%b"}'),
        (Api.chat, b"{}", b'{"rid":"%b"}'),
        (Api.chat, b" { \r\n\t} ", b' { \r\n\t"rid":"%b"} '),
        (Api.chat, b'{"a":{}}', b'{"a":{},"rid":"%b"}'),
        (Api.chat, b'{"a":"}"}', b'{"a":"}","rid":"%b"}'),
    ],
)
def test_the_id_is_the_last_field_and_every_byte_of_the_body_stays(api: Api, body: bytes, expected: bytes) -> None:
    cut, tail = spliced(body, Features(api), "sglang", ID)
    changed = body[:cut] + tail
    assert changed == expected.replace(b"%b", ID.encode())
    assert list(json.loads(changed).items())[:-1] == list(json.loads(body).items())


@pytest.mark.parametrize("rid", [b"null", b'""', b"[]", b"[null]"])
def test_a_client_cannot_make_the_engine_choose_an_id_that_nobody_knows(rid: bytes) -> None:
    body = b'{"r\\u0069d":%b,"text":"x"}' % rid
    cut, tail = spliced(body, classify("/generate", body).features, "sglang", ID)
    assert cut > 0
    assert json.loads(body[:cut] + tail)["rid"] == ID


@pytest.mark.parametrize(
    ("body", "engine", "ids"),
    [
        (b'{"text":"x","rid":"mine"}', "sglang", ("mine",)),
        (b'{"text":["x","y"],"rid":["a","b"]}', "sglang", ("a", "b")),
        (b'{"text":"x"}', "sglang", ()),
        (b'{"text":"x","rid":"mine"}', "vllm", ("r-1",)),
        (b'{"text":"x","rid":"mine"}', "other", ()),
    ],
)
def test_the_ids_that_a_client_chose_are_known(body: bytes, engine: str, ids: tuple[str, ...]) -> None:
    assert given_ids(body, classify("/generate", body).features, engine, b"r-1") == ids


def test_an_id_that_is_in_use_is_overridden_in_the_engine_s_parser() -> None:
    body = b'{"text":"x","rid":"mine"}'
    cut, tail = overridden(body, b"rid", ID)
    assert json.loads(body[:cut] + tail) == {"text": "x", "rid": ID}


@pytest.mark.parametrize(
    ("features", "engine"),
    [
        (Features(Api.other), "sglang"),
        (Features(Api.chat, rid_given=True), "sglang"),
        (Features(Api.chat), "vllm"),
        (Features(Api.chat), "other"),
    ],
)
def test_a_body_stays_untouched_where_no_id_can_or_should_be_set(features: Features, engine: str) -> None:
    assert spliced(b'{"model":"m"}', features, engine, ID) == (-1, b"")
    assert engine_ids(features, engine, ID) == ()


@pytest.mark.parametrize(
    ("path", "body", "ids"),
    [
        ("/v1/chat/completions", {"messages": []}, (ID,)),
        ("/v1/responses", {"input": "x"}, (ID, f"{ID}_0")),
        ("/v1/completions", {"prompt": "x"}, (ID, f"{ID}_0")),
        ("/v1/completions", {"prompt": ["x"]}, (ID, f"{ID}_0")),
        ("/v1/completions", {"prompt": [1, 2, 3]}, (ID, f"{ID}_0")),
        ("/v1/completions", {"prompt": ["x", "y", "z"]}, (f"{ID}_0", f"{ID}_1", f"{ID}_2")),
        ("/generate", {"text": ["x", "y"]}, (f"{ID}_0", f"{ID}_1")),
        ("/generate", {"input_ids": [[1], [2]]}, (f"{ID}_0", f"{ID}_1")),
        ("/v1/chat/completions", {"messages": [], "n": 2}, ()),
        ("/v1/completions", {"prompt": ["x", "y"], "n": 2}, ()),
        ("/generate", {"text": "x", "sampling_params": {"n": 3}}, ()),
        ("/v1/chat/completions", {"messages": [], "rid": "mine"}, ()),
        ("/generate", {"text": ["x", "y"], "rid": ["a", "b"]}, ()),
        ("/v1/messages", {"messages": []}, (ID,)),
    ],
)
def test_the_ids_to_abort_are_those_under_which_the_engine_runs_the_request(
    path: str, body: dict[str, object], ids: tuple[str, ...]
) -> None:
    assert engine_ids(classify(path, json.dumps(body).encode()).features, "sglang", ID) == ids


@pytest.mark.parametrize("batch", [513, 1 << 40])
def test_a_batch_too_large_to_abort_one_by_one_is_left_to_the_closed_connection(batch: int) -> None:
    assert len(engine_ids(Features(Api.completions, batch=512, n=512), "sglang", ID)) == 512
    assert engine_ids(Features(Api.completions, batch=batch, n=batch), "sglang", ID) == ()


@pytest.mark.parametrize("api", [Api.chat, Api.completions, Api.generate, Api.other])
def test_a_broken_stream_of_openai_s_kind_ends_with_an_error_and_done(api: Api) -> None:
    error, done, end = error_events(api, 'it "broke"\n', "upstream_died").split(b"\n\n")
    assert json.loads(error.removeprefix(b"data: "))["error"] == {
        "message": 'it "broke"\n',
        "type": "server_error",
        "param": None,
        "code": "upstream_died",
    }
    assert (done, end) == (b"data: [DONE]", b"")


@pytest.mark.parametrize(
    ("api", "expected"),
    [
        (Api.messages, {"type": "error", "error": {"type": "api_error", "message": "it broke"}}),
        (Api.responses, {"type": "error", "code": "upstream_died", "message": "it broke", "param": None}),
    ],
)
def test_a_broken_stream_of_named_events_ends_with_an_event_named_error(api: Api, expected: dict[str, object]) -> None:
    event, end = error_events(api, "it broke", "upstream_died").split(b"\n\n")
    name, data = event.split(b"\n")
    assert (name, end) == (b"event: error", b"")
    assert json.loads(data.removeprefix(b"data: ")) == expected
