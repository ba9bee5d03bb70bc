"""Measure time and memory of comparisons as systems and queries grow.

    python benchmarks/growth.py                          # 3 minutes on two cores
    python benchmarks/growth.py --only score gate

Each size runs in a process of its own. CPU is in seconds, and memory is the peak of the process in MB, of which the
libraries take about 100. `exponent` is the growth of the CPU time since the size before: 1 is in proportion.
"""

import argparse
import math
import subprocess
import sys

from airgen.text.escaping import markdown_table

START = "import resource, sys, numpy as np; a, b = map(int, sys.argv[1:]); draw = np.random.default_rng(0); "
END = "; use = resource.getrusage(resource.RUSAGE_SELF); print(use.ru_utime + use.ru_stime, use.ru_maxrss // 1024)"
SIZES = {  # name: (what grows, code, sizes)
    "compare, systems": (
        "systems (1,000 queries)",
        "from airgen.evaluation.significance import compare; compare([str(n) for n in range(a)], draw.random((a, b)))",
        [(10, 1000), (50, 1000), (100, 1000), (200, 1000), (500, 1000)],
    ),
    "compare, queries": (
        "queries (2 systems)",
        "from airgen.evaluation.significance import compare; compare(['a', 'b'], draw.random((a, b)))",
        [(2, 1000), (2, 10_000), (2, 100_000)],
    ),
    "gate": (
        "queries",
        "from airgen.evaluation.significance import against_baseline as gate; "
        "gate('a', draw.random(b), draw.random(b), measure='x')",
        [(1, 1000), (1, 10_000), (1, 100_000)],
    ),
    "score": (
        "queries (100 hits each)",
        "from airgen.evaluation import run_from_dict, score; "
        "run = run_from_dict({f'q{n}': {f'p{m}': float(-m) for m in range(100)} for n in range(b)}); "
        "score(run, {f'q{n}': {'p3': 1.0} for n in range(b)}, 'nDCG@10 Hole@10')",
        [(1, 1000), (1, 10_000), (1, 100_000)],
    ),
    "correlate": (
        "systems",
        "from airgen.studies.rank_correlation import rank_correlation; "
        "rank_correlation(draw.random(a).tolist(), draw.random(a).tolist())",
        [(100, 1), (1000, 1), (3000, 1)],
    ),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="*", default=list(SIZES))
    args = parser.parse_args()
    rows = []
    for name in args.only:
        grows, code, sizes = SIZES[name]
        before = (0.0, 0)
        for size in sizes:
            command = [sys.executable, "-c", START + code + END, *map(str, size)]
            seconds, memory = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
            many = max(size) if name != "compare, systems" else size[0]
            growth = math.log(float(seconds) / before[0]) / math.log(many / before[1]) if before[1] else None
            rows.append(
                [name, grows, f"{many:,}", f"{float(seconds):.1f}", memory, "" if growth is None else f"{growth:.1f}"]
            )
            print(*rows[-1], sep="  ", flush=True)
            before = float(seconds), many
    print(markdown_table(["table", "what grows", "size", "CPU s", "peak MB", "exponent"], rows))


if __name__ == "__main__":
    main()
