"""A store as a finished run leaves it, with known figures: 1,200 steps in two attempts, the first
killed at step 750 after a commit at 700."""

from __future__ import annotations

import math
import random

from eyas.store import (
    Manifest,
    Store,
    commit_manifest,
    dump_json,
    open_store,
    put_piece,
    seal,
)

RECIPE = """name = "{name}"
store = "{store}"
"""
LANGUAGES = {  # recognised, after repetition, after quality, documents, bytes
    "en": (412, 410, 371, 190, 2_400_000),
    "de": (120, 120, 98, 61, 800_000),
    "ar": (104, 104, 101, 58, 1_100_000),
    "fr": (98, 97, 77, 44, 610_000),
    "ja": (97, 97, 52, 39, 520_000),
    "ru": (93, 93, 76, 41, 700_000),
    "zh": (55, 54, 15, 12, 130_000),
    "el": (20, 20, 11, 9, 90_000),
}


def loss_at(step: int) -> float:
    noise = random.Random(step).gauss(0, 0.09)
    return 4.4 + 4.6 * math.exp(-step / 170) - 0.0006 * step + noise


def write_metrics(store: Store, attempt: int, first: int, last: int, piece: int = 100) -> None:
    for start in range(first, last + 1, piece):
        records = [
            {
                "step": step,
                "loss": loss_at(step),
                "lr": 3e-4,
                "grad_norm": 1.0,
                "tokens": step * 4096,
                "tokens_per_s": 11_800
                + 900 * math.sin(step / 40)
                + random.Random(step).gauss(0, 250),
            }
            for step in range(start, min(start + piece, last + 1))
        ]
        put_piece(store, f"metrics/{attempt:06d}", start, records)


def write_corpus(store: Store) -> None:
    left = [{n: v[i] for n, v in LANGUAGES.items()} for i in range(4)]
    reasons: list[tuple[str, dict[str, int], dict[str, int]]] = [
        ("read", {"not_html": 2, "too_large": 3}, {}),
        ("extract", {"no_text": 12}, {}),
        ("language", {"unsure": 8}, left[0]),
        ("repetition", {"duplicate_lines": 3, "top_3_gram": 1}, left[1]),
        (
            "quality",
            {
                "too_few_words": 96,
                "symbol_ratio": 41,
                "no_stop_words": 30,
                "bullet_lines": 17,
                "ellipsis_lines": 8,
                "mean_word_length": 2,
            },
            left[2],
        ),
        ("duplicates", {"near_duplicate": 347}, left[3]),
    ]
    funnel, pages = [], 1024
    for stage, why, languages in reasons:
        out = pages - sum(why.values())
        funnel.append(
            {"stage": stage, "in": pages, "out": out, "reasons": why, "languages": languages}
        )
        pages = out
    facts = {
        "funnel": funnel,
        "languages": {n: {"documents": v[3], "bytes": v[4]} for n, v in LANGUAGES.items()},
    }
    counters = {
        "pages_in": 1024,
        "documents": 454,
        "documents_train": 431,
        "documents_validation": 23,
        "duplicates": 347,
        "broken_records": 3,
    }
    commit_manifest(
        store, Manifest("corpus", "c0" * 32, code="0.1.0", counters=counters, facts=facts)
    )


