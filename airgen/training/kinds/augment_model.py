"""The torch model of query augmentation: its initialisation from a base model, its query weights and its folder.

    model = AugmentModel(load_base("all-minilm-l6-v2"), terms, AugmentRecipe(), "cpu")
    model.weights(queries)      # w * (bow + a) and a, float (queries, columns)

Columns are the terms of the training corpus, in order of first occurrence. `airgen.retrievers.lexical.augment` uses the
saved folder with numpy.
"""

import itertools
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from airgen.components.registry import load_extra
from airgen.errors import ModelError
from airgen.retrievers.lexical.augment import FORMAT, SETTINGS, TERMS
from airgen.storage.sequences import batched
from airgen.training.base_models import Base

_BATCH_TERMS = 256  # terms that are encoded at once


@dataclass(frozen=True, slots=True)
class EncodedQuery:
    """A query encoded for the model.

    Attributes:
        ids: Token ids, including special tokens, truncated to the encoder's length.
        columns: The column of each token's term, -1 if it has no term, or -2 if the term has no column.
        terms: The distinct columns of all terms in the text.
    """

    ids: list[int]
    columns: list[int]
    terms: list[int]


class AugmentModel:
    """The model. `module` contains the trained parts: the encoder, W (`added`) and u (`weight`)."""

    def __init__(self, base: Base, terms: Sequence[str], recipe: Any, device: str) -> None:
        """Build the model. `terms` names each column. Raises ModelError if the base is not a BERT or DistilBERT."""
        self.torch = load_extra("torch", "training")
        torch = self.torch
        config = base.model.config
        activation = getattr(config, "hidden_act", getattr(config, "activation", ""))
        if config.model_type not in ("bert", "distilbert") or activation != "gelu":
            raise ModelError(
                f"query augmentation needs a BERT or DistilBERT with gelu, the base is a {config.model_type}: "
                "choose another base"
            )
        self.terms, self.recipe, self.device, self._config = list(terms), recipe, device, config
        width = int(config.dim if config.model_type == "distilbert" else config.hidden_size)
        self.module = torch.nn.ModuleDict(
            {
                "encoder": base.model,
                "added": torch.nn.Linear(width, len(self.terms)),
                "weight": torch.nn.Linear(width, 1),
            }
        ).to(device)
        for name in ("added", "weight"):
            torch.nn.init.zeros_(self.module[name].bias)
        if not recipe.train_encoder:
            self.module["encoder"].requires_grad_(False)
        self._kept: dict[tuple[int, ...], Any] = {}

    def states(self, ids: Sequence[Sequence[int]]) -> tuple[Any, Any]:
        """Return the last hidden states, (queries, tokens, width), and the mask, (queries, tokens). Short queries are
        padded."""
        mask = self._mask(ids)
        if self.recipe.train_encoder:
            return self._encode(ids, mask), mask
        self.remember(ids)
        states = [self._kept[tuple(row)] for row in ids]
        return self.torch.nn.utils.rnn.pad_sequence(states, batch_first=True), mask

    def _mask(self, ids: Sequence[Sequence[int]]) -> Any:
        return self._padded([[1] * len(row) for row in ids])

    def _padded(self, rows: Sequence[Sequence[float]]) -> Any:
        length = max(map(len, rows))
        return self.torch.tensor([[*row, *[0] * (length - len(row))] for row in rows], device=self.device)

    def remember(self, ids: Sequence[Sequence[int]]) -> None:
        """Encode and cache new queries if the encoder is not trained, since its states never change."""
        torch = self.torch
        fresh = sorted({row for row in map(tuple, ids) if row not in self._kept}, key=lambda row: (len(row), row))
        self.module["encoder"].eval()
        with torch.no_grad():
            for _, group in itertools.groupby(fresh, len):  # equal lengths need no padding
                for rows in batched(group, _BATCH_TERMS):
                    full = torch.ones((len(rows), len(rows[0])), dtype=torch.int64, device=self.device)
                    self._kept.update(zip(rows, self._encode(rows, full), strict=True))

    def _encode(self, ids: Sequence[Sequence[int]], mask: Any) -> Any:
        rows = [[*row, *[0] * (mask.shape[1] - len(row))] for row in ids]
        padded = self.torch.tensor(rows, device=self.device)
        return self.module["encoder"](input_ids=padded, attention_mask=mask).last_hidden_state

    def pooled(self, states: Any, mask: Any) -> Any:
        """Return enc(q)_0 or the normalised mean over the tokens, (queries, width)."""
        if self.recipe.pooling == "cls":
            return states[:, 0]
        summed = (states * mask[:, :, None]).sum(1)
        return self.torch.nn.functional.normalize(summed, dim=-1)

    def weights(self, queries: Sequence[EncodedQuery]) -> tuple[Any, Any]:
        """Return w * (bow + a) and a, each (queries, columns)."""
        torch = self.torch
        shape = len(queries), len(self.terms)
        states, mask = self.states([query.ids for query in queries])
        added = torch.zeros(shape, device=self.device)
        if self.recipe.augmentation:
            added = torch.relu(self.module["added"](self.pooled(states, mask))).float()
        bow = torch.zeros(shape, device=self.device)
        places = [(row, column) for row, query in enumerate(queries) for column in query.terms]
        if places:
            rows, columns = torch.tensor(places, device=self.device).T
            bow[rows, columns] = 1.0
        total = (bow + added).flatten()
        if self.recipe.weights:
            token_weights = (
                torch.relu(self.module["weight"](states)).squeeze(-1).float()
            )  # even if products are in bf16
            seen = [
                (row, place, row * shape[1] + column)
                for row, query in enumerate(queries)
                for place, column in enumerate(query.columns)
                if column >= 0
            ]
            beyond = [
                (row, row * shape[1] + column)
                for row, query in enumerate(queries)
                for column in {*query.terms} - {*query.columns}
            ]
            if beyond:  # a term that the encoder does not see has the mean weight of the tokens that it sees
                words = self._padded([[float(column != -1) for column in query.columns] for query in queries])
                means = torch.where(words.any(1), (token_weights * words).sum(1) / words.sum(1).clamp(min=1), 1.0)
                rows, flat = torch.tensor(sorted(beyond), device=self.device).T
                total = total.index_copy(0, flat, total[flat] * means[rows])
            if seen:  # a term that occurs several times has its maximum weight; -1 is below all weights
                rows, at, flat = torch.tensor(seen, device=self.device).T
                terms, places = flat.unique(return_inverse=True)
                best = torch.full((len(terms),), -1.0, device=self.device)
                best = best.scatter_reduce(0, places, token_weights[rows, at], "amax")
                total = total.index_copy(0, terms, total[terms] * best)  # few of all terms, so no matrix of weights
        return total.view(shape), added

    def start_from_terms(
        self, token_ids: Sequence[Sequence[int]], queries: Sequence[EncodedQuery], scale: float, count: int
    ) -> None:
        """Initialise W and u so that training starts with w = 1, that is, with BM25 and the nearest terms of each
        query.

        a is the cosine similarity of query and term, both encoded by the base, minus a threshold, times a slope. The
        threshold is chosen so that a query gains `count` terms on average, and the slope so that a is `scale` for a
        cosine of 1. `token_ids` are the ids of each column's term, including special tokens.
        """
        torch = self.torch
        added, weight = self.module["added"], self.module["weight"]
        self.module["encoder"].eval()
        with torch.no_grad():
            torch.nn.init.zeros_(weight.weight)
            torch.nn.init.ones_(weight.bias)
            pooled = self.pooled(*self.states([query.ids for query in queries[:_BATCH_TERMS]]))
            for first in range(0, len(self.terms), _BATCH_TERMS):
                rows = token_ids[first : first + _BATCH_TERMS]
                mask = self._mask(rows)
                encoded = self.pooled(self._encode(rows, mask), mask)
                added.weight[first : first + _BATCH_TERMS] = torch.nn.functional.normalize(encoded, dim=-1)
            cosines = torch.nn.functional.normalize(pooled, dim=-1) @ added.weight.T
            rank = min(count * len(pooled), cosines.numel() - 1)
            threshold = float(cosines.flatten().kthvalue(cosines.numel() - rank).values)
            slope = scale / max(1 - threshold, 1e-3)
            added.weight.mul_(slope / pooled.norm(dim=-1).mean())
            added.bias.fill_(-slope * threshold)

    def load_heads(self, folder: Path) -> None:
        """Load W and u from another trained folder. Terms that it does not contain are unchanged.

        Raises ModelError if the folder is damaged.
        """
        try:
            saved = load_extra("safetensors.numpy", "training").load_file(folder / "model.safetensors")
            names = json.loads((folder / TERMS).read_text(encoding="utf-8"))
            rows = dict(zip(names, range(len(saved["added.weight"])), strict=True))
        except Exception as error:  # the library's own error is not derived from a built-in error
            raise ModelError(f"{folder}: model.safetensors or {TERMS} is damaged: {error}") from error
        places = [column for column, term in enumerate(self.terms) if term in rows]
        chosen = [rows[self.terms[column]] for column in places]
        added, weight = self.module["added"], self.module["weight"]
        with self.torch.no_grad():
            added.weight[places] = self.torch.tensor(saved["added.weight"][chosen], device=self.device)
            added.bias[places] = self.torch.tensor(saved["added.bias"][chosen], device=self.device)
            weight.weight[:] = self.torch.tensor(saved["weight.weight"][None], device=self.device)
            weight.bias[:] = self.torch.tensor(saved["weight.bias"], device=self.device)

    def save(self, folder: Path, tokenizer: str, settings: Mapping[str, Any]) -> None:
        """Write model.safetensors (the encoder, with BERT's names, and the heads), terms, config, tokenizer and
        `settings`."""
        arrays = _as_bert(self.module["encoder"].state_dict())
        rows = slice(None) if self.recipe.augmentation else slice(0)
        arrays |= {
            "added.weight": self._array(self.module["added"].weight)[rows],
            "added.bias": self._array(self.module["added"].bias)[rows],
            "weight.weight": self._array(self.module["weight"].weight)[0],
            "weight.bias": self._array(self.module["weight"].bias),
        }
        load_extra("safetensors.numpy", "training").save_file(
            {name: np.ascontiguousarray(array) for name, array in arrays.items()}, folder / "model.safetensors"
        )
        (folder / TERMS).write_text(json.dumps(self.terms[rows]), encoding="ascii")
        (folder / "tokenizer.json").write_text(tokenizer, encoding="utf-8")
        (folder / "config.json").write_text(json.dumps(_bert_config(self._config), indent=1), encoding="utf-8")
        (folder / SETTINGS).write_text(
            json.dumps({"format": FORMAT, **settings}, indent=1, sort_keys=True), encoding="utf-8"
        )

    def _array(self, tensor: Any) -> NDArray[np.float32]:
        return np.asarray(tensor.detach().cpu().numpy(), np.float32)


