"""Find and open the files of a corpus, `files(place, "docs/**/*.md")`, and give each a name for ids.

A name is the path as written in the YAML: `path: docs` and `path: ../docs` both give `docs/api/index.md`, wherever the
YAML file is. Files with the same name in two folders are therefore two documents.
"""

import os
import posixpath
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import IO, Any, ClassVar

from airgen.components.registry import REGISTRY, resolve
from airgen.corpus.readers.metadata import file_values, metadata_text
from airgen.corpus.readers.reader import Place, drop, left_out
from airgen.corpus.readers.unreadable import WITHOUT_TEXT, advice, no_reader
from airgen.errors import CorpusError
from airgen.settings.requirements import elsewhere
from airgen.storage import compressed_files
from airgen.storage.records import Document, Dropped

_PATH_ADVICE = "; check reader.path, or run `airgen fetch`"
_ADDRESS_ADVICE = "; put the URL in `fetch`, and the downloaded files in reader.path"


@dataclass(frozen=True, slots=True)
class Raw:
    """Raw input that any process can turn into documents: the bytes of a file, or numbered lines (None if too long).

    `unit` is what the numbers count.
    """

    path: Path
    data: bytes = b""
    lines: Sequence[tuple[int, bytes | None]] = ()
    unit: str = "line"

    @property
    def size(self) -> int:
        """Return its size in bytes."""
        return len(self.data) + sum(len(line or b"") + 1 for _, line in self.lines)

    def __str__(self) -> str:
        return f"{self.path} from {self.unit} {self.lines[0][0]}" if self.lines else str(self.path)


class PathReader:
    """Base class of readers that read the files of `path` one by one.

    `version` is incremented when the reader returns different text for the same files, so that corpora are read again.
    """

    version: ClassVar[int] = 1
    suffixes: tuple[str, ...] = ()

    def __init__(self, settings: Any, place: Place) -> None:
        self.settings, self.place = settings, place
        self.about: dict[str, dict[str, Any]] = {}  # metadata of the current file, by name
        self.twice: frozenset[str] = frozenset()  # names without extension that two files share

    def read(self) -> Iterator[Document | Dropped]:
        """Yield documents, sorted by file name."""
        for path in self.list_files():
            yield from [path] if isinstance(path, Dropped) else self.read_file(path)

    def raw(self) -> Iterator[Raw | Document | Dropped]:
        """Yield the same, but leave unread what `read_raw` can read elsewhere."""
        for path in self.list_files():
            yield from [path] if isinstance(path, Dropped) else self.raw_file(path)

    def raw_file(self, path: Path) -> Iterator[Raw | Document | Dropped]:
        """Yield the documents of one file. A subclass defines this or `read_file`."""
        yield from self.read_file(path)

    def read_raw(self, raw: Raw) -> Iterator[Document | Dropped]:
        """Return the documents of a part from `raw`, which may come from another reader with the same settings and
        `twice`."""
        raise NotImplementedError

    def list_files(self) -> list[Path | Dropped]:
        """Return the sorted files, and record names that two of them share in `twice`.

        Raises CorpusError if there are none.
        """
        entries = list(files(self.place, self.settings.path, self.suffixes, self.settings.skip))
        paths = [path for path in entries if isinstance(path, Path)]
        stems = Counter(_stem(self.name(path)) for path in paths)
        self.twice = frozenset(stem for stem, count in stems.items() if count > 1)
        self.look_around(paths)
        return entries

    def look_around(self, paths: Sequence[Path]) -> None:
        """Collect what a reader must know about all files before reading any of them."""

    def name(self, path: Path) -> str:
        """Return the file's name in ids and sources."""
        return file_name(self.place, self.settings.path, path)

    def below(self, path: Path) -> str:
        """Return the file's path relative to `path`, or to the folder where its pattern begins."""
        folder, _ = _split_pattern(self.place.root, self.settings.path)
        return posix_name(path.relative_to(folder) if path.is_relative_to(folder) else Path(path.name))

    def identity(self, name: str) -> str:
        """Return the id of a file's document: its name without the extension, unless two files would then have the same
        id."""
        stem = _stem(name)
        return name if stem in self.twice else stem

    def document(self, name: str, text: str, title: str, anchor: str = "", **more: Any) -> Document:
        """Return a document for the file with this name, or for its part at `anchor`."""
        about: dict[str, Any] = {"source": name, "licence": self.place.licence, "language": self.place.language}
        if self.settings.metadata:
            about["metadata"] = metadata_text(self.settings.metadata, self.about.get(name) or file_values(name, b""))
        return Document(self.identity(name) + anchor, text, title, **about, **more)

    def read_file(self, path: Path) -> Iterator[Document | Dropped]:
        """Yield the documents of one file."""
        for row in self.raw_file(path):
            yield from self.read_raw(row) if isinstance(row, Raw) else [row]


