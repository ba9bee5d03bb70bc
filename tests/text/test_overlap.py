"""The overlap of a query with the passages that answer it: worked examples, languages, properties."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airgen.text.overlap import content_terms, overlap

WORDS = st.lists(st.sampled_from(["wing", "bends", "load", "fatigue", "rivet", "skin"]), min_size=1, max_size=6)


def test_a_worked_example() -> None:
    query = "Why does the Boeing wing of 1954 bend?"  # content: boeing, wing, 1954, bend
    passages = [("Wings", "The wing of a Boeing bends under load."), ("", "Rivets fail. Wings bend.")]
    measured = overlap(query, passages, "en")
    assert measured is not None
    assert measured.best == pytest.approx(3 / 4)  # all but 1954
    assert measured.mean == pytest.approx((3 / 4 + 2 / 4) / 2)
    assert measured.named == pytest.approx(1 / 4)  # Boeing
    assert measured.title == pytest.approx(1 / 4)  # wings


def test_function_words_and_question_words_do_not_count() -> None:
    assert content_terms("what is the use of it for us", "en") == content_terms("use", "en")
    assert overlap("what is it", ["it is what it is"], "en") is None
    assert overlap("wing", [], "en") is None


def test_a_number_is_a_name_and_a_word_that_is_also_written_small_is_not() -> None:
    text = "Engines need oil. In 1990 the Engines were changed, as engines are."
    measured = overlap("engines 1990", [text], "en")
    assert measured is not None and measured.best == 1 and measured.named == pytest.approx(1 / 2)


@pytest.mark.parametrize(
    ("language", "query", "passage", "share"),
    [
        ("zh", "飞机的机翼", "机翼很长", 2 / 3),  # 飞 机 翼, without 的
        ("ja", "エンジンの温度は", "温度を測る", 2 / 5),  # エ ン ジ 温 度
        ("de", "Warum rosten Tragflächen?", "Die Tragfläche rostet.", 1.0),
        ("fr", "comment sont les ailes", "L'aile plie sous la charge.", 1.0),
        ("ru", "почему гнутся крылья", "Крыло гнётся под нагрузкой.", 1 / 2),
        ("ar", "ما هي الأجنحة", "الأجنحة طويلة", 1.0),
    ],
)
def test_languages(language: str, query: str, passage: str, share: float) -> None:
    measured = overlap(query, [passage], language)
    assert measured is not None
    assert measured.best == pytest.approx(share)


@given(WORDS, st.lists(WORDS, min_size=1, max_size=4), WORDS)
def test_more_passages_never_lower_the_best(query: list[str], passages: list[list[str]], one_more: list[str]) -> None:
    texts = [" ".join(words) for words in passages]
    before, after = (overlap(" ".join(query), each, "en") for each in (texts, [*texts, " ".join(one_more)]))
    assert before is not None and after is not None
    assert 0 <= before.mean <= before.best <= after.best <= 1
    whole = overlap(" ".join(query), [" ".join(query)], "en")
    assert whole is not None and whole.best == whole.mean == 1
