"""From a corpus's settings to its passages: read and cleaned (QA), or cut into chunks (Long-Doc); kept in the cache.

The documents of `limit:` come in the order of the hashes of their ids, so those of a smaller limit are the first ones
of a larger limit, and cleaning, which keeps the first of several duplicates, decides the same for them: a larger limit
only adds. The order of the source changes nothing.

An entry of the cache has a checksum in its name: what a crash left is no entry, and a damaged one is made again. Its
key covers the fingerprint of settings and files, airgen's code, and the packages that clean.
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

from airgen.compute import current
from airgen.corpus.chunking import MAX_TEXT, chunk_document
from airgen.corpus.needs import open_reader, package_versions, read_documents
from airgen.corpus.settings import CorpusSettings, Task
from airgen.database import on_disk
from airgen.errors import CorpusError
from airgen.keys import content_key, file_sha256, fingerprint, text_key
from airgen.paths import cache_dir
from airgen.records import Document, Dropped, Passage

_SPARE = 1024  # candidates beyond the limit that are kept at least before they are forgotten


def limited(rows: Iterable[Document | Dropped], limit: int, seed: int = 0) -> Iterator[Document | Dropped]:
    """What the reader dropped, as it comes; then the `limit` documents with the smallest hashes, the smallest first.

    All rows are read. Documents of one id are ordered by a hash of their texts. Raises CorpusError for a full disk.
    """
    count, last = 0, b""  # of the candidates; the largest hash of a full sample
    ordered = "FROM candidate ORDER BY hash, rowid LIMIT ?"
    schema = "CREATE TABLE candidate (hash BLOB, row BLOB); CREATE INDEX by_hash ON candidate (hash)"
    with on_disk(schema, "the sample (limit)") as sample:
        for row in rows:
            if isinstance(row, Dropped):
                yield row
                continue
            found = _hash(f"{seed}\x1f{row.id}")
            if last and found > last[:8]:
                continue
            found += _hash(f"{row.title}\x1f{row.text}")
            if last and found >= last:
                continue
            sample.execute("INSERT INTO candidate VALUES (?, ?)", (found, pickle.dumps(row)))
            count += 1
            if count >= limit + max(limit, _SPARE):
                sample.execute(f"DELETE FROM candidate WHERE rowid NOT IN (SELECT rowid {ordered})", [limit])
                ((last,),) = sample.execute("SELECT max(hash) FROM candidate")
                count = limit
        for (content,) in sample.execute(f"SELECT row {ordered}", [limit]):
            document: Document = pickle.loads(content)
            yield document


def _hash(text: str) -> bytes:
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest()


_REPORT = 100


def prepare(
    settings: CorpusSettings,
    task: Task,
    *,
    seed: int | None = None,
    progress: Callable[[int], object] = lambda _: None,
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
    from airgen.corpus.qa_passages import qa_passages  # numpy and the cleaners are large

    reader = open_reader(settings)
    documents = _counted(read_documents(reader), progress)
    if settings.limit is not None and not (task == "long-doc" and settings.long_doc.document):
        documents = limited(documents, settings.limit, settings.limit_seed)
    if task == "long-doc":
        rows = _long_doc(settings, documents)
    else:
        sample = None if settings.limit is None else documents
        rows = qa_passages(settings, reader, sample, current(), progress if sample is None else lambda _: None)
    if limit is not None:
        rows = _first(rows, limit) if seed is None else _sample(rows, limit, seed)
    return _numbered(settings, rows)


def _counted(rows: Iterable[Document | Dropped], progress: Callable[[int], object]) -> Iterator[Document | Dropped]:
    """Report progress for every hundred documents: a call for each would cost more than some cleaners."""
    count = 0
    for row in rows:
        count += 1
        if count % _REPORT == 0:
            progress(_REPORT)
        yield row
    if count % _REPORT:
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
                f"corpus {settings.name!r} contains several documents ({names}, ...), but the Long-Doc task needs one: "
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
    reasons = Counter[str]()
    for row in rows:
        if isinstance(row, Passage):
            yield replace(row, ordinal=passages)
            passages += 1
        else:
            # The number distinguishes equal documents that were all dropped.
            yield replace(row, key=content_key([settings.name, dropped, row.cleaner, row.id, row.source, row.position]))
            dropped += 1
            reasons[f"{row.cleaner}: {row.reason}"] += 1
    if not passages:
        why = ", ".join(f"{count:,} {reason}" for reason, count in reasons.most_common(3))
        see = "`airgen show corpus --dropped` with the corpus YAML shows them"
        words = f": {dropped:,} of {dropped:,} documents were dropped ({why}); {see}" if dropped else ""
        raise CorpusError(f"corpus {settings.name!r} has no passages{words}")


_KEPT = 20  # entries; older ones are deleted
_WORTH = 2.0  # seconds of preparation, below which an entry is not worth its place
_DAY = 86400.0  # seconds


def prepared(
    settings: CorpusSettings, task: Task, corpus: str, *, worth: float = _WORTH
) -> Iterator[Passage | Dropped]:
    """The rows of `prepare`. `corpus` is a hash of the corpus's settings and files; `worth`: seconds of preparation
    from which an entry is kept. Raises CorpusError."""
    kind = settings.reader.kind
    if ":" in kind or kind in ("datasets", "llama-index"):  # what others may change is not in the key
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
    yield from _kept(folder, name, prepare(settings, task), worth)


def _is_whole(entry: Path) -> bool:
    try:
        return entry.name.endswith(f"-{file_sha256(entry)}.jsonl.gz")
    except OSError:
        return False


@cache
def _key(corpus: str, task: Task) -> str:
    code = hashlib.blake2b(digest_size=16)
    package = Path(__file__).resolve().parents[1]
    for path in sorted([*package.glob("corpus/**/*.py"), *package.glob("text/**/*.py"), package / "languages.py"]):
        code.update(path.read_bytes())
    versions = package_versions() | {"python": platform.python_version()}
    return fingerprint(corpus=corpus, task=task, code=code.hexdigest(), versions=versions)


def _kept(folder: Path, name: str, found: Iterator[Passage | Dropped], worth: float) -> Iterator[Passage | Dropped]:
    """The rows, which become an entry when the last one was taken. A full disk costs the entry only."""
    started, out = time.monotonic(), None
    with ExitStack() as stack:
        with suppress(OSError):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            file = stack.enter_context(tempfile.NamedTemporaryFile(prefix=".partial-", dir=folder, delete=False))
            partial = Path(file.name)
            stack.callback(partial.unlink, missing_ok=True)
            out = stack.enter_context(_Packed("", "wb", compresslevel=1, fileobj=file, mtime=0))
        for row in found:
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
                killed = [path for path in folder.glob(".partial-*") if time.time() - path.stat().st_mtime > _DAY]
                for path in (*entries[_KEPT:], *killed):
                    path.unlink(missing_ok=True)


class _Packed(gzip.GzipFile):
    """A file that has no error at its end where the disk is full."""

    def __exit__(self, *_: object) -> None:
        with suppress(OSError):
            self.close()
