"""Languages and references to the document, in all 13 languages."""

import json
import os
from pathlib import Path

import pytest

from airgen.generation.query_checks import wrong_length
from airgen.settings.languages import LANGUAGES
from airgen.text.language_check import self_reference, wrong_language

# One information need in each language, written for this test.
QUERIES = {
    "ar": "كيف يصنع النحل العسل في الخلية وما هي المواد التي يأخذها من الأزهار؟",
    "bn": "মৌমাছি কীভাবে মধু তৈরি করে?",
    "de": "Wie machen die Bienen im Stock den Honig?",
    "en": "How do the bees make honey in a hive?",
    "es": "¿Cómo hacen las abejas la miel en la colmena y por qué no se la comen los osos?",
    "fa": "زنبورها چگونه در کندو عسل را می‌سازند؟",
    "fr": "Comment les abeilles font-elles le miel dans la ruche ?",
    "hi": "मधुमक्खियाँ छत्ते में शहद कैसे बनाती हैं?",
    "id": "Bagaimana lebah membuat madu di dalam sarang dan untuk apa?",
    "ja": "ミツバチはどのように蜂蜜を作りますか",
    "ko": "꿀벌은 벌집에서 어떻게 꿀을 만드나요?",
    "ru": "Как пчёлы делают мёд в улье?",
    "zh": "蜜蜂在蜂巢里是怎样酿造蜂蜜的",
}
# The same with "this document" in it.
REFERENCES = {
    "ar": "كيف يصنع النحل العسل حسب النص؟",
    "bn": "এই নিবন্ধ অনুযায়ী মৌমাছি কীভাবে মধু তৈরি করে?",
    "de": "Wie machen laut diesem Text die Bienen Honig? Was sagt dieser Text?",
    "en": "How do bees make honey according to the article?",
    "es": "¿Cómo hacen las abejas la miel según el texto?",
    "fa": "طبق متن زنبورها چگونه عسل می‌سازند؟",
    "fr": "Comment, selon le texte, les abeilles font-elles le miel ?",
    "hi": "इस लेख में मधुमक्खियाँ शहद कैसे बनाती हैं?",
    "id": "Menurut teks, bagaimana lebah membuat madu?",
    "ja": "この文書によると、ミツバチはどのように蜂蜜を作りますか",
    "ko": "이 글에 따르면 꿀벌은 어떻게 꿀을 만드나요?",
    "ru": "Как пчёлы делают мёд согласно тексту?",
    "zh": "根据文章，蜜蜂怎样酿造蜂蜜",
}


def test_every_language_has_its_sentences() -> None:
    assert sorted(QUERIES) == sorted(REFERENCES) == sorted(LANGUAGES)


@pytest.mark.parametrize("declared", LANGUAGES)
def test_a_sentence_is_told_from_those_of_all_other_languages(declared: str) -> None:
    assert wrong_language(QUERIES[declared], declared) is None
    for other in set(LANGUAGES) - {declared}:
        assert wrong_language(QUERIES[other], declared), f"{other} passes for {declared}"


@pytest.mark.parametrize(
    ("text", "language"),
    [
        ("Python の例外処理", "ja"),
        ("東京大学", "ja"),  # a name needs no kana
        ("Internet2是什么", "zh"),
        ("Энергия и Engineering News-Record", "ru"),
        ("Kapan novel We Need to Talk dirilis, di mana?", "id"),  # a foreign title
        ("bpo-1234 asyncio TaskGroup", "en"),
        ("die hard", "en"),
        ("was ist ein goto", "de"),
        ("3.5", "en"),
    ],
)
def test_names_titles_and_keywords_are_let_through(text: str, language: str) -> None:
    found = wrong_language(text, language)
    assert found is None or (text == "3.5" and found == "it has no letters")


@pytest.mark.parametrize("language", LANGUAGES)
def test_references_to_the_document_are_found_in_every_language(language: str) -> None:
    assert self_reference(QUERIES[language]) is None
    assert "it says" in (self_reference(REFERENCES[language]) or "")


@pytest.mark.parametrize(
    "text",
    ["日本文化の歴史", "日本文学とは", "Artikel 5 des Grundgesetzes", "le texte de la loi", "el texto de la ley",
     "чем пахнет документ", "how do I document this", "본문 글꼴 크기", "which article of the act"],
)  # fmt: skip
def test_words_that_only_look_like_a_reference(text: str) -> None:
    assert self_reference(text) is None


@pytest.mark.parametrize(
    ("text", "language", "words"),
    [
        ("蜜蜂怎样酿造蜂蜜", "zh", 4),
        ("ミツバチは蜂蜜を作る", "ja", 5),
        ("꿀벌은 어떻게 꿀을 만드나요", "ko", 4),
        ("कितना पुराना है", "hi", 3),
    ],
)
def test_length_classes_count_words_where_there_are_no_spaces(text: str, language: str, words: int) -> None:
    assert (wrong_length(text, "lt5", language) is None) == (words < 5)
    assert wrong_length(text, "lt10", language) is None
    problem = wrong_length(text, "ge20", language)
    assert problem is not None and f"it has {words} words" in problem.text


def test_with_the_document_one_foreign_function_word_is_enough() -> None:
    document = "Die Tyne and Wear Metro ist ein Bahnsystem im Nordosten Englands."
    for text in ("Economic inequality by consumption savings", "prime number check for large integers"):
        assert wrong_language(text, "de") is None
        assert wrong_language(text, "de", document)
    assert wrong_language("Tyne and Wear Metro verstehen lernen", "de", document) is None  # a name of the document's
    assert wrong_language("Kim Jong-un Geburtsort Eltern Kinder", "de", document) is None  # "un" is a name's part
    assert wrong_language("Tyne and Wear Metro verstehen lernen", "de", "Tyne_and_Wear_Metro") is None  # a wiki's title
    assert wrong_language("Fahrplan for Metro heute", "de", document) is None  # four words say little
    assert wrong_language("Wann fährt die letzte Metro for London", "de", document) is None  # it has words of its own


def _collections() -> list[tuple[str, str]]:
    folder = Path(os.environ.get("AIRGEN_SHARED") or Path(__file__).parents[3] / "shared") / "collections"
    known = {"piaf-fr": "fr", "pquad-fa": "fa", "tydiqa-id": "id", "scifact": "en", "cranfield": "en"}
    known |= {f"xquad-{code}": code for code in ("ar", "de", "en", "es", "hi", "ru", "zh")}
    return [(str(folder / name), code) for name, code in sorted(known.items()) if (folder / name).is_dir()]


def test_hardly_any_query_of_a_person_raises_an_alarm() -> None:
    found = _collections()
    if not found:
        pytest.skip("set AIRGEN_SHARED to a folder with collections/")
    alarms = total = 0
    for folder, language in found:
        lines = (Path(folder) / "queries.jsonl").read_text(encoding="utf-8").splitlines()[::4]
        texts = [json.loads(line)["text"] for line in lines]
        total += len(texts)
        alarms += sum(bool(wrong_language(text, language) or self_reference(text)) for text in texts)
    assert total > 1000 and alarms / total < 0.002
