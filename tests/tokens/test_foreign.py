"""Promises of foreign sources: MosaicML MDS, Megatron .bin/.idx, Hugging Face Parquet and JSONL."""

from __future__ import annotations

import dataclasses
import gzip
import io
import json
import shutil
import struct
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.tokens.made import commit_corpus, copy_store, documents, recipe

from eyas.recipe import DataSource, EyasError, Recipe
from eyas.store import Manifest, Store, open_store, read_object
from eyas.tokens import load_tokenizer, train_tokenizer, write_tokens
from eyas.tokens.encode import run_shard
from eyas.tokens.foreign.mds import array
from eyas.tokens.token_objects import token_objects
from eyas.work import Shard, ShardResult, Stage, Workers
from eyas.work.contract import plain

DATA = Path(__file__).parent / "data" / "mds"
MEGATRON = Path(__file__).parent / "data" / "megatron"


@pytest.fixture(scope="session")
def tokenizer_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with a corpus and its tokenizer of 512 items."""
    folder = tmp_path_factory.mktemp("foreign") / "store"
    store = open_store(str(folder))
    commit_corpus(store, [documents(90, source) for source in range(3)])
    train_tokenizer(recipe(store), store)
    return folder


@pytest.fixture(autouse=True)
def _in_this_process(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Shards run here instead of in the pool, which has tests of its own, unless a test is about
    a bucket."""

    def run(workers: Workers, stage: Stage, shards: Sequence[Shard]) -> list[ShardResult]:
        return [
            run_shard(workers.store, stage, dataclasses.replace(shard, params=plain(shard.params)))
            for shard in shards
        ]

    if "s3_store" not in request.fixturenames:
        monkeypatch.setattr(sys.modules["eyas.tokens.tokens_stage"], "run_stage", run)


@pytest.fixture
def here(folder_store: Store, tokenizer_folder: Path) -> Store:
    copy_store(open_store(str(tokenizer_folder)), folder_store)
    return folder_store


def _recipe(store: Store, url: str, share: float = 0.25) -> Recipe:
    made = recipe(store, corpus__validation_share=share)
    source = DataSource(name="web", from_=url)
    return dataclasses.replace(made, data=dataclasses.replace(made.data, sources=(source,)))


def _encode(store: Store, url: str, share: float = 0.25) -> Manifest:
    manifest = write_tokens(_recipe(store, url, share), store, workers=1)
    assert manifest is not None
    return manifest


def _read(store: Store, manifest: Manifest, split: str) -> dict[str, dict[str, Any]]:
    """Rows of the document tables by document, with their `ids` (end of text taken off)."""
    found: dict[str, dict[str, Any]] = {}
    for shard in token_objects(manifest, "web", split):
        tokens = np.frombuffer(read_object(store, shard.tokens), "<u2")
        table = pq.read_table(io.BytesIO(read_object(store, shard.documents)))
        for row in table.to_pylist():
            ids = tokens[row["start"] : row["end"]].tolist()
            assert ids[-1] == 0
            assert 0 not in ids[:-1]
            assert row["document"] not in found
            found[row["document"]] = row | {"ids": ids[:-1]}
    return found


def _both(store: Store, manifest: Manifest) -> dict[str, dict[str, Any]]:
    train, validation = (_read(store, manifest, split) for split in ("train", "validation"))
    assert not train.keys() & validation.keys()
    return train | validation


# MosaicML MDS, files of the real library


def test_mds_text_is_encoded_and_split_by_its_folders(here: Store) -> None:
    manifest, tokenizer = _encode(here, f"mds:{DATA / 'text'}"), load_tokenizer(here)
    for split, count in (("train", 8), ("validation", 3)):
        found = _read(here, manifest, split)
        assert len(found) == count
        for row in found.values():
            number = int(row["url"].rpartition("/")[2])
            text = f"{split} document {number}, سطر {number}\n" * (number + 1)
            assert row["ids"] == tokenizer.encode(text)
            assert row["url"] == f"https://mds.test/{split}/{number}"
            assert row["language"] == ("en" if number % 2 else "und")
            assert row["shard"].startswith(f"{DATA}/text/{split}/shard.0000")
    assert "web:text/train/shard.00000.mds:0" in _read(here, manifest, "train")
    assert manifest.counters["broken"] == 0


