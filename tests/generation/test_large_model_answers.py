# ruff: noqa: E501  (one answer a line is what a person reads)
"""Answers as a large model writes them, by hand, to the prompts for large models: none may be refused.

Each prompt was read beside them. They stand in for a model that cannot be run here, and keep a check that was made for
small models from costing the users of large ones a paid call.
"""

import pytest

from airgen.generation.attributes import WORDS
from airgen.generation.query import TYPE_TEXT
from airgen.generation.query_checks import nearer, query_problem, wrong_length, wrong_type
from airgen.settings import INFORMATION, LENGTHS, STYLES, Pipeline

DOCUMENT = """Feeding a sourdough starter

Feed a starter with equal weights of flour and water. At 24 °C it doubles within four to six hours and then falls back;
feed it again at its peak. In the fridge one feeding a week is enough: let it stand outside for an hour first. A grey
liquid on top means that the culture is hungry; pour it off, or stir it in for a sharper taste. Pink or orange streaks
come from harmful bacteria, and the whole jar must be thrown away. Rye flour brings more enzymes and minerals than
wheat, so a weak starter recovers after two or three feedings with it."""

# (type, length, information): the answer. The character and the scenario vary, as they would.
QUERIES = {
    ("question", "lt5", "overall"): "sourdough culture feeding schedule?",
    ("question", "lt5", "partial"): "orange mould sourdough safe?",
    ("question", "lt10", "overall"): "How do I keep a leaven alive at home?",
    ("question", "lt10", "partial"): "how often to refresh leaven kept cold",
    ("question", "10to20", "overall"): "What is the right way to maintain a natural yeast culture for baking bread?",
    ("question", "10to20", "partial"): "Is the dark fluid that collects above my leaven a sign that it has gone bad?",
    ("question", "ge20", "overall"): "I am new to baking and was given a jar of living culture last weekend, so could you tell me "
    "how I should look after it from now on?",
    ("question", "ge20", "partial"): "When I take my culture out of the refrigerator before its weekly refreshment, how long should I "
    "leave it on the counter before adding anything?",
    ("problem", "lt5", "overall"): "sourdough culture keeps dying",
    ("problem", "lt5", "partial"): "leaven has pinkish streaks",
    ("problem", "lt10", "overall"): "My leaven has no strength for baking.",
    ("problem", "lt10", "partial"): "Dark water floats above my culture every morning.",
    ("problem", "10to20", "overall"): "I'm trying to look after a bread culture in a warm kitchen and it collapses before I bake.",
    ("problem", "10to20", "partial"): "Our bakery's leaven turned sluggish after we switched brands, and the dough hardly rises any more.",
    ("problem", "ge20", "overall"): "I inherited a jar of culture from my aunt, have no idea about its care, and after ten days it smells "
    "odd and hardly moves, so I am afraid of losing it.",
    ("problem", "ge20", "partial"): "I went on holiday for a month and left my culture cold and untouched, and now there is a layer of dark "
    "fluid on it and I need to know whether it can be saved.",
    ("claim", "10to20", "overall"): "A bread culture stays strong only if it is refreshed when it has risen to its height.",
    ("claim", "10to20", "partial"): "Reddish discolouration of a leaven is harmless as long as the affected part is removed.",
    ("claim", "ge20", "overall"): "Looking after a natural bread culture takes more than water and meal, because warmth, timing and the "
    "kind of grain decide together how strong it becomes.",
    ("claim", "ge20", "partial"): "Switching a tired culture to darker grain for a few days restores it, because such meal carries more of "
    "the substances that the microbes depend on than white meal.",
}  # fmt: skip

