"""Analysers: tokens, stems, stop words, and the compiled scan against the regular expression."""

import sys

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from airgen.errors import MissingExtra
from airgen.settings.languages import LANGUAGES
from airgen.text.analysis import Encoder, analyser, languages
from airgen.text.analysis.languages import porter_stem
from airgen.text.analysis.tokenizer import tokens

ENGLISH = [
    ("The quick brown foxes' tails", ["quick", "brown", "fox", "tail"]),
    ("O'Neill's U.S.A. visit, 3.5 or 1,000!", ["o'neil", "u.s.a", "visit", "3.5", "1,000"]),
    ("Dr.Smith_Jones wi-fi C++ x:y a.b.c", ["dr.smith_jon", "wi", "fi", "c", "x:y", "a.b.c"]),
    ("THE cat’s AND the dog＇S", ["cat", "dog"]),
    ("İstanbul ΣΟΦΟΣ Straße", ["istanbul", "σοφοσ", "straße"]),  # Java lowers one character at a time
    ("人々 カタカナ ひら 한국어 ไทย", ["人", "々", "カタカナ", "ひ", "ら", "한국어", "ไทย"]),
    ("👍🏽 👨‍👩‍👧 🇩🇪 ❤️ Gateway® ™", ["👍🏽", "👨‍👩‍👧", "🇩🇪", "❤️", "gatewai", "®", "™"]),
    ("___ -- ... '", []),
    ("not no a such their", []),
]


@pytest.mark.parametrize(("text", "terms"), ENGLISH)
def test_english_as_lucene(text: str, terms: list[str]) -> None:
    assert analyser("en")(text) == terms


def test_switches() -> None:
    assert analyser("en", stem=False)("The foxes ran") == ["foxes", "ran"]
    assert analyser("en", stopwords=False)("The foxes") == ["the", "fox"]
    assert analyser("en", ngram=3)("Cat") == ["_ca", "cat", "at_"]
    assert analyser("xx")("Zażółć GĘŚLĄ") == ["zażółć", "gęślą"]  # without its own rules: split and lower case
    assert analyser("zh-Hant") == analyser("zh")
    assert analyser("en").describe() == {"language": "en", "split": "uax29", "stemmer": "porter", "stopwords": 33}


@pytest.mark.parametrize(
    ("language", "text", "terms"),
    [
        ("zh", "我来到北京。好，Python3", ["我来", "来到", "到北", "北京", "好", "python3"]),
        ("ja", "東京ﾃﾞｻﾞｲﾝ", ["東京", "京デ", "デザ", "ザイ", "イン"]),  # half width is made full
        ("ko", "LG전자는 좋다", ["lg", "전자", "자는", "좋다"]),
        ("de", "Die Häuser der Straße", ["haus", "strass"]),
        ("fr", "L'homme qu’il aime", ["homm", "aim"]),
        ("es", "las casas de los niños", ["cas", "niñ"]),
        ("ru", "в новых домах ёлки", ["нов", "дом", "елк"]),
        ("ar", "والكتاب ١٩٩٠ المدرسة", ["كتاب", "1990", "مدرس"]),
        ("fa", "كتاب‌های ایران", ["کتاب", "ایر"]),  # Arabic kaf is made Persian
        ("hi", "लड़कियाँ", ["लडक"]),
        ("bn", "ছেলেদের বই", ["ছেল", "বই"]),
        ("id", "dia membacakan buku", ["baca", "buku"]),
    ],
)
def test_other_languages(language: str, text: str, terms: list[str]) -> None:
    assert analyser(language)(text) == terms


def test_segmented_words_instead_of_bigrams() -> None:
    pytest.importorskip("rjieba")
    analyse = analyser("zh", segment=True)
    assert analyse("我来到北京清华大学。") == ["我", "来到", "北京", "清华大学"]
    assert analyse.describe()["split"] == "words:rjieba"
    terms, lengths = Encoder(analyse, compiled=True).encode(["清华大学", "我 清华大学"])  # the scan cannot segment
    assert terms.tolist() == [0, 1, 0]
    assert lengths.tolist() == [1, 2]


def test_stop_words_survive_normalisation() -> None:
    """Arabic and Persian lists are folded as the text is, or they would never match."""
    assert analyser("ar")("إلى على") == []
    assert analyser("fa")("كه اين") == []


@pytest.mark.parametrize("language", sorted(LANGUAGES))
def test_every_language_keeps_query_and_passage_together(language: str) -> None:
    analyse = analyser(language)
    text = "Größe kitab 東京都 학교에서 книги المدارس कहानियाँ বইগুলো livres casas"
    assert analyse(text) == analyse(text)
    assert len(analyse(text)) >= 8


