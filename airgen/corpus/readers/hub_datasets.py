"""Hugging Face `datasets`, from the Hub or saved on disk: `reader: {kind: datasets, path: allenai/c4, config: en}`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

from pydantic import model_validator

from airgen.corpus.readers.fields import ChosenRows, Fields, SeenColumns, to_documents
from airgen.corpus.readers.reader import Place, drop
from airgen.errors import CorpusError
from airgen.records import Document, Dropped
from airgen.registry import load_extra


class DatasetsReader:
    """Splits of a data set, streamed and not downloaded whole. Code in a repository is never run."""

    class Settings(ChosenRows):
        """`path`: the name on the Hub, or a folder below the corpus's root that `save_to_disk` wrote.

        config, split: one, or several, which are read one after the other. files: globs of the files to read, as if
        they were the repository; they have no config, and their only split is `train`.
        """

        packages: ClassVar[tuple[str, ...]] = ("datasets",)
        path: str
        config: str | list[str] | None = None
        split: str | list[str] = "train"
        files: str | list[str] | None = None
        revision: str | None = None
        fields: Fields = Fields(id=None, title=None)

        @model_validator(mode="after")
        def _files_have_no_config(self) -> DatasetsReader.Settings:
            if self.files is not None and (self.config is not None or self.split != "train"):
                raise ValueError("files: have no config and no split")
            return self

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
            if not self.settings.chooses(row):
                continue
            for found in to_documents(row, self.settings.fields, self.place, source, f"row {number}"):
                if isinstance(found, Document) and len(found.text) > self.settings.max_bytes:
                    yield drop("too large", identity=found.id, source=source, position=found.position, text=found.text)
                elif self.settings.fits(found):
                    yield found
        seen.check(f"data set {source!r}")

    def _rows(self) -> Iterator[Any]:
        config, split = self.settings.config, self.settings.split
        for one in config if isinstance(config, list) else [config]:
            for part in [split] if isinstance(split, str) else split:
                yield from self._split(one, part)

    def _split(self, config: str | None, split: str) -> Iterator[Any]:
        datasets = load_extra("datasets", "reader 'datasets'")
        local = self.place.root / self.settings.path
        try:
            if (local / "dataset_info.json").is_file() or (local / "dataset_dict.json").is_file():
                found = datasets.load_from_disk(str(local))
                if isinstance(found, datasets.DatasetDict):
                    found = found[split]
            else:
                name = str(local) if local.is_dir() else self.settings.path
                more = {} if self.settings.files is None else {"data_files": self.settings.files}
                revision = self.settings.revision
                found = datasets.load_dataset(name, config, split=split, revision=revision, streaming=True, **more)
            yield from found
        except (OSError, ValueError, KeyError, RuntimeError) as error:  # the Hub's errors are OSErrors
            words = str(error).splitlines()[0][:300] if str(error) else type(error).__name__
            raise CorpusError(
                f"data set {self.settings.path!r}, split {split!r}: cannot be read: {words}; "
                "a data set of the Hub needs the network, and some also need a login (HF_TOKEN)"
            ) from error
