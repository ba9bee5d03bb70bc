"""Mined pairs as a directory in BEIR format, written and read as a stream.

    corpus.jsonl       every passage of a pair, once, without its title (the title is often the query)
    queries.jsonl      every query, once, with its kind; its id is the hash of its text
    qrels/train.tsv    the pairs
    manifest.json      name and language; counts of kept and refused pairs, by kind and reason; written last

So every training of airgen can use them, and every other tool that reads BEIR.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from airgen.dataset.beir import BeirDataset, numbered_lines
from airgen.dataset.files import building, encode_row
from airgen.errors import DatasetError
from airgen.keys import text_key
from airgen.records import flat_text
from airgen.training.mining.pairs import MinedPair
from airgen.training.mining.seen_keys import KeyCounts

PAIRS = "manifest.json"

_HEAD = "query-id\tcorpus-id\tscore\n"


def write_pairs(
    pairs: Iterable[MinedPair], out: Path, about: Mapping[str, Any], counts: Mapping[tuple[str, str], int]
) -> dict[str, Any]:
    """Write a directory, which appears when it is complete; returns what its manifest.json holds.

    `counts` is read after the last pair. Raises DatasetError if there is no pair, or if `out` holds something else.
    """
    queries, passages = KeyCounts(), KeyCounts()
    written = 0
    with building(out, PAIRS) as folder:
        (folder / "qrels").mkdir()
        with ExitStack() as stack:
            names = ("corpus.jsonl", "queries.jsonl", "qrels/train.tsv")
            files = [(folder / name).open("w", encoding="utf-8", newline="\n") for name in names]
            corpus, asking, qrels = map(stack.enter_context, files)
            qrels.write(_HEAD)
            for pair in pairs:
                key = text_key(pair.query)[:16]
                if queries.add(int(key, 16)) == 1:
                    row = {"_id": key, "text": pair.query, "metadata": {"kind": pair.kind}}
                    asking.write(encode_row(row, f"query {key}"))
                if passages.add(int(text_key(pair.passage_id)[:16], 16)) == 1:
                    row = {"_id": pair.passage_id, "title": "", "text": pair.passage}
                    corpus.write(encode_row(row, f"passage {pair.passage_id}"))
                qrels.write(f"{key}\t{_plain(pair.passage_id)}\t1\n")
                written += 1
        if not written:
            raise DatasetError("no pair was found: " + (_reasons(counts) or "the corpus is empty"))
        kinds: dict[str, dict[str, int]] = {}
        for (kind, reason), count in sorted(counts.items()):
            kinds.setdefault(kind, {})[reason] = count
        summary = {**about, "pairs": written, "queries": len(queries), "passages": len(passages), "kinds": kinds}
        (folder / PAIRS).write_text(json.dumps(summary, ensure_ascii=False, indent=1, sort_keys=True), encoding="utf-8")
    return summary


@dataclass(frozen=True, slots=True)
class StoredPair:
    """A line of a qrels file with its texts."""

    query_id: str
    passage_id: str
    query: str
    passage: str
    label: float
    kind: str = ""


class PairFiles:
    """One split of a dataset as a stream of pairs; a context manager.

    Ids and offsets are in memory, texts stay on disk. Raises DatasetError for a missing split and for gzipped files,
    whose rows cannot be read in any order.
    """

    def __init__(self, path: Path, split: str = "train") -> None:
        self.dataset = BeirDataset.open(path)
        self.qrels = self.dataset.qrels_file(split)
        if self.qrels.suffix != ".tsv":
            raise DatasetError(f"{self.qrels}: is not a .tsv file: convert it to query-id, corpus-id, score")
        self._corpus, self._queries = (_Lines(self.dataset.file(name)) for name in ("corpus", "queries"))

    def __enter__(self) -> PairFiles:
        return self

    def __exit__(self, *_: object) -> None:
        self._corpus.close()
        self._queries.close()

    def __len__(self) -> int:
        return sum(1 for _ in self._labels())

    @property
    def passages(self) -> int:
        """Number of passages in the corpus."""
        return len(self._corpus.offsets)

    def passage(self, number: int) -> tuple[str, str]:
        """(id, title and text) of a passage by its place in the corpus, from 0."""
        row = self._corpus.at(self._corpus.order[number])
        return str(row["_id"]), _full(row)

    def pairs(self) -> Iterator[StoredPair]:
        """The pairs in the order of the qrels file. Raises DatasetError for an id without a text."""
        for query, passage, label in self._labels():
            query_row, passage_row = self._queries.row(query), self._corpus.row(passage)
            kind = str((query_row.get("metadata") or {}).get("kind", ""))
            yield StoredPair(query, passage, str(query_row["text"]), _full(passage_row), label, kind)

    def _labels(self) -> Iterator[tuple[str, str, float]]:
        for number, line in numbered_lines(self.qrels):
            cells = line.split("\t")
            if number == 1 and cells[-1].strip().lower() in ("score", "relevance", "label", "rel"):
                continue
            try:
                yield cells[0], cells[1], float(cells[2])
            except (IndexError, ValueError) as error:
                raise DatasetError(
                    f"{self.qrels}:{number}: is not query-id, corpus-id and score, separated by tabs"
                ) from error


class _Lines:
    """The rows of a JSONL file by id, read from the disk one by one."""

    def __init__(self, path: Path) -> None:
        if path.suffix == ".gz":
            raise DatasetError(f"{path}: is gzipped, but its rows are read in any order: unpack it with gunzip")
        self.path = path
        self._file: IO[bytes] = path.open("rb")
        self.offsets: dict[str, int] = {}
        self.order: list[int] = []
        at = 0
        for number, line in enumerate(self._file, 1):
            if line.strip():
                row = self._parse(line, f"{path}:{number}")
                self.offsets[str(row.get("_id"))] = at
                self.order.append(at)
            at += len(line)

    def close(self) -> None:
        self._file.close()

    def at(self, offset: int) -> dict[str, Any]:
        self._file.seek(offset)
        return self._parse(self._file.readline(), f"{self.path} at byte {offset}")

    def row(self, key: str) -> dict[str, Any]:
        if key not in self.offsets:
            raise DatasetError(f"{self.path}: has no row {key!r}, which the qrels refer to")
        return self.at(self.offsets[key])

    @staticmethod
    def _parse(line: bytes, where: str) -> dict[str, Any]:
        try:
            row = json.loads(line.decode("utf-8-sig"))
        except ValueError as error:
            raise DatasetError(f"{where}: not JSON ({error})") from error
        if not isinstance(row, dict) or not isinstance(row.get("text"), str):
            raise DatasetError(f"{where}: is not an object with _id and text")
        return row


def _full(row: Mapping[str, Any]) -> str:
    return flat_text(row.get("title"), str(row["text"]))


def _plain(key: str) -> str:
    if any(char in key for char in "\t\r\n"):
        raise DatasetError(f"the passage id {key!r} holds a tab or a line end, which a qrels file cannot represent")
    return key


def _reasons(counts: Mapping[tuple[str, str], int]) -> str:
    return "; ".join(f"{kind}: {count} {reason}" for (kind, reason), count in sorted(counts.items()))
