"""Measure the diversity of a dataset's queries from its published files (AIR-Bench 3.2 and B.3; BEIR 3.1).

    profile = profile_dataset(BeirDataset.open("python-reference"))
    profile.shares["type"]["test"]             # {"question": 31, "claim": 9, ...}
    profile.overlap.rewritten                  # share of a rewritten query's stemmed words that its positive holds

The kind of a query comes from its metadata, or from an LLM (`airgen study diversity --label-with`), whose answers are
saved in `OUT/answers.duckdb`. The original forms of rewritten queries are in `private/lineage.jsonl`.
"""

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from airgen.dataset.beir import BeirDataset, BeirQuery, typed_rows
from airgen.errors import DatasetError, UsageError
from airgen.evaluation.breakdown import length_class
from airgen.evaluation.dataset_split import LINEAGE
from airgen.llms.base import Llm, Request
from airgen.llms.prompts import PromptSet
from airgen.llms.scripted import last_block
from airgen.retrievers.passages import Passages
from airgen.safety.escaping import distinct_names, json_text
from airgen.settings import load_pipeline
from airgen.steps.ask import ask_about, ask_once_more
from airgen.steps.step import Problem
from airgen.storage.records import flat_text
from airgen.storage.sequences import batched
from airgen.text.analysis import Encoder, analyser
from airgen.text.near_duplicates import NearDuplicateIndex, folded_words, word_counts
from airgen.text.overlap import content_terms
from airgen.text.words import count_words

Labels = dict[str, dict[str, str]]


def label_queries(
    pipeline: Path,
    out: Path,
    datasets: Sequence[Mapping[str, str]],
    budget_usd: float | None = None,
) -> tuple[list[Labels], dict[str, int]]:
    """Label the queries {id: text} of each dataset with the pipeline's LLM and the prompt `label_query`.

    Returns {id: {type, style}} for each dataset, and the number of queries without a usable answer, by reason. Raises
    BudgetSpent or Stopped, after which the same call continues.
    """
    settings = load_pipeline(pipeline)
    prompt, llm = PromptSet.beside(pipeline.parent).get("label_query"), settings.llm
    params: dict[str, Any] = {"temperature": 0.0, "max_tokens": 64}
    chosen = [(at, key) for at, queries in enumerate(datasets) for key in queries]

    async def label_query(engine: Llm, item: tuple[int, str]) -> dict[str, str] | str:
        number, key = item
        values = {"query": datasets[number][key]}
        answer = await ask_once_more(engine, llm, prompt, "label", params=params, values=values)
        return answer.reason if isinstance(answer, Problem) else dict(answer)

    rules = {"label": _scripted}
    answers = ask_about(chosen, label_query, settings, out / "answers.duckdb", budget_usd=budget_usd, rules=rules)
    labels: list[Labels] = [{} for _ in datasets]
    for (number, key), answer in zip(chosen, answers, strict=True):
        if not isinstance(answer, str):
            labels[number][key] = answer
    return labels, dict(sorted(Counter(answer for answer in answers if isinstance(answer, str)).items()))


def _scripted(request: Request) -> str:
    """Return the type and style of a query by its first word and its length."""
    words = last_block(request).casefold().split()
    asked = next((name for name in ("what", "how", "why", "who", "when", "where", "which") if name in words), "")
    style = "concise" if len(words) < 5 else "complicated" if len(words) >= 20 else "informal"
    return json.dumps({"type": asked or ("claim" if len(words) >= 10 else "others"), "style": style})


T = TypeVar("T")

ATTRIBUTES = ("type", "style", "length", "information")
"""Metadata of generated queries: the properties requested from the generator (AIR-Bench A.2.1)."""

NO_SPLIT = "(no labels)"
_BATCH_PASSAGES = 5000  # passages read at a time

Shares = dict[str, dict[str, dict[str, int]]]


@dataclass(frozen=True, slots=True)
class VocabularySize:
    """The numbers of words (tokens) and of distinct words (types)."""

    tokens: int
    types: int


class Vocabulary:
    """Word counts of a collection, which is added in batches.

    Words are not stemmed and stop words are kept, because the wording itself is measured.
    """

    def __init__(self, language: str) -> None:
        chain = analyser(language, stem=False, stopwords=False, segment=language in ("zh", "ja", "ko"))
        self._encoder = Encoder(chain)
        self._counts = np.zeros(0, np.int64)

    def add(self, texts: Sequence[str]) -> NDArray[np.int64]:
        """Count the words of more texts, and return the number in each text, int64 (texts,)."""
        terms, lengths = self._encoder.encode(texts)
        counts = np.bincount(terms, minlength=len(self._encoder.vocabulary))
        counts[: len(self._counts)] += self._counts
        self._counts = counts
        return lengths

    @property
    def size(self) -> VocabularySize:
        """Return the numbers of words so far."""
        return VocabularySize(int(self._counts.sum()), len(self._counts))

    def shares(self) -> dict[str, float]:
        """Return the relative frequency of each word."""
        total = max(1, self.size.tokens)
        return {word: int(self._counts[place]) / total for word, place in self._encoder.vocabulary.items()}


