"""What candidate generation hands to quality control: the accepted lineages, and why others were rejected."""

from dataclasses import dataclass

from airgen.steps.lineage import Lineage
from airgen.steps.step import Cause


@dataclass(frozen=True)
class Rejected:
    """A lineage that is done and not accepted: the stage that ended it (or `duplicate`), why, and the kind of cause."""

    lineage: Lineage
    stage: str
    reason: str
    cause: Cause = "check"

    @property
    def words(self) -> str:
        """Stage and reason as one line."""
        return f"{self.stage}: {self.reason}"


@dataclass(frozen=True)
class Accepted:
    """The lineages of the dataset, in the order of the permutation.

    Attributes:
        surplus: Number of accepted lineages beyond the target.
        spent: Whether no document is left.
    """

    lineages: list[Lineage]
    rejected: list[Rejected]
    surplus: int
    spent: bool

    @property
    def keys(self) -> list[str]:
        """Return the keys of the final queries."""
        return [lineage.final.key for lineage in self.lineages]
