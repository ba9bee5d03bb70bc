"""AIR-Bench's own layout: its files, and the cards that its loaders read.

Find the datasets of AIR-Bench's own layout on disk, as the Hub's repositories have it.

    AIR-Bench/qa_finance_en/AIR-Bench_24.05/default/      corpus.jsonl, dev_queries.jsonl, test_queries.jsonl
    AIR-Bench/qrels-qa_finance_en-dev/...the same.../     dev_qrels.jsonl
    AIR-Bench/qrels-qa_finance_en/...the same.../         test_qrels.jsonl (private)

A repository is {task}_{domain}_{language}; its folders are versions, and those of a version are datasets. The labels
are in two repositories beside it. Files without a split in their name (queries.jsonl, qrels.jsonl) are of `test`.

The cards of AIR-Bench's layout: the loaders find a dataset's files by the configs of a repository's README.md.

A repository holds several datasets and versions, so the card of a new one is merged with the card that is there.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from airgen.dataset.content import hub_licence
from airgen.dataset.manifest import Manifest
from airgen.errors import DatasetError
from airgen.text.display import markdown_table, md

_CORPUS = ("corpus.jsonl", "corpus.jsonl.gz")
_FILE = re.compile(r"\A(?:(?P<split>[a-z][a-z0-9_]*)_)?(?P<kind>queries|qrels)\.jsonl(?:\.gz)?")
_GROUP = re.compile(r"(?P<task>[a-z][a-z-]*)_(?P<domain>.+)_(?P<language>[A-Za-z-]{2,12})")
_SHOWN = 5


@dataclass(frozen=True)
class AirBenchFiles:
    """The files of one dataset. `queries` and `qrels` are by split; splits can lack labels."""

    group: str
    version: str
    name: str
    corpus: Path
    queries: Mapping[str, Path]
    qrels: Mapping[str, Path]

    @property
    def folder(self) -> Path:
        """The folder of corpus and queries."""
        return self.corpus.parent

    @property
    def info(self) -> dict[str, str]:
        """What a manifest would say; `name` is unique among the datasets of a version, `dataset` is AIR-Bench's."""
        found = _GROUP.fullmatch(self.group)
        facts = found.groupdict() if found else {}
        return {**facts, "version": self.version, "name": f"{self.group}_{self.name}", "dataset": self.name}

    def labels_folder(self, split: str) -> Path:
        """Where the labels of a split are looked for."""
        home = self.folder.parent.parent.parent
        return home / labels_repository(self.group, split) / self.version / self.name


def labels_repository(group: str, split: str) -> str:
    """The repository of a split's labels.

    >>> labels_repository("qa_finance_en", "dev"), labels_repository("qa_finance_en", "test")
    ('qrels-qa_finance_en-dev', 'qrels-qa_finance_en')
    """
    return f"qrels-{group}-dev" if split == "dev" else f"qrels-{group}"


def air_bench_datasets(path: Path) -> list[AirBenchFiles]:
    """Every dataset in a dataset's folder, in a version's, in a repository's, or in a folder with repositories.

    Empty if the folder has another layout. A repository's own name decides the group.
    """
    path = path.resolve()
    for steps in ("", "*", "*/*", "*/*/*"):
        found = sorted({corpus for name in _CORPUS for corpus in path.glob(f"{steps}/{name}" if steps else name)})
        datasets = [one for one in map(_dataset, found) if one is not None]
        if datasets:
            return datasets
        if found:
            return []
    return []


def air_bench_files(path: Path) -> AirBenchFiles | None:
    """The one dataset in a folder, or None if the folder has another layout. Raises DatasetError for several."""
    found = air_bench_datasets(path)
    if len(found) > 1:
        shown = ", ".join(str(one.folder.relative_to(path.resolve())) for one in found[:_SHOWN])
        more = f" and {len(found) - _SHOWN} more" if len(found) > _SHOWN else ""
        raise DatasetError(f"{path} holds {len(found)} datasets: name the folder of one ({shown}{more})")
    return found[0] if found else None


def _dataset(corpus: Path) -> AirBenchFiles | None:
    folder = corpus.parent
    group = folder.parent.parent.name
    queries = dict(_of_kind(folder, "queries"))
    unnamed = any(path.name.startswith("queries") for path in queries.values())  # such a file is also in BEIR's layout
    if not queries or (unnamed and not _GROUP.fullmatch(group)):
        return None
    files = AirBenchFiles(group, folder.parent.name, folder.name, corpus, queries, {})
    labels = dict(_of_kind(folder, "qrels"))
    for split in queries:
        place = files.labels_folder(split)
        labels |= {name: path for name, path in _of_kind(place, "qrels") if name == split}
    return AirBenchFiles(group, files.version, files.name, corpus, queries, labels)


def _of_kind(folder: Path, kind: str) -> Iterator[tuple[str, Path]]:
    """(split, file) of one kind, sorted."""
    for path in sorted(folder.glob(f"*{kind}.jsonl*")):
        found = _FILE.fullmatch(path.name)
        if found is not None and found["kind"] == kind:
            yield found["split"] or "test", path


_FACTS = "airgen"  # the key of the front matter with what is known about each dataset
_SPLIT_NAME = re.compile(r"\w+(\.\w+)*")


def air_bench_group(manifest: Manifest) -> str:
    """The name of the Hub repository of a dataset's passages and queries."""
    return f"{manifest.info.task}_{manifest.info.domain}_{manifest.info.language}"


