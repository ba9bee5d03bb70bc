"""Measure how often the language check rejects a correct query, and how many wrong ones it catches.

    python benchmarks/language_check.py FOLDER

FOLDER contains human-labelled collections in BEIR format, named as in SETS. Each query is checked with its first
relevant passage, as in generation: human queries (all alarms are false), English queries about passages in another
language, and vice versa. Results are printed with and without the document.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path

from airgen.dataset.beir import BeirDataset
from airgen.text.language_check import wrong_language

SETS = {
    "cranfield": "en", "medline": "en", "scifact": "en", "medquad-liveqa-open": "en", "xquad-en": "en",
    "xquad-de": "de", "xquad-es": "es", "piaf-fr": "fr", "tydiqa-id": "id", "pquad-fa": "fa", "xquad-ar": "ar",
}  # fmt: skip
TRANSLATED = ("xquad-de", "xquad-es")
"""Their queries and passages have the ids of xquad-en."""


def pairs(folder: Path) -> dict[str, tuple[str, str]]:
    """Return Return {query id: (query, first relevant passage)}.."""
    dataset = BeirDataset.open(folder)
    queries = dataset.queries()
    texts = {one.id: f"{one.title} {one.text}" for one in dataset.passages()}
    found = {}
    for key, labels in dataset.qrels("test").labels.items():
        relevant = [passage for passage, label in labels.items() if label > 0]
        if relevant:
            found[key] = (queries[key].text, texts[relevant[0]])
    return found


def line(name: str, language: str, rows: Iterable[tuple[str, str]]) -> None:
    rows = list(rows)
    without = sum(bool(wrong_language(query, language)) for query, _ in rows)
    beside = sum(bool(wrong_language(query, language, passage)) for query, passage in rows)
    print(f"{name}: {len(rows)} queries, stopped without the document {without}, with it {beside}", flush=True)


def main() -> None:
    folder = Path(sys.argv[1])
    known = {name: pairs(folder / name) for name in SETS if (folder / name).is_dir()}
    for name, found in known.items():
        line(f"{name}, right", SETS[name], found.values())
    english = known["xquad-en"]
    for name in (one for one in TRANSLATED if one in known):
        common = known[name].keys() & english.keys()
        line(f"English about {name}", SETS[name], ((english[key][0], known[name][key][1]) for key in common))
        line(f"{name} about English", "en", ((known[name][key][0], english[key][1]) for key in common))


if __name__ == "__main__":
    main()
