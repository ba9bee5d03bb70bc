"""Does the query's own document answer it? The first row of the paper's Table 2, asked before the hard negatives.

The paper judges the original positive after the hard negatives were generated. A query that fails here costs the same
judgment in either order, so airgen asks first and saves the negatives. Quality control reads this judgment later:
each pair is judged once.

A query that is nearer to its document than the pipeline allows is not judged at all.
"""

from __future__ import annotations

from airgen.keys import row_key
from airgen.pipeline.control.judge import judge_name, judge_pair, judge_parts, scripted_judge
from airgen.pipeline.stage import Lineage, Refusal, Stage, Tools, skip
from airgen.pipeline.stages import answer_checks as checks
from airgen.records import Judgment, Query, Rewrite, Row

__all__ = ["STAGE"]


async def _work(lineage: Lineage, tools: Tools) -> list[Row]:
    final, fp, passage = lineage.final, tools.plan["judgment"], lineage.passage
    pipeline = tools.pipeline
    near = checks.too_near(final.text, passage.title, lineage.document, pipeline.language, pipeline.generation)
    if near:
        return [skip("judgment", final.key, tools, near)]
    found = await judge_pair(tools, final.text, lineage.document)
    if isinstance(found, Refusal):
        return [skip("judgment", final.key, tools, found.problem, found.answer)]
    key, judge = row_key("judgment", f"{final.key}/{passage.id}", fp), judge_name(pipeline)
    return [Judgment(key, final.key, fp, 0, passage.id, found.level, found.probability, judge, found.reason)]


STAGE = Stage(
    "judgment", (Rewrite, Query), Judgment, 1, _work, judge_parts,
    belongs=lambda row, lineage: row.id == lineage.passage.id,
    scripted=scripted_judge, label="judgment of the own document",
)  # fmt: skip