def _air_bench_files(manifest: Manifest) -> dict[str, dict[str, str]]:
    """Repository -> split name -> path in it, of one dataset."""
    info = manifest.info
    group = air_bench_group(manifest)
    name, folder = info.name.replace("-", "_"), f"{info.version}/{info.name}"
    data = {f"corpus_{name}": f"{folder}/corpus.jsonl"}
    for split in sorted(manifest.statistics.splits):
        data[f"queries_{name}_{split}"] = f"{folder}/{split}_queries.jsonl"
    files = {group: data}
    for split in manifest.labelled_splits:
        labels = files.setdefault(labels_repository(group, split), {})
        labels[f"qrels_{name}_{split}"] = f"{folder}/{split}_qrels.jsonl"
    return files


def air_bench_cards(manifests: Iterable[Manifest], permission: str = "") -> dict[str, str]:
    """The card of each repository, which lists the files of its datasets, with one config for each version.

    Raises DatasetError for two datasets of a repository whose names differ by `-` and `_` only.
    """
    cards: dict[str, str] = {}
    for manifest in manifests:
        info = manifest.info
        if not _SPLIT_NAME.fullmatch(info.name.replace("-", "_")):
            raise DatasetError(f"the name {info.name!r} cannot be a part of a split's name in AIR-Bench's layout")
        facts = {"source": info.source, "source_licence": info.source_licence, "licence": info.labels_licence}
        if permission or manifest.notes.get("permission to publish the corpus"):
            facts["permission"] = permission or str(manifest.notes["permission to publish the corpus"])
        for repo, files in _air_bench_files(manifest).items():
            rows = [{"split": split, "path": path} for split, path in files.items()]
            block = {
                "language": sorted(info.all_languages),
                "license": hub_licence(info.labels_licence),
                "configs": [{"config_name": info.version, "data_files": rows}],
                _FACTS: {info.version: {info.name: facts}},
            }
            cards[repo] = merged_card(cards.get(repo, ""), _card(block, repo), repo)
    return cards


def merged_card(old: str, new: str, repo: str) -> str:
    """The card `new` with the versions and datasets that only the card `old` lists.

    Raises DatasetError for an old card whose front matter cannot be read, and if both use one split for two files.
    """
    before, after = _front_matter(old, repo), _front_matter(new, repo)
    if not before:
        return new
    own = tuple(f"{version}/{name}/" for version, known in after[_FACTS].items() for name in known)
    configs: dict[str, dict[str, str]] = {}
    for block in (before, after):
        for config in block.get("configs") or []:
            splits = configs.setdefault(str(config["config_name"]), {})
            for row in config["data_files"]:
                if block is before and row["path"].startswith(own):
                    continue
                if splits.setdefault(str(row["split"]), str(row["path"])) != str(row["path"]):
                    raise DatasetError(
                        f"{repo}: {splits[row['split']]} and {row['path']} are both the split {row['split']} of its "
                        "card: AIR-Bench's layout writes - as _, so give one of the datasets another name"
                    )
    facts = {version: dict(known) for version, known in (before.get(_FACTS) or {}).items()}
    for version, known in after[_FACTS].items():
        facts.setdefault(version, {}).update(known)
    licences = {before.get("license"), after["license"]} - {None}
    block = {
        **before,
        "language": sorted({*(before.get("language") or []), *after["language"]}),
        "license": licences.pop() if len(licences) == 1 else "other",
        "configs": [
            {"config_name": version, "data_files": [{"split": k, "path": v} for k, v in splits.items()]}
            for version, splits in sorted(configs.items())
        ],
        _FACTS: facts,
    }
    return _card(block, repo)


def _front_matter(text: str, repo: str) -> dict[str, Any]:
    import yaml

    found = re.match(r"---\r?\n(.*?)\r?\n---(?:\r?\n|$)", text, re.DOTALL)
    if found is None:
        return {}
    try:
        value = yaml.safe_load(found[1])
        rows = [row for config in value.get("configs") or [] if config["config_name"] for row in config["data_files"]]
        readable = all(isinstance(row["split"], str) and isinstance(row["path"], str) for row in rows)
        readable &= all(isinstance(known, dict) for known in (value.get(_FACTS) or {}).values())
    except (yaml.YAMLError, AttributeError, KeyError, TypeError, RecursionError):
        readable = False
    if not readable:
        raise DatasetError(f"{repo}: the configs of its README.md cannot be read: mend or delete that file")
    return dict(value)


def _card(block: Mapping[str, Any], repo: str) -> str:
    """A card: its front matter, and a table of the datasets."""
    import yaml

    front = yaml.safe_dump(dict(block), allow_unicode=True, sort_keys=False, width=1000)
    rows = [
        [
            md(version),
            md(name),
            *(md(str(facts.get(key, ""))) for key in ("source", "source_licence", "licence", "permission")),
        ]
        for version, known in sorted(block[_FACTS].items(), reverse=True)
        for name, facts in sorted(known.items())
    ]
    header = ["version", "dataset", "source", "licence of the source", "licence", "permission"]
    kind = "Relevance labels" if repo.startswith("qrels-") else "Passages and queries"
    table = markdown_table(header, rows, [False] * len(header))
    return f"---\n{front}---\n\n# {repo}\n\n{kind} in AIR-Bench's layout, made with airgen.\n\n{table}\n"
