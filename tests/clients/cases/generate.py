"""SGLang's own `/generate`: streaming and not, batches, several samples, grammars."""

import json
import re
from typing import Any

from tests.clients.case import CaseTable, Client

CASES = CaseTable()
GREEDY: dict[str, Any] = {"max_new_tokens": 5, "temperature": 0}


@CASES.case("/generate in one piece")
def _(client: Client) -> None:
    reply = client.http.post("/generate", json={"text": "The sea is", "sampling_params": GREEDY})
    assert reply.json()["meta_info"]["completion_tokens"] == 5


@CASES.case("/generate by PUT")
def _(client: Client) -> None:
    reply = client.http.put("/generate", json={"text": "The sea is", "sampling_params": GREEDY})
    assert reply.json()["meta_info"]["completion_tokens"] == 5


@CASES.case("/generate as a stream")
def _(client: Client) -> None:
    with client.http.stream(
        "POST", "/generate", json={"text": "The sea is", "sampling_params": GREEDY, "stream": True}
    ) as reply:
        events = [line.removeprefix("data: ") for line in reply.iter_lines() if line]
    assert events[-1] == "[DONE]"
    assert json.loads(events[-2])["meta_info"]["finish_reason"]["type"] == "length"


@CASES.case("/generate of a batch")
def _(client: Client) -> None:
    reply = client.http.post("/generate", json={"text": ["The sea is", "A boat"], "sampling_params": GREEDY})
    assert len(reply.json()) == 2


@CASES.case("/generate of two samples")
def _(client: Client) -> None:
    reply = client.http.post("/generate", json={"text": "The sea is", "sampling_params": {**GREEDY, "n": 2}})
    assert [sample["meta_info"]["completion_tokens"] for sample in reply.json()] == [5, 5]


@CASES.case("/generate under a regex")
def _(client: Client) -> None:
    reply = client.http.post(
        "/generate",
        json={"text": "The sea is", "sampling_params": {**GREEDY, "max_new_tokens": 32, "regex": "(blue|green)!{3}"}},
    )
    assert re.fullmatch("(blue|green)!{3}", reply.json()["text"])
