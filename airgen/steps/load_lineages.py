"""Load lineages with their rows from the work database."""

from collections import defaultdict
from collections.abc import Sequence

from airgen.steps.lineage import Lineage
from airgen.steps.step import Plan, Step
from airgen.storage.records import Passage, Row, Sample, Skip
from airgen.storage.store import Store


def load_lineages(store: Store, samples: Sequence[Sample], stages: Sequence[Step], plan: Plan) -> list[Lineage]:
    """Return the lineages of these samples, in order, with all of their rows in the plan.

    A multi-hop sample whose second passage has left the corpus is left out.
    """
    seconds = {sample.second for sample in samples} - {""}
    here = {"", *(key for key, _ in (store.passage_names(plan["corpus"], seconds) if seconds else ()))}
    keys = [*{sample.parent for sample in samples} | seconds]
    passages = {row.key: row for row in store.rows(Passage, "t.key IN (SELECT unnest(?))", [keys])}
    known = [
        Lineage(passages[row.parent], row, partner=passages.get(row.second)) for row in samples if row.second in here
    ]
    return with_rows(store, known, stages, plan)


def with_rows(store: Store, lineages: Sequence[Lineage], stages: Sequence[Step], plan: Plan) -> list[Lineage]:
    """Add the rows of these stages of the plan to the lineages."""
    if not lineages or not stages:
        return list(lineages)
    skips = defaultdict[tuple[str, str], list[Row]](list)
    for skip in store.rows(Skip, "t.fingerprint IN (SELECT unnest(?))", [[plan[stage.name] for stage in stages]]):
        skips[skip.stage, skip.fingerprint].append(skip)
    loaded = list(lineages)
    for stage in stages:
        parents = [lineage.parent(stage.reads) for lineage in loaded]
        if not any(parents):
            continue
        fingerprint = plan[stage.name]
        rows = defaultdict[str, list[Row]](list)
        made = (row for kind in (stage.writes, *stage.beside) for row in store.rows_of(kind, fingerprint))
        for row in (*made, *skips[stage.name, fingerprint]):
            rows[row.parent].append(row)
        for place, parent in enumerate(parents):
            if parent is not None:
                lineage, candidates = loaded[place], rows.get(parent.key, ())
                own = [row for row in candidates if isinstance(row, Skip) or stage.belongs(row, lineage)]
                loaded[place] = lineage.extended(own)
    return loaded
