"""One contender of `bench/tokenizer.py`, run in a process of its own, so that CPU seconds and peak
memory are its alone.

    python bench/tokenizer_contenders.py train|encode NAME FOLDER

FOLDER holds the texts (`sample.jsonl`, `heldout-en.jsonl`, …), `task.json`, and takes what is
made. The last line printed is JSON. Libraries are imported where they are used: rivals live in an
environment without ours. CPU time of training runs from texts in memory to the saved result; peak
memory is of the whole process then, the texts included.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import re
import resource
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

__all__ = ["ENCODERS", "TRAINERS"]

Texts = list[str]
Encode = Callable[[Texts], list[Any]]
Decode = Callable[[Any], str]
Made = tuple[Encode, Decode, int]
"""How to encode and decode with what was trained, and how many items it has."""
EDGES = (
    "  two  spaces, a\ttab and\r\nreturns \n\n\n",
    "\u2581literal \u2581 lower blocks\u2581",
    "\u0627\u0644\u0640\u0640\u0640\u0639\u064e\u0631\u064e\u0628\u0650\u064a\u0651\u0629",
    "\ufefb \u0661\u0662\u0663",
    "e\u0301 \u00e9 \uff21 \u00bd \u200b\u00a0\u2028 \x00\x07",
    "\U0001f469\u200d\U0001f4bb \U0001f1f8\U0001f1e6 \u65e5\u672c\u8a9e",
    "\u0939\u093f\u0928\u094d\u0926\u0940 <|endoftext|>",
)
"""What a lossless tokenizer also gives back."""
_CHARACTERS = 0x10000  # where ids start as characters; surrogates lie below, so none is in the way


def cpu() -> float:
    """CPU seconds of this process and its ended children."""
    spent = os.times()
    return time.process_time() + spent.children_user + spent.children_system


def peak() -> int:
    """Peak resident memory in MB; `ru_maxrss` would begin with that of the parent."""
    status = Path("/proc/self/status")
    if status.exists():
        return int(re.search(r"VmHWM:\s+(\d+)", status.read_text())[1]) * 1024 // 10**6
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 10**6  # macOS: bytes


def read(path: Path) -> Texts:
    with path.open(encoding="utf-8") as file:
        return [json.loads(line)["text"] for line in file]


# --- trainers: (texts, task, folder) -> saved; then how to encode and decode with it ---


def ours_plain(texts: Texts, task: dict[str, Any], folder: Path) -> Made:
    """With as many items as the error says, where the sample has too few pairs that repeat."""
    from eyas.recipe import EyasError
    from eyas.tokens.fit import train

    vocab = task["vocab"]
    while True:
        try:
            return _kept(train(texts, vocab, task["reserved"]).json, folder / "plain.json")
        except EyasError as error:
            vocab = int(re.findall(r"gives (\d+) items", str(error))[0])


def ours_multiword(texts: Texts, task: dict[str, Any], folder: Path) -> Made:
    from eyas.tokens.entities import read_names
    from eyas.tokens.fit import Multiword, train

    keys = Multiword(share=task["share"], names=read_names("builtin"))
    data = train(texts, task["vocab"], task["reserved"], multiword=keys).json
    return _kept(data, folder / "multiword.json")


def huggingface(texts: Texts, task: dict[str, Any], folder: Path) -> Made:
    """The reference: byte-level BPE by `tokenizers`, with our rule of words."""
    model = _huggingface(texts, task["vocab"], task["pattern"])
    model.save(str(folder / "huggingface.json"))
    return _encode_huggingface(model), model.decode, model.get_vocab_size()


def _huggingface(texts: Texts, vocab: int, pattern: str) -> Any:
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

    model = Tokenizer(models.BPE())
    cut = pre_tokenizers.Split(Regex(pattern), behavior="isolated")
    level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    model.pre_tokenizer = pre_tokenizers.Sequence([cut, level])
    model.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=vocab, show_progress=False, initial_alphabet=alphabet)
    model.train_from_iterator(texts, trainer)
    return model


def _encode_huggingface(model: Any) -> Encode:
    return lambda texts: [e.ids for e in model.encode_batch_fast(texts, add_special_tokens=False)]


def unrestricted(texts: Texts, task: dict[str, Any], folder: Path) -> Made:
    """Two stages of stock `tokenizers` without our cuts: ids of the first, as characters, are
    merged over whole lines. The second stage sees `task["unrestricted_bytes"]` of the sample."""
    from tokenizers import Tokenizer, models, trainers

    first = _huggingface(texts, int(task["vocab"] * (1 - task["share"])), task["pattern"])
    encode_first = _encode_huggingface(first)

    def characters(part: Texts) -> Iterator[str]:
        for ids in encode_first(part):
            yield "".join(chr(_CHARACTERS + i) for i in ids)

    second = Tokenizer(models.BPE())
    trainer = trainers.BpeTrainer(vocab_size=task["vocab"], min_frequency=2, show_progress=False)
    lines = (line for text in _most(texts, task["unrestricted_bytes"]) for line in _lines(text))
    second.train_from_iterator(
        (c for part in _batches(lines, 5000) for c in characters(part)), trainer
    )
    present = second.get_vocab()
    items = len(present)
    # characters that the second stage's part of the sample lacks would be lost: one item each
    spare = [chr(_CHARACTERS + i) for i in range(first.get_vocab_size())]
    second.add_tokens([c for c in spare if c not in present])

    def encode(part: Texts) -> list[Any]:
        rows = [[second.encode(c).ids for c in characters(_lines(text))] for text in part]
        return [[i for ids in row for i in ids] for row in rows]

    def decode(ids: Any) -> str:
        joined = "".join(second.id_to_token(i) for i in ids)
        return str(first.decode([ord(c) - _CHARACTERS for c in joined]))

    return encode, decode, items


def sentencepiece(
    texts: Texts, task: dict[str, Any], folder: Path, multiword: bool = False
) -> Made:
    import sentencepiece as library

    prefix = folder / ("sp-multiword" if multiword else "sp")
    library.SentencePieceTrainer.train(
        sentence_iterator=(line for text in texts for line in text.split("\n") if line),
        model_prefix=str(prefix),
        model_type="bpe",
        vocab_size=task["vocab"],
        byte_fallback=True,
        character_coverage=0.9999,
        normalization_rule_name="identity",
        remove_extra_whitespaces=False,
        allow_whitespace_only_pieces=True,
        add_dummy_prefix=False,
        split_by_whitespace=not multiword,
        max_sentencepiece_length=128 if multiword else 32,
        max_sentence_length=1 << 20,
        num_threads=1,
        minloglevel=2,
    )
    model = library.SentencePieceProcessor(model_file=f"{prefix}.model")
    items = model.get_piece_size()
    return lambda part: model.encode(part, num_threads=1), model.decode, items


def sentencepiece_multiword(texts: Texts, task: dict[str, Any], folder: Path) -> Made:
    return sentencepiece(texts, task, folder, multiword=True)


def rustbpe(texts: Texts, task: dict[str, Any], folder: Path) -> Made:
    import rustbpe as library

    model = library.Tokenizer()
    model.train_from_iterator(iter(texts), task["vocab"], pattern=task["pattern"])
    items = {i: bytes(item) for item, i in model.get_mergeable_ranks()}

    def decode(ids: Any) -> str:  # its own builds the table of items anew at every call
        return b"".join(items[i] for i in ids).decode()

    return lambda part: [model.encode(text) for text in part], decode, len(items)


def _kept(data: bytes, path: Path) -> Made:
    from eyas.tokens.tokenizer import Tokenizer

    path.write_bytes(data)
    model = Tokenizer(data)
    return model.encode_batch, model.decode, model.vocab_size


def _lines(text: str) -> Texts:
    return text.splitlines(keepends=True)


def _most(texts: Texts, size: float) -> Iterator[str]:
    for text in texts:
        size -= len(text.encode())
        if size < 0:
            return
        yield text


def _batches(items: Iterator[str], size: int) -> Iterator[Texts]:
    batch: Texts = []
    for item in items:
        batch.append(item)
        if len(batch) == size:
            yield batch
            batch = []
    if batch:
        yield batch


TRAINERS: dict[str, Callable[[Texts, dict[str, Any], Path], Made]] = {
    "ours, multi-word": ours_multiword,
    "ours, plain": ours_plain,
    "tokenizers": huggingface,
    "unrestricted": unrestricted,
    "sentencepiece": sentencepiece,
    "sentencepiece, multi-word": sentencepiece_multiword,
    "rustbpe": rustbpe,
}


def train(name: str, folder: Path, task: dict[str, Any]) -> dict[str, Any]:
    texts = read(folder / "sample.jsonl")
    held_out = {language: read(folder / f"heldout-{language}.jsonl") for language in ("en", "ar")}
    before = cpu()
    encode, decode, items = TRAINERS[name](texts, task, folder)
    row: dict[str, Any] = {"cpu_s": round(cpu() - before, 1), "items": items}
    row["peak_mb"] = peak()
    lossless = [decode(ids) for ids in encode(list(EDGES))] == list(EDGES)
    for language, part in held_out.items():
        ids = encode(part)
        row[language] = round(sum(len(t.encode()) for t in part) / sum(map(len, ids)), 4)
        lossless &= all(decode(i) == text for i, text in zip(ids, part, strict=True))
    return row | {"lossless": lossless}


# --- encoders: (tokenizer.json) -> texts to ids ---


def with_tokenizers(path: Path) -> Encode:
    from tokenizers import Tokenizer

    model = Tokenizer.from_file(str(path))
    model.encode_special_tokens = True
    return _encode_huggingface(model)


def with_ours(path: Path) -> Encode:
    from eyas.tokens.tokenizer import Tokenizer

    return Tokenizer(path.read_bytes()).encode_flat


def with_fastokens(path: Path) -> Encode:
    import fastokens

    model = fastokens.Tokenizer.from_json_str(path.read_text(encoding="utf-8"))
    return lambda texts: model.encode_batch_flat(texts, split_special_tokens=True)


def with_tiktoken(path: Path) -> Encode:
    import tiktoken

    body = json.loads(path.read_text(encoding="utf-8"))
    special = {item["content"]: item["id"] for item in body["added_tokens"]}
    alphabet = {c: b for b, c in _byte_characters().items()}
    ranks = {
        bytes(alphabet[c] for c in item): i
        for item, i in body["model"]["vocab"].items()
        if item not in special
    }
    pattern = next(
        step["pattern"]["Regex"]
        for step in body["pre_tokenizer"]["pretokenizers"]
        if step["type"] == "Split"
    )
    model = tiktoken.Encoding(
        "bench", pat_str=pattern, mergeable_ranks=ranks, special_tokens=special
    )
    return lambda texts: [model.encode_ordinary(text) for text in texts]


def with_gigatoken(path: Path) -> Encode:
    import gigatoken as library

    model = library.Tokenizer.from_json(path.read_text(encoding="utf-8"))
    return lambda texts: model.encode_batch(texts, parallel=False)


def rows_of(encoded: Any) -> Iterator[Any]:
    """The ids of each text, from what a library returns: lists, or flat ids with offsets."""
    if not isinstance(encoded, tuple):
        yield from encoded
        return
    ids, offsets = encoded
    yield from np.split(np.frombuffer(ids, np.uint32), np.frombuffer(offsets, np.int64)[1:-1])


def _byte_characters() -> dict[int, str]:
    """The character of each byte in byte-level BPE (GPT-2's table)."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [b for b in range(256) if b not in plain]
    return {b: chr(b) for b in plain} | {b: chr(256 + n) for n, b in enumerate(others)}


ENCODERS: dict[str, Callable[[Path], Encode]] = {
    "tokenizers": with_tokenizers,
    "ours": with_ours,
    "fastokens": with_fastokens,
    "tiktoken": with_tiktoken,
    "gigatoken": with_gigatoken,
}


def encode(name: str, folder: Path, task: dict[str, Any]) -> dict[str, Any]:
    """MB a CPU second: `cold`, the first texts of a new process; `warm`, texts after them, all of
    them new. Loading the tokenizer is not in either."""
    before = cpu()
    run = ENCODERS[name](Path(task["tokenizer"]))
    run(["a"])
    row: dict[str, Any] = {"load_cpu_s": round(cpu() - before, 1)}
    digests = []
    for part in ("cold", "between", "warm"):
        texts = read(folder / f"encode-{part}.jsonl")
        before = cpu()
        ids = run(texts)
        spent = cpu() - before
        row[part] = round(sum(len(t.encode()) for t in texts) / 1e6 / spent, 2)
        rows = (np.asarray(i, np.uint32).tobytes() for i in rows_of(ids))
        digests += [hashlib.sha256(data).digest()[:6] for data in rows]
    row["digests"] = base64.b64encode(b"".join(digests)).decode()
    return row


def main() -> None:
    action, name, folder = sys.argv[1], sys.argv[2], Path(sys.argv[3])
    task = json.loads((folder / "task.json").read_text(encoding="utf-8"))
    start = time.perf_counter()
    row = {"train": train, "encode": encode}[action](name, folder, task)
    print(json.dumps(row | {"wall_s": round(time.perf_counter() - start, 1)}))


if __name__ == "__main__":
    main()
