"""Quality control of the accepted candidates, step by step (paper 2.4)."""

from __future__ import annotations

import asyncio

from airgen.pipeline.control.decisions import DECISIONS
from airgen.pipeline.control.judgments import add_judgments
from airgen.pipeline.control.mining import MINED
from airgen.pipeline.control.prelabels import prelabel_stages
from airgen.pipeline.control.recall import RECALL
from airgen.pipeline.control.set_stage import Control, add_rows
from airgen.pipeline.stage import Plan


async def control_quality(control: Control) -> Plan:
    """Append the rows of recall, pre-labels, judgments, decisions and mined negatives; returns the plan with their
    fingerprints.

    Set-wise work is arithmetic that never waits, so it runs in a thread: Ctrl-C is heard meanwhile.
    """
    for stage in (RECALL, *prelabel_stages(control)):
        control = await asyncio.to_thread(add_rows, stage, control)
    await add_judgments(control)
    pipeline = control.tools.pipeline
    mines = pipeline.queries is None and pipeline.generation.negatives != "generated"
    for stage in (DECISIONS, MINED) if mines else (DECISIONS,):
        control = await asyncio.to_thread(add_rows, stage, control)
    return control.plan
