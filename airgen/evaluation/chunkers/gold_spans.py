"""Whole documents of a dataset, and the characters of them that answer each query.

    gold = gold_spans(BeirDataset.open("runs/handbook/dataset"), "test")
    gold.spans["q1"]                          # [Span(document="d7", start=120, end=310)]

A passage of the dataset is a document. Where passages are chunks and the dataset has `private/parents.jsonl` with
offsets, documents are put together again from their chunks. A gold span is the quote of a reference answer
(`answers/`), where the dataset has any for the split; else the whole text of each relevant passage.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from airgen.dataset.beir import BeirDataset, numbered_lines
from airgen.errors import DatasetError

GoldKind = Literal["auto", "answers", "passages"]


@dataclass(frozen=True, slots=True)
class Span:
    """Characters [start, end) of a document's text."""

    document: str
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class WholeDocument:
    """A document as it is before a chunker cuts it."""

    id: str
    title: str
    text: str


@dataclass(frozen=True)
class GoldSpans:
    """Documents, queries {id: text} and spans {query id: spans}, of the same queries.

    kind: where the spans come from. without: labelled queries that have no span, which are left out.
    """

    documents: list[WholeDocument]
    queries: Mapping[str, str]
    spans: Mapping[str, list[Span]]
    kind: Literal["answers", "passages"]
    without: int


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a passage stands."""

    document: str
    start: int


def gold_spans(dataset: BeirDataset, split: str, kind: GoldKind = "auto") -> GoldSpans:
    """Raises DatasetError for a dataset that cannot be read, and where no query has a span of the asked kind."""
    documents, places, lengths = _documents(dataset)
    labels = dataset.qrels(split).labels
    texts = {key: query.text for key, query in dataset.queries().items() if key in labels}
    quoted = {} if kind == "passages" else _quotes(dataset, split, places)
    if kind == "answers" and not quoted:
        raise DatasetError(f"{dataset.path}: has no answers/{split}.jsonl with quotes (generation.answers makes them)")
    found = quoted or {
        key: [
            Span(places[one].document, places[one].start, places[one].start + lengths[one])
            for one, label in row.items()
            if label > 0 and one in places
        ]
        for key, row in labels.items()
    }
    spans = {key: found[key] for key in texts if found.get(key)}
    if not spans:
        raise DatasetError(f"{dataset.path}: no query of {split} has a relevant passage in the corpus")
    queries = {key: texts[key] for key in spans}
    return GoldSpans(documents, queries, spans, "answers" if quoted else "passages", len(labels) - len(spans))


def _documents(dataset: BeirDataset) -> tuple[list[WholeDocument], dict[str, _Place], dict[str, int]]:
    """The documents, the place of each passage in them, and the length of its text."""
    offsets = _offsets(dataset)
    places: dict[str, _Place] = {}
    lengths: dict[str, int] = {}
    parts: dict[str, list[tuple[int, str, str]]] = defaultdict(list)
    for passage in dataset.passages():
        place = offsets.get(passage.id, _Place(passage.id, 0))
        places[passage.id], lengths[passage.id] = place, len(passage.text)
        parts[place.document].append((place.start, passage.title, passage.text))
    return [_joined(key, found) for key, found in parts.items()], places, lengths


def _joined(key: str, parts: list[tuple[int, str, str]]) -> WholeDocument:
    """A document from its chunks, each at its offset.

    What no chunk holds is white space: one character is taken for a space, more for line breaks.
    """
    parts.sort(key=lambda part: part[0])
    if len(parts) == 1 and parts[0][0] == 0:
        return WholeDocument(key, parts[0][1], parts[0][2])
    text = ""
    for start, _, body in parts:
        if start > len(text):
            gap = start - len(text)
            text += " " if gap == 1 else "\n" * gap
        text = text[:start] + body + text[start + len(body) :]
    return WholeDocument(key, parts[0][1], text)


def _offsets(dataset: BeirDataset) -> dict[str, _Place]:
    """Where each chunk stands, of a dataset that says so; empty for others."""
    path = dataset.path / "private" / "parents.jsonl"
    if not path.is_file():
        return {}
    found = {}
    for number, line in numbered_lines(path):
        try:
            row = json.loads(line)
            key, parent, start = row["_id"], row["parent"], row.get("start")
        except (ValueError, RecursionError, KeyError, TypeError, AttributeError) as error:
            raise DatasetError(f"{path}:{number}: a line needs `_id` and `parent`") from error
        if start is None:
            raise DatasetError(f"{path}:{number}: has no offsets: export the job again (`airgen export`)")
        if not isinstance(key, str) or not isinstance(parent, str) or not isinstance(start, int) or start < 0:
            raise DatasetError(f"{path}:{number}: `_id` and `parent` must be texts, and `start` a number of 0 or more")
        found[key] = _Place(parent, start)
    return found


def _quotes(dataset: BeirDataset, split: str, places: Mapping[str, _Place]) -> dict[str, list[Span]]:
    """The spans of the reference answers' quotes."""
    path = dataset.path / "answers" / f"{split}.jsonl"
    if not path.is_file():
        return {}
    found: dict[str, list[Span]] = defaultdict(list)
    for number, line in numbered_lines(path):
        try:
            row = json.loads(line)
            query, passage, start, end = row["query-id"], row["corpus-id"], row["start"], row["end"]
            place = places[passage]
            if not 0 <= start < end:
                raise ValueError(f"[{start}, {end})")
        except (ValueError, RecursionError, KeyError, TypeError) as error:
            raise DatasetError(
                f"{path}:{number}: needs query-id, a known corpus-id, and start below end ({error!r})"
            ) from error
        found[query].append(Span(place.document, place.start + start, place.start + end))
    return found