@pytest.mark.parametrize("kind", ["int32", "any", "bytes"])
def test_mds_ids_are_taken_as_they_are(here: Store, kind: str) -> None:
    found = _both(here, _encode(here, f"mds:{DATA / kind}"))
    expected = [(np.arange(1, 4 + 97 * i) % 500 + 1).tolist() for i in range(4)]
    assert sorted(row["ids"] for row in found.values()) == sorted(expected)


def test_mds_arrays_of_a_fixed_shape_are_flat(here: Store) -> None:
    found = _both(here, _encode(here, f"mds:{DATA / 'fixed'}"))
    expected = [list(range(6 * i + 1, 6 * i + 7)) for i in range(4)]
    assert sorted(row["ids"] for row in found.values()) == expected


def test_an_index_over_folders_names_each_file_once(here: Store, tmp_path: Path) -> None:
    """As MosaicML's merge_index writes it, the folders' own beside it."""
    shutil.copytree(DATA / "text", tmp_path / "text")
    shards = []
    for split in ("train", "validation"):
        for raw in json.loads((tmp_path / "text" / split / "index.json").read_text())["shards"]:
            for kind in ("raw_data", "zip_data"):
                if raw[kind]:
                    raw[kind]["basename"] = f"{split}/{raw[kind]['basename']}"
            shards.append(raw)
    (tmp_path / "text" / "index.json").write_text(json.dumps({"shards": shards, "version": 2}))
    manifest = _encode(here, f"mds:{tmp_path / 'text'}")
    assert len(_read(here, manifest, "train")) == 8
    assert len(_read(here, manifest, "validation")) == 3


def _changed_index(tmp_path: Path, kind: str, change: Mapping[str, Any]) -> str:
    shutil.copytree(DATA / kind, tmp_path / kind)
    index = tmp_path / kind / "index.json"
    raw = json.loads(index.read_text())
    raw["shards"][0] |= change
    index.write_text(json.dumps(raw))
    return f"mds:{tmp_path / kind}"


@pytest.mark.parametrize(
    ("kind", "change", "sentence"),
    [
        ("int32", {"format": "jsonl"}, "index.json: a shard has format jsonl version 2"),
        ("int32", {"samples": 5}, "shard.00000.mds.gz is not a sound MDS shard of 5 samples"),
        ("int32", {"compression": "lzma"}, 'compression "lzma" is unknown'),
        ("int32", {"column_names": ["a", "b"]}, None),
        (
            "any",
            {"column_encodings": ["ndarray:float32"]},
            "no column to take documents from.* it has tokens .ndarray:float32.",
        ),
    ],
)
def test_an_mds_index_that_does_not_hold_is_named(
    here: Store, tmp_path: Path, kind: str, change: dict[str, Any], sentence: str | None
) -> None:
    url = _changed_index(tmp_path, kind, change)
    if sentence is None:  # then "b" is the only str column
        assert {row["ids"][0] for row in _both(here, _encode(here, url)).values()}
        return
    with pytest.raises(EyasError, match=sentence):
        _encode(here, url)


def test_a_damaged_mds_file_is_named(here: Store, tmp_path: Path) -> None:
    shutil.copytree(DATA / "text", tmp_path / "text")
    shard = tmp_path / "text" / "train" / "shard.00001.mds"
    data = bytearray(shard.read_bytes())
    data[-3] ^= 1
    shard.write_bytes(data)
    with pytest.raises(EyasError, match=r"train/shard\.00001\.mds is damaged: its sha1"):
        _encode(here, f"mds:{tmp_path / 'text'}")
    shard.unlink()
    with pytest.raises(EyasError, match=r"index\.json names shard\.00001\.mds, which is not there"):
        _encode(here, f"mds:{tmp_path / 'text'}")


