"""Hugging Face in and out, and the models that references load."""

from __future__ import annotations

import contextlib
import hashlib
import json
import shutil
import sys

import pytest
import torch
from safetensors.torch import load_file, save_file

from eyas.checkpoint import (
    CheckpointError,
    Slice,
    export_hf,
    import_hf,
    list_commits,
    load,
    load_slices,
    read_commit,
    save,
    take_attempt,
)
from eyas.recipe import UsageError
from eyas.store import (
    Corrupt,
    Manifest,
    commit_manifest,
    open_store,
    read_manifest,
    verify,
)
from eyas.tokens import Tokenizer

from .faults import flip
from .networks import SHAPES, make_tokenizer, put_tokenizer, save_model, weights

export_module = sys.modules[export_hf.__module__]
check_module = sys.modules["eyas.checkpoint.hf_check"]
ONE = pytest.mark.parametrize("exported", ["falcon-40b"], indirect=True)
ELSEWHERE = r"not a file beside it|is missing"


@pytest.fixture(scope="session")
def tokenizer() -> Tokenizer:
    return make_tokenizer()


@pytest.fixture(scope="module", params=list(SHAPES))
def exported(request, tmp_path_factory, tokenizer):
    """(shape, store, report): made once, to be looked at and copied."""
    folder = tmp_path_factory.mktemp(request.param)
    store = open_store(str(folder / "store"))
    put_tokenizer(store, tokenizer)
    save_model(store, SHAPES[request.param], tokenizer)
    return SHAPES[request.param], store, export_hf(store.url, folder / "out")


@pytest.fixture
def folder(exported, tmp_path):
    """A copy of an export without its checksums, to be tampered with."""
    shutil.copytree(exported[2].folder, tmp_path / "hf")
    (tmp_path / "hf" / "SHA256SUMS").unlink()
    return tmp_path / "hf"


def edit(folder, **switches):
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | switches))


def test_transformers_gives_our_logits_and_our_greedy_text(exported):
    _, _, report = exported
    assert report.max_logit_difference < 1e-5
    assert report.greedy_equal
    assert report.compared_on == "64 tokens of seeded ids and 16 greedy tokens"
    assert (report.dtype, report.rounded, report.logits_moved) == ("float32", 0, 0.0)


def test_an_export_is_complete_and_its_sums_are_right(exported):
    _, _, report = exported
    assert set(report.files) == {
        "LICENSE",
        "README.md",
        "SHA256SUMS",
        "config.json",
        "deploy_sagemaker.py",
        "generation_config.json",
        "model.safetensors",
        "tokenizer.json",
        "tokenizer_config.json",
    }
    assert report.bytes == sum((report.folder / name).stat().st_size for name in report.files)
    lines = (report.folder / "SHA256SUMS").read_text().splitlines()
    sums = {name: digest for digest, name in (line.split("  ") for line in lines)}
    assert sums.keys() == set(report.files) - {"SHA256SUMS"}
    for name, digest in sums.items():
        assert hashlib.sha256((report.folder / name).read_bytes()).hexdigest() == digest


def test_the_tokenizer_loads_by_itself_and_knows_the_end_of_text(exported, tokenizer):
    from transformers import AutoTokenizer

    theirs = AutoTokenizer.from_pretrained(str(exported[2].folder), local_files_only=True)
    text = "a falcon's nest\n\t صقر 𓅃"
    assert theirs(text)["input_ids"] == tokenizer.encode(text)
    assert theirs.decode(tokenizer.encode(text)) == text
    assert theirs.eos_token_id == tokenizer.end_of_text
    assert theirs.pad_token is None


def test_an_exported_folder_generates_our_greedy_text_in_transformers(exported):
    from transformers import AutoModelForCausalLM, AutoTokenizer

    folder = str(exported[2].folder)
    tokens = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, local_files_only=True)
    for prompt in ("a falcon", "the nest to be", "\u0635\u0642\u0631"):
        given = tokens(prompt, return_tensors="pt")
        made = model.generate(**given, max_new_tokens=24, eos_token_id=None)
        ours = load(folder).complete(prompt, max_tokens=24)
        theirs = made[0, given["input_ids"].shape[1] :].tolist()
        assert list(ours.ids) == theirs[: len(ours.ids)]
        assert len(ours.ids) == 24 or theirs[len(ours.ids)] == 0  # ours stops at the end of text
        assert tokens.decode(theirs[: len(ours.ids)]) == ours.text


