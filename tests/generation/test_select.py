"""Which of the finished samples become the dataset's queries, and with which labels."""

from collections.abc import Sequence
from dataclasses import replace

from airgen.generation import generate
from airgen.generation.flow import Flow
from airgen.job import export
from airgen.settings import Pipeline
from airgen.steps.lineage import Lineage
from airgen.storage.records import Decision, HardNegative, Judgment, Passage, Query, Rewrite, Row, Sample, Skip

PIPELINE = Pipeline.model_validate(
    {"name": "p", "task": "qa", "corpus": "c", "target": 1, "llm": {"backend": "scripted"}}
)


def select(lineages: Sequence[Lineage], target: int) -> generate.Accepted:
    return generate.select(lineages, Flow(), PIPELINE.model_copy(update={"target": target}))


def lineage(name: str, text: str, level: int | None = 3, *, rewrite: str = "", skip: str = "") -> Lineage:
    """A sample that came to a query; `skip` ends it at that stage."""
    query = Query("q" + name, "z", "f", 0, text, "lt10", "question", "overall")
    rows: list[Row] = [query]
    rows += [Rewrite("r" + name, query.key, "f", 1, rewrite, "casual")] if rewrite else []
    rows += [] if level is None else [Judgment("j" + name, query.key, "f", 0, "d" + name, level)]
    skips = {skip: Skip("k" + name, "x", "f", 0, skip, "a reason")} if skip else {}
    passage = Passage("p" + name, "d" + name, 0, "text")
    return Lineage(passage, Sample("s" + name, "p" + name, "f", 0), tuple(rows), skips)


def test_the_first_of_near_duplicates_stays_by_its_final_text() -> None:
    found = select(
        [
            lineage("a", "how do bees make honey", 1),  # rejected, so it blocks no other query
            lineage("b", "How do bees make honey?"),
            lineage("c", "how do bees make honey"),
            lineage("d", "how do bees make honey", rewrite="where does the sweet stuff come from"),
            lineage("e", "who eats wax", rewrite="how, do bees make HONEY"),
        ],
        10,
    )  # fmt: skip
    assert [one.sample.key for one in found.lineages] == ["sb", "sd"]
    assert [(one.lineage.sample.key, one.stage, one.reason) for one in found.rejected] == [
        ("sa", "judgment", "its document does not answer it"),
        ("sc", "duplicate", "it repeats an accepted query"),
        ("se", "duplicate", "it repeats an accepted query"),
    ]


def test_beyond_the_target_is_surplus_and_a_longer_prefix_keeps_the_first() -> None:
    every = [lineage(str(number), f"question {number} of its own {'abcdefgh'[number]}{number}") for number in range(8)]
    few, more = select(every, 3), select(every, 6)
    assert more.lineages[:3] == few.lineages == every[:3]
    assert (few.surplus, more.surplus) == (5, 2)
    # Surplus queries do not reject others: the fourth is like the third, and only the third was accepted.
    again = select([*every[:3], lineage("x", every[3].final.text), every[3]], 3)
    assert again.surplus == 2 and not again.rejected


def test_samples_that_ended_early_say_why() -> None:
    found = select(
        [
            lineage("a", "one", None, skip="query"),
            lineage("b", "two", None, skip="judgment"),
            lineage("d", "four four", skip="rewrite"),  # the original stays
        ],
        5,
    )  # fmt: skip
    assert [one.words for one in found.rejected] == ["query: a reason", "judgment: a reason"]
    assert [one.sample.key for one in found.lineages] == ["sd"]


def test_labels_queries_and_negatives_of_a_dataset_by_hand() -> None:
    found = select([lineage("a", "one"), lineage("b", "two two"), lineage("c", "three three three", 1)], 2)
    first, second = (
        one.extended([HardNegative(f"n{one.final.key}", one.final.key, "f", 1, f"neg-{one.final.key}", "text")])
        for one in found.lineages
    )
    every, pipeline = replace(found, lineages=[first, second]), PIPELINE.model_copy(update={"target": 2})
    pairs = {"qa": [("da", "keep_query"), ("neg-qa", "keep_negative")], "qb": [("db", "drop_query")]}
    judged = {key: [Decision("", key, "", 0, *pair, "") for pair in of] for key, of in pairs.items()}

    def made(*without: str) -> tuple[list[str], list[str], dict[str, list[str]]]:
        labels = export._labels(pipeline, every, judged, without)
        queries = export._queries(pipeline, every, labels, without)
        actions = {key: [row.action for row in of] for key, of in labels.items()}
        return [one.final.key for one in queries], sorted(export._negatives(every, queries, labels)), actions

    # A dropped query's negative stays in the corpus, unlabelled.
    assert made() == (["qa"], ["neg-qa", "neg-qb"], {"qa": ["keep_query", "keep_negative"], "qb": ["drop_query"]})
    assert made("correction")[0] == ["qa", "qb"] and set(made("correction")[2]["qb"]) == {"keep_query", "keep_negative"}
    # Without control, candidates that were judged bad are there, too, if they come before the last accepted one.
    assert made("control")[0] == ["qa", "qb"]
    last = replace(every, lineages=[replace(second, sample=replace(second.sample, ordinal=9))])
    assert [one.final.key for one in export._queries(pipeline, last, {}, ["control"])][1:] == ["qc"]
