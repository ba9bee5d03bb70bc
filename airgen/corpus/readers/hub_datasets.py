"""Hugging Face `datasets`, from the Hub or saved on disk: `reader: {kind: datasets, path: allenai/c4, config: en}`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

from airgen.corpus.readers.fields import Fields, RowSettings, SeenColumns, to_document
from airgen.corpus.readers.reader import Place, drop
from airgen.errors import CorpusError
from airgen.records import Document, Dropped
from airgen.registry import load_extra

__all__ = ["DatasetsReader"]


class DatasetsReader:
    """A split of a data set, streamed and not downloaded whole. Code in a repository is never run."""

    class Settings(RowSettings):
        """`path`: the name on the Hub, or a folder below the corpus's root that `save_to_disk` wrote."""

        packages: ClassVar[tuple[str, ...]] = ("datasets",)
        path: str
        config: str | None = None
        split: str = "train"
        revision: str | None = None
        fields: Fields = Fields(id=None, title=None)

    def __init__(self, settings: Settings, place: Place) -> None:
        self.settings, self.place = settings, place

    def read(self) -> Iterator[Document | Dropped]:
        """One document for each row, in the data set's order."""
        source, seen = self.settings.path, SeenColumns(self.settings.fields)
        for number, row in enumerate(self._rows()):
            if not isinstance(row, dict):
                yield drop("not a row of columns", source=source, position=f"row {number}")
                continue
            seen.add(row)
            found = to_document(row, self.settings.fields, self.place, source, f"row {number}")
            if isinstance(found, Document) and len(found.text) > self.settings.max_bytes:
                found = drop("too large", identity=found.id, source=source, position=f"row {number}", text=found.text)
            yield found

    def _rows(self) -> Iterator[Any]:
        datasets = load_extra("datasets", "reader 'datasets'")
        local = self.place.root / self.settings.path
        try:
            if (local / "dataset_info.json").is_file() or (local / "dataset_dict.json").is_file():
                found = datasets.load_from_disk(str(local))
                if isinstance(found, datasets.DatasetDict):
                    found = found[self.settings.split]
            else:
                name = str(local) if local.is_dir() else self.settings.path
                found = datasets.load_dataset(
                    name,
                    self.settings.config,
                    split=self.settings.split,
                    revision=self.settings.revision,
                    streaming=True,
                )
            yield from found
        except (OSError, ValueError, KeyError, RuntimeError) as error:  # the Hub's errors are OSErrors
            words = str(error).splitlines()[0][:300] if str(error) else type(error).__name__
            raise CorpusError(
                f"data set {self.settings.path!r}, split {self.settings.split!r}: cannot be read: {words}; "
                "a data set of the Hub needs the network, and some also need a login (HF_TOKEN)"
            ) from error
