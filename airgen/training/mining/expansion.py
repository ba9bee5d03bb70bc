"""Generate queries that a passage might answer, for docT5query-style expansion (Nogueira and Lin, 2019; BEIR's section
4).

    expand(passages, Seq2Seq("doc2query-model"), Path("expansions.jsonl"))
    expand_from_split(dataset, "train", Path("expansions.jsonl"))

Queries for many passages are sampled at once, each passage with its own seed, so the result does not depend on the
order of passages. An interrupted run continues when called again. The retriever is
`airgen.retrievers.lexical.expanded`.
"""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from airgen.components.devices import Dtype, halving, on_gpu
from airgen.components.keys import rng
from airgen.components.registry import load_extra
from airgen.compute.exact_arithmetic import log
from airgen.dataset.beir import BeirDataset, BeirPassage
from airgen.errors import DatasetError, UsageError
from airgen.retrievers.dense.embedders import with_tokenizer
from airgen.retrievers.model_facts import model_place
from airgen.safety.guard import guarded
from airgen.storage.paths import sibling
from airgen.storage.records import flat_text
from airgen.storage.sequences import batched
from airgen.storage.whole_files import write_text
from airgen.training.data import RESERVED
from airgen.training.mining.pairs import SourcePassage

PassageText = BeirPassage | SourcePassage
_TOP_K = 10  # tokens that are sampled from, as docT5query does
_CPU_SEQUENCES = 160  # queries generated at once: four passages of docT5query's 40 queries
_GPU_SEQUENCES = 4096
_GPU_MEMORY_SHARE = 0.5  # of a GPU's memory
_SORTED_BATCHES = 4  # batches of passages that are sorted by length together, which a stop can lose


