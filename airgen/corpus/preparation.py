"""Prepare a corpus's passages: documents are read and cleaned (QA) or split into chunks (Long-Doc), and cached.

With `limit`, documents are ordered by the hashes of their ids. The documents of a smaller limit are therefore the first
ones of a larger limit, and cleaning, which keeps the first of several duplicates, treats them the same way: raising the
limit only adds documents. The order of the source does not matter.

A cache entry has a checksum in its name, so that partial files left by a crash are ignored and damaged entries are
rebuilt. Its key covers the fingerprint of settings and files, airgen's code, and the versions of the cleaning packages.
"""

import gzip
import hashlib
import heapq
import json
import os
import pickle
import platform
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import astuple, replace
from functools import cache
from pathlib import Path

from airgen.components.keys import content_key, file_sha256, fingerprint, text_key
from airgen.compute import current
from airgen.corpus.chunking import MAX_TEXT, chunk_document
from airgen.corpus.requirements import open_reader, package_versions, read_documents
from airgen.corpus.settings import CorpusSettings, Task
from airgen.errors import CorpusError
from airgen.storage.paths import cache_dir
from airgen.storage.records import PARTS, Document, Dropped, Passage, why_dropped
from airgen.storage.sql_connections import on_disk

_MIN_SPARE_CANDIDATES = 1024  # candidates beyond the limit before the surplus is deleted


def limited(rows: Iterable[Document | Dropped], limit: int, seed: int = 0) -> Iterator[Document | Dropped]:
    """Yield what the reader dropped as it arrives, then the `limit` documents with the smallest hashes, smallest first.

    All rows are read. Documents with the same id are ordered by a hash of their texts. Raises CorpusError if the disk
    is full.
    """
    count, last = 0, b""  # the number of candidates, and the largest hash of a full sample
    ordered = "FROM candidate ORDER BY hash, rowid LIMIT ?"
    schema = "CREATE TABLE candidate (hash BLOB, row BLOB); CREATE INDEX by_hash ON candidate (hash)"
    with on_disk(schema, "the sample (limit)") as sample:
        for row in rows:
            if isinstance(row, Dropped):
                yield row
                continue
            digest = _hash(f"{seed}\x1f{row.id}")
            if last and digest > last[:8]:
                continue
            digest += _hash(f"{row.title}\x1f{row.text}")
            if last and digest >= last:
                continue
            sample.execute("INSERT INTO candidate VALUES (?, ?)", (digest, pickle.dumps(row)))
            count += 1
            if count >= limit + max(limit, _MIN_SPARE_CANDIDATES):
                sample.execute(f"DELETE FROM candidate WHERE rowid NOT IN (SELECT rowid {ordered})", [limit])
                ((last,),) = sample.execute("SELECT max(hash) FROM candidate")
                count = limit
        for (content,) in sample.execute(f"SELECT row {ordered}", [limit]):
            document: Document = pickle.loads(content)
            yield document


def _hash(text: str) -> bytes:
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest()


_DOCUMENTS_PER_REPORT = 100


def prepare(
    settings: CorpusSettings,
    task: Task,
    *,
    seed: int | None = None,
    progress: Callable[[int], object] = lambda _: None,
    limit: int | None = None,
) -> Iterator[Passage | Dropped]:
    """Yield passages and dropped documents in the order of the source. The same inputs give the same rows.

    With `settings.limit`, documents are in the order of `limited`.

    Args:
        settings: The corpus.
        task: The task of the passages: QA with documents or chunks, or one long document.
        seed: Seed for a uniform sample of `limit` passages, which a larger limit extends. The whole corpus is read, and
            `Dropped` rows come first. Without a seed, the first passages are used.
        progress: Called with the number of documents read since the last call.
        limit: Maximum number of passages.

    Raises:
        CorpusError: The corpus cannot be read, is empty after cleaning, or (Long-Doc) has several documents, none of
            which is selected.
    """
    from airgen.corpus.qa_passages import qa_passages  # numpy and the cleaners are large

    reader = open_reader(settings)
    documents = _counted(read_documents(reader), progress)
    if settings.limit is not None and not (task == "long-doc" and settings.long_doc.document):
        documents = limited(documents, settings.limit, settings.limit_seed)
    if task == "long-doc":
        rows = _long_doc(settings, documents)
    else:
        sample = None if settings.limit is None else documents
        rows = qa_passages(
            settings,
            reader,
            documents=sample,
            compute=current(),
            progress=progress if sample is None else lambda _: None,
        )
    if limit is not None:
        rows = _first(rows, limit) if seed is None else _sample(rows, limit, seed)
    return _numbered(settings, rows)


