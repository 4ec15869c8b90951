"""Promises: generation is greedy or sampled purely from the seed, stops where it must, and streams
the same text; logits are batched."""

import dataclasses

import pytest
import torch

from eyas.model import Model, initial_weights, network_from
from eyas.recipe import UsageError
from eyas.shape import ModelShape

torch.set_num_threads(1)

SHAPE = ModelShape(
    name="bytes",
    n_layers=2,
    d_model=32,
    n_heads=4,
    n_kv_heads=1,
    head_dim=8,
    d_ff=128,
    vocab_size=257,
    max_sequence=48,
)


class Bytes:
    """Id 0 ends a text; 1 + b is byte b."""

    end_of_text = 0

    def encode(self, text):
        return [1 + b for b in text.encode()]

    def decode(self, ids):
        return self.decode_bytes(ids).decode("utf-8", errors="replace")

    def decode_bytes(self, ids):
        return bytes(i - 1 for i in ids)


def model(scale=8.0, shape=SHAPE, tokenizer=True):
    tensors = {
        name: t * scale if t.dim() == 2 else t for name, t in initial_weights(shape, 2).items()
    }
    return Model(shape, network_from(shape, tensors), Bytes() if tokenizer else None)


MODEL = model()


class Scripted(torch.nn.Module):
    """A network that says `script` after the prompt, whatever it reads."""

    def __init__(self, script, prompt_tokens):
        super().__init__()
        self.embedding = torch.nn.Embedding(257, 257)
        self.embedding.weight.data = torch.eye(257)
        self.script, self.prompt_tokens = script, prompt_tokens

    @property
    def head_weight_VD(self):
        return self.embedding.weight

    def features(self, ids, cache=None, document_ids=None):
        cache.length += ids.shape[1]
        at = cache.length - self.prompt_tokens
        return 9.0 * torch.nn.functional.one_hot(torch.tensor([[self.script[at]]]), 257).float()


def scripted(text, then=0, prompt_tokens=2):
    script = [*(text if isinstance(text, list) else Bytes().encode(text)), *[then] * 60]
    return Model(SHAPE, Scripted(script, prompt_tokens), Bytes())


def test_logits_are_batched_float32_and_the_networks():
    rows = [[1, 2, 3], [200, 100, 0]]
    logits = MODEL.logits(rows)
    assert logits.shape == (2, 3, 257)
    assert logits.dtype == torch.float32
    assert torch.equal(logits, MODEL.network(torch.tensor(rows)))
    assert torch.allclose(MODEL.logits(torch.tensor(rows)[1:]), logits[1:], atol=1e-5)


def test_greedy_generation_is_the_argmax_of_the_whole_text_each_time():
    ids = Bytes().encode("wind")
    for _ in range(20):
        ids.append(int(MODEL.logits([ids])[0, -1].argmax()))
    answer = MODEL.complete("wind", max_tokens=20)
    made = ids[4:]
    assert list(answer.ids) == (made[: made.index(0)] if 0 in made else made)
    assert len(answer.ids) > 3
    assert answer.prompt_tokens == 4


def test_sampling_is_pure_in_the_seed():
    texts = [MODEL.generate("a", 30, temperature=1.0, seed=s) for s in (1, 1, 2, 3)]
    assert texts[0] == texts[1]
    assert len(set(texts)) == 3


def test_sampled_frequencies_follow_the_probabilities():
    flat = model(scale=3.0)
    p = torch.softmax(flat.logits([[5]])[0, 0].double() / 0.7, 0)
    n = 800
    found = torch.zeros(257, dtype=torch.float64)
    for seed in range(n):
        ids = flat.complete([5], 1, temperature=0.7, seed=seed).ids
        found[ids[0] if ids else 0] += 1
    chi_square = ((found - n * p).square() / (n * p)).sum()
    assert chi_square < 256 + 5 * (2 * 256) ** 0.5


def test_top_p_keeps_the_smallest_set_that_reaches_it():
    flat = model(scale=3.0)
    p, order = torch.softmax(flat.logits([[5]])[0, 0].double(), 0).sort(descending=True)
    kept = set(order[: int((p.cumsum(0) < 0.3).sum()) + 1].tolist())
    seen = {
        (flat.complete([5], 1, temperature=1.0, seed=s, top_p=0.3).ids or (0,))[0]
        for s in range(120)
    }
    assert seen <= kept
    assert len(seen) > 1
    tiny = flat.complete([5], 8, temperature=1.0, seed=1, top_p=1e-9).ids
    assert tiny == flat.complete([5], 8).ids


