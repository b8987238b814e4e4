"""The cases, a file for each subject. `EVERYWHERE` runs on any engine."""

from tests.clients.case import Case
from tests.clients.cases import chat, completions, errors, generate, logprobs, structured, tools

EVERYWHERE: list[Case] = [
    *chat.CASES,
    *structured.CASES,
    *tools.CASES,
    *logprobs.CASES,
    *completions.CASES,
    *generate.CASES,
    *errors.CASES,
]
