"""Is the query answered by its own document? The first row of the paper's Table 2, asked before anything dearer.

The paper judges the original positive after the hard negatives were generated; a query that falls here costs the
same judgment in either order, so airgen asks first and saves the negatives. The judgment is the one that quality
control reads later: each pair is judged once.

A query that is nearer to its document than the pipeline allows is not judged at all.
"""

from __future__ import annotations

from airgen.keys import row_key
from airgen.pipeline.control.judge import judge_name, judge_pair, judge_parts
from airgen.pipeline.stage import Lineage, Refusal, Stage, Tools, skip
from airgen.pipeline.stages import answer_checks as checks
from airgen.records import Judgment, Row

__all__ = ["STAGE"]


async def _work(lineage: Lineage, tools: Tools) -> list[Row]:
    final, fp, passage = lineage.final, tools.fingerprints["judgment"], lineage.passage
    pipeline = tools.pipeline
    near = checks.too_near(final.text, passage.title, lineage.document, pipeline.language, pipeline.generation)
    if near:
        reason, _, detail = near.partition(" (")
        return [skip("judgment", final.key, tools, reason, f"({detail}")]
    found = await judge_pair(tools, final.text, lineage.document)
    if isinstance(found, Refusal):
        return [skip("judgment", final.key, tools, found.reason, found.detail)]
    key, judge = row_key("judgment", f"{final.key}/{passage.id}", fp), judge_name(tools.pipeline)
    return [Judgment(key, final.key, fp, 0, passage.id, found.level, found.probability, judge, found.reason)]


STAGE = Stage("judgment", Judgment, 1, _work, judge_parts)
