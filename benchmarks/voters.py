"""Which voters together tell relevant passages from others? The AUC of their combination on the collection left out.

    python benchmarks/voters.py COLLECTION... --voters maxsim all-minilm-l6-v2-int8 bm25 --pairs 100 [--most 3]

For every set of one to `--most` of the voters, the combined judge without an LLM is fitted on all collections but
one and tried on that one, as `airgen calibrate rerankers` does. A voter is written as in `control.rerankers`: a name,
or JSON. `--pools` are further retrievers of the recall, whose ranks count in every set; "the recall alone" is a set
without voters. Recall, pre-labels and encodings are kept in `--out`, so that a further voter costs only its own work.
`--fit-on` fits on these collections alone, and never on the one that is tried. `--languages` takes each collection's
language from the end of its name (`xquad-de`).
"""

from __future__ import annotations

import argparse
import itertools
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from airgen.dataset.beir import BeirDataset
from airgen.errors import DatasetError
from airgen.pipeline.control.combined_judge import BY_RERANKERS
from airgen.pipeline.progress import Display
from airgen.quality.judge.agreement_figures import Interval
from airgen.quality.judge.assess import Assessment
from airgen.quality.judge.calibrate import default_pipeline
from airgen.quality.judge.evidence import Evidence, Selection, gather
from airgen.quality.judge.fit import applied, fit_combination
from airgen.retrievers.shared_encodings import shared_encodings
from airgen.store import Store
from airgen.text.display import markdown_table

LABEL_FROM = {"medquad-liveqa-open": 2.0}  # 1 is "related, but no answer"
IGNORED = {"cranfield": (0.0,)}  # marks each query's source paper


def voter(text: str) -> Any:
    """A voter's name, or its settings."""
    return json.loads(text) if text.startswith("{") else text


def name_of(spec: Any) -> str:
    return spec if isinstance(spec, str) else str(spec.get("embedder") or spec.get("model") or spec["kind"])


def only(one: Evidence, places: Sequence[int]) -> Evidence:
    """The same pairs with some of the voters."""
    prelabels = {key: [rows[place] for place in places] for key, rows in one.prelabels.items()}
    return replace(one, prelabels=prelabels)


def tried(every: Sequence[Evidence], fit_on: Sequence[str] | None) -> list[Assessment]:
    """Each collection by the combination that was fitted on others."""
    found = []
    for one in every:
        others = [other for other in every if other is not one and other.name in (fit_on or [other.name])]
        found.append(applied(fit_combination(others, lambda *_: None, {}, BY_RERANKERS), one, lambda *_: None))
    return found


def shown(area: Interval | None) -> str:
    return "-" if area is None else f"{area.value:.2f} ({area.low:.2f}-{area.high:.2f})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("collections", type=Path, nargs="+")
    parser.add_argument("--voters", type=voter, nargs="+", required=True)
    parser.add_argument("--recall", default="all-minilm-l6-v2-int8")
    parser.add_argument("--pools", type=voter, nargs="*", default=[])
    parser.add_argument("--top", type=int, default=100, help="passages that each retriever of the recall finds")
    parser.add_argument("--pairs", type=int, default=100)
    parser.add_argument("--most", type=int, default=2, help="voters in a set, at most")
    parser.add_argument("--fit-on", nargs="+")
    parser.add_argument("--languages", action="store_true")
    parser.add_argument("--out", type=Path, default=Path("runs/voters"))
    options = parser.parse_args()
    base = default_pipeline().control
    recall = {"model": options.recall, "top_k": options.top}
    values = {**base.model_dump(), "recall": recall, "pools": options.pools, "rerankers": options.voters}
    control = type(base).model_validate(values)
    display = Display(options.out / "status.json")
    names = [BeirDataset.open(one).name for one in options.collections]
    evidence = []
    with Store.open(options.out / "work.duckdb") as store, shared_encodings(options.out / "embeddings"):
        for name, folder in zip(names, options.collections, strict=True):
            chosen = Selection(
                count=options.pairs, label_from=LABEL_FROM.get(name, 1), ignore=IGNORED.get(name, ()),
                language=name.rpartition("-")[2] if options.languages else "en",
            )  # fmt: skip
            try:
                evidence.append(gather(store, folder, chosen, control, display, options.out / "embeddings"))
            except DatasetError as error:
                raise SystemExit(f"{error}") from error
    rows = []
    for size in range(options.most + 1):
        for places in itertools.combinations(range(len(options.voters)), size):
            found = tried([only(one, places) for one in evidence], options.fit_on)
            areas = [one.auc["all"] for one in found]
            mean = sum(area.value for area in areas if area is not None) / len(areas)
            label = " + ".join(name_of(options.voters[place]) for place in places) or "the recall alone"
            rows.append((mean, [label, *map(shown, areas), f"{mean:.3f}"]))
    rows.sort(key=lambda row: -row[0])
    print(markdown_table(["voters", *names, "mean"], [cells for _, cells in rows]))


if __name__ == "__main__":
    main()