def test_a_broken_mds_sample_is_counted_and_left_out(here: Store, tmp_path: Path) -> None:
    shutil.copytree(DATA / "text" / "train", tmp_path / "train")
    index = json.loads((tmp_path / "train" / "index.json").read_text())
    for raw in index["shards"]:
        raw["raw_data"]["hashes"] = {}
    (tmp_path / "train" / "index.json").write_text(json.dumps(index))
    shard = tmp_path / "train" / "shard.00000.mds"
    data = bytearray(shard.read_bytes())
    data[data.index(b"train document 0")] = 0xFF
    sizes = struct.unpack_from("<I", data, 8)[0]  # where the second sample begins: its first size
    data[sizes] += 1
    shard.write_bytes(data)
    manifest = _encode(here, f"mds:{tmp_path}")
    assert manifest.counters["broken"] == 2
    assert len(_both(here, manifest)) == 6


def test_arrays_are_decoded_by_type_and_shape_and_nothing_else() -> None:
    assert array("ndarray:uint16:2,2", b"\1\0\2\0\3\0\4\0").tolist() == [1, 2, 3, 4]
    assert array("ndarray:int32", bytes([1 << 2, 1]) + b"\5\0\0\0").tolist() == [5]
    assert array("ndarray", bytes([9, 1 << 2, 2]) + b"\1\xff").tolist() == [1, -1]
    for encoding, data in (
        ("ndarray", b""),
        ("ndarray", bytes([34, 1 << 2, 1]) + b"\0\0\0\0"),
        ("ndarray:int32", bytes([1 << 2, 2]) + b"\5\0\0\0"),
        ("ndarray:int32", bytes([1 << 2])),
        ("bytes", b"\1\2\3"),
    ):
        with pytest.raises(ValueError, match=r".+"):
            array(encoding, data)


# Megatron, files of the real library and of a writer of our own


def test_what_megatron_wrote_is_read(here: Store) -> None:
    found = _both(here, _encode(here, f"megatron:{MEGATRON}"))
    assert {name: row["ids"] for name, row in found.items()} == {
        f"web:megatron/{name}_text_document.bin:{i}": ids
        for name in ("a", "b")
        for i, ids in enumerate(([5, 6, 7], [8, 9], [10, 300]))
    }


def _megatron(
    head: Path, documents: Sequence[Sequence[Sequence[int]]], code: int = 8, modes: bool = False
) -> None:
    """Documents of sequences of ids, by the format's description."""
    dtype = {1: "u1", 4: "<i4", 5: "<i8", 8: "<u2"}[code]
    sequences = [sequence for document in documents for sequence in document]
    lengths = [len(sequence) for sequence in sequences]
    width = np.dtype(dtype).itemsize
    pointers = [width * sum(lengths[:i]) for i in range(len(lengths))]
    bounds = [0]
    for document in documents:
        bounds.append(bounds[-1] + len(document))
    index = b"MMIDIDX\0\0" + struct.pack("<QBQQ", 1, code, len(sequences), len(bounds))
    index += struct.pack(f"<{len(lengths)}i", *lengths)
    index += struct.pack(f"<{len(pointers)}q", *pointers)
    index += struct.pack(f"<{len(bounds)}q", *bounds)
    head.parent.mkdir(exist_ok=True)
    head.with_suffix(".idx").write_bytes(index + bytes(len(sequences)) * modes)
    ids = [i for sequence in sequences for i in sequence]
    head.with_suffix(".bin").write_bytes(np.array(ids, dtype).tobytes())


