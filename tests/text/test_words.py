"""Words in every language."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airgen.text import words as text_module
from airgen.text.words import count_words, segmenter, words


@pytest.mark.parametrize(
    ("language", "text", "expected"),
    [
        ("en", "Don't pay $3.50, or 1,000!", ["Don't", "pay", "3.50", "or", "1,000"]),
        ("en", "U.S.A. foo_bar's __init__ ___ :-)", ["U.S.A", "foo_bar's", "__init__"]),
        ("de", "Geht's? Zähl' 2:1", ["Geht's", "Zähl", "2", "1"]),
        ("hi", "मैं घर जा रहा हूँ।", ["मैं", "घर", "जा", "रहा", "हूँ"]),
        ("bn", "আমি ভাত খাই।", ["আমি", "ভাত", "খাই"]),
        ("ar", "هل أنت بخير؟", ["هل", "أنت", "بخير"]),
        ("fa", "می‌خواهم بروم", ["می‌خواهم", "بروم"]),  # the zero-width non-joiner is inside a word
        ("ko", "나는 학교에 간다.", ["나는", "학교에", "간다"]),
        ("ru", "Что-то не так?", ["Что", "то", "не", "так"]),
        ("en", "", []),
        ("en", " \n!?", []),
    ],
)
def test_words_of_languages_with_spaces(language: str, text: str, expected: list[str]) -> None:
    assert words(text, language) == expected
    assert count_words(text, language) == len(expected)


def test_rough_words_where_no_segmenter_is_installed() -> None:
    rough = text_module._rough
    assert rough("我来到北京清华，用Python3。") == ["我来", "到北", "京清", "华", "用", "Python3"]
    assert rough("コンピューターが好き") == ["コンピューター", "が", "好", "き"]


def test_chinese_and_japanese_are_segmented() -> None:
    pytest.importorskip("rjieba")
    assert segmenter("zh") == "rjieba"
    assert words("我来到北京清华大学。", "zh") == ["我", "来到", "北京", "清华大学"]
    pytest.importorskip("fugashi")
    assert words("東京都に住む。", "ja") == ["東京", "都", "に", "住む"]


@given(st.text(max_size=80))
def test_words_are_in_the_text_in_order(text: str) -> None:
    start = 0
    for word in words(text, "en"):
        start = text.index(word, start) + len(word)
    assert bool(words(text, "en")) >= any(letter in "abcABC123" for letter in text)  # text with a letter has words
