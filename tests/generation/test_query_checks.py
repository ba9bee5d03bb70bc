"""The checks of an answer, attributes that are drawn by key, and rewriting."""

import dataclasses
import json
import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from stage_world import World

from airgen.generation import rewrite
from airgen.generation.attributes import draw, length_text, lengths_of, query_attributes
from airgen.generation.query_checks import (
    copied,
    duplicates,
    longest_common_run,
    names_character,
    off_subject,
    overlap,
    repeats_itself,
    run_together,
    self_reference,
    wrong_length,
    wrong_type,
)
from airgen.generation.query_pattern import form_pattern
from airgen.llms.prompts import PromptSet
from airgen.settings import GenerationSettings, Pipeline
from airgen.settings.base import parse_yaml
from airgen.storage.records import Query, Rewrite, Skip

WORDS = st.lists(st.sampled_from(["a", "b", "c", "d"]), max_size=12)


@pytest.mark.parametrize(
    ("count", "fits"), [(0, ""), (4, "lt5 lt10"), (5, "lt10"), (9, "lt10"), (10, "10to20"), (19, "10to20"),
                        (20, "10to20 ge20"), (21, "ge20")],
)  # fmt: skip
def test_length_classes_at_their_edges(count: int, fits: str) -> None:
    classes = ("lt5", "lt10", "10to20", "ge20")
    assert [name for name in classes if wrong_length("w " * count, name, "en") is None] == fits.split()


@pytest.mark.parametrize(
    ("text", "length", "language", "fits"),
    [
        ("COVID-19 e-mail", "lt5", "en", True),
        ("state-of-the-art COVID-19 TCP/IP e-mail", "lt5", "en", True),  # eleven words by Unicode's rules
        ("is COVID-19 worse than the flu", "lt5", "en", False),
        ("日本のA320の運航が止まった理由", "lt10", "ja", True),  # 17 characters
        ("东京", "lt5", "zh", True),
        ("为什么街道上的路灯会影响树篱里毛毛虫的数量以及它们成年之后的活动", "lt10", "zh", False),
    ],
)
def test_lengths_are_counted_as_people_count(text: str, length: str, language: str, fits: bool) -> None:
    assert (wrong_length(text, length, language) is None) == fits


def test_a_length_is_told_in_characters_where_words_have_no_spaces() -> None:
    told = {name: length_text(name, "ja") for name in ("lt5", "lt10", "10to20", "ge20")}
    assert told["lt5"] == "at most 4 words (8 characters)"
    assert told["10to20"] == "between 10 and 20 words (20 to 40 characters)"
    assert length_text("lt10", "de") == "fewer than 10 words"


@pytest.mark.parametrize(
    ("found", "text"),
    [(True, text) for text in (
        "what does the document say of bees", "according to the text, who won", "This passage is about bees",
        "the author of the theory", "how often does it appear in the character's description",
        "rules in the provided documentation", "what results are expected in this scenario",
        "what is the study's purpose?", "what does the report describe about flutter", "what did the authors use",
        "what does the character ask about autism",
    )] + [(False, text) for text in (
        "how do I document my code", "text classification methods", "which passage leads to the tomb",
        "section 12 of the act", "which dash is the character U+2013", "how does the report generator work",
        "the worst climate scenario for wheat",
    )],
)  # fmt: skip
def test_references_to_the_document(found: bool, text: str) -> None:
    assert (self_reference(text) is not None) == found


@given(WORDS, WORDS)
def test_longest_common_run_against_brute_force(left: list[str], right: list[str]) -> None:
    def runs(words: list[str]) -> set[tuple[str, ...]]:
        return {tuple(words[i:j]) for i in range(len(words)) for j in range(i + 1, len(words) + 1)}

    expected = max((len(run) for run in runs(left) & runs(right)), default=0)
    assert len(longest_common_run(left, right)) == expected == len(longest_common_run(right, left))


def test_copies_overlap_and_duplicates_by_hand() -> None:
    document = "The quick brown fox jumps over the lazy dog near the river bank."
    assert copied("why does the quick brown fox jump", document, "en", 4) is None
    problem = copied("The QUICK brown fox jumps high", document, "en", 4)
    assert problem is not None and "5 words in a row" in problem.text
    assert overlap("bees bees honey frost", "Honey is made by bees.", "en") == pytest.approx(2 / 3)
    assert overlap("", "anything", "en") == 0.0
    assert duplicates("How do bees make honey?", "how do bees make honey", "en")
    assert not duplicates("how do bees make honey", "how do wasps build nests", "en")
    assert not duplicates("", "", "en")


