"""The stages, in the paper's order. `CANDIDATES` ends with the judgment of a query's own document."""

from airgen.pipeline.stage import Lineage, Stage, Tools
from airgen.pipeline.stages import character, hard_negative, own_judgment, query, rewrite, scenario

__all__ = ["CANDIDATES", "HARD_NEGATIVE", "STAGES", "Lineage", "Stage", "Tools"]

CANDIDATES: tuple[Stage, ...] = (character.STAGE, scenario.STAGE, query.STAGE, rewrite.STAGE, own_judgment.STAGE)
HARD_NEGATIVE: Stage = hard_negative.STAGE
STAGES: tuple[Stage, ...] = (*CANDIDATES, HARD_NEGATIVE)
