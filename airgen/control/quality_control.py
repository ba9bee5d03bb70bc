"""Run quality control on the accepted candidates, from recall to decisions (paper 2.4)."""

import asyncio

from airgen.control.decision import DECISIONS
from airgen.control.judgment import JUDGMENT, add_judgments
from airgen.control.mined_negative import MINED
from airgen.control.prelabel import prelabel_steps
from airgen.control.query_set import Control
from airgen.control.recall import RECALL
from airgen.settings import Pipeline
from airgen.steps.loops import run_whole
from airgen.steps.step import Plan, Step, WholeStep


def control_steps(pipeline: Pipeline) -> tuple[Step | WholeStep, ...]:
    """Return the steps of a pipeline's quality control, in order. Nothing is recalled or scored if only the user's own
    labels count."""
    control = pipeline.control
    return (
        *([RECALL] if control.recallers else []),
        *prelabel_steps(control),
        JUDGMENT,
        DECISIONS,
        *([MINED] if pipeline.mines_negatives else []),
    )


async def control_quality(control: Control) -> Plan:
    """Append the rows of `control_steps`.

    Steps that need the whole corpus never wait, so they run in a thread, during which Ctrl-C is still handled.

    Returns:
        The plan with the fingerprints of these steps.
    """
    for step in control_steps(control.tools.pipeline):
        if isinstance(step, Step):
            await add_judgments(control)
        else:
            control = await asyncio.to_thread(run_whole, step, control)
    return control.plan
