"""What a request may say: everything else is refused by name, in OpenAI's form."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eyas.serve import ApiError, Limits
from eyas.serve.completions import choice_seed, parse_completion

LIMITS = Limits(max_tokens=100, choices=8)


def parse(**keys: Any) -> Any:
    return parse_completion({"model": "m", "prompt": "x"} | keys, LIMITS)


def refusal(**keys: Any) -> ApiError:
    with pytest.raises(ApiError) as caught:
        parse(**keys)
    assert caught.value.status == 400
    return caught.value


def test_defaults_are_openai_s() -> None:
    got = parse()
    assert got.max_tokens == 16
    assert (got.temperature, got.top_p, got.n) == (1.0, 1.0, 1)
    assert (got.stop, got.seed, got.stream, got.echo) == ((), None, False, False)
    assert not got.token_healing


def test_a_null_is_as_good_as_leaving_out() -> None:
    names = (
        "max_tokens temperature top_p n stop seed stream stream_options echo user logprobs".split()
    )
    names += ["suffix", "best_of", "logit_bias", "presence_penalty", "frequency_penalty"]
    names += ["token_healing"]
    assert parse(**dict.fromkeys(names)) == parse()


@pytest.mark.parametrize(
    ("prompt", "prompts"),
    [
        ("صقر", ("صقر",)),
        ("", ("",)),
        (["a", "b"], ("a", "b")),
        ([1, 2, 3], ((1, 2, 3),)),
        ([[1], [2, 3], []], ((1,), (2, 3), ())),
    ],
)
def test_a_prompt_is_text_or_ids_one_or_several(prompt: Any, prompts: Any) -> None:
    assert parse(prompt=prompt).prompts == prompts


@pytest.mark.parametrize(
    "prompt", [None, 3, [], {}, ["a", 1], [1, True], [-1], [1.0], [["a"]], "\ud800", ["\udfff"]]
)
def test_any_other_prompt_is_refused(prompt: Any) -> None:
    assert refusal(prompt=prompt).param == "prompt"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("model", 7),
        ("max_tokens", -1),
        ("max_tokens", 101),
        ("max_tokens", 10**400),
        ("max_tokens", 1.5),
        ("max_tokens", True),
        ("max_tokens", "16"),
        ("temperature", -0.1),
        ("temperature", 2.1),
        ("temperature", float("inf")),
        ("temperature", "hot"),
        ("top_p", 1.01),
        ("n", 0),
        ("n", 9),
        ("stop", 5),
        ("stop", [""]),
        ("stop", ["a", 5]),
        ("stop", list("abcde")),
        ("stop", "\ud83d"),
        ("seed", 2**63),
        ("seed", 0.5),
        ("stream", 1),
        ("echo", "yes"),
        ("token_healing", 1),
        ("user", 5),
        ("stream_options", {"include_usage": True}),
    ],
)
def test_a_value_out_of_range_is_refused_by_name(name: str, value: Any) -> None:
    error = refusal(**{name: value})
    assert error.param == name
    assert len(error.message) < 200


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("logprobs", 0),
        ("logprobs", 5),
        ("suffix", "end"),
        ("presence_penalty", 0.1),
        ("frequency_penalty", -1),
        ("frequency_penalty", False),
        ("logit_bias", {"50": 1}),
        ("best_of", 2),
    ],
)
def test_what_is_not_done_yet_is_refused_not_ignored(name: str, value: Any) -> None:
    error = refusal(**{name: value})
    assert (error.param, error.code) == (name, "unsupported_parameter")


def test_what_asks_for_nothing_passes() -> None:
    asked = parse(
        logprobs=False,
        suffix="",
        presence_penalty=0,
        frequency_penalty=0.0,
        logit_bias={},
        best_of=2,
        n=2,
        user="someone",
    )
    assert asked == parse(n=2)


def test_an_unknown_parameter_is_named() -> None:
    error = refusal(max_token=5)
    assert (error.param, error.code) == ("max_token", "unknown_parameter")
    assert "'max_token'" in error.message
    options = refusal(stream=True, stream_options={"usage": True})
    assert options.param == "stream_options.usage"


def test_prompts_times_n_are_bounded() -> None:
    assert len(parse(prompt=["a"] * 4, n=2).prompts) == 4
    assert "at most 8" in refusal(prompt=["a"] * 3, n=3).message


@pytest.mark.parametrize("body", [None, [], "x", 5])
def test_the_body_is_an_object(body: Any) -> None:
    with pytest.raises(ApiError, match="JSON object"):
        parse_completion(body, LIMITS)


_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4)
    ),
    max_leaves=8,
)
_names = st.sampled_from(
    "model prompt max_tokens temperature top_p n stop seed stream stream_options echo user".split()
    + "logprobs suffix best_of logit_bias presence_penalty token_healing".split()
)


_any_text = st.text(st.characters(codec=None, exclude_categories=()), max_size=5)


@given(st.dictionaries(_names | _any_text, _json, max_size=6))
def test_whatever_comes_is_parsed_or_refused(body: dict[str, Any]) -> None:
    try:
        got: Any = parse_completion(body, LIMITS)
    except ApiError as error:
        got = error
    if isinstance(got, ApiError):
        assert got.status == 400
        assert got.param is not None
        assert json.dumps(got.body, ensure_ascii=False).encode()
    else:
        assert 1 <= len(got.prompts) * got.n <= LIMITS.choices


@given(st.integers(-(2**63), 2**63 - 1))
def test_choices_have_their_own_seeds_and_the_first_the_request_s(seed: int) -> None:
    seeds = [choice_seed(seed, number) for number in range(8)]
    assert seeds[0] == seed % 2**63
    assert len(set(seeds)) == 8
    assert all(0 <= s < 2**63 for s in seeds)
