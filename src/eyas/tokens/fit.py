"""Texts in, the bytes of a `tokenizer.json` out: byte-level BPE by Hugging Face `tokenizers`.

The text is cut into words by `PATTERN` and merges are learned inside words. Nothing is normalised,
so nothing is lost: tatweel, diacritics, presentation forms and control characters are bytes like
any others. The trainer orders merges by count and then by ids, so the same bags of words give the
same file, byte for byte, in any order and with any number of threads.

Ids: 0 is `<|endoftext|>`, 1 to reserved-1 are `<|reserved_i|>` (for later stages to name), then the
256 bytes, then merges in the order learned.
"""

from __future__ import annotations

from collections.abc import Iterable

from tokenizers import AddedToken, Regex, decoders, models, pre_tokenizers, trainers
from tokenizers import Tokenizer as HuggingFaceTokenizer

from eyas.recipe import EyasError

from .tokenizer import END_OF_TEXT, byte_characters

__all__ = ["PATTERN", "fit"]

_UPPER = r"\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}"
_LOWER = r"\p{Ll}\p{Lm}\p{Lo}\p{M}"
_CONTRACTION = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"

PATTERN = "|".join(
    (
        rf"[^\r\n\p{{L}}\p{{N}}]?[{_UPPER}]*[{_LOWER}]+{_CONTRACTION}",
        rf"[^\r\n\p{{L}}\p{{N}}]?[{_UPPER}]+[{_LOWER}]*{_CONTRACTION}",
        r"\p{N}{1,3}",
        r" ?[^\s\p{L}\p{N}]+[\r\n/]*",
        r"\s*[\r\n]+",
        r"\s+(?!\S)",
        r"\s+",
    )
)
r"""How text is cut into words: the rule of OpenAI's o200k_base (tiktoken, MIT), which fast
encoders know by heart. A word takes one character before it (a space), a change from lower to
upper case ends it, and `\p{M}` is inside it, so that vowelled Arabic and Indic scripts stay whole,
which they do not under GPT-2's rule. English contractions stay with their word; digits go by three
from the left."""


def fit(texts: Iterable[str], vocab_size: int, reserved: int) -> bytes:
    """Train on `texts` and return the file.

    Raises EyasError if the texts have too few repeated pairs to reach `vocab_size`.
    """
    inner = HuggingFaceTokenizer(models.BPE())
    inner.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(PATTERN), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    inner.decoder = decoders.ByteLevel()
    names = [END_OF_TEXT, *(f"<|reserved_{i}|>" for i in range(1, reserved))]
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        min_frequency=2,
        show_progress=False,
        special_tokens=[AddedToken(name, special=True, normalized=False) for name in names],
        initial_alphabet=byte_characters(),
    )
    inner.train_from_iterator(texts, trainer)
    reached = inner.get_vocab_size(with_added_tokens=True)
    if reached != vocab_size:
        raise EyasError(
            f"the sample gives {reached} items, tokenizer.vocab_size asks for {vocab_size}: set it "
            f"to {reached} or less, or train on more text (tokenizer.sample_bytes, corpus.sources)"
        )
    return inner.to_str().encode()