def _counted(rows: Iterable[Document | Dropped], progress: Callable[[int], object]) -> Iterator[Document | Dropped]:
    """Report progress for every hundred documents, since a call for each would cost more than some cleaners."""
    count = 0
    for row in rows:
        count += 1
        if count % _DOCUMENTS_PER_REPORT == 0:
            progress(_DOCUMENTS_PER_REPORT)
        yield row
    if count % _DOCUMENTS_PER_REPORT:
        progress(count % _DOCUMENTS_PER_REPORT)


def _long_doc(settings: CorpusSettings, rows: Iterator[Document | Dropped]) -> Iterator[Passage | Dropped]:
    part = settings.long_doc
    documents: list[Document] = []
    others = length = 0
    for row in rows:
        if isinstance(row, Dropped):
            yield row
        elif part.merge or row.id == part.document or (not part.document and not documents):
            documents.append(row)
            length += len(row.text)
            if length > MAX_TEXT:
                raise CorpusError(
                    f"corpus {settings.name!r}: the document {settings.name if part.merge else row.id!r} has more than "
                    f"{MAX_TEXT:,} characters, too many for the Long-Doc task: choose a smaller one, or use the QA "
                    "task with `chunk`"
                )
        elif not part.document:
            names = f"{documents[0].id!r}, {row.id!r}"
            raise CorpusError(
                f"corpus {settings.name!r} contains several documents ({names}, ...), but the Long-Doc task needs one: "
                f"choose it with {settings.name}#ID or with long_doc.document, or set long_doc.merge"
            )
        else:
            others += 1
    if not documents:
        problem = f"none of its {others} documents has the id {part.document!r}" if others else "it is empty"
        raise CorpusError(f"corpus {settings.name!r}: {problem}")
    yield from chunk_document(settings, documents)


def _first(rows: Iterable[Passage | Dropped], limit: int) -> Iterator[Passage | Dropped]:
    count = 0
    for row in rows:
        if isinstance(row, Passage):
            if count == limit:
                return
            count += 1
        yield row


def _sample(rows: Iterable[Passage | Dropped], limit: int, seed: int) -> Iterator[Passage | Dropped]:
    """Yield the passages with the smallest seeded hashes, so that larger samples contain smaller ones."""
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
    reasons = Counter[str]()
    for row in rows:
        if isinstance(row, Passage):
            yield replace(row, ordinal=passages)
            passages += 1
        else:
            # The number distinguishes equal documents that were all dropped.
            yield replace(row, key=content_key([settings.name, dropped, row.cleaner, row.id, row.source, row.position]))
            dropped += 1
            if row.cleaner not in PARTS:
                reasons[why_dropped(row.cleaner, row.reason)] += 1
    if not passages:
        frequent = ", ".join(f"{count:,} {reason}" for reason, count in reasons.most_common(3))
        hint = "`airgen show corpus --dropped` with the corpus YAML shows them"
        documents = reasons.total()
        explanation = (
            f": {documents:,} of {documents:,} documents were dropped ({frequent}); {hint}" if documents else ""
        )
        raise CorpusError(f"corpus {settings.name!r} has no passages{explanation}")


