"""Update the dataset of a job whose corpus or people's labels have changed: the next version, and what happened to the
earlier queries.

runs/NAME/versions/0.1/     the earlier dataset, unchanged
runs/NAME/dataset/          the new dataset, version 0.2; its manifest notes list what was kept, retired and added

Rows are stored by the text of the passage and query, so only new or changed texts are judged. A query whose document
was removed or changed is retired: its sample is no longer drawn. The user's own queries stay.
"""

import dataclasses
import hashlib
import json
import shutil
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from airgen.dataset.beir import BeirDataset
from airgen.dataset.content import DatasetContent
from airgen.dataset.derive import copy_file, version_after
from airgen.dataset.human_labels import NOTE as PEOPLES
from airgen.dataset.manifest import MANIFEST, Manifest, load_manifest
from airgen.dataset.verify import damaged_file
from airgen.errors import DatasetError
from airgen.safety.escaping import plain_text
from airgen.storage.paths import EVALUATION
from airgen.storage.store import Store
from airgen.storage.whole_files import building
from airgen.tables.lines import numbered_lines

CORPUS = "corpus"
"""The manifest note with the digest of the passages from which the dataset was made. A dataset's own corpus differs: it
includes generated documents, even of dropped queries, and lacks the answers to unanswerable queries.
"""

DRIFT = "drift"
"""The folder of a job with the systems' results on the earlier and the new version."""

REFRESHED = "refreshed"
"""The manifest note with the changes since the earlier version, and the pipeline's own version."""


@dataclass(frozen=True)
class _Earlier:
    """The existing dataset. `sources` has, for each query, the id of its passage in the corpus and in the dataset."""

    folder: Path
    manifest: Manifest
    sources: Mapping[str, tuple[str, str]]
    negatives: frozenset[str]


def earlier_version(manifest: Manifest | None) -> str | None:
    """Return the version of the dataset before the corpus changed, if it did."""
    note = None if manifest is None else manifest.notes.get(REFRESHED)
    return str(note["from"]) if isinstance(note, dict) and "from" in note else None


def next_version(store: Store, corpus: str, content: DatasetContent, dataset: Path) -> DatasetContent:
    """Return the content with the version and notes of the next version, if the passages (with fingerprint `corpus`) or
    people's labels have changed since `dataset` was made. The earlier dataset is first copied to `versions` next to
    it."""
    ((digest,),) = store.query("SELECT digest FROM corpus WHERE fingerprint = ?", [corpus])
    content = dataclasses.replace(content, notes={**content.notes, CORPUS: digest})
    earlier = _earlier(dataset)
    if earlier is None:
        return content
    own, before = content.info.version, earlier.manifest.info.version
    noted = earlier.manifest.notes.get(REFRESHED)
    known = noted if isinstance(noted, dict) and noted.get("version of the pipeline") == own else None
    if before != own and known is None:
        return content  # the pipeline's author has set another version
    texts = _texts(store, corpus)
    old_texts = texts if earlier.manifest.notes.get(CORPUS) == digest else _earlier_texts(store, earlier)
    old, new = Counter(old_texts.values()), Counter(texts.values())  # in any order; a changed passage counts in both
    if new == old and _peoples(content.notes) == _peoples(earlier.manifest.notes):
        notes = dict(content.notes) if known is None else {**content.notes, REFRESHED: known}
        return dataclasses.replace(content, info=dataclasses.replace(content.info, version=before), notes=notes)
    _keep(earlier, dataset.parent / "versions" / before)
    _keep_results(dataset.parent)
    queries = list(content.queries)
    note = {
        "from": before,
        "digest of it": earlier.manifest.digest,
        "version of the pipeline": own,
        "passages": {
            "before": len(old_texts),
            "now": len(texts),
            "added": (new - old).total(),
            "gone": (old - new).total(),
        },
        "queries": _queries(earlier, {row.id for row in queries}, old_texts, texts),
    }
    info = dataclasses.replace(content.info, version=version_after(before, dataset.parent / "versions"))
    return dataclasses.replace(content, info=info, queries=queries, notes={**content.notes, REFRESHED: note})


def _peoples(notes: Mapping[str, Any]) -> Any:
    """Return the digest of people's labels in the notes of a dataset."""
    note = notes.get(PEOPLES)
    return note.get("digest") if isinstance(note, dict) else None


