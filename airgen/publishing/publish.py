"""Publishing a dataset on the Hub: `plan` lists what goes where, `publish` sends it.

If labels are withheld there are two repositories: ORG/NAME, public, and ORG/qrels-NAME, private. Each gets one commit
and a tag with the dataset's version. Files that are already there are recognised by their hash. So a publication that
failed can be repeated, and sends only what is missing.
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
from airgen.publishing.secrecy import secrecy_problems
from airgen.publishing.withhold import is_labels_of, labels_part, public_part

__all__ = ["Published", "Upload", "plan", "publish"]

_REPO = re.compile(r"(?<![A-Za-z0-9._-])[A-Za-z0-9][A-Za-z0-9._-]*+/[A-Za-z0-9][A-Za-z0-9._-]*+")
_KEPT = frozenset({".gitattributes"})  # files of the Hub itself
_ROUNDS = 4


@dataclass(frozen=True, slots=True)
class Upload:
    """The files for one repository: {path: SHA-256}. `withheld` are splits whose labels must not be in it."""

    repo: str
    private: bool
    directory: Path
    version: str
    files: dict[str, str]
    bytes: int
    withheld: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Published:
    """A repository after publishing: the commit, the files that were sent, and the SHA-256 of every file."""

    repo: str
    private: bool
    url: str
    revision: str
    sent: tuple[str, ...]
    files: dict[str, str]


def plan(
    dataset: Path, repo: str, work: Path, *, private_qrels: Sequence[str] = (), permission: str = ""
) -> list[Upload]:
    """The uploads, private labels first. Writes their files to `work` and sends nothing.

    Raises DatasetError for a repository name that is not ORG/NAME, a dataset in which `verify` finds an error (with
    private labels also one whose negatives can be recognised by their ids or titles, or whose secret is lost), a
    licence that forbids redistribution, and a leak of private labels.
    """
    if not _REPO.fullmatch(repo) or ".." in repo or "--" in repo:
        raise DatasetError(f"repository {repo!r} is not of the form ORG/NAME")
    manifest = load_manifest(dataset)
    found = [*verify(dataset), *(secrecy_problems(dataset) if private_qrels else [])]
    problems = [p for p in found if p.severity == "error" or (private_qrels and p.kind == "mark")]
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
    """Send the uploads.

    Raises DatasetError if the Hub refuses, if the version is published with other data, if a repository must be private
    and is not, and if a public repository holds labels that must be private.
    """
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
            say(f"{error}: reading the repository again")
        except DatasetError as error:
            # After a broken connection or a server error the commit may have been made. The next round checks.
            cause = error.__cause__
            if cause is None or not hub.is_temporary(cause):
                raise
            say(f"{error}: checking whether the commit was made")
            hub.pause(round_)
    raise DatasetError(f"{upload.repo}: the commit failed {_ROUNDS - 1} times: publish again later to go on")


def _different(upload: Upload, hub: Hub, remote: Mapping[str, str]) -> list[str]:
    """The files that the repository does not have, or has with other content."""
    files = upload.files.items()
    return [name for name, sha256 in files if not hub.same(upload.directory / name, sha256, remote.get(name))]


def _check_version(upload: Upload, hub: Hub) -> None:
    """Refuse a version that is published with other data."""
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
            f"{upload.repo} is public and already holds {leaks[0]}, which must be private and would stay in its "
            "history: delete that repository or publish under another name"
        )
