"""Which voters together tell relevant passages from others? The AUC of their combination on the collection left out.

    python benchmarks/voters.py COLLECTION... --voters maxsim all-minilm-l6-v2-int8 bm25 --pairs 100 [--most 3]

For every set of one to `--most` of the voters, the combined judge without an LLM is fitted on all collections but
one and tried on that one, as `airgen calibrate rerankers` does. A voter is written as in `control.rerankers`: a name,
or JSON. Recall and pre-labels are kept in `--out`, so that a further voter costs only its own work.
"""

from __future__ import annotations

import argparse
import itertools
import json
from pathlib import Path
from typing import Any

from airgen.dataset.beir import BeirDataset
from airgen.errors import DatasetError
from airgen.pipeline.control.combined_judge import FEATURES
from airgen.pipeline.progress import Display
from airgen.quality.judge.calibrate import default_pipeline
from airgen.quality.judge.evidence import Selection, gather
from airgen.quality.judge.fit import leave_one_out
from airgen.store import Store
from airgen.text.display import markdown_table


def voter(text: str) -> Any:
    """A voter's name, or its settings."""
    return json.loads(text) if text.startswith("{") else text


def name_of(spec: Any) -> str:
    return spec if isinstance(spec, str) else str(spec.get("embedder") or spec.get("model") or spec["kind"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("collections", type=Path, nargs="+")
    parser.add_argument("--voters", type=voter, nargs="+", required=True)
    parser.add_argument("--recall", default="all-minilm-l6-v2-int8")
    parser.add_argument("--pairs", type=int, default=100)
    parser.add_argument("--most", type=int, default=2, help="voters in a set, at most")
    parser.add_argument("--out", type=Path, default=Path("runs/voters"))
    options = parser.parse_args()
    base = default_pipeline().control
    rows, names = [], [BeirDataset.open(one).name for one in options.collections]
    sets = [each for size in range(1, options.most + 1) for each in itertools.combinations(options.voters, size)]
    display = Display(options.out / "status.json")
    with Store.open(options.out / "work.duckdb") as store:
        for each in sets:
            recall = {"model": options.recall, "top_k": 100}
            control = type(base).model_validate({**base.model_dump(), "recall": recall, "rerankers": list(each)})
            try:
                evidence = [
                    gather(store, one, Selection(count=options.pairs), control, display, options.out / "embeddings")
                    for one in options.collections
                ]
            except DatasetError as error:
                raise SystemExit(f"{error}") from error
            found = leave_one_out(evidence, lambda *_: None, {}, FEATURES[1:])
            areas = [area.value if (area := one.auc["all"]) is not None else float("nan") for one in found]
            print(" + ".join(map(name_of, each)), *(f"{area:.3f}" for area in areas), flush=True)
            rows.append((sum(areas) / len(areas), [" + ".join(map(name_of, each)), *(f"{one:.3f}" for one in areas)]))
    rows.sort(reverse=True)
    print(markdown_table(["voters", *names, "mean"], [[*cells, f"{mean:.3f}"] for mean, cells in rows]))


if __name__ == "__main__":
    main()
