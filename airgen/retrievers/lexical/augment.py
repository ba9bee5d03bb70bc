"""BM25 with learned query weights: a small encoder adds terms to a query and weights the query's own terms.

    system = Augmented("models/augment-scifact")          # {kind: augment, path: models/augment-scifact}
    system.explain("statins lower the risk of stroke")    # the terms that it adds, raises and lowers

Documents are indexed once, as with plain BM25, and never encoded. The score is (w(q) * v * (bow(q) + a(q)))^T f(d),
with a(q) = ReLU(W enc(q)_0) over the vocabulary and w(q)_i = ReLU(u^T enc(q)_i) for the i-th token of the query (BM25
Query Augmentation Learned End-to-End, section 2). A BM25 index already contains v * f(d), so a search needs only w *
(bow + a). Terms are the tokens themselves (`wordpiece`), or the words of the language's analyser, each of several
tokens. A term that occurs twice in the query has the greater of its two weights. A term beyond the encoder's length has
the mean weight of the earlier tokens. An added term that is not in the query has the weight 1. `airgen train augment`
writes the folder, which runs with ONNX Runtime, without torch.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, ClassVar

import numpy as np
from pydantic import Field

from airgen.errors import ModelError
from airgen.models.catalogue import weights_hash
from airgen.retrievers.component import Component
from airgen.retrievers.dense.bert_graph import Array, bert
from airgen.retrievers.dense.onnx_encoder import encode_batch, load_tokenizer, load_weights
from airgen.retrievers.hits import Hits
from airgen.retrievers.lexical.index import LexicalRetriever
from airgen.retrievers.lexical.postings import BM25Weighting, PresenceWeighting, Weighting
from airgen.retrievers.model_facts import ModelFacts
from airgen.retrievers.model_output import finite, unit_rows
from airgen.retrievers.passages import Passages
from airgen.settings.base import FILE
from airgen.settings.requirements import located
from airgen.text.analysis import WordPieces, analyser
from airgen.text.normal_form import encodable


@dataclass(frozen=True, slots=True)
class ReadQuery:
    """A query as read by the encoder.

    Attributes:
        ids: Token ids, including special tokens, truncated to the encoder's length.
        terms: The term of each token, or None for a special token or stop word.
        rest: Terms beyond the encoder's length.
    """

    ids: list[int]
    terms: list[str | None]
    rest: list[str]


class QueryReader:
    """Reads queries. `max_length` counts tokens of the folder's tokenizer.json, including special tokens, and `terms`
    is wordpiece or words.

    `analyser` is the analyser of the index. Raises ModelError if the tokenizer is damaged.
    """

    def __init__(self, folder: Path, max_length: int, terms: str, language: str) -> None:
        self.analyser = analyser(language, wordpiece=None if terms == "words" else str(folder))
        self._tokenizer, self._length = load_tokenizer(folder / "tokenizer.json", max_length), max_length

    def __call__(self, texts: Sequence[str]) -> list[ReadQuery]:
        """Read each text. An empty text has only the special tokens."""
        if isinstance(self.analyser, WordPieces):
            return self._pieces(texts)
        return [self._words(text) for text in texts]

    def _pieces(self, texts: Sequence[str]) -> list[ReadQuery]:
        queries = []
        for item in encode_batch(self._tokenizer, texts, self._length):
            tokens_beyond = [token for part in item.overflowing for token in part.tokens]
            terms_beyond = [term for term in self.analyser.terms(tokens_beyond) if term is not None]
            queries.append(ReadQuery(list(item.ids), self.analyser.terms(item.tokens), terms_beyond))
        return queries

    def _words(self, text: str) -> ReadQuery:
        words = self.analyser.split(self.analyser.prepare(text))
        terms = self.analyser.terms(words)
        sent = [encodable(word) for word in words[: self._length]]  # a word is a token or more: no later one is seen
        item = self._tokenizer.encode(sent, is_pretokenized=True)
        places = item.word_ids
        seen = set(places)
        return ReadQuery(
            list(item.ids),
            [None if place is None else terms[place] for place in places],
            [term for place, term in enumerate(terms) if place not in seen and term is not None],
        )


SETTINGS = "augment.json"
TERMS = "terms.json"  # terms that can be added, one per row of W
FORMAT = 1


@dataclass(frozen=True, slots=True)
class Term:
    """A term of an augmented query. `weight` is w, `added` is a, and `total` is w * (bow + a), before document weights.

    `relative` is the total divided by the mean total of the query's own terms, on which the ranking depends.
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
        """Return how the term changed: added, dropped (weight 0), lowered or raised (by a quarter or more), or kept."""
        if not self.in_query:
            return "added"
        if self.total == 0:
            return "dropped"
        return "lowered" if self.relative <= 0.75 else "raised" if self.relative >= 1.25 else "kept"


