"""Whether a text has a predicate, as a claim does and a heading does not."""

import pytest

from airgen.generation.query_checks import wrong_type
from airgen.languages import LANGUAGES
from airgen.text.statements import states

STATEMENTS = {
    "en": [
        "Salt keeps butter fresh",
        "Moths that were caught in May lay more eggs",
        "Rust spreads faster near the sea",
    ],
    "de": ["Salz hält Butter frisch", "Rost breitet sich am Meer schneller aus", "Im Mai legten Motten mehr Eier"],
    "fr": ["Le sel conserve le beurre", "La rouille n'attaque pas le zinc", "Les papillons vivent deux semaines"],
    "es": ["La sal conserva la mantequilla", "El óxido no ataca al zinc", "Las polillas viven dos semanas"],
    "ru": ["Соль сохраняет масло свежим", "У моря ржавчина появляется быстрее", "Соль — это консервант"],
    "id": ["Garam mengawetkan mentega", "Karat tidak merusak seng"],
    "zh": ["盐可以使黄油保鲜", "锌不会生锈"],
    "ja": ["塩はバターを新鮮に保つ", "亜鉛は錆びない", "海の近くでは錆が早く広がります"],
    "ko": ["소금은 버터를 신선하게 지킨다", "아연은 녹슬지 않아요"],
    "ar": ["الملح يحفظ الزبدة", "لا يصدأ الزنك"],
    "fa": ["نمک کره را تازه نگه می‌دارد", "روی زنگ نزده است"],
    "hi": ["नमक मक्खन को ताज़ा रखता है", "जस्ते में जंग नहीं लगता"],
    "bn": ["লবণ মাখন তাজা রাখে", "দস্তায় মরিচা ধরে না"],
}
HEADINGS = {
    "en": [
        "Storage of butter with and without salt",
        "Understanding rust and its causes",
        "Metals that are safe at sea",
    ],
    "de": ["Lagerung von Butter mit und ohne Salz", "Die Ursachen von Rost am Meer"],
    "fr": ["La conservation du beurre avec ou sans sel", "Les causes de la rouille en bord de mer"],
    "es": ["La conservación de la mantequilla con o sin sal", "Las causas del óxido junto al mar"],
    "ru": ["Хранение масла с солью и без соли", "Причины ржавчины у моря"],
    "id": ["Cara menyimpan mentega dengan garam", "Penyebab karat di dekat laut"],
    "zh": ["盐对黄油保鲜的作用", "海边生锈的原因"],
    "ja": ["塩によるバターの保存", "海辺の錆の原因について", "塩と砂糖の違い"],
    "ko": ["소금을 이용한 버터의 저장", "바닷가에서 녹이 스는 원인"],
    "ar": ["طرق حفظ الزبدة بالملح", "أسباب الصدأ قرب البحر"],
    "fa": ["نگهداری کره با نمک", "علت زنگ زدن در کنار دریا"],
    "hi": ["नमक से मक्खन का भंडारण", "समुद्र के पास जंग के कारण"],
    "bn": ["লবণ দিয়ে মাখন সংরক্ষণের উপায়", "সমুদ্রের কাছে মরিচার কারণ"],
}


def test_every_language_of_the_paper_has_rules() -> None:
    assert STATEMENTS.keys() == HEADINGS.keys() == LANGUAGES.keys()
    assert states("Sale conserva il burro", "it") is None


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_statement_has_a_predicate_and_a_heading_has_none(language: str) -> None:
    for text in STATEMENTS[language]:
        assert states(text, language) is True, text
        assert wrong_type(text, "claim", language) is None, text
    for text in HEADINGS[language]:
        assert states(text, language) is False, text
        assert wrong_type(text, "claim", language), text


@pytest.mark.parametrize(
    ("language", "text"),
    [
        ("ru", "Мёд опасен для младенцев"), ("id", "Madu berbahaya bagi bayi"), ("ar", "العسل خطر على الرضع"),
        ("bn", "মধু শিশুদের জন্য বিপজ্জনক"),
    ],
)  # fmt: skip
def test_a_sentence_without_a_verb_is_no_heading(language: str, text: str) -> None:
    assert states(text, language) is not False


@pytest.mark.parametrize(
    ("language", "text"),
    [
        ("ja", "塩はバターを新鮮に保つか"), ("ko", "소금은 버터를 신선하게 지키나요"), ("ar", "هل يحفظ الملح الزبدة"),
        ("fa", "آیا نمک کره را تازه نگه می‌دارد"), ("hi", "क्या नमक मक्खन को ताज़ा रखता है"),
        ("bn", "লবণ কি মাখন তাজা রাখে"),
    ],
)  # fmt: skip
def test_a_claim_is_no_question_without_its_mark(language: str, text: str) -> None:
    assert wrong_type(text, "claim", language)
