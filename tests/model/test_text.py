"""Promises: streamed text is whole characters, nothing of a stop string, nothing lost, no delay."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eyas.model.text import TextStream


def run(tokens, stops=()):
    """The pieces for tokens of these bytes, and the stop string reached."""
    stream, out = TextStream(stops), []
    for data in tokens:
        out.append(stream.add(data))
        if stream.stop is not None:
            return out, stream.stop
    return [*out, stream.finish()], stream.stop


def single(data):
    """A token a byte."""
    return [bytes([b]) for b in data]


@given(st.text())
def test_any_text_byte_by_byte_comes_in_whole_characters(text):
    pieces, _ = run(single(text.encode()))
    assert "".join(pieces) == text
    assert "\ufffd" in text or not any("\ufffd" in p for p in pieces)


@given(st.binary(max_size=60))
@settings(max_examples=500)
def test_any_bytes_give_the_text_of_the_whole(data):
    pieces, _ = run(single(data))
    assert "".join(pieces) == data.decode("utf-8", errors="replace")


@given(st.lists(st.binary(min_size=1, max_size=5), max_size=20))
@settings(max_examples=500)
def test_tokens_of_several_bytes_give_the_text_of_the_whole(tokens):
    pieces, _ = run(tokens)
    assert "".join(pieces) == b"".join(tokens).decode("utf-8", errors="replace")


def test_a_character_comes_with_its_last_byte():
    pieces, _ = run(single("aس😀".encode()))
    assert pieces == ["a", "", "س", "", "", "", "😀", ""]


def test_bytes_that_are_no_text_come_as_replacements_and_hold_nothing_back():
    pieces, _ = run([b"\x80"] * 200 + single("né".encode()))
    assert pieces == ["\ufffd"] * 200 + ["n", "", "é", ""]


@given(
    st.text(alphabet="ab\u00e9", max_size=40),
    st.lists(st.text(alphabet="ab\u00e9", min_size=1, max_size=4), max_size=3),
)
@settings(max_examples=500)
def test_text_ends_before_the_first_stop_string_and_holds_no_more_than_it_must(text, stops):
    pieces, reached = run(single(text.encode()), stops)
    whole = "".join(pieces)
    places = [(text.find(s), s) for s in stops if s in text]
    if not places:
        assert reached is None
        assert whole == text
        return
    # The stop string that is complete first ends the text.
    end = min(at + len(s) for at, s in places)
    assert whole + reached == text[:end]
    assert not any(s in whole for s in stops)


@given(st.text(alphabet="ab", max_size=30), st.text(alphabet="ab", min_size=2, max_size=4))
def test_what_cannot_become_a_stop_is_not_held_back(text, stop):
    stream, out = TextStream([stop]), ""
    for n, byte in enumerate(text.encode(), 1):
        out += stream.add(bytes([byte]))
        if stream.stop is not None:
            return
        held = text[:n][len(out) :]
        assert stop.startswith(held)
        assert held != stop


def test_a_stop_inside_one_token_cuts_the_token():
    pieces, reached = run([b"one", b" two\nthree"], ["\n"])
    assert pieces == ["one", " two"]
    assert reached == "\n"


def test_a_stop_over_several_tokens_leaks_nothing():
    pieces, reached = run([b"x <", b"/", b"s", b">"], ["</s>"])
    assert pieces == ["x ", "", "", ""]
    assert reached == "</s>"


def test_an_unfinished_stop_is_given_back_at_the_end():
    pieces, reached = run(single(b"see </"), ["</s>"])
    assert "".join(pieces) == "see </"
    assert reached is None


@pytest.mark.parametrize("stops", [(), ("",), ("zz",)])
def test_without_a_stop_in_sight_every_token_is_shown_at_once(stops):
    pieces, _ = run(single(b"hello"), stops)
    assert pieces == ["h", "e", "l", "l", "o", ""]
