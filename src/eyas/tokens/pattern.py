r"""How text is cut before merges are learned or applied: regular expressions, as `tokenizers` and
`fastokens` read them (Oniguruma and PCRE2 give the same pieces; a test holds them to it).

`word_pattern` descends from OpenAI's o200k rule: a word takes one character before it, combining
marks stay inside (vowelled Arabic and Indic scripts break under GPT-2's rule), a change from lower
to upper case ends it, indentation is one piece. Beyond that a change of script ends a word: Arabic,
Han with kana, Hangul and the cased alphabets each keep to themselves, by ranges of letters
(`\p{Han}` and its like mean script extensions, signs included, to PCRE2). ZWJ and ZWNJ continue a
word, as Persian and Indic spelling needs.

Multi-word items need two rules. Their first stage cuts finer (`stage_one_pattern`): words take
nothing but a space, signs stand alone. Encoding then takes longer pieces (`multiword_pattern`):
words and signs joined by single spaces, up to a digit, a line's end or a sign that ends a sentence.
No piece of the first stage is cut by a longer one, and none has a letter beside a sign, or a space
inside, so merges of the first stage do not apply across its boundaries within a longer piece, and
the ids there are those of the first stage until a multi-word merge applies (but for merges that end
inside a character: a vowel sign and the first byte of a letter, or of a comma). The longer pieces
are bounded in length and use atomic groups: PCRE2 keeps a stack for unbounded ones and gives up at
a few thousand words.
"""

from __future__ import annotations

__all__ = ["DIGITS", "multiword_pattern", "stage_one_pattern", "word_pattern"]

DIGITS = {"triples": r"\p{N}{1,3}", "single": r"\p{N}", "free": r"\p{N}+"}
"""How numbers are cut: by three from the left, one by one, or left whole for merges to learn."""

SENTENCE_END = ".!?…؟۔।。！？"

_INSIDE = r"\p{Lm}\p{M}\x{200C}\x{200D}"  # continues a word of any script
_UPPER = r"\p{Lu}\p{Lt}"
_ARABIC = (
    r"\x{620}-\x{64A}\x{66E}-\x{6D3}\x{6D5}\x{6EE}\x{6EF}\x{6FA}-\x{6FC}\x{6FF}\x{750}-\x{77F}"
    r"\x{870}-\x{887}\x{889}-\x{88F}\x{8A0}-\x{8C9}\x{FB50}-\x{FBB1}\x{FBD3}-\x{FD3D}"
    r"\x{FD50}-\x{FDC7}\x{FDF0}-\x{FDFB}\x{FE70}-\x{FEFC}"
)
_HAN = (
    r"\x{3005}\x{3006}\x{303B}\x{303C}\x{3400}-\x{4DBF}\x{4E00}-\x{9FFF}\x{F900}-\x{FAD9}"
    r"\x{20000}-\x{323AF}\x{3041}-\x{3096}\x{309D}-\x{309F}\x{30A1}-\x{30FA}\x{30FC}-\x{30FF}"
    r"\x{31F0}-\x{31FF}\x{FF66}-\x{FF9F}"
)
_HANGUL = (
    r"\x{1100}-\x{11FF}\x{3131}-\x{318E}\x{A960}-\x{A97C}\x{AC00}-\x{D7A3}\x{D7B0}-\x{D7FB}"
    r"\x{FFA0}-\x{FFDC}"
)
_CONTRACTION = r"(?:'(?i:s|t|re|ve|m|ll|d)(?!\p{L}))?"
_SPACE = r"\t-\r\x{85}\p{Z}"  # \s without U+180E, on which the engines differ
_SIGN = rf"[^{_SPACE}\p{{L}}\p{{N}}]"
_SPACES = (rf"[{_SPACE}]*[\r\n]+", rf"[{_SPACE}]+(?![^{_SPACE}])", rf"[{_SPACE}]+")
_MOST_PARTS = 64


def word_pattern(digits: str = "triples") -> str:
    """The rule of a tokenizer whose items stay inside words."""
    word = rf"[^\r\n\p{{L}}\p{{N}}]?(?=\p{{L}}){_letters(_CONTRACTION)}"
    return "|".join((word, DIGITS[digits], rf" ?{_SIGN}+[\r\n/]*", *_SPACES))


def stage_one_pattern(digits: str = "triples") -> str:
    """The rule by which the first stage of a multi-word tokenizer is learned."""
    return "|".join((_word(), DIGITS[digits], rf" ?{_SIGN}+[\r\n]*", *_SPACES))


def multiword_pattern(digits: str = "triples") -> str:
    """The rule of a finished multi-word tokenizer: longer pieces first, then those of stage one.
    Signs that end a sentence are inside only between a letter and a letter, as in `os.path`. A run
    of signs is never cut, and line ends after it stay with it, as in stage one."""
    other = rf"(?>[^{_SPACE}\p{{L}}\p{{N}}{SENTENCE_END}]+)(?![{SENTENCE_END}])"
    inner = rf"(?<=[\p{{L}}\p{{M}}])[{SENTENCE_END}](?=\p{{L}})"
    part = rf"(?> ?(?>\p{{L}}[\p{{L}}\p{{M}}\x{{200C}}\x{{200D}}]*|{other}|{inner}))"
    ends = rf"(?:(?<=[^{_SPACE}\p{{L}}\p{{N}}\p{{M}}\x{{200C}}\x{{200D}}])[\r\n]+)?"
    return rf"{part}{{1,{_MOST_PARTS}}}{ends}|{stage_one_pattern(digits)}"


def _word() -> str:
    return rf" ?(?=\p{{L}}){_letters('')}"


def _letters(contraction: str) -> str:
    """Letters of one script, after a look ahead that one comes."""
    return "(?:{})".format(
        "|".join(
            (
                rf"[{_UPPER}]?[{_UPPER}{_INSIDE}]*\p{{Ll}}[\p{{Ll}}{_INSIDE}]*{contraction}",
                rf"[{_UPPER}][{_UPPER}{_INSIDE}]*{contraction}",
                rf"[{_ARABIC}][{_ARABIC}{_INSIDE}]*",
                rf"[{_HAN}][{_HAN}{_INSIDE}]*",
                rf"[{_HANGUL}][{_HANGUL}{_INSIDE}]*",
                rf"(?>[^\P{{Lo}}{_ARABIC}{_HAN}{_HANGUL}][{_INSIDE}]*)+",
                rf"[{_INSIDE}]+",
            )
        )
    )
