"""Learned sparse retrieval: an inverted index with a model's weights as impacts, and the same as a re-ranker.

SPLADE maps texts to sparse weights over a vocabulary, log(1 + ReLU(logit)) max-pooled over the tokens. `EmbeddedSplade`
runs a small BERT with ONNX Runtime, without torch or a GPU; `SparseEncoder` runs any sentence-transformers model.

In SPARTA, every vocabulary term has an impact in every passage (Zhao and others, 2021; BEIR's section 4).

    system = Sparta("models/sparta")          # {kind: sparta, model: models/sparta}; `airgen train sparta` makes it
    system = Sparta("BeIR/sparta-msmarco-distilbert-base-v1", bias=0)     # BEIR's checkpoint, a plain transformer

    impact(t, d) = log(1 + ReLU(max over tokens j of d of <e_t, s_j> + b))
    score(q, d)  = sum of the impacts of q's tokens in d

e_t is the input embedding of t, without context, and s_j the encoder's output for token j of the passage. Queries are
looked up, not encoded. A passage can be retrieved by terms that it does not contain. `top_terms` keeps the highest
impacts of each passage (SPARTA: 2,000 of 30,000).
"""

import json
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from airgen.components.registry import load_extra
from airgen.compute.exact_arithmetic import inner_products
from airgen.errors import ModelError
from airgen.retrievers.component import Component
from airgen.retrievers.dense.bert_graph import Array, MaskedLanguageModel
from airgen.retrievers.dense.embedders import LibraryModel, TorchModel, as_array, torch_facts, with_tokenizer
from airgen.retrievers.dense.onnx_encoder import EmbeddedModel, encode_batch, load_weights
from airgen.retrievers.encoding_cache import CacheSettings, Memo
from airgen.retrievers.hits import Hits
from airgen.retrievers.lexical.index import InvertedIndex
from airgen.retrievers.model_facts import ModelFacts
from airgen.retrievers.model_output import checked_scores
from airgen.retrievers.passages import Passages, non_empty
from airgen.retrievers.protocols import TextKind
from airgen.settings.base import MODEL, SPEED
from airgen.settings.spec import Part

SparseRow = tuple[NDArray[Any], ...]
"""Ascending term ids of the vocabulary, int32, and their weights above 0, float32."""


class EmbeddedSplade(EmbeddedModel):
    """A SPLADE model with BERT's architecture and its own masked-language-model head.

    Each text is processed alone, so its row never depends on its neighbours.
    """

    class Settings(EmbeddedModel.Settings):
        """Settings of SPLADE without torch.

        Attributes:
            model: A name in the catalogue, or a folder with `config.json`, `model.safetensors` and `tokenizer.json`.
        """

        packages: ClassVar[tuple[str, ...]] = ("safetensors", "tokenizers", "onnx", "onnxruntime")
        model: Annotated[str, MODEL] = "splade-bert-tiny"

    settings: Settings

    @cached_property
    def _model(self) -> tuple[Array, MaskedLanguageModel]:
        return _masked_language_model(self._folder)

    def encode(self, texts: Sequence[str], kind: TextKind) -> list[SparseRow]:
        """Return the sparse row of each text. Queries and passages are treated alike."""
        encoded = encode_batch(self._tokenizer, texts, self._max_length)
        _ = self._model  # created before several threads use it
        return self._beside(lambda item: self._row(np.array(item.ids, np.int64)), encoded)

    def _row(self, ids: NDArray[np.int64]) -> SparseRow:
        # The maximum comes before log(1 + ReLU(x)), which is monotonic, so the result is the same at 1/length of the
        # cost.
        words, model = self._model
        terms, best = model.logits(words[ids])
        if not np.isfinite(best).all():
            raise ModelError(f"{self.name} returned NaN or infinity for a text of {len(ids)} tokens")
        return terms, np.log1p(best)

    def describe(self) -> Mapping[str, object]:
        return {**self.described("splade", "model", "max_length"), **self._identity}


