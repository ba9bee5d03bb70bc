"""Write the first section of docs/notes/results.md from a folder of results of `airgen evaluate`.

airgen evaluate DATASET... --systems pipelines/systems-offline.yaml --out results
python benchmarks/results.py results docs/notes/results.md
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from airgen.evaluation.result import Paths, Result, load_result
from airgen.evaluation.systems import load_systems
from airgen.evaluation.tables import compare_results, overview_table, rank_text
from airgen.text.display import markdown_table, md

START, END = "<!-- results of airgen evaluate: start -->", "<!-- results of airgen evaluate: end -->"


def read(folder: Path, systems: Path) -> list[list[Result]]:
    """Results by dataset, systems in the order of the file; those without results are left out."""
    names = [system.name for system in load_systems(systems)]
    found = []
    for split in sorted(path for path in folder.glob("*/*") if path.is_dir()):
        results = [result for name in names if (result := load_result(Paths.of(split, name))) is not None]
        if results:
            found.append(results)
    return found


def intervals(sets: Sequence[Sequence[Result]]) -> str:
    """The headline score of each system on each dataset with its 95 % interval and that of its rank."""
    ranks = [rank_text(compare_results(results)) for results in sets]
    names = list(dict.fromkeys(result.name for results in sets for result in results))
    rows = []
    for name in names:
        cells = [md(name)]
        for results, of_set in zip(sets, ranks, strict=True):
            result = next((each for each in results if each.name == name), None)
            if result is None:
                cells.append("–")
                continue
            low, high = result.intervals[result.headline]
            cells.append(f"{result.score:.3f} ({low:.3f}–{high:.3f}), {of_set[name]}")
        rows.append(cells)
    return markdown_table(["system", *(md(results[0].dataset) for results in sets)], rows)


def costs(results: Sequence[Result]) -> str:
    """The costs of systems on one dataset."""
    rows = []
    for result in results:
        cost = result.costs
        numbers = [cost.latency_p50_ms, cost.latency_p95_ms, cost.batch_ms, cost.index_seconds]
        size = "–" if cost.index_bytes is None else f"{cost.index_bytes / 1e6:.1f}"
        rows.append([md(result.name), *("–" if n is None else f"{n:.1f}" for n in numbers), size])
    return markdown_table(["system", "p50 ms", "p95 ms", "batched ms", "index s", "index MB"], rows)


def biases(results: Sequence[Result]) -> str:
    """Unjudged hits, length and word overlap of the top 10 on one dataset."""
    rows = [
        [
            md(result.name),
            f"{result.means['Hole@10']:.3f}",
            f"{result.biases['top_characters']:.0f}",
            f"{result.biases['top_overlap']:.2f}",
            f"{result.negatives_above['share']:.2f}" if result.negatives_above["queries"] else "–",
        ]
        for result in results
    ]
    first = results[0].biases
    note = (
        f"Relevant passages: median {first['relevant_characters']:.0f} characters, word overlap with the query "
        f"{first['relevant_overlap']:.2f}; the corpus: {first['corpus_characters']:.0f} characters.\n"
    )
    header = ["system", "Hole@10", "median characters of the top 10", "word overlap of the top 10"]
    return markdown_table([*header, "queries with a judged negative above the best positive"], rows) + "\n" + note


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
    graded = max(sets, key=lambda results: results[0].negatives_above["queries"])
    parts = [
        START,
        "## Systems that run offline",
        f"nDCG@10 on collections with human labels ({sizes}). Made with `airgen evaluate` and "
        "`pipelines/systems-offline.yaml`; the best is bold, the second is underlined. All collections use the "
        "same settings. With so many systems the best one is in part best by chance; the intervals of ranks below say "
        "what is known.",
        overview_table([result for results in sets for result in results]),
        "With 95 % bootstrap intervals of the score, and the 95 % interval of the rank:",
        intervals(sets),
        f"### Costs on {md(largest[0].dataset)}",
        "Wall time on two shared cores while other work ran, so only orders of magnitude are meaningful. The times of "
        "a re-ranker or a hybrid include the systems that it uses.",
        costs(largest),
        f"### Bias on {md(graded[0].dataset)}",
        biases(graded),
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
