"""Candidate generation: samples in the order of a seeded permutation go through the stages, until the target of
accepted queries is reached or the corpus is spent.

A sample's place in the permutation is its own key, a hash of passage and seed. A larger target takes a longer prefix
of it; a larger corpus only adds places between the earlier ones. The accepted queries are the first `target` of that
order that pass, in whatever order they were made. Samples are drawn in waves, of more samples than queries are missing
where calls run beside each other.

Multi-hop queries (not in the paper): a share of the samples has a second passage of the same document, one of the
`NEAR` around the first. The prompts show both, the query must need both, and both are its positives.
"""

import heapq
import math
from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from airgen.errors import UsageError
from airgen.keys import fingerprint, rng, row_key
from airgen.llms.base import backend_class
from airgen.llms.health import Health
from airgen.pipeline.ask import ask_each, health_of
from airgen.pipeline.control.votes import NOT_FIRST
from airgen.pipeline.progress import Display
from airgen.pipeline.stage import Cause, Lineage, Plan, Stage, Tools
from airgen.pipeline.stages import Flow
from airgen.records import Judgment, Passage, Row, Sample, Skip
from airgen.settings import Pipeline
from airgen.store import Store
from airgen.text.near_duplicates import NearDuplicateIndex

NEAR = 6
"""How many passages of the document the second one is drawn from: those that stand nearest to the first."""

PARTNERS = "set `chunk` in the corpus, or use task: long-doc"
"""How documents get a second passage."""

_NEAR = """
WITH ordered AS (
    SELECT t.document, t.key, row_number() OVER (PARTITION BY t.document ORDER BY t.start, t.key) AS place
    FROM membership m JOIN passage t ON t.key = m.key WHERE m.fingerprint = $1 AND t.document <> ''
    AND t.document IN (SELECT p.document FROM passage p WHERE p.key IN (SELECT unnest($2)))
)
SELECT one.key, other.key FROM ordered one JOIN ordered other USING (document)
WHERE one.key IN (SELECT unnest($2)) AND other.key <> one.key
QUALIFY row_number() OVER (PARTITION BY one.key ORDER BY abs(other.place - one.place), other.place) <= $3
"""


def sample_fingerprint(pipeline: Pipeline, seed: int | str) -> str:
    """A hash of what samples depend on besides the corpus."""
    return fingerprint(stage="sample", version=1, seed=seed, multi_hop=[pipeline.generation.multi_hop, NEAR])


def with_second_passages(store: Store, plan: Plan, samples: Sequence[Sample], share: float) -> list[Sample]:
    """The samples; a new one has a second passage with the chance `share`. Raises UsageError if no document has one."""
    known = {row.key: row for row in store.made(Sample, plan["sample"], [sample.parent for sample in samples])}
    wanted = [one for one in samples if one.key not in known and rng(one.key, "multi-hop").random() < share]
    near = defaultdict[str, list[str]](list)
    keys = [sample.parent for sample in wanted]
    for key, other in store.query(_NEAR, [plan["corpus"], keys, NEAR]):
        near[key].append(other)
    chosen = {
        one.key: replace(one, second=min(others, key=lambda key: row_key("partner", one.key, key)))
        for one in wanted
        if (others := near[one.parent])
    }
    if len(wanted) >= 5 and not chosen and not known:
        raise UsageError(f"generation.multi_hop: no document that was drawn has a second passage: {PARTNERS}")
    return [known.get(sample.key) or chosen.get(sample.key) or sample for sample in samples]


def load_lineages(store: Store, samples: Sequence[Sample], stages: Sequence[Stage], plan: Plan) -> list[Lineage]:
    """The lineages of these samples, in their order, with every row of the plan that they have.

    A multi-hop sample whose second passage has left the corpus is left out.
    """
    seconds = {sample.second for sample in samples} - {""}
    here = {"", *(key for key, _ in (store.passage_names(plan["corpus"], seconds) if seconds else ()))}
    keys = [*{sample.parent for sample in samples} | seconds]
    passages = {one.key: one for one in store.rows(Passage, "t.key IN (SELECT unnest(?))", [keys])}
    known = [
        Lineage(passages[one.parent], one, partner=passages.get(one.second)) for one in samples if one.second in here
    ]
    return with_rows(store, known, stages, plan)


