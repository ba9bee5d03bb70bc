"""Write the first section of docs/notes/results.md from a folder of results of `airgen evaluate`.

airgen evaluate DATASET... --systems pipelines/systems-offline.yaml --out results
python benchmarks/results.py results docs/notes/results.md
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from airgen.evaluation.result import Paths, Result, load_result
from airgen.evaluation.result_tables import overview_table
from airgen.evaluation.systems import load_systems
from airgen.safety.escaping import markdown_table, md

START, END = "<!-- results of airgen evaluate: start -->", "<!-- results of airgen evaluate: end -->"


def read(folder: Path, systems: Path) -> list[list[Result]]:
    """Read results by dataset, with systems in the order of the file, leaving out those without results."""
    names = [system.name for system in load_systems(systems)]
    found = []
    for split in sorted(path for path in folder.glob("*/*") if path.is_dir()):
        results = [result for name in names if (result := load_result(Paths.of(split, name))) is not None]
        if results:
            found.append(results)
    return found


def costs(results: Sequence[Result]) -> str:
    """Return the costs of systems on a dataset."""
    rows = []
    for result in results:
        cost = result.costs
        numbers = [cost.latency_p50_ms, cost.latency_p95_ms, cost.batch_ms, cost.index_seconds]
        size = "–" if cost.index_bytes is None else f"{cost.index_bytes / 1e6:.1f}"
        rows.append([md(result.name), *("–" if n is None else f"{n:.1f}" for n in numbers), size])
    return markdown_table(["system", "p50 ms", "p95 ms", "batched ms", "index s", "index MB"], rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("target", type=Path)
    parser.add_argument("--systems", type=Path, default=Path("pipelines/systems-offline.yaml"))
    arguments = parser.parse_args()
    sets = read(arguments.folder, arguments.systems)
    largest = max(sets, key=lambda results: results[0].about["passages"])
    sizes = ", ".join(
        f"{results[0].dataset} {results[0].queries} queries on {results[0].about['passages']:,} passages"
        for results in sets
    )
    parts = [
        START,
        "## Systems that run offline",
        f"nDCG@10 with human labels ({sizes}), from `airgen evaluate` with `pipelines/systems-offline.yaml`. The best "
        "figure is bold, and the second best is underlined. Among so many systems, the best is partly best by chance.",
        overview_table([result for results in sets for result in results]),
        f"### Costs on {md(largest[0].dataset)}",
        "Wall times on two shared cores while other work ran, which only show orders of magnitude. The time of a "
        "re-ranker or a hybrid includes its systems.",
        costs(largest),
        END,
    ]
    text = "\n\n".join(part.strip("\n") for part in parts) + "\n"
    old = arguments.target.read_text("utf-8") if arguments.target.exists() else "# Results\n\n"
    if START in old and END in old:  # other sections of the file stay
        text = old[: old.index(START)] + text.rstrip("\n") + old[old.index(END) + len(END) :]
    else:
        text = old.rstrip("\n") + "\n\n" + text
    arguments.target.write_text(text, encoding="utf-8")
    print(f"{arguments.target}: {len(sets)} datasets, {len({r.name for results in sets for r in results})} systems")


if __name__ == "__main__":
    main()
