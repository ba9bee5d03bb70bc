"""One split of a dataset, on which systems are evaluated by passage or by document.

`export.ids: opaque` gives every passage a new id, whereas search services and run files may use the original ids. With
the dataset's secret, or if it has none, an original id can be mapped to the new one. If passages are chunks, a
document's score and label are the maximum over its chunks.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

from airgen.dataset.beir import BeirDataset, BeirQuery, Qrels, typed_rows
from airgen.dataset.content import ANSWERED, fitting_id
from airgen.dataset.secret import opaque_document_id, secret_of
from airgen.errors import DatasetError
from airgen.evaluation.document_level import PageLookup
from airgen.evaluation.run import Run, run_from_dict
from airgen.retrievers.passages import Passages

_CACHED_IDS = 100_000  # ids of another form of which the passage is kept


class IdLookup:
    """The passage ids of a dataset. `find` accepts new and original ids."""

    def __init__(self, ids: Iterable[str], dataset: BeirDataset | None = None) -> None:
        self._known = set(ids)
        self._example = min(self._known, default="")
        self._name = str(dataset.info.get("name") or "") if dataset else ""
        self._secret = None
        if dataset is not None:
            with suppress(DatasetError):  # somebody else's, which only translates original ids
                self._secret = secret_of(dataset.path)
        made_with = str(dataset.manifest.get("secret") or "") if dataset else ""
        self._lost = bool(made_with) and (self._secret is None or self._secret.name != made_with)
        self._kept = lru_cache(_CACHED_IDS)(self._other_name)  # most queries of a system find the same passages

    def __len__(self) -> int:
        return len(self._known)

    def find(self, id_: str) -> str | None:
        """Return the passage's id in the dataset, or None."""
        return id_ if id_ in self._known else self._kept(id_)

    def _other_name(self, id_: str) -> str | None:
        if (fitting := fitting_id(id_)) in self._known:
            return fitting
        new = self.renamed(id_)
        return new if new in self._known else None

    def renamed(self, id_: str) -> str | None:
        """Return the id that the dataset gives to an id of its original corpus, or None if that is not known."""
        return None if not self._name or self._lost else opaque_document_id(self._name, id_, self._secret)

    @property
    def advice(self) -> str:
        """Explain what the dataset's ids look like, and why an original id may be unknown."""
        text = f"its ids look like {self._example[:100]!r}"
        if self._lost:
            text += (
                ", and its original ids are only in its private part (evaluate the dataset in the folder of its job)"
            )
        return text


PARENTS = "private/parents.jsonl"
"""The file with the document of each chunk."""
LINEAGE = "private/lineage.jsonl"
"""The file with the sources of each generated query."""


def read_parents(path: str | Path) -> dict[str, str]:
    """Read the parent of each passage from JSON Lines with `_id` and `parent`.

    Raises DatasetError with file and line.
    """
    parents = {row["_id"]: row["parent"] for _, row in typed_rows(Path(path), {"_id": str, "parent": str})}
    if not parents:
        raise DatasetError(f"{path}: contains no parents")
    return parents


def run_by_parent(run: Run, parents: Mapping[str, str]) -> Run:
    """Convert a run on chunks to a run on documents, each with the best score of its chunks.

    Raises DatasetError if no chunk has a parent.
    """
    if not any(passage in parents for passage in run.passage_ids):
        example, known = next(iter(run.passage_ids), ""), next(iter(parents), "")
        raise DatasetError(f"no passage of the run has a parent: the run has {example!r}, the parents {known!r}")
    return run_from_dict({query: _largest(dict(hits), parents) for query, hits in run.items()})


def labels_by_parent(
    labels: Mapping[str, Mapping[str, float]], parents: Mapping[str, str]
) -> dict[str, dict[str, float]]:
    """Convert labels of chunks to labels of documents, each with the highest label of its chunks."""
    return {query: _largest(row, parents) for query, row in labels.items()}


def _largest(row: Mapping[str, float], parents: Mapping[str, str]) -> dict[str, float]:
    largest: dict[str, float] = {}
    for passage, value in row.items():
        parent = parents.get(passage, passage)
        largest[parent] = max(largest.get(parent, value), value)
    return largest


def answers_of(metadata: Mapping[str, Any]) -> list[str]:
    """Return the answers in a query's metadata. `answers` is a text, a list of texts, or SQuAD's `{"text": [...]}`."""
    answers = metadata.get("answers")
    if isinstance(answers, Mapping):
        answers = answers.get("text")
    items = answers if isinstance(answers, list) else [answers]
    return [answer for answer in items if isinstance(answer, str)]