def test_a_multi_query_export_says_one_key_value_head(exported):
    shape, _, report = exported
    config = json.loads((report.folder / "config.json").read_text())
    name = {"falcon": "num_kv_heads", "llama": "num_key_value_heads", "gpt2": "n_head"}
    assert config[name[config["model_type"]]] == shape.n_kv_heads
    assert config["eos_token_id"] == 0


def test_a_reference_and_its_export_are_the_same_model(exported):
    _, store, report = exported
    ids = torch.arange(60).reshape(2, 30)
    ours = load(f"{store.url}@5")
    assert torch.equal(ours.logits(ids), load(str(report.folder)).logits(ids))
    assert torch.equal(ours.logits(ids), load(store.url).logits(ids))
    assert ours.generate("a falcon", 8) == load(str(report.folder)).generate("a falcon", 8)
    assert ours.shape == exported[0]


def test_export_import_export_keeps_every_tensor_bit_for_bit(exported, tmp_path, tokenizer):
    shape, _, report = exported
    store = open_store(str(tmp_path / "imported"))
    commit = import_hf(report.folder, store)
    assert (commit.attempt, commit.step) == (1, 0)
    assert commit.facts["tokenizer"] == tokenizer.digest
    assert commit.tensors.keys() == {f"model.{name}" for name in weights(shape)}
    found = load_slices(store, commit, {n: i.whole for n, i in commit.tensors.items()})
    assert all(torch.equal(found[f"model.{n}"], t) for n, t in weights(shape).items())
    assert verify(store).ok
    again = export_hf(store.url, tmp_path / "again")
    before, after = (load_file(r.folder / "model.safetensors") for r in (report, again))
    assert before.keys() == after.keys()
    assert all(torch.equal(before[name], after[name]) for name in before)
    assert (report.folder / "tokenizer.json").read_bytes() == (
        again.folder / "tokenizer.json"
    ).read_bytes()


def test_a_large_export_is_sharded_and_loads(exported, tmp_path, monkeypatch):
    monkeypatch.setattr(export_module, "SHARD", 30_000)
    _, store, whole = exported
    report = export_hf(store.url, tmp_path / "sharded")
    shards = [name for name in report.files if name.startswith("model-")]
    assert len(shards) > 2
    assert report.max_logit_difference == whole.max_logit_difference
    joined = {n: t for name in shards for n, t in load_file(report.folder / name).items()}
    before = load_file(whole.folder / "model.safetensors")
    assert joined.keys() == before.keys()
    assert all(torch.equal(joined[n], before[n]) for n in before)
    ids = torch.arange(30).reshape(1, 30)
    assert torch.equal(load(str(report.folder)).logits(ids), load(store.url).logits(ids))
    (report.folder / shards[1]).unlink()
    with pytest.raises(Corrupt, match=shards[1]):
        load(str(report.folder))
    (report.folder / "SHA256SUMS").unlink()
    with pytest.raises(CheckpointError, match=f"{shards[1]} is missing"):
        load(str(report.folder))


def test_export_and_import_through_a_real_s3_server(s3_store, tmp_path, tokenizer):
    put_tokenizer(s3_store, tokenizer)
    save_model(s3_store, SHAPES["falcon-7b"], tokenizer)
    report = export_hf(s3_store.url, tmp_path / "out")
    target = open_store(f"{s3_store.url}-imported")
    import_hf(report.folder, target)
    ids = torch.arange(30).reshape(1, 30)
    assert torch.equal(load(target.url).logits(ids), load(s3_store.url).logits(ids))


