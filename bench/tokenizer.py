"""Our tokenizers against other trainers and encoders, on `text_corpus.py`.

    python bench/tokenizer.py train    a vocabulary each from one sample
    python bench/tokenizer.py encode   one tokenizer.json in several libraries
    python bench/tokenizer.py all      both; --quick: small, about a minute

Training: CPU seconds, peak memory, bytes a token of held-out text. Encoding: MB a CPU second, and
whether the ids agree. Every contender runs in a process of its own (`tokenizer_contenders.py`),
rivals with `.bench/bin/python` (see requirements.txt; one that is not installed is named and left
out), one after the other and on one thread where it lets itself be held to one. CPU seconds count,
since other work may share the machine. The sample is drawn from the training documents by seeded
hash, each language by its share; what is left over is the unseen text for encoding. "unrestricted"
is the same two stages without our cuts, by stock `tokenizers`: what the aim of 97 % refers to.
"""

from __future__ import annotations

import argparse
import base64
import json
import os
import re
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import xxhash

from eyas.tokens.fit import PATTERN
from text_corpus import CACHE, Corpus, load_corpus

HERE = Path(__file__).parent
RIVALS = HERE.parent / ".bench" / "bin" / "python"
SHARE = 0.45  # of the vocabulary for multi-word items
TRAINERS = {
    "tokenizers": sys.executable,
    "rustbpe": str(RIVALS),
    "sentencepiece": str(RIVALS),
    "ours, plain": sys.executable,
    "sentencepiece, multi-word": str(RIVALS),
    "unrestricted": sys.executable,
    "ours, multi-word": sys.executable,
}
ENCODERS = {
    "tokenizers": sys.executable,
    "ours": sys.executable,
    "fastokens": sys.executable,
    "tiktoken": str(RIVALS),
    "gigatoken": str(RIVALS),
}
FILES = {
    "multi-word": ("ours, multi-word", "multiword.json"),
    "plain": ("ours, plain", "plain.json"),
}


@dataclass(frozen=True)
class Scale:
    """Bytes of the training sample and of the unseen text to encode; items of the vocabulary."""

    sample: float
    vocab: int
    cold: float = 2e6
    between: float = 6e6
    warm: float = 8e6


QUICK = Scale(sample=3e6, vocab=24_576, cold=0.5e6, between=0.5e6, warm=0.5e6)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("action", choices=("train", "encode", "all"))
    parser.add_argument("--sample", type=float, default=40.0, help="MB to train on (40)")
    parser.add_argument("--vocab", type=int, default=262_144, help="items (262,144)")
    parser.add_argument("--only", nargs="+", default=[], help="names of the contenders to run")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--cache", type=Path, default=CACHE)
    arguments = parser.parse_args()
    scale = QUICK if arguments.quick else Scale(arguments.sample * 1e6, arguments.vocab)
    corpus = load_corpus(arguments.cache)
    figures: dict[str, Any] = {"missing": corpus.missing, "changed": corpus.changed}
    with tempfile.TemporaryDirectory(prefix="eyas-tokenizer-") as name:
        folder = Path(name)
        figures["texts"] = lay_out(corpus, scale, folder)
        del corpus  # room for the contenders
        if arguments.action != "encode":
            figures["train"] = train(folder, arguments.only)
        if arguments.action != "train":
            figures["encode"] = encode(folder, arguments.only)
    print("\n" + json.dumps(figures, ensure_ascii=False))


def lay_out(corpus: Corpus, scale: Scale, folder: Path) -> dict[str, Any]:
    """Write the texts that contenders read, and their task."""
    whole = sum(map(size, corpus.train.values()))
    parts: dict[str, list[str]] = {"sample": []}
    unseen: dict[str, list[str]] = {}
    for language, texts in corpus.train.items():
        drawn = sorted(texts, key=lambda t: xxhash.xxh3_64_intdigest(t.encode(), seed=1))
        share = size(texts) / whole
        taken, unseen[language] = cut(drawn, share * scale.sample)
        parts["sample"] += taken
        parts[f"heldout-{language}"] = corpus.held_out[language]
    for part, wanted in (("cold", scale.cold), ("between", scale.between), ("warm", scale.warm)):
        texts = []
        for language, rest in unseen.items():
            share = size(corpus.train[language]) / whole
            taken, unseen[language] = cut(rest, share * wanted)
            texts += taken
        parts[f"encode-{part}"] = texts
    parts["sample"].sort(key=lambda t: xxhash.xxh3_64_intdigest(t.encode(), seed=2))
    task = {"vocab": scale.vocab, "reserved": 256, "pattern": PATTERN, "share": SHARE}
    task |= {"unrestricted_bytes": scale.sample}
    for name, texts in parts.items():
        with (folder / f"{name}.jsonl").open("w", encoding="utf-8") as file:
            file.writelines(json.dumps({"text": t}, ensure_ascii=False) + "\n" for t in texts)
    (folder / "task.json").write_text(json.dumps(task), encoding="utf-8")
    return {"vocab": scale.vocab} | {name: f"{size(t) / 1e6:.2f} MB" for name, t in parts.items()}


