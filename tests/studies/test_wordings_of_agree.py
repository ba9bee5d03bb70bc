"""Agreement by wording and by overlap, and matching the overlap of ten human queries, on scores made up for it."""

import math

import numpy as np
import pytest

from airgen.studies.agree.rankings import Side
from airgen.studies.agree.wordings import Worded, agreements, by_overlap, matched

NAMES = tuple(f"s{number}" for number in range(8))
LEXICAL = np.linspace(0.9, 0.1, 8)  # the order of systems for queries in the documents' words
NEURAL = LEXICAL[::-1]


def worded(needs: int = 20) -> Worded:
    """Every need has a wording in the documents' words, which lexical systems answer, and one in other words."""
    random = np.random.default_rng(0)
    columns, overlaps, keys, names = [], [], [], []
    for need in range(needs):
        for wording, share, base in (
            ("terms", 0.9, LEXICAL),
            ("plain", 0.6, (LEXICAL + NEURAL) / 2),
            ("lay", 0.2, NEURAL),
        ):
            columns.append(base + random.normal(0, 0.02, 8))
            overlaps.append(share)
            keys.append(f"n{need}")
            names.append(wording)
    return Worded(NAMES, keys, names, np.array(overlaps), np.array(columns).T)


def human(base: np.ndarray, queries: int = 40) -> Side:
    random = np.random.default_rng(1)
    return Side(NAMES, base[:, None] + random.normal(0, 0.02, (8, queries)))


@pytest.mark.parametrize(("base", "share", "good"), [(LEXICAL, 0.9, "terms"), (NEURAL, 0.2, "lay")])
def test_the_wording_that_people_use_agrees_and_matching_finds_it(base: np.ndarray, share: float, good: str) -> None:
    people = human(base)
    rows = {row.choice: row for row in agreements(worded(), people, np.full(40, share), np.full(40, math.nan))}
    bad = "lay" if good == "terms" else "terms"
    assert rows[good].spearman.value == pytest.approx(1.0) and rows[bad].spearman.value == pytest.approx(-1.0)
    match = next(row for name, row in rows.items() if name.startswith("matched"))
    assert match.spearman.value == pytest.approx(1.0)
    assert match.overlap == pytest.approx(share)
    classes = {row.choice: row.spearman.value for row in by_overlap(worded(), people)}
    assert classes.keys() == {"0.0-0.2", "0.4-0.6", "0.8-1.0"}
    assert classes["0.8-1.0"] == -classes["0.0-0.2"] == pytest.approx(1.0 if good == "terms" else -1.0)


def test_a_need_without_a_wording_has_its_query() -> None:
    whole = worded(2)
    keep = [
        at
        for at, (need, name) in enumerate(zip(whole.needs, whole.wordings, strict=True))
        if (need, name) != ("n1", "lay")
    ]
    fewer = Worded(
        NAMES, [whole.needs[at] for at in keep], [whole.wordings[at] for at in keep],
        whole.overlaps[keep], whole.scores[:, keep],
    )  # fmt: skip
    place = fewer.by_need["n1"]["plain"]
    assert np.array_equal(fewer.side("lay").scores[:, 1], fewer.scores[:, place])
    counts = {
        row.choice: (row.queries, row.worded)
        for row in agreements(fewer, human(LEXICAL), np.full(2, 0.5), np.full(2, 0.5))
    }
    assert counts["plain"] == (2, 2) and counts["lay"] == (2, 1)


def test_unknown_overlaps_are_left_out() -> None:
    shares = np.array([math.nan] * 30 + [0.9] * 10)
    row = matched(worded(), human(LEXICAL), shares)
    assert row.overlap == pytest.approx(0.9) and "5 human queries" in row.choice
    none = matched(worded(), human(LEXICAL), np.full(40, math.nan))
    assert math.isnan(none.spearman.value)