def test_a_very_low_temperature_is_greedy():
    assert MODEL.generate("a", 8, temperature=1e-300) == MODEL.generate("a", 8)


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_the_stream_is_the_text_in_pieces(temperature):
    pieces = list(MODEL.stream("sky", 40, temperature, seed=4))
    assert "".join(pieces) == MODEL.generate("sky", 40, temperature, seed=4)
    assert all(pieces)
    assert len(pieces) > 3


def test_streaming_never_breaks_a_character():
    pieces = list(scripted("ش é 😀!").stream("ab", 30))
    assert "".join(pieces) == "ش é 😀!"
    assert not any("\ufffd" in piece for piece in pieces)


def test_end_of_text_stops_and_is_not_shown():
    answer = scripted("done").complete("ab", 30)
    assert (answer.text, answer.finish_reason, answer.stop) == ("done", "stop", None)
    assert list(answer.ids) == Bytes().encode("done")


def test_a_stop_string_ends_the_text_before_it():
    answer = scripted("one\n\ntwo").complete("ab", 30, stop=["\n\n", "two"])
    assert (answer.text, answer.finish_reason, answer.stop) == ("one", "stop", "\n\n")
    assert len(answer.ids) == 5
    assert scripted("to two").complete("ab", 30, stop="two").text == "to "


def test_a_stop_that_is_not_completed_is_text():
    answer = scripted("one\n").complete("ab", 30, stop=["\n\n"])
    assert (answer.text, answer.finish_reason, answer.stop) == ("one\n", "stop", None)


def test_max_tokens_ends_with_length():
    answer = scripted("a long answer").complete("ab", 6)
    assert (answer.text, answer.finish_reason) == ("a long", "length")
    nothing = scripted("a").complete("ab", 0)
    assert (nothing.text, nothing.ids, nothing.finish_reason) == ("", (), "length")


def test_generation_never_passes_max_sequence():
    answer = scripted("x" * 99).complete("ab", 1000)
    assert (len(answer.ids), answer.finish_reason) == (46, "length")
    full = MODEL.complete([5] * 48, 10)
    assert (full.ids, full.finish_reason, full.prompt_tokens) == ((), "length", 48)


def test_an_empty_prompt_begins_a_document():
    assert MODEL.complete("", 12).ids == MODEL.complete([0], 12).ids
    assert MODEL.complete("", 12).prompt_tokens == 0


def test_logprobs_are_those_of_the_logits_at_temperature_one():
    answer = MODEL.complete("wind", 5, temperature=0.8, seed=3, logprobs=2)
    assert answer.logprobs is not None
    assert [found.token for found in answer.logprobs] == list(answer.ids)
    ids = Bytes().encode("wind")
    for found in answer.logprobs:
        wanted = torch.log_softmax(MODEL.logits([ids])[0, -1], 0)
        assert found.logprob == pytest.approx(float(wanted[found.token]), abs=1e-4)
        assert found.top[0][1] == pytest.approx(float(wanted.max()), abs=1e-4)
        assert len(found.top) == 2
        ids.append(found.token)
    assert MODEL.complete("wind", 5).logprobs is None


def test_generation_in_progress_leaves_autograd_as_it_was():
    for _ in MODEL.stream("a", 4):
        assert not torch.is_inference_mode_enabled()
        assert torch.is_grad_enabled()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda m: m.complete([1] * 49, 1), "49 tokens are more than the 48"),
        (lambda m: m.complete([257], 1), "not all in the vocabulary, 0..256"),
        (lambda m: m.complete("a", -1), "max_tokens is -1"),
        (lambda m: m.complete("a", 1, temperature=-0.1), "temperature is -0.1"),
        (lambda m: m.complete("a", 1, temperature=float("nan")), "temperature is nan"),
        (lambda m: m.complete("a", 1, top_p=0.0), "top_p is 0.0"),
        (lambda m: m.complete("a", 1, logprobs=-1), "logprobs is -1"),
        (lambda m: m.pieces([-1], 1), "not all in the vocabulary"),
        (lambda m: m.logits([1, 2]), r"B x T"),
        (lambda m: m.logits([[]]), r"B x T"),
    ],
)
def test_what_cannot_be_answered_is_refused_at_once(call, message):
    with pytest.raises(UsageError, match=message):
        call(MODEL)


def test_a_model_without_a_tokenizer_answers_in_logits_only():
    bare = model(tokenizer=False)
    assert bare.logits([[1, 2]]).shape == (1, 2, 257)
    with pytest.raises(UsageError, match="without a tokenizer"):
        bare.generate("a", 1)


def test_an_untied_model_generates_from_its_own_head():
    shape = dataclasses.replace(SHAPE, tied=False, n_kv_heads=2, n_norms=2)
    untied = model(shape=shape)
    first = untied.complete("wind", 1).ids[0]
    assert first == int(untied.logits([Bytes().encode("wind")])[0, -1].argmax())
