"""Whether a text asks, is a list of keywords, or is told in the first person."""

import pytest

from airgen.text.query_form import answer_line, as_keywords, asks, asks_somewhere, in_first_person, is_keywords


@pytest.mark.parametrize(
    ("language", "text"),
    [
        ("en", "how long do bees live"), ("en", "Is honey safe for babies"), ("en", "honey safe for babies?"),
        ("en", "what's in royal jelly"), ("de", "wie lange leben Bienen"), ("de", "darf man Bienen füttern"),
        ("fr", "combien de temps vit une abeille"), ("es", "cuánto vive una abeja"), ("id", "berapa lama lebah hidup"),
        ("ru", "сколько живёт пчела"), ("zh", "蜜蜂能活多久"), ("zh", "蜂蜜可以给婴儿吃吗"),
        ("ko", "꿀벌은 얼마나 사나요?"),
    ],
)  # fmt: skip
def test_questions(language: str, text: str) -> None:
    assert asks(text, language) is True
    assert not is_keywords(text, language)


@pytest.mark.parametrize(
    ("language", "text"),
    [
        ("en", "bee life span"), ("en", "When fed with syrup, bees live longer"), ("en", "Bees live for six weeks"),
        ("de", "Lebensdauer Bienen Winter"), ("zh", "蜜蜂 寿命"), ("ru", "срок жизни пчелы"),
    ],
)  # fmt: skip
def test_no_questions(language: str, text: str) -> None:
    assert asks(text, language) is False


def test_a_question_word_may_stand_later() -> None:
    assert asks("in a top bar hive how do I feed bees", "en") is False
    assert asks_somewhere("in a top bar hive how do I feed bees", "en") is True
    assert asks_somewhere("top bar hive feeding", "en") is False


def test_a_language_without_known_words_is_not_judged() -> None:
    assert asks("jinsi ya kulisha nyuki", "sw") is None
    assert asks("꿀벌 수명", "ko") is None


def test_keywords_and_first_person() -> None:
    assert is_keywords("bee feeding syrup winter", "en")
    assert not is_keywords("Feed your bees syrup before the winter comes, and again in spring.", "en")
    assert not is_keywords("my bees died", "en")
    assert in_first_person("I’ve lost a swarm", "en") and in_first_person("我的蜜蜂不见了", "zh")
    assert not in_first_person("lost a swarm", "en")


@pytest.mark.parametrize(
    ("question", "language", "keywords"),
    [
        ("How does a kiln crack?", "en", "kiln crack"),
        ("what does the strip() method of str.join do", "en", "strip() method str.join"),
        ("how does a bimetal strip work?", "en", "bimetal strip"),
        ("What's the boiling point of 5-FU, at sea level?", "en", "boiling point 5-FU sea level"),
        ("wer war schuld am Brand der Mühle?", "de", "schuld Brand Mühle"),
        ("谁建了这座桥", "zh", ""),
        ("what is it?", "en", ""),
    ],
)
def test_keywords_of_a_question(question: str, language: str, keywords: str) -> None:
    assert as_keywords(question, language) == keywords


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (" visceral \n amyloidosis  treatment}", "visceral amyloidosis treatment"),
        ("how do bees make honey ]}", "how do bees make honey"),
        ("what does {0} in a format string mean, as in {1}", "what does {0} in a format string mean, as in {1}"),
        ("numpy slice a[1:2]", "numpy slice a[1:2]"),
        ("}", ""),
    ],
)
def test_a_line_without_the_end_of_the_models_json(text: str, line: str) -> None:
    assert answer_line(text) == line
