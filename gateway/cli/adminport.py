"""The admin port of a running gateway, for commands: asks it, and turns what goes wrong into one message.

Knows no command and nothing of what the answers mean.
"""

import os
from typing import Any
from urllib.parse import quote

import httpx
import orjson

from gateway.cli.commands import DEFAULT_ADMIN
from gateway.cli.failure import CliError

_TIMEOUT_S = 10.0
_JSON = {"content-type": "application/json"}
_TOKEN = "STEPLANE_TOKEN"  # noqa: S105 - the name of a variable
"""Of the environment: what to show where the admin port wants a login."""


class AdminPort:
    """A client of one admin port."""

    def __init__(self, url: str, timeout_s: float = _TIMEOUT_S) -> None:
        """`timeout_s`: for an answer. Raises CliError for what is no URL."""
        self._timeout_s = timeout_s
        self.url = url.rstrip("/") if "://" in url else f"http://{url.rstrip('/')}"
        try:
            parsed = httpx.URL(self.url)
        except httpx.InvalidURL as error:
            raise CliError(f"--admin {url}: {error}; expected something like {DEFAULT_ADMIN}") from None
        if parsed.scheme not in ("http", "https") or not parsed.host:
            raise CliError(f"--admin {url}: expected a URL such as {DEFAULT_ADMIN}")

    def get(self, path: str, /, **query: str | list[str]) -> Any:
        """The answer to a GET. Raises CliError for any other than a good one."""
        return self._ask("GET", path, query, None)

    def post(self, path: str, body: dict[str, object] | bytes, /, **query: str | list[str]) -> Any:
        """The answer to a POST of JSON, read or not. Raises CliError for any other than a good one."""
        return self._ask("POST", path, query, body if isinstance(body, bytes) else orjson.dumps(body))

    def _ask(self, method: str, path: str, query: dict[str, str | list[str]], body: bytes | None) -> Any:
        hint = "is the gateway running, and is this its `admin.listen`? --admin URL names another"
        try:
            # Not through a proxy: this is the machine itself, or one on the same network.
            with httpx.Client(base_url=self.url, timeout=self._timeout_s, trust_env=False) as client:
                reply = client.request(method, path, params=query, content=body, headers=_JSON | _login())
        except httpx.ConnectError:
            raise CliError(f"nothing answers at {self.url}: {hint}") from None
        except httpx.TimeoutException:
            raise CliError(f"{self.url} did not answer within {self._timeout_s:g} s") from None
        except httpx.HTTPError as error:
            raise CliError(f"{self.url} broke off: {error or type(error).__name__}; {hint}") from None
        try:
            answer = reply.json()
        except ValueError:
            raise CliError(
                f"what answers at {self.url} is no Steplane ({reply.status_code}, no JSON); {hint}"
            ) from None
        if reply.is_success:
            return answer
        said = _said(answer)
        if reply.status_code == 401:
            raise CliError(f"{self.url} wants to know who asks: put a token of its `admin.auth` into {_TOKEN}")
        raise CliError(said or f"{self.url} answers {reply.status_code} to {method} {path}: {hint}")


def _login() -> dict[str, str]:
    token = os.environ.get(_TOKEN, "")
    return {"authorization": f"Bearer {token}"} if token else {}


def segment(text: str) -> str:
    """`text` as one part of a path."""
    return quote(text, safe="")


def _said(answer: Any) -> str | None:
    error = answer.get("error") if isinstance(answer, dict) else None
    message = error.get("message") if isinstance(error, dict) else None
    return message if isinstance(message, str) else None
