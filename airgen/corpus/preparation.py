"""From the settings of a corpus to its passages, which are kept in the cache.

`limit:` of a corpus: a seeded sample of its documents, taken while they stream by.

    for row in limited(reader.read(), limit=1_000_000, seed=0):
        ...     # first what the reader dropped, then the 1,000,000 documents with the smallest hashes of their ids

Nobody has to know the number of documents before. The documents come in the order of their hashes, so those of a
smaller limit are the first ones of a larger limit, and cleaning, which keeps the first of several duplicates, decides
the same for them: a larger limit only adds. The order of the source changes nothing.

Memory holds 24 bytes for each document of the sample and for as many candidates. Their texts lie in a temporary file,
which is at most three times as large as the sample.

From a corpus's settings to its passages: documents are read and cleaned, or (Long-Doc) cut into chunks.

    for row in prepare(load_corpus_settings("python-reference"), "qa"):
        ...  # a Passage, or a Dropped with its cleaner and reason, in the order of the source

Everything is streamed: memory holds one batch; the duplicate search keeps its data on disk. QA documents are read and
cleaned where `airgen.compute` says; Long-Doc, which is about one document, stays in this process.

Prepared corpora are kept in the cache, so that a second job on the same corpus does not clean it again.

    for row in prepared(settings, "qa", fingerprint):    # as `prepare`, from the cache where it is there
        ...

An entry is two files: the rows, and a checksum that is written after them. What a crash left is no entry, and a damaged
entry is made again. The key covers the fingerprint of settings and files, airgen's code, and the packages that clean.
"""

from __future__ import annotations

import gzip
import hashlib
import heapq
import json
import os
import pickle
import platform
import tempfile
import time
from array import array
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import astuple, replace
from functools import cache
from pathlib import Path
from typing import IO, Any

from airgen.compute import Here, current
from airgen.corpus.chunking import MAX_TEXT, chunk_document
from airgen.corpus.needs import open_reader, package_versions
from airgen.corpus.settings import CorpusSettings, Task
from airgen.errors import CorpusError
from airgen.keys import content_key, file_sha256, fingerprint, text_key
from airgen.paths import cache_dir
from airgen.records import Document, Dropped, Passage

_SPARE = 1024  # candidates beyond the limit that are kept at least before the file is written again


def limited(rows: Iterable[Document | Dropped], limit: int, seed: int = 0) -> Iterator[Document | Dropped]:
    """What the reader dropped, as it comes; then the `limit` documents with the smallest hashes, the smallest first.

    All rows are read. Documents of one id are ordered by a hash of their texts.
    """
    with _Sample(limit, seed) as sample:
        for row in rows:
            if isinstance(row, Dropped):
                yield row
            else:
                sample.offer(row)
        yield from sample.documents()


class _Sample:
    """The documents with the smallest hashes so far, and candidates that came since they were counted last."""

    def __init__(self, limit: int, seed: int) -> None:
        self._limit, self._seed = limit, f"{seed}\x1f".encode()
        self._most = limit + max(limit, _SPARE)
        self._bound: tuple[int, int] | None = None  # the largest hash of a full sample
        self._ids, self._texts, self._places = array("Q"), array("Q"), array("Q")
        self._file = self._new_file()

    @staticmethod
    def _new_file() -> IO[bytes]:
        return tempfile.TemporaryFile(prefix="airgen-limit-")

    def __enter__(self) -> _Sample:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def offer(self, document: Document) -> None:
        """Take the document, unless the sample is full of smaller hashes."""
        first = _hash(self._seed + document.id.encode("utf-8", "surrogatepass"))
        if self._bound is not None and first > self._bound[0]:
            return
        second = _hash(f"{document.title}\x1f{document.text}".encode("utf-8", "surrogatepass"))
        if self._bound is not None and (first, second) >= self._bound:
            return
        self._ids.append(first)
        self._texts.append(second)
        self._places.append(self._file.tell())
        pickle.dump(document, self._file, pickle.HIGHEST_PROTOCOL)
        if len(self._ids) >= self._most:
            self._shrink()

    def documents(self) -> Iterator[Document]:
        """The sample, in the order of the hashes."""
        for number in self._smallest():
            yield self._read(self._places[number])

    def _smallest(self) -> list[int]:
        """The numbers of the sample's documents, in the order of their hashes."""
        import numpy as np

        order = np.lexsort((np.array(self._texts), np.array(self._ids)))[: self._limit]
        return [int(number) for number in order]

    def _read(self, place: int) -> Document:
        self._file.seek(place)
        document: Document = pickle.load(self._file)
        return document

    def _shrink(self) -> None:
        """Forget all but the sample: a new file holds its documents."""
        kept, old = sorted(self._smallest()), self._file
        found = [(self._ids[number], self._texts[number]) for number in kept]
        self._bound = max(found)
        places, self._file = [self._places[number] for number in kept], self._new_file()
        self._ids, self._texts = array("Q", [one for one, _ in found]), array("Q", [two for _, two in found])
        self._places = array("Q")
        with old:
            for place in places:
                old.seek(place)
                self._places.append(self._file.tell())
                pickle.dump(pickle.load(old), self._file, pickle.HIGHEST_PROTOCOL)


