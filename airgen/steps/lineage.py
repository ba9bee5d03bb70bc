"""A sample with every row made from it, which a job's steps pass on to each other."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

from airgen.storage.records import HardNegative, Need, OwnQuery, Passage, Query, Rewrite, Row, Sample, Skip, prompt_text

R = TypeVar("R", bound=Row)


PLAIN = "plain"
"""The name of the wording of a need that its query has."""

NO_PASSAGE = Passage("", "", -1, "")
"""The passage of a lineage without a source passage: that of a user's own query."""


@dataclass(frozen=True)
class Lineage:
    """A sample and all rows made from it, in the order of the steps, with skips by step.

    `partner` is the second passage of a multi-hop sample. A user's own query has the passage `NO_PASSAGE`.
    """

    passage: Passage
    sample: Sample
    rows: tuple[Row, ...] = ()
    skips: Mapping[str, Skip] = field(default_factory=dict)
    partner: Passage | None = None

    def every(self, kind: type[R]) -> tuple[R, ...]:
        """Return all rows of a type."""
        return tuple(row for row in (self.sample, *self.rows) if isinstance(row, kind))

    def one(self, kind: type[R]) -> R:
        """Return the newest row of a type. Raises LookupError if there is none."""
        rows = self.every(kind)
        if not rows:
            raise LookupError(f"sample {self.sample.key} has no row of type {kind.__name__}")
        return rows[-1]

    def parent(self, reads: Sequence[type[Row]]) -> Row | None:
        """Return the newest row of the first of these types that the lineage has, from which a step that reads them
        starts. Other wordings of a need are no rounds of rewriting, so no step starts from them."""
        kinds = [kind for kind in reads if kind is not Rewrite or not self.need]
        return next((rows[-1] for kind in kinds if (rows := self.every(kind))), None)

    def parent_key(self, reads: Sequence[type[Row]]) -> str:
        """Return the key of that row. Raises LookupError if there is none."""
        row = self.parent(reads)
        if row is None:
            raise LookupError(f"sample {self.sample.key} has no row of {', '.join(kind.__name__ for kind in reads)}")
        return row.key

    def extended(self, rows: Sequence[Row]) -> "Lineage":
        """Return this lineage with the rows of one more step."""
        skips = {row.stage: row for row in rows if isinstance(row, Skip)}
        made = tuple(row for row in rows if not isinstance(row, Skip))
        return replace(self, rows=(*self.rows, *made), skips={**self.skips, **skips})

    @property
    def sources(self) -> tuple[Passage, ...]:
        """Return the query's source passages: one, two from the same document, or none for a user's own query."""
        if self.passage is NO_PASSAGE:
            return ()
        return (self.passage,) if self.partner is None else (self.passage, self.partner)

    @property
    def document(self) -> str:
        """Return the title and text of the positive, or of both positives, as shown in prompts."""
        return "\n\n".join(prompt_text(passage.title, passage.text) for passage in self.sources)

    @property
    def query(self) -> Query | None:
        """Return the original query, if any."""
        return next(iter(self.every(Query)), None)

    @property
    def own(self) -> OwnQuery | None:
        """Return the query's row from the user's file, if it comes from one."""
        return next(iter(self.every(OwnQuery)), None)

    @property
    def need(self) -> Need | None:
        """Return the need, if the query was generated from one (`generation.method: needs`)."""
        return next(iter(self.every(Need)), None)

    @property
    def rewrites(self) -> tuple[Rewrite, ...]:
        """Return the rewrites, one per successful round; none for a need, which has `wordings`."""
        return () if self.need else self.every(Rewrite)

    @property
    def wordings(self) -> dict[str, str]:
        """Return the wordings of a need by name, its query first; empty if there is no need."""
        if self.need is None or self.query is None:
            return {}
        return {PLAIN: self.query.text, **{row.style: row.text for row in self.every(Rewrite)}}

    @property
    def hard_negatives(self) -> tuple[HardNegative, ...]:
        """Return the generated hard negatives."""
        return self.every(HardNegative)

    @property
    def final(self) -> Query | Rewrite:
        """Return the final query for the dataset: the last rewrite, or the original query if no rewrite passed."""
        return self.rewrites[-1] if self.rewrites else self.one(Query)
