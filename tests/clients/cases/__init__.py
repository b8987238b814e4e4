"""The cases, a file for each subject. `EVERYWHERE` runs on any engine, `IN_OTHER_DIALECTS` where those are spoken."""

from tests.clients.case import Case
from tests.clients.cases import chat, completions, dialects, errors, generate, logprobs, structured, tools

EVERYWHERE: list[Case] = [
    *chat.CASES,
    *structured.CASES,
    *tools.CASES,
    *logprobs.CASES,
    *completions.CASES,
    *generate.CASES,
    *errors.CASES,
]
IN_OTHER_DIALECTS: list[Case] = dialects.CASES