def test_the_card_names_data_languages_licences_and_the_save(
    folder_store, tmp_path, tokenizer, monkeypatch
):
    monkeypatch.setattr(
        check_module, "_held_out_text", lambda store: "a <|endoftext|> falcon " * 99
    )
    put_tokenizer(folder_store, tokenizer)
    commit = save_model(folder_store, SHAPES["falcon-7b"], tokenizer)
    packages = {"apache2-doc": {"version": "2.4|1", "licence": "Apache-2.0", "pages": 9}}
    commit_manifest(folder_store, Manifest("sources", "s", facts={"packages": packages}))
    commit_manifest(
        folder_store,
        Manifest(
            "corpus",
            "c",
            counters={"pages_in": 12345, "documents": 67},
            facts={"languages": {"ar": {"documents": 7, "bytes": 99}, "en": {"documents": 60}}},
        ),
    )
    report = export_hf(folder_store.url, tmp_path / "out")
    assert report.compared_on.startswith("64 tokens of held-out text")
    card = (report.folder / "README.md").read_text()
    assert card.startswith("---\nlibrary_name: transformers\n")
    for text in (
        "- ar\n- en\n",
        "| apache2-doc | 2.4\\|1 | Apache-2.0 |",
        "67 documents were kept of 12,345 pages",
        "| ar | 7 | 99 |",
        commit.save_id,
        tokenizer.digest,
    ):
        assert text in card


