"""Test on a GPU and print one table: speed compared with the libraries, equality with the CPU, memory and training.

    make gpu                                        at most 8 minutes
    python benchmarks/gpu.py --device cuda:0 --seconds 480 --markdown gpu.md
    python benchmarks/gpu.py --device cpu --small   tries the script itself

Models have realistic shapes and random weights (BERT-base, T5-base), so times, memory, devices and equalities are
meaningful, but retrieval scores are not. airgen and the library alternate in one process at the same dtype and batch
size; figures are medians of the paired ratios. Parts that fail or do not fit in the time limit are listed in the table.
"""

from __future__ import annotations

import argparse
import gc
import statistics
import sys
import tempfile
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from airgen.components import devices
from airgen.components.keys import rng
from airgen.errors import AirgenError
from airgen.retrievers.dense.embedders import SentenceTransformersEmbedder
from airgen.retrievers.dense.exact_search import search
from airgen.retrievers.dense.gpu_search import GpuRows, GpuTokens
from airgen.retrievers.dense.retriever import Dense
from airgen.retrievers.late.compressed_index import token_rows
from airgen.retrievers.late.maxsim import MultiVectorEncoder, maxsims
from airgen.retrievers.passages import Passages
from airgen.retrievers.rerank import CrossEncoder
from airgen.retrievers.sparse import SparseEncoder
from airgen.safety.escaping import markdown_table, terminal_table

Row = tuple[str, str, str]
"""What was looked at, the figure, and what is asked of it."""

_LETTERS = "abcdefghijklmnopqrstuvwxyz"


class World:
    """Models of realistic shapes in a folder, and texts of typical passage lengths."""

    def __init__(self, folder: Path, device: str, *, small: bool) -> None:
        self.folder, self.device, self.small = folder, device, small
        self.count = 32 if small else 5_000
        self.words = [f"{a}{b}{c}" for a in _LETTERS for b in "aeiou" for c in _LETTERS]

    def texts(self, count: int, name: str = "passage") -> list[str]:
        """Make texts of 30 to 300 words, with log-normal lengths like SciFact's abstracts."""
        found = []
        for number in range(count):
            random = rng(name, number)
            length = min(300, max(30, int(random.lognormvariate(5.1, 0.4))))
            found.append(" ".join(random.choices(self.words, k=length)))
        return found

    def tokenizer(self, place: Path) -> None:
        """Write a WordPiece tokenizer of the words, filled up to the size of BERT's vocabulary."""
        import transformers

        special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
        rest = [f"[unused{number}]" for number in range(30_522 - len(special) - len(self.words))]
        (place / "vocab.txt").write_text("\n".join([*special, *self.words, *rest]), "utf-8")
        transformers.BertTokenizerFast(vocab=str(place / "vocab.txt"), model_max_length=512).save_pretrained(place)

    def bert(self, kind: str, **settings: Any) -> Path:
        """Make a random BERT-base of a transformers class."""
        import torch
        import transformers

        place = self.folder / kind
        if not place.exists():
            place.mkdir()
            self.tokenizer(place)
            torch.manual_seed(0)
            shape = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 128}
            config = transformers.BertConfig(vocab_size=30_522, **(shape if self.small else {}), **settings)
            getattr(transformers, kind)(config).save_pretrained(place)
        return place

    def late(self) -> Path:
        """Make a random BERT-base with a token projection."""
        from sentence_transformers import MultiVectorEncoder as Library

        place = self.folder / "late"
        if not place.exists():
            Library(str(self.bert("BertModel")), device="cpu").save_pretrained(str(place))
        return place

    def t5(self) -> Path:
        """Make a random T5-base."""
        import torch
        import transformers

        place = self.folder / "t5"
        if not place.exists():
            place.mkdir()
            self.tokenizer(place)
            torch.manual_seed(0)
            shape = {"d_model": 64, "d_ff": 128, "num_layers": 2, "num_heads": 2, "d_kv": 32} if self.small else {
                "d_model": 768, "d_ff": 3072, "num_layers": 12, "num_heads": 12}  # fmt: skip
            config = transformers.T5Config(vocab_size=30_522, pad_token_id=0, eos_token_id=3, decoder_start_token_id=0,
                                           **shape)  # fmt: skip
            transformers.T5ForConditionalGeneration(config).save_pretrained(place)
        return place

    def dataset(self) -> Path:
        """Write a small BEIR dataset for training."""
        import json

        place = self.folder / "dataset"
        if not place.exists():
            (place / "qrels").mkdir(parents=True)
            texts = self.texts(400, "training")
            rows = [{"_id": f"p{at}", "title": "", "text": text} for at, text in enumerate(texts)]
            queries = [{"_id": f"q{at}", "text": " ".join(text.split()[3:9])} for at, text in enumerate(texts)]
            for name, lines in (("corpus", rows), ("queries", queries)):
                (place / f"{name}.jsonl").write_text("".join(json.dumps(one) + "\n" for one in lines), "utf-8")
            for split, some in (("train", range(360)), ("dev", range(360, 400))):
                labels = "".join(f"q{at}\tp{at}\t1\n" for at in some)
                (place / "qrels" / f"{split}.tsv").write_text(f"query-id\tcorpus-id\tscore\n{labels}", "utf-8")
        return place