def test_missing_stemmer_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "Stemmer", None)
    languages.chain.cache_clear()
    with pytest.raises(MissingExtra, match="PyStemmer"):
        analyser("sv")
    assert analyser("sv", stem=False)("Husen") == ["husen"]
    languages.chain.cache_clear()


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        # The examples of Porter's paper, step by step, as the whole algorithm leaves them.
        *[("caresses", "caress"), ("ponies", "poni"), ("ties", "ti"), ("cats", "cat"), ("feed", "feed")],
        *[("agreed", "agre"), ("plastered", "plaster"), ("bled", "bled"), ("motoring", "motor"), ("sing", "sing")],
        *[("conflated", "conflat"), ("troubled", "troubl"), ("sized", "size"), ("hopping", "hop")],
        *[("falling", "fall"), ("hissing", "hiss"), ("failing", "fail"), ("filing", "file"), ("happy", "happi")],
        *[("relational", "relat"), ("rational", "ration"), ("vietnamization", "vietnam"), ("sky", "sky")],
        *[("electriciti", "electr"), ("hopefulness", "hope"), ("adjustment", "adjust"), ("adoption", "adopt")],
        *[("probate", "probat"), ("rate", "rate"), ("cease", "ceas"), ("controll", "control"), ("roll", "roll")],
        *[("archaeology", "archaeolog"), ("possibly", "possibl"), ("as", "as"), ("syzygies", "syzygi"), ("", "")],
    ],
)
def test_porter_examples(word: str, expected: str) -> None:
    assert porter_stem(word) == expected


ENDINGS = ["ational", "logi", "bli", "ed", "ing", "eed", "sses", "ies", "ement", "ion", "ll", "iviti"]


@settings(max_examples=200)
@given(st.lists(st.sampled_from([*"abceilnostuyz1_é", *ENDINGS]), max_size=6).map("".join))
def test_porter_equals_its_authors_version(word: str) -> None:
    oracle = pytest.importorskip("nltk.stem.porter").PorterStemmer(mode="MARTIN_EXTENSIONS")
    assert porter_stem(word) == oracle.stem(word, to_lowercase=False)


ALPHABET = "aB1_.,:;'’ -́‍️人ひカー한ไทا\U0001f600\U0001f468\U0001f469❤©\U0001f1e9\U0001f1ea\n\U00010400"


@settings(max_examples=150)
@given(
    st.lists(st.text(st.one_of(st.sampled_from(ALPHABET), st.characters()), max_size=40), max_size=6),
    st.sampled_from(["en", "zh", "hi"]),
)
@example(["a" * 1000, "'" + "é" * 300 + ".b"], "en")
@example(["\ud800a\udfff", "", "𠮷野家"], "zh")
def test_compiled_scan_equals_regular_expression(texts: list[str], language: str) -> None:
    pytest.importorskip("numba")
    analyse = analyser(language)
    fast, slow = Encoder(analyse, compiled=True), Encoder(analyse, compiled=False)
    for part in (texts, texts[::-1]):  # the second time most tokens are known
        for mine, other in zip(fast.encode(part), slow.encode(part), strict=True):
            np.testing.assert_array_equal(mine, other)
    assert fast.vocabulary == slow.vocabulary
    names = list(slow.vocabulary)
    terms, lengths = slow.encode(texts)
    assert [names[term] for term in terms] == [term for text in texts for term in analyse(text)]
    assert lengths.sum() == len(terms)


@pytest.mark.parametrize("step", [16, pytest.param(1, marks=pytest.mark.nightly)])
def test_every_code_point_has_one_class_in_both_ways(step: int) -> None:
    pytest.importorskip("numba")
    alike = {*range(0x3400, 0xA000), *range(0xAC00, 0xD7A4), *range(0x10000, 0x1F000)}
    some = [code for code in range(0x20000) if code % step == 0 or code not in alike]
    points = [code for code in some if not 0xD800 <= code < 0xE000]
    texts = [f"a{one}b {one} {one}\ufe0f 1{one}2" for one in map(chr, points)]
    analyse = analyser("xx")
    fast, slow = Encoder(analyse, compiled=True), Encoder(analyse, compiled=False)
    np.testing.assert_array_equal(fast.encode(texts)[0], slow.encode(texts)[0])


def test_scan_grows_its_table() -> None:
    pytest.importorskip("numba")
    words = [f"w{number}x{number % 7}" for number in range(60_500)]
    texts = [" ".join(words[start : start + 500]) for start in range(0, 60_000, 400)]
    encoder = Encoder(analyser("en"), compiled=True)
    terms, _ = encoder.encode(texts)
    names = list(encoder.vocabulary)
    assert [names[term] for term in terms] == [word for text in texts for word in text.split()]


def test_long_tokens_are_cut() -> None:
    assert [len(token) for token in tokens("é" * 600, False)] == [255, 255, 90]