def _stem(name: str) -> str:
    return Path(name).with_suffix("").as_posix().removesuffix(".html")


def files(
    place: Place, pattern: str, suffixes: tuple[str, ...] = (), skip: Sequence[str] = ()
) -> Iterator[Path | Dropped]:
    """Yield the sorted files of a path or glob below the root. For a folder, yield all files in it.

    A link that leaves the root is dropped, unless it leads into the cache of a download tool.

    Args:
        place: The root, which is the folder of the corpus's files.
        pattern: A path or glob relative to the root.
        suffixes: Extensions of the files to yield from a folder. Each other file is a Dropped if it is a document that
            no reader supports; a single Dropped counts all others that may contain text.
        skip: Name patterns. Files and whole folders with a matching name become a Dropped.

    Raises:
        CorpusError: There are no files.
    """
    root, written = place.root.resolve(), pattern
    if Path(pattern).is_absolute() or ".." in Path(pattern).parts:
        # The user's YAML can name any folder; links must not leave that folder.
        root, pattern = _split_pattern(place.root, pattern)
    start = root / pattern
    skipped, others = list[Path](), list[Path]()
    if start.is_file():  # `faq [2024].csv` is first tried as a name, then as a pattern
        matches = [start]
    elif start.is_dir():
        below, skipped = files_below(start, skip)
        others = [path for path in below if not path.name.lower().endswith(suffixes or ("",))]
        matches = [path for path in below if path.name.lower().endswith(suffixes or ("",))]
        skipped = [path for path in skipped if path.is_dir() or path.name.lower().endswith(suffixes or ("",))]
    elif any(mark in pattern for mark in "*?["):
        matches, skipped = _globbed(root, pattern, skip)
    else:
        matches = [start]
    wanted = [path for path in matches if not path.is_dir()]
    if skipped and not wanted:
        raise CorpusError(f"{start}: reader.skip ({', '.join(skip)}) leaves out all files; shorten it")
    if not any(path.exists() for path in wanted):
        hint = elsewhere(written, place.root) or (_ADDRESS_ADVICE if "://" in written else _PATH_ADVICE)
        raise CorpusError(
            f"{start}: {_explain_unread_folder(start, suffixes) if start.is_dir() else f'no such file{hint}'}"
        )
    for path in skipped:
        yield drop("left out by reader.skip", source=posix_name(path.relative_to(root)))
    inside = [root, *_caches(root)]
    for path in wanted:
        name = posix_name(path.relative_to(root))
        target = path.resolve()
        if not any(target.is_relative_to(folder) for folder in inside):
            yield drop("link out of the folder", source=name)
        elif not path.is_file():
            yield drop("not a file", source=name)
        else:
            yield path
    yield from _of_other_kinds(others, root)


def _of_other_kinds(paths: Sequence[Path], root: Path) -> Iterator[Dropped]:
    """Yield the files in a folder that its reader does not read: each document that no reader supports, and the number
    of other files by extension."""
    rest: Counter[str] = Counter()
    for path in paths:
        if words := advice(path.name):
            yield drop(no_reader(path.name), detail=words, source=posix_name(path.relative_to(root)))
        elif path.suffix.lower() not in WITHOUT_TEXT:
            rest[path.suffix.lower() or "no ending"] += 1
    if rest:
        endings_of = ", ".join(f"{ending} ({count:,})" for ending, count in rest.most_common(20))
        yield left_out("files of other kinds", detail=f"{rest.total():,} files: {endings_of}"[:1000])


def _caches(root: Path) -> list[Path]:
    """Return where tools store the files that they link into this folder: the Hugging Face cache (blobs), DVC and
    git-annex."""
    above = [root, *root.parents]
    folders = [folder.parent / "blobs" for folder in above if folder.name == "snapshots"]
    folders += [folder / inner for folder in above for inner in (".dvc/cache", ".git/annex/objects")]
    return [folder for folder in folders if folder.is_dir()]