@ONE
def test_an_export_that_fails_leaves_nothing_at_the_target(exported, tmp_path, monkeypatch):
    def fail(*_):
        raise RuntimeError("out of memory")

    monkeypatch.setattr(export_module, "compare", fail)
    with pytest.raises(RuntimeError, match="out of memory"):
        export_hf(exported[1].url, tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


def test_an_export_that_transformers_reads_otherwise_is_refused(exported, tmp_path, monkeypatch):
    norm = check_module.Masters.whole

    def other(masters, name):
        return norm(masters, name) * (1.01 if name == "norm.weight" else 1)

    monkeypatch.setattr(check_module.Masters, "whole", other)
    with pytest.raises(CheckpointError, match="transformers gives other logits"):
        export_hf(exported[1].url, tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


def test_a_large_model_is_compared_block_by_block_to_the_same_end(exported, tmp_path, monkeypatch):
    monkeypatch.setattr(check_module, "WHOLE", 0)
    _, store, whole = exported
    report = export_hf(store.url, tmp_path / "large")
    assert report.compared_on == "64 tokens of seeded ids and the next token, block by block"
    assert report.max_logit_difference == pytest.approx(whole.max_logit_difference, abs=1e-6)
    assert report.greedy_equal
    narrow = export_hf(store.url, tmp_path / "narrow", dtype="bfloat16")
    assert narrow.max_logit_difference < 1e-5
    assert 0 < narrow.logits_moved < 0.1
    original = check_module.read_tensor

    def other(stored, dtype=None):
        tensor = original(stored, dtype)
        return tensor * 1.5 if tensor.dim() == 2 else tensor

    monkeypatch.setattr(check_module, "read_tensor", other)
    with pytest.raises(CheckpointError, match="transformers gives other logits"):
        export_hf(store.url, tmp_path / "wrong")
    assert not (tmp_path / "wrong").exists()


@ONE
def test_an_export_never_writes_into_what_is_there(exported, tmp_path):
    (tmp_path / "out").mkdir()
    with pytest.raises(UsageError, match="exists"):
        export_hf(exported[1].url, tmp_path / "out")
    with pytest.raises(UsageError, match="already"):
        export_hf(str(exported[2].folder), tmp_path / "new")
    with pytest.raises(CheckpointError, match="holds no checkpoint"):
        export_hf(str(tmp_path / "empty"), tmp_path / "new")
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match=r"file/new cannot be made: (Not a directory|File exists)"):
        export_hf(exported[1].url, tmp_path / "file" / "new")


def test_a_switch_that_we_do_not_have_is_refused_by_name(folder, folder_store):
    config = json.loads((folder / "config.json").read_text())
    name = next(n for n in ("activation", "hidden_act", "activation_function") if n in config)
    edit(folder, soft_capping=30.0, **{name: "relu"})
    with pytest.raises(UsageError, match="soft_capping is not a switch") as refused:
        import_hf(folder, folder_store)
    assert f"{name} is 'relu'" in str(refused.value)
    assert list(folder_store.list()) == []


def test_a_missing_unknown_or_misshapen_tensor_is_refused_by_name(folder, folder_store):
    file = folder / "model.safetensors"
    state = load_file(file)
    norm = next(name for name in state if name.endswith(("ln_f.weight", "model.norm.weight")))
    for edited, text in (
        ({n: t for n, t in state.items() if n != norm}, f"{norm} is missing"),
        (state | {"extra.weight": torch.zeros(2)}, "extra.weight is not known"),
        (state | {norm: torch.zeros(3)}, rf"{norm} is \(3,\) instead of \(32,\)"),
        (state | {norm: torch.zeros(32, dtype=torch.int8)}, f"{norm} is torch.int8 in "),
    ):
        save_file(edited, file)
        with pytest.raises(UsageError, match=text):
            import_hf(folder, folder_store)
    assert list(folder_store.list()) == []


def test_weights_in_bfloat16_become_float32_masters(folder, folder_store):
    state = load_file(folder / "model.safetensors")
    save_file({n: t.bfloat16() for n, t in state.items()}, folder / "model.safetensors")
    commit = import_hf(folder, folder_store)
    assert {info.dtype for info in commit.tensors.values()} == {"F32"}
    name = next(
        n for n in state if n.endswith(("word_embeddings.weight", "wte.weight", "tokens.weight"))
    )
    whole = {"model.embedding.weight": commit.tensors["model.embedding.weight"].whole}
    found = load_slices(folder_store, commit, whole)["model.embedding.weight"]
    assert torch.equal(found, state[name].bfloat16().float())


def test_an_import_exports_the_bits_of_its_files_in_their_dtypes(folder, folder_store, tmp_path):
    state = {n: t.bfloat16() for n, t in load_file(folder / "model.safetensors").items()}
    norms = [name for name in state if "norm" in name or ".ln_" in name]
    state |= {name: state[name].float() + 1e-6 for name in norms}
    assert norms
    save_file(state, folder / "model.safetensors")
    commit = import_hf(folder, folder_store)
    report = export_hf(folder_store.url, tmp_path / "again")
    found = load_file(report.folder / "model.safetensors")
    assert found.keys() == state.keys()
    assert {n: t.dtype for n, t in found.items()} == {n: t.dtype for n, t in state.items()}
    assert all(torch.equal(found[name], state[name]) for name in state)
    assert (report.dtype, report.rounded, report.logits_moved) == ("bfloat16", 0, 0.0)
    assert "Nothing was rounded" in (report.folder / "README.md").read_text()
    wide = export_hf(folder_store.url, tmp_path / "wide", dtype="float32")
    assert (wide.dtype, wide.rounded) == ("float32", 0)
    third = open_store(str(tmp_path / "third"))
    again = import_hf(report.folder, third)
    for name, info in commit.tensors.items():
        wanted = {name: info.whole}
        first, second = (
            load_slices(*pair, wanted)[name] for pair in ((folder_store, commit), (third, again))
        )
        assert torch.equal(first, second)


def test_a_narrower_dtype_says_what_it_moved(exported, tmp_path):
    _, store, whole = exported
    report = export_hf(store.url, tmp_path / "half", dtype="float16")
    before, after = (load_file(r.folder / "model.safetensors") for r in (whole, report))
    assert all(torch.equal(after[name], before[name].half()) for name in before)
    ours = len([n for n in before if "lm_head" in n]), report.rounded
    rounded = sum(int((after[n].float() != before[n]).sum()) for n in before)
    assert report.rounded == rounded, ours
    ids = torch.randint(300, (1, 64), generator=torch.Generator().manual_seed(check_module.SEED))
    moved = (load(str(report.folder)).logits(ids) - load(store.url).logits(ids)).abs().max()
    assert 0 < report.logits_moved < 0.1
    assert report.logits_moved == pytest.approx(float(moved), rel=1e-3)
    card = (report.folder / "README.md").read_text()
    assert f"{rounded:,} weights were rounded to it, which moved logits by at most" in card


@ONE
def test_a_weight_that_does_not_fit_in_the_dtype_is_an_error_that_names_it(
    folder, folder_store, tmp_path
):
    state = load_file(folder / "model.safetensors")
    name = max(state, key=lambda n: state[n].numel())
    state[name].view(-1)[7] = 7e4
    save_file(state, folder / "model.safetensors")
    import_hf(folder, folder_store)
    with pytest.raises(
        CheckpointError, match=r"weight has values that do not fit in torch.float16"
    ):
        export_hf(folder_store.url, tmp_path / "out", dtype="float16")
    with pytest.raises(UsageError, match='dtype "int8" is not one of auto, float32'):
        export_hf(folder_store.url, tmp_path / "out", dtype="int8")
    assert not (tmp_path / "out").exists()


@ONE
@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("wordpiece", "tokenizer.json"),
        ("lowercase", "tokenizer.json"),
        ("broken", "tokenizer.json"),
        ("slow", "tokenizer.model is of the slow kind"),
    ],
)
def test_a_tokenizer_that_cannot_be_honoured_is_left_and_said_to_be(
    folder, folder_store, tmp_path, tokenizer, kind, text, caplog
):
    from tokenizers import Tokenizer as HuggingFaceTokenizer
    from tokenizers import models, normalizers

    file = folder / "tokenizer.json"
    if kind == "wordpiece":
        made = HuggingFaceTokenizer(models.WordPiece({"[UNK]": 0, "a": 1}, unk_token="[UNK]"))
        file.write_text(made.to_str())
    elif kind == "lowercase":
        made = HuggingFaceTokenizer.from_str(tokenizer.json.decode())
        made.normalizer = normalizers.Lowercase()
        file.write_text(made.to_str())
    elif kind == "broken":
        file.write_text("{}")
    else:
        file.unlink()
        (folder / "tokenizer.model").write_bytes(b"sentencepiece")
    commit = import_hf(folder, folder_store)
    assert commit.facts["tokenizer"] is None
    assert text in commit.facts["tokenizer_not_taken"]
    assert read_manifest(folder_store, "tokenizer") is None
    with pytest.raises(UsageError, match="without a tokenizer"):
        load(str(folder)).generate("a", 1)
    assert "its tokenizer is not used" in caplog.text
    report = export_hf(folder_store.url, tmp_path / "out")
    assert not report.tokenizer
    assert "This folder has no tokenizer: " in (report.folder / "README.md").read_text()
    assert json.loads((report.folder / "config.json").read_text())["eos_token_id"] == 0