def write_tokens(store: Store) -> None:
    rows = {
        n: {"bytes_per_token": 3.4 + 0.1 * i, "fertility": 1.4 + 0.05 * i}
        for i, n in enumerate(LANGUAGES)
    }
    facts = {
        "digest": "ab" * 32,
        "vocab_size": 8192,
        "reserved": 256,
        "end_of_text": 0,
        "pattern": "x",
        "bytes_per_token": 3.6127,
        "fertility": 1.71,
        "unused_items": 37,
        "measured_on": "validation",
        "languages": rows,
        "trained_on": {n: v[4] for n, v in LANGUAGES.items()},
    }
    counters = {"sample_bytes": 6_350_000}
    commit_manifest(store, Manifest("tokenizer", "d0" * 32, counters=counters, facts=facts))
    tokens = {
        "tokens": {"train": 1_690_112, "validation": 88_004},
        "documents": {"train": 431, "validation": 23},
        "languages": {"train": {n: v[4] // 4 for n, v in LANGUAGES.items()}},
        "dtype": "uint16",
        "highest_id": 8191,
        "tokenizer": "ab" * 32,
    }
    commit_manifest(store, Manifest("tokens", "e0" * 32, facts=tokens))


def write_eval(store: Store, step: int, attempt: int, total: float) -> None:
    def line(language: str, size: int, ours: float, xz: float) -> dict[str, object]:
        return {
            "language": language,
            "documents": 5,
            "bytes": size,
            "tokens": size // 3,
            "bits": ours * size,
            "bits_per_byte": ours,
            "standard_error": 0.031,
            "xz_bytes": int(xz * size / 8),
            "xz_bits_per_byte": xz,
        }

    lines = [
        line("ar", 50_120, total - 0.30, 1.71),
        line("de", 41_020, total + 0.05, 2.30),
        line("en", 120_400, total - 0.10, 2.21),
        line("ja", 20_300, total + 0.62, 2.05),
        line("other", 3_020, total + 0.9, 3.10),
    ]
    body = {
        "languages": lines,
        "total": line("total", 234_860, total, 2.24),
        "max_bytes": 200_000,
        "context": 256,
        "corpus": "c0" * 32,
        "tokenizer": "ab" * 32,
        "identity": "f0" * 32,
        "step": step,
        "attempt": attempt,
    }
    store.put(f"eval/{step:012d}-{attempt}.json", seal(body))


def write_summary(store: Store) -> None:
    stages = [
        ("sources", 31.2, "6 packages, 1,024 pages, each with its licence"),
        ("corpus", 64.9, "1,024 pages in, 454 documents out"),
        ("tokenizer", 9.4, "8,192 items, 3.61 bytes a token"),
        ("train", 361.0, "loss 9.00 to 3.71, killed once, digest equal"),
        ("judge", 21.5, "2.050 bits a byte, xz 2.240"),
        ("export", 4.2, "largest logit difference 3.1e-06"),
        ("serve", 2.3, "an answer in 0.4 s"),
    ]
    compared = [
        ("peak memory a rank", 117_440_512, 126_877_696, "112.00 MiB", "121.00 MiB"),
        ("tokens a second", 12_500.0, 11_794.2, "12.5K", "11.8K"),
        ("the whole run", 340.0, 361.0, "5 min 40 s", "6 min 01 s"),
    ]
    plan = [
        {
            "name": name,
            "planned": planned,
            "actual": actual,
            "ratio": actual / planned,
            "planned_text": planned_text,
            "actual_text": actual_text,
        }
        for name, planned, actual, planned_text, actual_text in compared
    ]
    rows = [{"stage": s, "seconds": t, "line": line} for s, t, line in stages]
    store.put("run/summary.json", dump_json({"stages": rows, "plan": plan}))


def finished_run(folder: object, name: str = "demo") -> Store:
    store = open_store(str(folder))
    store.put("recipe.toml", RECIPE.format(name=name, store="./runs/demo").encode())
    write_metrics(store, 1, 1, 750)
    write_metrics(store, 2, 701, 1200)
    write_corpus(store)
    write_tokens(store)
    for step, attempt in [(s, 1) for s in range(100, 800, 100)] + [
        (s, 2) for s in range(800, 1300, 100)
    ]:
        store.put(f"checkpoints/commits/{attempt:06d}-{step:012d}.json", b"{}")
    for step, attempt, total in [(300, 1, 2.92), (700, 1, 2.31), (1000, 2, 2.12), (1200, 2, 2.05)]:
        write_eval(store, step, attempt, total)
    write_summary(store)
    return store
