"""Promises: the network is the shape's, causal, the same with a cache, and cut or whole."""

import dataclasses

import pytest
import torch
import torch.nn.functional as F
from torch.utils.flop_counter import FlopCounterMode

from eyas.model import Cache, Network, initial_weights, network_from
from eyas.shape import (
    ModelShape,
    flops_per_token,
    parameter_table,
    parameters,
    preset_names,
    preset_shape,
    tensor_slices,
)

torch.set_num_threads(1)

TINY = ModelShape(
    name="tiny",
    n_layers=2,
    d_model=32,
    n_heads=4,
    n_kv_heads=1,
    head_dim=8,
    d_ff=128,
    vocab_size=97,
    max_sequence=64,
)
VARIANTS = {
    "multi-query": TINY,
    "grouped, two norms": dataclasses.replace(TINY, n_kv_heads=2, n_norms=2),
    "multi-head, untied": dataclasses.replace(TINY, n_kv_heads=4, tied=False),
}
variants = pytest.mark.parametrize("shape", VARIANTS.values(), ids=VARIANTS)


def network(shape: ModelShape) -> Network:
    """Weights of a size that makes every part matter."""
    tensors = initial_weights(shape, seed=3)
    generator = torch.Generator().manual_seed(0)
    return network_from(
        shape,
        {
            name: 6 * t if t.dim() == 2 else t + 0.2 * torch.randn(t.shape, generator=generator)
            for name, t in tensors.items()
        },
    ).requires_grad_(False)


