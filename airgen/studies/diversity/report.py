"""The diversity report of one or more datasets: `diversity.md`, `.json` and a chart.

    write_diversity(Path("diversity"), [profile_dataset(BeirDataset.open(path)) for path in paths])

Shares of query types and styles are listed by dataset and split, as in AIR-Bench's Tables 3 and 10. The similarity of
corpora is shown as in BEIR's Figure 2 and AIR-Bench's Figure 4.
"""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from airgen.display.study import Column, Study, Table, columns
from airgen.evaluation.charts import heat_map, save_svg
from airgen.storage.json_values import plain, write_json
from airgen.studies.diversity.measure import Profile, Vocabulary


def weighted_jaccard(left: Vocabulary, right: Vocabulary) -> float:
    """Compute the weighted Jaccard similarity of two word distributions, 0 to 1 (BEIR, appendix F)."""
    shares, other = left.shares(), right.shares()
    if len(other) < len(shares):
        shares, other = other, shares
    if not shares:
        return 0.0
    # The shares of each side sum to 1, so the two sums add up to 2.
    smaller = min(math.fsum(min(share, other[word]) for word, share in shares.items() if word in other), 1.0)
    return smaller / (2.0 - smaller)


def jaccard_matrix(vocabularies: Sequence[Vocabulary]) -> NDArray[np.float64]:
    """Compute the weighted Jaccard similarity of each pair, float64 (n, n), with 1 on the diagonal."""
    matrix = np.eye(len(vocabularies))
    for row in range(len(vocabularies)):
        for column in range(row):
            matrix[row, column] = matrix[column, row] = weighted_jaccard(vocabularies[row], vocabularies[column])
    return matrix


_NAME = Column("dataset", lambda profile: profile.name)
_SUMMARY = (
    _NAME,
    Column("queries", lambda profile: profile.queries, ","),
    Column("words", lambda profile: profile.query_words.mean, ".1f"),
    Column("overlap", lambda profile: profile.overlap.positives, ".3f"),
    Column("by chance", lambda profile: profile.overlap.others, ".3f"),
    Column("original", lambda profile: profile.overlap.original, ".3f"),
    Column("rewritten", lambda profile: profile.overlap.rewritten, ".3f"),
    Column("near duplicates", lambda profile: profile.duplicates.near, ".1%"),
)
_VOCABULARY = (
    _NAME,
    Column("query tokens", lambda profile: profile.query_vocabulary.tokens, ","),
    Column("types", lambda profile: profile.query_vocabulary.types, ","),
    Column("corpus tokens", lambda profile: profile.corpus_vocabulary.tokens, ","),
    Column("types", lambda profile: profile.corpus_vocabulary.types, ","),
)


def write_diversity(out: Path, profiles: Sequence[Profile]) -> dict[str, Any]:
    """Write the report to `out`, and return the content of `diversity.json`. Equal datasets give equal bytes."""
    similarity = jaccard_matrix([profile.vocabulary for profile in profiles]) if len(profiles) > 1 else None
    shown = [field.name for field in fields(Profile) if field.name != "vocabulary"]
    value: dict[str, Any] = {
        "datasets": [{name: plain(getattr(profile, name)) for name in shown} for profile in profiles]
    }
    names = [profile.name for profile in profiles]
    if similarity is not None:
        value["weighted_jaccard"] = {"datasets": names, "matrix": np.round(similarity, 6).tolist()}
    write_json(out / "diversity.json", value)
    if similarity is not None:
        chart = heat_map(names, similarity, title="weighted Jaccard similarity of the corpora")
        save_svg(chart, out / "jaccard.svg")
    _study(profiles, similarity).write(out / "diversity.md")
    return value


def summary_table(profiles: Sequence[Profile]) -> Table:
    """Return a row for each dataset, with the figures that fit on a terminal."""
    return Table(profiles, _SUMMARY)


def _attributes(profiles: Sequence[Profile]) -> list[str]:
    return sorted({name for profile in profiles for name in profile.shares})


def _columns(profiles: Sequence[Profile], attribute: str) -> list[tuple[str, dict[str, int]]]:
    """Return (title, {value: queries}) for each dataset and split, then for each task and split with several
    datasets."""
    columns_of, tasks = [], dict[str, list[dict[str, int]]]()
    for profile in profiles:
        for split, counts in profile.shares.get(attribute, {}).items():
            columns_of.append((f"{profile.name} {split}", counts))
            if profile.task:
                tasks.setdefault(f"all {profile.task} {split}", []).append(counts)
    for title, several in sorted(tasks.items()):
        if len(several) > 1:
            values = sorted({value for counts in several for value in counts})
            columns_of.append((title, {value: sum(counts.get(value, 0) for counts in several) for value in values}))
    return columns_of


def _shares_table(profiles: Sequence[Profile], attribute: str) -> Table:
    split_counts = _columns(profiles, attribute)
    total: Counter[str] = Counter()
    for _, counts in split_counts:
        total.update(counts)
    rows = [
        [
            value,
            *(
                f"{counts.get(value, 0):,} ({counts.get(value, 0) / sum(counts.values()):.1%})"
                for _, counts in split_counts
            ),
        ]
        for value in sorted(total, key=lambda value: (-total[value], value))
    ]
    return Table(rows, columns(attribute, *(title for title, _ in split_counts)))


def _study(profiles: Sequence[Profile], similarity: NDArray[np.float64] | None) -> Study:
    shares: list[str | Table] = []
    for name in _attributes(profiles):
        shares += [f"## {name.capitalize()}", _shares_table(profiles, name)]
    parts: list[str | Table] = [
        summary_table(profiles),
        "Overlap: mean share of a query's stemmed words, without stop words, that its relevant passage contains. By "
        "chance: the share that another query's relevant passage contains. Original and rewritten: the overlap of "
        "rewritten queries with the passage that they were written from, before and after rewriting. Near duplicates: "
        "queries whose words have a Jaccard similarity of 0.8 or more with those of an earlier query.",
        *shares,
        "## Lengths in words",
        Table(profiles, _lengths(profiles)),
        "## Vocabulary",
        Table(profiles, _VOCABULARY),
    ]
    if similarity is not None:
        names = [profile.name for profile in profiles]
        rows = [[name, *row] for name, row in zip(names, similarity.tolist(), strict=True)]
        parts += [
            "## Weighted Jaccard similarity of the corpora",
            Table(rows, columns("", *names, form=".3f")),
            "The words are not stemmed and stop words are kept (BEIR, appendix F). The similarity of corpora in "
            "different languages says little.",
            "![jaccard](jaccard.svg)",
        ]
    return Study("Diversity", parts)


def _lengths(profiles: Sequence[Profile]) -> list[Column]:
    classes = sorted({name for profile in profiles for name in profile.length_classes})

    def share(name: str, profile: Profile) -> float:
        return profile.length_classes.get(name, 0) / profile.queries

    return [
        _NAME,
        Column("mean", lambda profile: profile.query_words.mean, ".1f"),
        Column("median", lambda profile: profile.query_words.median, "g"),
        Column("5–95 %", lambda profile: (profile.query_words.low, profile.query_words.high), ".0f"),
        *(Column(name, partial(share, name), ".1%") for name in classes),
        Column("passages: mean", lambda profile: profile.passage_words.mean, ".1f"),
        Column("median", lambda profile: profile.passage_words.median, "g"),
    ]