def with_rows(store: Store, lineages: Sequence[Lineage], stages: Sequence[Stage], plan: Plan) -> list[Lineage]:
    """The lineages with the rows that these stages of the plan made from them."""
    if not lineages or not stages:
        return list(lineages)
    skips = defaultdict[tuple[str, str], list[Row]](list)
    for skip in store.rows(Skip, "t.fingerprint IN (SELECT unnest(?))", [[plan[one.name] for one in stages]]):
        skips[skip.stage, skip.fingerprint].append(skip)
    found = list(lineages)
    for stage in stages:
        parents = [lineage.parent(stage.reads) for lineage in found]
        if not any(parents):
            continue
        fingerprint = plan[stage.name]
        rows = defaultdict[str, list[Row]](list)
        made = (row for kind in (stage.writes, *stage.beside) for row in store.made(kind, fingerprint))
        for row in (*made, *skips[stage.name, fingerprint]):
            rows[row.parent].append(row)
        for place, parent in enumerate(parents):
            if parent is not None:
                lineage, of = found[place], rows.get(parent.key, ())
                own = [row for row in of if isinstance(row, Skip) or stage.belongs(row, lineage)]
                found[place] = lineage.extended(own)
    return found


PRIOR = 0.7  # share of samples expected to be accepted, before any was seen


@dataclass(frozen=True)
class Rejected:
    """A lineage that is done and not accepted: the stage that ended it (or `duplicate`), why, and the kind of cause."""

    lineage: Lineage
    stage: str
    reason: str
    cause: Cause = "check"

    @property
    def words(self) -> str:
        """Stage and reason as one line."""
        return f"{self.stage}: {self.reason}"


@dataclass(frozen=True)
class Accepted:
    """The lineages of the dataset, in the order of the permutation. surplus: how many more were accepted, beyond the
    target. spent: no document is left."""

    lineages: list[Lineage]
    rejected: list[Rejected]
    surplus: int
    spent: bool

    @property
    def keys(self) -> list[str]:
        """The keys of the final queries."""
        return [lineage.final.key for lineage in self.lineages]


async def walk(lineage: Lineage, stages: Sequence[Stage], tools: Tools, store: Store, health: Health) -> Lineage:
    """Take one lineage through the stages that it has not been through; each stage's rows are on the disk first."""
    for stage in stages:
        if not stage.done(lineage):
            rows = await stage.run(lineage, tools)
            await store.commit(rows)
            lineage = lineage.extended(rows)
            _saw_stage(health, lineage, stage)
            health.check()
        if stage.stopped(lineage):
            break
    return lineage


def finished(lineage: Lineage, flow: Flow) -> bool:
    """Whether no candidate stage is left to do."""
    ended = any(stage.stopped(lineage) for stage in flow.candidates)
    return ended or all(stage.done(lineage) for stage in flow.candidates)


def _health(pipeline: Pipeline, store: Store, flow: Flow, lineages: Sequence[Lineage], done: Accepted) -> Health:
    """A health that has seen what is on the disk: a run that it stopped does not spend more when it starts again."""
    health = health_of(pipeline, store)
    rejected = {one.lineage.sample.key: one for one in done.rejected}
    for lineage in lineages:
        for stage in flow.candidates:
            if stage.done(lineage):
                _saw_stage(health, lineage, stage)
        if finished(lineage, flow):
            _saw_end(health, rejected.get(lineage.sample.key))
    return health


def _saw_stage(health: Health, lineage: Lineage, stage: Stage) -> None:
    """The outcome of a stage that a lineage has been through."""
    if skip := lineage.skips.get(stage.name):
        health.saw(stage.name, skip.reason, skip.detail, skip.cause)
    else:
        health.saw(stage.name)


def _saw_end(health: Health, rejected: Rejected | None) -> None:
    if rejected is None:
        health.saw("queries")
    else:
        cause = rejected.cause if rejected.cause in ("llm", "malformed") else "check"
        health.saw("queries", rejected.words, cause=cause)


def draw_samples(
    store: Store, plan: Plan, count: int, per_passage: int, frame: Collection[str] | None = None
) -> list[Sample]:
    """The first `count` samples of the permutation over the corpus, or over the documents of `frame`, by id; fewer
    where it is spent."""
    found: list[Sample] = []
    for turn in range(per_passage):
        left = count - len(found)
        if left <= 0:
            break
        names = store.passage_names(plan["corpus"])
        keys = (key for key, id_ in names if frame is None or id_ in frame)
        drawn = ((row_key("sample", key, plan["sample"], turn), key) for key in keys)
        found += [Sample(key, parent, plan["sample"], turn) for key, parent in heapq.nsmallest(left, drawn)]
    return found


def select(lineages: Sequence[Lineage], flow: Flow, pipeline: Pipeline) -> Accepted:
    """Accept finished lineages in order; a query that repeats an accepted one is rejected."""
    accepted: list[Lineage] = []
    rejected: list[Rejected] = []
    seen = NearDuplicateIndex(pipeline.query_language)
    surplus = 0
    for lineage in lineages:
        rejection = _rejection(lineage, flow, pipeline)
        if rejection is None and seen.find(lineage.final.text) is not None:
            rejection = Rejected(lineage, "duplicate", "it repeats an accepted query")
        if rejection:
            rejected.append(rejection)
        elif len(accepted) < pipeline.target:
            seen.add(lineage.final.text)
            accepted.append(lineage)
        else:
            surplus += 1
    return Accepted(accepted, rejected, surplus, False)


