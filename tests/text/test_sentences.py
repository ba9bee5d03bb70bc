"""Sentences in every language."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airgen.settings.languages import LANGUAGES
from airgen.text.sentences import sentences


@pytest.mark.parametrize(
    ("language", "text", "expected"),
    [
        (
            "en",
            'Dr. J. Smith paid 3.50. "Yes." See e.g. fig. 2!',
            ["Dr. J. Smith paid 3.50.", '"Yes."', "See e.g. fig. 2!"],
        ),
        ("en", "No stop\n\nNext one", ["No stop", "Next one"]),
        ("zh", "他说：“好！”然后走了。结束", ["他说：“好！”", "然后走了。", "结束"]),
        ("ja", "「はい。」と言った。", ["「はい。」", "と言った。"]),
        ("hi", "मैं घर हूँ। तुम?", ["मैं घर हूँ।", "तुम?"]),
        ("ar", "هل أنت بخير؟ نعم. شكرا", ["هل أنت بخير؟", "نعم.", "شكرا"]),
        ("de", "Das war z.B. Dr. Müller. Gut.", ["Das war z.B. Dr. Müller.", "Gut."]),
        ("ru", "Это было в 1990 г. в Москве. Да.", ["Это было в 1990 г. в Москве.", "Да."]),
        ("en", " \n", []),
    ],
)
def test_sentences(language: str, text: str, expected: list[str]) -> None:
    assert sentences(text, language) == expected


@given(st.text(alphabet=st.sampled_from("aB1 .!?…。！؟।”)\n'_é"), max_size=60), st.sampled_from(sorted(LANGUAGES)))
def test_sentences_lose_no_visible_character(text: str, language: str) -> None:
    found = sentences(text, language)
    assert "".join("".join(found).split()) == "".join(text.split())
    assert all(sentence == sentence.strip() and sentence for sentence in found)
