"""Every key of a recipe, documented where it is set. One flat, frozen section a room.

`key(...)` gives default, meaning and what is legal; the validator (`validate.py`), the JSON schema
for editors and the commented recipe of `eyas init` are all made from these lines. A name that
Python keeps for itself has an underscore after it here: `from_` is written `from` in a recipe. A
key that is a list of tables has a dataclass as its element.
"""

from __future__ import annotations

from dataclasses import dataclass

from .corpus_keys import Corpus
from .key import key

__all__ = [
    "Chain",
    "Cluster",
    "Corpus",
    "Data",
    "DataSource",
    "Judge",
    "LayoutKeys",
    "Milestone",
    "ModelKeys",
    "Serve",
    "TokenizerKeys",
    "Train",
    "Watch",
]


@dataclass(frozen=True)
class TokenizerKeys:
    """Byte-level BPE, lossless."""

    from_: str = key("", "a store whose tokenizer is taken as it is, verified; empty trains one")
    vocab_size: int = key(
        65_024, "items, reserved ones and 256 bytes included", kind="count", low=512
    )
    reserved: int = key(256, "reserved ids at the start; id 0 is <|endoftext|>", low=1, high=65_536)
    digits: str = key(
        "triples",
        "how numbers are cut: triples from the left (Falcon), single digits, or free (learned)",
        choices=("triples", "single", "free"),
    )
    normalisation: str = key(
        "",
        "Unicode form that text is brought into; empty keeps every byte",
        choices=("", "NFC", "NFKC"),
    )
    multiword: bool = key(False, 'items may span words ("United Nations"), as in Jurassic-1')
    multiword_share: float = key(
        0.45, "most of the vocabulary that may be multi-word items", above=0, high=0.9
    )
    multiword_words: int = key(4, "most words in an item", low=2, high=8)
    multiword_documents: int = key(
        3, "a multi-word item stands in at least this many documents of the sample", low=1
    )
    entities: str = key(
        "builtin", "names that become items: builtin, a file with one a line, or empty for none"
    )
    sample_bytes: int = key(
        64 * 2**20, "UTF-8 bytes of text to train on, spread over languages", kind="count", low=1024
    )
    temperature: float = key(
        0.7, "language sampling: share ** temperature; 1 is as found, 0 is equal", low=0, high=1
    )


@dataclass(frozen=True)
class DataSource:
    """One part of the mixture."""

    name: str = key("", "a short name: letters, digits, - and _")
    from_: str = key(
        "",
        "empty: the corpus of this run; a store: its token shards, where they lie; mds:URL, "
        "megatron:URL or hf:URL (Parquet, JSONL): read and written as token shards here",
    )
    languages: tuple[str, ...] = key(
        (), "documents of the corpus in these languages; empty takes what no other source takes"
    )
    weight: float = key(1.0, "share of the samples, against the weights of the others", low=0)
    epochs: float = key(0.0, "passes over it at most; 0 is data.epochs", low=0)


@dataclass(frozen=True)
class Milestone:
    """What changes at the first step at which so many tokens were seen."""

    tokens: int = key(0, "tokens seen", kind="count", low=1)
    weights: dict[str, float] = key(  # noqa: RUF009
        {}, "weight of each source by name; empty: as before"
    )
    global_batch: int = key(0, "tokens a step; 0: as before", kind="count", low=0)
    sequence: int = key(0, "tokens a sample; 0: as before", kind="count", low=0)


@dataclass(frozen=True)
class Data:
    """From token shards to batches."""

    from_: str = key("", "a store whose token shards are used as they lie; empty: this run's")
    sources: tuple[DataSource, ...] = key((), "the mixture; left out: the whole corpus")
    milestones: tuple[Milestone, ...] = key(
        (), "weights, batch or sequence that change during the run, by tokens seen"
    )
    sequence: int = key(2048, "tokens a sample", kind="count", low=8)
    epochs: float = key(4.0, "passes over a source before the plan stops taking from it", above=0)
    document_mask: bool = key(False, "attention stays inside a document of a packed sample")
    ragged: bool = key(
        False, "a batch that the data-parallel ranks do not divide is padded, not refused"
    )
    seed: int = key(1, "decides the order of samples", low=0)


