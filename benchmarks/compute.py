"""Measure the costs and benefits of workers: encode or clean a corpus in this process, in processes, and on a local Ray
cluster.

python benchmarks/compute.py --passages 2000                       all-minilm-l6-v2-int8
python benchmarks/compute.py --passages 100000 --free              vectors that cost nothing: what is left is the way
python benchmarks/compute.py --passages 2000 --where local:1 local:16 --json compute.json
python benchmarks/compute.py --passages 50000 --clean              a corpus from its file to clean passages

For each way of computing: wall and CPU seconds of the work, once workers are ready, the CPU of this process and
that of all that it has started (Ray's own processes among them), and a digest of the result, which is equal for all.
Passages are of about 60 words; those of a corpus are made as in corpus.py, of 40 to 160 words. Only on Linux; other
work on the machine changes wall time, hardly CPU time.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from corpus import _settings as corpus_settings
from corpus import make as make_corpus
from numpy.typing import NDArray

from airgen.components.keys import rng
from airgen.compute import computing
from airgen.corpus import CorpusSettings, prepare
from airgen.retrievers import load_embedder
from airgen.retrievers.component import Component
from airgen.retrievers.dense.retriever import Dense
from airgen.retrievers.passages import Passages
from airgen.retrievers.protocols import TextKind
from airgen.settings.compute import compute_settings

_WORDS = [f"{first}{middle}{last}" for first in "bdfgklmnprst" for middle in "aeiou" for last in ("", "n", "rd", "st")]
_TICK = os.sysconf("SC_CLK_TCK")


class Free(Component):
    """Embed texts as hash-based vectors of 384 dimensions."""

    name, dim, travels = "free", 384, True

    def encode(self, texts: Sequence[str], kind: TextKind) -> NDArray[np.float32]:
        digests = b"".join(hashlib.shake_128(text.encode()).digest(self.dim) for text in texts)
        return np.frombuffer(digests, np.uint8).reshape(-1, self.dim).astype(np.float32) / 4096

    def describe(self) -> Mapping[str, object]:
        return {"family": "free"}


def started_cpu() -> float:
    """Return the CPU seconds of all living descendant processes, and of those that they have waited for."""
    found: dict[int, tuple[int, float]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue  # it has just ended
            found[int(entry.name)] = int(fields[1]), sum(map(int, fields[11:15])) / _TICK
    below, total = {os.getpid()}, 0.0
    while fresh := {pid for pid, (parent, _) in found.items() if parent in below} - below:
        below |= fresh
        total += sum(found[pid][1] for pid in fresh)
    return total


@contextmanager
def timed(where: str, warm: Callable[[int], object]) -> Iterator[dict[str, Any]]:
    """Yield a row for the costs of the work in the block, after `warm` has started the workers."""
    with computing(compute_settings(where)) as compute:
        warm(compute.workers)
        found: dict[str, Any] = {"where": where, "workers": compute.workers}
        wall, own, below = time.perf_counter(), time.process_time(), started_cpu()
        yield found
        found |= {
            "wall_s": round(time.perf_counter() - wall, 2), "driver_cpu_s": round(time.process_time() - own, 2),
            "started_cpu_s": round(started_cpu() - below, 2),
        }  # fmt: skip


def encoding(where: str, texts: Sequence[str], embedder: Any) -> dict[str, Any]:
    """Encode into a fresh cache."""
    with tempfile.TemporaryDirectory() as folder:

        def fill(name: str, some: Sequence[str]) -> None:
            Dense(embedder, cache=Path(folder) / name).index(Passages(some, some))

        with timed(where, lambda n: fill("warm", [f"warm {number}" for number in range(256 * 4 * n)])) as found:
            fill("cache", texts)
        data = b"".join(path.read_bytes() for path in sorted((Path(folder) / "cache").rglob("*.bin")))
    return {**found, "passages": len(texts), "digest": hashlib.blake2b(data, digest_size=6).hexdigest()}


def cleaning(where: str, folder: Path, passages: int) -> dict[str, Any]:
    """Clean a corpus into rows."""

    def rows(name: str) -> Iterator[Any]:
        settings = CorpusSettings.model_validate(corpus_settings(folder / name, {}), context={"folder": folder})
        return prepare(settings, "qa")

    digest = hashlib.blake2b(digest_size=6)
    with timed(where, lambda n: deque(rows("warm.jsonl"), 0)) as found:
        for row in rows("corpus.jsonl"):
            digest.update(repr(row).encode())
    return {**found, "passages": passages, "digest": digest.hexdigest()}


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--passages", type=int, default=2000)
    arguments.add_argument("--where", nargs="+", default=["local", "local:1", "local:2", "ray:1", "ray:2"])
    arguments.add_argument("--free", action="store_true", help="an encoder that costs nothing")
    arguments.add_argument("--clean", action="store_true", help="clean a corpus in place of encoding")
    arguments.add_argument("--json", type=Path)
    given = arguments.parse_args()
    stack = ExitStack()
    if given.clean:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        make_corpus(folder / "corpus.jsonl", given.passages)
        make_corpus(folder / "warm.jsonl", 20_000)

        def measure(where: str) -> dict[str, Any]:
            return cleaning(where, folder, given.passages)

    else:
        draw = rng("benchmarks/compute.py")
        texts = [" ".join(draw.choices(_WORDS, k=60)) for _ in range(given.passages)]
        # One thread in this process, as in a worker, so that the difference is due to the transport, not the threads.
        embedder = Free() if given.free else load_embedder({"kind": "onnx"})

        def measure(where: str) -> dict[str, Any]:
            return encoding(where, texts, embedder)

    rows, cluster = [], None
    if any(where.startswith("ray") for where in given.where):
        import ray
        from ray.cluster_utils import Cluster

        os.environ |= {"RAY_worker_niceness": "0", "RAY_USAGE_STATS_ENABLED": "0"}
        os.environ["PYTHONPATH"] = os.pathsep.join([str(Path(__file__).parent), *filter(None, sys.path)])
        cluster = Cluster(
            initialize_head=True,
            head_node_args={"num_cpus": 1, "object_store_memory": 80_000_000, "include_dashboard": False},
        )
        cluster.add_node(num_cpus=1, object_store_memory=80_000_000)
        ray.init(address=cluster.address, log_to_driver=False, logging_level="ERROR")
    for where in given.where:
        rows.append(measure(where))
        last = rows[-1]
        each = (last["driver_cpu_s"] + last["started_cpu_s"]) / given.passages * 1e6
        print(
            f"{where:<10} wall {last['wall_s']:>8.2f} s  CPU driver {last['driver_cpu_s']:>7.2f} s, started "
            f"{last['started_cpu_s']:>7.2f} s  {each:>8.1f} us CPU a passage  {last['digest']}",
            flush=True,
        )
    stack.close()
    if given.json:
        given.json.write_text(json.dumps(rows, indent=1), encoding="utf-8")
    if cluster is not None:
        ray.shutdown()
        cluster.shutdown()
    if len({row["digest"] for row in rows}) != 1:
        raise SystemExit("the results differ")


if __name__ == "__main__":
    sys.modules.setdefault("compute", sys.modules["__main__"])  # workers import it by this name
    Free.__module__ = "compute"
    main()
