"""The sizes of datasets, as in BEIR's Table 1 (any folder in its layout) and AIR-Bench's Tables 16 to 21.

    statistics_rows(Path("scifact"))        # one row for each split with labels: passages, queries, D/Q, words, ...

D/Q is the mean number of relevant passages per query. Words are counted by `count_words` in title and text together;
other ways of counting give other means.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from statistics import fmean

from airgen.dataset.beir import BeirDataset
from airgen.dataset.manifest import MANIFEST, load_manifest, table_rows
from airgen.errors import UsageError
from airgen.evaluation.collections import find_list
from airgen.publishing.suites import SUITE, datasets_of, is_dataset
from airgen.storage.json_values import read_json
from airgen.storage.records import flat_text
from airgen.text.words import count_words

Row = dict[str, str | int | float]


def statistics_rows(*homes: Path) -> list[Row]:
    """Return rows for finished datasets, folders in BEIR's layout, lists of collections, or finished versions of
    suites. All rows have the same columns, with "" for what is not known of one.

    Raises DatasetError if a file is damaged, and UsageError if nothing in a list has been fetched or there are no
    labels.
    """
    rows = [(home, row) for home in homes for row in _rows_of(home)]
    places: dict[str | int | float, set[Path]] = {}  # two variants of a dataset have the same name
    for home, row in rows:
        places.setdefault(row["dataset"], set()).add(home)
    columns = dict.fromkeys(name for _, row in sorted(rows, key=lambda each: -len(each[1])) for name in row)
    return [
        {
            **{name: row.get(name, "") for name in columns},
            "dataset": f"{row['dataset']} ({home.name})" if len(places[row["dataset"]]) > 1 else row["dataset"],
        }
        for home, row in rows
    ]


def _rows_of(home: Path) -> list[Row]:
    listed = find_list(home)
    if listed is not None:
        return [row for _, opened in listed.opened().values() for row in _counted(opened)]
    if (home / SUITE).is_file():
        return table_rows(datasets_of(home).values())
    opened = BeirDataset.open(home)
    if not (is_dataset(home) and "format" in read_json(home / MANIFEST)):  # training pairs have a manifest too
        return _counted(opened)
    counted = {str(row["split"]): row for row in _counted(opened, need_labels=False)}
    words = ("D/Q", "words of queries", "words of passages")
    rows = table_rows([load_manifest(home)])
    return [{**row, **{name: counted.get(str(row["split"]), {}).get(name, "") for name in words}} for row in rows]


def _counted(dataset: BeirDataset, *, need_labels: bool = True) -> list[Row]:
    splits = [split for split in dataset.splits if split not in dataset.withheld]
    if not splits and need_labels:
        raise UsageError(f"{dataset.path}: no split has labels here, so there is nothing to count")
    language = str(dataset.info.get("language") or "en")
    passages, total = 0, 0
    for passage in dataset.passages():
        passages += 1
        total += count_words(flat_text(passage.title, passage.text), language)
    texts = dataset.queries()
    rows: list[Row] = []
    for split in splits:
        labels = dataset.qrels(split).labels
        relevant = sum(label > 0 for of_query in labels.values() for label in of_query.values())
        rows.append(
            {
                "dataset": dataset.name,
                "language": language,
                "split": split,
                "queries": len(labels),
                "passages": passages,
                "D/Q": round(relevant / max(1, len(labels)), 2),
                "words of queries": _mean(
                    {key: count_words(texts[key].text, language) for key in labels if key in texts}
                ),
                "words of passages": round(total / max(1, passages), 1),
                "positives": relevant,
                "judged not relevant": sum(map(len, labels.values())) - relevant,
            }
        )
    return rows


def _mean(words: Mapping[str, int]) -> str | float:
    return round(fmean(words.values()), 1) if words else ""
