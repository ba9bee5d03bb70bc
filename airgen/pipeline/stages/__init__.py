"""The stages, in the paper's order. `CANDIDATES` ends with the judgment of a query's own document."""

from airgen.pipeline.stages import character, hard_negative, query, rewrite, scenario
from airgen.pipeline.stages import own_judgment as accept
from airgen.pipeline.stages.stage import Lineage, Stage, Tools

__all__ = ["CANDIDATES", "HARD_NEGATIVE", "STAGES", "Lineage", "Stage", "Tools"]

CANDIDATES: tuple[Stage, ...] = (character.STAGE, scenario.STAGE, query.STAGE, rewrite.STAGE, accept.STAGE)
HARD_NEGATIVE: Stage = hard_negative.STAGE
STAGES: tuple[Stage, ...] = (*CANDIDATES, HARD_NEGATIVE)
