"""Texts that stand around every threshold of the word-level filters, the same every time.

`bench/agreement.py record` writes down what datatrove decides on them. Each maker leans on one
rule: few words, long words, signs, bullets, repeated lines, grams and runs, lines and sentences as
C4 counts them; prose with odd signs, other languages and the shortest texts come besides.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

_WORDS = (
    "river mountain garden window letter market harbour winter summer teacher student kitchen "
    "bridge forest village island morning evening journey story picture music machine engine paper "
    "colour question answer number reason moment system method result problem history nature "
    "science walked opened carried painted repaired measured gathered followed watched counted "
    "quiet bright narrow heavy gentle ancient modern distant simple careful the of and to that with"
).split()
_ODD = (
    *("don't", "we'll", "it's", "co-operate", "e.g.", "i.e.", "U.S.", "Mr.", "3.14", "1,000"),
    *("10:30", "50%", "$5", "#tag", "##", "@home", "me@example.org", "https://example.org/a?b=c"),
    *("—", "–", "…", "...", "....", "•", "-", "*", "|", "©", "→", "°", "(note)", "[12]", "[edit]"),
    *("“quoted”", '"quoted"', "'single'", "l'eau", "a/b", "x=1", "C++", "node.js", "٣٤", "é", "１"),
    *("日本", "кот", "كتاب،", "مدرسة؟", "हिन्दी।", "\u200b", "\ufe0f", "🙂", "‼", "۔"),
    *("«mot»", "¿Qué?"),
)
_OTHERS = {
    "de": "Der Fluss fließt durch das Tal, z. B. im Frühling. Die Häuser-Reihe ist 100 Jahre alt! "
    "Wer hat's gesehen? Am 3. Mai kam er zurück.",
    "fr": "L'eau de la rivière n'est pas froide aujourd'hui. Qu'est-ce que c'est ? Il y a 1 000 "
    "maisons dans la vallée ; les gens y vivent bien !",
    "es": "¿Dónde está la casa? ¡Qué bonito! El río pasa por el valle, p. ej. en primavera. Son "
    "las 10:30 de la mañana.",
    "ru": "Река течёт через долину. Это было в 1990 году, т.е. давно! Где дом? Кто-то пришёл "
    "домой.",
    "ar": "كتب الطالب الرسالة في الصباح، ثم ذهب إلى السوق. هل رأى المعلم؟ نعم؛ رآه قرب النهر!",
    "tr": "Nehir vadiden geçer. Ev nerede? Ahmet'in kitabı 1990'da yazıldı! Bu çok güzel bir gün.",
}


def made_texts() -> Iterator[tuple[str, str]]:
    """(language, text), the same every time."""
    makers: tuple[Callable[[random.Random], str], ...] = (
        *(_prose, _odd_prose, _few_words, _word_lengths, _signs, _bullets, _letters, _stop_words),
        *(_repeated_lines, _repeated_paragraphs, _frequent_gram, _repeated_run, _joined_tokens),
        *(_web_lines, _sentences, _short_lines, _white_space, _web_lines, _repeated_run),
    )
    for number in range(620):
        chance = random.Random(number)
        yield "en", makers[number % len(makers)](chance)
    for language, sentences in _OTHERS.items():
        for number in range(12):
            yield language, _other(random.Random(f"{language}{number}"), sentences)
    for text in (" ", "\n\n", ".", "a", "#", "…", "the", "\u200b", "a\n\na\n\na", "- a\n- b\n"):
        yield "en", text


def _sentence(chance: random.Random, pool: list[str], length: int) -> str:
    words = chance.choices(pool, k=length)
    return " ".join(words).capitalize() + chance.choice([".", ".", ".", "!", "?", ";", ""])


def _prose(chance: random.Random) -> str:
    lines = [
        " ".join(
            _sentence(chance, _WORDS, chance.randint(3, 14)) for _ in range(chance.randint(1, 4))
        )
        for _ in range(chance.randint(3, 10))
    ]
    return chance.choice(["\n", "\n\n"]).join(lines)


def _odd_prose(chance: random.Random) -> str:
    pool = [*_WORDS, *_ODD]
    lines = [_sentence(chance, pool, chance.randint(3, 20)) for _ in range(chance.randint(3, 12))]
    return chance.choice(["\n", "\n\n", " "]).join(lines)


def _few_words(chance: random.Random) -> str:
    count = chance.choice([24, 25, 39, 40, 48, 49, 50, 51, 61, 62, 63, 99, 100])
    words = chance.choices(_WORDS, k=count)
    return " ".join(
        [*words, *chance.choices([".", ",", "•", "—", "©", "１"], k=chance.randint(0, 6))]
    )


def _word_lengths(chance: random.Random) -> str:
    length = chance.choice([1, 2, 3, 4, 7, 8, 10, 12, 13, 20])
    words = ["".join(chance.choices("bcdfgklm", k=length)) for _ in range(60)]
    words += ["".join(chance.choices("aeiou", k=length + chance.choice([-1, 0, 1]) or 1))]
    return " ".join([*words, "the", "of", "and"])


def _signs(chance: random.Random) -> str:
    sign = chance.choice(["#", "...", "…", "#hash"])
    words = chance.choices(_WORDS, k=60)
    for _ in range(chance.randint(2, 16)):
        words.insert(chance.randrange(len(words)), sign)
    return chance.choice([" ", "\n"]).join(words)


def _bullets(chance: random.Random) -> str:
    marks, share = (
        chance.choice([["- ", "• "], [" - ", "•"]]),
        chance.choice([0.4, 0.7, 0.85, 0.9, 1]),
    )
    end = chance.choice(["", "...", " …", "… "])
    lines = []
    for _ in range(chance.choice([9, 10, 20])):
        line = _sentence(chance, _WORDS, 6)
        lines.append(
            (chance.choice(marks) if chance.random() < share else "")
            + line
            + (end if chance.random() < share / 2 else "")
        )
    return "\n".join(lines)


def _letters(chance: random.Random) -> str:
    words = chance.choices(_WORDS, k=64)
    numbers = [str(chance.randrange(10**4)) for _ in range(chance.choice([5, 14, 15, 16, 17, 40]))]
    return " ".join([*words, *numbers])


def _stop_words(chance: random.Random) -> str:
    plain = chance.choices(_WORDS[:50], k=60)
    stop = chance.sample(["the", "be", "to", "of", "and", "that", "have", "with", "The", "OF"], 10)
    return " ".join([*plain, *stop[: chance.randint(0, 4)], *stop[:1] * chance.randint(0, 2)])


def _repeated_lines(chance: random.Random) -> str:
    lines = [_sentence(chance, _WORDS, chance.randint(2, 9)) for _ in range(10)]
    copies = chance.choices(lines, k=chance.randint(1, 8))
    both = [*lines, *copies]
    chance.shuffle(both)
    return chance.choice(["\n", "\n\n", "\n\n\n"]).join(both)


def _repeated_paragraphs(chance: random.Random) -> str:
    paragraphs = [
        "\n".join(_sentence(chance, _WORDS, 7) for _ in range(chance.randint(1, 3)))
        for _ in range(8)
    ]
    both = [*paragraphs, *chance.choices(paragraphs, k=chance.randint(1, 5))]
    chance.shuffle(both)
    return chance.choice(["", "\n", "  "]) + "\n\n".join(both) + chance.choice(["", "\n\n"])


def _frequent_gram(chance: random.Random) -> str:
    return _planted(chance, chance.choices(_WORDS, k=chance.randint(2, 4)), 70, (2, 9))


def _repeated_run(chance: random.Random) -> str:
    return _planted(chance, chance.choices(_WORDS, k=chance.randint(4, 14)), 90, (1, 4))


def _planted(chance: random.Random, run: list[str], length: int, copies: tuple[int, int]) -> str:
    """The words of `run` so many times among `length` others."""
    words = chance.choices(_WORDS, k=length)
    for _ in range(chance.randint(*copies)):
        at = chance.randrange(len(words))
        words[at:at] = run
    return " ".join(words) + "."


def _joined_tokens(chance: random.Random) -> str:
    """N-grams that are the same text in other words, and that overlap themselves."""
    letters = chance.choices("ab", k=240)
    for at in sorted(chance.sample(range(1, 240), chance.randint(60, 170)), reverse=True):
        letters.insert(at, " ")
    return "".join(letters) + " " + " ".join(["the of"] * chance.randint(0, 6))


_LINES = (
    "Please enable JavaScript to see this page.",
    "Read our Privacy Policy and terms of use now.",
    "This site uses cookies to work well.",
    "Two words.",
    "No end of this line here",
    "So it is...",
    "He said 'yes' to all of it'",
    'She said "no" to all of it"',
    "function() { return 1; } here.",
    "Lorem ipsum dolor sit amet here.",
    "The town [12] was built [edit] long ago [citation needed].",
    "See the note of that day [3]",
    "  Spaces stand around this line.  ",
    "Is it? Yes! No. Good.",
    "“It is.” He went. “Why?” she asked.",
    "Dr. Smith met Mr. Jones, i.e. them, at 10 a.m. on Monday.",
    "x" * 1000 + " is a long word.",
    "x" * 1001 + " is a longer word.",
    "(It is so.) And (so on.)",
    "Wait... what is this? It is...",
    "كتب الطالب الرسالة في الصباح؟",
    "这是一个句子。 这是第二个句子。",
)


def _web_lines(chance: random.Random) -> str:
    lines = chance.choices(_LINES, k=chance.randint(1, 7))
    lines += [_sentence(chance, _WORDS, chance.randint(2, 9)) for _ in range(chance.randint(0, 5))]
    chance.shuffle(lines)
    return chance.choice(["\n", "\n\n", "\r\n", "\u2028"]).join(lines)


def _sentences(chance: random.Random) -> str:
    one_line = [
        _sentence(chance, _WORDS, chance.randint(3, 6)) for _ in range(chance.randint(3, 7))
    ]
    return chance.choice([" ", "\n", "  "]).join(one_line) + "."


def _short_lines(chance: random.Random) -> str:
    lines = [_sentence(chance, _WORDS, chance.choice([3, 4, 5, 9])) for _ in range(12)]
    lines += [("x" * n) + "." for n in (28, 29, 30) if chance.random() < 0.5]
    lines += chance.choices(lines, k=chance.randint(0, 3))
    chance.shuffle(lines)
    return "\n".join(line.rstrip(".") if chance.random() < 0.6 else line for line in lines)


def _white_space(chance: random.Random) -> str:
    spaces = (
        *(" ", " ", " ", "  ", "\t", "\xa0"),
        *("\n", "\n\n", "\n \n", "\r\n", "\x0b", "\u2028", "\x85"),
    )
    return "".join(w + chance.choice(spaces) for w in chance.choices([*_WORDS, *_ODD], k=70))


def _other(chance: random.Random, sentences: str) -> str:
    words = sentences.split()
    lines = [sentences, *(" ".join(chance.sample(words, 8)) + "." for _ in range(8))]
    lines += chance.choices(lines, k=chance.randint(0, 4))
    chance.shuffle(lines)
    return chance.choice(["\n", "\n\n", " "]).join(lines)