@pytest.mark.parametrize("code", [4, 5, 8])
@pytest.mark.parametrize("modes", [False, True])
def test_megatron_documents_end_in_one_end_of_text(
    here: Store, tmp_path: Path, code: int, modes: bool
) -> None:
    made = [[[5, 6], [7]], [[8, 9, 0]], [[10, 0, 11, 0]], [[0, 12], []], [[13]]]
    _megatron(tmp_path / "m" / "a_document", made, code, modes)
    manifest = _encode(here, f"megatron:{tmp_path / 'm' / 'a_document'}")
    found = _both(here, manifest)
    head = "web:a_document.bin"
    assert {name: row["ids"] for name, row in found.items()} == {
        f"{head}:0": [5, 6, 7],
        f"{head}:1": [8, 9],
        f"{head}:2": [10],
        f"{head}:2.1": [11],
        f"{head}:3": [12],
        f"{head}:4": [13],
    }
    assert found[f"{head}:1"]["url"] == f"{tmp_path}/m/a_document.bin#1"
    assert manifest.facts["sources"]["web"]["train"]["languages"].keys() == {"und"}


def test_a_large_bin_is_cut_by_documents_and_nothing_is_lost(
    here: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(3)
    made = [
        [rng.integers(1, 500, n).tolist() for n in rng.integers(0, 40, rng.integers(0, 4))]
        for _ in range(400)
    ]
    _megatron(tmp_path / "m" / "big", made)
    whole = _both(here, _encode(here, f"megatron:{tmp_path / 'm'}"))
    monkeypatch.setattr(sys.modules["eyas.tokens.foreign.megatron"], "PIECE_BYTES", 1000)
    cut = _encode(here, f"megatron:{tmp_path / 'm'}")
    assert len(token_objects(cut, "web", "train")) > 20
    found = _both(here, cut)
    assert {n: row["ids"] for n, row in found.items()} == {n: r["ids"] for n, r in whole.items()}
    flat = [[i for s in document for i in s] for document in made]
    assert sorted(row["ids"] for row in found.values()) == sorted(ids for ids in flat if ids)


def test_a_prefix_takes_its_pairs_and_no_others(here: Store, tmp_path: Path) -> None:
    for name in ("part_0", "part_1", "other"):
        _megatron(tmp_path / "m" / name, [[[5, 6]]])
    (tmp_path / "m" / "part_x").mkdir()
    _megatron(tmp_path / "m" / "part_x" / "deep", [[[7]]])
    found = _both(here, _encode(here, f"megatron:{tmp_path / 'm' / 'part_'}"))
    assert sorted(found) == ["web:part_0.bin:0", "web:part_1.bin:0"]


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda d: b"X" + d[1:], r"a\.idx is not a Megatron index of version 1"),
        (lambda d: d[:9] + b"\2" + d[10:], r"a\.idx is not a Megatron index of version 1"),
        (lambda d: d[:17] + b"\7" + d[18:], r"a\.idx: its ids are float32"),
        (lambda d: d[:-8], r"a\.idx is not a sound index: 3 sequences and 3 document bounds"),
        (lambda d: d[:10], r"a\.idx is not a Megatron index: it has 10 bytes"),
        (lambda d: d[:34] + b"\1" + d[35:], r"a\.idx is not a sound index: sequences 0 to 3"),
        (lambda d: d[:42] + b"\5" + d[43:], r"a\.idx is not a sound index: it covers bytes 0 to"),
        (lambda d: d[:-16] + b"\7" + d[-15:], r"a\.idx is not a sound index: "),
    ],
)
def test_a_broken_megatron_index_is_named(
    here: Store, tmp_path: Path, change: Any, sentence: str
) -> None:
    _megatron(tmp_path / "m" / "a", [[[5, 6], [7]], [[8]]])
    index = tmp_path / "m" / "a.idx"
    index.write_bytes(change(index.read_bytes()))
    with pytest.raises(EyasError, match=sentence):
        _encode(here, f"megatron:{tmp_path / 'm'}")


