"""The ids and splits that a dataset shows.

They are made here alone. Row keys follow from the pipeline and the corpus, which are public: with them alone anyone
could connect a query with its source. So ids and splits are made of row keys and the secret.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from airgen.dataset.content import fitting_id
from airgen.dataset.secret import Secret, exact_splits, opaque_document_id, split_of
from airgen.keys import row_key
from airgen.settings import Pipeline
from airgen.steps.lineage import Lineage

_LENGTH = 15  # hex digits: 60 bits


@dataclass(frozen=True)
class PublicIds:
    """The ids and splits of one job's dataset. Without a secret (`export: {secret: false}`) anyone can compute them."""

    pipeline: Pipeline
    secret: Secret | None

    def query(self, lineage: Lineage) -> str:
        """Return a query's id. It depends on the key of the final text, so it stays when the target grows.

        With `ids: original` the user's own query has the id that its file gives.
        """
        if lineage.own is not None and lineage.own.id and self.pipeline.export.ids == "original":
            return lineage.own.id
        return "q" + self._made("query", lineage.final.key)

    def sample(self, lineage: Lineage) -> str:
        """Return the id of a lineage that has no query."""
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

        With a secret, all queries of one passage are in one split, and with multi-hop queries all of one document: the
        labels of dev must not tell sources of test.
        """
        return split_of(self._split_place(self._source(lineage)), self.pipeline.export.splits)

    def splits(self, lineages: Sequence[Lineage]) -> dict[str, str]:
        """Return the splits of a dataset's queries, given in the order in which they were accepted, by the final
        query's key.

        With `export.exact`, the counts are those of the ratio; where a passage has several queries, it counts once.
        """
        export = self.pipeline.export
        if not export.exact:
            return {lineage.final.key: self.split(lineage) for lineage in lineages}
        sources = {lineage.final.key: self._source(lineage) for lineage in lineages}
        splits = exact_splits([*dict.fromkeys(sources.values())], export.splits, self._split_place)
        return {key: splits[source] for key, source in sources.items()}

    def _source(self, lineage: Lineage) -> str:
        """Return what a query's split depends on: all queries with the same source are in one split."""
        if self.secret is None:
            return lineage.sample.key
        if lineage.own is not None:
            return lineage.final.key
        return lineage.passage.document if self.pipeline.generation.multi_hop else lineage.passage.key

    def _split_place(self, source: str) -> str:
        return source if self.secret is None else self._made("split", source)

    def place(self, key: str) -> str:
        """Return what decides which queries lose their answers: with a secret, nobody else can compute it."""
        if self.secret is None:
            return row_key("unanswerable", key, "")
        return self.secret.text(self.pipeline.name, "unanswerable", key)

    def _made(self, what: str, key: str) -> str:
        return key[:_LENGTH] if self.secret is None else self.secret.text(self.pipeline.name, what, key)[:_LENGTH]
