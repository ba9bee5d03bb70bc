"""Compare chunkers with the same retrievers on the same labels.

`out/DATASET/SPLIT/chunkers/` contains, for each chunker, a dataset in BEIR format (its chunks, the queries, and the
labels that follow from the spans) and the saved results of every system on it. Nothing runs twice.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import lru_cache, partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from airgen.dataset.beir import BeirDataset
from airgen.display.study import Column, Study, Table
from airgen.errors import CorpusError, DatasetError, UsageError
from airgen.evaluation.experiment import EvaluationOptions, evaluate, results_folder
from airgen.evaluation.intervals import bootstrap_interval
from airgen.evaluation.run import read_own_run
from airgen.evaluation.significance import compare
from airgen.evaluation.systems import SystemSettings
from airgen.safety.escaping import md
from airgen.storage.json_values import write_json
from airgen.storage.whole_files import building, write_text
from airgen.studies.chunkers.chunkers import (
    BUDGETS,
    MEASURES,
    ChunkerSettings,
    DocumentChunk,
    GoldKind,
    GoldSpans,
    chunks_of,
    gold_spans,
    is_relevant,
    query_scores,
)
from airgen.text.token_counts import load_tokenizer

HEAD = f"coverage@{BUDGETS[1]}"
"""The measure for comparing chunkers, all with the same number of tokens."""
_HITS_PER_QUERY = 100  # hits per query; a budget of 2,000 tokens holds fewer, except for tiny chunks

Matrix = NDArray[np.float64]


@dataclass(frozen=True)
class ChunkerRow:
    """One chunker with one system. `low` and `high` are the 95% interval of `HEAD` over queries.

    `worse` says whether it is significantly worse than the best chunker with the same system (Fisher's test with Holm's
    correction).
    """

    chunker: str
    system: str
    chunks: int
    mean_tokens: float
    means: Mapping[str, float]
    low: float
    high: float
    worse: bool


@dataclass(frozen=True)
class ChunkerComparison:
    """All rows by system, best chunker first. `gold` is the source of the spans, and `without` the number of queries
    without a span."""

    dataset: str
    split: str
    gold: str
    documents: int
    queries: int
    without: int
    tokenizer: str
    share: float
    rows: tuple[ChunkerRow, ...]


def compare_chunkers(
    dataset: BeirDataset,
    chunkers: Sequence[ChunkerSettings],
    systems: Sequence[SystemSettings],
    out: Path,
    options: EvaluationOptions,
    *,
    gold: GoldKind = "auto",
    share: float = 0.5,
    say: Callable[[str], None] = lambda line: None,
) -> ChunkerComparison:
    """Split the documents with each chunker, run each system, and score the hits against the spans.

    Writes `chunkers.md` and `chunkers.json` next to the results.

    Args:
        dataset: The dataset with documents, queries and labels.
        chunkers: The chunkers to compare.
        systems: The retrieval systems that search the chunks.
        out: The folder for the results.
        options: Options of the evaluation.
        gold: The source of the gold spans.
        share: The share of a span that a chunk must cover to be relevant to it.
        say: Called with lines of progress.

    Raises:
        UsageError: The share is not above 0 and at most 1.
        DatasetError: The documents have no text, or `gold_spans` or `evaluate` fails.
    """
    if not 0 < share <= 1:
        raise UsageError(f"the share of a span that a chunk must cover is {share:g}, but must be above 0 and at most 1")
    language = options.language or str(dataset.info.get("language") or "en")
    known = gold_spans(dataset, options.split, gold)
    try:  # the dataset's tokenizer, if its manifest names one; words if its vocabulary is missing
        tokenizer = load_tokenizer(str(dataset.info.get("tokenizer") or "cl100k_base"), language)
    except CorpusError:
        tokenizer = load_tokenizer("words", language)
    home = results_folder(out, dataset.name, options.split) / "chunkers"
    scores_of: dict[tuple[str, str], dict[str, Matrix]] = {}
    sizes: dict[str, tuple[int, float]] = {}
    for chunker in chunkers:
        chunks = list(chunks_of(known.documents, chunker, tokenizer, language))
        if not chunks:
            raise DatasetError(f"chunker {chunker.name}: the documents have no text")
        counts = tokenizer.count([chunk.text for chunk in chunks])
        sizes[chunker.name] = (len(chunks), float(np.mean(counts)))
        say(f"{chunker.name}: {len(chunks):,} chunks of {sizes[chunker.name][1]:.0f} tokens")
        folder = home / chunker.name
        _write(folder, dataset, known=known, chunks=chunks, language=language, share=share)
        results = evaluate(
            folder,
            systems,
            home / "results",
            replace(options, split="test", top=_HITS_PER_QUERY, language=language, report=False, measures=("nDCG@10",)),
            progress=say,
        )
        tokens = dict(zip((chunk.id for chunk in chunks), counts, strict=True))
        by_id, starts_of = {chunk.id: chunk for chunk in chunks}, lru_cache(maxsize=64)(tokenizer.starts)

        def cut(text: str, most: int, starts_of: Callable[[str], Sequence[int]] = starts_of) -> int:
            starts = starts_of(text)  # cached for the chunks that most queries find
            return starts[most] if most < len(starts) else len(text)

        for result in results:
            hits = {key: [by_id[id_] for id_, _ in row] for key, row in read_own_run(result.paths.run).ranked().items()}
            scores = [
                query_scores(hits.get(key, []), spans, tokens=tokens, cut=cut, share=share)
                for key, spans in known.spans.items()
            ]
            scores_of[result.name, chunker.name] = {name: np.array([row[name] for row in scores]) for name in MEASURES}
    rows = [row for system in systems for row in _rows(system.name, chunkers, sizes, scores_of)]
    comparison = ChunkerComparison(
        dataset=dataset.name,
        split=options.split,
        gold=known.kind,
        documents=len(known.documents),
        queries=len(known.spans),
        without=known.without,
        tokenizer=tokenizer.name,
        share=share,
        rows=tuple(rows),
    )
    write_json(home / "chunkers.json", {"format": 1, **asdict(comparison)})
    chunkers_study(comparison).write(home / "chunkers.md")
    return comparison


def _write(
    folder: Path, dataset: BeirDataset, known: GoldSpans, chunks: Sequence[DocumentChunk], language: str, share: float
) -> None:
    """Write the chunks as a dataset in BEIR format."""
    files: dict[str, Sequence[Mapping[str, object]]] = {
        "corpus.jsonl": [{"_id": chunk.id, "title": chunk.title, "text": chunk.text} for chunk in chunks],
        "queries.jsonl": [{"_id": key, "text": text} for key, text in known.queries.items()],
        "qrels/test.jsonl": _labels(known, chunks, share),
        "manifest.json": [{"info": {"name": folder.name, "language": language, "task": dataset.info.get("task")}}],
    }
    with building(folder, durable=False) as fresh:
        for path, rows in files.items():  # ASCII keeps lone surrogates
            write_text(fresh / path, (json.dumps(row) + "\n" for row in rows))


def _labels(known: GoldSpans, chunks: Sequence[DocumentChunk], share: float) -> list[dict[str, object]]:
    of_document: dict[str, list[DocumentChunk]] = {}
    for chunk in chunks:
        of_document.setdefault(chunk.document, []).append(chunk)
    return [
        {"query-id": key, "corpus-id": chunk.id, "score": 1}
        for key, spans in known.spans.items()
        for document in dict.fromkeys(span.document for span in spans)
        for chunk in of_document.get(document, ())
        if any(is_relevant(chunk, span, share) for span in spans)
    ]


def _rows(
    system: str,
    chunkers: Sequence[ChunkerSettings],
    sizes: Mapping[str, tuple[int, float]],
    scores: Mapping[tuple[str, str], Mapping[str, Matrix]],
) -> list[ChunkerRow]:
    """Return the rows of one system, best chunker first."""
    names = [chunker.name for chunker in chunkers if (system, chunker.name) in scores]
    if not names:
        return []
    matrix = np.array([scores[system, name][HEAD] for name in names])
    compared = compare(names, matrix)
    best = compared.names[0]
    worse = {
        pair.second if pair.first == best else pair.first
        for pair in compared.pairs
        if best in (pair.first, pair.second) and pair.verdict != "cannot tell"
    }
    intervals = bootstrap_interval(matrix).tolist()
    rows = {}
    for name, (low, high) in zip(names, intervals, strict=True):
        means = {measure: float(values.mean()) for measure, values in scores[system, name].items()}
        rows[name] = ChunkerRow(
            chunker=name,
            system=system,
            chunks=sizes[name][0],
            mean_tokens=sizes[name][1],
            means=means,
            low=low,
            high=high,
            worse=name in worse,
        )
    return [rows[name] for name in compared.names]


def _mean(measure: str, row: ChunkerRow) -> float:
    return row.means[measure]


def chunkers_study(comparison: ChunkerComparison) -> Study:
    """Return the comparison as a table."""
    source = "quotes of the reference answers" if comparison.gold == "answers" else "texts of the relevant passages"
    share = f"{comparison.share:.0%}"
    about = (
        f"{comparison.queries:,} queries, {comparison.documents:,} documents. Gold spans are the {source}. Tokens are "
        f"those of {md(comparison.tokenizer)}. A chunk is relevant to a span if it covers {share} of it, or if "
        f"{share} of the chunk lies in it. coverage@N: share of the gold characters among the first N tokens of the "
        f"hits. The interval is that of {HEAD}. worse: significantly below the best chunker of the system by {HEAD} "
        "(Fisher, Holm, .05)."
    )
    shown = [
        Column("system", lambda row: row.system),
        Column("chunker", lambda row: row.chunker, left=True),
        Column("chunks", lambda row: row.chunks, ","),
        Column("tokens", lambda row: row.mean_tokens, ".0f"),
        *(Column(name, partial(_mean, name), ".3f") for name in MEASURES),
        Column("95 %", lambda row: (row.low, row.high), ".3f"),
        Column("", lambda row: "worse" if row.worse else "", left=True),
    ]
    return Study(f"Chunkers on {comparison.dataset}, {comparison.split}", [about, Table(comparison.rows, shown)])