# style: pairs of a query and its rewrite
REWRITES = {
    "concise": [("how often to refresh leaven kept cold", "refrigerated leaven refreshment interval"),
                ("Is the dark fluid above my leaven a sign that it has gone bad?", "hooch sourdough spoiled?"),
                ("A culture stays strong only if it is refreshed at its height.", "peak refreshment keeps leaven vigorous")],
    "casual": [("How do I keep a leaven alive at home?", "hey so what do I actually do so my bread yeast thing doesn't die"),
               ("My leaven has no strength for baking.", "my bread yeast is kinda lazy lately, loaves come out flat"),
               ("orange mould sourdough safe?", "is it ok if my bread yeast went a bit orange")],
    "informal": [("how often to refresh leaven kept cold", "how often do u need to top up cold bread yeast"),
                 ("leaven has pinkish streaks", "some pink stuff growing in my bread yeast"),
                 ("A red leaven is harmless.", "red bread yeast won't hurt you")],
    "formal": [("how often to refresh leaven kept cold", "At what intervals should a chilled natural yeast be replenished?"),
               ("orange mould sourdough safe?", "Could you please advise whether an orange tint of the yeast poses a risk?"),
               ("A red leaven is harmless.", "A reddish tint of natural yeast poses no risk to health.")],
    "professional": [("Our leaven turned sluggish.", "Our levain shows reduced proofing power since the change of supplier."),
                     ("how often to refresh leaven kept cold", "levain refreshment frequency under retardation"),
                     ("leaven has pinkish streaks", "suspected Serratia contamination of levain")],
    "complicated": [("How do I keep a leaven alive at home?", "By which regimen, given that one's kitchen is no bakery, might the "
                     "vigour of a natural yeast be preserved?"),
                    ("leaven has pinkish streaks", "a rosy marbling, whose origin eludes me, has come over the yeast that I nurture")],
    "academic": [("Our leaven turned sluggish.", "declining fermentative activity of spontaneous cereal ferments after substrate change"),
                 ("orange mould sourdough safe?", "Which risks are associated with carotenoid-forming contaminants of cereal ferments?"),
                 ("A red leaven is harmless.", "Pigmented contaminants of cereal ferments constitute no hazard to consumers.")],
}  # fmt: skip


def pipeline() -> Pipeline:
    values = {"name": "p", "task": "qa", "corpus": "c", "target": 1, "llm": {"backend": "scripted"}}
    return Pipeline.model_validate(values)


def test_every_combination_that_the_paper_draws_has_an_answer() -> None:
    wanted = {
        (kind, length, information)
        for kind in ("question", "problem", "claim")
        for length in LENGTHS
        for information in INFORMATION
        if kind != "claim" or length in ("10to20", "ge20")
    }
    assert set(QUERIES) == wanted and set(REWRITES) == set(STYLES)


@pytest.mark.parametrize(("asked", "text"), QUERIES.items(), ids=lambda value: " ".join(value)[:40])
def test_a_query_has_all_drawn_attributes(asked: tuple[str, str, str], text: str) -> None:
    kind, length, _ = asked
    assert query_problem(text, DOCUMENT, pipeline(), length=length, kind=kind) is None
    for other in WORDS:  # and no other length, but that the paper's classes overlap
        if other != length and {other, length} != {"lt5", "lt10"}:
            assert wrong_length(text, other, "en") is not None


@pytest.mark.parametrize("asked", QUERIES, ids=" ".join)
def test_a_query_of_another_type_is_refused(asked: tuple[str, str, str]) -> None:
    """A question is no problem and no claim. A statement is no question; whether it is a problem or a claim, nobody can
    tell by its form, unless somebody speaks of himself."""
    kind, _, _ = asked
    for other in TYPE_TEXT.keys() - {kind, "keywords"}:
        text = QUERIES[asked]
        speaks = text.startswith(("I ", "I'm", "My", "Our"))
        if "question" in (kind, other) or (other == "claim" and speaks):
            assert wrong_type(text, other, "en") is not None, (text, other)


@pytest.mark.parametrize(
    ("style", "before", "after"), [(style, *pair) for style, pairs in REWRITES.items() for pair in pairs]
)
def test_a_rewrite_passes(style: str, before: str, after: str) -> None:
    assert query_problem(after, DOCUMENT, pipeline()) is None
    assert nearer(after, before, DOCUMENT, "en") is None
