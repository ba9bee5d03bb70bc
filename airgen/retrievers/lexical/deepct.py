"""DeepCT: BM25 over term frequencies that a model predicts (Dai and Callan, 2020; BEIR's section 4).

    system = DeepCT("models/deepct")          # {kind: deepct, model: models/deepct}; `airgen train deepct` makes it

A transformer gives every word of a passage a weight, what share of the queries that the passage answers would name it.
The passage becomes a pseudo-document in which a word stands round(scale * weight) times, and BM25 indexes that. Queries
are not encoded.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any

from airgen.errors import ModelError, UsageError
from airgen.models.files import weights_hash
from airgen.registry import load_extra
from airgen.retrievers.base import Corpus, Hits
from airgen.retrievers.dense.embedders import loaded, model_place
from airgen.retrievers.lexical.bm25 import BM25
from airgen.retrievers.output_checks import non_empty
from airgen.text.analysis import Analyser

__all__ = ["DeepCT", "TermWeigher", "words_of"]


class TermWeigher:
    """A token classifier with one output as weights of words, by folder or Hub name."""

    def __init__(self, model: str, *, max_length: int = 512, device: str | None = None, batch_size: int = 32) -> None:
        self.name = model
        self._max_length, self._device, self._batch = max_length, device, batch_size

    @cached_property
    def parts(self) -> tuple[Any, Any]:
        """(model, tokenizer). Raises ModelError for one with several outputs a token, or a slow tokenizer."""
        transformers = load_extra("transformers", f"the term weights of {self.name!r}")
        place = model_place(self.name)
        made = [transformers.AutoModelForTokenClassification, transformers.AutoTokenizer]
        model, tokenizer = [
            loaded("the model", self.name, kind.from_pretrained, pretrained_model_name_or_path=place) for kind in made
        ]
        if model.config.num_labels != 1 or not getattr(tokenizer, "is_fast", False):
            raise ModelError(f"{self.name} is no DeepCT: one output a token and a fast tokenizer are needed")
        return model.to(self._device or "cpu").eval(), tokenizer

    def weights(self, texts: Sequence[str]) -> list[dict[str, float]]:
        """{word: weight} of each text, in order of appearance; of a word that comes again, its highest.

        What stands beyond `max_length` tokens has no weight. Raises ModelError for NaN.
        """
        torch = load_extra("torch", f"the term weights of {self.name!r}")
        model, tokenizer = self.parts
        limit = min(self._max_length, getattr(model.config, "max_position_embeddings", None) or self._max_length)
        found: list[dict[str, float]] = [{}] * len(texts)
        order = sorted(range(len(texts)), key=lambda place: (len(texts[place]), place))  # like lengths, little padding
        for first in range(0, len(order), self._batch):
            batch = order[first : first + self._batch]
            encoded, words = words_of(tokenizer, [texts[place] for place in batch], limit)
            with torch.inference_mode():
                scores = (
                    model(**{name: value.to(model.device) for name, value in encoded.items()}).logits[..., 0].float()
                )
            if not torch.isfinite(scores).all():
                raise ModelError(f"{self.name} gave NaN or infinity")
            for place, row, spans in zip(batch, scores.tolist(), words, strict=True):
                of_text: dict[str, float] = {}
                for token, start, end in spans:
                    word = texts[place][start:end]
                    of_text[word] = max(row[token], of_text.get(word, row[token]))
                found[place] = of_text
        return found


def words_of(tokenizer: Any, texts: Sequence[str], limit: int) -> tuple[Any, list[list[tuple[int, int, int]]]]:
    """Tokenised texts, and each text's words as (first token, start, end) in tokens and characters.

    The first piece of a word speaks for all of it, as in DeepCT.
    """
    encoded = tokenizer(
        list(texts), truncation=True, max_length=limit, padding=True, return_tensors="pt", return_offsets_mapping=True
    )
    offsets = encoded.pop("offset_mapping").tolist()
    found = []
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
        found.append(words)
    return encoded, found


class DeepCT:
    """BM25 over pseudo-documents. `scale` is how often a word of weight 1 stands there (DeepCT: 100).

    `k1`, `b` and `analyser` as for BM25: BEIR found Anserini's defaults better than tuned ones. `progress` is told
    (passages weighed, passages).
    """

    def __init__(
        self,
        model: str | TermWeigher,
        *,
        scale: int = 100,
        k1: float = 0.9,
        b: float = 0.4,
        analyser: Analyser | Mapping[str, Any] | None = None,
        max_length: int = 512,
        device: str | None = None,
        batch_size: int = 32,
        progress: Callable[[int, int], None] | None = None,
    ) -> None:
        if scale < 1:
            raise UsageError(f"scale is {scale}: at least 1 is needed")
        if isinstance(model, str):
            model = TermWeigher(model, max_length=max_length, device=device, batch_size=batch_size)
        self.model = model
        self.name = f"deepct {model.name}"
        self._scale, self._max_length, self._progress = scale, max_length, progress
        self._bm25 = BM25(k1, b, analyser=analyser)

    def index(self, corpus: Corpus) -> None:
        """Weigh every word and index the pseudo-documents. Raises CorpusError for an empty corpus."""
        non_empty(corpus)
        texts: list[str] = []
        for first in range(0, len(corpus), 256):
            places = range(first, min(first + 256, len(corpus)))
            texts += map(self.pseudo_document, self.model.weights([corpus.full_text(place) for place in places]))
            if self._progress:
                self._progress(len(texts), len(corpus))
        self._bm25.index(Corpus(corpus.ids, texts, (), corpus.language))

    def pseudo_document(self, weights: Mapping[str, float]) -> str:
        """Each word as often as its weight says; negative weights are 0."""
        return " ".join(
            " ".join([word] * round(self._scale * weight)) for word, weight in weights.items() if weight > 0
        )

    def search(self, queries: Sequence[str], k: int) -> Hits:
        """The k best passages of each query. Raises UsageError before `index`."""
        return self._bm25.search(queries, k)

    def describe(self) -> Mapping[str, object]:
        """The model, and BM25's settings."""
        return {
            "family": "deepct",
            "model": self.model.name,
            "sha256": weights_hash(model_place(self.model.name)),
            "scale": self._scale,
            "max_length": self._max_length,
            "bm25": dict(self._bm25.describe()),
        }
