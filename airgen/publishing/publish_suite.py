"""Publishing many datasets with one command: a version of a suite, in airgen's layout or in AIR-Bench's.

airgen      ORG/NAME-{task}_{domain}_{language}-{dataset}, and ORG/qrels-NAME-... (private) with withheld labels
air-bench   ORG/{task}_{domain}_{language}, ORG/qrels-{task}_{domain}_{language}-dev, and the same without -dev (private
            if labels of test are withheld), as the package air-benchmark reads them

ORG/NAME is the page of the suite, with suite.json. It is sent last. Nothing is sent before every dataset is checked.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

from airgen.dataset.air_bench import labels_repository
from airgen.dataset.air_bench_card import air_bench_cards, air_bench_group
from airgen.dataset.files import write_text
from airgen.dataset.layouts import write_air_bench_data, write_air_bench_labels
from airgen.dataset.manifest import Manifest, load_manifest
from airgen.dataset.statistics import statistics_csv, statistics_markdown, table_rows
from airgen.errors import DatasetError
from airgen.keys import file_sha256
from airgen.publishing.publish import Upload, check_repository, parts, upload_of
from airgen.publishing.suites import SUITE, datasets_of, is_dataset, key_of
from airgen.text.display import json_text, md

Layout = Literal["airgen", "air-bench"]


def plan_suite(
    home: Path,
    repo: str,
    work: Path,
    *,
    layout: Layout = "airgen",
    private_qrels: Sequence[str] = (),
    permission: str = "",
) -> list[Upload]:
    """The uploads of a finished version, or of one dataset: private labels first, the suite's page last.

    Writes their files to `work` and sends nothing. A split of `private_qrels` that a Long-Doc dataset does not have is
    not missed in it. Raises DatasetError with the problems of all datasets that cannot be published, for a version
    that was changed, a split that no dataset has, and two datasets that would have one place.
    """
    check_repository(repo)
    manifests = {key_of(one): one for one in [load_manifest(home)]} if is_dataset(home) else datasets_of(home)
    folders = {key: home if is_dataset(home) else home / key for key in manifests}
    known = {split for manifest in manifests.values() for split in manifest.statistics.splits}
    for split in private_qrels:
        if split not in known:
            raise DatasetError(f"{home} has no split {split!r} whose labels could be private (it has: {_names(known)})")
    divided: dict[str, tuple[Path | None, Path]] = {}
    problems = []
    for key, manifest in manifests.items():
        withhold = [split for split in private_qrels if split in manifest.statistics.splits]
        try:
            divided[key] = parts(folders[key], work / key, withhold, permission)
        except DatasetError as error:
            problems.append(str(error))
    if problems:
        raise DatasetError("nothing is published:\n" + "\n".join(problems))
    public = {key: load_manifest(path) for key, (_, path) in divided.items()}
    version = next(iter(manifests.values())).info.version
    if layout == "airgen":
        uploads, places = _own_layout(divided, manifests, repo)
    else:
        owner = repo.partition("/")[0]
        uploads = _air_bench_layout(folders, manifests, public, owner, work / "AIR-Bench", permission)
        places = {key: f"{owner}/{air_bench_group(manifest)}" for key, manifest in manifests.items()}
    for one in uploads:
        check_repository(one.repo)
    if repo in {one.repo for one in uploads}:
        raise DatasetError(f"{repo} would be the page of the suite and hold a dataset: choose another --repo")
    name = repo.partition("/")[2] if is_dataset(home) else _suite_name(home)
    _write_page(work / "page", name, version, public, places)
    uploads.sort(key=lambda one: (not one.private, one.repo))
    return [*uploads, Upload(repo, False, work / "page", version, *_files(work / "page"), tuple(private_qrels))]


def _own_layout(
    divided: Mapping[str, tuple[Path | None, Path]], manifests: Mapping[str, Manifest], repo: str
) -> tuple[list[Upload], dict[str, str]]:
    owner, _, name = repo.partition("/")
    uploads: list[Upload] = []
    places: dict[str, str] = {}
    for key, (labels, public) in divided.items():
        version = manifests[key].info.version
        full = f"{name}-{key.replace('/', '-')}"
        if (other := next((one for one, place in places.items() if place == f"{owner}/{full}"), None)) is not None:
            raise DatasetError(f"{other} and {key} would both be {owner}/{full}: name one of the datasets differently")
        places[key] = f"{owner}/{full}"
        withheld = load_manifest(public).withheld
        if labels is not None:
            uploads.append(upload_of(labels, f"{owner}/qrels-{full}", version, private=True))
        uploads.append(upload_of(public, places[key], version, withheld=withheld))
    return uploads, places


def _air_bench_layout(
    folders: Mapping[str, Path],
    manifests: Mapping[str, Manifest],
    public: Mapping[str, Manifest],
    owner: str,
    out: Path,
    permission: str,
) -> list[Upload]:
    """The repositories of AIR-Bench's layout. Public ones are written from public parts only."""
    private: set[str] = set()
    owned: dict[str, list[str]] = {}
    for key, manifest in manifests.items():
        group, folder = air_bench_group(manifest), f"{manifest.info.version}/{manifest.info.name}"
        part = out.parent / key / "public"
        write_air_bench_data(part, out / group / folder)
        owned.setdefault(group, []).append(f"{folder}/")
        for split in manifest.labelled_splits:
            place = labels_repository(group, split)
            withheld = split in public[key].withheld
            private |= {place} if withheld else set()
            write_air_bench_labels(folders[key] if withheld else part, split, out / place / folder)
            owned.setdefault(place, []).append(f"{folder}/")
    for repo, text in air_bench_cards(manifests.values(), permission).items():
        write_text(out / repo / "README.md", text)
    version = next(iter(manifests.values())).info.version
    withheld_splits = tuple(sorted({split for one in public.values() for split in one.withheld}))
    return [
        Upload(
            f"{owner}/{repo}", repo in private, out / repo, version, *_files(out / repo),
            () if repo in private else withheld_splits, tuple(dict.fromkeys(own)),
        )
        for repo, own in sorted(owned.items())
    ]  # fmt: skip


def _write_page(out: Path, name: str, version: str, public: Mapping[str, Manifest], places: Mapping[str, str]) -> None:
    """Write the suite's page. Everything in it is from public parts: it tells no number of withheld labels."""
    rows = table_rows(public.values())
    value = {
        "name": name,
        "version": version,
        "datasets": {key: {"repository": places[key], "digest": one.digest} for key, one in sorted(public.items())},
    }
    links = "".join(f"- {md(key)}: [{md(place)}](/datasets/{place})\n" for key, place in sorted(places.items()))
    text = f"# {md(name)} {md(version)}\n\n{statistics_markdown(rows)}\n{links}"
    write_text(out / "README.md", f"---\nviewer: false\n---\n\n{text}")
    write_text(out / "statistics.csv", statistics_csv(rows))
    write_text(out / SUITE, json_text(value, indent=1) + "\n")


def _suite_name(home: Path) -> str:
    return str(json.loads((home / SUITE).read_text(encoding="utf-8")).get("name", home.name))


def _files(directory: Path) -> tuple[dict[str, str], int]:
    """{path: SHA-256} of every file, and their size in bytes."""
    paths = sorted(path for path in directory.rglob("*") if path.is_file())
    names = {path.relative_to(directory).as_posix(): file_sha256(path) for path in paths}
    return names, sum(path.stat().st_size for path in paths)


def _names(splits: set[str]) -> str:
    return ", ".join(sorted(splits))
