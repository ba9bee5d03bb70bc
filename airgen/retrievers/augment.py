"""BM25 with learned query weights: a small encoder adds terms to a query and weights its own.

    system = Augmented("models/augment-scifact")          # {kind: augment, path: models/augment-scifact}
    system.index(corpus)
    system.search(["statins lower the risk of stroke"], k=10)
    system.explain("statins lower the risk of stroke")    # what it adds, what it plays down

Documents are indexed once, as for any BM25, and never encoded. The score is (w(q) * v * (bow(q) + a(q)))^T f(d), with
a(q) = ReLU(W enc(q)_0) over the vocabulary and w(q)_i = ReLU(u^T enc(q)_i) for the i-th token of the query (BM25 Query
Augmentation Learned End-to-End, section 2). v * f(d) is what a BM25 index holds, so w * (bow + a) is all that a search
needs. A term that stands twice in the query has the greater of its two weights, an added one that does not stand in
it the weight 1. `airgen train augment` makes the folder; it runs here by numpy, without torch.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from airgen.errors import ModelError, UsageError
from airgen.models.files import weights_hash
from airgen.registry import load_extra
from airgen.retrievers.analysis.wordpiece import WordPieces
from airgen.retrievers.base import Corpus, Hits
from airgen.retrievers.bert import Bert
from airgen.retrievers.checks import finite, unit_rows
from airgen.retrievers.lexical import LexicalRetriever
from airgen.retrievers.onnx_encoder import encode_batch, load_tokenizer
from airgen.retrievers.weighting import BM25Weighting, PresenceWeighting, Weighting

__all__ = ["FORMAT", "SETTINGS", "Augmented", "Augmenter", "Term"]

SETTINGS = "augment.json"
FORMAT = 1


@dataclass(frozen=True, slots=True)
class Term:
    """One term of an augmented query: `weight` is w, `added` is a, `total` is w * (bow + a), before document weights.

    `relative` is the total over the mean total of the query's own terms: only that orders passages.
    """

    term: str
    in_query: bool
    weight: float
    added: float
    total: float
    relative: float
    passages: int | None = None

    @property
    def change(self) -> str:
        """What was done to it: added, dropped (a weight of 0), lowered or raised (by a quarter or more), or kept."""
        if not self.in_query:
            return "added"
        if self.total == 0:
            return "dropped"
        return "lowered" if self.relative <= 0.75 else "raised" if self.relative >= 1.25 else "kept"


class Augmenter:
    """The trained model alone: texts to weighted terms. Raises ModelError for a folder that is none."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        path = folder / SETTINGS
        try:
            settings = json.loads(path.read_text(encoding="utf-8"))
            self.settings: dict[str, Any] = dict(settings)
            if settings["format"] != FORMAT:
                raise ModelError(f"{folder} was written by another version of airgen: train it again")
            self._max_length = int(settings["max_query_tokens"])
            self._mean = settings["pooling"] == "mean"
            config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
            shape = (
                int(config["num_hidden_layers"]),
                int(config["num_attention_heads"]),
                float(config["layer_norm_eps"]),
            )
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise ModelError(f"{folder} is no model of `airgen train augment`: {path.name}: {error}") from error
        try:
            weights = load_extra("safetensors.numpy", "query augmentation").load_file(folder / "model.safetensors")
        except Exception as error:  # the library's own error has no built-in base
            raise ModelError(f"{folder}/model.safetensors is damaged: {error}") from error
        self._words = weights.pop("embeddings.word_embeddings.weight")
        self._bert = Bert(weights, *shape)
        self.added = np.asarray(weights["added.terms"], np.int64)  # ids of the terms that can be added, ascending
        self._rows, self._bias = weights["added.weight"], weights["added.bias"]
        self._u, self._u_bias = weights["weight.weight"], float(weights["weight.bias"][0])
        self.terms = WordPieces(wordpiece=str(folder))
        self._used = np.arange(len(self.added))

    @cached_property
    def _tokenizer(self) -> Any:
        return load_tokenizer(self.folder / "tokenizer.json", self._max_length)

    @cached_property
    def vocabulary(self) -> Mapping[int, str]:
        """Token id to token; special tokens are left out."""
        known = self.terms.tokenizer.get_vocab().items()
        return {number: token for token, number in known if self.terms.term(token) is not None}

    def keep(self, terms: Mapping[str, int]) -> None:
        """Add only terms among these, as others find nothing: a smaller matrix, and the same hits."""
        held = np.array([self.vocabulary.get(number, "") in terms for number in self.added.tolist()], bool)
        self._used = np.flatnonzero(held)
        self._kept = np.ascontiguousarray(self._rows[self._used]), self._bias[self._used]

    def __call__(self, text: str) -> list[Term]:
        """The terms of one query: its own in order, then the added ones by weight, greatest first."""
        encoded = encode_batch(self._tokenizer, [text], self._max_length)[0]
        ids = np.array(encoded.ids, np.int64)
        states = finite(self._bert.states(self._words[ids]), str(self.folder))
        pooled = unit_rows(states.mean(axis=0)) if self._mean else states[0]
        rows, bias = getattr(self, "_kept", (self._rows, self._bias))
        values = rows @ pooled + bias
        found = np.flatnonzero(values > 0)
        added = dict(zip(self.added[self._used[found]].tolist(), values[found].tolist(), strict=True))
        weights: dict[int, float] = {}
        own = np.maximum(states @ self._u + self._u_bias, 0) if self.settings["weights"] else np.ones(len(ids))
        for number, weight in zip(ids.tolist(), own.tolist(), strict=True):
            if number in self.vocabulary:
                weights[number] = max(weight, weights.get(number, 0.0))
        for part in encoded.overflowing:  # what the encoder did not see keeps BM25's weight
            weights.update({number: 1.0 for number in part.ids if number in self.vocabulary and number not in weights})
        totals = {number: weight * (1 + added.get(number, 0.0)) for number, weight in weights.items()}
        mean = sum(totals.values()) / max(1, len(totals)) or 1.0
        own_terms = [
            Term(self.vocabulary[n], True, weights[n], added.get(n, 0.0), total, total / mean)
            for n, total in totals.items()
        ]
        order = sorted((number for number in added if number not in weights), key=lambda n: (-added[n], n))
        return [*own_terms, *(Term(self.vocabulary[n], False, 1.0, added[n], added[n], added[n] / mean) for n in order)]