class Seq2Seq:
    """A sequence-to-sequence transformers model, such as docT5query, by folder or Hub name.

    Args:
        max_length: Maximum number of tokens of the passage.
        max_new_tokens: Maximum number of tokens of a query.
        dtype: Dtype of the weights, as for a retriever.
    """

    def __init__(
        self,
        model: str,
        *,
        prefix: str = "",
        max_length: int = 512,
        max_new_tokens: int = 64,
        device: str | None = None,
        dtype: Dtype = "auto",
    ) -> None:
        self.name = model
        self._prefix, self._device, self._dtype = prefix, device, dtype
        self._max_length, self._max_new = max_length, max_new_tokens

    @cached_property
    def parts(self) -> tuple[Any, Any]:
        return with_tokenizer(
            "AutoModelForSeq2SeqLM",
            "the query model",
            self.name,
            model_place(self.name),
            device=self._device,
            dtype=self._dtype,
        )

    def texts_at_once(self, count: int) -> int:
        """Return for how many texts to generate `count` queries each at once: as many as fit in GPU memory."""
        model = self.parts[0]
        sequences = _CPU_SEQUENCES
        if on_gpu(self._device):
            config, torch = model.config, load_extra("torch", f"the query model {self.name!r}")
            layers = getattr(config, "num_decoder_layers", None) or getattr(config, "decoder_layers", None) or 12
            width = getattr(config, "d_model", None) or config.hidden_size
            # Keys and values of the passage and of the query in each layer, and a row of logits in fp32.
            numbers = 2 * layers * width * (self._max_length + self._max_new) + 4 * config.vocab_size
            room = _GPU_MEMORY_SHARE * torch.cuda.get_device_properties(None).total_memory
            sequences = min(_GPU_SEQUENCES, int(room / (numbers * next(model.parameters()).element_size())))
        return max(1, sequences // max(1, count))

    def write(self, texts: Sequence[str], count: int, seeds: Sequence[int]) -> list[list[str]]:
        """Return the distinct sampled queries of each text, in the order of sampling.

        Each text is sampled with its own seed, so its queries do not depend on other texts, except for the last bits of
        their scores. If memory runs out, fewer texts are processed at once. Raises ModelError if even a single text
        does not fit.
        """

        def all_of(size: int) -> list[list[str]]:
            order = sorted(range(len(texts)), key=lambda place: (-len(texts[place]), place))  # similar lengths together
            queries_of_texts: list[list[str]] = [[] for _ in texts]
            for first in range(0, len(order), size):
                batch = order[first : first + size]
                written = self._sampled([texts[place] for place in batch], count, [seeds[place] for place in batch])
                for place, queries in zip(batch, written, strict=True):
                    queries_of_texts[place] = queries
            return queries_of_texts

        with guarded(f"the query model {self.name}"):
            return halving(all_of, max(1, min(self.texts_at_once(count), len(texts))))[0]

    def _sampled(self, texts: Sequence[str], count: int, seeds: Sequence[int]) -> list[list[str]]:
        torch = load_extra("torch", f"the query model {self.name!r}")
        model, tokenizer = self.parts
        prefixed = [self._prefix + text for text in texts]
        encoded = tokenizer(prefixed, truncation=True, max_length=self._max_length, padding=True, return_tensors="pt")
        inputs = {
            name: value.to(model.device) for name, value in encoded.items() if name in ("input_ids", "attention_mask")
        }
        noise = np.concatenate([_gumbel(seed, (count, self._max_new, _TOP_K)) for seed in seeds])
        draw = _Draw(torch, torch.from_numpy(noise).to(model.device))
        with torch.inference_mode():
            sequences = model.generate(
                **inputs,
                do_sample=True,
                top_k=0,
                num_return_sequences=count,
                max_new_tokens=self._max_new,
                logits_processor=[draw],
            )
        queries = [" ".join(text.split()) for text in tokenizer.batch_decode(sequences, skip_special_tokens=True)]
        of_texts = (queries[first : first + count] for first in range(0, len(queries), count))
        return [list(dict.fromkeys(filter(None, of_text))) for of_text in of_texts]


def _gumbel(seed: int, shape: tuple[int, ...]) -> NDArray[np.float32]:
    """Draw from the standard Gumbel distribution. The argmax of log p plus such numbers is a sample from p."""
    uniform = np.random.default_rng(seed).random(shape)
    return np.asarray(-log(-log(np.maximum(uniform, 1e-300))), np.float32)


class _Draw:
    """Chooses each next token from the `_TOP_K` most likely ones by prepared random numbers, (rows, steps, top k).

    All other tokens get zero probability, so that the library samples the chosen token.
    """

    def __init__(self, torch: Any, noise: Any) -> None:
        self._torch, self._noise, self._first = torch, noise, 0

    def __call__(self, input_ids: Any, scores: Any) -> Any:
        torch, length = self._torch, input_ids.shape[1]
        self._first = self._first or length
        best, tokens = scores.float().topk(min(_TOP_K, scores.shape[1]), dim=-1)
        drawn = (best + self._noise[:, length - self._first, : best.shape[1]]).argmax(dim=-1, keepdim=True)
        return torch.full_like(scores, -torch.inf).scatter(1, tokens.gather(1, drawn), 0.0)


def expand(
    passages: Iterable[PassageText],
    model: Any,
    out: Path,
    *,
    count: int = 40,
    seed: int = 42,
    progress: Callable[[int], None] | None = None,
) -> int:
    """Write one row per passage, and return the number of passages for which this call used the model.

    `model` has the methods `write(texts, count, seeds)`, which returns at most `count` queries per text (the same for
    the same seed), and `texts_at_once(count)`. docT5query samples 40 queries per passage. Rows are written to OUT.part,
    which a later call continues and which is renamed to OUT at the end. `progress` is called with the number of
    finished passages. Raises DatasetError if the file cannot be written, and the model's own errors.
    """
    partial = sibling(out, ".part")
    written = number = 0
    try:
        partial.parent.mkdir(parents=True, exist_ok=True)
        written_ids = _whole_rows(partial)
        left = (passage for passage in passages if passage.id not in written_ids)
        number = len(written_ids)
        with partial.open("a", encoding="utf-8") as file:
            for batch in batched(left, _SORTED_BATCHES * model.texts_at_once(count)):
                texts = [flat_text(passage.title, passage.text) for passage in batch]
                seeds = [rng("expansion", seed, passage.id).getrandbits(32) for passage in batch]
                for passage, queries in zip(batch, model.write(texts, count, seeds), strict=True):
                    file.write(json.dumps({"_id": passage.id, "queries": queries}) + "\n")
                file.flush()
                written += len(batch)
                number += len(batch)
                if progress:
                    progress(number)
        partial.replace(out)
    except OSError as error:
        raise DatasetError(f"{out}: cannot be written: {error.strerror or error}") from error
    return written


def expand_from_split(dataset: BeirDataset, split: str, out: Path, *, count: int = 40) -> int:
    """Write the queries of a split as expansions of their relevant passages, and return the number of passages.

    Raises UsageError for a split that is reserved for testing, whose queries must not be in the index.
    """
    if split.lower() in RESERVED:
        raise UsageError(f"--from {split} is for testing: its queries must not be in the index")
    texts = {key: query.text for key, query in dataset.queries().items()}
    expansions = queries_of(dataset.qrels(split).labels, texts)
    write_text(out, (json.dumps({"_id": key, "queries": of[:count]}) + "\n" for key, of in expansions.items()))
    return len(expansions)


def queries_of(labels: Mapping[str, Mapping[str, float]], texts: Mapping[str, str]) -> dict[str, list[str]]:
    """Return {passage id: queries to which it is relevant}."""
    queries: dict[str, list[str]] = {}
    for query, of_query in labels.items():
        for passage, label in of_query.items():
            if label > 0 and texts.get(query, "").strip():
                queries.setdefault(passage, []).append(texts[query])
    return queries


def _whole_rows(path: Path) -> set[str]:
    """Return the ids in a file, after removing an incomplete last line."""
    if not path.is_file():
        return set()
    ids: set[str] = set()
    size = 0
    with path.open("rb") as lines:
        for line in lines:
            try:
                ids.add(str(json.loads(line)["_id"]))
            except (ValueError, KeyError, TypeError):
                break
            if not line.endswith(b"\n"):
                break
            size += len(line)
    with path.open("r+b") as file:
        file.truncate(size)
    return ids
