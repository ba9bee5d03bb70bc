"""BM25 over passages modified by a model: with appended queries (docT5query) or changed term frequencies (DeepCT).

    {kind: expanded, expansions: scifact-queries.jsonl}
    {kind: deepct, model: models/deepct}                        # `airgen train deepct` makes it

Document expansion (BEIR's section 4): `airgen train expand` writes the file, one row per passage, {"_id": ...,
"queries": [...]}, with a sequence-to-sequence model, an LLM, or the queries of a dataset. Passages that are not in the
file are indexed unchanged.

DeepCT (Dai and Callan, 2020; BEIR's section 4): a transformer weights every word of a passage by the share of the
passage's queries that would contain it. The passage becomes a pseudo-document that contains the word
round(scale * weight) times, and BM25 indexes that. Queries are not encoded.
"""

from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, ClassVar

from pydantic import Field, WrapValidator

from airgen.components.keys import content_key
from airgen.components.registry import load_extra
from airgen.dataset.beir import objects
from airgen.errors import DatasetError, ModelError, UsageError
from airgen.retrievers.component import Component, SettingsWithModel
from airgen.retrievers.dense.embedders import TorchModel, torch_facts, with_tokenizer
from airgen.retrievers.hits import Hits
from airgen.retrievers.lexical.bm25 import BM25, BM25Settings
from airgen.retrievers.model_facts import ModelFacts
from airgen.retrievers.passages import Passages, non_empty
from airgen.settings.base import FILE, SPEED
from airgen.settings.requirements import located
from airgen.settings.spec import Part
from airgen.storage.sequences import batched


def read_expansions(path: Path) -> dict[str, list[str]]:
    """Read {passage id: queries}. Raises DatasetError if the file is missing or a line has the wrong form."""
    if not path.is_file():
        raise DatasetError(f"{path}: no such file: `airgen train expand` makes it")
    expansions: dict[str, list[str]] = {}
    for where, row in objects(path):
        queries = row.get("queries")
        if "_id" not in row or not isinstance(queries, list) or not all(isinstance(query, str) for query in queries):
            raise DatasetError(f"{where}: an object is needed with _id and with queries, a list of texts")
        expansions[str(row["_id"])] = queries
    return expansions


class _Rewritten(Component):
    """Base class of Base class of BM25 over rewritten passages."""

    Settings: type[BM25Settings] = BM25Settings
    settings: BM25Settings

    def set_up(self) -> None:
        self._bm25 = BM25(self.settings.k1, self.settings.b, analyser=self.settings.analyser, folder=self.folder)

    def rewritten(self, corpus: Passages) -> list[str]:
        """Return the text to index for each passage."""
        raise NotImplementedError

    @property
    def index_bytes(self) -> int | None:
        return self._bm25.index_bytes

    def index(self, corpus: Passages) -> None:
        """Index the texts from `rewritten`. Raises CorpusError if the corpus is empty."""
        self._bm25.index(Passages(corpus.ids, self.rewritten(non_empty(corpus)), (), corpus.language))

    def search(self, queries: Sequence[str], k: int) -> Hits:
        """Return the k best passages of each query. Raises UsageError if `index` has not been called."""
        return self._bm25.search(queries, k)


class Expanded(_Rewritten):
    """BM25 over each passage and queries that it might answer.

    After `index`, `expanded` is the number of passages in the file. Raises DatasetError if the file cannot be read, and
    UsageError if none of its passages is in the corpus.
    """

    class Settings(BM25Settings):
        """Settings of BM25 over expanded passages.

        Attributes:
            expansions: A file or, in Python, {passage id: queries}.
            queries: Number of queries used per passage (docT5query: 40). Default: all.
        """

        expansions: Annotated[Path, FILE, WrapValidator(lambda v, check: v if isinstance(v, Mapping) else check(v))]
        queries: int | None = Field(default=40, ge=0)

    settings: Settings
    name = "expanded bm25"

    def set_up(self) -> None:
        super().set_up()
        source: Path | Mapping[str, Sequence[str]] = self.settings.expansions
        expansions = source if isinstance(source, Mapping) else read_expansions(located(str(source), self.folder))
        self.expansions = {key: tuple(queries[: self.settings.queries]) for key, queries in expansions.items()}
        self.expanded = 0

    def rewritten(self, corpus: Passages) -> list[str]:
        """Append the queries to each passage."""
        self.expanded = sum(key in self.expansions for key in corpus.ids)
        if self.expansions and not self.expanded:
            raise UsageError(f"{self.name}: none of the {len(self.expansions)} expanded passages is in this corpus")
        passages = zip(corpus.ids, corpus.full_texts, strict=True)
        return [" ".join([text, *self.expansions.get(key, ())]) for key, text in passages]

    def describe(self) -> Mapping[str, object]:
        key = content_key({passage: list(queries) for passage, queries in self.expansions.items()})
        bm25 = dict(self._bm25.describe())
        return {"family": "expanded", "expansions": key, "queries": self.settings.queries, "bm25": bm25}


