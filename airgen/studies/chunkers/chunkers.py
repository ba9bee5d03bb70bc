"""Chunkers, as specified in a YAML file (`pipelines/chunkers.yaml`), and the character spans by which chunks are
scored.

A passage of the dataset is a document. If passages are chunks and `private/parents.jsonl` has offsets, the documents
are reassembled. A gold span is the quote of a reference answer (`answers/`), if the split has answers, or else the
whole text of each relevant passage. A chunk is relevant to a span if it covers a share (one half) of the span, or if
that share of the chunk lies within the span.

spans@10        share of a query's spans to which one of the first ten chunks is relevant
RR@10           1 / rank of the first chunk that is relevant to any span, 0 beyond ten
coverage@1000   share of the characters of a query's spans that the first chunks hold which fit into 1,000 tokens;
                characters that two chunks share are counted once, but cost their tokens twice
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple

from pydantic import Field, model_validator

from airgen.corpus.chunking import cut, sentence_pieces
from airgen.corpus.settings import ChunkSettings
from airgen.dataset.beir import BeirDataset, typed_rows
from airgen.errors import DatasetError
from airgen.evaluation.dataset_split import PARENTS
from airgen.settings.base import Settings, load_yaml
from airgen.text.token_counts import Tokenizer

GoldKind = Literal["auto", "answers", "passages"]


class Span(NamedTuple):
    """The characters [start, end) of a document's text."""

    document: str
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class WholeDocument:
    """A document before it is split."""

    id: str
    title: str
    text: str


@dataclass(frozen=True)
class GoldSpans:
    """Documents, queries {id: text}, and spans {query id: spans} for the same queries.

    `kind` is the source of the spans. `without` is the number of labelled queries without a span, which are left out.
    """

    documents: list[WholeDocument]
    queries: Mapping[str, str]
    spans: Mapping[str, list[Span]]
    kind: Literal["answers", "passages"]
    without: int


def gold_spans(dataset: BeirDataset, split: str, kind: GoldKind = "auto") -> GoldSpans:
    """Return the gold spans of a split.

    Args:
        dataset: The dataset.
        split: The split whose labelled queries are used.
        kind: Quotes of reference answers, texts of relevant passages, or the first of these that the split has.

    Raises:
        DatasetError: The dataset cannot be read, or no query has a span of this kind.
    """
    documents, places = _documents(dataset)
    labels = dataset.qrels(split).labels
    texts = {key: query.text for key, query in dataset.queries().items() if key in labels}
    quoted: dict[str, list[Span]] = defaultdict(list)
    answers = dataset.path / "answers" / f"{split}.jsonl"
    fields = {"query-id": str, "corpus-id": str, "start": int, "end": int}
    for where, row in typed_rows(answers, fields) if kind != "passages" else ():
        place, start, end = places.get(row["corpus-id"]), row["start"], row["end"]
        if place is None or not 0 <= start < end:
            raise DatasetError(f"{where}: needs query-id, a known corpus-id, and start below end")
        quoted[row["query-id"]].append(Span(place.document, place.start + start, place.start + end))
    if kind == "answers" and not quoted:
        raise DatasetError(f"{dataset.path}: has no answers/{split}.jsonl with quotes (generation.answers makes them)")
    spans_of: Mapping[str, list[Span]] = quoted or {
        key: [places[id_] for id_, label in row.items() if label > 0 and id_ in places] for key, row in labels.items()
    }
    spans = {key: spans_of[key] for key in texts if spans_of.get(key)}
    if not spans:
        raise DatasetError(f"{dataset.path}: no query of {split} has a relevant passage in the corpus")
    queries = {key: texts[key] for key in spans}
    return GoldSpans(
        documents=documents,
        queries=queries,
        spans=spans,
        kind="answers" if quoted else "passages",
        without=len(labels) - len(spans),
    )


def _documents(dataset: BeirDataset) -> tuple[list[WholeDocument], dict[str, Span]]:
    """Return the documents and each passage's position in them: a whole document, or the chunk's offsets if known."""
    offsets: dict[str, tuple[str, int]] = {}
    for where, row in typed_rows(dataset.path / PARENTS, {"_id": str, "parent": str}):
        start = row.get("start")
        if type(start) is not int or start < 0:
            raise DatasetError(f"{where}: has no offsets: export the job again (`airgen export`)")
        offsets[row["_id"]] = row["parent"], start
    places: dict[str, Span] = {}
    parts: dict[str, list[tuple[int, str, str]]] = defaultdict(list)
    for passage in dataset.passages():
        document, start = offsets.get(passage.id, (passage.id, 0))
        places[passage.id] = Span(document, start, start + len(passage.text))
        parts[document].append((start, passage.title, passage.text))
    return [_joined(key, chunks) for key, chunks in parts.items()], places