def _hash(content: bytes) -> int:
    return int.from_bytes(hashlib.blake2b(content, digest_size=8).digest(), "big")


_REPORT = 100


def prepare(
    settings: CorpusSettings,
    task: Task,
    *,
    seed: int | None = None,
    progress: Callable[[int], object] | None = None,
    limit: int | None = None,
) -> Iterator[Passage | Dropped]:
    """Passages and dropped documents, in the order of the source; equal inputs give equal rows.

    With `settings.limit` the documents come in the order of `limited`.

    limit: the largest number of passages. Without `seed`, the first ones are taken. With `seed`, a uniform sample is
    taken, and a larger limit adds to it; the whole corpus is read, and `Dropped` rows come first.
    progress: is called with the number of documents that were read since the last call.

    Raises CorpusError if the corpus cannot be read, is empty after cleaning, or (Long-Doc) has several documents and
    none is chosen.
    """
    reader = open_reader(settings)
    documents = _counted(reader.read(), progress)
    if settings.limit is not None and not (task == "long-doc" and settings.long_doc.document):
        documents = limited(documents, settings.limit, settings.limit_seed)
    if task == "long-doc":
        rows = _long_doc(settings, documents)
    elif isinstance(compute := current(), Here):
        from airgen.corpus.qa_passages import qa_passages

        rows = qa_passages(settings, documents)
    else:
        from airgen.corpus.qa_passages import passages_by_workers

        rows = passages_by_workers(settings, reader, documents, compute, progress)
    if limit is not None:
        rows = _first(rows, limit) if seed is None else _sample(rows, limit, seed)
    return _numbered(settings, rows)


def _counted(
    rows: Iterable[Document | Dropped], progress: Callable[[int], object] | None
) -> Iterator[Document | Dropped]:
    """Report progress for every hundred documents: a call for each would cost more than some cleaners."""
    count = 0
    for row in rows:
        count += 1
        if progress is not None and count % _REPORT == 0:
            progress(_REPORT)
        yield row
    if progress is not None and count % _REPORT:
        progress(count % _REPORT)


def _long_doc(settings: CorpusSettings, rows: Iterator[Document | Dropped]) -> Iterator[Passage | Dropped]:
    part = settings.long_doc
    found: list[Document] = []
    others = length = 0
    for row in rows:
        if isinstance(row, Dropped):
            yield row
        elif part.merge or row.id == part.document or (not part.document and not found):
            found.append(row)
            length += len(row.text)
            if length > MAX_TEXT:
                raise CorpusError(
                    f"corpus {settings.name!r}: the document {settings.name if part.merge else row.id!r} has more than "
                    f"{MAX_TEXT:,} characters, too many for the Long-Doc task: choose a smaller one, or use the QA "
                    "task with `chunk`"
                )
        elif not part.document:
            names = f"{found[0].id!r}, {row.id!r}"
            raise CorpusError(
                f"corpus {settings.name!r} holds several documents ({names}, ...), but the Long-Doc task needs one: "
                f"choose it with {settings.name}#ID or with long_doc.document, or set long_doc.merge"
            )
        else:
            others += 1
    if not found:
        what = f"none of its {others} documents has the id {part.document!r}" if others else "it is empty"
        raise CorpusError(f"corpus {settings.name!r}: {what}")
    yield from chunk_document(settings, found)


def _first(rows: Iterable[Passage | Dropped], limit: int) -> Iterator[Passage | Dropped]:
    count = 0
    for row in rows:
        if isinstance(row, Passage):
            if count == limit:
                return
            count += 1
        yield row


def _sample(rows: Iterable[Passage | Dropped], limit: int, seed: int) -> Iterator[Passage | Dropped]:
    """The passages with the smallest seeded hashes: a sample for a larger limit contains that for a smaller one."""
    heap: list[tuple[int, int, Passage]] = []
    for place, row in enumerate(rows):
        if isinstance(row, Dropped):
            yield row
            continue
        rank = -int(text_key(f"{seed}\x1f{row.key}"), 16)
        if len(heap) < limit:
            heapq.heappush(heap, (rank, -place, row))
        elif limit:
            heapq.heappushpop(heap, (rank, -place, row))
    yield from (row for _, place, row in sorted(heap, key=lambda entry: -entry[1]))


