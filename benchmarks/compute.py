"""What workers cost and gain: embeddings into a cache by this process, by processes, and by a Ray cluster on loopback.

python benchmarks/compute.py --passages 2000                       all-minilm-l6-v2-int8
python benchmarks/compute.py --passages 100000 --free              vectors that cost nothing: what is left is the way
python benchmarks/compute.py --passages 2000 --where local:1 local:16 --json compute.json

For each way of computing: wall and CPU seconds of the encoding, once workers are ready, the CPU of this process and
that of all that it has started (Ray's own processes among them), and a digest of the cache, which is equal for all.
Passages are of about 60 words. Only on Linux; other work on the machine changes wall time, hardly CPU time.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from airgen.compute.current import computing
from airgen.keys import rng
from airgen.retrievers import load_embedder
from airgen.retrievers.base import Component, TextKind
from airgen.retrievers.dense.embedding_cache import EmbeddingCache
from airgen.settings.compute import compute_settings

_WORDS = [f"{first}{middle}{last}" for first in "bdfgklmnprst" for middle in "aeiou" for last in ("", "n", "rd", "st")]
_TICK = os.sysconf("SC_CLK_TCK")


class Free(Component):
    """Vectors of 384 dimensions by a hash of the text."""

    name, dim, travels = "free", 384, True

    def encode(self, texts: Sequence[str], kind: TextKind) -> NDArray[np.float32]:
        digests = b"".join(hashlib.shake_128(text.encode()).digest(self.dim) for text in texts)
        return np.frombuffer(digests, np.uint8).reshape(-1, self.dim).astype(np.float32) / 4096

    def describe(self) -> Mapping[str, object]:
        return {"family": "free"}


def started_cpu() -> float:
    """CPU seconds of all living processes below this one, and of those that they have waited for."""
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


def measure(where: str, texts: Sequence[str], embedder: Any) -> dict[str, Any]:
    """One way of computing, into a fresh cache."""
    with tempfile.TemporaryDirectory() as folder, computing(compute_settings(where)) as compute:
        with EmbeddingCache(Path(folder) / "warm", embedder, "passage") as cache:
            cache.rows([f"warm {number}" for number in range(256 * 4 * compute.workers)])
        for worker in getattr(compute, "_workers", ()):
            worker.ready.result()
        wall, own, below = time.perf_counter(), time.process_time(), started_cpu()
        with EmbeddingCache(Path(folder) / "cache", embedder, "passage") as cache:
            cache.rows(texts)
        found = {
            "where": where, "passages": len(texts), "workers": compute.workers,
            "wall_s": round(time.perf_counter() - wall, 2), "driver_cpu_s": round(time.process_time() - own, 2),
            "started_cpu_s": round(started_cpu() - below, 2),
        }  # fmt: skip
        data = b"".join((Path(folder) / "cache" / name).read_bytes() for name in ("rows.f16", "keys.bin"))
    return {**found, "digest": hashlib.blake2b(data, digest_size=6).hexdigest()}


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--passages", type=int, default=2000)
    arguments.add_argument("--where", nargs="+", default=["local", "local:1", "local:2", "ray:1", "ray:2"])
    arguments.add_argument("--free", action="store_true", help="an encoder that costs nothing")
    arguments.add_argument("--json", type=Path)
    given = arguments.parse_args()
    draw = rng("benchmarks/compute.py")
    texts = [" ".join(draw.choices(_WORDS, k=60)) for _ in range(given.passages)]
    # One thread here, as a worker has: the difference is then the way, not the threads.
    embedder = Free() if given.free else load_embedder({"kind": "onnx", "threads": 1})
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
        rows.append(measure(where, texts, embedder))
        last = rows[-1]
        each = (last["driver_cpu_s"] + last["started_cpu_s"]) / len(texts) * 1e6
        print(
            f"{where:<10} wall {last['wall_s']:>8.2f} s  CPU driver {last['driver_cpu_s']:>7.2f} s, started "
            f"{last['started_cpu_s']:>7.2f} s  {each:>8.1f} us CPU a passage  {last['digest']}",
            flush=True,
        )
    if given.json:
        given.json.write_text(json.dumps(rows, indent=1), encoding="utf-8")
    if cluster is not None:
        ray.shutdown()
        cluster.shutdown()
    if len({row["digest"] for row in rows}) != 1:
        raise SystemExit("the caches differ")


if __name__ == "__main__":
    sys.modules.setdefault("compute", sys.modules["__main__"])  # workers import it by this name
    Free.__module__ = "compute"
    main()