@dataclass(frozen=True, slots=True)
class WordCounts:
    """Statistics of words per text: mean, median, 5th and 95th percentile."""

    mean: float
    median: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class MeanOverlap:
    """Mean shares of a query's content words (`airgen.text.overlap`) that a passage contains, from 0 to 1.

    `positives` is for the query's relevant passages (their mean), over `queries` queries. `others` is for a relevant
    passage of another query, as a baseline. `original` and `rewritten` are for the passage from which the query was
    generated, before and after rewriting, over the `pairs` rewritten queries, or None if unknown.
    """

    queries: int
    positives: float
    others: float
    pairs: int = 0
    original: float | None = None
    rewritten: float | None = None


@dataclass(frozen=True, slots=True)
class Duplicates:
    """Shares of duplicates, from 0 to 1.

    `exact` are queries with the same words as an earlier one. `near` are queries whose words have a Jaccard similarity
    of at least 0.8 with those of an earlier one, including exact duplicates. `passages` are passages with the same
    title and text as an earlier one.
    """

    exact: float
    near: float
    passages: float


@dataclass(frozen=True)
class Profile:
    """The diversity measures of one dataset.

    `shares` is {attribute: {split: {value: queries}}}. `analysis` describes how words were determined.
    """

    name: str
    task: str
    language: str
    passages: int
    splits: Mapping[str, int]
    shares: Shares
    query_words: WordCounts
    passage_words: WordCounts
    length_classes: Mapping[str, int]
    overlap: MeanOverlap
    duplicates: Duplicates
    query_vocabulary: VocabularySize
    corpus_vocabulary: VocabularySize
    analysis: Mapping[str, object]
    vocabulary: Vocabulary = field(repr=False, compare=False)

    @property
    def queries(self) -> int:
        """Return the number of queries, with and without labels."""
        return sum(self.splits.values())


def profile_datasets(
    paths: Sequence[Path],
    out: Path,
    *,
    language: str | None = None,
    pipeline: Path | None = None,
    budget_usd: float | None = None,
) -> tuple[list[Profile], Mapping[str, int]]:
    """Measure the datasets, and return their profiles and the number of queries without a label, by reason.

    `language` is used for corpora whose manifest does not name one. The LLM of `pipeline` labels types and styles; its
    answers and `labels.jsonl` are saved in `out`. Raises UsageError for a budget without a pipeline, and the errors of
    reading a dataset and asking an LLM.
    """
    if pipeline is None and budget_usd is not None:
        raise UsageError("--budget limits the labels of an LLM: give --label-with as well")
    opened = [BeirDataset.open(path) for path in paths]
    labels: list[Labels] = [{} for _ in opened]
    failed: Mapping[str, int] = {}
    if pipeline is not None:
        texts = [{key: query.text for key, query in dataset.queries().items()} for dataset in opened]
        labels, failed = label_queries(pipeline, out, texts, budget_usd=budget_usd)
        lines = "".join(
            json_text({"dataset": dataset.name, "query": key, **values}) + "\n"
            for dataset, labelled in zip(opened, labels, strict=True)
            for key, values in labelled.items()
        )
        (out / "labels.jsonl").write_text(lines, encoding="utf-8", errors="surrogatepass")
    profiles = []
    names = distinct_names(dataset.name for dataset in opened)
    for name, dataset, labelled in zip(names, opened, labels, strict=True):
        dataset_language = str(dataset.info.get("language") or language or "") or None
        profiles.append(profile_dataset(replace(dataset, called=name), language=dataset_language, labels=labelled))
    return profiles, failed


def profile_dataset(
    dataset: BeirDataset, *, language: str | None = None, labels: Mapping[str, Mapping[str, str]] | None = None
) -> Profile:
    """Read a dataset once and measure it.

    `language` is by default the manifest's, or else English. `labels` are a labeller's {query id: {attribute: value}},
    which are counted in addition to the metadata as `labelled ATTRIBUTE`. Raises DatasetError if files cannot be read.
    """
    language = language or str(dataset.info.get("language") or "en")
    queries = dataset.queries()
    if not queries:
        raise DatasetError(f"{dataset.path}: there are no queries")
    qrels = dataset.qrels("all").labels
    split_of = {query: split for split in dataset.splits for query in dataset.qrels(split).labels}
    positives = {
        key: [id_ for id_, label in labelled.items() if label > 0] for key, labelled in qrels.items() if key in queries
    }
    rows = typed_rows(dataset.path / LINEAGE, {"query": str, "positive": str, "original": str})
    lineage = {row["query"]: row for _, row in rows}  # the passage from which each query was generated
    wanted = {id_ for ids in positives.values() for id_ in ids} | {row["positive"] for row in lineage.values()}
    vocabulary, lengths, terms = Vocabulary(language), list[int](), dict[str, frozenset[str]]()
    different: set[int] = set()
    for batch in batched(dataset.passages(), _BATCH_PASSAGES):
        passages = [flat_text(passage.title, passage.text) for passage in batch]
        lengths += vocabulary.add(passages).tolist()
        different.update(map(hash, passages))
        read = zip(batch, passages, strict=True)
        terms.update({passage.id: content_terms(text, language) for passage, text in read if passage.id in wanted})
    query_vocabulary = Vocabulary(language)
    texts = [query.text for query in queries.values()]
    seen = NearDuplicateIndex(language, counts=word_counts(texts, language))
    query_vocabulary.add(texts)
    near = sum(seen.add(text) is not None for text in texts)
    folded = {tuple(folded_words(text, language)) for text in texts}
    counts = [count_words(text, language) for text in texts]
    return Profile(
        name=dataset.name,
        task=str(dataset.info.get("task") or ""),
        language=language,
        passages=len(lengths),
        splits=dict(sorted(Counter(split_of.get(key, NO_SPLIT) for key in queries).items())),
        shares=_shares(queries, split_of, labels or {}),
        query_words=_lengths(counts),
        passage_words=_lengths(lengths),
        length_classes=dict(sorted(Counter(map(length_class, counts)).items())),
        overlap=_overlap(queries, positives, lineage=lineage, terms=terms, language=language),
        duplicates=Duplicates(
            (len(queries) - len(folded)) / len(queries),
            near / len(queries),
            (len(lengths) - len(different)) / len(lengths),
        ),
        query_vocabulary=query_vocabulary.size,
        corpus_vocabulary=vocabulary.size,
        analysis=analyser(language).describe(),
        vocabulary=vocabulary,
    )


