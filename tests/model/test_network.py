"""Promises: the network is the shape's, computes what the formulas say, is causal, and is the same
with a cache, in packed documents, and cut or whole."""

import dataclasses
import math

import pytest
import torch
import torch.nn.functional as F
from torch.utils.flop_counter import FlopCounterMode

from eyas.model import Cache, Network, initial_weights, network_from
from eyas.model.network import RMSNorm, _alibi_slopes, _frequencies, _rotary
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
    "falcon-rw": dataclasses.replace(
        TINY, n_kv_heads=4, block="sequential", n_norms=2, positions="alibi", bias=True
    ),
    "alibi, parallel, eight heads": dataclasses.replace(
        TINY, n_heads=8, n_kv_heads=4, head_dim=4, positions="alibi"
    ),
    "jurassic": dataclasses.replace(
        TINY, n_kv_heads=4, block="sequential", n_norms=2, positions="learned", bias=True
    ),
    "learned, parallel, tanh, odd head": dataclasses.replace(
        TINY,
        d_model=28,
        head_dim=7,
        positions="learned",
        activation="gelu_tanh",
        n_norms=2,
        bias=True,
    ),
    "llama": dataclasses.replace(
        TINY,
        n_kv_heads=2,
        block="sequential",
        n_norms=2,
        norm="rmsnorm",
        activation="swiglu",
        d_ff=64,
        tied=False,
    ),
    "llama, biased, stretched": dataclasses.replace(
        TINY,
        block="sequential",
        n_norms=2,
        norm="rmsnorm",
        activation="swiglu",
        bias=True,
        rope_scaling="llama3",
        rope_factor=8.0,
        rope_original=16,
    ),
    "rmsnorm, parallel, linear": dataclasses.replace(
        TINY, norm="rmsnorm", rope_scaling="linear", rope_factor=4.0
    ),
}
variants = pytest.mark.parametrize("shape", VARIANTS.values(), ids=VARIANTS)