class TermWeigher(TorchModel):
    """A token classifier with one output, used as the weights of words, by folder or Hub name."""

    class Settings(TorchModel.Settings):
        """Settings of a model that weights terms.

        Attributes:
            max_length: Maximum number of tokens. Terms beyond it have no weight.
        """

        packages: ClassVar[tuple[str, ...]] = ("torch", "transformers")
        device: Annotated[str | None, SPEED] = None
        model_kwargs: dict[str, Any] = Field(default={})
        max_length: int = Field(default=512, ge=1)
        batch_size: Annotated[int, SPEED] = Field(default=32, ge=1)

    settings: Settings

    @cached_property
    def parts(self) -> tuple[Any, Any]:
        """Return (model, tokenizer). Raises ModelError if it has several outputs per token or a slow tokenizer."""
        chosen, kind = self.settings, "AutoModelForTokenClassification"
        model, tokenizer = with_tokenizer(
            kind,
            "the model",
            self.name,
            self.place(self.name),
            device=chosen.device,
            dtype=chosen.dtype,
            model_kwargs=chosen.model_kwargs,
        )
        if model.config.num_labels != 1 or not getattr(tokenizer, "is_fast", False):
            raise ModelError(f"{self.name} is not a DeepCT: one output for each token and a fast tokenizer are needed")
        return model, tokenizer

    def weights(self, texts: Sequence[str]) -> list[dict[str, float]]:
        """Return {word: weight} for each text in order of occurrence. A repeated word has its highest weight.

        Raises ModelError for NaN.
        """
        return self.in_batches(lambda size: self._weights(texts, size), self.settings.batch_size)

    def _weights(self, texts: Sequence[str], size: int) -> list[dict[str, float]]:
        torch = load_extra("torch", f"the term weights of {self.name!r}")
        model, tokenizer = self.parts
        limit = self.settings.max_length
        limit = min(limit, getattr(model.config, "max_position_embeddings", None) or limit)
        weights: list[dict[str, float]] = [{}] * len(texts)
        # Texts of similar length share a batch, which needs little padding.
        order = sorted(range(len(texts)), key=lambda place: (len(texts[place]), place))
        for first in range(0, len(order), size):
            batch = order[first : first + size]
            encoded, words = words_of(tokenizer, [texts[place] for place in batch], limit)
            with torch.inference_mode():
                scores = (
                    model(**{name: value.to(model.device) for name, value in encoded.items()}).logits[..., 0].float()
                )
            if not torch.isfinite(scores).all():
                raise ModelError(f"{self.name} returned NaN or infinity")
            for place, row, spans in zip(batch, scores.tolist(), words, strict=True):
                of_text: dict[str, float] = {}
                for token, start, end in spans:
                    word = texts[place][start:end]
                    of_text[word] = max(row[token], of_text.get(word, row[token]))
                weights[place] = of_text
        return weights

    @property
    def facts(self) -> ModelFacts:
        return torch_facts(self.parts[0])

    def describe(self) -> Mapping[str, object]:
        return {"model": self.name, "sha256": self._hash, "max_length": self.settings.max_length, **self.precision}


def words_of(tokenizer: Any, texts: Sequence[str], limit: int) -> tuple[Any, list[list[tuple[int, int, int]]]]:
    """Tokenise texts, and return each text's words as (first token, start, end), in tokens and characters.

    The weight of a word is that of its first piece, as in DeepCT.
    """
    encoded = tokenizer(
        list(texts), truncation=True, max_length=limit, padding=True, return_tensors="pt", return_offsets_mapping=True
    )
    offsets = encoded.pop("offset_mapping").tolist()
    words_of_texts = []
    for row, spans in enumerate(offsets):
        words: list[tuple[int, int, int]] = []
        last = None
        for token, word in enumerate(encoded.word_ids(row)):
            if word is None:
                continue
            start, end = spans[token]
            if word == last:
                first, begin, _ = words[-1]
                words[-1] = (first, begin, end)
            else:
                words.append((token, start, end))
            last = word
        words_of_texts.append(words)
    return encoded, words_of_texts


class DeepCT(_Rewritten):
    """BM25 over pseudo-documents. `progress` may be set before `index`.

    BEIR found that Anserini's default BM25 parameters work better than tuned ones.
    """

    class Settings(SettingsWithModel, BM25Settings):
        """Settings of DeepCT.

        Attributes:
            scale: Number of times a pseudo-document contains a word with weight 1 (DeepCT: 100).
        """

        model: Annotated[Any, Part("term-weigher")]
        scale: int = Field(default=100, ge=1)

    settings: Settings
    model: TermWeigher

    def set_up(self) -> None:
        super().set_up()
        self.name = f"deepct {self.model.name}"

    def rewritten(self, corpus: Passages) -> list[str]:
        """Return the pseudo-document of each passage, with all words weighted."""
        texts: list[str] = []
        for batch in batched(corpus.full_texts, 256):
            texts += map(self.pseudo_document, self.model.weights(batch))
            if self.progress:
                self.progress(len(texts), len(corpus))
        return texts

    def pseudo_document(self, weights: Mapping[str, float]) -> str:
        """Repeat each word in proportion to its weight. A negative weight counts as 0."""
        return " ".join(
            " ".join([word] * round(self.settings.scale * weight)) for word, weight in weights.items() if weight > 0
        )

    def describe(self) -> Mapping[str, object]:
        return {**self.model.describe(), **self.described("deepct", "scale"), "bm25": dict(self._bm25.describe())}
