"""Queries that a passage might answer, for docT5query-style expansion (Nogueira and Lin, 2019; BEIR's section 4).

    expand(passages, Seq2Seq("doc2query-model"), Path("expansions.jsonl"))
    expand_from_split(dataset, "train", Path("expansions.jsonl"))

Each passage is sampled with a seed of its own, so the result does not depend on the order of passages. A run that was
stopped goes on when it is called again. The retriever is `airgen.retrievers.lexical.expanded`.
"""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from airgen.dataset.beir import BeirDataset, BeirPassage
from airgen.errors import DatasetError, UsageError
from airgen.keys import rng
from airgen.records import flat_text
from airgen.registry import load_extra
from airgen.retrievers.base import model_place
from airgen.retrievers.dense.embedders import quiet_transformers, with_tokenizer
from airgen.training.data import RESERVED
from airgen.training.mining.pairs import SourcePassage

PassageText = BeirPassage | SourcePassage
_TEXTS = 16  # written for at once
_TOP_K = 10  # tokens that are sampled from, as docT5query does


class Seq2Seq:
    """A sequence-to-sequence model of transformers, such as a docT5query, by folder or Hub name.

    max_length: tokens of the passage. max_new_tokens: tokens of a query.
    """

    def __init__(
        self,
        model: str,
        *,
        prefix: str = "",
        max_length: int = 512,
        max_new_tokens: int = 64,
        device: str | None = None,
    ) -> None:
        self.name = model
        self._prefix, self._device = prefix, device
        self._max_length, self._max_new = max_length, max_new_tokens

    @cached_property
    def parts(self) -> tuple[Any, Any]:
        chosen = self.name, model_place(self.name), self._device
        with quiet_transformers():
            return with_tokenizer("AutoModelForSeq2SeqLM", "the query model", *chosen)

    def queries(self, text: str, count: int, seed: int) -> list[str]:
        """Sampled queries without duplicates, in the order of sampling."""
        return self._sampled([text], count, seed)[0]

    def of_batches(self, texts: Sequence[str], count: int, seed: int) -> list[list[str]]:
        """The queries of each text, some texts at once: sooner than one by one, but they depend on the texts beside."""
        return [
            queries
            for first in range(0, len(texts), _TEXTS)
            for queries in self._sampled(texts[first : first + _TEXTS], count, seed + first)
        ]

    def _sampled(self, texts: Sequence[str], count: int, seed: int) -> list[list[str]]:
        torch = load_extra("torch", f"the query model {self.name!r}")
        model, tokenizer = self.parts
        asked = [self._prefix + text for text in texts]
        encoded = tokenizer(asked, truncation=True, max_length=self._max_length, padding=True, return_tensors="pt")
        inputs = {
            name: value.to(model.device) for name, value in encoded.items() if name in ("input_ids", "attention_mask")
        }
        torch.manual_seed(seed)
        with torch.inference_mode():
            found = model.generate(
                **inputs, do_sample=True, top_k=_TOP_K, num_return_sequences=count, max_new_tokens=self._max_new
            )
        words = [" ".join(one.split()) for one in tokenizer.batch_decode(found, skip_special_tokens=True)]
        of_each = (words[first : first + count] for first in range(0, len(words), count))
        return [list(dict.fromkeys(filter(None, one))) for one in of_each]


def expand(
    passages: Iterable[PassageText],
    model: Any,
    out: Path,
    *,
    count: int = 40,
    seed: int = 42,
    progress: Callable[[int], None] | None = None,
) -> int:
    """Write one row for each passage; returns for how many passages this call asked the model.

    `model` has `queries(text, count, seed)`: at most `count` for a passage, equal ones for equal arguments. docT5query
    samples 40 for each passage. Rows go to OUT.part, which a later call continues and which is
    renamed to OUT at the end. `progress` is called with the number of passages done. Raises DatasetError if the file
    cannot be written, and the model's own errors.
    """
    partial = out.with_name(f"{out.name}.part")
    written = 0
    try:
        partial.parent.mkdir(parents=True, exist_ok=True)
        done = _whole_rows(partial)
        with partial.open("a", encoding="utf-8") as file:
            for number, passage in enumerate(passages, 1):
                if passage.id not in done:
                    text = flat_text(passage.title, passage.text)
                    own_seed = rng("expansion", seed, passage.id).getrandbits(32)
                    row = {"_id": passage.id, "queries": model.queries(text, count, own_seed)}
                    file.write(json.dumps(row) + "\n")
                    file.flush()
                    written += 1
                if progress:
                    progress(number)
        partial.replace(out)
    except OSError as error:
        raise DatasetError(f"{out}: cannot be written: {error.strerror or error}") from error
    return written


def expand_from_split(dataset: BeirDataset, split: str, out: Path, *, count: int = 40) -> int:
    """Write the queries of a split as expansions of their relevant passages; returns the number of passages.

    Raises UsageError for a split that is reserved for testing: its queries must not be in the index.
    """
    if split.lower() in RESERVED:
        raise UsageError(f"--from {split} is for testing: its queries must not be in the index")
    texts = {key: query.text for key, query in dataset.queries().items()}
    found = queries_of(dataset.qrels(split).labels, texts)
    rows = "".join(json.dumps({"_id": key, "queries": queries[:count]}) + "\n" for key, queries in found.items())
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(rows, encoding="utf-8")
    return len(found)


def queries_of(labels: Mapping[str, Mapping[str, float]], texts: Mapping[str, str]) -> dict[str, list[str]]:
    """{passage id: the queries to which it is relevant}."""
    found: dict[str, list[str]] = {}
    for query, of_query in labels.items():
        for passage, label in of_query.items():
            if label > 0 and texts.get(query, "").strip():
                found.setdefault(passage, []).append(texts[query])
    return found


def _whole_rows(path: Path) -> set[str]:
    """The ids in a file; an incomplete last line is removed from it."""
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