def _shares(
    queries: Mapping[str, BeirQuery], split_of: Mapping[str, str], labels: Mapping[str, Mapping[str, str]]
) -> Shares:
    counts: dict[str, dict[str, Counter[str]]] = {}
    for key, query in queries.items():
        values = {name: query.metadata.get(name) for name in ATTRIBUTES}
        values |= {f"labelled {name}": value for name, value in labels.get(key, {}).items()}
        for name, value in values.items():
            if value is not None and value != "":
                split = split_of.get(key, NO_SPLIT)
                counts.setdefault(name, {}).setdefault(split, Counter())[str(value)] += 1
    return {
        name: {split: dict(sorted(values.items())) for split, values in sorted(counts[name].items())}
        for name in sorted(counts)
    }


def _lengths(counts: Sequence[int]) -> WordCounts:
    low, median, high = (float(value) for value in np.percentile(counts, [5, 50, 95]))
    return WordCounts(float(np.mean(counts)), median, low, high)


def stems_of(corpus: Passages, wanted: Iterable[Iterable[str]]) -> dict[str, frozenset[str]]:
    """Return the content words of these passages by id, as stems; see `airgen.text.overlap`."""
    ids = {id_ for group in wanted for id_ in group}
    return {
        id_: content_terms(corpus.full_text(at), corpus.language) for at, id_ in enumerate(corpus.ids) if id_ in ids
    }


def shared_stems(
    queries: Mapping[str, BeirQuery],
    positives: Mapping[str, Sequence[str]],
    passages: Mapping[str, frozenset[str]],
    language: str,
) -> dict[str, list[float]]:
    """Return {query: shares of its content words that occur in each of its passages, 0 to 1}.

    Queries without content words, and queries without any passage in `passages`, are left out.
    """
    shares = {}
    for key, ids in positives.items():
        query_stems = content_terms(queries[key].text, language) if key in queries else frozenset[str]()
        known = [passages[id_] for id_ in ids if id_ in passages]
        if query_stems and known:
            shares[key] = [len(query_stems & passage) / len(query_stems) for passage in known]
    return shares


def _overlap(
    queries: Mapping[str, BeirQuery],
    positives: Mapping[str, Sequence[str]],
    lineage: Mapping[str, Mapping[str, Any]],
    terms: Mapping[str, frozenset[str]],
    language: str,
) -> MeanOverlap:
    own = shared_stems(queries, positives, terms, language)
    # The order of an exported dataset is random, so the next query's passage can represent any other query's.
    keys = list(own)
    others = {}
    for place, key in enumerate(keys):
        later = (id_ for step in range(1, len(keys)) for id_ in positives[keys[(place + step) % len(keys)]])
        others[key] = list(islice((id_ for id_ in later if id_ in terms and id_ not in positives[key]), 1))
    written = {key: row for key, row in lineage.items() if key in queries and row.get("rewrites")}
    before = {key: BeirQuery(key, row["original"]) for key, row in written.items()}
    source = {key: [row["positive"]] for key, row in written.items()}
    original, rewritten = (shared_stems(texts, source, terms, language) for texts in (before, queries))
    pairs = original.keys() & rewritten.keys()
    return MeanOverlap(
        queries=len(own),
        positives=_mean(own.values()),
        others=_mean(shared_stems(queries, others, terms, language).values()),
        pairs=len(pairs),
        original=_mean(original[key] for key in pairs) if pairs else None,
        rewritten=_mean(rewritten[key] for key in pairs) if pairs else None,
    )


def _mean(shares: Iterable[Sequence[float]]) -> float:
    means = [float(np.mean(values)) for values in shares]
    return float(np.mean(means)) if means else 0.0
