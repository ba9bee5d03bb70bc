"""The funnel: the numbers of items that entered and left each stage, with reasons (paper, sections 2.3 and 2.4)."""

from collections import Counter
from collections.abc import Mapping, Sequence

from airgen.control.query_set import OWN
from airgen.dataset.card import BROUGHT_LABELS, OWN_QUERIES
from airgen.dataset.content import FunnelStep
from airgen.dataset.manifest import Manifest
from airgen.display.study import Column, Table
from airgen.generation.flow import Flow
from airgen.job.job import Job
from airgen.job.user_queries import LABELS
from airgen.steps.accepted import Accepted
from airgen.steps.lineage import Lineage
from airgen.steps.step import Plan
from airgen.steps.votes import NOT_FOUND
from airgen.storage.records import MASKED, PARTS, Decision, HardNegative, Skip, why_dropped
from airgen.storage.store import Store


def funnel(
    store: Store, flow: Flow, plan: Plan, accepted: Accepted, decisions: Sequence[Decision] | None
) -> list[FunnelStep]:
    """Return the steps in order, without `decisions` those before quality control. Samples after the last accepted
    query (the surplus of a parallel run) are not counted."""
    steps = _corpus(store, plan)
    if OWN in plan:
        last = "passages judged" if "recall" in plan else "labels of the queries drawn"
        answered = [] if decisions is None else _answered(accepted, decisions, last)
        return [*steps, *_own(store, plan, accepted), *answered]
    left: list[Lineage] = [*accepted.lineages, *(row.lineage for row in accepted.rejected)]
    for stage in flow.every:
        entered, reasons = (
            len(left),
            Counter(lineage.skips[stage.name].reason for lineage in left if stage.name in lineage.skips),
        )
        passed = sum(
            not stage.stopped(lineage) if stage.ends else bool(lineage.every(stage.writes)) for lineage in left
        )
        left = [lineage for lineage in left if not stage.stopped(lineage)]
        if stage is flow.candidates[-1]:
            judged = {lineage.sample.key for lineage in left}
            reasons.update(row.words for row in accepted.rejected if row.lineage.sample.key in judged)
            left, passed = accepted.lineages, len(accepted.lineages)
        steps.append(FunnelStep(stage.label or stage.name, entered, passed, _sorted(reasons)))
    controlled = [] if decisions is None else [*_control(accepted, decisions), *_mined(store, plan, accepted)]
    return [*steps, *controlled]


def funnel_so_far(job: Job, store: Store, accepted: Accepted) -> list[FunnelStep]:
    """Return the funnel of an unfinished job up to quality control; empty before the first sample."""
    if not (accepted.lineages or accepted.rejected):
        return []
    return funnel(store, job.flow, plan=job.fingerprints, accepted=accepted, decisions=None)


def funnel_table(steps: Sequence[FunnelStep], most: int = 4) -> Table:
    """Return the funnel as a table, with the `most` frequent reasons of each step."""

    def reasons(step: FunnelStep) -> str:
        words = [f"{count:,} {reason}" for reason, count in _sorted(step.reasons).items()]
        more = [f"{len(words) - most} other reasons"] if len(words) > most else []
        return "; ".join([*words[:most], *more])

    return Table(
        steps,
        [
            Column("stage", lambda step: step.stage),
            Column("entered", lambda step: step.entered, ","),
            Column("left", lambda step: step.left, ","),
            Column("why not", reasons, left=True),
        ],
    )


def fewer_than_asked(manifest: Manifest, target: int | None) -> list[str]:
    """Return a line if a dataset has fewer queries than its job asked for, and one if labels were left out."""
    steps = {step.stage: step for step in manifest.funnel}
    lines = []
    queries = sum(split.queries for split in manifest.statistics.splits.values())
    accepted = steps["queries"].entered if "queries" in steps else None
    if target is not None and accepted is not None and queries < target:
        why = [f"the corpus gave {accepted:,}: add documents, or raise generation.queries_per_passage"]
        why = why if accepted < target else []
        why += [f"quality control dropped {accepted - queries:,}"] if queries < accepted else []
        lines.append(f"{queries:,} of the {target:,} queries asked for ({'; '.join(why)})")
    labels = steps.get(BROUGHT_LABELS)
    if labels is not None and labels.left < labels.entered:
        why = [f"{count:,} {reason}" for reason, count in _sorted(labels.reasons).items()]
        lines.append(f"{labels.left:,} of the {labels.entered:,} labels given are used ({'; '.join(why)})")
    return lines


_CORPUS, _PIECES = "corpus", "pieces of documents left out"


