"""Log probabilities from a row of logits to numbers and text, on the step thread.

The row work (softmax, top-k) stands for the GPU and is the sampler's; here is what an engine's CPU does with it: copy
the values out of the device's arrays and detokenize every alternative.
"""

from replica.simulator.logits import PseudoLogits, TopRow
from replica.simulator.sequence import LogprobsWanted, Scored, TokenLogprobs
from replica.simulator.vocabulary import Vocabulary


class LogprobGatherer:
    """Turns rows into `TokenLogprobs`. Costs about half a microsecond an alternative."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._vocabulary = vocabulary

    def gather(self, chosen: int, row: TopRow, wanted: LogprobsWanted) -> TokenLogprobs:
        """The chosen token and `wanted.top` alternatives."""
        if not wanted.text:
            pairs = zip(row.values.tolist(), row.tokens.tolist(), strict=True)
            return TokenLogprobs(Scored(row.chosen, chosen, None), [Scored(v, t, None) for v, t in pairs])
        text = self._vocabulary.text
        top = [
            Scored(value, token, text(token))
            for value, token in zip(row.values.tolist(), row.tokens.tolist(), strict=True)
        ]
        return TokenLogprobs(Scored(row.chosen, chosen, text(chosen)), top)

    def prompt(self, prompt: list[int], wanted: LogprobsWanted, key: int, logits: PseudoLogits) -> list[TokenLogprobs]:
        """Every prompt token from `wanted.prompt_start` on; the first of the prompt has no log probability."""
        result = []
        for position in range(wanted.prompt_start, len(prompt)):
            token = prompt[position]
            if position == 0:
                first = Scored(None, token, self._vocabulary.text(token) if wanted.text else None)
                result.append(TokenLogprobs(first, []))
                continue
            # Positions of the prompt count down from -2: they share no row with the reply.
            row = logits.top(key, -1 - position, token, wanted.top)
            result.append(self.gather(token, row, wanted))
        return result
