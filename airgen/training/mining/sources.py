"""Mine pairs from corpora, datasets and dumps, and write them as a directory in BEIR format.

A source is the name of a corpus, a corpus YAML, a directory in BEIR format, or FORMAT:PATH, where FORMAT is the format
of a dump (`dumps`) and PATH a file, folder or glob. All files of one format are read together. The output consists of:

    corpus.jsonl       every passage of a pair, once, without its title (the title is often the query)
    queries.jsonl      every query, once, with its kind; its id is the hash of its text
    qrels/train.tsv    the pairs
    manifest.json      name and language; counts of kept and refused pairs, by kind and reason; written last
"""

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

from airgen.components.keys import file_sha256, text_key
from airgen.components.registry import closest, is_known, names, resolve
from airgen.corpus import load_corpus_settings, prepare
from airgen.dataset.beir import BeirDataset
from airgen.errors import DatasetError, UsageError
from airgen.retrievers.lexical.expanded import read_expansions
from airgen.safety.guard import guarded_rows
from airgen.storage.records import Passage, flat_text
from airgen.storage.whole_files import building, encode_row
from airgen.training.data import wording
from airgen.training.dataset_columns import KeyCounts
from airgen.training.dumps import DumpReader, DumpRow, DumpSettings
from airgen.training.mining.pairs import KINDS, MinedPair, MiningSettings, PairMiner, SourcePassage


@dataclass(frozen=True)
class PairSource:
    """Passages to mine, in corpus order."""

    name: str
    language: str
    passages: Iterable[SourcePassage]


def open_source(source: str, limit: int | None = None) -> PairSource:
    """Open a corpus or dataset, with at most `limit` passages. Raises the errors of either."""
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
    """Mine several sources as one corpus, write the pairs to `out`, and return the summary of `write_pairs`.

    `progress` is called after each passage and each row of a dump.

    Raises UsageError if sources have different languages or a dump's format is unknown.

    Args:
        limit: Maximum number of passages per corpus, and of rows per dump format.
        exclude: Datasets whose queries must not be in any pair. Queries of a dataset that is itself a source are always
            excluded, because they are for testing.
        dumps: Settings of the readers of dumps.
    """
    files, dumps = _dump_files(sources), dumps or DumpSettings()
    readers: dict[str, DumpReader] = {kind: resolve("dump", kind)(paths, dumps) for kind, paths in files.items()}
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
                # Several sources can have equal ids.
                yield passage if len(opened) == 1 else replace(passage, id=f"{source.name}/{passage.id}")
                if progress:
                    progress()

    def pairs() -> Iterator[MinedPair]:
        if opened:
            yield from miner.mine(passages())
        for kind, reader in readers.items():
            yield from miner.mine(
                map(count_row, islice(guarded_rows(reader.read, f"dump {kind}", DatasetError), limit)), dump=True
            )

    def count_row(row: DumpRow) -> DumpRow:
        if progress:
            progress()
        return row

    info = {"name": "+".join([*(source.name for source in opened), *readers]), "language": languages[0]}
    about = {"info": info, **asdict(settings)}
    if readers:
        names = {kind: [path.name for path in paths] for kind, paths in files.items()}
        about["dumps"] = {"files": names, **asdict(dumps)}
    return write_pairs(pairs(), out, about, miner.counts)


def _dump_of(source: str) -> tuple[str, str] | None:
    """Split `reddit:RS_2019-01.zst` into format and path. Returns None for other sources.

    Raises UsageError for an unknown format.
    """
    kind, sign, path = source.partition(":")
    if not sign or len(kind) < 2 or Path(source).exists():  # C: is a drive
        return None
    if not is_known("dump", kind):
        words = f"{source}: unknown format of dumps {kind!r}{closest(kind, names('dump'))}"
        raise UsageError(words, code="unknown_name", where=source, names=names("dump"))
    return kind, path


def _dump_files(sources: Sequence[str]) -> dict[str, list[Path]]:
    """Return {format: files}, in the order of the command, with those of a folder or glob sorted. Raises
    CorpusError."""
    files: dict[str, list[Path]] = {}
    for source in sources:
        if (dump := _dump_of(source)) is not None:
            kind, place = dump[0], Path(dump[1]).expanduser()
            root = Path(place.anchor)
            starts = [place] if place.exists() else root.glob(str(place.relative_to(root)))
            inside = (path for start in starts for path in (start.rglob("*") if start.is_dir() else [start]))
            if not (paths := sorted(path for path in inside if path.is_file())):
                raise UsageError(f"{source}: no such file", code="no_file", where=source)
            files.setdefault(kind, []).extend(paths)
    return {kind: list(dict.fromkeys(paths)) for kind, paths in files.items()}


