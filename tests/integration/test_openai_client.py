"""The official `openai` client gets the same bytes through the gateway as from the replica itself."""

from collections.abc import Iterator

import httpx
import pytest

from tests.clients.case import Case
from tests.clients.cases import EVERYWHERE
from tests.clients.sameness import assert_same_answers
from tests.clients.served import Served, simulator, tapped_gateway

# SGLang, and so the simulator, puts lists where OpenAI's types have strings (`metadata`); the client complains when it
# serialises them.
pytestmark = pytest.mark.filterwarnings("ignore:Pydantic serializer warnings:UserWarning")

RULES = (
    {"name": "raw-grammar", "when": {"grammar": ["ebnf", "regex"]}, "pool": "quarantine"},
    {"name": "structured", "when": {"grammar": "any"}, "pool": "grammar"},
    {"name": "default", "pool": "interactive"},
)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """Three simulated replicas, a pool each, and the gateway in front of them."""
    with (
        simulator("interactive") as interactive,
        simulator("grammar") as grammar,
        simulator("quarantine") as quarantine,
        tapped_gateway(
            tmp_path_factory.mktemp("gateway"),
            {
                "interactive": {"interactive": interactive},
                "grammar": {"grammar": grammar},
                "quarantine": {"quarantine": quarantine},
            },
            RULES,
        ) as running,
    ):
        yield running


@pytest.mark.parametrize("case", EVERYWHERE, ids=lambda case: case.name)
def test_the_gateway_answers_as_the_replica_does(case: Case, served: Served) -> None:
    assert_same_answers(case, served)


@pytest.mark.parametrize("method", ["POST", "PUT"])
def test_a_grammar_is_seen_whichever_method_carries_it(method: str, served: Served) -> None:
    body = {"text": "x", "sampling_params": {"max_new_tokens": 4, "regex": "[ab]{2}"}}
    reply = httpx.request(method, f"{served.url}/generate", json=body)
    assert (reply.status_code, reply.headers["x-steplane-pool"]) == (200, "quarantine")