class Augmented(LexicalRetriever):
    """BM25 over WordPiece terms, queries weighted and widened by the model in `path`.

    k1 and b are the model's if not given. `max_added` keeps only so many added terms, the heaviest: a limit to
    latency that the paper does not have.
    """

    def __init__(
        self,
        path: str | Path,
        *,
        k1: float | None = None,
        b: float | None = None,
        max_added: int | None = None,
        threads: int | None = None,
        compiled: bool | None = None,
        name: str = "augment",
    ) -> None:
        if max_added is not None and max_added < 0:
            raise UsageError(f"max_added must be 0 or more, not {max_added}")
        self.model = Augmenter(Path(path))
        self.max_added = max_added
        settings = self.model.settings
        weighting: Weighting = PresenceWeighting()
        if settings["scoring"] == "bm25":
            weighting = BM25Weighting(settings["k1"] if k1 is None else k1, settings["b"] if b is None else b)
        super().__init__(weighting, "flat", self.model.terms, threads=threads, compiled=compiled, name=name)

    def index(self, corpus: Corpus) -> None:
        """Index the corpus by its WordPiece terms, as BM25 would. Raises CorpusError for an empty one."""
        super().index(corpus)
        self.model.keep(self.vocabulary)

    def load(self, folder: Path) -> Augmented:
        """As `LexicalRetriever.load`."""
        super().load(folder)
        self.model.keep(self.vocabulary)
        return self

    def search(self, queries: Sequence[str], k: int) -> Hits:
        """The k best passages of each query under its learned weights."""
        return self.search_weighted([self.weights(query) for query in queries], k)

    def weights(self, query: str) -> dict[str, float]:
        """{term: w * (bow + a)} of a query, without the terms that have no weight."""
        return {term.term: term.total for term in self._terms(query) if term.total > 0}

    def explain(self, query: str) -> list[Term]:
        """The query's own terms in order, then those that are added, the heaviest first.

        After `index` each says in how many passages it stands.
        """
        terms = self._terms(query)
        if not self.vocabulary:
            return terms
        return [replace(term, passages=self.document_frequency(term.term)) for term in terms]

    def _terms(self, query: str) -> list[Term]:
        terms = self.model(query)
        if self.max_added is None:
            return terms
        own = [term for term in terms if term.in_query]
        return [*own, *terms[len(own) : len(own) + self.max_added]]

    def describe(self) -> Mapping[str, object]:
        """The model's hash and switches beside BM25's settings."""
        settings = {name: value for name, value in self.model.settings.items() if name != "format"}
        return {
            **super().describe(),
            "family": "augment",
            "model": self.model.folder.resolve().name,
            "sha256": weights_hash(str(self.model.folder)),
            **settings,
            "max_added": self.max_added,
        }