_MAX_ENTRIES = 20  # older ones are deleted
_MIN_PREPARATION_SECONDS = 2.0  # a corpus that is prepared faster than this is not cached
_DAY_SECONDS = 86400.0


def prepared(
    settings: CorpusSettings, task: Task, corpus: str, *, worth: float = _MIN_PREPARATION_SECONDS
) -> Iterator[Passage | Dropped]:
    """Yield the rows of `prepare`, from the cache if possible.

    Args:
        settings: The corpus.
        task: The task of the passages.
        corpus: A hash of the corpus's settings and files.
        worth: Minimum duration of the preparation, in seconds, for which an entry is stored.

    Raises:
        CorpusError: The corpus cannot be prepared; see `prepare`.
    """
    kind = settings.reader.kind
    if ":" in kind or kind in ("datasets", "llama-index"):  # the key does not cover what other programs may change
        yield from prepare(settings, task)
        return
    folder, name = cache_dir("prepared"), f"{settings.name}-{_key(corpus, task)}"
    for entry in filter(_is_whole, folder.glob(f"{name}-*.jsonl.gz")):
        with suppress(OSError):
            os.utime(entry)
        with gzip.open(entry, "rt", encoding="ascii") as lines:
            for line in lines:
                row, *values = json.loads(line)
                yield Passage(*values) if row == "passage" else Dropped(*values)
        return
    yield from _write_entry(folder, name, prepare(settings, task), worth)


def _is_whole(entry: Path) -> bool:
    try:
        return entry.name.endswith(f"-{file_sha256(entry)}.jsonl.gz")
    except OSError:
        return False


@cache
def _key(corpus: str, task: Task) -> str:
    code = hashlib.blake2b(digest_size=16)
    package = Path(__file__).resolve().parents[1]
    for path in sorted(
        [*package.glob("corpus/**/*.py"), *package.glob("text/**/*.py"), package / "settings" / "languages.py"]
    ):
        code.update(path.read_bytes())
    versions = package_versions() | {"python": platform.python_version()}
    return fingerprint(corpus=corpus, task=task, code=code.hexdigest(), versions=versions)


def _write_entry(
    folder: Path, name: str, rows: Iterator[Passage | Dropped], worth: float
) -> Iterator[Passage | Dropped]:
    """Yield the rows, and store them as a cache entry after the last one. If the disk is full, only the entry is
    lost."""
    started, out = time.monotonic(), None
    with ExitStack() as stack:
        with suppress(OSError):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            file = stack.enter_context(tempfile.NamedTemporaryFile(prefix=".partial-", dir=folder, delete=False))
            partial = Path(file.name)
            stack.callback(partial.unlink, missing_ok=True)
            out = stack.enter_context(_QuietGzipFile("", "wb", compresslevel=1, fileobj=file, mtime=0))
        for row in rows:
            if out is not None:
                line = json.dumps(["passage" if isinstance(row, Passage) else "dropped", *astuple(row)])
                try:
                    out.write(f"{line}\n".encode("ascii"))
                except OSError:
                    out = None
            yield row
        if out is not None and time.monotonic() - started >= worth:
            with suppress(OSError):
                out.close()
                file.flush()
                partial.replace(folder / f"{name}-{file_sha256(partial)}.jsonl.gz")
                entries = sorted(folder.glob("*.jsonl.gz"), key=lambda path: path.stat().st_mtime, reverse=True)
                oldest = time.time() - _DAY_SECONDS
                killed = [path for path in folder.glob(".partial-*") if path.stat().st_mtime < oldest]
                for path in (*entries[_MAX_ENTRIES:], *killed):
                    path.unlink(missing_ok=True)


class _QuietGzipFile(gzip.GzipFile):
    """A gzip file that raises no error on closing if the disk is full."""

    def __exit__(self, *_: object) -> None:
        with suppress(OSError):
            self.close()
