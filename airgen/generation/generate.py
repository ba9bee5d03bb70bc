"""Candidate generation: samples go through the stages in the order of a seeded permutation, until the target number of
accepted queries is reached or the corpus is exhausted.

A sample's position in the permutation is determined by its key, a hash of the passage and the seed. A larger target
uses a longer prefix of the permutation, and a larger corpus only adds samples between the existing ones. The accepted
queries are the first `target` samples in this order that pass, regardless of the order in which they were generated.
Samples are drawn in waves. If calls run concurrently, a wave has more samples than the number of missing queries.
"""

import math
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import replace

from airgen.errors import CorpusError
from airgen.generation import one_call
from airgen.generation.character import refuse_unasked
from airgen.generation.flow import Flow
from airgen.generation.sample import draw_samples, with_second_passages
from airgen.llms.base import backend_class
from airgen.llms.health import Health
from airgen.settings import Pipeline
from airgen.steps.accepted import Accepted, Rejected
from airgen.steps.ask import health_of
from airgen.steps.lineage import Lineage
from airgen.steps.load_lineages import load_lineages, with_rows
from airgen.steps.loops import is_pending, pending_of, walk_each
from airgen.steps.progress import Display
from airgen.steps.step import Plan, Problem, Tools
from airgen.steps.votes import NOT_FIRST
from airgen.storage.records import HardNegative, Judgment, Sample
from airgen.storage.store import Store
from airgen.text.near_duplicates import NearDuplicateIndex

UNUSABLE = 300  # samples after which a corpus is given up, if not one of them has a query
PRIOR = 0.7  # share of samples expected to be accepted, before any was seen


def _finished(lineages: Sequence[Lineage], flow: Flow) -> list[Lineage]:
    """Return the lineages without a pending candidate stage."""
    return [lineage for lineage in lineages if not is_pending(lineage, flow.candidates)]


def _record_end(health: Health, rejected: Rejected | None) -> None:
    if rejected is None:
        health.record("queries")
    else:
        cause = "check" if rejected.cause == "control" else rejected.cause
        health.record("queries", rejected.words, cause=cause)


def select(lineages: Sequence[Lineage], flow: Flow, pipeline: Pipeline) -> Accepted:
    """Accept finished lineages in order, rejecting queries that repeat an accepted one."""
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
    """Return why a finished lineage is not accepted, or None."""
    for stage in flow.candidates:
        if stage.stopped(lineage):
            skip = lineage.skips[stage.name]
            return Rejected(lineage, stage.name, skip.reason, skip.cause)  # type: ignore[arg-type]
    judge = pipeline.control.judge
    if all(row.level < judge.relevant_from for row in lineage.every(Judgment)[:1]):
        return Rejected(lineage, "judgment", "its document does not answer it" if judge.members else NOT_FIRST)
    return None


def judged_away(accepted: Accepted, target: int) -> list[Lineage]:
    """Return the candidates that their own document does not answer according to the judge, in permutation order.

    If the target was reached, samples after the last accepted one are left out, because how many of them were tried
    depends on the speed of the model.
    """

    def place(lineage: Lineage) -> tuple[int, str]:
        return lineage.sample.ordinal, lineage.sample.key

    rejected = [rejection for rejection in accepted.rejected if rejection.stage == "judgment"]
    judged = [rejection.lineage for rejection in rejected if rejection.lineage.every(Judgment)]
    if len(accepted.lineages) >= target:
        last = max(map(place, accepted.lineages))
        judged = [lineage for lineage in judged if place(lineage) < last]
    return sorted(judged, key=place)


def _tried(lineages: Sequence[Lineage]) -> str:
    """Return what the bar of the queries shows between two rounds: the number of samples, and the last query."""
    return ", ".join(filter(None, (f"{len(lineages)} samples tried", _last(lineages))))


def _last(lineages: Sequence[Lineage]) -> str:
    query = next((lineage.final.text for lineage in reversed(lineages) if lineage.query), "")
    return f"last: {query[:60]}" if query else ""


def _first_samples(store: Store, tools: Tools, count: int, frame: Collection[str] | None) -> list[Sample]:
    """Return the first `count` samples of the permutation."""
    settings = tools.pipeline.generation
    samples = draw_samples(
        store, tools.plan, count, settings.queries_per_passage, frame=frame, stratify=settings.stratify
    )
    return with_second_passages(store, tools.plan, samples, settings.multi_hop) if settings.multi_hop else samples


async def ask_ahead(
    store: Store, tools: Tools, flow: Flow, display: Display, frame: Collection[str] | None = None
) -> None:
    """Ask a local model about the first sample before the corpus is indexed, and show the query.

    A new job thus shows a query in seconds, and the index, which decides whether to accept it, is built afterwards.
    Only the model's answer is saved, which the steps take over, so the rows are the same as without this call. The call
    is in vain if another passage says nearly the same, so models that cost money are not asked.
    """
    pipeline = tools.pipeline
    if not (pipeline.generation.one_call and backend_class(pipeline.llm).SERIAL):
        return
    samples = _first_samples(store, tools, pipeline.target, frame)
    lineages = load_lineages(store, samples, flow.candidates, tools.plan)
    if any(lineage.query for lineage in lineages):
        return  # a resumed job, whose queries are shown already
    for lineage in lineages:
        if not isinstance(await refuse_unasked(lineage, replace(tools, apart=None)), Problem):
            with display.stage("first query", 1) as bar:
                answer = await one_call.answer_of(lineage, tools)
                bar.advance()
            if not isinstance(answer, Problem):
                display.say(f"first query, not checked yet: {answer.best.text}")
            return


