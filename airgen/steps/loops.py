"""The two loops that run steps: one waits for answers, the other computes.

    lineage = await walk(lineage, steps, tools=tools, store=store, health=health)      # one parent, step after step
    await walk_each(lineages, steps, tools=..., store=..., health=..., workers=64)     # many parents concurrently
    whole = run_whole(RECALL, whole)                                                   # all parents of one step

`walk` asks models about one document, pair or query at a time, for candidates and judgments. A parent goes through all
steps before the next one begins, so that prompts that share a document follow each other. `run_whole` needs the whole
corpus, for sources, recall, pre-labels, decisions and mined negatives. Its batches are in a fixed order, its model is
loaded once, and it runs in a thread, because nothing in it waits.

In both loops, work without a row of its fingerprint is pending, and rows are on disk before the next work begins.
`run_whole` finds it by an anti-join in SQL (`Store.pending`). `walk` holds all rows of its parents, because prompts are
made from them, and `is_pending` looks at these rows.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TypeVar

from airgen.errors import Stopped
from airgen.llms.health import Health
from airgen.retrievers.component import Component
from airgen.safety.interruptible import stop_if_asked
from airgen.steps.ask import ask_each
from airgen.steps.step import Parent, Step, Tools, Whole, WholeStep
from airgen.storage.store import Store

P = TypeVar("P", bound=Parent)
W = TypeVar("W", bound=Whole)


async def walk(parent: P, steps: Sequence[Step], *, tools: Tools, store: Store, health: Health) -> P:
    """Take a parent through its pending steps, saving each step's rows before the next.

    Returns:
        The parent with the rows of these steps.

    Raises:
        LlmError: A step rejects almost everything.
    """
    for step in steps:
        if not step.done(parent):
            rows = await step.run(parent, tools)
            await store.commit(rows)
            parent = parent.extended(rows)
            _saw_step(health, parent, step)
            health.check()
        if step.stopped(parent):
            break
    return parent


async def walk_each(
    parents: Sequence[P],
    steps: Sequence[Step],
    *,
    tools: Tools,
    store: Store,
    health: Health,
    workers: int,
    ended: Callable[[P], None],
) -> None:
    """Take parents through the steps in order, `workers` at a time. The first error stops the rest.

    `ended` is called with each finished parent.
    """

    async def through(parent: P) -> None:
        ended(await walk(parent, steps, tools=tools, store=store, health=health))

    await ask_each(parents, through, workers)


def is_pending(parent: Parent, steps: Sequence[Step]) -> bool:
    """Return whether any of the steps is left for a parent: none has ended it, and not all are done."""
    return not (any(step.stopped(parent) for step in steps) or all(step.done(parent) for step in steps))


def pending_of(parents: Sequence[P], steps: Sequence[Step], health: Health) -> list[P]:
    """Return the parents for which a step is left. `health` sees the saved outcomes of the others, so that a run that
    it stopped does not spend more when it starts again."""
    for parent in parents:
        for step in steps:
            if step.done(parent):
                _saw_step(health, parent, step)
    return [parent for parent in parents if is_pending(parent, steps)]


def _saw_step(health: Health, parent: Parent, step: Step) -> None:
    """Count the outcome of a step for a parent."""
    if skip := parent.skips.get(step.name):
        health.record(step.name, skip.reason, skip.detail, skip.cause)
    else:
        health.record(step.name)


def _unless_stopped(tell: Callable[..., None], *counts: int) -> None:
    """Report progress within a batch. Raises Stopped if the user has stopped the job."""
    stop_if_asked()
    tell(*counts)


def run_whole(step: WholeStep, whole: W) -> W:
    """Do the pending work of one step that needs the whole corpus.

    Returns:
        `whole` with the step in its plan.

    Raises:
        Stopped: The user stopped the job. Rows that were written are kept.
    """
    source = not step.reads
    model = step.model(whole)
    fingerprint = whole.plan[step.name] if source else step.fingerprint(whole, model)
    pending = step.pending(whole, step.writes, fingerprint)
    if source and not pending:
        return whole
    total, note = step.pieces(whole, whole.parents), step.note(model)
    done = total - step.pieces(whole, pending)
    with whole.display.stage(step.label, None if source else total, done, note) as bar:
        working = replace(
            whole,
            fingerprint=fingerprint,
            pending=pending,
            encoding=partial(_unless_stopped, partial(bar.encoding, note)),
            partly=partial(_unless_stopped, partial(bar.partly, note)),
        )
        try:
            for batch in step.work(working, model) if pending else ():
                step.write(working, batch)
                parents = len({row.parent for row in batch.rows}) if batch.done is None else batch.done
                bar.partly(note, 0)
                bar.advance(parents, note if batch.note is None else batch.note)
                if whole.stopping.is_set():
                    raise Stopped("stopped by the user: run the same command again to continue")
        finally:
            bar.partly(note, 0)  # what is not on the disk will be done again
            if isinstance(model, Component):
                model.release()  # the models of the next step need the memory
    return replace(whole, plan={**whole.plan, step.name: fingerprint})