def test_bars_go_by_bytes_and_reach_their_end(folder, folder_store, tmp_path, monkeypatch):
    seen = {}

    @contextlib.contextmanager
    def progress(title, total, unit=""):
        steps = seen[title] = []
        yield steps.append
        assert unit == "bytes"
        assert sum(steps) == total > 0

    monkeypatch.setattr(sys.modules[import_hf.__module__], "progress", progress)
    monkeypatch.setattr(export_module, "progress", progress)
    state = load_file(folder / "model.safetensors")
    import_hf(folder, folder_store)
    export_hf(folder_store.url, tmp_path / "out")
    for title in ("import", "export"):
        assert len(seen[title]) >= len(state) - 1  # a tied head is not read
        assert sum(seen[title]) == sum(t.nbytes for t in state.values())


def test_a_folder_with_names_of_the_base_model_and_old_buffers_is_read(folder, folder_store):
    state = load_file(folder / "model.safetensors")
    kept = len(import_hf(folder, folder_store).tensors)
    base = {n.removeprefix("transformer.").removeprefix("model."): t for n, t in state.items()}
    assert base.keys() != state.keys()
    family = json.loads((folder / "config.json").read_text())["model_type"]
    if family == "gpt2":
        base["h.0.attn.bias"] = torch.ones(1, 1, 64, 64, dtype=torch.bool).tril()
        base["h.0.attn.masked_bias"] = torch.tensor(-1e4)
    if family == "llama":
        base["layers.1.self_attn.rotary_emb.inv_freq"] = torch.ones(4)
    save_file(base, folder / "model.safetensors")
    ids = torch.arange(30).reshape(1, 30)
    assert torch.equal(load(str(folder)).logits(ids), load(folder_store.url).logits(ids))
    again = open_store(f"{folder_store.url}-again")
    assert len(import_hf(folder, again).tensors) == kept
    assert torch.equal(load(again.url).logits(ids), load(folder_store.url).logits(ids))