class SparseEncoder(LibraryModel):
    """Any SPLADE-like model that sentence-transformers' SparseEncoder can load, by Hub name or folder."""

    class Settings(LibraryModel.Settings):
        """Settings of a sentence-transformers sparse encoder.

        Attributes:
            max_length: Maximum number of tokens. Default: the model's own limit.
        """

        max_length: int | None = Field(default=None, ge=1)
        batch_size: Annotated[int | None, SPEED] = Field(default=None, ge=1)

    settings: Settings
    _texts = 1024  # texts on a GPU at once, each of which needs a row of the vocabulary

    @cached_property
    def model(self) -> Any:
        model = self.loaded("SparseEncoder", "the sparse model")
        if self.settings.max_length is not None:
            model.max_seq_length = self.settings.max_length
        return model

    def encode(self, texts: Sequence[str], kind: TextKind) -> list[SparseRow]:
        """Return the sparse row of each text, from the model's query or document side."""
        model, inputs = self.model, list(texts)
        if not inputs:
            return []
        side = self.side(kind)
        options = {"convert_to_sparse_tensor": False, "show_progress_bar": False, **self.pool_of(model)}

        def work(size: int) -> list[SparseRow]:
            impacts = side(inputs, batch_size=size, **options)
            if not bool(impacts.isfinite().all()):
                raise ModelError(f"{self.name} returned NaN or infinity")
            # Select on the GPU, so that only a few terms of the vocabulary are copied from it.
            rows, terms = (impacts > 0).nonzero(as_tuple=True)
            weights, columns = as_array(impacts[rows, terms]), terms.cpu().numpy().astype(np.int32)
            if model.similarity_fn_name == "cosine":
                weights = weights / as_array(impacts[rows].float().norm(dim=1)).clip(1e-12)
            ends = np.cumsum(np.bincount(rows.cpu().numpy(), minlength=len(inputs)))[:-1]
            return list(zip(np.split(columns, ends), np.split(weights, ends), strict=True))

        return self.in_batches(work, self.batch_for(inputs, model))

    def describe(self) -> Mapping[str, object]:
        about = self.described("sparse-encoder", "model", "revision", "max_length")
        return {**about, **self.local, **self.precision}


def _masked_language_model(folder: Path) -> tuple[Array, MaskedLanguageModel]:
    """Load word embeddings, and a BERT with its masked-language-model head. Raises ModelError for other models."""
    try:
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ModelError(f"{folder} is not a BERT model: {error}") from error
    if config.get("model_type") != "bert" or config.get("hidden_act") != "gelu":
        raise ModelError(f"{folder}: only BERT with gelu can run here: load it with kind: sparse-encoder")
    # Older checkpoints call the weight and bias of a layer norm gamma and beta.
    weights: dict[str, Array] = {
        name.removeprefix("bert.")
        .replace("LayerNorm.gamma", "LayerNorm.weight")
        .replace("LayerNorm.beta", "LayerNorm.bias"): array
        for name, array in load_weights(folder).items()
    }
    shape = config["num_hidden_layers"], config["num_attention_heads"], float(config["layer_norm_eps"])
    return weights["embeddings.word_embeddings.weight"], MaskedLanguageModel(weights, *shape)


def impact_index(rows: Sequence[SparseRow]) -> InvertedIndex:
    """Build postings by term from the sparse rows of all passages, with the model's weights as impacts."""
    terms = np.concatenate([np.zeros(0, np.int32), *(terms for terms, _ in rows)])
    weights = np.concatenate([np.zeros(0, np.float32), *(weights for _, weights in rows)])
    places = np.repeat(np.arange(len(rows), dtype=np.int32), np.array([len(terms) for terms, _ in rows], np.int64))
    order = np.argsort(terms, kind="stable")  # stable: positions stay ascending within a term
    starts = np.concatenate((np.zeros(1, np.int64), np.cumsum(np.bincount(terms))))
    return InvertedIndex(starts, places[order], weights[order], len(rows))


