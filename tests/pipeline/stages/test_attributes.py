from __future__ import annotations

import re
from collections import Counter

import pytest

from airgen.pipeline.stages.attributes import draw, form_pattern, query_attributes, run_together, wrong_type
from airgen.settings import GenerationSettings, Pipeline
from airgen.settings.base import parse_yaml

# 99.9 % quantiles of the chi-squared distribution, by degrees of freedom.
CRITICAL = {1: 10.83, 2: 13.82, 3: 16.27, 6: 22.46}


def chi_squared(counts: Counter[str], ratios: dict[str, float]) -> float:
    total, whole = sum(counts.values()), sum(ratios.values())
    return sum((counts[name] - total * ratio / whole) ** 2 / (total * ratio / whole) for name, ratio in ratios.items())


@pytest.mark.parametrize("name", ["lengths", "types", "information", "styles"])
def test_ten_thousand_draws_keep_the_papers_ratios(name: str) -> None:
    ratios: dict[str, float] = getattr(GenerationSettings(), name)
    counts = Counter(draw(ratios, f"item-{number}", name) for number in range(10_000))
    assert chi_squared(counts, ratios) < CRITICAL[len(ratios) - 1]


def test_the_joint_draw_keeps_types_and_the_lengths_of_what_is_not_a_claim() -> None:
    settings = GenerationSettings()
    drawn = [query_attributes(settings, f"item-{number}") for number in range(10_000)]
    assert chi_squared(Counter(kind for _, kind, _ in drawn), settings.types) < CRITICAL[2]
    free = Counter(length for length, kind, _ in drawn if kind != "claim")
    assert chi_squared(free, settings.lengths) < CRITICAL[3]
    claims = Counter(length for length, kind, _ in drawn if kind == "claim")
    assert set(claims) == {"10to20", "ge20"}  # a short claim is ambiguous (A.2.1)
    assert chi_squared(claims, {"10to20": 2, "ge20": 1}) < CRITICAL[1]


def test_a_draw_depends_on_its_key_alone() -> None:
    settings = GenerationSettings()
    once = [query_attributes(settings, f"k{number}") for number in range(50)]
    assert once == [query_attributes(settings, f"k{number}") for number in range(50)]
    assert len(set(once)) > 10


def test_long_doc_draws_no_problem() -> None:
    text = "name: a\ntask: long-doc\ncorpus: c\ntarget: 1\nllm: {backend: scripted}\n"
    settings = parse_yaml(text, Pipeline).generation
    assert {query_attributes(settings, f"k{number}")[1] for number in range(500)} == {"question", "claim"}


def test_a_ratio_of_zero_is_never_drawn() -> None:
    assert {draw({"a": 0, "b": 1}, number) for number in range(200)} == {"b"}


@pytest.mark.parametrize(
    ("length", "kind", "language", "text", "fits"),
    [
        ("lt10", "question", "en", "what is pdb.set_trace() used for, and when", True),
        ("lt10", "question", "en", "how long is 3.5 inches?", True),
        ("lt10", "question", "en", "why", False),  # one word is hardly a query
        ("lt10", "question", "en", "What is it? Is it so?", False),  # two sentences
        ("lt10", "question", "en", "a b c d e f g h i j", False),
        ("lt10", "question", "en", "definition of 字符串 here", False),
        ("10to20", "question", "en", "is it safe to fly two days after", False),
        ("10to20", "claim", "en", "A tenant must always pay for a broken window, even if a guest broke it.", True),
        ("10to20", "claim", "en", "What is the purpose of the import statement, and when is it used.", False),
        ("10to20", "problem", "en", "I cannot import a module that stands in another folder of mine", True),
        ("10to20", "problem", "en", "The module that stands in another folder of mine cannot be imported", False),
        ("10to20", "problem", "en", "I cannot import a module that stands in another folder, can I?", False),
        ("lt10", "question", "ru", "как долго хранить сваренные яйца?", True),
        ("lt10", "question", "ar", "كم من الوقت يمكن حفظ البيض المسلوق؟", True),
        ("lt10", "question", "en", "how much is 0." + "6180339887" * 4 + " of it", False),  # digits without end
        ("lt10", "question", "en", "what does pdb.set_trace.do in a.b.c.d mean", True),
        ("lt10", "question", "ru", "how long do boiled eggs keep", False),  # English from the first word on
        ("lt10", "question", "ar", "how long do boiled eggs keep", False),
        ("lt10", "question", "hi", "उबले अंडे फ़्रिज में कितने दिन चलते हैं?", True),
        ("lt10", "question", "hi", "how long do boiled eggs keep", False),
        ("lt10", "question", "ko", "파이썬에서 import 문은 언제 쓰나", True),
        ("lt10", "question", "fa", "تخم‌مرغ آب‌پز چند روز می‌ماند؟", True),
        ("lt10", "question", "zh", "煮鸡蛋为什么会发绿？", True),
        ("lt10", "question", "zh", "5G网络是什么时候开始的", True),
        ("lt10", "question", "zh", "how long do boiled eggs keep", False),
        ("lt10", "question", "zh", "what部件组成蒸汽涡轮？", False),
        ("lt10", "question", "zh", "20世纪70年代的理论说不平等对经济发展可能有怎样的积极影响", False),
        ("10to20", "claim", "zh", "得过这种病的人，比只打过疫苗的人受保护的时间更长。", True),
        ("10to20", "claim", "zh", "熟鸡蛋更容易坏。", False),
        ("lt10", "question", "ja", "ゆで卵はなぜ緑になるのか", True),
        ("lt10", "question", "ja", "why do eggs turn green", False),
        ("ge20", "claim", "de", "Ein Mieter muss " + "immer " * 17 + "zahlen.", True),
    ],
)
def test_the_pattern_of_a_query(length: str, kind: str, language: str, text: str, fits: bool) -> None:
    pattern = form_pattern(length, kind, language)
    assert pattern is not None
    assert bool(re.search(pattern, text)) is fits


def test_thai_has_no_pattern() -> None:
    assert form_pattern("lt10", "question", "th") is None


@pytest.mark.parametrize(
    ("text", "kind", "wrong"),
    [
        ("is this so?", "question", False),
        ("is this so?", "claim", True),
        ("这是真的吗？", "problem", True),
        ('they ask "why?"', "claim", True),
        ("I do not know why.", "problem", False),
    ],
)
def test_only_a_question_is_a_question(text: str, kind: str, wrong: bool) -> None:
    assert (wrong_type(text, kind) is not None) is wrong


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("how do you change an object's state inside afunction", True),  # a + function
        ("how is the class object given to the classdecorators", True),  # both words are in the document
        ("how is the class object passed to a decorator", False),  # whole words
        ("when is a class object put in its namespace", False),  # the document has that word
        ("I asked my friend about the class object, andMore", True),
        ("how are a class object its namespace and classobjectfunctionoflist", True),
        ("what is the difference between a class object and_pull", True),  # joined by a sign
        ("what steps do check a class object and the.functionegrity", True),
        ("how do I ask a function for the object.name", False),  # the document has it
        ("what do decorators do in a function that isn't", False),  # a contraction
        ("object inside afunction", False),  # shorter than the class allows: the model ended by itself
    ],
)
def test_words_run_together_at_the_end(text: str, wrong: bool) -> None:
    document = "A class decorators list, a function, the class object and its local namespace; name, space: object.name"
    assert (run_together(text, "lt10", "en", document) is not None) is wrong