def fits(metadata: Mapping[str, Any], wanted: Mapping[str, Any] | None) -> bool:
    """Return whether a passage matches a filter.

    A list in the filter or the metadata matches if the two share a value.
    """
    return all(_value_set(metadata.get(name)) & _value_set(accepted) for name, accepted in (wanted or {}).items())


def _value_set(value: Any) -> set[str]:
    return {str(item) for item in (value if isinstance(value, list) else [value])}


def commonest(values: Sequence[str]) -> str:
    """Return the most frequent value, `several` if two are equally frequent, or "" if there are no values."""
    ranked = Counter(values).most_common(2)
    if len(ranked) == 2 and ranked[0][1] == ranked[1][1]:
        return "several"
    return ranked[0][0] if ranked else ""


_MOST_VALUES = 20  # of an attribute of relevant passages


def shown_value(value: Any) -> str:
    return "" if value is None else ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def _common(values: Mapping[str, str]) -> dict[str, str]:
    """Replace the rarer values with `other` if there are many."""
    counts = Counter(values.values())
    frequent = {value for value, _ in sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))[:_MOST_VALUES]}
    return {key: value if value in frequent else "other" for key, value in values.items()}


@dataclass
class DatasetSplit:
    """One split of a dataset, each part of which is read on first use.

    Attributes:
        words, token_lines: Caches for the words and token lines of passages.
    """

    dataset: BeirDataset
    split: str
    language: str
    words: dict[int, frozenset[str]] = field(default_factory=dict)
    token_lines: dict[int, str] = field(default_factory=dict)

    @cached_property
    def digest(self) -> str:
        """Return the content hash of corpus, queries and this split's qrels, if it has any."""
        return self.dataset.digest(self.split)

    @cached_property
    def qrels(self) -> Qrels:
        """Return the labels. A passage that does not match its query's filter has no label."""
        labels = self._all_labels.labels
        if not self.filters:
            return self._all_labels
        metadata = dict(zip(self.corpus.ids, self.corpus.metadata, strict=False))
        return Qrels(
            {
                query: {
                    key: label for key, label in row.items() if fits(metadata.get(key, {}), self.filters.get(query))
                }
                for query, row in labels.items()
            }
        )

    @cached_property
    def _all_labels(self) -> Qrels:
        return self.dataset.qrels(self.split)

    @cached_property
    def queries(self) -> dict[str, BeirQuery]:
        """Return the queries that have labels, in the order of the qrels, or for a withheld split, all queries in file
        order.

        Raises DatasetError if none of them has text.
        """
        queries = self.dataset.queries(self.split)
        if self.split in self.dataset.withheld:
            labelled = {key: query for key, query in queries.items() if query.metadata.get("split") == self.split}
            if not labelled:
                raise DatasetError(f"{self.dataset.path}: queries.jsonl has no query of the split {self.split!r}")
            return labelled
        if not self._all_labels.labels:
            raise DatasetError(
                f"{self.dataset.path}: no query of the split {self.split} has an answer, so nothing can be scored"
            )
        labelled = {key: queries[key] for key in self._all_labels.labels if key in queries}
        if not labelled:
            raise DatasetError(
                f"{self.dataset.path}: no query of the {self.split} qrels is among its queries: "
                "the labels belong to another dataset or version"
            )
        return labelled

    @cached_property
    def unanswered(self) -> dict[str, BeirQuery]:
        """Return the queries of this split without an answer in the corpus: `answered: false` and no labels."""
        if self.split in self.dataset.withheld:
            return {}
        return {
            key: query
            for key, query in self.dataset.queries(self.split).items()
            if query.metadata.get(ANSWERED) is False
            and self.split in ("all", query.metadata.get("split"))
            and key not in self._all_labels.labels
        }

    @cached_property
    def corpus(self) -> Passages:
        """Return the whole corpus in memory."""
        return Passages.of(self.dataset.passages(), self.language)

    @cached_property
    def lost_labels(self) -> str:
        """Return a line about relevant passages that are missing from the corpus, or "".

        Raises DatasetError if all are missing, because every score would be 0, whatever a system retrieves.
        """
        relevant = [key for row in self.qrels.labels.values() for key, label in row.items() if label > 0]
        known = set(self.corpus.ids)
        missing = [key for key in relevant if key not in known]
        if not missing:
            return ""
        scope = f"of the {self.split} qrels, such as {missing[0][:100]!r}, is in the corpus"
        if len(missing) == len(relevant):
            raise DatasetError(
                f"{self.dataset.path}: no relevant passage {scope}, so every score would be 0: the labels belong "
                f"to a different dataset or version ({self.ids.advice})",
                code="unknown_passages",
                where=self.dataset.path,
            )
        return (
            f"{self.dataset.name}: {len(missing):,} of {len(relevant):,} relevant passages of the {self.split} qrels, "
            f"such as {missing[0][:100]!r}, are not in the corpus: no system can find them"
        )

    @cached_property
    def filters(self) -> dict[str, dict[str, Any]]:
        """Return the filter of each query that has one. Raises DatasetError for a filter that no passage matches."""
        queries = self.queries | self.unanswered
        try:
            filters = {key: wanted for key, query in queries.items() if (wanted := query.filter)}
        except DatasetError as error:
            raise DatasetError(f"{self.dataset.path}: {error}") from None
        known = {name for metadata in self.corpus.metadata for name in metadata} if filters else set()
        for key, wanted in filters.items():
            if unknown := [name for name in wanted if name not in known]:
                raise DatasetError(
                    f"{self.dataset.path}: query {key!r} has the filter {unknown[0]!r}, which no passage has in its "
                    f"metadata ({', '.join(sorted(known)) or 'there is none'}): name it in the corpus "
                    f"(metadata: [{unknown[0]}]), or leave the filter out"
                )
        return filters

    @cached_property
    def of_relevant(self) -> dict[str, dict[str, str]]:
        """Return {attribute: {query id: value}} with the most frequent metadata value, such as `metadata.product`, of
        the passages relevant to each query, or `several` if there is a tie. Rare values of an attribute with many
        values are `other`.
        """
        if not self.corpus.metadata or self.split in self.dataset.withheld:
            return {}
        places = {key: place for place, key in enumerate(self.corpus.ids)}
        attributes: dict[str, dict[str, str]] = {}
        for query, labels in self.qrels.labels.items():
            rows = [self.corpus.metadata[places[key]] for key, label in labels.items() if label > 0 and key in places]
            for name in dict.fromkeys(name for row in rows for name in row):
                values = [value for row in rows if (value := shown_value(row.get(name)))]
                if best := commonest(values):
                    attributes.setdefault(f"metadata.{name}", {})[query] = best
        return {name: _common(values) for name, values in attributes.items()}

    @cached_property
    def parents(self) -> dict[str, str]:
        """Return the document of each chunk; empty if passages are documents or if the dataset has no private/ folder.

        Raises DatasetError if the file is damaged.
        """
        path = self.dataset.path / PARENTS
        return read_parents(path) if path.is_file() else {}

    @cached_property
    def generated(self) -> frozenset[str]:
        """Return the generated hard negatives in the corpus; empty if the dataset has no private/ folder.

        The lineage also contains those that quality control dropped. Raises DatasetError.
        """
        rows = typed_rows(self.dataset.path / LINEAGE, {"query": str})
        return frozenset(str(key) for _, row in rows for key in row.get("negatives") or ()).intersection(
            self.corpus.ids
        )

    @cached_property
    def ids(self) -> IdLookup:
        """Return the mapping of ids, including ids in the original corpus, to passages."""
        return IdLookup(self.corpus.ids, self.dataset)

    @cached_property
    def pages(self) -> PageLookup:
        """Return the pages of the corpus, for systems whose hits are pages."""
        labels = {} if self.split in self.dataset.withheld else self.qrels.labels
        return PageLookup(self.corpus, self.parents, labels, self.ids.renamed)

    @cached_property
    def answers(self) -> dict[str, list[str]]:
        """Return texts that answer each labelled query: those in `answers/`, with their quotes, and in its metadata.

        Empty for a withheld split, whose answers are as private as its labels. Raises DatasetError if the file is
        damaged.
        """
        if self.split in self.dataset.withheld:
            return {}
        answers = {key: answers_of(query.metadata) for key, query in self.queries.items()}
        for split in self.dataset.splits if self.split == "all" else [self.split]:
            path = self.dataset.path / "answers" / f"{split}.jsonl"
            for _, row in typed_rows(path, {"query-id": str, "answer": str, "quote": str}):
                answers.setdefault(row["query-id"], []).extend([row["answer"], row["quote"]])
        return {key: answers[key] for key in self.qrels.labels if answers.get(key)}

    @property
    def headline(self) -> str:
        """Return the measure that ranks systems, as in AIR-Bench: Recall@10 for Long-Doc, nDCG@10 otherwise."""
        return "Recall@10" if self.dataset.info.get("task") == "long-doc" else "nDCG@10"
