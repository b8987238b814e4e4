"""What the environment says, and what happens when it says nonsense."""

import pytest

from replica.recorder.judge import Limits
from replica.settings import Listen, beside, read_settings

HERE = Listen("127.0.0.1", 31000)


def test_an_empty_environment_gives_the_defaults() -> None:
    settings = read_settings({}, HERE)
    assert settings.limits == Limits()
    assert settings.feed == HERE
    assert settings.problems == ()


def test_every_variable_is_read() -> None:
    settings = read_settings(
        {
            "STEPLANE_HARD_LIMIT_MS": "250",
            "STEPLANE_STEP_BUDGET_US": "1500",
            "STEPLANE_SOFT_STEPS": "5",
            "STEPLANE_SOFT_WINDOW_S": "2.5",
            "STEPLANE_COMPILE_LIMIT_MS": "0",
            "STEPLANE_ON_HARD_LIMIT": "record",
            "STEPLANE_ON_SOFT_LIMIT": "Abort",
            "STEPLANE_ON_COMPILE_LIMIT": "record",
            "STEPLANE_FEED_LISTEN": "[::1]:9",
            "STEPLANE_FEED_TOKEN": "t",
            "STEPLANE_RING_MIB": "4",
            "STEPLANE_COMPILE_THREADS": "3",
            "STEPLANE_GRAMMAR_CACHE_MIB": "64",
            "STEPLANE_POLL_SLEEP": "on",
            "STEPLANE_COMPILE_TRIAL": "off",
        },
        HERE,
    )
    assert settings.limits == Limits(250_000.0, 1500.0, 5, 2.5, 0.0, False, True, False)
    assert settings.feed == Listen("::1", 9)
    assert (settings.feed_token, settings.ring_bytes) == ("t", 4 << 20)
    assert (settings.compile_threads, settings.grammar_cache_mib) == (3, 64)
    assert (settings.sleepless, settings.trial) == (False, False)
    assert settings.problems == ()


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("STEPLANE_HARD_LIMIT_MS", "soon", "expected a number of at least 0"),
        ("STEPLANE_HARD_LIMIT_MS", "-1", "expected a number of at least 0"),
        ("STEPLANE_HARD_LIMIT_MS", "nan", "expected a number of at least 0"),
        ("STEPLANE_ON_HARD_LIMIT", "maybe", "expected abort or record"),
        ("STEPLANE_FEED_LISTEN", "here", "expected off, PORT or HOST:PORT"),
        ("STEPLANE_FEED_LISTEN", "a:99999", "expected off, PORT or HOST:PORT"),
        ("STEPLANE_COMPILE_TRIAL", "2", "expected on or off"),
        ("STEPLANE_COMPILE_THREADS", "0", "expected a number of at least 1"),
    ],
)
def test_nonsense_is_reported_and_replaced(name: str, value: str, expected: str) -> None:
    settings = read_settings({name: value}, HERE)
    (problem,) = settings.problems
    assert problem.startswith(f"{name}={value!r} cannot be used; {expected}; going on with ")
    assert settings.limits == Limits()
    assert settings.feed == HERE


@pytest.mark.parametrize(
    ("text", "listen"),
    [("off", None), ("OFF", None), ("9000", Listen("127.0.0.1", 9000)), ("0.0.0.0:9000", Listen("0.0.0.0", 9000))],
)
def test_the_feed_listens_where_it_is_told(text: str, listen: Listen | None) -> None:
    assert read_settings({"STEPLANE_FEED_LISTEN": text}, HERE).feed == listen


@pytest.mark.parametrize(("port", "feed"), [(30000, 31000), (65000, 0)])
def test_a_feed_stands_beside_its_engine(port: int, feed: int) -> None:
    assert beside(port) == Listen("127.0.0.1", feed)