DECORATORS = "A class decorators list, a function, the class object and its local namespace; name, space: object.name"
CHECKS: dict[str, tuple[Callable[[str], object], list[str], list[str]]] = {
    "an original query names something of its subject": (
        lambda query: off_subject(query, "Bees die of frost.", "A keeper prepares for winter.", "keeper", "en"),
        ["why do bees die", "what should a keeper do in winter"],  # of the document, of the scenario
        # Who asks is no subject; nothing but function words.
        ["I don't understand what keepers do", "I can't find my favourite book", "what is it", "warum sterben Bienen"],
    ),
    "a query does not speak of its character": (
        lambda query: names_character(query, "engineers"),
        ["why might designers consider stiffness", "what are the engineering standards"],
        ["what does the engineer need to know", "what is in the engineer's report"],
    ),
    "whose name has two words, or none": (
        lambda query: names_character(query, "Jet engineer") or names_character(query, ""),
        ["what is it", "what did the jet observe"],
        ["what did the jet engineer observe?"],
    ),
    "a query does not run in circles": (
        lambda query: repeats_itself(query, "en"),
        # A song is too short to tell.
        ["is the tax on the sale of a house the tax of the year of the sale", "New York, New York", "la la la la la"],
        [
            "what are the signs and symptoms signs symptoms signs symptoms signs symptoms",  # a 1.5B model's
            "vaccine vaccine for dogs for dogs vaccine for cats dogs",  # only four of ten words are different
        ],
    ),
    "only a question is a question": (
        lambda text: wrong_type(text, "claim") or wrong_type(text, "problem"),
        ["I do not know why."],
        ["is this so?", "这是真的吗？", 'they ask "why?"'],
    ),
    "no words run together at the end": (
        lambda text: run_together(text, "lt10", "en", DECORATORS),
        [
            "how is the class object passed to a decorator",  # whole words
            "when is a class object put in its namespace",  # the document has that word
            "how do I ask a function for the object.name",  # and this
            "what do decorators do in a function that isn't",  # a contraction
            "object inside afunction",  # shorter than the class allows: the model ended by itself
        ],
        [
            "how do you change an object's state inside afunction",  # a + function
            "how is the class object given to the classdecorators",  # both words are in the document
            "I asked my friend about the class object, andMore",
            "how are a class object its namespace and classobjectfunctionoflist",
            "what is the difference between a class object and_pull",  # joined by a sign
            "what steps do check a class object and the.functionegrity",
        ],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CHECKS)
def test_texts_that_pass_and_texts_that_do_not(name: str) -> None:
    check, good, bad = CHECKS[name]
    assert [text for text in good if check(text) is not None] == []
    assert [text for text in bad if check(text) is None] == []


# -- attributes -------------------------------------------------------------------------------------------------------


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


def test_the_joint_draw_keeps_the_ratios_of_types_and_of_the_lengths_of_all_queries() -> None:
    settings = GenerationSettings()
    drawn = [query_attributes(settings, f"item-{number}") for number in range(10_000)]
    assert chi_squared(Counter(kind for _, kind, _ in drawn), settings.types) < CRITICAL[2]
    assert chi_squared(Counter(length for length, _, _ in drawn), settings.lengths) < CRITICAL[3]
    claims = Counter(length for length, kind, _ in drawn if kind == "claim")
    assert set(claims) == {"10to20", "ge20"}  # a short claim is ambiguous (A.2.1)
    assert chi_squared(claims, {"10to20": 2, "ge20": 1}) < CRITICAL[1]


@pytest.mark.parametrize(
    ("lengths", "types", "claims", "others"),
    [
        # 20 % of the queries are claims, two thirds of them of 10 to 20 words: 13.3 of the 25 points of that class.
        ({"lt5": 1, "lt10": 4, "10to20": 2, "ge20": 1}, {"question": 3, "problem": 1, "claim": 1},
         {"10to20": 2 / 3, "ge20": 1 / 3}, {"lt5": 0.125, "lt10": 0.5, "10to20": 7 / 60, "ge20": 7 / 120}),
        # More claims than long queries: nothing is left of these for the others.
        ({"lt5": 3, "ge20": 1}, {"question": 1, "claim": 1}, {"10to20": 0.0, "ge20": 1.0}, {"lt5": 0.75, "ge20": 0.0}),
        ({"lt5": 3, "ge20": 1}, {"question": 1}, {}, {"lt5": 0.75, "ge20": 0.25}),
    ],
)  # fmt: skip
def test_lengths_by_type(
    lengths: dict[str, float], types: dict[str, float], claims: dict[str, float], others: dict[str, float]
) -> None:
    settings = GenerationSettings(lengths=lengths, types=types)
    assert lengths_of(settings, "claim") == pytest.approx(claims)
    assert lengths_of(settings, "question") == pytest.approx(others)


def test_a_draw_depends_on_its_key_and_the_ratios_alone() -> None:
    settings = GenerationSettings()
    once = [query_attributes(settings, f"k{number}") for number in range(50)]
    assert once == [query_attributes(settings, f"k{number}") for number in range(50)] and len(set(once)) > 10
    text = "name: a\ntask: long-doc\ncorpus: c\ntarget: 1\nllm: {backend: scripted}\n"
    long = parse_yaml(text, Pipeline).generation
    assert {query_attributes(long, f"k{number}")[1] for number in range(500)} == {"question", "claim"}
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
    assert pattern is not None and form_pattern(length, kind, "th") is None  # whose words have no spaces
    assert bool(re.search(pattern, text)) is fits


# -- rewrite ----------------------------------------------------------------------------------------------------------


LONG = (
    "In what manner do these insects, having gathered the sweet liquid of blossoms, turn it by degrees into a food "
    "that lasts through all of the cold months without ever going bad?"
)


def test_only_the_small_prompts_bind_a_rewrite_to_the_length_of_its_original(world: World) -> None:
    world.answers(rewrite={"query": LONG})
    (row,) = world.run(rewrite.STAGE)
    assert isinstance(row, Rewrite) and (row.text, row.attempts) == (LONG, 1)
    assert "Length" not in world.llm.requests[0].messages[-1].content
    small = world.pipeline(prompts="small")  # the embedded model's family has a form of known length
    (row,) = world.run(rewrite.STAGE, pipeline=small)
    assert isinstance(row, Skip) and row.cause == "malformed"
    # So the family of prompts is part of the work.
    of = [rewrite.STAGE.fingerprint(one, PromptSet()) for one in (world.pipeline(), small)]
    assert of[0] == rewrite.STAGE.fingerprint(world.pipeline(prompts="default"), PromptSet()) != of[1]


def examples(shared: Path) -> list[tuple[str, str, str]]:
    """(document, original query, rewritten query) of the paper's Tables 12 to 14."""
    (paper,) = (shared / "seeds").glob("003_*.txt")
    text = paper.read_text(encoding="utf-8")
    pattern = r"Original Positive:\n“(.*?)”\n.*?Original Query: (.*?)\nRewritten Query: (.*?)\n"
    found = re.findall(pattern, text, re.DOTALL)
    assert len(found) == 3
    return [(document.replace("\\n", "\n"), one, other) for document, one, other in found]


@pytest.mark.parametrize("number", [0, 1, 2])
def test_the_papers_published_rewrites_pass_all_checks(number: int, shared: Path, world: World) -> None:
    """With the paper's defaults: two rounds, of which the last one is the published query."""
    document, original, published = examples(shared)[number]
    length = "lt10" if len(original.split()) < 10 else "10to20"
    lineage = world.lineage(document=document)
    passage = dataclasses.replace(lineage.passage, title="")
    query = dataclasses.replace(lineage.one(Query), text=original, length=length)
    lineage = dataclasses.replace(lineage, passage=passage, rows=(*lineage.rows[:2], query))
    world.answers(rewrite=lambda _: json.dumps({"query": published}))
    (row,) = world.run(rewrite.STAGE, lineage, world.pipeline(lengths={length: 1}))
    assert isinstance(row, Rewrite), row
    assert (row.text, row.attempts) == (published, 1)
