"""Published benchmarks as lists of collections, such as BEIR's: their contents, their locations, and how to fetch them.

A collection is either complete or absent: it is unpacked into a temporary folder, which is renamed at the end. An
interrupted download is resumed if the server supports that.
"""

import hashlib
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import numpy as np
from pydantic import Field, model_validator

from airgen.components.registry import closest
from airgen.dataset.beir import BeirDataset
from airgen.display.study import Table, columns
from airgen.errors import DatasetError, SettingsError, UsageError
from airgen.evaluation.result import Result
from airgen.net.downloads import Tick, from_address, unpack
from airgen.settings.base import Settings, find_yaml, load_yaml
from airgen.storage.paths import COLLECTIONS, cache_dir

_NAME = r"^[A-Za-z0-9][A-Za-z0-9_-]{0,63}$"
Name = Annotated[str, Field(pattern=_NAME)]


class Collection(Settings):
    """A dataset in a benchmark.

    A dataset without `md5` is not public, and `get` says how to obtain it.

    Attributes:
        bytes: Size of the archive in bytes.
        split: The split that is reported.
        parts: Folders of a dataset whose score is the mean over several corpora.
        in_domain: Whether models are trained on it, so that it is excluded from the mean.
        ignore_identical_ids: Whether queries are also passages, so that no query may retrieve itself.
    """

    name: Name
    task: str = ""
    domain: str = ""
    split: Name = "test"
    queries: int = Field(ge=1)
    passages: int = Field(ge=1)
    bytes: int | None = Field(default=None, ge=1)
    md5: str | None = Field(default=None, pattern=r"^[0-9a-f]{32}$")
    licence: str = ""
    note: str = ""
    get: str = ""
    parts: tuple[Name, ...] = ()
    in_domain: bool = False
    ignore_identical_ids: bool = False

    @model_validator(mode="after")
    def _public_or_not(self) -> "Collection":
        if (self.md5 is None) != (self.bytes is None):
            raise ValueError(f"{self.name}: md5 and bytes belong together")
        if self.md5 is None and not self.get:
            raise ValueError(f"{self.name}: a set without md5 is not public, so `get` must say how to obtain it")
        return self

    @property
    def members(self) -> dict[str, str]:
        """Return {name in results: subfolder}."""
        return {f"{self.name}-{part}": part for part in self.parts} or {self.name: ""}


class CollectionList(Settings):
    """The contents of a LIST.yaml file.

    Attributes:
        address: URL of the archives, with `{name}` for the dataset's name.
    """

    name: Name
    title: str = ""
    address: str = Field(pattern=r"^(https?|file)://.*\{name\}.*$")
    collections: list[Collection] = Field(min_length=1)

    @model_validator(mode="after")
    def _each_once(self) -> "CollectionList":
        names = [name for collection in self.collections for name in collection.members]
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise ValueError(f"{twice[0]} is listed twice")
        return self

    def named(self, name: str) -> Collection:
        """Return the collection with this name. Raises UsageError if there is none."""
        for collection in self.collections:
            if collection.name == name:
                return collection
        known = [collection.name for collection in self.collections]
        raise UsageError(f"{self.name} has no dataset {name!r}{closest(name, known)} (it has: {', '.join(known)})")

    def place(self, collection: Collection) -> Path:
        """Return the folder of a fetched collection. A collection that is not public can be put there by hand."""
        return cache_dir(COLLECTIONS) / self.name / collection.name

    def is_there(self, collection: Collection) -> bool:
        """Return whether the collection is in its folder."""
        return all((self.place(collection) / below / "qrels").is_dir() for below in collection.members.values())

    def opened(self) -> dict[str, tuple[Collection, BeirDataset]]:
        """Open the fetched collections by the names of their results. Raises UsageError if none has been fetched."""
        fetched = [collection for collection in self.collections if self.is_there(collection)]
        if not fetched:
            public, private = (
                ", ".join(
                    collection.name for collection in self.collections if (collection.md5 is not None) is is_public
                )
                for is_public in (True, False)
            )
            also = f" ({private}: not public)" if private else ""
            raise UsageError(f"{self.name}: {public} not fetched: airgen fetch {self.name}{also}")
        opened = {}
        for collection in fetched:
            for name, below in collection.members.items():
                opened[name] = (collection, replace(BeirDataset.open(self.place(collection) / below), called=name))
        return opened


def load_collections(name: str | Path) -> CollectionList:
    """Load a list from a file, or a built-in list by name. Raises SettingsError."""
    return load_yaml(find_yaml("pipelines", name), CollectionList)


def find_list(name: Path) -> CollectionList | None:
    """Return the list of collections that a command-line argument names, or None for a folder or if there is no such
    file.

    Raises SettingsError if a file is not such a list.
    """
    if name.exists() and not name.is_file():
        return None
    try:
        path = find_yaml("pipelines", name)
    except SettingsError:
        return None
    return load_yaml(path, CollectionList) if path.is_file() else None