def _rejection(lineage: Lineage, flow: Flow, pipeline: Pipeline) -> Rejected | None:
    """Why a finished lineage is not accepted, or None."""
    for stage in flow.candidates:
        if stage.stopped(lineage):
            skip = lineage.skips[stage.name]
            return Rejected(lineage, stage.name, skip.reason, skip.cause)  # type: ignore[arg-type]
    judge = pipeline.control.judge
    if all(row.level < judge.relevant_from for row in lineage.every(Judgment)[:1]):
        return Rejected(lineage, "judgment", "its document does not answer it" if judge.members else NOT_FIRST)
    return None


def judged_away(accepted: Accepted, target: int) -> list[Lineage]:
    """The candidates whose own document was judged not to answer them, in the order of the permutation.

    Where the target was reached, samples behind the last accepted one are left out: how many of them were tried depends
    on the speed of the model.
    """

    def place(lineage: Lineage) -> tuple[int, str]:
        return lineage.sample.ordinal, lineage.sample.key

    judged = [one.lineage for one in accepted.rejected if one.stage == "judgment" and one.lineage.every(Judgment)]
    if len(accepted.lineages) >= target:
        last = max(map(place, accepted.lineages))
        judged = [one for one in judged if place(one) < last]
    return sorted(judged, key=place)


async def generate(
    store: Store, tools: Tools, flow: Flow, display: Display, workers: int, frame: Collection[str] | None = None
) -> Accepted:
    """Everything up to the hard negatives, for the first `target` accepted queries; sources come from `frame`."""
    pipeline, plan, target = tools.pipeline, tools.plan, tools.pipeline.target
    health = health_of(pipeline, store)
    serial = backend_class(pipeline.llm).SERIAL
    drawn = target if serial else math.ceil(target / PRIOR)
    with display.stage("queries", target) as bar:
        while True:
            samples = draw_samples(store, plan, drawn, pipeline.generation.queries_per_passage, frame)
            if hops := pipeline.generation.multi_hop:
                samples = with_second_passages(store, plan, samples, hops)
            store.put(samples)
            lineages = load_lineages(store, samples, flow.candidates, plan)
            pending = [lineage for lineage in lineages if not finished(lineage, flow)]
            accepted = select([one for one in lineages if finished(one, flow)], flow, pipeline)
            seen = _health(pipeline, store, flow, lineages, accepted)
            display.counts["candidates"] = seen.counts
            if pending:
                bar.advance(len(accepted.lineages) - bar.done, f"{len(lineages) - len(pending)} samples tried")
                health = seen
                health.check()

                async def one(lineage: Lineage, health: Health = health) -> None:
                    end = await walk(lineage, flow.candidates, tools, store, health)
                    rejected = _rejection(end, flow, pipeline)
                    _saw_end(health, rejected)
                    health.check()
                    if end.query:
                        display.saw_query(end.final.text, rejected.words if rejected else "")
                    good = rejected is None and bar.done < target
                    bar.advance(int(good), f"last: {end.final.text[:60]}" if end.query else None)

                await ask_each(pending, one, workers)
                lineages = load_lineages(store, samples, flow.candidates, plan)
                accepted = select(lineages, flow, pipeline)
            found = len(accepted.lineages)
            bar.advance(found - bar.done, f"{len(lineages)} samples tried")
            if found >= target or len(samples) < drawn:
                break
            # How long a prefix to take next: by the share accepted so far, or no more than is missing.
            share = 1.0 if serial else max(found / len(samples), 0.05)
            drawn += max(1, math.ceil((target - found) / share))
    spent = len(accepted.lineages) < target
    with display.stage("hard negatives", found) as bar:

        async def complete(lineage: Lineage) -> None:
            await walk(lineage, flow.accepted, tools, store, health)
            bar.advance()

        await ask_each(with_rows(store, accepted.lineages, flow.accepted, plan), complete, workers)
    return replace(accepted, lineages=with_rows(store, accepted.lineages, flow.accepted, plan), spent=spent)


def accepted_so_far(
    store: Store, flow: Flow, plan: Plan, pipeline: Pipeline, frame: Collection[str] | None = None
) -> Accepted:
    """The selection over what is finished on the disk; unfinished samples are left out, and those outside `frame`."""
    every = store.made(Sample, plan["sample"])
    if not every:
        return Accepted([], [], 0, False)
    members = dict(store.passage_names(plan["corpus"], {sample.parent for sample in every}))
    samples = [
        sample for sample in every if sample.parent in members and (frame is None or members[sample.parent] in frame)
    ]
    lineages = load_lineages(store, samples, flow.every, plan)
    return select([lineage for lineage in lineages if finished(lineage, flow)], flow, pipeline)
