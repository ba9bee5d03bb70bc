"""Publishing a dataset on the Hub: what would go where (`plan`), and doing it (`publish`), as often as it takes.

Two repositories when labels are withheld: ORG/NAME, public, and ORG/qrels-NAME, private. Each gets one commit and a
tag with the dataset's version. Nothing is remembered between runs: what is already there is seen by its hash, so a
publication that broke in the middle is resumed by publishing again, without a second commit of the same files.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from airgen.dataset.licences import check_redistribution
from airgen.dataset.manifest import MANIFEST, load_manifest
from airgen.dataset.verify import verify
from airgen.errors import DatasetError
from airgen.keys import file_sha256
from airgen.publishing.hub import Hub, HubChanged
from airgen.publishing.withhold import is_labels_of, labels_part, public_part

__all__ = ["Published", "Upload", "plan", "publish"]

_REPO = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*/[A-Za-z0-9][A-Za-z0-9._-]*")
_KEPT = frozenset({".gitattributes"})  # files of the Hub itself
_ROUNDS = 4


@dataclass(frozen=True, slots=True)
class Upload:
    """One repository's part: `files` maps paths in it to SHA-256; `withheld` are splits that must not be in it."""

    repo: str
    private: bool
    directory: Path
    version: str
    files: dict[str, str]
    bytes: int
    withheld: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Published:
    """What a repository holds now: the commit, which files were sent, and every file's SHA-256."""

    repo: str
    private: bool
    url: str
    revision: str
    sent: tuple[str, ...]
    files: dict[str, str]


def plan(
    dataset: Path, repo: str, work: Path, *, private_qrels: Sequence[str] = (), permission: str = ""
) -> list[Upload]:
    """What would be published, private labels first; the parts are written to `work`. Sends nothing.

    Raises DatasetError for a repository name that is not ORG/NAME, a dataset that `verify` finds wrong (or, with
    private labels, whose negatives can be told by their looks), a licence that forbids redistribution, a leak.
    """
    if not _REPO.fullmatch(repo) or ".." in repo or "--" in repo:
        raise DatasetError(f"repository {repo!r} is not of the form ORG/NAME")
    manifest = load_manifest(dataset)
    problems = [p for p in verify(dataset) if p.severity == "error" or (private_qrels and p.kind == "mark")]
    if problems:
        more = f" (and {len(problems) - 1} more: airgen verify names them)" if len(problems) > 1 else ""
        raise DatasetError(f"{dataset} is not published: {problems[0]}{more}")
    check_redistribution(manifest.info.source_licence, permission=permission)
    owner, _, name = repo.partition("/")
    version = manifest.info.version
    uploads = []
    if private_qrels:
        labels_part(dataset, work / "labels", private_qrels)
        uploads.append(_upload(f"{owner}/qrels-{name}", True, work / "labels", version))
    public_part(dataset, work / "public", private_qrels, permission=permission)
    uploads.append(_upload(repo, False, work / "public", version, tuple(private_qrels)))
    return uploads


def _upload(repo: str, private: bool, directory: Path, version: str, withheld: tuple[str, ...] = ()) -> Upload:
    entries = load_manifest(directory).files
    files = {name: entry.sha256 for name, entry in entries.items()} | {MANIFEST: file_sha256(directory / MANIFEST)}
    size = sum(entry.bytes for entry in entries.values()) + (directory / MANIFEST).stat().st_size
    return Upload(repo, private, directory, version, dict(sorted(files.items())), size, withheld)


def publish(uploads: Sequence[Upload], hub: Hub, *, say: Callable[[str], None] = lambda _: None) -> list[Published]:
    """Carry out a plan. Raises DatasetError: refused by the Hub, a version already published with other data,
    a repository that must be private and is not, labels found in a public one."""
    return [_publish_one(upload, hub, say) for upload in uploads]


def _publish_one(upload: Upload, hub: Hub, say: Callable[[str], None]) -> Published:
    hub.ensure(upload.repo, private=upload.private)
    _check_version(upload, hub)
    sent: tuple[str, ...] = ()
    for round_ in range(_ROUNDS):
        head = hub.head(upload.repo)
        remote = hub.files(upload.repo, head)
        changed = _different(upload, hub, remote)
        extra = sorted(set(remote) - set(upload.files) - _KEPT)
        _check_remote(upload, extra)
        if not changed and not extra:
            hub.tag(upload.repo, upload.version, head)
            url = f"{hub.endpoint}/datasets/{upload.repo}/tree/{upload.version}"
            return Published(upload.repo, upload.private, url, head, sent, upload.files)
        if round_ == _ROUNDS - 1:
            break
        say(f"{upload.repo}: sending {len(changed)} of {len(upload.files)} files, removing {len(extra)}")
        sent = tuple(changed)
        add = {name: upload.directory / name for name in changed}
        try:
            hub.commit(upload.repo, add, extra, f"Version {upload.version}", head)
        except HubChanged as error:
            say(f"{error}: looking again")
        except DatasetError as error:
            # A broken connection or a failing server: the commit may have been made. The next round sees.
            cause = error.__cause__
            if not isinstance(cause, Exception) or not hub.may_have_happened(cause):
                raise
            say(f"{error}: looking whether the commit was made")
            hub.pause(round_)
    raise DatasetError(f"{upload.repo}: the commit failed {_ROUNDS - 1} times: publish again later, it resumes")


def _different(upload: Upload, hub: Hub, remote: Mapping[str, str]) -> list[str]:
    """The files that the repository lacks or has otherwise."""
    files = upload.files.items()
    return [name for name, sha256 in files if not hub.same(upload.directory / name, sha256, remote.get(name))]


def _check_version(upload: Upload, hub: Hub) -> None:
    """A published version never changes."""
    commit = hub.tags(upload.repo).get(upload.version)
    if commit is None:
        return
    different = _different(upload, hub, hub.files(upload.repo, commit))
    if different:
        raise DatasetError(
            f"{upload.repo}: version {upload.version} is published with another {different[0]}: "
            "published versions do not change, raise the version"
        )


def _check_remote(upload: Upload, extra: Sequence[str]) -> None:
    leaks = [name for name in extra if name.startswith("private/") or is_labels_of(name, upload.withheld)]
    if not upload.private and leaks:
        raise DatasetError(
            f"{upload.repo} is public and already holds {leaks[0]}, which is to be private; its history would keep it. "
            "Delete that repository or publish under another name"
        )
