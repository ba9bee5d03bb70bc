"""Passages by the ids of a dataset, or by the ids that its corpus had before it was exported.

`export.ids: opaque` gives every passage a new id. A search service, or somebody's run file, has the original ids. With
the dataset's secret, or for a dataset without one, an original id leads to the new one.
"""

from __future__ import annotations

from collections.abc import Iterable

from airgen.dataset.beir import BeirDataset
from airgen.dataset.row_checks import fitting_id
from airgen.dataset.secret import opaque_document_id, secret_of


class IdLookup:
    """The passages of one dataset. `find` takes a new or an original id."""

    def __init__(self, ids: Iterable[str], dataset: BeirDataset | None = None) -> None:
        self._known = set(ids)
        self._example = min(self._known, default="")
        self._name = str(dataset.info.get("name") or "") if dataset else ""
        self._secret = secret_of(dataset.path) if dataset else None
        made_with = str(dataset.manifest.get("secret") or "") if dataset else ""
        self._lost = bool(made_with) and (self._secret is None or self._secret.name != made_with)

    def find(self, own: str) -> str | None:
        """The passage's id in the dataset, or None if there is no such passage."""
        if own in self._known:
            return own
        if (fitting := fitting_id(own)) in self._known:
            return fitting
        if not self._name or self._lost:
            return None
        new = opaque_document_id(self._name, own, self._secret)
        return new if new in self._known else None

    @property
    def advice(self) -> str:
        """What an id of the dataset looks like, and why an original id may be unknown."""
        text = f"its ids look like {self._example[:100]!r}"
        if self._lost:
            text += (
                ", and without its private part nobody can tell which passage has which original id (evaluate the "
                "dataset in the folder of its job)"
            )
        return text
