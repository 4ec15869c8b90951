"""Hugging Face in and out, and the models that references load."""

from __future__ import annotations

import hashlib
import json
import shutil
import sys

import pytest
import torch
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer as HuggingFaceTokenizer
from tokenizers import decoders, models, pre_tokenizers, trainers

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
from eyas.model import initial_weights
from eyas.recipe import UsageError
from eyas.shape import ModelShape
from eyas.store import (
    Corrupt,
    Manifest,
    commit_manifest,
    open_store,
    put_object,
    read_manifest,
    verify,
)
from eyas.tokens import Tokenizer

from .faults import flip

SHAPES = {
    "falcon-7b": ModelShape("tiny", 2, 32, 4, 1, 8, 128, 300, 64),
    "falcon-40b": ModelShape("tiny", 3, 32, 4, 2, 8, 64, 300, 64, n_norms=2, tied=False),
}
export_module = sys.modules[export_hf.__module__]
check_module = sys.modules["eyas.checkpoint.falcon_check"]


@pytest.fixture(scope="session")
def tokenizer() -> Tokenizer:
    made = HuggingFaceTokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=290,
        special_tokens=["<|endoftext|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    made.train_from_iterator(["a young falcon taken from the nest to be trained"] * 9, trainer)
    return Tokenizer(made.to_str().encode())


def put_tokenizer(store, tokenizer, name="0123456789ab"):
    reference = put_object(store, f"tokenizer/{name}-tokenizer.json", tokenizer.json)
    facts = {"digest": tokenizer.digest}
    commit_manifest(store, Manifest("tokenizer", name, objects=(reference,), facts=facts))


def weights(shape, seed=1):
    """Larger than at the start of training, so that a wrong order of rows shows in the logits."""
    generator = torch.Generator().manual_seed(seed)
    return {
        name: tensor + 0.1 * torch.randn(tensor.shape, generator=generator)
        for name, tensor in initial_weights(shape, seed).items()
    }


def save_model(store, shape, tokenizer, step=5, seed=1):
    attempt = take_attempt(store, {})
    slices = [Slice.whole(f"model.{n}", t) for n, t in weights(shape, seed).items()]
    moments = [
        Slice.whole(f"optim.{n}.exp_avg", torch.zeros_like(t))
        for n, t in weights(shape, seed).items()
    ]
    facts = {
        "shape": shape.to_dict(),
        "tokenizer": tokenizer.digest,
        "tokens": 1234,
        "recipe": "ab",
    }
    return save(store, attempt, step, slices + moments, facts)


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
    assert report.compared_on == "64 tokens of seeded ids"


def test_an_export_is_complete_and_its_sums_are_right(exported):
    _, _, report = exported
    assert set(report.files) == {
        "README.md",
        "SHA256SUMS",
        "config.json",
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


def test_a_multi_query_export_says_one_key_value_head(exported):
    shape, _, report = exported
    config = json.loads((report.folder / "config.json").read_text())
    assert config["num_kv_heads"] == shape.n_kv_heads
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
    assert report.compared_on == "64 tokens of held-out text"
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


def test_an_export_that_fails_leaves_nothing_at_the_target(exported, tmp_path, monkeypatch):
    def fail(*_):
        raise RuntimeError("out of memory")

    monkeypatch.setattr(export_module, "compare", fail)
    with pytest.raises(RuntimeError, match="out of memory"):
        export_hf(exported[1].url, tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


def test_an_export_that_transformers_reads_otherwise_is_refused(exported, tmp_path, monkeypatch):
    wrong = weights(exported[0], seed=2)
    original = export_module.load

    def other(ref):
        model = original(ref)
        model.network.load_state_dict(wrong)
        return model

    monkeypatch.setattr(export_module, "load", other)
    with pytest.raises(CheckpointError, match="transformers gives other logits"):
        export_hf(exported[1].url, tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


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
    edit(folder, alibi=True, soft_capping=30.0)
    with pytest.raises(UsageError, match=r"soft_capping is not a switch.*alibi is True"):
        import_hf(folder, folder_store)
    assert list(folder_store.list()) == []


def test_a_missing_unknown_or_misshapen_tensor_is_refused_by_name(folder, folder_store):
    file = folder / "model.safetensors"
    state = load_file(file)
    norm = "transformer.ln_f.weight"
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
    name = "transformer.word_embeddings.weight"
    whole = {"model.embedding.weight": commit.tensors["model.embedding.weight"].whole}
    found = load_slices(folder_store, commit, whole)["model.embedding.weight"]
    assert torch.equal(found, state[name].bfloat16().float())


def test_pickled_weights_are_refused_with_a_sentence(folder, folder_store):
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    for act in (lambda: load(str(folder)), lambda: import_hf(folder, folder_store)):
        with pytest.raises(UsageError, match=r"pytorch_model.bin, a pickle.*safetensors"):
            act()


def test_an_index_that_names_a_file_elsewhere_is_refused(folder, folder_store):
    (folder / "model.safetensors").unlink()
    index = {"weight_map": {"a": "../../secret.safetensors"}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(CheckpointError, match="not a file beside it"):
        import_hf(folder, folder_store)


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


def test_a_damaged_export_is_found_by_its_sums(exported, tmp_path, folder_store):
    shutil.copytree(exported[2].folder, tmp_path / "hf")
    flip(open_store(str(tmp_path / "hf")), "model.safetensors", 5000)
    for act in (
        lambda: load(str(tmp_path / "hf")),
        lambda: import_hf(tmp_path / "hf", folder_store),
    ):
        with pytest.raises(Corrupt, match=r"model\.safetensors is damaged"):
            act()


def test_a_folder_without_tokenizer_gives_a_model_that_is_asked_in_ids(folder, folder_store):
    (folder / "tokenizer.json").unlink()
    import_hf(folder, folder_store)
    assert read_manifest(folder_store, "tokenizer") is None
    model = load(folder_store.url)
    assert model.logits([[1, 2, 3]]).shape == (1, 3, 300)
    with pytest.raises(UsageError, match="without a tokenizer"):
        model.generate("a", 1)


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
