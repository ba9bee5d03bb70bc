"""Run quality control on the accepted candidates, from recall to decisions (paper 2.4)."""

import asyncio

from airgen.control.decision import DECISIONS
from airgen.control.judgment import add_judgments
from airgen.control.mined_negative import MINED
from airgen.control.prelabel import prelabel_steps
from airgen.control.query_set import Control
from airgen.control.recall import RECALL
from airgen.steps.loops import run_whole
from airgen.steps.step import Plan


async def control_quality(control: Control) -> Plan:
    """Append the rows of recall, pre-labels, judgments, decisions and mined negatives, or of decisions alone if only
    the user's own labels count.

    Steps that need the whole corpus never wait, so they run in a thread, during which Ctrl-C is still handled.

    Returns:
        The plan with the fingerprints of these steps.
    """
    recall = [RECALL] if control.settings.recallers else []
    for step in (*recall, *prelabel_steps(control)):
        control = await asyncio.to_thread(run_whole, step, control)
    await add_judgments(control)
    for step in (DECISIONS, MINED) if control.tools.pipeline.mines_negatives else (DECISIONS,):
        control = await asyncio.to_thread(run_whole, step, control)
    return control.plan
