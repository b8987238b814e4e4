"""Writes a tiny random-weight Qwen2 model with the real Qwen vocabulary, for engines that run on CPU.

    <engine venv>/bin/python tests/engines/tiny_model.py --vocabulary qwen.tiktoken --out DIRECTORY

Runs inside an engine's environment: needs torch, transformers and tokenizers, and nothing of ours. Two layers of width
128 make a forward pass of a few milliseconds, so what an engine does between two passes is what shows; the vocabulary
has its real 151k tokens because mask filling, logprobs and detokenizing cost by it. The seed of the weights is fixed.
"""

import argparse
import base64
from pathlib import Path

import torch
from tokenizers import AddedToken, Regex, Tokenizer, decoders, pre_tokenizers
from tokenizers.models import BPE
from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM

SEED = 20260101
CONTEXT_TOKENS = 4096
SPECIAL_TOKENS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
# How the Qwen tokenizer cuts text into words before merging bytes (its model card's `pat_str`).
WORDS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
CHAT_TEMPLATE = """\
{%- if tools %}<|im_start|>system
You may call these tools:
{% for tool in tools %}{{ tool | tojson }}
{% endfor %}Answer with <tool_call>{"name": ..., "arguments": ...}</tool_call> to call one.<|im_end|>
{% endif %}
{%- for message in messages %}<|im_start|>{{ message.role }}
{{ message.content if message.content is string else message.content | tojson }}<|im_end|>
{% endfor %}
{%- if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""


def read_ranks(vocabulary: Path) -> dict[bytes, int]:
    """Byte-pair ranks of a `.tiktoken` file: one base64 token and its rank on each line."""
    ranks: dict[bytes, int] = {}
    for line in vocabulary.read_bytes().splitlines():
        token, rank = line.split()
        ranks[base64.b64decode(token)] = int(rank)
    return ranks


def last_merge(token: bytes, ranks: dict[bytes, int]) -> tuple[bytes, bytes] | None:
    """The two tokens that byte-pair encoding joins last on its way to `token`; None if merging cannot reach it."""
    parts = [token[i : i + 1] for i in range(len(token))]
    limit = ranks[token]
    while len(parts) > 2:
        candidates = [(ranks.get(parts[i] + parts[i + 1], limit), i) for i in range(len(parts) - 1)]
        rank, at = min(candidates)
        if rank >= limit:
            return None
        parts[at : at + 2] = [parts[at] + parts[at + 1]]
    return parts[0], parts[1]


def byte_letters() -> dict[int, str]:
    """The printable stand-in of every byte in byte-level BPE vocabularies (GPT-2's `bytes_to_unicode`)."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in set(printable)]
    letters = {byte: chr(byte) for byte in printable}
    return letters | {byte: chr(256 + n) for n, byte in enumerate(others)}


def build_tokenizer(ranks: dict[bytes, int]) -> PreTrainedTokenizerFast:
    letters = byte_letters()

    def spelled(token: bytes) -> str:
        return "".join(letters[byte] for byte in token)

    merges = [
        (spelled(pair[0]), spelled(pair[1]))
        for token in sorted(ranks, key=ranks.__getitem__)
        if len(token) > 1 and (pair := last_merge(token, ranks)) is not None
    ]
    tokenizer = Tokenizer(BPE({spelled(token): rank for token, rank in ranks.items()}, merges))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(WORDS), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in SPECIAL_TOKENS])
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
        chat_template=CHAT_TEMPLATE,
        model_max_length=CONTEXT_TOKENS,
        clean_up_tokenization_spaces=False,
    )


def build_model(vocabulary_size: int, eos_token_id: int) -> Qwen2ForCausalLM:
    torch.manual_seed(SEED)
    config = Qwen2Config(
        vocab_size=vocabulary_size,
        hidden_size=128,
        intermediate_size=512,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        max_position_embeddings=CONTEXT_TOKENS,
        tie_word_embeddings=False,
        # Ten times the usual spread: nearly flat logits would make greedy decoding a matter of rounding.
        initializer_range=0.2,
        bos_token_id=None,
        eos_token_id=eos_token_id,
    )
    return Qwen2ForCausalLM(config).to(torch.bfloat16)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--vocabulary", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    tokenizer = build_tokenizer(read_ranks(options.vocabulary))
    eos_token_id = tokenizer.convert_tokens_to_ids("<|im_end|>")
    assert isinstance(eos_token_id, int)
    tokenizer.save_pretrained(options.out)
    build_model(len(tokenizer), eos_token_id).save_pretrained(options.out)


if __name__ == "__main__":
    main()
