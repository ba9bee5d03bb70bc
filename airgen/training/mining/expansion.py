"""Queries that a passage might answer, for docT5query-style expansion (Nogueira and Lin, 2019; BEIR's section 4).

    expand(passages, Seq2Seq("doc2query-model"), Path("expansions.jsonl"))

A model is anything that gives queries for a text: a sequence-to-sequence one here, any other by its own class. Each
passage is sampled by a seed of its own, so that results depend neither on order nor on where a run was broken off:
what was written stays, and the same command goes on. The retriever is `airgen.retrievers.lexical.expanded`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

from airgen.dataset.beir import BeirPassage
from airgen.errors import DatasetError
from airgen.keys import rng
from airgen.records import flat_text
from airgen.registry import load_extra
from airgen.retrievers.dense.embedders import loaded, model_place
from airgen.training.base_models import quiet

__all__ = ["QueryModel", "Seq2Seq", "expand", "queries_of"]


class QueryModel(Protocol):
    """Texts to queries."""

    def queries(self, text: str, count: int, seed: int) -> list[str]:
        """At most `count` queries for a passage; the same for the same arguments."""
        ...


class Seq2Seq:
    """A sequence-to-sequence model of transformers, such as a docT5query, by folder or Hub name.

    top_k: sampling, as docT5query does with 10. max_length: tokens of the passage; max_new_tokens: of a query.
    """

    def __init__(
        self,
        model: str,
        *,
        prefix: str = "",
        top_k: int = 10,
        max_length: int = 512,
        max_new_tokens: int = 64,
        device: str | None = None,
    ) -> None:
        self.name = model
        self._prefix, self._top_k, self._device = prefix, top_k, device
        self._max_length, self._max_new = max_length, max_new_tokens

    @cached_property
    def _parts(self) -> tuple[Any, Any]:
        transformers = load_extra("transformers", f"the query model {self.name!r}")
        place = model_place(self.name)
        with quiet():
            model, tokenizer = [
                loaded("the query model", self.name, kind.from_pretrained, pretrained_model_name_or_path=place)
                for kind in (transformers.AutoModelForSeq2SeqLM, transformers.AutoTokenizer)
            ]
        return model.to(self._device or "cpu").eval(), tokenizer

    def queries(self, text: str, count: int, seed: int) -> list[str]:
        """Sampled queries, each once, in the order of sampling."""
        torch = load_extra("torch", f"the query model {self.name!r}")
        model, tokenizer = self._parts
        encoded = tokenizer(self._prefix + text, truncation=True, max_length=self._max_length, return_tensors="pt")
        inputs = {
            name: value.to(model.device) for name, value in encoded.items() if name in ("input_ids", "attention_mask")
        }
        torch.manual_seed(seed)
        with torch.inference_mode():
            found = model.generate(
                **inputs,
                do_sample=True,
                top_k=self._top_k,
                num_return_sequences=count,
                max_new_tokens=self._max_new,
            )
        words = (" ".join(one.split()) for one in tokenizer.batch_decode(found, skip_special_tokens=True))
        return list(dict.fromkeys(filter(None, words)))


def expand(
    passages: Iterable[BeirPassage],
    model: QueryModel,
    out: Path,
    *,
    count: int = 40,
    seed: int = 42,
    progress: Callable[[int], None] | None = None,
) -> int:
    """Write a row a passage; returns how many passages were asked now. docT5query samples 40 queries each.

    Rows go to OUT.part, which a later call continues, and which becomes OUT when it is whole. `progress` is told the
    passages done. Raises DatasetError where it cannot be written; the model's own errors.
    """
    partial = out.with_name(f"{out.name}.part")
    asked = 0
    try:
        partial.parent.mkdir(parents=True, exist_ok=True)
        done = _whole_rows(partial)
        with partial.open("a", encoding="utf-8") as file:
            for number, passage in enumerate(passages, 1):
                if passage.id not in done:
                    text = flat_text(passage.title, passage.text)
                    drawn = rng("expansion", seed, passage.id).getrandbits(32)
                    row = {"_id": passage.id, "queries": model.queries(text, count, drawn)}
                    file.write(json.dumps(row) + "\n")
                    file.flush()
                    asked += 1
                if progress:
                    progress(number)
        partial.replace(out)
    except OSError as error:
        raise DatasetError(f"{out}: cannot be written: {error.strerror or error}") from error
    return asked


def queries_of(labels: Mapping[str, Mapping[str, float]], texts: Mapping[str, str]) -> dict[str, list[str]]:
    """{passage id: the queries that it is relevant to} of a split, to expand with what was generated before."""
    found: dict[str, list[str]] = {}
    for query, of_query in labels.items():
        for passage, label in of_query.items():
            if label > 0 and texts.get(query, "").strip():
                found.setdefault(passage, []).append(texts[query])
    return found


def _whole_rows(path: Path) -> set[str]:
    """The ids that are there; a last line that was cut is taken away."""
    if not path.is_file():
        return set()
    done: set[str] = set()
    size = 0
    with path.open("rb") as lines:
        for line in lines:
            try:
                done.add(str(json.loads(line)["_id"]))
            except (ValueError, KeyError, TypeError):
                break
            if not line.endswith(b"\n"):
                break
            size += len(line)
    with path.open("r+b") as file:
        file.truncate(size)
    return done