def means_table(listed: CollectionList, results: Sequence[Result]) -> str:
    """Format the benchmark's own table (BEIR's Table 2): a row per collection, and the mean over the zero-shot
    collections.

    A collection with several parts counts once, with their mean. A system has a score only if it ran on all parts, and
    a mean only if it ran on all collections in the table. If there is a system called BM25, the last rows count the
    zero-shot collections on which each system is better or worse than it (BEIR's Figure 3).
    """
    systems = list(dict.fromkeys(result.name for result in results))
    scores = {(result.name, result.dataset): result.score for result in results}

    def mean(system: str, names: Sequence[str]) -> float | None:
        known = [scores[system, name] for name in names if (system, name) in scores]
        return float(np.mean(known)) if len(known) == len(names) else None

    means_of = {
        collection.name: [mean(system, list(collection.members)) for system in systems]
        for collection in listed.collections
    }
    evaluated = [
        collection for collection in listed.collections if any(cell is not None for cell in means_of[collection.name])
    ]
    rows = [
        [collection.name + " (in-domain)" * collection.in_domain, *means_of[collection.name]]
        for collection in evaluated
    ]
    if zero_shot := [means_of[collection.name] for collection in evaluated if not collection.in_domain]:
        means = [None if None in column else float(np.mean(column)) for column in zip(*zero_shot, strict=True)]
        rows.append([f"mean of {len(zero_shot)}", *means])
        if BASELINE in (names := [system.casefold() for system in systems]):
            position = names.index(BASELINE)
            baseline = [row[position] for row in zero_shot]
            for word, sign in (("better", 1), ("worse", -1)):
                counts = (str(_wins(column, baseline, sign)) for column in zip(*zero_shot, strict=True))
                rows.append([f"{word} than {systems[position]}", *counts])
    return Table(rows, columns("set", *systems, form=".4f", missing="")).markdown()


BASELINE = "bm25"


def _wins(scores: Sequence[float | None], others: Sequence[float | None], sign: int) -> int:
    """Count the collections on which a system is better (sign 1) or worse (sign -1) than another, if both have
    scores."""
    pairs = zip(scores, others, strict=True)
    return sum(score is not None and other is not None and (score - other) * sign > 0 for score, other in pairs)


def missing_sets(listed: CollectionList, results: Sequence[Result]) -> str:
    """Return a sentence that names each collection missing from the table, with the reason, or ""."""
    evaluated = {result.dataset for result in results}
    missing = [collection for collection in listed.collections if not evaluated.intersection(collection.members)]
    public = [collection.name for collection in missing if collection.md5 is not None]
    private = [collection.name for collection in missing if collection.md5 is None]
    reasons = [f"not fetched: {', '.join(public)} (airgen fetch {listed.name})"] if public else []
    reasons += [f"not public: {', '.join(private)} (airgen show collections {listed.name})"] if private else []
    return f"Without {len(missing)} of {len(listed.collections)} sets; {'; '.join(reasons)}." if reasons else ""


_DISK_PER_ARCHIVE = 5  # a set of JSON lines is about four times as large as its archive, which exists meanwhile
_FILES = ("corpus.jsonl", "queries.jsonl", "qrels/*.tsv")


def space_needed(collection: Collection) -> int:
    """Estimate the maximum disk space that a fetch needs, in bytes."""
    return (collection.bytes or 0) * _DISK_PER_ARCHIVE


def fetch_collection(listed: CollectionList, collection: Collection, tick: Tick = lambda done: None) -> Path:
    """Fetch a collection unless its folder exists.

    Args:
        listed: The list that contains the collection.
        collection: The collection.
        tick: Called with the number of bytes received.

    Returns:
        The folder of the collection.

    Raises:
        UsageError: The collection is not public.
        FetchError: It cannot be downloaded.
        DatasetError: It has another checksum, or is not a dataset in BEIR format.
    """
    place = listed.place(collection)
    if listed.is_there(collection):
        return place
    if collection.md5 is None or collection.bytes is None:
        raise UsageError(
            f"{collection.name} is not public ({collection.licence}): {collection.get}; then put it into {place}"
        )
    place.parent.mkdir(parents=True, exist_ok=True)
    free = shutil.disk_usage(place.parent).free
    if free < space_needed(collection):
        raise DatasetError(
            f"{collection.name}: {place.parent} has {free / 1e9:.1f} GB free, about "
            f"{space_needed(collection) / 1e9:.1f} are needed: free some, or set AIRGEN_CACHE to another disk"
        )
    archive = place.with_name(f".{collection.name}.zip")
    address = listed.address.replace("{name}", collection.name)
    from_address(address, archive, size=collection.bytes, tick=tick)
    with archive.open("rb") as stream:
        digest = hashlib.file_digest(stream, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()
    if digest != collection.md5:
        archive.unlink()
        raise DatasetError(
            f"{address}: its MD5 is {digest}, but the list has {collection.md5}: it changed, or was damaged. It "
            "is deleted: fetch it again, or review the source and correct the list"
        )
    work = Path(tempfile.mkdtemp(prefix=f".{collection.name}-", dir=place.parent))
    try:
        unpack(archive, work, [f"*/{name}" for name in _FILES])
        inside = work / collection.name
        for below in collection.members.values():
            BeirDataset.open(inside / below).qrels(collection.split)
        if place.exists():  # a folder that is not complete
            shutil.rmtree(place)
        inside.replace(place)
    except OSError as error:
        raise DatasetError(
            f"{collection.name}: cannot be unpacked in {place.parent}: {error.strerror or error}"
        ) from error
    finally:
        shutil.rmtree(work, ignore_errors=True)
    archive.unlink()
    return place