def files_below(folder: Path, skip: Sequence[str] = ()) -> tuple[list[Path], list[Path]]:
    """Return the sorted files in a folder at any depth, and those that `skip` excludes.

    An excluded folder is listed without its contents. Links to folders are not followed.
    """
    matches, skipped = list[Path](), list[Path]()
    for place, folders, names in os.walk(folder):
        skipped += [Path(place, name) for name in folders if _matches(name, skip)]
        folders[:] = [name for name in folders if not _matches(name, skip)]
        for name in names:
            (skipped if _matches(name, skip) else matches).append(Path(place, name))
    return sorted(matches), sorted(skipped)


def _globbed(root: Path, pattern: str, skip: Sequence[str]) -> tuple[list[Path], list[Path]]:
    """Return the same for a glob. Names that the pattern itself contains (`.github/*.md`) are not excluded."""
    base, _ = _split_pattern(root, pattern)
    matches, skipped = list[Path](), set[Path]()
    for path in root.glob(pattern):
        parts = path.relative_to(base).parts if path.is_relative_to(base) else path.parts[-1:]
        depth = next((depth for depth, part in enumerate(parts, 1) if _matches(part, skip)), None)
        if depth is None:
            matches.append(path)
        else:
            skipped.add(base.joinpath(*parts[:depth]))
    return sorted(matches), sorted(skipped)


def _matches(name: str, skip: Sequence[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in skip)


def posix_name(path: Path) -> str:
    """Return a path with slashes, as its bytes are in UTF-8 whatever the locale.

    Other bytes are escaped: Python reads them as lone surrogates, which would all be stored as the same character.
    """
    return os.fsencode(path.as_posix()).decode("utf-8", "backslashreplace")


def file_name(place: Place, pattern: str, path: Path) -> str:
    """Return the name of a file from `files`, relative to the corpus's root or to the folder in the YAML."""
    root = place.root.resolve()
    if path.is_relative_to(root):
        return posix_name(path.relative_to(root))
    folder, rest = _split_pattern(place.root, pattern)
    written = Path(pattern)
    fixed = len(written.parts) - (0 if rest == "." else len(Path(rest).parts))
    label = folder.name
    if not written.is_absolute():
        steps = posixpath.normpath(posixpath.join(*written.parts[:fixed], ".")).split("/")
        label = posixpath.join("", *(step for step in steps if step != ".."))
    return posixpath.normpath(posixpath.join(label, posix_name(path.relative_to(folder))))


def endings() -> dict[str, tuple[str, ...]]:
    """Return {kind: extensions} for readers that recognise their files by extension."""
    suffixes_by_kind = {kind: getattr(resolve("reader", kind), "suffixes", ()) for kind in sorted(REGISTRY["reader"])}
    return {kind: suffixes for kind, suffixes in suffixes_by_kind.items() if suffixes}


def _explain_unread_folder(start: Path, suffixes: tuple[str, ...]) -> str:
    """Explain why no file in a folder is read, and which files could be."""
    names = [path.name for path in start.rglob("*") if path.is_file()]
    if not names:
        return f"the folder is empty{_PATH_ADVICE}"
    wanted = f"none of its {len(names):,} files ends in {', '.join(suffixes[:6])}"
    kinds_of_files = [
        next((kind for kind, known in endings().items() if name.lower().endswith(known)), "") for name in names
    ]
    kinds = sorted(Counter(filter(None, kinds_of_files)).items(), key=lambda row: (-row[1], row[0]))
    hints = [f"`kind: {kind}` reads {count:,} of them" for kind, count in kinds]
    hints += ["`kind: files` reads several kinds"] if len(hints) > 1 else []
    common = Counter(Path(name).suffix or "no ending" for name in names).most_common(3)
    others = f"they are {', '.join(f'{ending} ({count:,})' for ending, count in common)}"
    return f"{wanted}; {', '.join(hints) or others}; set reader.kind or reader.path"


def _split_pattern(base: Path, pattern: str) -> tuple[Path, str]:
    parts = Path(pattern).parts
    fixed = len(parts)
    if not (base / pattern).exists():
        fixed = next((index for index, part in enumerate(parts) if any(mark in part for mark in "*?[")), len(parts))
    root = (base / Path(*parts[:fixed])).resolve()
    if fixed == len(parts) and not root.is_dir():
        return root.parent, root.name
    return root, str(Path(*parts[fixed:])) if fixed < len(parts) else "."


def opened(path: Path) -> AbstractContextManager[IO[bytes]]:
    """Open a file, decompressing it if it begins like gzip, bzip2 or zstd.

    Raises CorpusError for a damaged file, and MissingExtra if the package for zstd is missing.
    """
    return compressed_files.opened(path, CorpusError)
