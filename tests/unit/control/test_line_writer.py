"""Lines of requests are written by a thread, all of them, in order; too many are left out and counted."""

import json
import threading
from io import StringIO

from gateway.control.access import Line, LineWriter


def render(line: Line) -> str:
    return json.dumps(line)


class Stuck(StringIO):
    """Takes nothing until it is let."""

    def __init__(self) -> None:
        super().__init__()
        self.asked = threading.Event()
        self.let = threading.Event()

    def write(self, text: str) -> int:
        self.asked.set()
        assert self.let.wait(30)
        return super().write(text)


class Gone(StringIO):
    def write(self, text: str) -> int:
        raise BrokenPipeError


def test_lines_come_in_order_with_what_all_have() -> None:
    stream = StringIO()
    writer = LineWriter(stream, render, {"worker": 3})
    for number in range(1000):
        writer.add({"n": number})
    writer.close()

    found = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert found == [{"worker": 3, "n": number} for number in range(1000)]


def test_what_nobody_can_take_is_left_out_and_told_of() -> None:
    stream = Stuck()
    writer = LineWriter(stream, render, {}, most=10)
    writer.add({"n": 0})
    assert stream.asked.wait(30)
    for number in range(1, 31):
        writer.add({"n": number})
    assert writer.dropped == 20
    stream.let.set()
    writer.close()

    found = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert [line["n"] for line in found if "n" in line] == [*range(11)]
    assert [line["lines"] for line in found if line.get("event") == "access_lines_dropped"] == [20]


def test_a_stream_that_is_gone_harms_nobody() -> None:
    writer = LineWriter(Gone(), render, {})
    writer.add({"n": 1})
    writer.close()

    assert writer.dropped == 0
