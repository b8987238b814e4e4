import pytest

from gateway.hookcost import Api, api_of


@pytest.mark.parametrize(
    ("path", "api"),
    [
        ("/v1/chat/completions", Api.chat),
        ("/v1/chat/completions/", Api.chat),
        ("/v1/chat/completions?stream=1", Api.chat),
        ("/v1/chat/completions/?x=/v1/models", Api.chat),
        ("/v1/chat/completion%73", Api.chat),
        ("/v1%2Fchat%2Fcompletions", Api.chat),
        ("http://engine:8000/v1/chat/completions", Api.chat),
        ("/invocations", Api.chat),
        ("/v1/completions", Api.completions),
        ("/v1/responses", Api.responses),
        ("/v1/messages", Api.messages),
        ("/generate", Api.generate),
        ("/vertex_generate", Api.generate),
        ("/inference/v1/generate", Api.generate),
        ("/v1/messages/count_tokens", Api.other),
        ("/v1/responses/resp_1/cancel", Api.other),
        ("/v1/embeddings", Api.other),
        ("/V1/Chat/Completions", Api.other),
        ("/v1/models", Api.other),
        ("/", Api.other),
        ("", Api.other),
        ("*", Api.other),
        ("://", Api.other),
        ("/%", Api.other),
        ("/%ff%fe", Api.other),
    ],
)
def test_a_path_speaks_the_dialect_that_an_engine_would_serve_it_with(path: str, api: Api) -> None:
    assert api_of(path) is api