def test_sequences_that_overlap_between_two_reads_are_named(
    here: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _megatron(tmp_path / "m" / "a", [[[5, 6]], [[7, 8]], [[9]]])
    index = tmp_path / "m" / "a.idx"
    data = bytearray(index.read_bytes())
    assert data[54] == 4  # where the second sequence begins
    data[54] = 2
    index.write_bytes(data)
    monkeypatch.setattr(sys.modules["eyas.tokens.foreign.megatron"], "_READ_DOCUMENTS", 1)
    with pytest.raises(EyasError, match="sequence 1 does not begin where 0 ends"):
        _encode(here, f"megatron:{tmp_path / 'm'}")


def test_a_file_without_its_other_half_is_named(here: Store, tmp_path: Path) -> None:
    _megatron(tmp_path / "m" / "a", [[[5]]])
    (tmp_path / "m" / "a.bin").rename(tmp_path / "m" / "b.bin")
    with pytest.raises(EyasError, match=r"m/b\.bin has no \.idx beside it"):
        _encode(here, f"megatron:{tmp_path / 'm'}")
    (tmp_path / "m" / "b.bin").unlink()
    with pytest.raises(EyasError, match=r"m/a\.idx has no \.bin beside it"):
        _encode(here, f"megatron:{tmp_path / 'm'}")


@pytest.mark.parametrize(("wrong", "code"), [(512, 8), (-1, 4), (2**40, 5)])
def test_an_id_beyond_the_vocabulary_stops_everything(
    here: Store, tmp_path: Path, wrong: int, code: int
) -> None:
    _megatron(tmp_path / "m" / "a", [[[5, 511]], [[8, wrong]]], code)
    before = {o.key for o in here.list("tokens/manifest")}
    with pytest.raises(
        EyasError,
        match=rf'"web": document web:m/a.bin:1 has id {wrong}, the tokenizer has 512',
    ):
        _encode(here, f"megatron:{tmp_path / 'm'}")
    assert {o.key for o in here.list("tokens/manifest")} == before


# Hugging Face


def _parquet(path: Path, columns: Mapping[str, Any], rows_a_group: int = 1024) -> None:
    path.parent.mkdir(exist_ok=True, parents=True)
    pq.write_table(pa.table(columns), path, row_group_size=rows_a_group)


def test_parquet_text_comes_with_its_url_id_and_language(here: Store, tmp_path: Path) -> None:
    columns = {
        "text": ["one text", "another", "third"],
        "url": ["https://a.test", None, ""],
        "id": ["x", None, "z"],
        "language": ["de", "en", None],
        "score": [1.0, 2.0, 3.0],
    }
    _parquet(tmp_path / "hf" / "data" / "a.parquet", columns)
    (tmp_path / "hf" / "README.md").write_text("# card")
    found = _both(here, _encode(here, f"hf:{tmp_path / 'hf'}"))
    file = f"{tmp_path}/hf/data/a.parquet"
    tokenizer = load_tokenizer(here)
    assert {n: (r["url"], r["language"], r["ids"]) for n, r in found.items()} == {
        "web:x": ("https://a.test", "de", tokenizer.encode("one text")),
        "web:hf/data/a.parquet:1": (f"{file}#1", "en", tokenizer.encode("another")),
        "web:z": (f"{file}#2", "und", tokenizer.encode("third")),
    }


def test_a_large_parquet_is_cut_by_row_groups(
    here: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = [f"text number {i}" for i in range(200)]
    _parquet(tmp_path / "hf" / "a.parquet", {"content": texts}, rows_a_group=10)
    monkeypatch.setattr(sys.modules["eyas.tokens.foreign.hugging_face"], "PIECE_BYTES", 500)
    manifest = _encode(here, f"hf:{tmp_path / 'hf' / 'a.parquet'}")
    assert len(token_objects(manifest, "web", "train")) > 4
    tokenizer = load_tokenizer(here)
    assert {name: row["ids"] for name, row in _both(here, manifest).items()} == {
        f"web:a.parquet:{i}": tokenizer.encode(text) for i, text in enumerate(texts)
    }


def _compressed(data: bytes, ending: str) -> bytes:
    if ending == ".gz":
        middle = len(data) // 2  # two members, as pigz and cat leave them
        return gzip.compress(data[:middle]) + gzip.compress(data[middle:])
    if ending == ".zst":
        return pa.compress(data, codec="zstd", asbytes=True)
    return data


@pytest.mark.parametrize("ending", ["", ".gz", ".zst"])
def test_broken_lines_are_counted_named_and_left_out(
    here: Store, tmp_path: Path, ending: str, caplog: pytest.LogCaptureFixture
) -> None:
    lines = [
        b'{"text": null, "content": 3}',
        b'{"text": "good", "url": "https://a.test"}',
        b'{"text": "cut off',
        b"",
        b'["not an object"]',
        b'{"text": null}',
        b'{"text": ""}',
        b'{"text": "half \\ud800"}',
        b'{"text": "bad \xff"}',
        b'{"text": "good too", "url": 7}',
    ]
    path = tmp_path / "hf" / f"a.jsonl{ending}"
    path.parent.mkdir()
    path.write_bytes(_compressed(b"\n".join(lines), ending))
    manifest = _encode(here, f"hf:{path}")
    found = _both(here, manifest)
    assert {row["url"] for row in found.values()} == {"https://a.test", f"{path}#10"}
    assert f"web:a.jsonl{ending}:10" in found
    assert manifest.counters["broken"] == 7
    for number in (1, 3, 5, 6, 7):
        assert f"{path}, line {number} is left out: " in caplog.text
    assert "7 records in all are left out" in caplog.text


def test_parquet_rows_without_text_are_counted(here: Store, tmp_path: Path) -> None:
    bad = pa.array([b"good", b"\xff", None, b"good too"], pa.binary()).view(pa.string())
    _parquet(tmp_path / "a.parquet", {"text": bad})
    manifest = _encode(here, f"hf:{tmp_path / 'a.parquet'}")
    assert len(_both(here, manifest)) == 2
    assert manifest.counters["broken"] == 2


@pytest.mark.parametrize("ending", [".jsonl.gz", ".jsonl.zst", ".parquet"])
def test_a_file_that_breaks_off_is_an_error_and_never_a_short_source(
    here: Store, tmp_path: Path, ending: str
) -> None:
    path = tmp_path / f"a{ending}"
    if ending == ".parquet":
        _parquet(path, {"text": ["x y z" * 9] * 99})
    else:
        text = b"".join(b'{"text": "%d %d"}\n' % (i, i * i) for i in range(2000))
        path.write_bytes(_compressed(text, path.suffix))
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(EyasError, match=rf"a{ending} is (damaged after line|not a sound Parquet)"):
        _encode(here, f"hf:{path}")


def test_a_file_without_a_text_column_names_its_columns(here: Store, tmp_path: Path) -> None:
    _parquet(tmp_path / "p" / "a.parquet", {"body": ["x"], "article": ["y"], "n": [1]})
    with pytest.raises(EyasError, match=r"a\.parquet: no column .* it has body, article, n"):
        _encode(here, f"hf:{tmp_path / 'p'}")
    (tmp_path / "a.jsonl").write_text('{"n": 1, "m": "x"}\n')
    with pytest.raises(EyasError, match=r"a\.jsonl, line 1: no column .* it has n, m"):
        _encode(here, f"hf:{tmp_path / 'a.jsonl'}")


# All of them


def test_copies_are_held_out_together_and_the_share_is_kept(here: Store, tmp_path: Path) -> None:
    texts = [f"document {i % 400}" for i in range(800)]
    _parquet(tmp_path / "a.parquet", {"text": texts})
    manifest = _encode(here, f"hf:{tmp_path / 'a.parquet'}")
    held = {tuple(row["ids"]) for row in _read(here, manifest, "validation").values()}
    kept = {tuple(row["ids"]) for row in _read(here, manifest, "train").values()}
    assert not held & kept
    assert len(held) + len(kept) == 400
    assert 60 < len(held) < 140
    assert manifest.facts["documents"]["validation"] == 2 * len(held)
    assert manifest.facts["sources"]["web"]["validation"]["documents"] == 2 * len(held)


def test_text_goes_to_the_same_side_whatever_file_it_is_in(here: Store, tmp_path: Path) -> None:
    texts = [f"document {i}" for i in range(60)]
    _parquet(tmp_path / "a.parquet", {"text": texts})
    path = tmp_path / "b.jsonl"
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    sides = []
    for name in ("a.parquet", "b.jsonl"):
        manifest = _encode(here, f"hf:{tmp_path / name}")
        sides.append({tuple(r["ids"]) for r in _read(here, manifest, "validation").values()})
    assert sides[0] == sides[1]
    assert sides[0]


def test_what_is_there_already_is_not_read_again_and_what_changed_is(
    here: Store, tmp_path: Path
) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"text": "first"}\n')
    first = _encode(here, f"hf:{path}")
    assert _encode(here, f"hf:{path}") == first
    path.write_text('{"text": "other"}\n')
    second = _encode(here, f"hf:{path}")
    assert second.identity != first.identity
    (row,) = _both(here, second).values()
    assert row["ids"] == load_tokenizer(here).encode("other")
    (listed,) = (o for o in second.inputs if o.key.endswith("-inputs.json"))
    (file,) = json.loads(read_object(here, listed))["files"]
    assert (file["url"], file["size"]) == (str(path), path.stat().st_size)


def test_a_file_that_changes_while_it_is_used_is_refused(here: Store, tmp_path: Path) -> None:
    from eyas.tokens.foreign import pieces_of, read_piece

    path = tmp_path / "a.jsonl"
    path.write_text('{"text": "first"}\n')
    place, (piece,) = pieces_of("data.sources", f"hf:{path}")
    path.write_text('{"text": "later"}\n')
    with pytest.raises(EyasError, match=r"a\.jsonl changed while it was used"):
        read_piece("hf", place, piece, lambda row, why: None)


def test_a_place_with_nothing_to_read_is_named(here: Store, tmp_path: Path) -> None:
    for kind, what in (
        ("mds", "file at"),
        ("megatron", ".bin or .idx"),
        ("hf", "jsonl"),
    ):
        with pytest.raises(EyasError, match=rf'data.sources "web": there is no .*({what})'):
            _encode(here, f"{kind}:{tmp_path / 'nothing'}")
    with pytest.raises(EyasError, match='"web": "https://x" is not a place'):
        _encode(here, "hf:https://x")


@pytest.mark.parametrize("kind", ["mds", "megatron", "hf"])
def test_a_bucket_is_read_as_a_folder_is(
    here: Store, s3_store: Store, tmp_path: Path, kind: str
) -> None:
    folder = tmp_path / "d"
    if kind == "mds":
        shutil.copytree(DATA / "text", folder)
    elif kind == "megatron":
        _megatron(folder / "a", [[[5, 6], [7]], [[8]]])
    else:
        _parquet(folder / "a.parquet", {"text": ["one", "two"]})
        (folder / "b.jsonl").write_text('{"text": "three"}\n')
    copy_store(open_store(str(folder)), open_store(f"{s3_store.url}/d"))
    local = _both(here, _encode(here, f"{kind}:{folder}"))
    remote = _both(here, _encode(here, f"{kind}:{s3_store.url}/d"))
    assert {n: r["ids"] for n, r in local.items()} == {n: r["ids"] for n, r in remote.items()}
    assert {r["shard"].replace(s3_store.url, str(tmp_path)) for r in remote.values()} == {
        r["shard"] for r in local.values()
    }