def search_rows(index: InvertedIndex, queries: Sequence[SparseRow], k: int) -> Hits:
    """Return the k passages with the greatest positive inner product per query. Terms are added in ascending order."""
    size = len(index.starts) - 1  # terms beyond this occur in no passage
    weighted = [dict(zip(terms.tolist(), weights.tolist(), strict=True)) for terms, weights in queries]
    return index.search(
        [{term: weight for term, weight in weights_of_term.items() if term < size} for weights_of_term in weighted], k
    )


class _WithRows(Component):
    """Base class of the retriever and the re-ranker, which share a sparse model."""

    class Settings(CacheSettings):
        """Settings of a component with a sparse encoder.

        Attributes:
            model: A SPLADE-like model. Its own settings can be given next to it.
        """

        model: Annotated[Any, Part("sparse-embedder")] = "splade-bert-tiny"

    settings: CacheSettings
    model: Any  # encode(texts, kind) -> a SparseRow for each text

    def set_up(self) -> None:
        self.name = f"sparse {self.model.name}"
        self._memo = Memo(self, self.model.encode, "rows", tuple)

    def describe(self) -> Mapping[str, object]:
        return {"family": "sparse", "model": dict(self.model.describe())}


class Sparse(_WithRows):
    """A SPLADE-like model over an inverted index. `progress` may be set before `index`."""

    def set_up(self) -> None:
        super().set_up()
        self._index: InvertedIndex | None = None

    @property
    def index_bytes(self) -> int | None:
        return self._index.bytes if self._index else None

    def index(self, corpus: Passages) -> None:
        """Encode every passage. Raises CorpusError if the corpus is empty."""
        self._index = impact_index(list(self._memo.stream(non_empty(corpus).full_texts)))

    def search(self, queries: Sequence[str], k: int) -> Hits:
        """Return the k passages with the greatest inner product. Raises UsageError if `index` has not been called."""
        return search_rows(self.indexed(self._index), self.model.encode(list(queries), "query"), k)


class SparseReranker(_WithRows):
    """Scores pairs by the inner product of their sparse rows. The latest texts' rows are cached."""

    def score(self, pairs: Sequence[tuple[str, str]]) -> NDArray[np.float32]:
        """Return inner products, shape (n,)."""
        left = self._memo([query for query, _ in pairs], "query")
        right = self._memo([passage for _, passage in pairs], "passage")
        scores = [_product(query, passage) for query, passage in zip(left, right, strict=True)]
        return checked_scores(scores, len(pairs), self.name)


def _product(query: SparseRow, passage: SparseRow) -> np.float32:
    _, left, right = np.intersect1d(query[0], passage[0], assume_unique=True, return_indices=True)
    return np.float32(inner_products(query[1][None, left], passage[1][right])[0])


BIAS = "sparta_bias"
"""The name of b in the model's config.json."""


