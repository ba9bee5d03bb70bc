"""Read, clean and store the corpus, once for each state of its files and settings."""

import hashlib
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from airgen.components.keys import content_key
from airgen.corpus.preparation import prepared
from airgen.corpus.requirements import source_digest
from airgen.corpus.settings import CorpusSettings, Task
from airgen.errors import CorpusError
from airgen.settings import Pipeline
from airgen.steps.step import RowBatch, Whole, WholeStep, unless_read
from airgen.storage.records import PARTS, Dropped, Passage
from airgen.storage.store import Store

BATCH = 2000  # rows per transaction: large enough for DuckDB, small enough for memory
_SHOWN_SECONDS = 2.0  # after which the rows so far are stored, so that the count on the screen moves


@dataclass(frozen=True, kw_only=True)
class CorpusSource(Whole):
    """The documents of a pipeline's corpus."""

    settings: CorpusSettings
    pipeline: Pipeline


def _work(source: CorpusSource, model: Any) -> Iterator[RowBatch]:
    """Yield passages and dropped documents in order. The corpus counts as read when its last row is stored: a run that
    is stopped earlier reads it again."""
    digest, passages, place, documents = hashlib.blake2b(digest_size=16), 0, 0, 0
    for batch in _batches(prepared(source.settings, source.pipeline.task, source.fingerprint)):
        rows = _with_titles(source.store, batch)
        for row in rows:
            if isinstance(row, Passage):
                passages += 1
                digest.update(row.key.encode())
        first, place = place, place + len(rows)
        whole = sum(isinstance(row, Passage) or row.cleaner not in PARTS for row in rows)  # as the funnel counts them
        documents += whole
        yield RowBatch(rows, whole, f"{passages:,} passages, {documents - passages:,} dropped", first)
    if not passages:
        raise CorpusError(
            f"corpus {source.pipeline.corpus}: no passage of its {place} documents is left: check its cleaning"
        )
    source.store.finish_corpus(source.fingerprint, passages, place - passages, digest.hexdigest())


def _batches(rows: Iterable[Passage | Dropped]) -> Iterator[list[Passage | Dropped]]:
    batch, started = [], time.monotonic()
    for row in rows:
        batch.append(row)
        if len(batch) == BATCH or time.monotonic() - started > _SHOWN_SECONDS:
            yield batch
            batch, started = [], time.monotonic()
    if batch:
        yield batch


def _with_titles(store: Store, rows: Sequence[Passage | Dropped]) -> list[Passage | Dropped]:
    """Return the rows. As a key depends on id and text alone, a passage whose text is already stored with a different
    title or metadata gets a new key."""
    keys = [row.key for row in rows if isinstance(row, Passage)]
    known = store.query("SELECT key, title, metadata FROM passage WHERE key IN (SELECT unnest(?))", [keys])
    stored = {key: (title, metadata) for key, title, metadata in known}
    return [
        replace(row, key=content_key([row.key, row.title, *([row.metadata] if row.metadata else [])]))
        if isinstance(row, Passage) and stored.get(row.key, (row.title, row.metadata)) != (row.title, row.metadata)
        else row
        for row in rows
    ]


def _parts(settings: CorpusSettings, task: Task) -> dict[str, Any]:
    """Return everything that the passages depend on: the text of the source, the settings of the corpus, and the
    task."""
    return {"task": task, "settings": settings.identity, "source": source_digest(settings)}


def _complete(store: Store, fingerprint: str) -> bool:
    return bool(store.query("SELECT passages FROM corpus WHERE fingerprint = ?", [fingerprint]))


def _write(source: CorpusSource, batch: RowBatch) -> None:
    source.store.put_members(source.fingerprint, batch.rows, batch.first)


CORPUS = WholeStep(
    "corpus", (), Passage, 1, label="corpus", work=_work, parts=_parts, pending=unless_read(_complete), write=_write
)