async def generate(
    store: Store, tools: Tools, flow: Flow, display: Display, workers: int, frame: Collection[str] | None = None
) -> Accepted:
    """Generate everything up to the hard negatives for the first `target` accepted queries, with sources from
    `frame`."""
    pipeline, plan, target = tools.pipeline, tools.plan, tools.pipeline.target
    health = health_of(pipeline, store)
    serial = backend_class(pipeline.llm).SERIAL
    drawn = target if serial else math.ceil(target / PRIOR)
    with display.stage("queries", target) as bar:
        while True:
            samples = _first_samples(store, tools, drawn, frame)
            store.put(samples)
            lineages = load_lineages(store, samples, flow.candidates, plan)
            done, seen = _finished(lineages, flow), health_of(pipeline, store)
            accepted = select(done, flow, pipeline)
            pending = pending_of(lineages, flow.candidates, seen)
            why_not = {rejection.lineage.sample.key: rejection for rejection in accepted.rejected}
            for lineage in done:
                _record_end(seen, why_not.get(lineage.sample.key))
            display.counts["candidates"] = seen.counts
            if pending:
                bar.advance(len(accepted.lineages) - bar.done, _tried(done))
                health = seen
                health.check()

                def ended(lineage: Lineage, health: Health = health) -> None:
                    rejected = _rejection(lineage, flow, pipeline)
                    _record_end(health, rejected)
                    health.check()
                    if lineage.query:
                        display.saw_query(lineage.final.text, rejected.words if rejected else "")
                    good = rejected is None and bar.done < target
                    bar.advance(int(good), _last([lineage]) or None)

                await walk_each(
                    pending,
                    flow.candidates,
                    tools=tools,
                    store=store,
                    health=health,
                    workers=workers,
                    ended=ended,
                )
                lineages = load_lineages(store, samples, flow.candidates, plan)
                accepted = select(lineages, flow, pipeline)
            count = len(accepted.lineages)
            bar.advance(count - bar.done, _tried(lineages))
            if count >= target or len(samples) < drawn:
                break
            if len(lineages) >= UNUSABLE and not any(lineage.query for lineage in lineages):
                reasons = Counter(rejection.words for rejection in accepted.rejected)
                said = ", ".join(f"{number:,} {words}" for words, number in reasons.most_common(3))
                raise CorpusError(
                    f"no query could be written for any of the first {len(lineages):,} sampled passages ({said}): "
                    "stopped; see `airgen show`, and change the corpus, its cleaning or `generation`"
                )
            # How many samples to take next: by the share accepted so far, or no more than are missing.
            share = 1.0 if serial else max(count / len(samples), 0.05)
            drawn += max(1, math.ceil((target - count) / share))
    spent = len(accepted.lineages) < target
    with display.stage("hard negatives", count) as bar:
        await walk_each(
            with_rows(store, accepted.lineages, flow.accepted, plan),
            flow.accepted,
            tools=tools,
            store=store,
            health=health,
            workers=workers,
            ended=lambda lineage: bar.advance(),
        )
    if pipeline.generation.negatives_of == "all":
        await _negatives_of_rejected(
            store, tools, flow, display=display, workers=workers, accepted=accepted, health=health
        )
    return replace(accepted, lineages=with_rows(store, accepted.lineages, flow.accepted, plan), spent=spent)


async def _negatives_of_rejected(
    store: Store, tools: Tools, flow: Flow, display: Display, workers: int, accepted: Accepted, health: Health
) -> None:
    """Generate hard negatives for the candidates that the judge rejected, which are part of the paper's dataset without
    quality control (4.1). They do not change the dataset with quality control.
    """
    stages = [stage for stage in flow.accepted if stage.writes is HardNegative]
    rejected = judged_away(accepted, tools.pipeline.target)
    with display.stage("hard negatives of rejected queries", len(rejected)) as bar:
        await walk_each(
            with_rows(store, rejected, stages, tools.plan),
            stages,
            tools=tools,
            store=store,
            health=health,
            workers=workers,
            ended=lambda lineage: bar.advance(),
        )


def accepted_so_far(
    store: Store, flow: Flow, plan: Plan, pipeline: Pipeline, frame: Collection[str] | None = None
) -> Accepted:
    """Return the selection from the finished samples on disk, without samples outside `frame`."""
    every = store.rows_of(Sample, plan["sample"])
    if not every:
        return Accepted([], [], 0, False)
    members = dict(store.passage_names(plan["corpus"], {sample.parent for sample in every}))
    samples = [
        sample for sample in every if sample.parent in members and (frame is None or members[sample.parent] in frame)
    ]
    lineages = load_lineages(store, samples, flow.every, plan)
    return select(_finished(lineages, flow), flow, pipeline)
