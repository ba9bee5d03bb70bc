"""Mine pairs from corpora, datasets and dumps: open the sources, mine, write a directory of pairs.

    mine_sources(["postgresql-manual", "datasets/scifact"], Path("data/pairs"), MiningSettings())
    mine_sources(["reddit:RS_2019-01.zst", "reddit:RC_2019-01.zst"], Path("data/reddit"), MiningSettings())

A source is the name of a corpus, a corpus YAML, a directory in BEIR format, or FORMAT:PATH, where FORMAT is a dump's
(`dumps`) and PATH a file, a folder or a glob. All files of one format are read together.
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
from airgen.registry import REGISTRY, closest, resolve
from airgen.training.mining.dumps.dump_reader import DumpReader, DumpRow, DumpSettings
from airgen.training.mining.pair_files import write_pairs
from airgen.training.mining.pairs import KINDS, MinedPair, MiningSettings, PairMiner, SourcePassage


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
    dumps: DumpSettings | None = None,
    progress: Callable[[], None] | None = None,
) -> dict[str, Any]:
    """Mine several sources as one corpus and write the pairs to `out`; returns the summary of `write_pairs`.

    limit: passages of a corpus, rows of a format of dumps. exclude: datasets whose queries no pair may have. The
    queries of a dataset that is itself a source are always excluded, because they are for testing. dumps: what is kept
    of dumps. `progress` is called after each passage, and each row of a dump.

    Raises UsageError for sources in several languages and for an unknown format of dumps.
    """
    found, dumps = _dump_files(sources), dumps or DumpSettings()
    readers: dict[str, DumpReader] = {kind: resolve("dump", kind)(paths, dumps) for kind, paths in found.items()}
    sources = [source for source in sources if _dump_of(source) is None]
    opened = [open_source(source, limit) for source in sources]
    languages = sorted({*(source.language for source in opened), *([dumps.language] if readers else [])})
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

    def pairs() -> Iterator[MinedPair]:
        if opened:
            yield from miner.mine(passages())
        for reader in readers.values():
            yield from miner.mine_dump(map(told, islice(reader.read(), limit)))

    def told(row: DumpRow) -> DumpRow:
        if progress:
            progress()
        return row

    info = {"name": "+".join([*(source.name for source in opened), *readers]), "language": languages[0]}
    about = {"info": info, **asdict(settings)}
    if readers:
        names = {kind: [path.name for path in paths] for kind, paths in found.items()}
        about["dumps"] = {"files": names, **asdict(dumps)}
    return write_pairs(pairs(), out, about, miner.counts)


def _dump_of(source: str) -> tuple[str, str] | None:
    """(format, path) of `reddit:RS_2019-01.zst`; None for another source. Raises UsageError for an unknown format."""
    kind, sign, path = source.partition(":")
    if not sign or len(kind) < 2 or Path(source).exists():  # C: is a drive
        return None
    if kind not in REGISTRY["dump"]:
        raise UsageError(f"{source}: unknown format of dumps {kind!r}{closest(kind, list(REGISTRY['dump']))}")
    return kind, path


def _dump_files(sources: Sequence[str]) -> dict[str, list[Path]]:
    """{format: its files in the order of the command, those of a folder or glob sorted}. Raises CorpusError."""
    found: dict[str, list[Path]] = {}
    for source in sources:
        if (dump := _dump_of(source)) is not None:
            kind, place = dump[0], Path(dump[1]).expanduser()
            paths = [path for path in place.rglob("*") if path.is_file()] if place.is_dir() else [place]
            globs = [at for at, part in enumerate(place.parts) if any(mark in part for mark in "*?[")]
            if globs and not place.exists():
                fixed, rest = place.parts[: globs[0]], place.parts[globs[0] :]
                paths = [path for path in Path(*fixed).glob(str(Path(*rest))) if path.is_file()]
            if not paths or not paths[0].is_file():
                raise UsageError(f"{source}: no such file")
            found.setdefault(kind, []).extend(sorted(paths))
    return {kind: list(dict.fromkeys(paths)) for kind, paths in found.items()}


def _of_corpus(row: Passage) -> SourcePassage:
    if row.document != row.id:  # a chunk of a long document
        return SourcePassage(row.id, row.text, row.title, row.document, row.start, row.end)
    file, sign, _ = row.id.rpartition("#")  # a section of a file has the id FILE#ANCHOR
    return SourcePassage(row.id, row.text, row.title, file if sign else "")
