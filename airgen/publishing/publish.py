"""Publish a dataset or a version of a suite on the Hub: `plan` lists what goes where, and `publish` sends it.

If labels are withheld, there are two repositories: ORG/NAME, which is public, and ORG/qrels-NAME, which is private.
Every repository is checked before the first byte is sent. Each then gets one commit, and finally a tag with the
version, so a tagged publication is always complete. A failed publication can be repeated, and sends only what is
missing.

airgen      ORG/NAME-{task}_{domain}_{language}-{dataset}, and ORG/qrels-NAME-... (private) with withheld labels
air-bench   ORG/{task}_{domain}_{language}, ORG/qrels-{task}_{domain}_{language}-dev, and the same without -dev (private
            if labels of test are withheld), as the package air-benchmark reads them

ORG/NAME is the page of a suite, with suite.json, and is sent last.
"""

import re
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from airgen.components.keys import file_sha256
from airgen.dataset.air_bench import labels_repository
from airgen.dataset.card import air_bench_cards, air_bench_group, merged_card
from airgen.dataset.content import check_redistribution
from airgen.dataset.layouts import write_air_bench_data, write_air_bench_labels
from airgen.dataset.manifest import MANIFEST, Manifest, load_manifest, statistics_csv, statistics_markdown, table_rows
from airgen.dataset.verify import verify
from airgen.errors import DatasetError
from airgen.publishing.hub import Hub, HubChanged
from airgen.publishing.public import public_info
from airgen.publishing.suites import SUITE, datasets_of, is_dataset, key_of
from airgen.publishing.withhold import is_labels_of, labels_part, public_part, secrecy_problems
from airgen.safety.escaping import md
from airgen.storage.json_values import read_json, write_json
from airgen.storage.whole_files import building, write_text

_REPO = re.compile(r"(?<![A-Za-z0-9._-])[A-Za-z0-9][A-Za-z0-9._-]*+/[A-Za-z0-9][A-Za-z0-9._-]*+")
_KEPT = frozenset({".gitattributes"})  # the Hub's own files
_ROUNDS = 4
_CARD = "README.md"
_MOST_NAME_CHARACTERS = 96  # characters of a repository's name on the Hub


@dataclass
class Upload:
    """The files for one repository, {path: SHA-256}. `withheld` are the splits whose labels must not be in it.

    If the repository is shared with other datasets and versions, `folders` are those that belong to this upload; the
    others are left unchanged, and the card is merged. If it is empty, the whole repository belongs to this upload.
    """

    repo: str
    private: bool
    directory: Path
    version: str
    files: dict[str, str] = field(init=False)
    bytes: int = field(init=False)
    withheld: Sequence[str] = ()
    folders: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        paths = sorted(path for path in self.directory.rglob("*") if path.is_file())
        self.files = {path.relative_to(self.directory).as_posix(): file_sha256(path) for path in paths}
        self.bytes = sum(path.stat().st_size for path in paths)

    def extra(self, remote: Iterable[str]) -> list[str]:
        """Return the files in the repository that this upload deletes."""
        others = sorted(set(remote) - set(self.files) - _KEPT)
        return [name for name in others if name.startswith(self.folders)] if self.folders else others


@dataclass(frozen=True, slots=True)
class Published:
    """A repository after publishing: the commit, the uploaded files, and the SHA-256 of every file."""

    repo: str
    private: bool
    url: str
    revision: str
    sent: tuple[str, ...]
    files: dict[str, str]


Layout = Literal["airgen", "air-bench"]


