"""Lines of a step feed: read as its process writes them, and refused when nothing of the kind."""

import json

import pytest

from gateway.feed.records import (
    Alive,
    Compile,
    End,
    Hello,
    Lost,
    Note,
    Offence,
    RecordError,
    Rollup,
    Share,
    Step,
    parse_line,
)
from replica.feed import rollup
from replica.feed.document import document
from replica.recorder import records as replica
from replica.recorder.records import HookKind, HookTime

STEP = replica.StepRecord(
    7, 1.0, 9000.0, 8000.0, 900.0, 950.0, "decode", 2, 0, False, (), (HookTime("a", HookKind.stop, 900.0),)
)


def line(fields: object) -> bytes:
    return json.dumps(fields).encode()


def rolled_up() -> bytes:
    made = rollup.Rollup()
    made.add(STEP)
    return line(made.take(7, 5.0))


@pytest.mark.parametrize(
    ("written", "read"),
    [
        (line(document(STEP, 100.0)), Step(7, 101.0, 9000.0, 900.0, 950.0, {"a": {"stop": 900.0}})),
        (
            rolled_up(),
            Rollup(7, 5.0, 1, 0, 9000.0, 9000.0, 8000.0, 900.0, 2, {"a": Share(1, 900.0, 900.0, {"stop": 900.0})}),
        ),
        (
            line(
                document(
                    replica.Offence(8, 1.0, "a", replica.Limit.hard, HookKind.stop, 2e6, 1e6, True, "why", ("f:1 g",)),
                    0,
                )
            ),
            Offence(8, "a", "hard", "stop", 2e6, 1e6, True, "why"),
        ),
        (
            line(document(replica.Offence(8, 1.0, "a", replica.Limit.compile, None, 2e6, 1e6, False, "why"), 0)),
            Offence(8, "a", "compile", None, 2e6, 1e6, False, "why"),
        ),
        (line(document(replica.CompileRecord(9, 1.0, "a", "json", 12.5, None), 0)), Compile(9, "a", 12.5, None)),
        (line(document(replica.CompileRecord(9, 1.0, "a", "json", 1.0, "bad"), 0)), Compile(9, "a", 1.0, "bad")),
        (line(document(replica.Note(10, 1.0, "a timer is off"), 0)), Note(10, "a timer is off")),
        (b'{"event":"lost","count":12,"after":9}', Lost(12)),
        (b'{"event":"alive","next_seq":4,"step_runs_s":0.25}', Alive(4, 0.25)),
        (b'{"event":"end","reason":"engine_gone","next_seq":4}', End("engine_gone")),
        (
            b'{"event":"hello","engine":"vllm","version":"0.32.0","rank":0,"pid":1,"boot":"b","next_seq":1}',
            Hello("vllm", "0.32.0", "b", 1),
        ),
    ],
)
def test_what_the_feed_process_writes_is_read(written: bytes, read: object) -> None:
    assert parse_line(written) == read


def test_an_event_of_another_version_is_passed_over() -> None:
    assert parse_line(b'{"event":"weather","seq":3}') is None


@pytest.mark.parametrize(
    "garbage",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b"7",
        b'"event"',
        b"<html>",
        b"\xff\xfe",
        b"{}",
        b'{"event":"step"}',
        b'{"event":"step","seq":1',
        b'{"event":"alive","next_seq":"many","step_runs_s":0}',
        b'{"event":"compile","seq":1,"rid":"a","ms":null,"error":null}',
        b'{"event":"rollup","after":1,"at":0,"requests":[]}',
        b'{"event":"lost","count":{}}',
    ],
)
def test_what_is_no_record_is_refused_with_what_it_was(garbage: bytes) -> None:
    with pytest.raises(RecordError, match="no record of a step feed"):
        parse_line(garbage)