def ids(*size: int) -> torch.Tensor:
    return torch.randint(0, 97, size, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("preset", preset_names())
def test_every_preset_on_meta_has_exactly_the_tables_tensors(preset):
    shape = preset_shape(preset)
    with torch.device("meta"):
        built = Network(shape)
    found = {name: tuple(p.shape) for name, p in built.named_parameters()}
    assert list(found.items()) == list(parameter_table(shape).items())
    assert sum(p.numel() for p in built.parameters()) == parameters(shape)
    assert not list(built.buffers())


@variants
def test_logits_are_float32_of_the_right_shape_and_causal(shape):
    net, a = network(shape), ids(2, 11)
    b = a.clone()
    b[:, 7:] = (b[:, 7:] + 1) % 97
    x, y = net(a), net(b)
    assert x.shape == (2, 11, 97)
    assert x.dtype == torch.float32
    assert torch.equal(x[:, :7], y[:, :7])
    assert not torch.allclose(x[:, 7:], y[:, 7:])


@variants
def test_it_computes_what_the_formula_says(shape):
    """The whole forward pass once more, one position and one head at a time, in float64."""
    net, a = network(shape).double(), ids(1, 9)
    w = dict(net.named_parameters())
    C, group = shape.head_dim, shape.n_heads // shape.n_kv_heads

    def norm(x, name):
        x = x - x.mean(-1, keepdim=True)
        x = x / (x.square().mean(-1, keepdim=True) + shape.norm_eps).sqrt()
        return x * w[f"{name}.weight"] + w[f"{name}.bias"]

    def turned(vector, position):
        out = vector.clone()
        for i in range(C // 2):
            angle = torch.tensor(position * shape.rope_theta ** (-2 * i / C), dtype=torch.float64)
            a, b = vector[i], vector[i + C // 2]
            out[i] = a * angle.cos() - b * angle.sin()
            out[i + C // 2] = b * angle.cos() + a * angle.sin()
        return out

    x = w["embedding.weight"][a[0]]
    for layer in range(shape.n_layers):
        p = f"blocks.{layer}."
        names = ("norm", "norm") if shape.n_norms == 1 else ("attention_norm", "mlp_norm")
        n_a, n_m = (norm(x, p + name) for name in names)
        q, k, v = (n_a @ w[f"{p}attention.{part}.weight"].T for part in ("query", "key", "value"))
        rows = []
        for t in range(9):
            heads = []
            for h in range(shape.n_heads):
                kv = slice(h // group * C, (h // group + 1) * C)
                query = turned(q[t, h * C : (h + 1) * C], t)
                scores = torch.stack([query @ turned(k[s, kv], s) for s in range(t + 1)])
                p_s = torch.softmax(scores / C**0.5, dim=0)
                heads.append(p_s @ v[: t + 1, kv])
            rows.append(torch.cat(heads))
        attention = torch.stack(rows) @ w[p + "attention.out.weight"].T
        up = n_m @ w[p + "mlp.up.weight"].T
        gelu = up * 0.5 * (1 + torch.erf(up / 2**0.5))
        x = x + attention + gelu @ w[p + "mlp.down.weight"].T
    head = w["embedding.weight" if shape.tied else "head.weight"]
    torch.testing.assert_close(net(a)[0], (norm(x, "norm") @ head.T).float(), rtol=1e-4, atol=1e-4)


@variants
@pytest.mark.parametrize("steps", [(20,), (1,) * 20, (7, 1, 1, 6, 5), (1, 19)])
def test_a_cache_gives_the_same_logits_in_any_steps(shape, steps):
    net, a = network(shape), ids(3, 20)
    cache, out, start = Cache(capacity=20), [], 0
    for n in steps:
        out.append(net(a[:, start : start + n], cache=cache))
        start += n
    torch.testing.assert_close(torch.cat(out, 1), net(a), rtol=1e-5, atol=1e-5)
    assert cache.length == 20


def test_a_cache_refuses_what_does_not_fit():
    net, cache = network(TINY), Cache(capacity=4)
    net(ids(1, 3), cache=cache)
    with pytest.raises(ValueError, match="5 tokens in a cache of 4"):
        net(ids(1, 2), cache=cache)
    with pytest.raises(ValueError, match="document_ids"):
        net(ids(1, 1), cache=cache, document_ids=ids(1, 1))


@variants
def test_attention_stays_inside_a_document(shape):
    net, a = network(shape), ids(2, 12)
    document_ids = torch.tensor([[5] * 4 + [9] * 8, [1] * 12])
    packed = net(a, document_ids=document_ids)
    torch.testing.assert_close(packed[0, :4], net(a[:1, :4])[0], rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(packed[0, 4:], net(a[:1, 4:])[0], rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(packed[1], net(a[1:])[0], rtol=1e-5, atol=1e-5)


@variants
def test_weights_cut_for_tensor_parallelism_run_in_the_same_network(shape):
    """Each rank's part of a block's two outputs, added up, is the whole block's."""
    whole = network(shape)
    x = torch.randn(2, 10, shape.d_model, generator=torch.Generator().manual_seed(4))
    from eyas.model.network import _rotary

    rotary = _rotary(shape, 0, 10, x)
    attention, mlp = torch.zeros_like(x), torch.zeros_like(x)
    for rank in range(2):
        cut = {
            name: dict(whole.named_parameters())[name].data[
                tuple(slice(o, o + n) for o, n in zip(offset, size, strict=True))
            ]
            for name, (offset, size) in tensor_slices(shape, 2, rank).items()
        }
        part = network_from_slices(shape, cut)
        attention += part.blocks[1].attention(x, rotary, None, None, 1)
        mlp += part.blocks[1].mlp(x)
    block = whole.blocks[1]
    torch.testing.assert_close(attention, block.attention(x, rotary, None, None, 1))
    torch.testing.assert_close(mlp, block.mlp(x))


def network_from_slices(shape, tensors):
    with torch.device("meta"):
        part = Network(shape)
    for name, tensor in tensors.items():
        module, _, leaf = name.rpartition(".")
        setattr(part.get_submodule(module), leaf, torch.nn.Parameter(tensor, requires_grad=False))
    return part


@variants
def test_it_runs_under_bfloat16_autocast_from_float32_weights(shape):
    net, a = network(shape).requires_grad_(True), ids(2, 12)
    exact = net(a)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        rounded = net(a)
    rounded.square().mean().backward()
    assert rounded.dtype == torch.float32
    assert all(p.grad.dtype == torch.float32 for p in net.parameters())
    error = float(((rounded - exact).norm() / exact.norm()).detach())
    assert 1e-5 < error < 0.05


def test_missing_and_misshapen_tensors_are_named():
    tensors = initial_weights(TINY, seed=0)
    del tensors["blocks.1.mlp.up.weight"]
    with pytest.raises(RuntimeError, match=r"blocks\.1\.mlp\.up\.weight"):
        network_from(TINY, tensors)


@variants
def test_flops_are_what_torch_counts_for_forward_and_backward(shape):
    with torch.device("meta"):
        net = Network(shape)
        a = torch.zeros(2, 16, dtype=torch.int64)
        with FlopCounterMode(display=False) as counter:
            logits = net(a)
            F.cross_entropy(logits.flatten(0, 1), a.flatten()).backward()
    counted = counter.get_total_flops()
    attention = 12 * shape.n_layers * shape.n_heads * shape.head_dim * 16 * 32
    # torch counts the recomputed scores of a flash backward pass: at most a sixth more of attention
    assert 0 <= counted - 32 * flops_per_token(shape, 16) <= attention / 6 + 1