def plan(
    home: Path,
    repo: str,
    work: Path,
    *,
    layout: Layout = "airgen",
    private_qrels: Sequence[str] = (),
    permission: str = "",
    unmasked: bool = False,
) -> list[Upload]:
    """Plan the uploads of a dataset or a finished version: private labels first, the page of a suite last.

    Writes their files to `work` and sends nothing.

    Args:
        home: The dataset, or the finished version of a suite.
        repo: The repository, ORG/NAME.
        work: The folder for the files of the uploads.
        layout: The layout of the repositories.
        private_qrels: The splits whose labels stay private. A Long-Doc dataset may lack some of them.
        permission: The permission to redistribute texts whose licence does not allow it.
        unmasked: Whether names of persons and other personal data may remain in the texts.

    Raises:
        DatasetError: The repository name is not of the form ORG/NAME.
        DatasetError: No dataset has any of the splits whose labels should stay private.
        DatasetError: A version of the suite was changed after it was finished.
        DatasetError: Two datasets would have the same repository.
        DatasetError: `verify` finds errors. With private labels, these include a lost secret and negatives that can be
            recognised by their ids or titles.
        DatasetError: Personal data remains in the texts, and `unmasked` is not set.
        DatasetError: The licence is missing or forbids redistribution.
        DatasetError: The public part would reveal private labels. This error and the three before it list the problems
            of all datasets.
    """
    check_repository(repo)
    alone = is_dataset(home)
    manifests = {key_of(manifest): manifest for manifest in [load_manifest(home)]} if alone else datasets_of(home)
    folders = {key: home if alone else home / key for key in manifests}
    known = {split for manifest in manifests.values() for split in manifest.statistics.splits}
    for split in private_qrels:
        if split not in known:
            names = ", ".join(sorted(known))
            raise DatasetError(f"{home} has no split {split!r} whose labels could be private (it has: {names})")
    divided: dict[str, tuple[Path | None, Path]] = {}
    problems = []
    for key, manifest in manifests.items():
        withhold = [split for split in private_qrels if split in manifest.statistics.splits]
        if manifest.info.unmasked and not unmasked:
            problems.append(
                f"{folders[key]} is not published: names of persons, street addresses and dates of birth stay in its "
                "texts: set `clean: {names: ner}` in the corpus's YAML and run the job again, or add --unmasked"
            )
            continue
        try:
            divided[key] = parts(folders[key], work / key, withhold, permission)
        except DatasetError as error:
            problems.append(str(error))
    if problems:
        raise DatasetError("\n".join([*["nothing is published:"] * (not alone), *problems]))
    if layout == "airgen" and alone:
        return _uploads(*next(iter(divided.values())), repo)
    public = {key: load_manifest(path) for key, (_, path) in divided.items()}
    owner, _, page = repo.partition("/")
    if layout == "airgen":
        places = {key: f"{repo}-{key.replace('/', '-')}" for key in divided}
        for key, place in places.items():
            if (other := next(name for name in places if places[name] == place)) != key:
                raise DatasetError(f"{other} and {key} would both be {place}: name one of the datasets differently")
        uploads = [upload for key, both in divided.items() for upload in _uploads(*both, places[key])]
    else:
        uploads = _air_bench_layout(
            folders, manifests, public=public, owner=owner, out=work / "AIR-Bench", permission=permission
        )
        places = {key: f"{owner}/{air_bench_group(manifest)}" for key, manifest in manifests.items()}
    for upload in uploads:
        check_repository(upload.repo)
    if repo in {upload.repo for upload in uploads}:
        raise DatasetError(f"{repo} would be the page of the suite and hold a dataset: choose another --repo")
    name = page if alone else name_of(home)
    version = next(iter(manifests.values())).info.version
    _write_page(work / "page", name, version=version, public=public, places=places)
    uploads.sort(key=lambda upload: (not upload.private, upload.repo))
    return [
        *uploads,
        Upload(repo=repo, private=False, directory=work / "page", version=version, withheld=tuple(private_qrels)),
    ]


def name_of(home: Path) -> str:
    """Return the name of a dataset or of a suite."""
    return load_manifest(home).info.name if is_dataset(home) else str(read_json(home / SUITE).get("name", home.name))


def check_repository(repo: str) -> None:
    """Raise DatasetError if the Hub would not accept a name."""
    if not _REPO.fullmatch(repo) or ".." in repo or "--" in repo or len(repo.partition("/")[2]) > _MOST_NAME_CHARACTERS:
        raise DatasetError(f"repository {repo!r} is not of the form ORG/NAME")


def parts(dataset: Path, work: Path, withhold: Sequence[str], permission: str) -> tuple[Path | None, Path]:
    """Check a dataset and divide it into the folders of its private labels, if any, and of its public part.

    Raises the same errors as `plan`.
    """
    manifest = load_manifest(dataset)
    problems_found = verify(dataset)
    if withhold and not any(problem.severity == "error" for problem in problems_found):  # else rows may have any form
        problems_found = [*problems_found, *secrecy_problems(dataset)]
    problems = [p for p in problems_found if p.severity == "error" or (withhold and p.kind == "mark")]
    if problems:
        more = f" (and {len(problems) - 1} more: airgen publish verify names them)" if len(problems) > 1 else ""
        remedy = ": write export.ids: opaque in the pipeline and run it again" if problems[0].kind == "mark" else ""
        raise DatasetError(f"{dataset} is not published: {problems[0]}{remedy}{more}")
    check_redistribution(manifest.info.source_licence, permission=permission)
    labels = work / "labels" if withhold else None
    if labels is not None:
        labels_part(dataset, labels, withhold)
    public_part(dataset, work / "public", withhold, permission=permission)
    return labels, work / "public"


