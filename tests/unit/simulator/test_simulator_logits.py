"""Pseudo-logits: deterministic, and log probabilities that are those of the row they come from."""

import numpy as np
import pytest

from replica.simulator.logits import MAX_TOP, PseudoLogits, mix, sequence_key

SIZE = 5000


@pytest.fixture(scope="module")
def logits() -> PseudoLogits:
    return PseudoLogits(SIZE, seed=3)


def by_hand(logits: PseudoLogits, key: int, position: int, chosen: int, allowed: np.ndarray) -> np.ndarray:
    """Log softmax of the row with the chosen token's peak, minus infinity where a token is not allowed."""
    row = logits.row(key, position).astype(np.float64)
    row[chosen] = logits.row(key, position).max() + 1.5
    out = np.full(SIZE, -np.inf)
    out[allowed] = row[allowed] - np.log(np.exp(row[allowed]).sum())
    return out


@pytest.mark.parametrize("chosen", [0, 17, SIZE - 1])
@pytest.mark.parametrize("k", [0, 1, 5, 20, 200, MAX_TOP])
def test_top_log_probabilities_are_the_largest_of_the_row(logits: PseudoLogits, chosen: int, k: int) -> None:
    expected = by_hand(logits, 99, 4, chosen, np.arange(SIZE))
    top = logits.top(99, 4, chosen, k)
    assert top.chosen == pytest.approx(expected[chosen], abs=1e-5)
    assert top.tokens.tolist() == np.argsort(-expected, kind="stable")[:k].tolist()
    np.testing.assert_allclose(top.values, expected[top.tokens], atol=1e-5)


@pytest.mark.parametrize("k", [0, 1, 5, 1000])
def test_under_a_mask_only_allowed_tokens_have_a_probability(logits: PseudoLogits, k: int) -> None:
    allowed = np.array([3, 8, 100, 4000], np.int64)
    expected = by_hand(logits, 5, 0, 100, allowed)
    top = logits.top_allowed(5, 0, 100, k, allowed)
    assert top.tokens.tolist() == np.argsort(-expected, kind="stable")[: min(k, 4)].tolist()
    assert np.exp(top.values).sum() <= 1 + 1e-5
    assert top.chosen == pytest.approx(expected[100], abs=1e-5)


def test_probabilities_of_the_whole_row_sum_to_one(logits: PseudoLogits) -> None:
    everything = logits.top_allowed(1, 1, 42, SIZE, np.arange(SIZE))
    assert np.exp(everything.values.astype(np.float64)).sum() == pytest.approx(1, abs=1e-4)


def test_rows_differ_by_position_and_key_and_repeat_for_equal_ones(logits: PseudoLogits) -> None:
    assert (logits.row(1, 2) == PseudoLogits(SIZE, seed=3).row(1, 2)).all()
    assert (logits.row(1, 2) != logits.row(1, 3)).any()
    assert (logits.row(1, 2) != logits.row(2, 2)).any()


def test_a_key_depends_on_seed_prompt_and_choice_alone() -> None:
    assert sequence_key(1, [1, 2], 0) == sequence_key(1, [1, 2], 0)
    assert len({sequence_key(s, p, c) for s in (1, 2) for p in ([1, 2], [2, 1], []) for c in (0, 1)}) == 12


def test_mixed_bits_are_spread_over_sixty_four() -> None:
    seen = [mix(0, i) for i in range(1000)]
    assert len(set(seen)) == 1000
    assert all(0 <= x < 2**64 for x in seen)
    assert 0.4 < sum(bin(x).count("1") for x in seen) / 64_000 < 0.6