def _joined(key: str, parts: list[tuple[int, str, str]]) -> WholeDocument:
    """Reassemble a document from its chunks by their offsets.

    Gaps between chunks are white space: one character is taken as a space, more as line breaks.
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


class ChunkerSettings(Settings):
    """The settings of a chunker.

    `by` is `sentences` (whole sentences up to `size` tokens), `tokens` (windows of `size` tokens), `windows` (runs of
    `sentences` sentences, starting every `step` sentences) or `whole` (the document). `overlap` is the number of tokens
    that the next chunk repeats, at most half of `size`.
    """

    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._+-]{0,99}$")
    by: Literal["sentences", "tokens", "windows", "whole"] = "sentences"
    size: int = Field(default=200, ge=8)
    overlap: int = Field(default=0, ge=0)
    sentences: int = Field(default=3, ge=1)
    step: int = Field(default=1, ge=1)

    @model_validator(mode="after")
    def _smaller(self) -> "ChunkerSettings":
        if self.overlap * 2 > self.size:
            raise ValueError("overlap must be at most half of size")
        if self.step > self.sentences:
            raise ValueError("step must be at most `sentences`; otherwise, some sentences are in no chunk")
        return self


class _ChunkersFile(Settings):
    """The contents of a chunkers YAML."""

    chunkers: list[ChunkerSettings] = Field(min_length=1)

    @model_validator(mode="after")
    def _names(self) -> "_ChunkersFile":
        names = [chunker.name for chunker in self.chunkers]
        if twice := next((name for name in names if names.count(name) > 1), None):
            raise ValueError(f"two chunkers are named {twice!r}")
        return self


@dataclass(frozen=True, slots=True)
class DocumentChunk:
    """`text[start:end]` of a document. `id` is the document's id with a number from 1."""

    id: str
    document: str
    title: str
    text: str
    start: int
    end: int


def load_chunkers(path: Path) -> list[ChunkerSettings]:
    """Load the chunkers in a YAML file. Raises SettingsError with every problem."""
    return load_yaml(path, _ChunkersFile).chunkers


def chunks_of(
    documents: Sequence[WholeDocument], settings: ChunkerSettings, tokenizer: Tokenizer, language: str
) -> Iterator[DocumentChunk]:
    """Yield the chunks of all documents in order, each with its document's title, except chunks without visible
    text."""
    for document in documents:
        number = 0
        for start, end in _places(document.text, settings, tokenizer, language):
            body = document.text[start:end]
            if not body.strip():
                continue
            number += 1
            yield DocumentChunk(
                id=f"{document.id}#{number}",
                document=document.id,
                title=document.title,
                text=body,
                start=start,
                end=end,
            )


def _places(text: str, settings: ChunkerSettings, tokenizer: Tokenizer, language: str) -> Iterator[tuple[int, int]]:
    if settings.by == "whole":
        yield 0, len(text)
    elif settings.by == "windows":
        ends = [0]
        for sentence in sentence_pieces(text, language):
            ends.append(ends[-1] + len(sentence))
        last = len(ends) - 1
        for first in range(0, last, settings.step):
            yield ends[first], ends[min(first + settings.sentences, last)]
            if first + settings.sentences >= last:
                return
    else:
        shape = ChunkSettings(size=settings.size, overlap=settings.overlap, by=settings.by)
        yield from (
            (piece.start, piece.end) for piece in cut(text, (), settings=shape, tokenizer=tokenizer, language=language)
        )


BUDGETS = (500, 1000, 2000)
MEASURES = ("RR@10", "spans@10", *(f"coverage@{budget}" for budget in BUDGETS))
_SCORED_CHUNKS = 10

Cut = Callable[[str, int], int]
"""A function that returns the number of characters in the first tokens of a text."""


def is_relevant(chunk: DocumentChunk, span: Span, share: float = 0.5) -> bool:
    """Return whether a chunk covers this share of a span, or has this share of its own characters in it."""
    if chunk.document != span.document:
        return False
    common = min(chunk.end, span.end) - max(chunk.start, span.start)
    return common > 0 and common >= share * min(chunk.end - chunk.start, span.end - span.start)


def query_scores(
    hits: Sequence[DocumentChunk], spans: Sequence[Span], tokens: Mapping[str, int], cut: Cut, share: float = 0.5
) -> dict[str, float]:
    """Return {measure: score} for one query.

    Args:
        hits: The retrieved chunks, best first.
        spans: The gold spans of the query.
        tokens: The number of tokens of each chunk, by id.
        cut: Function that returns where the first tokens of a text end.
        share: The share of a span, or of a chunk, that makes the chunk relevant.
    """
    first = hits[:_SCORED_CHUNKS]
    rank = next(
        (at for at, chunk in enumerate(first, 1) if any(is_relevant(chunk, span, share) for span in spans)), None
    )
    covered_spans = sum(any(is_relevant(chunk, span, share) for chunk in first) for span in spans)
    scores = {"RR@10": 1 / rank if rank else 0.0, "spans@10": covered_spans / len(spans)}
    for budget in BUDGETS:
        held, left = [], budget
        for chunk in hits:
            if left <= 0:
                break
            end = chunk.end if tokens[chunk.id] <= left else chunk.start + cut(chunk.text, left)
            held.append(Span(chunk.document, chunk.start, end))
            left -= tokens[chunk.id]
        scores[f"coverage@{budget}"] = covered(held, spans)
    return scores


def covered(pieces: Iterable[Span], spans: Iterable[Span]) -> float:
    """Return the share of the spans' characters that the pieces cover, counting each character once."""
    left: dict[str, set[int]] = defaultdict(set)
    for document, start, end in spans:
        left[document].update(range(start, end))
    total = sum(map(len, left.values()))
    for document, start, end in pieces:
        if document in left:
            left[document].difference_update(range(start, end))
    return (total - sum(map(len, left.values()))) / total if total else 0.0
