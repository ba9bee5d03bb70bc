"""Memory and CPU time of `airgen train pretrain` on many pairs: python benchmarks/train_memory.py 1000 100000 1000000

Each size runs in its own process: two steps of BERT-tiny on synthetic pairs (a query of 8 words, a passage of 60). The
growth between two sizes is due to the data; the rest is torch and the model. Mining is also measured (`pairs`): a
stream of pairs passes the checks of `airgen train pairs` and is written.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

CHANGES = ("batch_size=32", "max_steps=2", "max_length=16", "dev_share=0.0001", "dev_passages=100", "warmup=0")


def peak() -> int:
    """Return the peak memory of this process in MB."""
    found = re.search(r"VmHWM:\s+(\d+)", Path("/proc/self/status").read_text())
    return int(found[1]) >> 10 if found else resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10


def work(what: str, folder: Path, count: int, base: str) -> None:
    """Run one measurement and print it as JSON."""
    if what == "pairs":
        from airgen.training.mining.pairs import MinedPair, PairMiner
        from airgen.training.mining.sources import write_pairs

        draw = random.Random(1)
        words = ["".join(draw.choices("abcdefghijklmnopqrstuvwxyz", k=draw.randint(3, 9))) for _ in range(20_000)]

        def pairs() -> Iterator[MinedPair]:
            for number in range(count):
                text = draw.choices(words, k=68)
                yield MinedPair(" ".join(text[:8]), " ".join(text[8:]), "comment", f"p{number}")

        miner = PairMiner()
        write_pairs(miner.mine(pairs(), dump=True), folder / "pairs", {"info": {"name": "made"}}, miner.counts)
    else:
        from airgen.training import train
        from airgen.training.recipe import TrainingRequest

        request = TrainingRequest(folder / "pairs", base, folder / "model", changes=CHANGES, quiet=True, device="cpu")
        train("pretrain", request)
    print(json.dumps({"what": what, "pairs": count, "MB": peak(), "CPU seconds": round(time.process_time(), 1)}))


def main() -> None:
    """Measure each size."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("sizes", nargs="+", type=int)
    parser.add_argument("--base", default="splade-bert-tiny")
    parser.add_argument("--work", nargs=2, metavar=("WHAT", "FOLDER"), help="used by the script itself")
    given = parser.parse_args()
    if given.work:
        work(given.work[0], Path(given.work[1]), given.sizes[0], given.base)
        return
    for size in given.sizes:
        with tempfile.TemporaryDirectory() as folder:
            for what in ("pairs", "pretrain"):
                own = [sys.executable, __file__, str(size), "--base", given.base, "--work", what, folder]
                print(
                    subprocess.run(own, check=True, stdout=subprocess.PIPE, text=True).stdout.splitlines()[-1],
                    flush=True,
                )


if __name__ == "__main__":
    main()
