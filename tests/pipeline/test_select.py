"""Which of the finished samples become the dataset's queries."""

from __future__ import annotations

from airgen.pipeline.generate import select
from airgen.pipeline.stages import Lineage
from airgen.records import Judgment, Passage, Query, Rewrite, Sample, Skip


def lineage(name: str, text: str, level: int | None = 3, *, rewrite: str = "", skip: str = "") -> Lineage:
    """A sample that came to a query; `skip` ends it at that stage."""
    query = Query("q" + name, "z", "f", 0, text, "lt10", "question", "overall")
    rounds = (Rewrite("r" + name, query.key, "f", 1, rewrite, "casual"),) if rewrite else ()
    judged = None if level is None else Judgment("j" + name, query.key, "f", 0, "d" + name, level)
    skips = {skip: Skip("k" + name, "x", "f", 0, skip, "a reason")} if skip else {}
    return Lineage(
        Passage("p" + name, "d" + name, 0, "text"), Sample("s" + name, "p" + name, "f", 0),
        query=query, rewrites=rounds, judgment=judged, skips=skips,
    )  # fmt: skip


def test_the_first_of_near_duplicates_stays_by_its_final_text() -> None:
    found = select(
        [
            lineage("a", "how do bees make honey", 1),  # rejected: it stands in nobody's way
            lineage("b", "How do bees make honey?"),
            lineage("c", "how do bees make honey"),
            lineage("d", "how do bees make honey", rewrite="where does the sweet stuff come from"),
            lineage("e", "who eats wax", rewrite="how, do bees make HONEY"),
        ],
        10, 2, "en",
    )  # fmt: skip
    assert [one.sample.key for one in found.lineages] == ["sb", "sd"]
    assert [(one.sample.key, reason) for one, reason in found.rejected] == [
        ("sa", "judgment: its document does not answer it"),
        ("sc", "duplicate query"),
        ("se", "duplicate query"),
    ]


def test_beyond_the_target_is_surplus_and_a_longer_prefix_keeps_the_first() -> None:
    every = [lineage(str(number), f"question {number} of its own {'abcdefgh'[number]}{number}") for number in range(8)]
    few, more = select(every, 3, 2, "en"), select(every, 6, 2, "en")
    assert more.lineages[:3] == few.lineages == every[:3]
    assert (few.surplus, more.surplus) == (5, 2)
    # Surplus queries reject nobody: the fourth is like the third, and the third alone was accepted.
    again = select([*every[:3], lineage("x", every[3].final.text), every[3]], 3, 2, "en")
    assert again.surplus == 2 and not again.rejected


def test_samples_that_ended_early_or_are_unfinished_say_why() -> None:
    found = select(
        [
            lineage("a", "one", None, skip="query"),
            lineage("b", "two", None, skip="judgment"),
            lineage("c", "three", None),
            lineage("d", "four four", skip="rewrite"),  # the original stays
        ],
        5, 2, "en",
    )  # fmt: skip
    assert [reason for _, reason in found.rejected] == ["query: a reason", "judgment: a reason", "unfinished"]
    assert [one.sample.key for one in found.lineages] == ["sd"]
