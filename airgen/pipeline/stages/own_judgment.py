"""Does the query's own document answer it? The first row of the paper's Table 2, asked before the hard negatives.

The paper judges the original positive after the hard negatives were generated. A query that fails here costs the same
judgment in either order, so airgen asks first and saves the negatives. Quality control reads this judgment later:
each pair is judged once.

A query that is nearer to its document than the pipeline allows is not judged at all. A multi-hop query is judged with
both of its passages together; it is dropped if one of them answers it alone.
"""

from __future__ import annotations

from airgen.keys import row_key
from airgen.pipeline.control.judge import judge_name, judge_pair, judge_parts, scripted_judge
from airgen.pipeline.control.need import Asker
from airgen.pipeline.stage import Lineage, Problem, Refusal, Stage, Tools, skip
from airgen.pipeline.stages import answer_checks as checks
from airgen.records import Judgment, Query, Rewrite, Row, prompt_text

__all__ = ["STAGE"]

_FULL = 3  # the level of a passage that needs no other


async def _work(lineage: Lineage, tools: Tools) -> list[Row]:
    final, fp, passage = lineage.final, tools.plan["judgment"], lineage.passage
    pipeline = tools.pipeline
    near = checks.too_near(final.text, passage.title, lineage.document, pipeline.language, pipeline.generation)
    if near and not pipeline.cross_lingual:
        return [skip("judgment", final.key, tools, near)]
    asker = Asker.of(lineage)
    found = await judge_pair(tools, final.text, lineage.document, asker)
    if isinstance(found, Refusal):
        return [skip("judgment", final.key, tools, found.problem, found.answer)]
    relevant = found.level >= pipeline.control.judge.relevant_from
    for alone in lineage.sources if lineage.partner is not None and relevant else ():
        verdict = await judge_pair(tools, final.text, prompt_text(alone.title, alone.text), asker)
        if not isinstance(verdict, Refusal) and verdict.level == _FULL:
            return [skip("judgment", final.key, tools, Problem("one of its two passages answers it alone"))]
    judge = judge_name(pipeline)
    return [
        Judgment(
            row_key("judgment", f"{final.key}/{one.id}", fp), final.key, fp, place, one.id, found.level,
            found.probability, judge, found.reason,
        )
        for place, one in enumerate(lineage.sources)
    ]  # fmt: skip


STAGE = Stage(
    "judgment", (Rewrite, Query), Judgment, 1, _work, judge_parts,
    belongs=lambda row, lineage: row.id in [one.id for one in lineage.sources],
    scripted=scripted_judge, label="judgment of the own document",
)  # fmt: skip
