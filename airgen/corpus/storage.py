"""Objects of S3 and of other stores that fsspec knows, as files of a corpus.

    found = download("s3://bucket/corpus/*.jsonl.gz", folder)      # {"part-0.jsonl.gz": folder / "part-0.jsonl.gz"}

A place is an object's path below the part of the address that holds no *. Keys come from the environment.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Any

from airgen.errors import AirgenError, CorpusError
from airgen.keys import file_sha256
from airgen.registry import load_extra

MOST_OBJECTS = 100_000
MOST_BYTES = 8 << 30  # of one object, as of an archive


def download(url: str, folder: Path) -> dict[str, Path]:
    """Copy the objects that `url` names into `folder`; {place: file} in the order of the places.

    Raises CorpusError where there is none, too many or too large ones, or where the store refuses, and MissingExtra
    without fsspec.
    """
    fsspec = load_extra("fsspec", f"the corpus at {url[:200]}")
    try:
        store, path = fsspec.core.url_to_fs(url)
        objects = _objects(store, path)
    except ImportError as error:  # fsspec names the package of a store
        raise CorpusError(f"{url}: {_line(error)}: pip install it, or 'airgen-bench[storage]' for s3://") from error
    except AirgenError:
        raise
    except Exception as error:  # stores have no common base class for their errors
        raise CorpusError(f"{url}: {_line(error)}") from error
    if not objects:
        raise CorpusError(f"{url}: there is no such object: check the bucket, the name and the keys in the environment")
    found: dict[str, Path] = {}
    for name in objects:
        place = name.removeprefix(_fixed(path)).lstrip("/")
        parts = PurePosixPath(place).parts
        if not parts or ".." in parts or "\\" in place or "\0" in place or ":" in parts[0]:
            raise CorpusError(f"{url}: the object {name!r} would leave the folder; it is refused")
        found[place] = folder.joinpath(*parts)
        found[place].parent.mkdir(parents=True, exist_ok=True)
        _copy(store, name, found[place], url)
    return found


def _objects(store: Any, path: str) -> list[str]:
    names = sorted(store.glob(path)) if "*" in path else [path] * bool(store.isfile(path))
    files = [name for name in names if "*" not in path or store.isfile(name)]
    if len(files) > MOST_OBJECTS:
        raise CorpusError(f"{path}: {len(files):,} objects match, more than {MOST_OBJECTS:,}: name fewer")
    return files


def _fixed(path: str) -> str:
    """The folder of an address before its first *."""
    return path.partition("*")[0].rpartition("/")[0]


def _copy(store: Any, name: str, target: Path, url: str) -> None:
    left = MOST_BYTES
    try:
        with store.open(name, "rb") as source, target.open("wb") as out:
            while piece := source.read(1 << 20):
                left -= len(piece)
                if left < 0:
                    raise CorpusError(f"{url}: {name} has more than {MOST_BYTES >> 30} GB; refused")
                out.write(piece)
    except AirgenError:
        raise
    except Exception as error:  # as above
        raise CorpusError(f"{url}: {name}: {_line(error)}") from error


def digest_of(files: Mapping[str, Path]) -> str:
    """The SHA-256 of one file; of several, that of their places and their SHA-256 in order."""
    each = {place: file_sha256(path) for place, path in files.items()}
    if len(each) == 1:
        return next(iter(each.values()))
    text = "".join(f"{place} {digest}\n" for place, digest in sorted(each.items()))
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _line(error: BaseException) -> str:
    return " ".join(str(error).split())[:300] or type(error).__name__