def _texts(store: Store, corpus: str) -> dict[str, str]:
    return {
        passage.id: _mark(plain_text(passage.title), plain_text(passage.text)) for passage in store.passages(corpus)
    }


def _earlier_texts(store: Store, earlier: _Earlier) -> dict[str, str]:
    """Return the passages from which the earlier dataset was made, or its own documents if the work database is new."""
    states = store.query("SELECT fingerprint FROM corpus WHERE digest = ?", [earlier.manifest.notes.get(CORPUS)])
    if states:
        return _texts(store, states[0][0])
    ids = {published: source for source, published in earlier.sources.values()}
    return {
        ids.get(passage.id, passage.id): _mark(passage.title, passage.text)
        for passage in BeirDataset.open(earlier.folder).passages()
        if passage.id not in earlier.negatives
    }


def _mark(title: str, text: str) -> str:
    return hashlib.blake2b(f"{title}\x1f{text}".encode("utf-8", "surrogatepass"), digest_size=12).hexdigest()


def _earlier(dataset: Path) -> _Earlier | None:
    if not (dataset / MANIFEST).is_file() or damaged_file(dataset) is not None:
        return None
    manifest = load_manifest(dataset)
    path = dataset / "private" / "lineage.jsonl"
    if manifest.part != "whole":
        return None
    sources = dict.fromkeys(BeirDataset.open(dataset).queries(), ("", ""))
    negatives: set[str] = set()
    for _, line in numbered_lines(path) if path.is_file() else ():
        row = json.loads(line)
        sources[row["query"]] = (row["source"], row["positive"])
        negatives.update(row["negatives"])
    return _Earlier(dataset, manifest, sources, frozenset(negatives))


def _queries(
    earlier: _Earlier, now: set[str], old_texts: Mapping[str, str], texts: Mapping[str, str]
) -> dict[str, Any]:
    retired: Counter[str] = Counter()
    for query, (source, _) in earlier.sources.items():
        if query in now:
            continue
        if not source:
            retired["not in the file any more, or not drawn"] += 1
        elif source not in texts:
            retired["its document is gone"] += 1
        elif old_texts.get(source) != texts[source]:
            retired["its document has changed"] += 1
        else:
            retired["others come before it, or quality control or people dropped it"] += 1
    kept_queries = len(now & earlier.sources.keys())
    return {"kept": kept_queries, "new": len(now) - kept_queries, "retired": dict(sorted(retired.items()))}


def _keep(earlier: _Earlier, out: Path) -> None:
    """Copy the whole earlier dataset, unless that has been done."""
    if (out / MANIFEST).is_file() and load_manifest(out).digest == earlier.manifest.digest:
        return
    if out.exists():
        raise DatasetError(f"{out}: another dataset is kept there under the same version: move it away")
    with building(out) as directory:
        for name, entry in earlier.manifest.files.items():
            if name == "README.md":  # it may have been edited
                shutil.copy(earlier.folder / name, directory / name)
            else:
                copy_file(earlier.folder, directory, name, entry)
        shutil.copy(earlier.folder / MANIFEST, directory / MANIFEST)


def _keep_results(job: Path) -> None:
    """Copy the results on the earlier dataset, which the next evaluation replaces, so that its scores are those that
    were reported, whatever a service answers today."""
    if (job / EVALUATION).is_dir():
        old = job / DRIFT / "old"
        shutil.rmtree(old, ignore_errors=True)
        for results in sorted(path for path in (job / EVALUATION).iterdir() if path.is_dir()):
            shutil.copytree(results, old / results.name / results.name)


def change_lines(note: Mapping[str, Any], version: str) -> Iterable[str]:
    """Yield the lines that a run prints about the note."""
    passages, queries = note["passages"], note["queries"]
    if passages["added"] or passages["gone"]:
        yield (
            f"the corpus has changed: version {note['from']} -> {version}; passages: {passages['added']:,} added, "
            f"{passages['gone']:,} gone (a changed one counts as both)"
        )
    else:
        yield f"people's labels have changed: version {note['from']} -> {version}"
    why = ", ".join(f"{count:,} {reason}" for reason, count in queries["retired"].items())
    total = sum(queries["retired"].values())
    yield f"queries: {queries['kept']:,} kept, {queries['new']:,} new, {total:,} retired" + (f" ({why})" if why else "")
