"""Break down the time of `airgen init --demo` by stage, token and processor.

    python benchmarks/demo.py [--target 8] [--runs FOLDER]

The demo runs in an empty folder (or is resumed in `--runs`). Prints its own table of stages and tokens; the processor
seconds of all its processes, which do not depend on other load; and the embedded model's seconds per input and output
token, fitted to its calls (least squares). On an idle machine, the model takes about these times for the tokens in the
table. Nothing is downloaded, so models must have been fetched.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from airgen.storage.store import Store


def main() -> None:
    """Run the demo and print what it took."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--target", type=int, default=8)
    parser.add_argument("--runs", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as empty:
        runs = options.runs or Path(empty) / "runs"
        before, began = os.times(), time.monotonic()
        words = f"init --demo --target {options.target} --runs".split()
        command = [sys.executable, "-m", "airgen", *words, str(runs)]
        subprocess.run(command, check=True)
        after, seconds = os.times(), time.monotonic() - began
        used = after.children_user + after.children_system - before.children_user - before.children_system
        print(f"\n{seconds:,.0f} s, {used:,.0f} processor seconds; {os.cpu_count()} cores")
        with Store.open(runs / "quickstart" / "work.duckdb", read_only=True) as store:
            calls = store.query(
                "SELECT prompt_tokens - cached_tokens, completion_tokens, seconds FROM answer WHERE error = ''"
            )
        tokens = np.array([row[:2] for row in calls], float)
        (read, wrote), *_ = np.linalg.lstsq(tokens, np.array([row[2] for row in calls], float), rcond=None)
        total = tokens.sum(axis=0)
        print(
            f"the model: {total[0]:,.0f} tokens read at {read * 1000:.1f} ms, {total[1]:,.0f} written at "
            f"{wrote * 1000:.1f} ms"
        )


if __name__ == "__main__":
    main()