def size(texts: list[str]) -> int:
    return sum(len(text.encode()) for text in texts)


def cut(texts: list[str], wanted: float) -> tuple[list[str], list[str]]:
    """The first documents of about `wanted` bytes, and the rest."""
    for n, text in enumerate(texts):
        wanted -= len(text.encode())
        if wanted < 0:
            return texts[:n], texts[n:]
    return texts, []


def train(folder: Path, only: list[str]) -> dict[str, Any]:
    rows = {n: run("train", n, TRAINERS[n], folder) for n in TRAINERS if not only or n in only}
    made = {name: row for name, row in rows.items() if "error" not in row}
    plain, free = made.get("tokenizers", {}), made.get("unrestricted", {})
    print(
        "\n| trainer | items | CPU-s | peak MB | English | Arabic | / tokenizers | / unrestricted "
        "| lossless |"
    )
    print("| --- " * 9 + "|")
    for name, row in rows.items():
        if "error" in row:
            print(f"| {name} | {row['error']} |" + " |" * 7)
            continue
        print(
            f"| {name} | {row['items']:,} | {row['cpu_s']:.0f} | {row['peak_mb']:,} "
            f"| {row['en']:.2f} | {row['ar']:.2f} "
            f"| {ratios(row, plain)} | {ratios(row, free)} | {'yes' if row['lossless'] else 'no'} |"
        )
    return rows


def ratios(row: dict[str, Any], other: dict[str, Any]) -> str:
    """English / Arabic bytes a token over another's."""
    return " / ".join(f"{row[k] / other[k]:.3f}" for k in ("en", "ar")) if other else ""


def encode(folder: Path, only: list[str]) -> dict[str, Any]:
    figures: dict[str, Any] = {}
    for kind, (trainer, file) in FILES.items():
        if not (folder / file).exists():
            run("train", trainer, sys.executable, folder)
        if not (folder / file).exists():
            continue
        task = json.loads((folder / "task.json").read_text(encoding="utf-8"))
        task["tokenizer"] = str(folder / file)
        (folder / "task.json").write_text(json.dumps(task), encoding="utf-8")
        wanted = [n for n in ENCODERS if n == "tokenizers" or not only or n in only]
        rows = {name: run("encode", name, ENCODERS[name], folder) for name in wanted}
        figures[kind] = encode_table(kind, rows)
    return figures


def encode_table(kind: str, rows: dict[str, Any]) -> dict[str, Any]:
    digests = {name: row.pop("digests", "") for name, row in rows.items()}
    reference = rows["tokenizers"]
    print(f"\n| encoder, {kind} | cold | warm | warm / `tokenizers` | texts with other ids |")
    print("| --- " * 5 + "|")
    for name, row in rows.items():
        if "error" in row:
            print(f"| {name} | {row['error']} |" + " |" * 3)
            continue
        row["texts"], row["differ"] = differences(digests["tokenizers"], digests[name])
        print(
            f"| {name} | {row['cold']:.1f} | {row['warm']:.1f} "
            f"| {row['warm'] / reference['warm']:.1f} | {row['differ']:,} of {row['texts']:,} |"
        )
    return rows


def differences(one: str, other: str) -> tuple[int, int]:
    """Texts, and how many of them have other ids; six bytes of digest a text, base64."""
    a, b = base64.b64decode(one), base64.b64decode(other)
    starts = range(0, len(a), 6)
    return len(starts), sum(a[i : i + 6] != b[i : i + 6] for i in starts)


def run(action: str, name: str, python: str, folder: Path) -> dict[str, Any]:
    """One contender in its own process: its figures, or {"error": why there are none}."""
    if not Path(python).exists():
        return {"error": "not installed: see bench/requirements.txt"}
    threads = {"RAYON_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false", "OMP_NUM_THREADS": "1"}
    command = [python, str(HERE / "tokenizer_contenders.py"), action, name, str(folder)]
    done = subprocess.run(command, env=os.environ | threads, capture_output=True, text=True)
    if done.returncode == 0:
        row: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        print(f"{action} {name}: {dict(row, digests='…') if 'digests' in row else row}", flush=True)
        return row
    said = re.findall(r"^(?:\w+\.)*\w*(?:Error|Exception|Interrupt)\b.*", done.stderr, re.M)
    reason = (said or [f"ended with {done.returncode}"])[-1]
    print(f"{action} {name}: {reason}", file=sys.stderr, flush=True)
    return {"error": reason[:100].replace("|", "/")}


if __name__ == "__main__":
    main()
