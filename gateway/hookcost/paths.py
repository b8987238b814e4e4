"""Which dialect a request path speaks. Knows nothing of bodies or methods."""

from urllib.parse import unquote

from gateway.hookcost.features import Api

_APIS = {
    "/v1/chat/completions": Api.chat,
    "/v1/chat/completions/batch": Api.chat,  # vLLM
    "/cohere/v2/chat": Api.chat,  # vLLM, where Cohere's package is installed
    "/invocations": Api.chat,  # SageMaker's spelling, SGLang and vLLM
    "/v1/completions": Api.completions,
    "/v1/responses": Api.responses,
    "/v1/messages": Api.messages,
    "/generate": Api.generate,  # SGLang
    "/vertex_generate": Api.generate,  # Vertex AI's spelling, SGLang
    "/inference/v1/generate": Api.generate,  # vLLM, tokens in and tokens out
}


def api_of(path: str) -> Api:
    """The dialect of `path`, `Api.other` for everything that is passed through unread.

    Engines route on the percent-decoded path and redirect from a trailing slash, so both are seen through here, as are
    a query string and an absolute URL: no spelling of a path that an engine serves escapes classification.
    """
    api = _APIS.get(path)
    return api if api is not None else _api_of_unusual(path)


def _api_of_unusual(path: str) -> Api:
    path = path.partition("?")[0].partition("#")[0]
    if not path.startswith("/") and "://" in path:
        path = "/" + path.partition("://")[2].partition("/")[2]
    if "%" in path:
        path = unquote(path)
    return _APIS.get(path.rstrip("/"), Api.other)
