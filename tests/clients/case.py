"""One thing a client does, and the connection with which it does it."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import httpx
from openai import OpenAI

from tests.clients.exchange import Exchange, Recorder

MODEL = "tiny"
_TIMEOUT_S = 110.0


@dataclass(frozen=True, slots=True)
class Client:
    """The official client and a plain one at the same server, over one recorded transport."""

    openai: OpenAI
    http: httpx.Client
    exchanges: list[Exchange]


@contextmanager
def client(url: str) -> Iterator[Client]:
    """A `Client` of the server at `url` (no path). It never retries: a failure must show."""
    recorder = Recorder()
    with httpx.Client(transport=recorder, base_url=url, timeout=_TIMEOUT_S) as http:
        transport: Any = http  # newer releases declare httpx2 here, and take httpx as well
        with OpenAI(base_url=f"{url}/v1", api_key="none", http_client=transport, max_retries=0) as openai:
            yield Client(openai, http, recorder.exchanges)


@dataclass(frozen=True, slots=True)
class Case:
    """A named use of the API. `run` makes the calls and asserts what holds of any engine's answer.

    interleaved: several sequences stream at once, and the engine sets no order between their events.
    """

    name: str
    run: Callable[[Client], None]
    interleaved: bool = False


def record(case: Case, url: str) -> list[Exchange]:
    """Run `case` against the server at `url`; what came back, in the order in which the responses ended."""
    with client(url) as connection:
        case.run(connection)
        return list(connection.exchanges)


class CaseTable(list[Case]):
    """The cases of one file, in the order in which they stand there."""

    def case(self, name: str, *, interleaved: bool = False) -> Callable[[Callable[[Client], None]], None]:
        """Decorate a function to become the case `name`."""

        def add(run: Callable[[Client], None]) -> None:
            self.append(Case(name, run, interleaved))

        return add
