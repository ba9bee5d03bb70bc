"""Fetch a corpus's files into the cache: package registries through their own clients, a URL, or a store.

A corpus is either complete or absent: it is unpacked into a temporary folder, which is renamed at the end. An
interrupted download from a URL resumes where it stopped, if the server supports that. A download from a store resumes
with the next object.
"""

import hashlib
import json
import shutil
import tempfile
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path, PurePosixPath
from urllib.parse import urlsplit
from urllib.request import url2pathname

from airgen.components.keys import content_key, file_sha256
from airgen.corpus.settings import CorpusSettings, FetchSettings
from airgen.errors import CorpusError
from airgen.models.catalogue import entry
from airgen.models.fetching import fetched as model_is_here
from airgen.net.downloads import Tick, from_address, from_registry, from_store, unpack
from airgen.storage.paths import cache_dir
from airgen.storage.whole_files import building

_MARKER_NAME = ".airgen-corpus.json"  # written last; a folder without it is not complete


def folder_of(settings: CorpusSettings) -> Path:
    """Return the folder of this corpus's files, which depends on its `fetch` settings."""
    assert settings.fetch is not None
    identity = settings.fetch.model_dump(mode="json")
    return cache_dir("corpora") / f"{settings.name}-{content_key(identity)[:12]}"


def is_fetched(settings: CorpusSettings) -> bool:
    """Return whether all files of the corpus are on this machine."""
    return settings.fetch is None or (settings.fetch.kind != "hub" and (folder_of(settings) / _MARKER_NAME).is_file())


def fetched(settings: CorpusSettings) -> Path:
    """Return the folder of a fetched corpus. Raises CorpusError if it must be fetched first."""
    folder = folder_of(settings)
    if not is_fetched(settings):
        raise CorpusError(f"corpus {settings.name!r} is not on this machine: {_fetch_advice(settings)}")
    return folder


def _fetch_advice(settings: CorpusSettings) -> str:
    source = settings.fetch
    if source is None or source.kind != "file":
        return f"airgen fetch {settings.name}"
    return f"get the file from {source.url}, then: airgen fetch {settings.name} --from FILE"


def still_to_fetch(models: Iterable[str], corpora: Iterable[CorpusSettings]) -> str:
    """Describe what `airgen fetch` would still download, or return "" if there is nothing it could download."""
    sizes = {name: entry(name).download or entry(name).bytes for name in models if not model_is_here(name)}
    sizes |= {
        corpus.name: corpus.fetch.bytes or 0
        for corpus in corpora
        if corpus.fetch is not None and corpus.fetch.kind not in ("hub", "file") and not is_fetched(corpus)
    }
    unknown = ", ".join(name for name, size in sizes.items() if not size)
    known = f"{sum(sizes.values()) / 1e6:,.0f} MB to download" + f", and {unknown} of unknown size" * bool(unknown)
    return f"{known}: airgen fetch {' '.join(sizes)}" if sizes else ""


def record(settings: CorpusSettings) -> dict[str, str]:
    """Return the name and SHA-256 of the fetched archive. Raises CorpusError if the corpus must be fetched first."""
    try:
        archive: dict[str, str] = json.loads((fetched(settings) / _MARKER_NAME).read_text(encoding="utf-8"))
    except ValueError as error:
        advice = f"airgen fetch {settings.name} --force"
        raise CorpusError(f"corpus {settings.name!r}: {_MARKER_NAME} in its folder is damaged: {advice}") from error
    return archive