def _of_corpus(row: Passage) -> SourcePassage:
    if row.document != row.id:  # a chunk of a long document
        return SourcePassage(row.id, row.text, row.title, row.document, start=row.start, end=row.end)
    file, sign, _ = row.id.rpartition("#")  # a section of a file has the id FILE#ANCHOR
    return SourcePassage(row.id, row.text, row.title, file if sign else "")


_KIND = "written"


def expansion_pairs(
    source: str, queries: Path, out: Path, *, per_passage: int | None = None, limit: int | None = None
) -> dict[str, Any]:
    """Write a pair for each query in a file and its passage, and return the summary of `write_pairs`.

    Raises DatasetError if no passage of the source has a query.

    Args:
        source: A corpus or a dataset. A dataset's own queries must not be in any pair, because they are for testing.
        queries: A file written by `airgen train expand`.
        per_passage: Maximum number of queries per passage.
        limit: Maximum number of passages to read.
    """
    opened, written = open_source(source, limit), read_expansions(queries)
    dataset = BeirDataset.open(source) if Path(source).is_dir() else None
    tested = {wording(query.text) for query in dataset.queries().values()} if dataset else set()
    counts: Counter[tuple[str, str]] = Counter()
    if not written:
        raise DatasetError(f"{queries}: has no queries")

    def pairs() -> Iterator[MinedPair]:
        for passage in opened.passages:
            texts = [" ".join(query.split()) for query in written.get(passage.id, ())[:per_passage]]
            counts[_KIND, "passages"] += 1
            if not texts:
                counts[_KIND, "passages without a query"] += 1
            for query in dict.fromkeys(filter(None, texts)):
                if wording(query) in tested:
                    counts[_KIND, "is a query of the dataset"] += 1
                    continue
                counts[_KIND, "pairs"] += 1
                yield MinedPair(query, flat_text(passage.title, passage.text), _KIND, passage.id)

    info = {"name": opened.name, "language": opened.language}
    about = {"info": info, "queries_sha256": file_sha256(queries), "per_passage": per_passage}
    return write_pairs(pairs(), out, about, counts)


PAIRS = "manifest.json"

HEAD = "query-id\tcorpus-id\tscore\n"


def write_pairs(
    pairs: Iterable[MinedPair], out: Path, about: Mapping[str, Any], counts: Mapping[tuple[str, str], int]
) -> dict[str, Any]:
    """Write a directory atomically, and return the content of its manifest.json.

    `counts` is read after the last pair. Raises DatasetError if there are no pairs, or if `out` contains something
    else.
    """
    queries, passages = KeyCounts(), KeyCounts()
    written = 0
    with building(out, PAIRS) as folder:
        (folder / "qrels").mkdir()
        with ExitStack() as stack:
            names = ("corpus.jsonl", "queries.jsonl", "qrels/train.tsv")
            files = [(folder / name).open("w", encoding="utf-8", newline="\n") for name in names]
            corpus, asking, qrels = map(stack.enter_context, files)
            qrels.write(HEAD)
            for pair in pairs:
                key = text_key(pair.query)[:16]
                if queries.add(key) == 1:
                    row = {"_id": key, "text": pair.query, "metadata": {"kind": pair.kind}}
                    asking.write(encode_row(row, f"query {key}"))
                judged = [(pair.passage_id, pair.passage, 1)]
                judged += [(passage.id, passage.text, 0) for passage in pair.negatives]
                for passage, text, label in judged:
                    if passages.add(passage) == 1:
                        corpus.write(encode_row({"_id": passage, "title": "", "text": text}, f"passage {passage}"))
                    qrels.write(f"{key}\t{_plain(passage)}\t{label}\n")
                written += 1
        if not written:
            why = "; ".join(f"{kind}: {count} {reason}" for (kind, reason), count in sorted(counts.items()))
            raise DatasetError(f"no pair was found: {why or 'the corpus is empty'}")
        kinds: dict[str, dict[str, int]] = {}
        for (kind, reason), count in sorted(counts.items()):
            kinds.setdefault(kind, {})[reason] = count
        summary = {**about, "pairs": written, "queries": len(queries), "passages": len(passages), "kinds": kinds}
        (folder / PAIRS).write_text(json.dumps(summary, ensure_ascii=False, indent=1, sort_keys=True), encoding="utf-8")
    return summary


def _plain(key: str) -> str:
    if any(char in key for char in "\t\r\n"):
        raise DatasetError(f"the passage id {key!r} contains a tab or a line end, which a qrels file cannot represent")
    return key