class Augmenter:
    """The trained model on its own, which maps texts to weighted terms. Raises ModelError if the folder has no such
    model."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        path = folder / SETTINGS
        try:
            settings = json.loads(path.read_text(encoding="utf-8"))
            self.settings: dict[str, Any] = dict(settings)
            if settings["format"] != FORMAT:
                raise ModelError(f"{folder} was written by another version of airgen: train it again")
            self._mean = settings["pooling"] == "mean"
            length, language, kind = int(settings["max_query_tokens"]), settings["language"], settings["terms"]
            self.added: list[str] = list(json.loads((folder / TERMS).read_text(encoding="utf-8")))
            config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
            shape = (
                int(config["num_hidden_layers"]),
                int(config["num_attention_heads"]),
                float(config["layer_norm_eps"]),
            )
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise ModelError(f"{folder} is not a model of `airgen train augment`: {path.name}: {error}") from error
        weights = load_weights(folder)
        self.parameters = sum(array.size for array in weights.values())
        self._words = weights.pop("embeddings.word_embeddings.weight")
        self._weights, self._shape = weights, shape
        self._rows, self._bias = weights["added.weight"], weights["added.bias"]
        self._u, self._u_bias = weights["weight.weight"], float(weights["weight.bias"][0])
        if len(self.added) != len(self._rows):
            raise ModelError(f"{folder}/{TERMS} does not fit model.safetensors: train it again")
        self._read = QueryReader(folder, length, kind, language)
        self.analyser = self._read.analyser
        self._names, self._kept = self.added, (self._rows, self._bias)

    @cached_property
    def _states(self) -> Callable[[Array], Array]:
        return bert(self._weights, *self._shape)

    def keep(self, terms: Mapping[str, int]) -> None:
        """Restrict the added terms to these, since others match nothing. The matrix is smaller, and the hits are the
        same.

        Rows that cannot exceed 0 for any unit vector are also removed.
        """
        held = np.array([term in terms for term in self.added], bool)
        if self._mean:
            held &= np.linalg.norm(self._rows, axis=1) * (1 + 1e-5) + self._bias > 0
        used = np.flatnonzero(held)
        self._names = [self.added[place] for place in used]
        self._kept = np.ascontiguousarray(self._rows[used]), self._bias[used]

    def __call__(self, text: str) -> list[Term]:
        """Return the terms of a query: its own in order, then the added terms, heaviest first."""
        query = self._read([text])[0]
        states = finite(self._states(self._words[np.array(query.ids, np.int64)]), str(self.folder))
        pooled = unit_rows(states.mean(axis=0)) if self._mean else states[0]
        rows, bias = self._kept
        values = rows @ pooled + bias
        added = {self._names[place]: float(values[place]) for place in np.flatnonzero(values > 0)}
        weights: dict[str, float] = {}
        token_weights = (
            np.maximum(states @ self._u + self._u_bias, 0) if self.settings["weights"] else np.ones(len(query.ids))
        )
        for term, weight in zip(query.terms, token_weights.tolist(), strict=True):
            if term is not None:
                weights[term] = max(weight, weights.get(term, 0.0))
        seen = [weight for term, weight in zip(query.terms, token_weights.tolist(), strict=True) if term is not None]
        beyond = sum(seen) / len(seen) if seen else 1.0
        for term in query.rest:  # learned weights have their own scale: 1 may be far above them
            weights.setdefault(term, beyond)
        totals = {term: weight * (1 + added.get(term, 0.0)) for term, weight in weights.items()}
        mean = sum(totals.values()) / max(1, len(totals)) or 1.0
        own_terms = [
            Term(
                term,
                in_query=True,
                weight=weights[term],
                added=added.get(term, 0.0),
                total=total,
                relative=total / mean,
            )
            for term, total in totals.items()
        ]
        order = sorted((term for term in added if term not in weights), key=lambda term: (-added[term], term))
        added_terms = [
            Term(term, in_query=False, weight=1.0, added=added[term], total=added[term], relative=added[term] / mean)
            for term in order
        ]
        return own_terms + added_terms


class Augmented(LexicalRetriever):
    """BM25 over the model's terms (WordPiece or words). The model adds terms to queries and weights them."""

    class Settings(Component.Settings):
        """Settings of augmented BM25.

        Attributes:
            path: The model's folder.
            k1: Parameter of BM25. Parameter of BM25. Default: the model's own.
            b: Parameter of BM25. Parameter of BM25. Default: the model's own.
        """

        packages: ClassVar[tuple[str, ...]] = ("safetensors", "tokenizers")
        path: Annotated[Path, FILE]
        k1: float | None = Field(default=None, ge=0)
        b: float | None = Field(default=None, ge=0, le=1)

    settings: Settings  # type: ignore[assignment]  # the model brings the analyser
    name = "augment"

    def set_up(self) -> None:
        self.model = Augmenter(located(str(self.settings.path), self.folder))
        self._analyser = self.model.analyser
        super().set_up()

    @property
    def facts(self) -> ModelFacts:
        """Return the model's parameters along with the index's threads."""
        return super().facts + ModelFacts(self.model.parameters)

    def make_weighting(self) -> Weighting:
        """Return the weighting with which the model was trained: BM25 or presence."""
        trained, chosen = self.model.settings, self.settings
        if trained["scoring"] != "bm25":
            return PresenceWeighting()
        return BM25Weighting(
            trained["k1"] if chosen.k1 is None else chosen.k1, trained["b"] if chosen.b is None else chosen.b
        )

    def index(self, corpus: Passages) -> None:
        """Index the corpus by the model's terms, like BM25. Raises CorpusError if it is empty."""
        super().index(corpus)
        self.model.keep(self.vocabulary)

    def search(self, queries: Sequence[str], k: int) -> Hits:
        """Return the k best passages of each query with its learned weights."""
        return self.search_weighted([self.weights(query) for query in queries], k)

    def weights(self, query: str) -> dict[str, float]:
        """Return {term: w * (bow + a)} of a query, without terms of weight 0."""
        return {term.term: term.total for term in self.model(query) if term.total > 0}

    def explain(self, query: str) -> list[Term]:
        """List the query's own terms in order, then the added terms, heaviest first.

        After `index`, each term has the number of passages that contain it.
        """
        terms = self.model(query)
        if not self.vocabulary:
            return terms
        return [replace(term, passages=self.document_frequency(term.term)) for term in terms]

    def describe(self) -> Mapping[str, object]:
        settings = {name: value for name, value in self.model.settings.items() if name != "format"}
        return {
            **super().describe(),
            "family": "augment",
            "model": self.model.folder.resolve().name,
            "sha256": weights_hash(str(self.model.folder)),
            **settings,
        }
