"""Judge whether the query's own document answers it (first row of the paper's Table 2), before generating hard
negatives.

The paper judges this after generating the hard negatives. airgen does it first, which saves the negatives of failing
queries. If votes are the labels, no judge is asked: the query must retrieve its document
(`airgen.generation.round_trip`).

A query that shares more words with its document than the pipeline allows is not judged at all. A multi-hop query is
judged with both of its passages together, and dropped if one of them alone answers it.
"""

from airgen.components.keys import row_key
from airgen.generation.query_checks import too_near
from airgen.steps.judge import Verdict, judge_name, judge_pair, judgment_parts, scripted_judge
from airgen.steps.lineage import Lineage
from airgen.steps.step import Problem, Step, Tools
from airgen.steps.votes import DEPTH, NOT_FIRST
from airgen.storage.records import Judgment, Query, Rewrite, Row, prompt_text

_FULL = 3  # the level of a passage that answers on its own


async def _work(lineage: Lineage, tools: Tools) -> list[Row] | Problem:
    final, passage = lineage.final, lineage.passage
    pipeline = tools.pipeline
    if near := too_near(final.text, passage.title, lineage.document, pipeline):
        return near
    if not pipeline.control.judge.members:
        return await _by_votes(lineage, tools)
    judgment = await judge_pair(tools, final.text, lineage.document)
    if isinstance(judgment, Problem):
        return judgment
    relevant = judgment.level >= pipeline.control.judge.relevant_from
    for alone in lineage.sources if lineage.partner is not None and relevant else ():
        verdict = await judge_pair(tools, final.text, prompt_text(alone.title, alone.text))
        if not isinstance(verdict, Problem) and verdict.level == _FULL:
            return Problem("one of its two passages answers it alone")
    return _rows(lineage, tools, judgment)


async def _by_votes(lineage: Lineage, tools: Tools) -> list[Row]:
    """Reject a query that does not retrieve its source, since its votes would be meaningless. Without `tools.find`, all
    queries pass."""
    (lead,) = await tools.find(lineage, [lineage.final.text], DEPTH) if tools.find is not None else [0.0]
    if lead < 0:
        return _rows(lineage, tools, Verdict(0, None, NOT_FIRST))
    return _rows(lineage, tools, Verdict(tools.pipeline.control.judge.relevant_from, None, "it is found again"))


def _rows(lineage: Lineage, tools: Tools, verdict: Verdict) -> list[Row]:
    key, fp, judge = lineage.final.key, tools.plan["judgment"], judge_name(tools.pipeline)
    return [
        Judgment(
            key=row_key("judgment", f"{key}/{passage.key}", fp),
            parent=key,
            fingerprint=fp,
            ordinal=place,
            id=passage.id,
            level=verdict.level,
            probability=verdict.probability,
            judge=judge,
            reason=verdict.reason,
        )
        for place, passage in enumerate(lineage.sources)
    ]


STAGE = Step(
    "judgment",
    (Rewrite, Query),
    Judgment,
    2,
    work=_work,
    parts=judgment_parts,
    scripted=scripted_judge,
    belongs=lambda row, lineage: row.id in [passage.id for passage in lineage.sources],
    label="judgment of the own document",
)
