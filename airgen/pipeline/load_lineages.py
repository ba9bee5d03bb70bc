"""From rows back to lineages: what was made from each sample so far, in bulk."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from airgen.pipeline.multi_hop import load_partners
from airgen.pipeline.stage import Lineage, Plan, Stage
from airgen.records import Passage, Row, Sample, Skip
from airgen.store import Store


def load_lineages(store: Store, samples: Sequence[Sample], stages: Sequence[Stage], plan: Plan) -> list[Lineage]:
    """The lineages of these samples, in their order, with every row of the plan that they have.

    A multi-hop sample whose second passage has left the corpus is left out.
    """
    keys = list({sample.parent for sample in samples})
    passages = {one.key: one for one in store.rows(Passage, "t.key IN (SELECT unnest(?))", [keys])}
    partners = load_partners(store, plan, samples)
    known = [
        Lineage(passages[sample.parent], sample, partner=partners[sample.key])
        for sample in samples
        if sample.key in partners
    ]
    return with_rows(store, known, stages, plan)


def with_rows(store: Store, lineages: Sequence[Lineage], stages: Sequence[Stage], plan: Plan) -> list[Lineage]:
    """The lineages with the rows that these stages of the plan made from them."""
    rows: dict[str, dict[str, list[Row]]] = {stage.name: defaultdict(list) for stage in stages}
    for stage in stages:
        fingerprint = plan[stage.name]
        skips = store.rows(Skip, "t.stage = ? AND t.fingerprint = ?", [stage.name, fingerprint])
        kinds = (stage.writes, *stage.beside)
        for row in [*(row for kind in kinds for row in store.made(kind, fingerprint)), *skips]:
            rows[stage.name][row.parent].append(row)
    found = []
    for lineage in lineages:
        for stage in stages:
            parent = lineage.parent(stage.reads)
            if parent is not None:
                made = rows[stage.name].get(parent.key, ())
                own = [row for row in made if isinstance(row, Skip) or stage.belongs(row, lineage)]
                lineage = lineage.extended(own)
        found.append(lineage)
    return found
