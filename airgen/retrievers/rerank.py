"""Re-rankers: cross-encoders with batches limited by tokens, and dense models.

A re-ranker scores (query, passage) pairs. Only the order within a query is meaningful (paper 2.4, step 2).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from airgen.components.registry import load_extra
from airgen.compute.exact_arithmetic import inner_products
from airgen.retrievers.component import Component
from airgen.retrievers.dense.embedders import LibraryModel, own_prompt, tokens_of
from airgen.retrievers.encoding_cache import Memo
from airgen.retrievers.model_facts import ModelSetup
from airgen.retrievers.model_output import checked_scores
from airgen.retrievers.model_progress import counted_rows
from airgen.retrievers.protocols import Embedder, TextKind
from airgen.safety.interruptible import thread_pool
from airgen.settings.base import SPEED
from airgen.settings.spec import Part


def token_batches(lengths: Sequence[int], budget: int) -> list[list[int]]:
    """Group the indices of `lengths` into batches whose padded size (count x longest) is at most `budget` tokens.

    The longest come first, so that a batch that is too large fails at once; ties keep the given order. A text longer
    than the budget forms its own batch.

    >>> token_batches([5, 1, 1, 4, 1], 10)
    [[0, 3], [1, 2, 4]]
    """
    batches: list[list[int]] = []
    longest = 0
    for place in sorted(range(len(lengths)), key=lambda at: -lengths[at]):
        if not batches or (len(batches[-1]) + 1) * longest > budget:
            batches.append([])
            longest = max(lengths[place], 1)
        batches[-1].append(place)
    return batches


_CPU_BATCH_TOKENS = 1024  # padded tokens per batch: a larger batch costs a CPU more padding (benchmarks/rerank.py)


class CrossEncoder(LibraryModel):
    """A sentence-transformers cross-encoder, by Hub name or folder.

    On a CPU, all pairs are tokenised once, sorted by their number of tokens, and run in batches of limited size. Scores
    equal those of the library's own `predict`, including the activation. `predict` itself is used on GPUs, which it
    keeps busy, and for models that are not plain sequence classifiers (for example, those with a chat template).
    """

    class Settings(LibraryModel.Settings):
        """Settings of a cross-encoder.

        Attributes:
            max_length: Maximum number of tokens per pair. Default: the model's own.
            batch_size: Pairs per batch. Default: a fixed number of tokens on a CPU, and as many pairs as fit on a GPU.
        """

        max_length: int | None = Field(default=None, ge=1)
        batch_size: Annotated[int | None, SPEED] = Field(default=None, ge=1)

    settings: Settings
    token_budget: int = _CPU_BATCH_TOKENS  # padded tokens per batch on a CPU

    @cached_property
    def model(self) -> Any:
        model = self.loaded("CrossEncoder", "the re-ranker", max_length=self.settings.max_length)
        model.eval()
        return model

    @property
    def tokens_of_pair(self) -> int:
        """Return how many special tokens a pair has."""
        return int(self.model.tokenizer.num_special_tokens_to_add(pair=True))

    def setup(self) -> ModelSetup:
        """Return how the library runs the model. Its prompt stands before the query."""
        prompt = own_prompt(self.model, "query")
        return replace(super().setup(), query_prompt=prompt, passage_prompt=None, similarity="")

    def token_counts(self, texts: Sequence[str], kind: TextKind) -> list[int] | None:
        """Return the numbers of tokens, without the special tokens of a pair."""
        return tokens_of(self.model.tokenizer, texts, special=False)

    def score(self, pairs: Sequence[tuple[str, str]]) -> NDArray[np.float32]:
        """Return one score per pair, shape (n,). Raises ModelError for NaN or several outputs per pair."""
        if not pairs:
            return np.zeros(0, np.float32)
        model = self.model
        with counted_rows(getattr(model, "model", None), len(pairs), self.progress):
            return checked_scores(self._scores(model, pairs), len(pairs), self.name)

    def _scores(self, model: Any, pairs: Sequence[tuple[str, str]]) -> Any:
        pool = self.pool_of(model)
        if self.gpu or pool or self.settings.batch_size is not None or not _is_plain_classifier(model):
            texts = [list(pair) for pair in pairs]
            return self.in_batches(
                lambda size: model.predict(texts, batch_size=size, show_progress_bar=False, **pool),
                self.batch_for([query + passage for query, passage in pairs], model),
            )
        return self._classified(model, pairs)

    def _classified(self, model: Any, pairs: Sequence[tuple[str, str]]) -> NDArray[np.float32]:
        torch = load_extra("torch", f"the re-ranker {self.name!r}")
        encoded = model.tokenizer(
            [query for query, _ in pairs],
            [passage for _, passage in pairs],
            truncation=True,
            max_length=model.max_seq_length,
            padding=False,
        )
        lengths = [len(ids) for ids in encoded["input_ids"]]
        padding = {"input_ids": model.tokenizer.pad_token_id or 0}
        # Padding is on the right by default; a model that pads on the left (or counts positions from the right) keeps
        # its side.
        left = model.tokenizer.padding_side == "left"

        def inputs(batch: list[int]) -> dict[str, Any]:
            rows = {name: [encoded[name][place] for place in batch] for name in encoded}
            arrays = {name: _padded(values, padding.get(name, 0), left) for name, values in rows.items()}
            return {name: torch.from_numpy(array).to(model.device) for name, array in arrays.items()}

        scores = np.zeros(len(pairs), np.float32)

        def run(batch: list[int]) -> None:
            with torch.inference_mode():
                logits = model.model(**inputs(batch)).logits
                scores[batch] = model.activation_fn(logits.float()).reshape(-1).cpu().numpy()

        def all_of(budget: int) -> NDArray[np.float32]:
            _in_parallel(torch, torch.get_num_threads(), run, token_batches(lengths, budget))
            return scores

        return self.in_batches(all_of, self.token_budget)

    def describe(self) -> Mapping[str, object]:
        about = self.described("cross-encoder", "model", "revision", "max_length")
        return {**about, "sha256": self._hash, **self.precision}


def _is_plain_classifier(model: Any) -> bool:
    """Return whether the model only maps tokens to one logit."""
    name = type(getattr(model, "model", None)).__name__
    return (
        name.endswith("ForSequenceClassification")
        and len(model) == 1
        and model.num_labels == 1
        and getattr(model.tokenizer, "is_fast", False)
        and not any((getattr(model, "prompts", None) or {}).values())
    )


def _in_parallel(torch: Any, threads: int, run: Callable[[list[int]], None], batches: list[list[int]]) -> None:
    """Run batches in parallel, with one thread each, since small batches use the cores better than threads within a
    batch."""
    threads = min(threads, len(batches))
    if threads < 2:
        for batch in batches:
            run(batch)
        return
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with thread_pool(threads, initializer=torch.set_num_threads, initargs=(1,)) as pool:
            list(pool.map(run, batches))
    finally:
        torch.set_num_threads(before)


def _padded(rows: list[list[int]], value: int, left: bool) -> NDArray[np.int64]:
    width = max(len(row) for row in rows)
    array = np.full((len(rows), width), value, np.int64)
    for place, row in enumerate(rows):
        start = width - len(row) if left else 0
        array[place, start : start + len(row)] = row
    return array


class DenseReranker(Component):
    """A re-ranker by the inner product of an embedder's vectors, as in `Dense`. The latest texts' vectors are
    cached."""

    class Settings(Component.Settings):
        """Settings of re-ranking with embeddings.

        Attributes:
            embedder: A model's name, or its settings.
        """

        embedder: Annotated[Any, Part("embedder")] = "all-minilm-l6-v2-int8"

    settings: Settings
    embedder: Embedder

    def set_up(self) -> None:
        self.name = f"dense {self.embedder.name}"
        self._encode = Memo(self, self.embedder.encode, "vectors", lambda row: (row,))

    def score(self, pairs: Sequence[tuple[str, str]]) -> NDArray[np.float32]:
        """Return inner products, shape (n,)."""
        if not pairs:
            return np.zeros(0, np.float32)
        left = np.stack([row for (row,) in self._encode([query for query, _ in pairs], "query")])
        right = np.stack([row for (row,) in self._encode([passage for _, passage in pairs], "passage")])
        return checked_scores(inner_products(left, right), len(pairs), self.name)

    def describe(self) -> Mapping[str, object]:
        return {"family": "dense", "embedder": dict(self.embedder.describe()), "rows": "fp32"}