@dataclass(frozen=True)
class ModelKeys:
    """A preset, then overrides; what is left out comes from the preset."""

    preset: str = key("nano-5m", "a file in src/eyas/presets/models, by name")
    n_layers: int | None = key(None, "blocks", low=1)
    d_model: int | None = key(None, "width of the residual stream", low=1)
    n_heads: int | None = key(None, "query heads", low=1)
    n_kv_heads: int | None = key(None, "key and value heads; 1 is multi-query", low=1)
    head_dim: int | None = key(None, "width of a head; even for rotary positions", low=1)
    d_ff: int | None = key(None, "width of the MLP", low=1)
    vocab_size: int | None = key(None, "items; left out: the tokenizer's", kind="count", low=2)
    max_sequence: int | None = key(
        None,
        "positions that it may be asked for; at least data.sequence, which learned ones must reach",
        kind="count",
        low=1,
    )
    block: str | None = key(
        None,
        "parallel: attention and MLP read the same (Falcon); sequential: one after the other",
        choices=("parallel", "sequential"),
    )
    n_norms: int | None = key(
        None, "norms before a parallel block: 1 or 2; a sequential one has 2", low=1, high=2
    )
    norm: str | None = key(None, "layernorm, or rmsnorm (Llama)", choices=("layernorm", "rmsnorm"))
    norm_eps: float | None = key(None, "added to the variance in a norm", above=0)
    positions: str | None = key(
        None,
        "rotary, alibi (Falcon-RW) or learned (Jurassic)",
        choices=("rotary", "alibi", "learned"),
    )
    activation: str | None = key(
        None,
        "of the MLP: gelu (exact), gelu_tanh, or swiglu with its gate (Llama)",
        choices=("gelu", "gelu_tanh", "swiglu"),
    )
    bias: bool | None = key(None, "biases in the linear layers of the blocks")
    tied: bool | None = key(None, "output projection is the embedding")
    rope_theta: float | None = key(None, "base of the rotary frequencies", above=0)
    rope_scaling: str | None = key(
        None,
        "rotary positions stretched to longer texts: none, linear or llama3",
        choices=("none", "linear", "llama3"),
    )
    rope_factor: float | None = key(None, "linear, llama3: how far they are stretched", low=1)
    rope_low: float | None = key(
        None, "llama3: wavelengths over rope_original / rope_low are stretched in full", above=0
    )
    rope_high: float | None = key(
        None, "llama3: wavelengths under rope_original / rope_high are left as they are", above=0
    )
    rope_original: int | None = key(
        None, "llama3: tokens a sample before the stretching", kind="count", low=1
    )
    licence: str = key("", "licence of the weights, an SPDX identifier such as Apache-2.0")


@dataclass(frozen=True)
class Train:
    """The run."""

    tokens: int = key(1_000_000, "tokens to train on", kind="count", low=1)
    global_batch: int = key(4096, "tokens a step, a multiple of data.sequence", kind="count", low=1)
    lr: float = key(3e-4, "peak learning rate (AdamW)", above=0)
    lr_min: float = key(3e-5, "learning rate at the end", low=0)
    schedule: str = key("cosine", "after the warm-up", choices=("cosine", "constant"))
    warmup_tokens: int = key(0, "tokens of linear warm-up", kind="count", low=0)
    weight_decay: float = key(0.1, "on matrices; norms and biases have none", low=0)
    beta1: float = key(0.9, "AdamW", low=0, high=0.9999)
    beta2: float = key(0.95, "AdamW", low=0, high=0.99999)
    grad_clip: float = key(1.0, "largest global gradient norm", above=0)
    z_loss: float = key(1e-4, "weight of log(Z)^2", low=0)
    precision: str = key(
        "float32", "arithmetic of the forward pass", choices=("float32", "bfloat16")
    )
    checkpoint_every: int = key(1000, "steps between commits", low=1)
    seed: int = key(1, "initial weights", low=0)
    rehearse_kill: int = key(
        0, "SIGKILL the last rank when this step begins, in the first attempt only; 0 never", low=0
    )


@dataclass(frozen=True)
class LayoutKeys:
    """How the network is spread over processes. 0: the planner chooses."""

    tensor: int = key(0, "tensor-parallel degree", low=0)
    data: int = key(0, "data-parallel degree", low=0)
    micro_batch: int = key(0, "sequences a forward pass on one rank", low=0)


@dataclass(frozen=True)
class Cluster:
    """Where it runs."""

    backend: str = key("local", "who starts the processes", choices=("local",))
    processes: int = key(1, "ranks on this machine", low=1)
    threads: int = key(0, "threads a rank; 0 shares the cores out", low=0)
    workers: int = key(0, "worker processes of the corpus and token stages; 0 is one a core", low=0)


@dataclass(frozen=True)
class Chain:
    """What may follow what: no keys yet."""


@dataclass(frozen=True)
class Watch:
    """The watchdog: no keys yet."""


@dataclass(frozen=True)
class Judge:
    """Evaluation."""

    max_bytes: int = key(200_000, "held-out text a language that is scored", kind="count", low=1000)
    prompts: tuple[str, ...] = key((), "sampled after training, to look at")
    sample_tokens: int = key(32, "tokens a sample", low=1, high=4096)


@dataclass(frozen=True)
class Serve:
    """The HTTP endpoint."""

    host: str = key("127.0.0.1", "address to bind; anything but loopback must be asked for")
    port: int = key(8000, "port; 0 takes a free one", low=0, high=65_535)
    api_key_env: str = key("", "name of the environment variable that holds the key; empty: no key")
    max_tokens: int = key(1024, "most tokens a request may ask for", low=1)
