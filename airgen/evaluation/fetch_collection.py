"""Download one set of a published benchmark, check it, and put its files into the cache.

A set is complete or absent: it is unpacked into a temporary folder, which is renamed at the end. A stopped download
goes on where it stopped, if the server can do that. What is not needed (of CQADupStack's archive, most) stays packed.
"""

from __future__ import annotations

import hashlib
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import url2pathname

import httpx

from airgen.corpus.archives import unpack
from airgen.dataset.beir import BeirDataset
from airgen.errors import DatasetError, UsageError
from airgen.evaluation.collections import Collection, CollectionList

WAIT = 60.0  # seconds without a byte until a download counts as stopped
_GROWS = 5  # a set of JSON lines is about four times as large as its archive, which is there meanwhile
_FILES = ("corpus.jsonl", "queries.jsonl", "qrels/*.tsv")

Tick = Callable[[int], object]


def space_needed(one: Collection) -> int:
    """Bytes of disk that a fetch takes at most, as an estimate."""
    return (one.bytes or 0) * _GROWS


def fetch_collection(listed: CollectionList, one: Collection, tick: Tick = lambda done: None) -> Path:
    """The folder of the set, fetched if it is not there. `tick` is called with the bytes that have arrived.

    Raises UsageError for a set that is not public; DatasetError where it cannot be had, has another checksum, or is no
    dataset in BEIR format.
    """
    place = listed.place(one)
    if listed.is_there(one):
        return place
    if one.md5 is None or one.bytes is None:
        raise UsageError(f"{one.name} is not public ({one.licence}): {one.get}; then put it into {place}")
    place.parent.mkdir(parents=True, exist_ok=True)
    free = shutil.disk_usage(place.parent).free
    if free < space_needed(one):
        raise DatasetError(
            f"{one.name}: {place.parent} has {free / 1e9:.1f} GB free, about {space_needed(one) / 1e9:.1f} are needed: "
            "free some, or set AIRGEN_CACHE to another disk"
        )
    archive = place.with_name(f".{one.name}.zip")
    address = listed.address.replace("{name}", one.name)
    _download(address, archive, one, tick)
    if (digest := _md5(archive)) != one.md5:
        archive.unlink()
        raise DatasetError(
            f"{address}: its MD5 is {digest}, but the list has {one.md5}: it changed, or was damaged. It "
            "is deleted: fetch it again, or review the source and correct the list"
        )
    work = Path(tempfile.mkdtemp(prefix=f".{one.name}-", dir=place.parent))
    try:
        unpack(archive, work, [f"*/{name}" for name in _FILES])
        inside = work / one.name
        for below in one.members.values():
            BeirDataset.open(inside / below).qrels(one.split)
        if place.exists():  # a folder that is not complete
            shutil.rmtree(place)
        inside.replace(place)
    except OSError as error:
        raise DatasetError(f"{one.name}: cannot be unpacked in {place.parent}: {error.strerror or error}") from error
    finally:
        shutil.rmtree(work, ignore_errors=True)
    archive.unlink()
    return place


def _download(address: str, archive: Path, one: Collection, tick: Tick) -> None:
    """The archive's bytes; what is there of an earlier try is kept. Raises DatasetError."""
    size = one.bytes or 0
    have = archive.stat().st_size if archive.is_file() else 0
    if have > size:
        have = 0
    if have == size:
        return
    try:
        if address.startswith("file://"):
            shutil.copyfile(url2pathname(urlsplit(address).path), archive)
            return
        wanted = {"Range": f"bytes={have}-"} if have else {}
        with httpx.stream("GET", address, headers=wanted, timeout=WAIT, follow_redirects=True) as answer:
            answer.raise_for_status()
            goes_on = answer.status_code == httpx.codes.PARTIAL_CONTENT
            with archive.open("ab" if goes_on else "wb") as out:
                done = have if goes_on else 0
                for piece in answer.iter_raw():
                    done += len(piece)
                    if done > size:
                        raise DatasetError(f"{address}: sends more than the {size:,} bytes of the list; refused")
                    out.write(piece)
                    tick(done)
    except (httpx.HTTPError, OSError) as error:
        words = " ".join(str(error).split())[:300] or type(error).__name__
        raise DatasetError(f"{address}: {words}; what has arrived is kept: run the same command to go on") from error
    if (found := archive.stat().st_size) < size:
        raise DatasetError(f"{address}: ended after {found:,} of {size:,} bytes: run the same command to go on")


def _md5(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()
