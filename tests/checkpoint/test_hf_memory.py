"""A checkpoint that is much larger than memory goes in and out: under a limit of the kernel's."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file

from eyas.model import to_hugging_face
from eyas.shape import ModelShape, parameter_table

ROOT = Path(__file__).parent.parent.parent
SHARD = 48 * 10**6

# As the 40B and the 8B are built, a few MiB a block: 12 shards and the embedding.
FALCON = dict(n_heads=12, n_kv_heads=4, d_ff=3072, n_norms=2)
LLAMA = dict(
    n_heads=12, n_kv_heads=4, d_ff=2048, n_norms=2, block="sequential", norm="rmsnorm",
    activation="swiglu", tied=False,
)  # fmt: skip


def shape_of(kind: dict, layers: int, d_model: int = 768, vocab: int = 30_000) -> ModelShape:
    kind = dict(kind, d_ff=kind["d_ff"] * d_model // 768)
    return ModelShape(
        name="large", n_layers=layers, d_model=d_model, head_dim=d_model // 12, vocab_size=vocab,
        max_sequence=512, **kind,
    )  # fmt: skip


def write_checkpoint(folder: Path, shape: ModelShape) -> list[int]:
    """In bfloat16, a shard at a time; the sizes of the shards."""
    ours = {
        name: torch.empty(size, dtype=torch.bfloat16, device="meta")
        for name, size in parameter_table(shape).items()
    }
    config, theirs = to_hugging_face(shape, ours)
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config))
    shards: list[list[str]] = [[]]
    held = 0
    for name, like in theirs.items():
        size = like.numel() * 2
        if shards[-1] and held + size > SHARD:
            shards.append([])
            held = 0
        shards[-1].append(name)
        held += size
    generator = torch.Generator().manual_seed(1)
    weight_map, sizes = {}, []
    for number, names in enumerate(shards):
        file = f"model-{number:05d}.safetensors"
        state = {
            name: torch.empty(theirs[name].shape, dtype=torch.bfloat16).normal_(
                1.0 if theirs[name].dim() == 1 else 0.0, 0.02, generator=generator
            )
            for name in names
        }
        save_file(state, folder / file)
        weight_map |= dict.fromkeys(names, file)
        sizes.append((folder / file).stat().st_size)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))
    return sizes


def child(warm: Path, allowed: int, *command: str) -> subprocess.CompletedProcess[str]:
    """The C library's threshold for giving freed memory back is set to its default, which it
    otherwise raises for itself up to 32 MiB: a constant, but one as large as these shards."""
    return subprocess.run(
        [sys.executable, "-m", "tests.checkpoint.hf_child", str(warm), str(allowed), *command],
        cwd=ROOT,
        env=os.environ | {"MALLOC_MMAP_THRESHOLD_": "131072", "HF_HUB_OFFLINE": "1"},
        capture_output=True,
        text=True,
        timeout=600,
    )


def tensors_of(folder: Path) -> dict[str, tuple[Path, str]]:
    found = {}
    for path in folder.glob("*.safetensors"):
        with safe_open(path, framework="pt") as file:
            found |= {name: (path, name) for name in file.keys()}  # noqa: SIM118
    return found


def read(place: tuple[Path, str]) -> torch.Tensor:
    with safe_open(place[0], framework="pt") as file:
        return file.get_tensor(place[1])


@pytest.mark.slow
@pytest.mark.timeout(1500)
@pytest.mark.parametrize("kind", [FALCON, LLAMA], ids=["falcon-40b", "llama"])
def test_a_checkpoint_goes_in_and_out_in_less_memory_than_two_of_its_shards(kind, tmp_path):
    folder, store, out = tmp_path / "hf", tmp_path / "store", tmp_path / "out"
    sizes = write_checkpoint(folder, shape_of(kind, 40))
    write_checkpoint(tmp_path / "warm", shape_of(kind, 2, 48, 300))
    allowed = 2 * max(sizes) - 2**20
    assert len(sizes) >= 12
    assert sum(sizes) > 5 * allowed
    everything = child(tmp_path / "warm", allowed, "load", str(folder))
    assert everything.returncode != 0
    assert "allocate memory" in everything.stderr or "MemoryError" in everything.stderr
    for command in (("import", folder, store), ("export", store, out)):
        done = child(tmp_path / "warm", allowed, *map(str, command))
        assert done.returncode == 0, done.stderr
        found = json.loads(done.stdout)
        peak = found["peak"]
        print(
            f"{command[0]}: peak {peak / 1e6:.0f} MB, {allowed / 1e6:.0f} MB allowed, checkpoint "
            f"{sum(sizes) / 1e6:.0f} MB in {len(sizes)} shards, {found['cpu_s']:.0f} CPU-s"
        )
        assert 0 < peak < allowed
    shutil.rmtree(store)
    before, after = tensors_of(folder), tensors_of(out)
    assert before.keys() == after.keys()
    assert all(torch.equal(read(before[name]), read(after[name])) for name in before)
