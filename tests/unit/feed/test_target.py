"""Where the step feed of a replica is looked for."""

import pytest

from gateway.feed.target import Target


@pytest.mark.parametrize(
    ("url", "engine", "feed", "expected"),
    [
        ("http://10.0.0.1:8000", "sglang", "auto", "http://10.0.0.1:9000"),
        ("http://engine:30000", "vllm", "auto", "http://engine:31000"),
        ("http://[::1]:8000", "sglang", "auto", "http://[::1]:9000"),
        ("https://engine:443", "sglang", "auto", "http://engine:1443"),
        ("https://engine", "sglang", "auto", "http://engine:1443"),
        ("http://engine", "sglang", "auto", "http://engine:1080"),
        ("http://engine:65000", "sglang", "auto", None),
        ("http://engine:8000", "other", "auto", None),
        ("http://engine:8000", "sglang", "off", None),
        ("http://engine:8000", "other", "http://feed:1234/", "http://feed:1234"),
        ("http://engine:8000", "sglang", "https://feed/engine-1", "https://feed/engine-1"),
    ],
)
def test_a_feed_is_beside_its_engine_unless_it_is_told_otherwise(
    url: str, engine: str, feed: str, expected: str | None
) -> None:
    assert Target("r", url, engine=engine, feed=feed).feed_url == expected


def test_a_quarter_of_the_smallest_budget_is_worth_a_line() -> None:
    assert Target("r", "http://e:1", budget_us=1000.0).least_own_us == 250.0
    assert Target("r", "http://e:1").least_own_us is None
