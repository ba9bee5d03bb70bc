"""Candidate generation: samples in the order of a seeded permutation, each walked through the stages, until the
target of accepted queries is reached or the corpus is spent.

A sample's place in the permutation is its own key, a hash of passage and seed: a larger target takes a longer
prefix, and a larger corpus only adds places between those there were. The accepted queries are the first `target`
of that order that pass, whatever order they were made in.
"""

from __future__ import annotations

import asyncio
import heapq
import math
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass
from typing import TypeVar

from airgen.keys import row_key
from airgen.pipeline.load_lineages import load_lineages
from airgen.pipeline.progress import Display
from airgen.pipeline.stage import Lineage, Stage, Tools
from airgen.pipeline.stages import CANDIDATES, HARD_NEGATIVE
from airgen.records import Row, Sample
from airgen.settings import Pipeline
from airgen.store import Store
from airgen.text.near_duplicates import NearDuplicates

__all__ = ["Accepted", "accepted_so_far", "drive", "generate"]

T = TypeVar("T")
PRIOR = 0.7  # share of samples expected to be accepted, before any was seen


@dataclass(frozen=True)
class Accepted:
    """The lineages that the dataset is made of, in the order of the permutation, and whether the corpus is spent.

    `rejected` are (lineage, reason) for samples that are done and not accepted. Surplus lineages, accepted but
    beyond the target, are in neither.
    """

    lineages: list[Lineage]
    rejected: list[tuple[Lineage, str]]
    surplus: int
    spent: bool


async def drive(items: Sequence[T], work: Callable[[T], Awaitable[None]], workers: int) -> None:
    """Run `work` over the items in their order, `workers` at a time; the first error stops the rest and is raised."""
    waiting = iter(items)

    async def worker() -> None:
        for item in waiting:
            await work(item)

    try:
        async with asyncio.TaskGroup() as group:
            for _ in range(min(workers, len(items))):
                group.create_task(worker())
    except BaseExceptionGroup as errors:
        first: BaseException = errors
        while isinstance(first, BaseExceptionGroup):  # the rest are the same, told to other workers
            first = first.exceptions[0]
        raise first from None


async def walk(lineage: Lineage, stages: Sequence[Stage], tools: Tools, store: Store) -> Lineage:
    """Take one lineage through the stages that it has not been through; each stage's rows are on the disk first."""
    for stage in stages:
        if stage.name not in lineage.skips and not lineage.has(stage.writes):
            rows: list[Row] = await stage.work(lineage, tools)
            await store.commit(rows)
            lineage = lineage.extended(rows)
        if stage.ends and stage.name in lineage.skips:
            break
    return lineage


def finished(lineage: Lineage) -> bool:
    """True where no candidate stage is left to do."""
    return lineage.judgment is not None or any(stage.ends and stage.name in lineage.skips for stage in CANDIDATES)


def draw_samples(
    store: Store, fingerprint: str, count: int, per_passage: int, frame: Collection[str] | None = None
) -> list[Sample]:
    """The first `count` samples of the permutation over the current corpus; fewer where the corpus is spent.

    `frame` limits it to some documents, by id; the rest of the permutation stays as it is.
    """
    passages = store.query("SELECT key, id FROM current_passage")
    keys = [key for key, id_ in passages if frame is None or id_ in frame]
    found: list[Sample] = []
    for turn in range(per_passage):
        left = count - len(found)
        if left <= 0:
            break
        drawn = ((row_key("sample", key, fingerprint, turn), key) for key in keys)
        found += [Sample(key, parent, fingerprint, turn) for key, parent in heapq.nsmallest(left, drawn)]
    return found


def select(lineages: Sequence[Lineage], target: int, relevant_from: int, language: str) -> Accepted:
    """Accept finished lineages in order; a query that repeats an accepted one is rejected."""
    accepted: list[Lineage] = []
    rejected: list[tuple[Lineage, str]] = []
    seen = NearDuplicates(language)
    surplus = 0
    for lineage in lineages:
        reason = rejection(lineage, relevant_from)
        if not reason and seen.find(lineage.final.text) is not None:
            reason = "duplicate query"
        if reason:
            rejected.append((lineage, reason))
        elif len(accepted) < target:
            seen.add(lineage.final.text)
            accepted.append(lineage)
        else:
            surplus += 1
    return Accepted(accepted, rejected, surplus, False)


def rejection(lineage: Lineage, relevant_from: int) -> str:
    """Why a finished lineage is not accepted, or nothing."""
    for stage in CANDIDATES:
        if stage.ends and stage.name in lineage.skips:
            return f"{stage.name}: {lineage.skips[stage.name].reason}"
    if lineage.judgment is None:
        return "unfinished"
    if lineage.judgment.level < relevant_from:
        return "judgment: its document does not answer it"
    return ""


async def generate(
    store: Store, tools: Tools, display: Display, workers: int, frame: Collection[str] | None = None
) -> Accepted:
    """Everything up to the hard negatives, for the first `target` accepted queries; sources come from `frame`."""
    pipeline = tools.pipeline
    target, relevant_from = pipeline.target, pipeline.control.judge.relevant_from
    drawn = math.ceil(target / PRIOR)
    with display.stage("queries", target) as bar:
        while True:
            turns = pipeline.generation.queries_per_passage
            samples = draw_samples(store, tools.fingerprints["sample"], drawn, turns, frame)
            store.put(samples)
            lineages = load_lineages(store, samples)
            if pending := [lineage for lineage in lineages if not finished(lineage)]:
                accepted = select([one for one in lineages if finished(one)], target, relevant_from, pipeline.language)
                bar.advance(len(accepted.lineages) - bar.done, f"{len(lineages) - len(pending)} samples tried")

                async def one(lineage: Lineage) -> None:
                    end = await walk(lineage, CANDIDATES, tools, store)
                    good = not rejection(end, relevant_from)
                    bar.advance(int(good and bar.done < target), f"last: {end.final.text[:60]}" if end.query else None)

                await drive(pending, one, workers)
                lineages = load_lineages(store, samples)
            accepted = select(lineages, target, relevant_from, pipeline.language)
            found = len(accepted.lineages)
            bar.advance(found - bar.done, f"{len(lineages)} samples tried")
            if found >= target or len(samples) < drawn:
                break
            # How long a prefix to take next, by the share accepted so far.
            drawn += max(1, math.ceil((target - found) / max(found / len(samples), 0.05)))
    spent = len(accepted.lineages) < target
    with display.stage("hard negatives", len(accepted.lineages)) as bar:

        async def negatives(lineage: Lineage) -> None:
            await walk(lineage, [HARD_NEGATIVE], tools, store)
            bar.advance()

        await drive(accepted.lineages, negatives, workers)
    complete = load_lineages(store, [lineage.sample for lineage in accepted.lineages])
    return Accepted(complete, accepted.rejected, accepted.surplus, spent)


def accepted_so_far(
    store: Store, samples: Sequence[Sample], pipeline: Pipeline, frame: Collection[str] | None = None
) -> Accepted:
    """The selection over what is finished on the disk; unfinished samples are left out, and those outside `frame`."""
    lineages = [
        lineage
        for lineage in load_lineages(store, samples)
        if finished(lineage) and (frame is None or lineage.passage.id in frame)
    ]
    return select(lineages, pipeline.target, pipeline.control.judge.relevant_from, pipeline.language)
