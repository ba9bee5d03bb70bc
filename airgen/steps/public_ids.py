"""The public ids and splits of a dataset.

They are made only in this module. Row keys follow from the pipeline and the corpus, which are public, so anyone could
use them to connect a query with its source. Ids and splits are therefore derived from row keys and the secret.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from airgen.components.keys import row_key
from airgen.dataset.content import fitting_id
from airgen.dataset.secret import Secret, exact_splits, opaque_document_id, split_of
from airgen.settings import Pipeline
from airgen.steps.lineage import Lineage

_LENGTH = 15  # hex digits: 60 bits


@dataclass(frozen=True)
class PublicIds:
    """The ids and splits of one job's dataset. Without a secret (`export: {secret: false}`) anyone can compute them."""

    pipeline: Pipeline
    secret: Secret | None

    def query(self, lineage: Lineage) -> str:
        """Return a query's id. It depends on the key of the final text, so it does not change when the target is
        raised.

        With `ids: original`, a user's own query keeps the id in its file. The other ids of own queries follow from
        their public texts alone, so that they stay the same if labels are withheld later.
        """
        if lineage.own is not None:
            original = lineage.own.id if self.pipeline.export.ids == "original" else ""
            return original or "q" + lineage.final.key[:_LENGTH]
        return "q" + self._made("query", lineage.final.key)

    def sample(self, lineage: Lineage) -> str:
        """Return the id of a lineage without a query."""
        return "s" + self._made("sample", lineage.sample.key)

    def document(self, id_: str) -> str:
        """Return a document's id.

        An opaque id does not reveal generated negatives; see also `fitting_id`.
        """
        if self.pipeline.export.ids == "original":
            return fitting_id(id_)
        return opaque_document_id(self.pipeline.name, id_, self.secret)

    def split(self, lineage: Lineage) -> str:
        """Return the split of a query. It does not change with prompts or with the target.

        With a secret, all queries of a passage (or, with multi-hop queries, of a document) are in the same split,
        because dev labels must not reveal the sources of test queries.
        """
        return split_of(self._split_place(self._source(lineage)), self.pipeline.export.splits)

    def splits(self, lineages: Sequence[Lineage]) -> dict[str, str]:
        """Return the splits of a dataset's queries by the final query's key. The lineages are given in order of
        acceptance.

        With `export.exact`, the counts match the ratio exactly. A passage with several queries counts once.
        """
        export = self.pipeline.export
        if not export.exact:
            return {lineage.final.key: self.split(lineage) for lineage in lineages}
        sources = {lineage.final.key: self._source(lineage) for lineage in lineages}
        splits = exact_splits([*dict.fromkeys(sources.values())], export.splits, self._split_place)
        return {key: splits[source] for key, source in sources.items()}

    def _source(self, lineage: Lineage) -> str:
        """Return what a query's split depends on, so that all queries with the same source are in the same split."""
        if self.secret is None:
            return lineage.sample.key
        if lineage.own is not None:
            return lineage.final.key
        return lineage.passage.document if self.pipeline.generation.multi_hop else lineage.passage.key

    def _split_place(self, source: str) -> str:
        return source if self.secret is None else self._made("split", source)

    def place(self, key: str) -> str:
        """Return the value that decides which queries lose their answers. With a secret, others cannot compute it."""
        if self.secret is None:
            return row_key("unanswerable", key, "")
        return self.secret.text(self.pipeline.name, "unanswerable", key)

    def _made(self, what: str, key: str) -> str:
        return key[:_LENGTH] if self.secret is None else self.secret.text(self.pipeline.name, what, key)[:_LENGTH]