def _corpus(store: Store, plan: Plan) -> list[FunnelStep]:
    """Return the step of documents, and of parts removed from the kept documents: navigation, or masked personal
    data."""
    sql = "SELECT count(*) FROM membership m JOIN passage t ON t.key = m.key WHERE m.fingerprint = ?"
    ((passages,),) = store.query(sql, [plan["corpus"]])
    drops = store.drops(plan["corpus"])
    reasons = {why_dropped(*key): count for key, count in drops.items() if key[0] not in PARTS}
    pieces = Counter[str]()
    for (cleaner, why), count in drops.items():
        if cleaner in PARTS:
            pieces[f"masked: {why}" if cleaner == MASKED else why] += count
    steps = [FunnelStep(_CORPUS, passages + sum(reasons.values()), passages, _sorted(reasons))]
    return [*steps, FunnelStep(_PIECES, pieces.total(), 0, _sorted(pieces))] if pieces else steps


_REPEATS = "repeat another query"


def _own(store: Store, plan: Plan, accepted: Accepted) -> list[FunnelStep]:
    """Return the steps of the user's own queries: the lines of the file, the drawn queries, and their labels."""
    fp, drawn = plan[OWN], len(accepted.lineages)
    skips: dict[str, Counter[str]] = {OWN: Counter(), LABELS: Counter()}
    sql = "SELECT stage, reason, count(*) FROM skip WHERE fingerprint = ? AND stage IN (?, ?) GROUP BY ALL"
    for stage, reason, count in store.query(sql, [fp, OWN, LABELS]):
        skips[stage][reason] = count
    ((queries, lines),) = store.query("SELECT count(*), sum(lines) FROM own_query WHERE fingerprint = ?", [fp])
    lines = int(lines or 0)
    total = lines + skips[OWN].total()
    if lines > queries:
        skips[OWN][_REPEATS] = lines - queries
    steps = [FunnelStep(OWN_QUERIES, total, queries, _sorted(skips[OWN]))]
    not_drawn = {"not drawn": queries - drawn} if queries > drawn else {}
    steps.append(FunnelStep("queries drawn", queries, drawn, not_drawn))
    ((labels,),) = store.query("SELECT count(*) FROM judgment WHERE fingerprint = ?", [fp])
    if labels or skips[LABELS]:
        steps.append(FunnelStep(BROUGHT_LABELS, labels + skips[LABELS].total(), labels, _sorted(skips[LABELS])))
    return steps


def _answered(accepted: Accepted, rows: Sequence[Decision], stage: str) -> list[FunnelStep]:
    """Return the steps of answered queries, and of judged passages, which is called `stage`."""
    positives = [row for row in rows if row.action == "add_positive"]
    queries, answered = len(accepted.lineages), len({row.parent for row in positives})
    judged = len({row.parent for row in rows})
    reasons = {"nothing answers them": judged - answered, "no passage was judged": queries - judged}
    others = {"not relevant": len(rows) - len(positives)} if len(rows) > len(positives) else {}
    return [
        FunnelStep("queries with an answer", queries, answered, {why: n for why, n in reasons.items() if n}),
        FunnelStep(stage, len(rows), len(positives), _sorted(others)),
    ]


def _control(accepted: Accepted, decisions: Sequence[Decision]) -> list[FunnelStep]:
    actions = Counter(row.action for row in decisions)
    negatives = sum(len(lineage.every(HardNegative)) for lineage in accepted.lineages)
    queries = len(accepted.lineages)
    kept_negatives, dropped = actions["keep_negative"], actions["drop_negative"]
    dropped_for = Counter(row.reason for row in decisions if row.action == "drop_query")
    judged = sum(count for reason, count in dropped_for.items() if reason not in NOT_FOUND.values())
    fallen = {reason: count for reason, count in dropped_for.items() if reason in NOT_FOUND.values()}
    fallen |= {"their document was judged not relevant": judged} if judged else {}
    lost = {"judged relevant": dropped} if dropped else {}
    return [
        FunnelStep("hard negatives", negatives, kept_negatives, lost),
        FunnelStep("queries", queries, actions["keep_query"], fallen),
        FunnelStep("positives", queries, actions["keep_query"] + actions["add_positive"], {}),
    ]


def _mined(store: Store, plan: Plan, accepted: Accepted) -> list[FunnelStep]:
    """Return the step of queries with all the mined negatives drawn for them, if the pipeline mines negatives."""
    if "mined_negative" not in plan:
        return []
    queries = accepted.keys
    skips = store.rows_of(Skip, plan["mined_negative"], queries)
    reasons = Counter(row.reason for row in skips)
    return [FunnelStep("queries with all mined negatives", len(queries), len(queries) - len(skips), _sorted(reasons))]


def _sorted(counts: Mapping[str, int]) -> dict[str, int]:
    return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))
