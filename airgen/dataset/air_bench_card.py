"""The cards of AIR-Bench's layout: the loaders find a dataset's files by the configs of a repository's README.md.

A repository holds several datasets and versions, so the card of a new one is merged with the card that is there.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from airgen.dataset.air_bench import labels_repository
from airgen.dataset.content import hub_licence
from airgen.dataset.manifest import Manifest
from airgen.errors import DatasetError
from airgen.text.display import markdown_table, md

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
