"""Mine pairs from corpora and datasets: open the sources, mine, write a directory of pairs.

    mine_sources(["postgresql-manual", "datasets/scifact"], Path("data/pairs"), MiningSettings())

A source is the name of a corpus, a corpus YAML, or a directory in BEIR format.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

from airgen.corpus import load_corpus_settings, prepare
from airgen.dataset.beir import BeirDataset
from airgen.errors import UsageError
from airgen.records import Passage
from airgen.training.mining.pair_files import write_pairs
from airgen.training.mining.pairs import KINDS, MiningSettings, PairMiner, SourcePassage

__all__ = ["PairSource", "mine_sources", "open_source"]


@dataclass(frozen=True)
class PairSource:
    """Passages to mine, in the order of their corpus."""

    name: str
    language: str
    passages: Iterable[SourcePassage]


def open_source(source: str, limit: int | None = None) -> PairSource:
    """Open a corpus or a dataset; `limit` passages at most. Raises the errors of either."""
    if Path(source).is_dir():
        dataset = BeirDataset.open(source)
        passages = (SourcePassage(row.id, row.text, row.title) for row in islice(dataset.passages(), limit))
        return PairSource(dataset.name, str(dataset.info.get("language") or "en"), passages)
    settings = load_corpus_settings(source)
    rows = prepare(settings, settings.task, limit=limit)
    return PairSource(
        settings.name, settings.language, map(_of_corpus, (row for row in rows if isinstance(row, Passage)))
    )


def mine_sources(
    sources: Sequence[str],
    out: Path,
    settings: MiningSettings,
    *,
    kinds: Sequence[str] = KINDS,
    limit: int | None = None,
    exclude: Sequence[Path] = (),
    progress: Callable[[], None] | None = None,
) -> dict[str, Any]:
    """Mine several sources as one corpus and write the pairs to `out`; returns the summary of `write_pairs`.

    exclude: datasets whose queries no pair may have. The queries of a dataset that is itself a source are always
    excluded, because they are for testing. `progress` is called after each passage.

    Raises UsageError for sources in several languages.
    """
    opened = [open_source(source, limit) for source in sources]
    languages = sorted({source.language for source in opened})
    if len(languages) > 1:
        raise UsageError(f"the sources are in {' and '.join(languages)}: mine each language by itself")
    tests = [*exclude, *(Path(source) for source in sources if Path(source).is_dir())]
    queries = (query.text for path in tests for query in BeirDataset.open(path).queries().values())
    miner = PairMiner(kinds, settings, language=languages[0], exclude=queries)

    def passages() -> Iterator[SourcePassage]:
        for source in opened:
            for passage in source.passages:
                # Ids of several sources can be equal.
                yield passage if len(opened) == 1 else replace(passage, id=f"{source.name}/{passage.id}")
                if progress:
                    progress()

    info = {"name": "+".join(source.name for source in opened), "language": languages[0]}
    return write_pairs(miner.mine(passages()), out, {"info": info, **asdict(settings)}, miner.counts)


def _of_corpus(row: Passage) -> SourcePassage:
    if row.document != row.id:  # a chunk of a long document
        return SourcePassage(row.id, row.text, row.title, row.document, row.start, row.end)
    file, sign, _ = row.id.rpartition("#")  # a section of a file has the id FILE#ANCHOR
    return SourcePassage(row.id, row.text, row.title, file if sign else "")
