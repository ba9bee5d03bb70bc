"""Publishing on the Hub: `plan` lists what goes where, `publish` sends it.

If labels are withheld there are two repositories: ORG/NAME, public, and ORG/qrels-NAME, private. Every repository is
checked before the first byte is sent. Then each gets one commit, and at the end each gets a tag with the version: where
a tag is, the publication is whole. Files that are already there are recognised by their hash. So a publication that
failed can be repeated, and sends only what is missing.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from airgen.dataset.air_bench_card import merged_card
from airgen.dataset.licences import check_redistribution
from airgen.dataset.manifest import MANIFEST, load_manifest
from airgen.dataset.verify import verify
from airgen.errors import DatasetError
from airgen.keys import file_sha256
from airgen.publishing.hub import Hub, HubChanged
from airgen.publishing.secrecy import secrecy_problems
from airgen.publishing.withhold import is_labels_of, labels_part, public_part

_REPO = re.compile(r"(?<![A-Za-z0-9._-])[A-Za-z0-9][A-Za-z0-9._-]*+/[A-Za-z0-9][A-Za-z0-9._-]*+")
_KEPT = frozenset({".gitattributes"})  # files of the Hub itself
_ROUNDS = 4
_CARD = "README.md"
_LONGEST = 96  # characters of a repository's name on the Hub


@dataclass(frozen=True, slots=True)
class Upload:
    """The files for one repository: {path: SHA-256}. `withheld` are splits whose labels must not be in it.

    `folders`: where the repository is shared with other datasets and versions, the folders that belong to this upload;
    the others are left, and the card is merged. Empty: the whole repository belongs to it.
    """

    repo: str
    private: bool
    directory: Path
    version: str
    files: dict[str, str]
    bytes: int
    withheld: tuple[str, ...] = ()
    folders: tuple[str, ...] = ()

    def extra(self, remote: Iterable[str]) -> list[str]:
        """The files of the repository that this upload replaces by nothing."""
        others = sorted(set(remote) - set(self.files) - _KEPT)
        return [name for name in others if name.startswith(self.folders)] if self.folders else others


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
    check_repository(repo)
    owner, _, name = repo.partition("/")
    labels, public = parts(dataset, work, private_qrels, permission)
    version = load_manifest(dataset).info.version
    uploads = [upload_of(public, repo, version, withheld=tuple(private_qrels))]
    return uploads if labels is None else [upload_of(labels, f"{owner}/qrels-{name}", version, private=True), *uploads]


def check_repository(repo: str) -> None:
    """Raise DatasetError for a name that the Hub does not take."""
    if not _REPO.fullmatch(repo) or ".." in repo or "--" in repo or len(repo.partition("/")[2]) > _LONGEST:
        raise DatasetError(f"repository {repo!r} is not of the form ORG/NAME")


def parts(dataset: Path, work: Path, withhold: Sequence[str], permission: str) -> tuple[Path | None, Path]:
    """Check a dataset and divide it: the folders of its private labels, if any are withheld, and of its public part.

    Raises what `plan` raises.
    """
    manifest = load_manifest(dataset)
    found = [*verify(dataset), *(secrecy_problems(dataset) if withhold else [])]
    problems = [p for p in found if p.severity == "error" or (withhold and p.kind == "mark")]
    if problems:
        more = f" (and {len(problems) - 1} more: airgen verify names them)" if len(problems) > 1 else ""
        raise DatasetError(f"{dataset} is not published: {problems[0]}{more}")
    check_redistribution(manifest.info.source_licence, permission=permission)
    labels = work / "labels" if withhold else None
    if labels is not None:
        labels_part(dataset, labels, withhold)
    public_part(dataset, work / "public", withhold, permission=permission)
    return labels, work / "public"


def upload_of(
    directory: Path, repo: str, version: str, *, private: bool = False, withheld: tuple[str, ...] = ()
) -> Upload:
    """The upload of one part of a dataset."""
    entries = load_manifest(directory).files
    files = {name: entry.sha256 for name, entry in entries.items()} | {MANIFEST: file_sha256(directory / MANIFEST)}
    size = sum(entry.bytes for entry in entries.values()) + (directory / MANIFEST).stat().st_size
    return Upload(repo, private, directory, version, dict(sorted(files.items())), size, withheld)


def publish(uploads: Sequence[Upload], hub: Hub, *, say: Callable[[str], None] = lambda _: None) -> list[Published]:
    """Send the uploads.

    Raises DatasetError before anything is sent if a version is published with other data, if a repository must be
    private and is not, and if a public repository holds labels that must be private; later, if the Hub refuses.
    """
    for upload in uploads:
        if hub.exists(upload.repo, private=upload.private):
            _check_version(upload, hub)
            _check_remote(upload, hub.files(upload.repo, hub.head(upload.repo)))
    sent = [_send(upload, hub, say) for upload in uploads]
    for one, upload in zip(sent, uploads, strict=True):
        hub.tag(one.repo, upload.version, one.revision)
    return sent


def _send(upload: Upload, hub: Hub, say: Callable[[str], None]) -> Published:
    hub.ensure(upload.repo, private=upload.private)
    card = (upload.directory / _CARD).read_text(encoding="utf-8") if upload.folders else ""
    sent: tuple[str, ...] = ()
    for round_ in range(_ROUNDS):
        head = hub.head(upload.repo)
        remote = hub.files(upload.repo, head)
        if upload.folders and _CARD in remote:
            merged = merged_card(hub.read(upload.repo, _CARD, head), card, upload.repo.partition("/")[2])
            (upload.directory / _CARD).write_text(merged, encoding="utf-8", newline="")
            upload = replace(upload, files={**upload.files, _CARD: file_sha256(upload.directory / _CARD)})
        changed = _different(upload, hub, remote)
        extra = upload.extra(remote)
        _check_remote(upload, remote)
        if not changed and not extra:
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
    tagged = hub.files(upload.repo, commit)
    different = _different(upload, hub, tagged)
    if upload.folders:  # another dataset of this version can have been published before
        different = [name for name in different if name in tagged and name != _CARD]
    if different:
        raise DatasetError(
            f"{upload.repo}: version {upload.version} is published with another {different[0]}: "
            "published versions do not change, raise the version"
        )


def _check_remote(upload: Upload, remote: Iterable[str]) -> None:
    others = sorted(set(remote) - set(upload.files))
    leaks = [name for name in others if name.startswith("private/") or is_labels_of(name, upload.withheld)]
    if not upload.private and leaks:
        raise DatasetError(
            f"{upload.repo} is public and already holds {leaks[0]}, which must be private and would stay in its "
            "history: delete that repository or publish under another name"
        )