_DISTIL = (  # DistilBERT's names -> BERT's
    ("transformer.layer.", "encoder.layer."),
    ("attention.q_lin", "attention.self.query"),
    ("attention.k_lin", "attention.self.key"),
    ("attention.v_lin", "attention.self.value"),
    ("attention.out_lin", "attention.output.dense"),
    ("sa_layer_norm", "attention.output.LayerNorm"),
    ("ffn.lin1", "intermediate.dense"),
    ("ffn.lin2", "output.dense"),
    ("output_layer_norm", "output.LayerNorm"),
)


def _as_bert(state: Mapping[str, Any]) -> dict[str, NDArray[Any]]:
    """Return the float32 weights of an encoder with BertModel's names. DistilBERT gets zero token types."""
    arrays = {}
    for name, tensor in state.items():
        if name.startswith("pooler.") or name.endswith("position_ids"):
            continue
        for old, new in _DISTIL:
            name = name.replace(old, new)
        arrays[name] = np.asarray(tensor.detach().cpu().float().numpy())
    width = arrays["embeddings.word_embeddings.weight"].shape[1]
    arrays.setdefault("embeddings.token_type_embeddings.weight", np.zeros((2, width), np.float32))
    return arrays


def _bert_config(config: Any) -> dict[str, Any]:
    """Return a config.json for the encoder as a BERT, so that training can continue from the folder."""
    distil = config.model_type == "distilbert"
    return {
        "architectures": ["BertModel"],
        "model_type": "bert",
        "hidden_act": "gelu",
        "vocab_size": config.vocab_size,
        "hidden_size": config.dim if distil else config.hidden_size,
        "num_hidden_layers": config.n_layers if distil else config.num_hidden_layers,
        "num_attention_heads": config.n_heads if distil else config.num_attention_heads,
        "intermediate_size": config.hidden_dim if distil else config.intermediate_size,
        "max_position_embeddings": config.max_position_embeddings,
        "type_vocab_size": 2 if distil else config.type_vocab_size,
        "hidden_dropout_prob": config.dropout if distil else config.hidden_dropout_prob,
        "attention_probs_dropout_prob": config.attention_dropout if distil else config.attention_probs_dropout_prob,
        "layer_norm_eps": 1e-12 if distil else config.layer_norm_eps,
        "pad_token_id": config.pad_token_id,
    }