def _uploads(labels: Path | None, public: Path, repo: str) -> list[Upload]:
    """Return the uploads of a dataset in airgen's layout."""
    (owner, _, name), manifest = repo.partition("/"), load_manifest(public)
    version = manifest.info.version
    private = [Upload(f"{owner}/qrels-{name}", True, labels, version)] if labels else []
    return [*private, Upload(repo=repo, private=False, directory=public, version=version, withheld=manifest.withheld)]


def publish(uploads: Sequence[Upload], hub: Hub, *, say: Callable[[str], None] = lambda _: None) -> list[Published]:
    """Send the uploads.

    Raises DatasetError before anything is sent if a version has been published with other data, if a repository must be
    private but is not, or if a public repository contains labels that must be private; and later, if the Hub refuses.
    """
    for upload in uploads:
        if hub.exists(upload.repo, private=upload.private):
            _check_version(upload, hub)
            _check_remote(upload, hub.files(upload.repo, hub.head(upload.repo)))
    sent = [_send(upload, hub, say) for upload in uploads]
    for published, upload in zip(sent, uploads, strict=True):
        hub.tag(published.repo, upload.version, published.revision)
    return sent


def write_folders(uploads: Sequence[Upload], out: Path) -> list[Path]:
    """Write to `out` the folders that the Hub's repositories would be, and return them. Only their owner can open those
    of private labels.

    Raises DatasetError if one of them exists and has other files, or this version with other data.
    """
    folders = [out / upload.repo.partition("/")[2] for upload in uploads]
    for upload, folder in zip(uploads, folders, strict=True):
        manifest = folder / MANIFEST
        if manifest.is_file() and upload.files.get(MANIFEST) != file_sha256(manifest):
            there = load_manifest(folder)
            if there.info.version == upload.version:
                raise DatasetError(
                    f"{folder}: has version {upload.version} with other data: published versions never change, so "
                    "raise the version (export.version) and run the job again, or choose another folder"
                )
    for upload, folder in zip(uploads, folders, strict=True):
        marker = MANIFEST if MANIFEST in upload.files else _CARD
        with building(folder, marker) as directory:
            shutil.copytree(upload.directory, directory, dirs_exist_ok=True)
            if upload.private:
                directory.chmod(0o700)
    return folders


def _send(upload: Upload, hub: Hub, say: Callable[[str], None]) -> Published:
    hub.ensure(upload.repo, private=upload.private)
    card = (upload.directory / _CARD).read_text(encoding="utf-8") if upload.folders else ""
    sent: tuple[str, ...] = ()
    rounds = 0

    def attempt() -> Published:
        """Compare, commit what is missing, and check that it arrived."""
        nonlocal sent, rounds
        rounds += 1
        for committed in (False, True):
            head = hub.head(upload.repo)
            remote = hub.files(upload.repo, head)
            if upload.folders and _CARD in remote:
                merged = merged_card(hub.read(upload.repo, _CARD, head), card, upload.repo.partition("/")[2])
                (upload.directory / _CARD).write_text(merged, encoding="utf-8", newline="")
                upload.files[_CARD] = file_sha256(upload.directory / _CARD)
            changed = _different(upload, hub, remote)
            extra = upload.extra(remote)
            _check_remote(upload, remote)
            if not changed and not extra:
                url = f"{hub.endpoint}/datasets/{upload.repo}/tree/{upload.version}"
                return Published(
                    repo=upload.repo, private=upload.private, url=url, revision=head, sent=sent, files=upload.files
                )
            if committed:
                break
            if rounds == _ROUNDS:
                raise DatasetError(
                    f"{upload.repo}: the commit failed {_ROUNDS - 1} times: publish again later to continue"
                )
            say(f"{upload.repo}: sending {len(changed)} of {len(upload.files)} files, removing {len(extra)}")
            sent = tuple(changed)
            add = {name: upload.directory / name for name in changed}
            hub.commit(upload.repo, add, delete=extra, message=f"Version {upload.version}", parent=head)
        raise HubChanged(f"{upload.repo}: someone else changed the repository in the meantime")

    def passes(error: BaseException) -> bool:
        # After a broken connection or a server error, the commit may have been made.
        cause = error.__cause__
        return isinstance(error, HubChanged) or (cause is not None and hub.is_temporary(cause))

    return hub.again(attempt, _ROUNDS, passes, lambda error: say(f"{error}: reading the repository again"))


