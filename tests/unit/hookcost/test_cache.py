"""The bounded memory of what was priced."""

from gateway.hookcost.cache import TextCache


def test_what_was_put_is_found_by_equal_bytes_only() -> None:
    cache: TextCache[int] = TextCache(1 << 20)
    cache.put(b"one", 1)
    assert cache.get(b"one") == 1
    assert cache.get(b"on" + b"e") == 1
    assert cache.get(b"two") is None


def test_memory_is_bounded_and_what_is_used_stays() -> None:
    cache: TextCache[int] = TextCache(1 << 20)
    cache.put(b"used", 0)
    for number in range(10_000):
        cache.put(b"text %d" % number, number)
        assert cache.get(b"used") == 0
    assert len(cache) < 300
    assert cache.get(b"text 0") is None
    assert cache.get(b"text 9999") == 9999


def test_a_text_too_large_to_keep_is_not_kept() -> None:
    cache: TextCache[int] = TextCache(1 << 20)
    cache.put(b"x" * (1 << 20), 1)
    assert len(cache) == 0