def _numbered(settings: CorpusSettings, rows: Iterable[Passage | Dropped]) -> Iterator[Passage | Dropped]:
    """Number the passages and give dropped rows their keys."""
    passages = dropped = 0
    for row in rows:
        if isinstance(row, Passage):
            yield replace(row, ordinal=passages)
            passages += 1
        else:
            # The number distinguishes equal documents that were all dropped.
            yield replace(row, key=content_key([settings.name, dropped, row.cleaner, row.id, row.source, row.position]))
            dropped += 1
    if not passages:
        words = (
            f": all {dropped} documents were dropped, see `airgen show corpus --dropped` with the corpus YAML"
            if dropped
            else ""
        )
        raise CorpusError(f"corpus {settings.name!r} has no passages{words}")


_KEPT = 20  # entries; older ones are deleted
_WORTH = 2.0  # seconds of preparation, below which an entry is not worth its place
_DAY = 86400.0  # seconds


def prepared(
    settings: CorpusSettings, task: Task, corpus: str, *, worth: float = _WORTH
) -> Iterator[Passage | Dropped]:
    """The rows of `prepare`. `corpus` is a hash of the corpus's settings and files; `worth`: seconds of preparation
    from which an entry is kept. Raises CorpusError."""
    kind = str(settings.reader.get("kind"))
    if ":" in kind or kind == "datasets":  # code from outside, and what the Hub may change, are not in the key
        yield from prepare(settings, task)
        return
    rows = cache_dir("prepared") / f"{settings.name}-{_key(corpus, task)}.jsonl.gz"
    if _is_whole(rows):
        with suppress(OSError):
            os.utime(rows)
        yield from _read(rows)
    else:
        yield from _kept(rows, prepare(settings, task), worth)


@cache
def _key(corpus: str, task: Task) -> str:
    code = hashlib.blake2b(digest_size=16)
    package = Path(__file__).resolve().parents[1]
    for path in sorted([*package.glob("corpus/**/*.py"), *package.glob("text/**/*.py"), package / "languages.py"]):
        code.update(path.read_bytes())
    versions = package_versions() | {"python": platform.python_version()}
    return fingerprint(corpus=corpus, task=task, code=code.hexdigest(), versions=versions)


def _sum_of(rows: Path) -> Path:
    return rows.with_suffix(".sha256")


def _is_whole(rows: Path) -> bool:
    """Whether an entry is there and undamaged."""
    try:
        return _sum_of(rows).read_text() == file_sha256(rows)
    except (OSError, UnicodeDecodeError):
        return False


def _read(rows: Path) -> Iterator[Passage | Dropped]:
    with gzip.open(rows, "rt", encoding="ascii") as lines:
        for line in lines:
            kind, *values = json.loads(line)
            yield Passage(*values) if kind == "passage" else Dropped(*values)


def _kept(rows: Path, found: Iterator[Passage | Dropped], worth: float) -> Iterator[Passage | Dropped]:
    """The rows, which become an entry when the last one was taken. A full disk costs the entry only."""
    started, partial, out = time.monotonic(), None, None
    try:
        with suppress(OSError):
            rows.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            handle, name = tempfile.mkstemp(prefix=".partial-", dir=rows.parent)
            partial, out = (
                Path(name),
                gzip.GzipFile(fileobj=os.fdopen(handle, "wb"), mode="wb", compresslevel=1, mtime=0),
            )
        for row in found:
            out = _written(out, row)
            yield row
        if partial is not None and out is not None and time.monotonic() - started >= worth:
            with suppress(OSError):
                _finish(rows, partial, out)
    finally:
        if out is not None:
            with suppress(OSError):
                _close(out)
        if partial is not None:
            partial.unlink(missing_ok=True)


def _written(out: Any, row: Passage | Dropped) -> Any:
    """The file that the row was written to, or None after a failure."""
    if out is not None:
        try:
            line = json.dumps(["passage" if isinstance(row, Passage) else "dropped", *astuple(row)])
            out.write(f"{line}\n".encode("ascii"))
        except OSError:
            return None
    return out


def _close(out: gzip.GzipFile) -> None:
    raw: Any = None if out.closed else out.fileobj
    out.close()
    if raw is not None:
        raw.close()


def _finish(rows: Path, partial: Path, out: gzip.GzipFile) -> None:
    _close(out)
    _sum_of(rows).unlink(missing_ok=True)  # of a damaged entry, which the new one replaces
    digest = file_sha256(partial)
    partial.replace(rows)
    # Written under another name first: a checksum is whole or not there.
    fresh = rows.with_suffix(f".{os.getpid()}")
    fresh.write_text(digest)
    fresh.replace(_sum_of(rows))
    for old in sorted(rows.parent.glob("*.jsonl.gz"), key=lambda path: path.stat().st_mtime, reverse=True)[_KEPT:]:
        _sum_of(old).unlink(missing_ok=True)
        old.unlink(missing_ok=True)
    for left in rows.parent.glob(".partial-*"):  # of killed processes
        if time.time() - left.stat().st_mtime > _DAY:
            left.unlink(missing_ok=True)