def network(shape: ModelShape) -> Network:
    """Weights of a size that makes every part matter."""
    tensors = initial_weights(shape, seed=3)
    generator = torch.Generator().manual_seed(0)
    return network_from(
        shape,
        {
            name: 6 * t if t.dim() == 2 else t + 0.3 * torch.randn(t.shape, generator=generator)
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


class Reference:
    """The whole forward pass once more, straight from the papers: one position and one head at a
    time, in the arithmetic of the weights."""

    def __init__(self, shape: ModelShape, w: dict[str, torch.Tensor]) -> None:
        self.shape, self.w = shape, w

    def logits(self, ids_T: torch.Tensor) -> torch.Tensor:
        shape, w = self.shape, self.w
        x = w["embedding.weight"][ids_T]
        if shape.positions == "learned":
            x = torch.stack([x[t] + w["positions.weight"][t] for t in range(len(x))])
        for layer in range(shape.n_layers):
            p = f"blocks.{layer}."
            a, m = ("norm", "norm") if shape.n_norms == 1 else ("attention_norm", "mlp_norm")
            if shape.block == "sequential":
                x = x + self.attention(p, self.norm(p + a, x))
                x = x + self.mlp(p, self.norm(p + m, x))
            else:
                x = x + self.attention(p, self.norm(p + a, x)) + self.mlp(p, self.norm(p + m, x))
        head = w["embedding.weight" if shape.tied else "head.weight"]
        return self.norm("norm", x) @ head.T

    def norm(self, name: str, x: torch.Tensor) -> torch.Tensor:
        if self.shape.norm == "rmsnorm":
            rms = (x.square().sum(-1, keepdim=True) / x.shape[-1] + self.shape.norm_eps).sqrt()
            return x / rms * self.w[f"{name}.weight"]
        x = x - x.mean(-1, keepdim=True)
        x = x / (x.square().mean(-1, keepdim=True) + self.shape.norm_eps).sqrt()
        return x * self.w[f"{name}.weight"] + self.w[f"{name}.bias"]

    def linear(self, name: str, x: torch.Tensor) -> torch.Tensor:
        y = x @ self.w[f"{name}.weight"].T
        return y + self.w[f"{name}.bias"] if self.shape.bias else y

    def mlp(self, p: str, x: torch.Tensor) -> torch.Tensor:
        up = self.linear(p + "mlp.up", x)
        if self.shape.activation == "swiglu":
            gate = self.linear(p + "mlp.gate", x)
            up = gate / (1 + (-gate).exp()) * up
        elif self.shape.activation == "gelu":
            up = up * 0.5 * (1 + torch.erf(up / 2**0.5))
        else:
            up = 0.5 * up * (1 + torch.tanh((2 / math.pi) ** 0.5 * (up + 0.044715 * up**3)))
        return self.linear(p + "mlp.down", up)

    def attention(self, p: str, x: torch.Tensor) -> torch.Tensor:
        shape, C, T = self.shape, self.shape.head_dim, len(x)
        q, k, v = (self.linear(f"{p}attention.{n}", x) for n in ("query", "key", "value"))
        heads = []
        for h in range(shape.n_heads):
            own = slice(h * C, (h + 1) * C)
            group = h // (shape.n_heads // shape.n_kv_heads)
            kv = slice(group * C, (group + 1) * C)
            rows = []
            for t in range(T):
                scores = torch.stack(
                    [self.score(h, q[t, own], t, k[s, kv], s) for s in range(t + 1)]
                )
                rows.append(torch.softmax(scores, dim=0) @ v[: t + 1, kv])
            heads.append(torch.stack(rows))
        return self.linear(p + "attention.out", torch.cat(heads, 1))

    def score(self, head: int, q: torch.Tensor, t: int, k: torch.Tensor, s: int) -> torch.Tensor:
        if self.shape.positions == "rotary":
            q, k = self.turned(q, t), self.turned(k, s)
        score = q @ k
        if self.shape.positions == "alibi":
            slope = torch.tensor(2.0 ** (-8 * (head + 1) / self.shape.n_heads)).bfloat16()
            score = score + (slope * torch.tensor(float(s)).bfloat16()).to(q.dtype)
        return score / self.shape.head_dim**0.5

    def turned(self, vector: torch.Tensor, position: int) -> torch.Tensor:
        C, out = self.shape.head_dim, vector.clone()
        for i in range(C // 2):
            angle = torch.tensor(position * self.frequency(i), dtype=vector.dtype)
            a, b = vector[i], vector[i + C // 2]
            out[i] = a * angle.cos() - b * angle.sin()
            out[i + C // 2] = b * angle.cos() + a * angle.sin()
        return out

    def frequency(self, i: int) -> float:
        shape = self.shape
        plain = shape.rope_theta ** (-2 * i / shape.head_dim)
        if shape.rope_scaling == "none":
            return plain
        if shape.rope_scaling == "linear":
            return plain / shape.rope_factor
        turns = shape.rope_original * plain / (2 * math.pi)
        if turns < shape.rope_low:
            return plain / shape.rope_factor
        if turns > shape.rope_high:
            return plain
        share = (turns - shape.rope_low) / (shape.rope_high - shape.rope_low)
        return (1 - share) * plain / shape.rope_factor + share * plain


@variants
def test_it_computes_what_the_formulas_say(shape):
    net, a = network(shape).double(), ids(1, 9)
    expected = Reference(shape, dict(net.named_parameters())).logits(a[0])
    torch.testing.assert_close(net(a)[0], expected.float(), rtol=1e-5, atol=1e-5)


@variants
def test_in_float64_everything_is_float64(shape):
    """All but the angles of rotary positions, which are of float32 in any network."""
    net, a = network(shape).double(), ids(1, 9)
    features = net.features(a)
    assert features.dtype == torch.float64
    exact = Reference(shape, dict(net.named_parameters())).logits(a[0])
    close = 1e-5 if shape.positions == "rotary" else 1e-12
    found = (features @ net.head_weight_VD.T)[0]
    torch.testing.assert_close(found, exact, rtol=close, atol=close)


def test_slopes_are_those_of_transformers_for_every_head_count():
    falcon = pytest.importorskip("transformers.models.falcon.modeling_falcon")
    for heads in range(1, 130):
        theirs = falcon.build_alibi_tensor(torch.ones(1, 2, dtype=torch.long), heads, torch.float32)
        ours = _alibi_slopes(heads, torch.device("cpu"))
        assert ours.dtype == torch.float32
        assert torch.equal(ours.bfloat16().float(), theirs[:, 0, 1])


def test_alibi_is_rounded_as_in_transformers_far_from_the_beginning():
    falcon = pytest.importorskip("transformers.models.falcon.modeling_falcon")
    shape = dataclasses.replace(VARIANTS["falcon-rw"], n_layers=1)
    theirs = falcon.build_alibi_tensor(torch.ones(1, 3000, dtype=torch.long), 4, torch.float32)
    masks = []
    net = network(shape)
    net.blocks[0].attention.register_forward_pre_hook(lambda m, inputs: masks.append(inputs[2]))
    net(ids(1, 3000))
    assert masks[0].shape == (1, 4, 3000, 3000)
    expected = theirs.view(4, 3000) / shape.head_dim**0.5
    assert torch.equal(masks[0][0, :, -1], expected)
    assert len(expected[0].unique()) < 2000  # bfloat16 knows 8 bits of 3,000 positions


@pytest.mark.parametrize("kind", ["none", "linear", "llama3"])
@pytest.mark.parametrize("theta", [10_000.0, 500_000.0])
@pytest.mark.parametrize("head_dim", [8, 64, 128])
def test_rotary_frequencies_are_those_of_transformers(kind, theta, head_dim):
    transformers = pytest.importorskip("transformers")
    llama = pytest.importorskip("transformers.models.llama.modeling_llama")
    ours = {"rope_factor": 32.0} if kind != "none" else {}
    theirs = {"rope_type": "default" if kind == "none" else kind, "rope_theta": theta}
    theirs |= {"factor": 32.0} if ours else {}
    if kind == "llama3":
        ours |= {"rope_low": 1.5, "rope_high": 6.0, "rope_original": 8192}
        theirs |= {
            "low_freq_factor": 1.5,
            "high_freq_factor": 6.0,
            "original_max_position_embeddings": 8192,
        }
    shape = dataclasses.replace(
        TINY,
        d_model=4 * head_dim,
        head_dim=head_dim,
        rope_theta=theta,
        rope_scaling=kind,
        max_sequence=131_072,
        **ours,
    )
    config = transformers.LlamaConfig(
        hidden_size=4 * head_dim,
        num_attention_heads=4,
        max_position_embeddings=131_072,
        rope_parameters=theirs,
    )
    rotary = llama.LlamaRotaryEmbedding(config)
    assert torch.equal(_frequencies(shape, torch.device("cpu")), rotary.inv_freq)
    x = torch.zeros(1, 1, 1)
    cos, sin = _rotary(shape, 40_000, 40_100, x)
    their_cos, their_sin = rotary(x, torch.arange(40_000, 40_100).unsqueeze(0))
    torch.testing.assert_close(cos, their_cos[0], rtol=0, atol=1e-6)
    torch.testing.assert_close(sin, their_sin[0], rtol=0, atol=1e-6)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_rms_norm_has_the_bits_of_llamas(dtype):
    llama = pytest.importorskip("transformers.models.llama.modeling_llama")
    generator = torch.Generator().manual_seed(2)
    theirs, ours = llama.LlamaRMSNorm(48, 1e-5), RMSNorm(48, 1e-5)
    weight = torch.nn.Parameter(1 + 0.3 * torch.randn(48, generator=generator))
    theirs.weight = ours.weight = weight
    x = (3 * torch.randn(2, 40, 48, generator=generator)).to(dtype)
    assert torch.equal(ours.to(dtype)(x), theirs.to(dtype)(x))


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


@variants
def test_a_cache_gives_the_same_logits_far_into_a_text(shape):
    """Where bfloat16 no longer tells neighbouring positions apart."""
    shape = dataclasses.replace(shape, max_sequence=700)
    net, a = network(shape), ids(1, 700)
    cache = Cache(capacity=700)
    parts = [net(part, cache=cache) for part in a.split((600, 50, 1, 1, 48), dim=1)]
    torch.testing.assert_close(torch.cat(parts, 1), net(a), rtol=1e-4, atol=1e-4)


def test_no_token_stands_past_the_last_learned_position():
    shape = dataclasses.replace(VARIANTS["jurassic"], max_sequence=6)
    net, cache = network(shape), Cache(capacity=10)
    net(ids(1, 6), cache=cache)
    with pytest.raises(ValueError, match="7 tokens with 6 learned positions"):
        net(ids(1, 1), cache=cache)
    with pytest.raises(ValueError, match="7 tokens with 6 learned positions"):
        net(ids(1, 7))
    assert cache.length == 6


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
    assert not torch.allclose(packed[0, 4:], net(a)[0, 4:], atol=1e-2)


@variants
def test_a_document_far_into_a_sample_is_as_it_would_be_alone(shape):
    """Where bfloat16 no longer tells neighbouring positions of the sample apart."""
    shape = dataclasses.replace(shape, max_sequence=700)
    net, a = network(shape), ids(1, 700)
    document_ids = torch.tensor([[0] * 650 + [1] * 50])
    packed = net(a, document_ids=document_ids)
    torch.testing.assert_close(packed[:, 650:], net(a[:, 650:]), rtol=1e-4, atol=1e-4)


@variants
@pytest.mark.parametrize("documents", [False, True])
def test_weights_cut_for_tensor_parallelism_run_in_the_same_network(shape, documents):
    """Each rank's part of a block's two outputs, added up, is the whole block's; biases of the
    outputs, whole on each rank, count once."""
    whole = network(shape)
    document_ids = torch.tensor([[1] * 3 + [2] * 7] * 2) if documents else None
    called = record(whole, ids(2, 10), document_ids)
    sums = {name: torch.zeros_like(output) for name, (_, output) in called.items()}
    for rank in range(2):
        cut = {
            name: dict(whole.named_parameters())[name].data[
                tuple(slice(o, o + n) for o, n in zip(offset, size, strict=True))
            ]
            for name, (offset, size) in tensor_slices(shape, 2, rank).items()
        }
        part = network_from_slices(shape, cut)
        for block in part.blocks:
            block.attention.first_head = rank * shape.n_heads // 2
        own = record(part, ids(2, 10), document_ids)  # for the mask of this rank's heads
        for name, (inputs, _) in called.items():
            module = part.get_submodule(name)
            mask = own[name][0][2:3] if name.endswith("attention") else ()
            sums[name] += module(*inputs[:2], *mask, *inputs[3:])
            if shape.bias and rank > 0:
                last = module.out if name.endswith("attention") else module.down
                sums[name] -= last.bias
    for name, (_, output) in called.items():
        torch.testing.assert_close(sums[name], output, rtol=1e-5, atol=1e-5)


def record(net, a, document_ids):
    """Inputs and output of the second block's attention and MLP in a forward pass."""
    called = {}
    for name in ("blocks.1.attention", "blocks.1.mlp"):
        net.get_submodule(name).register_forward_hook(
            lambda module, inputs, output, name=name: called.update({name: (inputs, output)})
        )
    net(a, document_ids=document_ids)
    return called


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


@pytest.mark.parametrize("positions", ["rotary", "alibi", "learned"])
@pytest.mark.parametrize("low", [False, True], ids=["float32", "bfloat16"])
def test_what_documents_may_see_is_kept_once_for_all_layers(positions: str, low: bool) -> None:
    shape = dataclasses.replace(TINY, n_layers=3, positions=positions)
    kept: set[int] = set()

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        if tensor.dim() == 4 and tensor.shape[-2:] == (24, 24):
            kept.add(tensor.untyped_storage().data_ptr())
        return tensor

    trained = network(shape).requires_grad_(True)
    document_ids = torch.arange(24).expand(2, 24) // 7
    with (
        torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor),
        torch.autocast("cpu", torch.bfloat16, enabled=low),
    ):
        features = trained.features(ids(2, 24), document_ids=document_ids)
    assert features.requires_grad
    assert len(kept) == 1