@pytest.mark.parametrize("exported", ["falcon-7b", "gpt2"], indirect=True)
def test_a_head_beside_the_embedding_that_it_is_tied_to_must_equal_it(
    folder, folder_store, exported
):
    state = load_file(folder / "model.safetensors")
    name = next(n for n in state if n.endswith(("word_embeddings.weight", "wte.weight")))
    wrong = state[name].clone()
    wrong[299, 31] += 1
    save_file(state | {"lm_head.weight": wrong}, folder / "model.safetensors")
    with pytest.raises(UsageError, match=f"lm_head.weight differs from {name}"):
        import_hf(folder, folder_store)
    assert list(folder_store.list()) == []
    save_file(state | {"lm_head.weight": state[name].clone()}, folder / "model.safetensors")
    commit = import_hf(folder, folder_store)
    assert commit.tensors.keys() == {f"model.{n}" for n in weights(exported[0])}


@ONE
def test_pickled_weights_are_refused_with_a_sentence(folder, folder_store):
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    for act in (lambda: load(str(folder)), lambda: import_hf(folder, folder_store)):
        with pytest.raises(UsageError, match=r"pytorch_model.bin, a pickle.*safetensors"):
            act()


@ONE
@pytest.mark.parametrize(
    "name",
    ["../../secret.safetensors", "/etc/passwd", "a/b.safetensors", "..", "", "a\\\\b", "a\\0b"],
)
def test_an_index_or_sums_that_name_a_file_elsewhere_are_refused(folder, folder_store, name):
    name = name.encode().decode("unicode_escape")
    (folder / "model.safetensors").rename(folder / "model-1.safetensors")
    weight_map = dict.fromkeys(load_file(folder / "model-1.safetensors"), "model-1.safetensors")
    index = folder / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": weight_map}))
    load(str(folder))
    weight_map[next(iter(weight_map))] = name
    index.write_text(json.dumps({"weight_map": weight_map}))
    with pytest.raises(CheckpointError, match=ELSEWHERE):
        import_hf(folder, folder_store)
    (folder / "SHA256SUMS").write_text(f"{'0' * 64}  {name}\n")
    with pytest.raises((CheckpointError, Corrupt), match=ELSEWHERE):
        import_hf(folder, folder_store)
    assert list(folder_store.list()) == []


@ONE
def test_a_tensor_in_two_files_or_in_another_than_the_index_says_is_refused(folder, folder_store):
    state = load_file(folder / "model.safetensors")
    names = sorted(state)
    (folder / "model.safetensors").unlink()
    save_file({n: state[n] for n in names[:3]}, folder / "a.safetensors")
    save_file({n: state[n] for n in names[2:]}, folder / "b.safetensors")
    weight_map = {n: "a.safetensors" if n in names[:3] else "b.safetensors" for n in names}
    index = folder / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": weight_map}))
    with pytest.raises(CheckpointError, match=f"{names[2]} is in a.safetensors and in b.safeten"):
        import_hf(folder, folder_store)
    save_file({n: state[n] for n in names[3:]}, folder / "b.safetensors")
    weight_map[names[0]] = "b.safetensors"
    index.write_text(json.dumps({"weight_map": weight_map}))
    with pytest.raises(CheckpointError, match=f"b.safetensors holds no {names[0]}, model.safeten"):
        import_hf(folder, folder_store)
    assert list(folder_store.list()) == []