def synchronised(device: str, work: Callable[[], Any]) -> float:
    """Return the seconds until the GPU has finished the work."""
    import torch

    wait = torch.cuda.synchronize if device.startswith("cuda") else lambda *_: None
    wait()
    start = time.perf_counter()
    work()
    wait()
    return time.perf_counter() - start


def paired(
    device: str, ours: Callable[[], Any], theirs: Callable[[], Any], runs: int = 3
) -> tuple[float, float, float]:
    """Return the median seconds of both sides, alternating after a warm-up, and the median of theirs / ours."""
    ours()
    theirs()
    taken: list[tuple[float, float]] = []
    for run in range(runs):
        if run % 2:
            one = synchronised(device, ours)
            taken.append((one, synchronised(device, theirs)))
        else:
            other = synchronised(device, theirs)
            taken.append((synchronised(device, ours), other))
    one, other = (statistics.median(column) for column in zip(*taken, strict=True))
    return one, other, statistics.median(theirs / ours for ours, theirs in taken)


def throughput(world: World, dtype: str) -> Iterator[Row]:
    """Compare encoding and re-ranking with the library, at one dtype and the batch size that airgen chooses by
    memory."""
    device, texts = world.device, world.texts(world.count)
    asked = f"at least .95 of the library's speed ({dtype})"
    for name, made, told in (
        ("dense", SentenceTransformersEmbedder(str(world.bert("BertModel")), device=device, dtype=dtype), {}),
        ("late", MultiVectorEncoder(str(world.late()), device=device, dtype=dtype), {}),
        ("sparse", SparseEncoder(str(world.bert("BertForMaskedLM")), device=device, dtype=dtype),
         {"convert_to_sparse_tensor": False}),
    ):  # fmt: skip
        part: Any = made
        some = texts if name != "sparse" else texts[: world.count // 2]
        batch = part.batch_for(some, part.model)
        library = part.model.encode_document if name != "dense" else part.model.encode
        more = {**told, **({"convert_to_numpy": True} if name != "sparse" else {})}
        encode = part.token_vectors if name == "late" else part.encode
        size = part.texts_at_once or len(some)

        def ours(encode: Any = encode, some: Sequence[str] = some, size: int = size) -> None:
            for first in range(0, len(some), size):
                encode(some[first : first + size], "passage")

        def theirs(
            library: Any = library, some: Sequence[str] = some, batch: int = batch, more: dict[str, Any] = more
        ) -> None:
            library(some, batch_size=batch, show_progress_bar=False, **more)

        mine, other, ratio = paired(device, ours, theirs)
        figure = f"{len(some) / mine:,.0f} passages/s, library {len(some) / other:,.0f}: {ratio:.2f} (batch {batch})"
        yield f"{name} encoder, {dtype}", figure, asked
        part.release()
    place = world.bert("BertForSequenceClassification", num_labels=1)
    reranker = CrossEncoder(str(place), device=device, dtype=dtype)
    query = "bab bec bid"
    pairs = [(query, text) for text in texts[: world.count // 2]]
    batch = reranker.batch_for([query + text for _, text in pairs], reranker.model)
    mine, other, ratio = paired(
        device,
        lambda: reranker.score(pairs),
        lambda: reranker.model.predict([list(pair) for pair in pairs], batch_size=batch, show_progress_bar=False),
    )
    figure = f"{len(pairs) / mine:,.0f} pairs/s, library {len(pairs) / other:,.0f}: {ratio:.2f} (batch {batch})"
    yield f"cross-encoder, {dtype}", figure, asked
    reranker.release()


def agreement(world: World) -> Iterator[Row]:
    """Compare a GPU with the CPU in fp32, and half precision with both."""
    texts = world.texts(16)
    for name, kind, place, encode in (
        ("dense", SentenceTransformersEmbedder, world.bert("BertModel"), lambda part: part.encode(texts, "passage")),
        ("late", MultiVectorEncoder, world.late(), lambda part: np.concatenate(part.token_vectors(texts, "passage"))),
        ("cross-encoder", CrossEncoder, world.bert("BertForSequenceClassification", num_labels=1),
         lambda part: part.score([("bab bec", text) for text in texts])),
    ):  # fmt: skip
        found = {}
        for where, device, dtype in (("cpu", "cpu", "fp32"), ("fp32", world.device, "fp32"),
                                     ("fp16", world.device, "fp16"), ("bf16", world.device, "bf16")):  # fmt: skip
            part: Any = kind(str(place), device=device, dtype=dtype)
            found[where] = encode(part)
            part.release()
        gaps = ", ".join(
            f"{dtype} {np.abs(found[dtype] - found['cpu']).max():.0e}" for dtype in ("fp32", "fp16", "bf16")
        )
        yield f"{name}: difference from the CPU", gaps, "fp32 below 1e-5"


def searches(world: World) -> Iterator[Row]:
    """Measure exact dense search and MaxSim: time, and bitwise equality with the CPU."""
    draw = np.random.default_rng(0)
    count, dim, k = (20_000, 64, 100) if world.small else (1_000_000, 768, 1000)
    rows = np.empty((count, dim), np.float32)
    for first in range(0, count, 50_000):
        part = draw.standard_normal((min(50_000, count - first), dim), dtype=np.float32)
        rows[first : first + len(part)] = part / np.linalg.norm(part, axis=1, keepdims=True)
    queries = draw.standard_normal((200 if world.small else 1000, dim), dtype=np.float32)
    there = GpuRows(rows, world.device)
    there.search(queries[:8], k)
    taken = synchronised(world.device, lambda: there.search(queries, k))
    hits, doubtful = there.search(queries[:16], k)
    wanted = search(rows, queries[:16], k)
    sure = np.setdiff1d(np.arange(16), doubtful)
    same = bool(np.array_equal(hits.positions[sure], wanted.positions[sure])) and (
        hits.scores[sure].tobytes() == wanted.scores[sure].tobytes()
    )
    alone = statistics.median(synchronised(world.device, lambda: there.search(queries[:1], k)) for _ in range(5))
    figure = f"{taken / len(queries) * 1000:.3f} ms a query of {len(queries):,} at once, {alone * 1000:.2f} ms alone"
    yield f"exact search, {count:,} rows of {dim}, k {k}", figure, "at most 1 ms a query"
    yield "its hits are those of the CPU", f"{'yes' if same else 'NO'}, {len(doubtful)} of 16 left to the CPU", "yes"
    passages = 2_000 if world.small else 20_000
    tokens = [token_rows(_units(draw, 20 + at % 200, 128)) for at in range(passages)]
    starts = np.concatenate([[0], np.cumsum([len(one) for one in tokens])])
    every, query = np.concatenate(tokens), token_rows(_units(draw, 32, 128))
    held = GpuTokens(every, starts, world.device)
    held.scores(query)
    taken = statistics.median(synchronised(world.device, lambda: held.scores(query)) for _ in range(5))
    same = held.scores(query)[:500].tobytes() == maxsims([query], every[: starts[500]], starts[:500])[0].tobytes()
    yield f"MaxSim, {passages:,} passages of 120 tokens", f"{taken * 1000:.1f} ms a query, same bits: {same}", "yes"


def _units(draw: np.random.Generator, count: int, dim: int) -> np.ndarray[Any, Any]:
    vectors = draw.standard_normal((count, dim)).astype(np.float32)
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def memory(world: World) -> Iterator[Row]:
    """Measure the memory held after each of several systems, and test out-of-memory handling."""
    import torch

    allocated = torch.cuda.memory_allocated if world.device.startswith("cuda") else lambda: 0
    texts = world.texts(64)
    corpus = Passages([str(at) for at in range(len(texts))], texts)
    held, alive = [], []
    for number in range(5):
        system = Dense(SentenceTransformersEmbedder(str(world.bert("BertModel")), device=world.device))
        system.index(corpus)
        system.search(texts[:2], 10)
        alive.append(weakref.ref(system.embedder.model))  # type: ignore[attr-defined]
        system.release()
        held.append(f"{allocated() / 1e9:.2f}")
        assert number >= 0
    left = sum(one() is not None for one in alive)
    yield "GB held after each of five systems", f"{', '.join(held)}; {left} models alive", "0.0x each, none alive"
    if not world.device.startswith("cuda"):
        return
    total = torch.cuda.get_device_properties(world.device).total_memory
    room = min(0.9, (allocated() + (3 << 30)) / total)
    torch.cuda.set_per_process_memory_fraction(room)
    try:
        embedder = SentenceTransformersEmbedder(
            str(world.bert("BertModel")), device=world.device, dtype="fp32", batch_size=4096
        )
        vectors = embedder.encode(world.texts(4096, "many"), "passage")
        yield "3 GB and a batch of 4,096", f"{len(vectors):,} encoded, batch halved to {embedder._most}", "goes on"
        embedder.release()
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
        gc.collect()


def trainings(world: World) -> Iterator[Row]:
    """Train every kind on this device, and twice with the same seed with and without `deterministic`."""
    from safetensors.torch import load_file

    from airgen.training import KINDS, train
    from airgen.training.recipe import TrainingRequest

    def run(kind: str, name: str, *changes: str) -> Path:
        base = {"doct5query": world.t5, "augment": lambda: world.bert("BertForMaskedLM")}.get(
            kind, lambda: world.bert("BertForMaskedLM")
        )()
        own = {"augment": ("max_query_tokens=16",), "doct5query": ("dev_queries=1", "dev_passages=8")}.get(
            kind, ("dev_passages=40", "max_length=64")
        )
        out = world.folder / f"{kind}-{name}"
        sizes = ("batch_size=16", "max_steps=4", "epochs=1", "keep=last")
        request = TrainingRequest(world.dataset(), str(base), out, changes=(*sizes, *own, *changes), quiet=True,
                                  device=world.device)  # fmt: skip
        train(kind, request)
        return out

    for kind in KINDS:
        start = time.perf_counter()
        try:
            run(kind, "once")
            said = f"trained in {time.perf_counter() - start:.0f} s"
        except AirgenError as error:
            said = f"FAILED: {error}"
        yield f"train {kind}", said, "runs"
    for kind in ("encoder", "cross-encoder", "splade", "colbert", "deepct"):
        gaps = []
        for name, changes in (("", ()), ("deterministic", ("deterministic=true",))):
            try:
                one, other = (
                    load_file(run(kind, f"{name}{number}", *changes) / "model.safetensors") for number in (1, 2)
                )
                gap = max(float((one[key] - other[key]).abs().max()) for key in one)
                gaps.append(f"{name or 'as it is'} {gap:.0e}")
            except AirgenError as error:
                gaps.append(f"{name or 'as it is'} FAILED: {str(error)[:160]}")
        yield f"{kind}: two trainings of one seed differ by", ", ".join(gaps), "deterministic 0"


def writing(world: World) -> Iterator[Row]:
    """Measure docT5query with one passage at a time, as before, and with many."""
    from airgen.training.mining.expansion import Seq2Seq

    writer = Seq2Seq(str(world.t5()), device=world.device, max_new_tokens=16 if world.small else 64)
    texts, count = world.texts(8 if world.small else 48), 4 if world.small else 40
    seeds = list(range(len(texts)))
    writer.write(texts[:2], count, seeds[:2])
    alone = synchronised(world.device, lambda: [writer.write([one], count, [1]) for one in texts[:4]]) / 4
    together = synchronised(world.device, lambda: writer.write(texts, count, seeds)) / len(texts)
    figure = f"{1 / together:.1f} passages/s, one by one {1 / alone:.2f}: {alone / together:.1f} times"
    yield f"docT5query, {count} queries a passage", figure, "at least 5 times"


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--device", default="cuda:0")
    options.add_argument("--seconds", type=float, default=480, help="no part begins after nine tenths of them")
    options.add_argument("--small", action="store_true", help="small models and few texts")
    options.add_argument("--only", nargs="*", help="parts by name")
    options.add_argument("--markdown", type=Path, help="also write the table to this file")
    asked = options.parse_args()
    device = devices.check_device(asked.device, "make gpu")
    from transformers.utils import logging

    logging.disable_progress_bar()
    parts: dict[str, Callable[[World], Iterator[Row]]] = {
        "bf16": lambda world: throughput(world, "bf16"),
        "search": searches,
        "trainings": trainings,
        "memory": memory,
        "agreement": agreement,
        "writing": writing,
        "fp16": lambda world: throughput(world, "fp16"),
        "fp32": lambda world: throughput(world, "fp32"),
    }
    began, rows = time.perf_counter(), [("what", "figure", "asked")]
    with tempfile.TemporaryDirectory() as folder:
        world = World(Path(folder), device, small=asked.small)
        for name, part in parts.items():
            if asked.only and name not in asked.only:
                continue
            if time.perf_counter() - began > 0.9 * asked.seconds:
                rows.append((name, "no time was left", ""))
                continue
            try:
                for row in part(world):
                    rows.append(row)
                    print(f"{time.perf_counter() - began:5.0f} s  {row[0]}: {row[1]}", file=sys.stderr, flush=True)
                    if time.perf_counter() - began > asked.seconds:
                        rows.append((name, "no time was left for the rest", ""))
                        break
            except Exception as error:  # noqa: BLE001  # the others are to run
                rows.append((name, f"FAILED: {type(error).__name__}: {' '.join(str(error).split())[:200]}", ""))
                print(rows[-1], file=sys.stderr, flush=True)
            with suppress(AirgenError):
                devices.give_back()
    about = f"{devices.gpu_name(device)}, {time.perf_counter() - began:.0f} s"
    print(f"{about}\n{terminal_table([list(row) for row in rows])}")
    if asked.markdown is not None:
        table = markdown_table(list(rows[0]), [list(row) for row in rows[1:]])
        asked.markdown.write_text(f"{about}\n\n{table}\n", "utf-8")
    raise SystemExit(any("FAILED" in row[1] for row in rows))


if __name__ == "__main__":
    main()
