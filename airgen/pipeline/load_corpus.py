"""The corpus stage: it writes the passages into the work database, once for each state of the corpus."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from typing import TypeVar

from airgen.corpus.needs import source_digest
from airgen.corpus.preparation import prepared
from airgen.corpus.settings import CorpusSettings
from airgen.errors import CorpusError
from airgen.keys import content_key, fingerprint
from airgen.pipeline.progress import Display
from airgen.records import Dropped, Passage
from airgen.sequences import batched
from airgen.settings import Pipeline
from airgen.store import Store

BATCH = 2000  # rows a transaction: large enough for DuckDB, small enough for memory and progress

T = TypeVar("T")


def corpus_fingerprint(settings: CorpusSettings, pipeline: Pipeline) -> str:
    """A hash of what the passages depend on: the source's text, the corpus's settings, and the task."""
    values = settings.model_dump(mode="json", exclude={"notes", "title", "domain"})
    return fingerprint(stage="corpus", version=1, task=pipeline.task, settings=values, source=source_digest(settings))


def load_corpus(store: Store, settings: CorpusSettings, pipeline: Pipeline, fp: str, display: Display) -> int:
    """Read, clean and store the corpus, unless that is done already; returns the number of passages.

    A run that is stopped here reads the corpus again. Passages that are stored already stay as they are; the corpus
    counts as read when its last row is stored.
    """
    done = store.query("SELECT passages FROM corpus WHERE fingerprint = ?", [fp])
    if done:
        return int(done[0][0])
    digest, counts = hashlib.blake2b(digest_size=16), {"passages": 0, "dropped": 0}
    with display.stage("corpus", None) as bar:
        place = 0
        for batch in batched(prepared(settings, pipeline.task, fp), BATCH):
            batch = _with_titles(store, batch)
            for row in batch:
                counts["passages" if isinstance(row, Passage) else "dropped"] += 1
                if isinstance(row, Passage):
                    digest.update(row.key.encode())
            store.put_members(fp, batch, place)
            place += len(batch)
            bar.advance(len(batch), f"{counts['passages']:,} passages, {counts['dropped']:,} dropped")
    if not counts["passages"]:
        raise CorpusError(
            f"corpus {pipeline.corpus}: no passage is left of {counts['dropped']} documents: see its cleaning"
        )
    store.finish_corpus(fp, counts["passages"], counts["dropped"], digest.hexdigest())
    return counts["passages"]


def _with_titles(store: Store, rows: Sequence[Passage | Dropped]) -> list[Passage | Dropped]:
    """The rows; a passage whose text is stored already under another title gets a key of its own.

    A key follows from id and text, so that a passage keeps what was made from it when its title stays.
    """
    keys = [row.key for row in rows if isinstance(row, Passage)]
    titles = dict(store.query("SELECT key, title FROM passage WHERE key IN (SELECT unnest(?))", [keys]))
    return [
        replace(row, key=content_key([row.key, row.title]))
        if isinstance(row, Passage) and titles.get(row.key, row.title) != row.title
        else row
        for row in rows
    ]