@ONE
def test_a_folder_without_weights_or_config_is_refused(folder, tmp_path, folder_store):
    (folder / "model.safetensors").unlink()
    with pytest.raises(UsageError, match=r"has no model\.safetensors"):
        load(str(folder))
    with pytest.raises(UsageError, match="no Hugging Face folder"):
        import_hf(tmp_path, folder_store)
    for table in ({}, {"weight_map": ["a"]}, {"weight_map": {"a": None}}):
        (folder / "model.safetensors.index.json").write_text(json.dumps(table))
        with pytest.raises(CheckpointError, match="no weight_map of tensor names"):
            load(str(folder))
    (folder / "model.safetensors").write_bytes(b"not at all")
    with pytest.raises(CheckpointError, match="cannot be read as safetensors"):
        load(str(folder))


@ONE
def test_a_damaged_export_is_found_by_its_sums(exported, tmp_path, folder_store):
    shutil.copytree(exported[2].folder, tmp_path / "hf")
    flip(open_store(str(tmp_path / "hf")), "model.safetensors", 5000)
    for act in (
        lambda: load(str(tmp_path / "hf")),
        lambda: import_hf(tmp_path / "hf", folder_store),
    ):
        with pytest.raises(Corrupt, match=r"model\.safetensors is damaged"):
            act()


@ONE
def test_a_folder_without_tokenizer_gives_a_model_that_is_asked_in_ids(folder, folder_store):
    (folder / "tokenizer.json").unlink()
    import_hf(folder, folder_store)
    assert read_manifest(folder_store, "tokenizer") is None
    model = load(folder_store.url)
    assert model.logits([[1, 2, 3]]).shape == (1, 3, 300)
    with pytest.raises(UsageError, match="without a tokenizer"):
        model.generate("a", 1)


@ONE
def test_an_import_does_not_stand_before_a_run_or_beside_another_tokenizer(
    exported, folder_store, tokenizer
):
    other = Tokenizer(tokenizer.json.replace(b'"id":0', b'"id": 0', 1))
    assert other.digest != tokenizer.digest
    put_tokenizer(folder_store, other)
    with pytest.raises(UsageError, match="another tokenizer"):
        import_hf(exported[2].folder, folder_store)
    with pytest.raises(UsageError, match=r"holds checkpoints already \(up to 1-5\)"):
        import_hf(exported[2].folder, exported[1])
    assert len(list_commits(exported[1])) == 1


def test_a_model_has_the_tokenizer_that_it_was_trained_with(folder_store, tokenizer):
    save_model(folder_store, SHAPES["falcon-7b"], tokenizer)
    with pytest.raises(CheckpointError, match="this store does not hold"):
        load(folder_store.url)
    put_tokenizer(folder_store, tokenizer)
    other = Tokenizer(tokenizer.json.replace(b'"id":0', b'"id": 0', 1))
    put_tokenizer(folder_store, other, "ba9876543210")
    assert load(folder_store.url).tokenizer.digest == tokenizer.digest


def test_load_falls_back_to_the_newest_whole_checkpoint_loudly(folder_store, tokenizer, caplog):
    put_tokenizer(folder_store, tokenizer)
    shape = SHAPES["falcon-7b"]
    save_model(folder_store, shape, tokenizer, step=1, seed=1)
    commit = save_model(folder_store, shape, tokenizer, step=2, seed=2)
    key = next(
        o.key
        for o in folder_store.list("checkpoints/data/")
        if commit.save_id in o.key and o.key.endswith(".safetensors")
    )
    flip(folder_store, key, 9000)
    model = load(folder_store.url)
    assert torch.equal(model.network.embedding.weight, weights(shape, 1)["embedding.weight"])
    assert key in caplog.text
    with pytest.raises(Corrupt, match=key):
        load(f"{folder_store.url}@2")


def test_a_checkpoint_that_names_no_model_is_refused(folder_store):
    take_attempt(folder_store, {})
    save(folder_store, 1, 1, [Slice.whole("model.x", torch.zeros(1))], {})
    with pytest.raises(CheckpointError, match='have no "shape"'):
        load(folder_store.url)
    assert read_commit(folder_store).step == 1
