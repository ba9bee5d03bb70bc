"""The statistics of the paper's Tables 16 to 21: passages, tokens, queries, positives, hard negatives, licence.

Tables are Markdown or CSV, with one row for each dataset and split.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from airgen.dataset.manifest import Manifest
from airgen.text.display import csv_text, markdown_table, md

Row = Mapping[str, str | int | float]

# In Chinese, Japanese and Korean each character counts, in other scripts each run of letters and digits.
_IDEOGRAPHS = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff"
_WORD = re.compile(f"[{_IDEOGRAPHS}]|[^\\W{_IDEOGRAPHS}]+")

COLUMNS = (
    "task",
    "domain",
    "language",
    "dataset",
    "source",
    "licence",
    "passages",
    "mean tokens of passages",
    "split",
    "queries",
    "mean tokens of queries",
    "positives",
    "hard negatives",
)


def count_words_and_characters(text: str) -> int:
    """The number of words, where each Chinese, Japanese or Korean character is a word.

    >>> count_words_and_characters("nDCG@10, 検索")
    4
    """
    return sum(1 for _ in _WORD.finditer(text))


def table_rows(manifests: Iterable[Manifest]) -> list[dict[str, str | int | float]]:
    """One row for each dataset and split, in the paper's order: task, domain, language, name, split."""
    rows: list[dict[str, str | int | float]] = []
    ordered = sorted(manifests, key=lambda m: (m.info.task != "qa", m.info.domain, m.info.language, m.info.name))
    for manifest in ordered:
        info, statistics = manifest.info, manifest.statistics
        for split, part in sorted(statistics.splits.items()):
            values = (
                info.task,
                info.domain,
                info.language,
                info.name,
                info.source,
                info.source_licence,
                statistics.passages,
                round(statistics.mean_tokens, 1),
                split,
                part.queries,
                round(part.mean_tokens, 1),
                "" if part.positives is None else part.positives,
                "" if part.hard_negatives is None else part.hard_negatives,
            )
            rows.append(dict(zip(COLUMNS, values, strict=True)))
    return rows


def statistics_markdown(rows: Sequence[Row], columns: Sequence[str] = COLUMNS) -> str:
    """The rows as a Markdown table; numbers have thousands separators and are right-aligned."""
    if not rows:
        return ""
    right = [all(isinstance(row[column], int | float) or row[column] == "" for row in rows) for column in columns]
    return markdown_table(columns, [[_cell(row[column]) for column in columns] for row in rows], right)


def statistics_csv(rows: Sequence[Row], columns: Sequence[str] = COLUMNS) -> str:
    """The rows as CSV with a header."""
    return csv_text(columns, [[row[column] for column in columns] for row in rows])


def _cell(value: str | int | float) -> str:
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:,.1f}" if isinstance(value, float) else md(value)
