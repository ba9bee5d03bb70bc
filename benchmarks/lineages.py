"""Measure the cost of a job's bookkeeping for many queries: loading lineages, near duplicates and the funnel.

python benchmarks/lineages.py --queries 10000

`generate` reloads all lineages after each wave of samples, of which a job has only a few. This takes seconds, whereas
the calls of a wave take minutes to hours.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from itertools import accumulate
from pathlib import Path
from typing import Any

from airgen.components.keys import rng, row_key
from airgen.generation.flow import Flow
from airgen.generation.generate import select
from airgen.generation.sample import draw_samples
from airgen.job.funnel import funnel
from airgen.settings import Pipeline
from airgen.steps.load_lineages import load_lineages
from airgen.storage.records import Character, HardNegative, Judgment, Passage, Query, Rewrite, Sample, Scenario
from airgen.storage.store import Store

STAGES = ("sample", "character", "scenario", "query", "rewrite", "judgment", "hard_negative")
PLAN = {"corpus": "c", **{stage: stage for stage in STAGES}}
_SYLLABLES = [f"{first}{last}" for first in "bdfgklmnprst" for last in "aeiou"]
# As in a language: a few short words make up most of a text (Zipf), and most words are long and rare.
WORDS = [
    *_SYLLABLES,
    *(a + b for a in _SYLLABLES for b in _SYLLABLES),
    *(a + b + "n" for a in _SYLLABLES for b in _SYLLABLES),
]
WEIGHTS = list(accumulate(1 / rank for rank in range(1, len(WORDS) + 1)))


def text(count: int, *key: object) -> str:
    """Return `count` words, drawn by the key."""
    return " ".join(rng(*key).choices(WORDS, cum_weights=WEIGHTS, k=count))


def fill(store: Store, queries: int, passages: int) -> None:
    """Store a corpus of `passages`, and all rows of the first `queries` samples."""
    corpus = [Passage(f"p{n}", f"id{n}", n, text(120, "p", n), f"Title {n}", start=0) for n in range(passages)]
    store.put_members("c", corpus, 0)
    rows: list[Any] = []
    for sample in draw_samples(store, PLAN, queries, 1):
        rows.append(sample)

        def key(stage: str, parent: str, ordinal: int = 0) -> tuple[str, str, str, int]:
            return row_key(stage, parent, stage, ordinal), parent, stage, ordinal

        rows.append(character := Character(*key("character", sample.key), "a reader", ["a reader", "b", "c"]))
        rows.append(scenario := Scenario(*key("scenario", character.key), text(12, sample.key, "s"), ["x", "y", "z"]))
        rows.append(
            query := Query(*key("query", scenario.key), text(9, sample.key, "q"), "lt10", "question", "overall")
        )
        rounds = [Rewrite(*key("rewrite", query.key, turn), text(9, sample.key, turn), "casual") for turn in (1, 2)]
        final = rounds[-1].key
        judged = Judgment(row_key("judgment", final, "judgment"), final, "judgment", 0, f"id{sample.parent[1:]}", 3)
        negatives = [
            HardNegative(*key("hard_negative", final, place), f"neg-{final[:8]}{place}", text(100, final, place))
            for place in range(1, 6)
        ]
        rows += [*rounds, judged, *negatives]
        if len(rows) > 20_000:
            store.put(rows)
            rows = []
    store.put(rows)


def timed(name: str, work: Callable[[], Any]) -> Any:
    """Print the duration and the processor time of a piece of work; the latter hardly depends on other load."""
    began, busy = time.perf_counter(), time.process_time()
    found = work()
    spent = time.perf_counter() - began
    print(f"{name:<40} {spent:8.2f} s  {time.process_time() - busy:8.2f} s of processor", flush=True)
    return found


def main() -> None:
    """Fill a database, and time a wave."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--queries", type=int, default=10_000)
    parser.add_argument("--passages", type=int, default=50_000)
    arguments = parser.parse_args()
    settings = {"name": "lineages", "task": "qa", "corpus": "c", "target": arguments.queries}
    pipeline, flow = Pipeline.model_validate({**settings, "llm": {"backend": "scripted"}}), Flow()
    with tempfile.TemporaryDirectory() as folder, Store.open(Path(folder) / "work.duckdb") as store:
        fill(store, arguments.queries, arguments.passages)
        samples: list[Sample] = timed(
            "draw the permutation's prefix", lambda: draw_samples(store, PLAN, arguments.queries, 1)
        )
        lineages = timed("rows to lineages (after each wave)", lambda: load_lineages(store, samples, flow.every, PLAN))
        assert sum(len(one.hard_negatives) for one in lineages) == 5 * arguments.queries
        accepted = timed("select, near duplicates among them", lambda: select(lineages, flow, pipeline))
        timed("the funnel", lambda: funnel(store, flow, PLAN, accepted, []))
        print(f"{len(accepted.lineages):,} accepted, {len(accepted.rejected):,} near duplicates")


if __name__ == "__main__":
    main()
