"""The numbers of the paper's Tables 16 to 21: passages, tokens, queries, positives, hard negatives, licence.

Tables come as Markdown and as CSV, one row per dataset and split.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Mapping, Sequence

from airgen.dataset.manifest import Manifest

__all__ = ["COLUMNS", "count_words", "csv_table", "markdown_table", "md", "table_rows"]

# Scripts without spaces count by character, others by run of letters and digits.
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


def count_words(text: str) -> int:
    """Words, and each Chinese, Japanese or Korean character: a count that needs no vocabulary.

    >>> count_words("nDCG@10, 検索")
    4
    """
    return sum(1 for _ in _WORD.finditer(text))


def table_rows(manifests: Iterable[Manifest]) -> list[dict[str, str | int | float]]:
    """One row per dataset and split, in the order of the paper's tables: task, domain, language, name, split."""
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
                part.positives,
                part.hard_negatives,
            )
            rows.append(dict(zip(COLUMNS, values, strict=True)))
    return rows


def markdown_table(rows: Sequence[Mapping[str, str | int | float]], columns: Sequence[str] = COLUMNS) -> str:
    """A Markdown table; numbers with thousands separators, right-aligned; cells cannot break the table."""
    if not rows:
        return ""
    rights = [all(isinstance(row[column], int | float) for row in rows) for column in columns]
    lines = [
        "| " + " | ".join(columns) + " |",
        "|" + "|".join(" ---: " if right else " --- " for right in rights) + "|",
    ]
    lines += ["| " + " | ".join(_cell(row[column]) for column in columns) + " |" for row in rows]
    return "\n".join(lines) + "\n"


def csv_table(rows: Sequence[Mapping[str, str | int | float]], columns: Sequence[str] = COLUMNS) -> str:
    """The same as CSV with a header, lines ending in '\\n'. Text that a spreadsheet would run is quoted by a '."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows([_csv_cell(row[column]) for column in columns] for row in rows)
    return out.getvalue()


def _cell(value: str | int | float) -> str:
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:,.1f}"
    return md(value)


def md(text: str) -> str:
    """Text from outside as the content of one Markdown table cell: no line ends, pipes, HTML or links."""
    flat = " ".join(text.split())
    flat = flat.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return re.sub(r"([\\|`*_\[\]])", r"\\\1", flat)


def _csv_cell(value: str | int | float) -> str | int | float:
    return "'" + value if isinstance(value, str) and value[:1] in ("=", "+", "-", "@") else value
