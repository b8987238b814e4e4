"""The gateway in front of real SGLang: clients get the bytes that SGLang would have sent them."""

import pytest

from tests.clients.case import Case
from tests.clients.cases import EVERYWHERE, IN_OTHER_DIALECTS
from tests.clients.sameness import assert_same_answers
from tests.clients.served import Served

pytestmark = [
    # The first test waits for a build and a start.
    pytest.mark.timeout(1800),
    # SGLang puts lists where OpenAI's types have strings (`metadata`); the client complains when it serialises them.
    pytest.mark.filterwarnings("ignore:Pydantic serializer warnings:UserWarning"),
]

# SGLang sends two tokens in one event when it is late; how often both sides may be asked until the cuts agree.
ATTEMPTS = 5


@pytest.mark.parametrize("case", EVERYWHERE + IN_OTHER_DIALECTS, ids=lambda case: case.name)
def test_the_gateway_answers_as_sglang_does(case: Case, served: Served) -> None:
    assert_same_answers(case, served, attempts=ATTEMPTS)