class SpartaEncoder(TorchModel):
    """A transformer that computes impacts with its own input embeddings, by folder or Hub name."""

    class Settings(TorchModel.Settings):
        """Settings of a SPARTA encoder.

        Attributes:
            max_length: Maximum number of tokens.
            top_terms: Number of impacts to keep per passage. Default: all.
            bias: The bias b, for a checkpoint that does not contain it. For BEIR's checkpoint, it is 0, and special
                tokens have no impact.
        """

        packages: ClassVar[tuple[str, ...]] = ("torch", "transformers")
        device: Annotated[str | None, SPEED] = None
        model_kwargs: dict[str, Any] = Field(default={})
        max_length: int = Field(default=256, ge=1)
        top_terms: int | None = Field(default=2000, ge=1)
        batch_size: Annotated[int, SPEED] = Field(default=16, ge=1)
        bias: float | None = None

    settings: Settings

    @property
    def facts(self) -> ModelFacts:
        return torch_facts(self.parts[0])

    @cached_property
    def parts(self) -> tuple[Any, Any, float]:
        """Return (model, tokenizer, b). Raises ModelError if the model has no b and no `bias` is given."""
        chosen, place = self.settings, self.place(self.name)
        model, tokenizer = with_tokenizer(
            "AutoModel",
            "the model",
            self.name,
            place,
            device=chosen.device,
            dtype=chosen.dtype,
            model_kwargs=chosen.model_kwargs,
        )
        bias = getattr(model.config, BIAS, self.settings.bias)
        if not isinstance(bias, float):
            raise ModelError(
                f"{self.name} is not a SPARTA model of `airgen train sparta`: its config.json has no {BIAS}; if "
                f"it has BEIR's format, set `bias: 0`"
            )
        return model, tokenizer, bias

    def encode(self, texts: Sequence[str], kind: TextKind) -> list[SparseRow]:
        """Return a query's tokens with their counts, or a passage's impacts. Raises ModelError for NaN."""
        return self._asked(texts) if kind == "query" else self._impacts(texts)

    def _asked(self, texts: Sequence[str]) -> list[SparseRow]:
        tokenizer, limit = self.parts[1], self.settings.max_length
        rows: list[SparseRow] = []
        for text in texts:
            ids = tokenizer(text, add_special_tokens=False, truncation=True, max_length=limit)["input_ids"]
            known = [token for token in ids if token != tokenizer.unk_token_id]
            terms, counts = np.unique(np.array(known, np.int32), return_counts=True)
            rows.append((terms, counts.astype(np.float32)))
        return rows

    def _impacts(self, texts: Sequence[str]) -> list[SparseRow]:
        torch = load_extra("torch", f"the impacts of {self.name!r}")
        model, tokenizer, bias = self.parts
        limit, size = self.settings.max_length, self.settings.batch_size
        limit = min(limit, getattr(model.config, "max_position_embeddings", None) or limit)
        terms = model.get_input_embeddings().weight
        if getattr(model.config, BIAS, None) is None:  # as in BEIR, where the impacts of special tokens are log(1 + 0)
            terms = terms.detach().clone()
            terms[tokenizer.all_special_ids] = 0

        def rows(size: int) -> list[SparseRow]:
            sparse: list[SparseRow] = []
            with torch.inference_mode():
                for first in range(0, len(texts), size):
                    batch = list(texts[first : first + size])
                    cut = {"truncation": True, "max_length": limit, "padding": True, "return_tensors": "pt"}
                    encoded = tokenizer(batch, **cut).to(model.device)
                    states = model(**encoded).last_hidden_state
                    for row, mask in zip(states, encoded["attention_mask"].bool(), strict=True):
                        # One passage at a time, because (tokens, vocabulary) of a batch would be a gigabyte.
                        best = (row[mask] @ terms.T).max(dim=0).values.float() + bias
                        sparse.append(self._sparse(torch.log1p(torch.relu(best)).cpu().numpy()))
            return sparse

        return self.in_batches(rows, size)

    def _sparse(self, impacts: Any) -> SparseRow:
        if not np.isfinite(impacts).all():
            raise ModelError(f"{self.name} returned NaN or infinity")
        terms = np.flatnonzero(impacts > 0)
        if (top := self.settings.top_terms) is not None and len(terms) > top:
            order = np.lexsort((terms, -impacts[terms]))[:top]  # ties are ordered by id
            terms = np.sort(terms[order])
        return terms.astype(np.int32), impacts[terms].astype(np.float32)

    def describe(self) -> dict[str, object]:
        bias = {} if self.settings.bias is None else {"bias": self.settings.bias}
        return {
            **self.described("sparta", "model", "max_length", "top_terms"),
            "sha256": self._hash,
            **bias,
            **self.precision,
        }


class Sparta(Sparse):
    """SPARTA over an inverted index of impacts."""

    class Settings(CacheSettings):
        """Settings of SPARTA.

        Attributes:
            model: A folder or Hub name. The settings of `SpartaEncoder` can be given next to it.
        """

        model: Annotated[Any, Part("sparta-encoder")]

    def set_up(self) -> None:
        super().set_up()
        self.name = f"sparta {self.model.name}"
