"""Languages are told apart, whatever the lines; what has no letters has no certain language."""

from __future__ import annotations

import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.texts import page

from eyas.corpus.steps.language import detect_language, known_languages

SAMPLES = {
    "en": "The baker opens his shop before sunrise. By noon most of the bread has been sold.",
    "ar": "يفتح الخباز دكانه قبل شروق الشمس. وعند الظهر يكون معظم الخبز قد بيع.",
    "fr": "Le boulanger ouvre sa boutique avant l'aube. À midi, presque tout le pain est vendu.",
    "de": "Der Bäcker öffnet seinen Laden vor Sonnenaufgang. Mittags ist fast alles verkauft.",
    "es": "El panadero abre su tienda antes del amanecer. Al mediodía casi no queda pan.",
    "it": "Il fornaio apre la bottega prima dell'alba. A mezzogiorno quasi tutto è venduto.",
    "pt": "O padeiro abre a loja antes do nascer do sol. Ao meio-dia quase não há mais pão.",
    "nl": "De bakker opent zijn winkel voor zonsopgang. Tegen de middag is bijna alles verkocht.",
    "sv": "Bagaren öppnar sin butik före soluppgången. Vid lunchtid är nästan allt bröd sålt.",
    "da": "Bageren åbner sin butik før solopgang. Ved middagstid er næsten alt brødet solgt.",
    "no": "Bakeren åpner butikken sin før soloppgang. Ved lunsjtid er nesten alt brødet utsolgt.",
    "fi": "Leipuri avaa kauppansa ennen auringonnousua. Puoleenpäivään mennessä leipä on myyty.",
    "pl": "Piekarz otwiera sklep przed wschodem słońca. W południe prawie wszystko jest sprzedane.",
    "cs": "Pekař otevírá obchod před východem slunce. V poledne je téměř všechen chléb prodán.",
    "hu": "A pék napkelte előtt nyitja ki a boltját. Délre szinte az összes kenyér elfogy.",
    "ro": "Brutarul își deschide prăvălia înainte de răsărit. La prânz aproape totul este vândut.",
    "ru": "Пекарь открывает лавку до восхода солнца. К полудню почти весь хлеб уже продан.",
    "uk": "Пекар відчиняє крамницю до сходу сонця. Опівдні майже весь хліб уже продано.",
    "bg": "Пекарят отваря магазина си преди изгрев. До обяд почти целият хляб е продаден.",
    "el": "Ο φούρναρης ανοίγει το μαγαζί του πριν την ανατολή. Το μεσημέρι έχουν πουληθεί όλα.",
    "tr": "Fırıncı dükkânını güneş doğmadan açar. Öğleye kadar ekmeğin çoğu satılmış olur.",
    "he": "האופה פותח את חנותו לפני הזריחה. עד הצהריים כמעט כל הלחם כבר נמכר.",
    "fa": "نانوا پیش از طلوع آفتاب مغازه‌اش را باز می‌کند. تا ظهر بیشتر نان‌ها فروخته شده است.",
    "ur": "نانبائی سورج نکلنے سے پہلے اپنی دکان کھولتا ہے۔ دوپہر تک زیادہ تر روٹی بک جاتی ہے۔",
    "hi": "नानबाई सूरज निकलने से पहले अपनी दुकान खोलता है। दोपहर तक ज़्यादातर रोटी बिक जाती है।",
    "bn": "রুটিওয়ালা সূর্য ওঠার আগেই তার দোকান খোলে। দুপুরের মধ্যে প্রায় সব রুটি বিক্রি হয়ে যায়।",
    "ta": "ரொட்டிக்காரர் சூரியன் உதிக்கும் முன் தன் கடையைத் திறக்கிறார். நண்பகலில் எல்லாம் விற்றுவிடும்.",
    "te": "రొట్టెల వ్యాపారి సూర్యోదయానికి ముందే తన దుకాణం తెరుస్తాడు. మధ్యాహ్నానికి అన్నీ అమ్ముడవుతాయి.",
    "th": "คนทำขนมปังเปิดร้านก่อนพระอาทิตย์ขึ้น พอถึงเที่ยงขนมปังส่วนใหญ่ก็ขายหมดแล้ว",
    "vi": "Người thợ làm bánh mở cửa hàng trước khi mặt trời mọc. Đến trưa bánh đã bán hết.",
    "id": "Tukang roti membuka tokonya sebelum matahari terbit. Siang hari hampir semua terjual.",
    "ja": "パン屋は日の出前に店を開ける。昼までにはほとんどのパンが売り切れてしまう。",
    "zh": "面包师在日出之前就打开了店门。到了中午，大部分面包已经卖完了。",
    "ko": "빵집 주인은 해가 뜨기 전에 가게 문을 연다. 정오가 되면 빵이 거의 다 팔린다.",
}
CERTAIN = ("en", "ar", "fr", "de", "es", "ru", "zh", "ja", "hi", "tr")


def test_languages_are_told_apart() -> None:
    found = {language: detect_language(text) for language, text in SAMPLES.items()}
    right = [language for language, (label, _) in found.items() if label == language]
    assert len(SAMPLES) >= 24
    assert len(right) >= 0.95 * len(SAMPLES), {k: v for k, v in found.items() if k not in right}
    for language in CERTAIN:
        assert found[language][0] == language
        assert found[language][1] >= 0.65, found[language]


@pytest.mark.parametrize("language", ["en", "ar", "hi", "ja"])
def test_newlines_change_nothing(language: str) -> None:
    """fastText itself raises ValueError for a newline (fastText #1079)."""
    text = SAMPLES[language]
    for line_end in ("\n", "\r\n", "\u2028", "\n\n \t\n"):
        broken = text.replace(" ", line_end, 3) + line_end
        assert detect_language(broken)[0] == detect_language(text)[0] == language
    assert detect_language(text.replace(" ", "\n", 3)) == detect_language(text)


def test_the_first_thousand_characters_decide() -> None:
    english, arabic = page(1), page(1, "ar")
    assert detect_language(english[:1000]) == detect_language(english + "\n\n" + arabic * 5)
    assert detect_language(arabic + english * 5)[0] == "ar"


@pytest.mark.parametrize("text", ["", "\n \n", "12345 67890", "... --- !!!", "\u200b\u200b"])
def test_a_text_without_letters_has_no_certain_language(text: str) -> None:
    assert detect_language(text)[1] < 0.65


@given(st.text(max_size=300))
def test_any_text_gets_a_known_label_and_a_score(text: str) -> None:
    label, score = detect_language(text.encode("utf-8", "replace").decode())
    assert label == "" or label in known_languages()
    assert 0 <= score <= 1


def test_every_language_that_has_a_sample_is_known() -> None:
    assert set(SAMPLES) <= known_languages()
    assert len(known_languages()) == 176


def test_a_label_is_the_same_in_another_process() -> None:
    script = (
        "import sys; from eyas.corpus.steps.language import detect_language\n"
        "print(detect_language(sys.stdin.read()))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        input=SAMPLES["ar"].encode(),
        capture_output=True,
        check=True,
        env={"PYTHONHASHSEED": "7", "PATH": "", "PYTHONUTF8": "1"},
    )
    assert done.stdout.decode().strip() == str(detect_language(SAMPLES["ar"]))
