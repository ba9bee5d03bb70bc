"""The result of candidate generation for quality control: the accepted lineages, and why others were rejected."""

from dataclasses import dataclass

from airgen.steps.lineage import Lineage
from airgen.steps.step import Cause


@dataclass(frozen=True)
class Rejected:
    """A finished lineage that was not accepted: the stage that ended it (or `duplicate`), the reason, and the cause."""

    lineage: Lineage
    stage: str
    reason: str
    cause: Cause = "check"

    @property
    def words(self) -> str:
        """Return the stage and reason on one line."""
        return f"{self.stage}: {self.reason}"


@dataclass(frozen=True)
class Accepted:
    """The accepted lineages, in permutation order.

    Attributes:
        surplus: Number of accepted lineages beyond the target.
        spent: Whether the corpus is exhausted.
    """

    lineages: list[Lineage]
    rejected: list[Rejected]
    surplus: int
    spent: bool

    @property
    def keys(self) -> list[str]:
        """Return the keys of the final queries."""
        return [lineage.final.key for lineage in self.lineages]