def _different(upload: Upload, hub: Hub, remote: Mapping[str, str]) -> list[str]:
    """Return the files that are missing or different in the repository."""
    files = upload.files.items()
    return [name for name, sha256 in files if not hub.same(upload.directory / name, sha256, remote.get(name))]


def _check_version(upload: Upload, hub: Hub) -> None:
    """Refuse a version that has been published with other data."""
    commit = hub.tags(upload.repo).get(upload.version)
    if commit is None:
        return
    tagged = hub.files(upload.repo, commit)
    different = _different(upload, hub, tagged)
    if upload.folders:  # another dataset of this version may have been published before
        different = [name for name in different if name in tagged and name != _CARD]
    if different:
        raise DatasetError(
            f"{upload.repo}: version {upload.version} was published with a different {different[0]}: published "
            f"versions never change, so raise the version (export.version) and run the job again"
        )


def _check_remote(upload: Upload, remote: Iterable[str]) -> None:
    others = sorted(set(remote) - set(upload.files))
    leaks = [name for name in others if name.startswith("private/") or is_labels_of(name, upload.withheld)]
    if not upload.private and leaks:
        raise DatasetError(
            f"{upload.repo} is public and already holds {leaks[0]}, which must be private and would stay in its "
            "history: delete that repository or publish under another name"
        )


def _air_bench_layout(
    folders: Mapping[str, Path],
    manifests: Mapping[str, Manifest],
    public: Mapping[str, Manifest],
    owner: str,
    out: Path,
    permission: str,
) -> list[Upload]:
    """Return the repositories in AIR-Bench's layout. Public repositories are written from public parts only."""
    private: set[str] = set()
    owned: dict[str, list[str]] = {}
    for key, manifest in manifests.items():
        group, folder = air_bench_group(manifest), f"{manifest.info.version}/{manifest.info.name}"
        part = out.parent / key / "public"
        write_air_bench_data(part, out / group / folder)
        owned.setdefault(group, []).append(f"{folder}/")
        for split in manifest.labelled_splits:
            place = labels_repository(group, split)
            hidden = split in public[key].withheld
            private |= {place} if hidden else set()
            write_air_bench_labels(folders[key] if hidden else part, split, out / place / folder)
            owned.setdefault(place, []).append(f"{folder}/")
    public_manifests = (replace(manifest, info=public_info(manifest.info)) for manifest in manifests.values())
    for repo, text in air_bench_cards(public_manifests, permission).items():
        write_text(out / repo / "README.md", text)
    withheld = tuple(sorted({split for manifest in public.values() for split in manifest.withheld}))
    version = next(iter(manifests.values())).info.version
    return [
        Upload(
            repo=f"{owner}/{repo}",
            private=repo in private,
            directory=out / repo,
            version=version,
            withheld=() if repo in private else withheld,
            folders=tuple(dict.fromkeys(own)),
        )
        for repo, own in sorted(owned.items())
    ]


def _write_page(out: Path, name: str, version: str, public: Mapping[str, Manifest], places: Mapping[str, str]) -> None:
    """Write the suite's page from public parts only, without the number of withheld labels."""
    rows = table_rows(public.values())
    value = {
        "name": name,
        "version": version,
        "datasets": {
            key: {"repository": places[key], "digest": manifest.digest} for key, manifest in sorted(public.items())
        },
    }
    links = "".join(f"- {md(key)}: [{md(place)}](/datasets/{place})\n" for key, place in sorted(places.items()))
    text = f"# {md(name)} {md(version)}\n\n{statistics_markdown(rows)}\n{links}"
    write_text(out / "README.md", f"---\nviewer: false\n---\n\n{text}")
    write_text(out / "statistics.csv", statistics_csv(rows))
    write_json(out / SUITE, value)