def fetch(
    settings: CorpusSettings,
    *,
    force: bool = False,
    given: Path | None = None,
    say: Callable[[str], object] = lambda _: None,
    tick: Tick = lambda _: None,
) -> Path:
    """Fetch, verify and unpack a corpus, unless it is already there.

    Args:
        settings: The corpus.
        force: Fetch it again even if it is there.
        given: An archive that the user already has. It is verified and unpacked like a fetched archive.
        say: Called with each line for the user.
        tick: Called with the progress of a download.

    Returns:
        The folder of the corpus's files.

    Raises:
        CorpusError: The archive is missing, has another checksum or cannot be stored.
        FetchError: The source cannot be reached.
    """
    source = settings.fetch
    if source is None:
        say(f"{settings.name}: its files are already on this machine")
        return settings.base
    if source.kind == "hub":
        say(f"{settings.name}: not downloaded, because it is streamed from the Hugging Face Hub when it is read")
        return settings.base
    folder = folder_of(settings)
    if source.kind == "file" and given is None and (force or not is_fetched(settings)):
        raise CorpusError(f"corpus {settings.name!r} cannot be downloaded automatically: {_fetch_advice(settings)}")
    if is_fetched(settings) and not force and given is None:
        say(f"{settings.name}: already in {folder}")
        return folder
    if given is None:
        say(f"{settings.name}: fetching {source.package or source.url} ({source.kind})")
    elif not given.is_file():
        raise CorpusError(f"{given}: no such file")
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=f".{settings.name}-", dir=folder.parent) as work:
            archives = {given.name: given} if given else _archives(source, folder, Path(work), tick)
            name = source.url if source.kind == "storage" and given is None else next(iter(archives))
            digest = _digest(archives)
            if source.sha256 not in (None, digest):
                raise CorpusError(
                    f"{name}: its sha256 is {digest}, but fetch.sha256 is {source.sha256}: the source has changed. "
                    "Review it, then set fetch.sha256 (and version) in the corpus's YAML"
                )
            if not is_fetched(settings):
                shutil.rmtree(folder, ignore_errors=True)  # the existing files are not complete
            with building(folder, _MARKER_NAME, durable=False) as fresh:
                files = 0
                for place, archive in archives.items():
                    target = fresh / PurePosixPath(place).parent
                    target.mkdir(parents=True, exist_ok=True)
                    files += unpack(archive, target, source.members)
                if not files:
                    raise CorpusError(f"{name} contains no file that matches fetch.members: {source.members}")
                about = {"name": settings.name, "archive": name, "sha256": digest, "files": files}
                (fresh / _MARKER_NAME).write_text(json.dumps(about, indent=1), encoding="utf-8")
    except OSError as error:
        raise CorpusError(f"corpus {settings.name!r} cannot be stored in {folder.parent}: {error}") from error
    say(f"{settings.name}: {files} files, sha256 {digest}")
    return folder


def _archives(source: FetchSettings, folder: Path, work: Path, tick: Tick) -> dict[str, Path]:
    """Fetch the source's files into `work`, and return {place: file}. An interrupted download is kept next to
    `folder`."""
    partial = folder.with_name(f".{folder.name}.partial")
    if source.kind == "storage":
        files = from_store(source.url, partial, tick=tick)
        objects = partial.replace(work / "objects")
        return {place: objects / path.relative_to(partial) for place, path in files.items()}
    if source.kind == "url":
        name = Path(url2pathname(urlsplit(source.url).path)).name or "download"
        if source.sha256 is None:
            partial.unlink(missing_ok=True)  # without a checksum, a changed file would go unnoticed
        from_address(source.url, partial, tick=tick)
        return {name: partial.replace(work / name)}
    sign = {"pip": "==", "npm": "@", "apt": "="}[source.kind]
    wanted = source.package + (f"{sign}{source.version}" if source.version else "")
    archive = from_registry(source.kind, wanted, work / "package", tick=tick)
    return {archive.name: archive}


def _digest(files: Mapping[str, Path]) -> str:
    """Return the SHA-256 of a file or, for several, the SHA-256 of their places and hashes in order."""
    each = {place: file_sha256(path) for place, path in files.items()}
    if len(each) == 1:
        return next(iter(each.values()))
    text = "".join(f"{place} {digest}\n" for place, digest in sorted(each.items()))
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
