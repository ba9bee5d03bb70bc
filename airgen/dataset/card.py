"""Render dataset cards: `README.md` with front matter for the Hub, `datasets` and mteb, and the cards for AIR-Bench's
layout.

A card is rendered from the manifest only. All external text (names of models, licences, reasons) is escaped. In
AIR-Bench's layout, loaders find a dataset's files through the configs in a repository's README.md. A repository
contains several datasets and versions, so a new card is merged with the existing one.
"""

import json
import re
from bisect import bisect
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airgen.dataset.air_bench import labels_repository
from airgen.dataset.content import hub_licence
from airgen.dataset.human_labels import AGREEMENT, NOTE, PEOPLE, agreement_text, note_text
from airgen.dataset.manifest import Manifest, statistics_markdown, table_fields, table_rows
from airgen.errors import DatasetError
from airgen.safety.escaping import markdown_table, md

if TYPE_CHECKING:
    import jinja2

BROUGHT_LABELS = "labels brought"
"""The step of the funnel that counts the labels given with the queries."""
OWN_QUERIES = "lines of the file"
"""The first step of the funnel of the user's own queries, which are not generated."""
_LEVELS = {
    0: "the document is not relevant to the query",
    1: "the document looks relevant on the surface, but is not",
    2: "the document is somewhat relevant",
    3: "the document is relevant",
}


def front_matter(manifest: Manifest) -> dict[str, Any]:
    """Return the card's metadata: languages, licence, size, tags, one config per table and its columns' types.

    Only JSONL files are listed, because `datasets` infers one builder for a whole repository. `default` and `qrels` are
    the same labels under the names that mteb and beir look for.
    """
    info = manifest.info

    def labels(folder: str) -> list[dict[str, str]]:
        paths = {split: f"{folder}/{split}.jsonl" for split in manifest.labelled_splits}
        # A split that no person has checked has no file of people's labels.
        return [{"split": split, "path": path} for split, path in paths.items() if path in manifest.files]

    configs: list[dict[str, Any]] = [
        {"config_name": "corpus", "data_files": [{"split": "corpus", "path": "corpus.jsonl"}]},
        {"config_name": "queries", "data_files": [{"split": "queries", "path": "queries.jsonl"}]},
    ]
    if manifest.labelled_splits:
        configs.append({"config_name": "default", "data_files": labels("qrels"), "default": True})
        folders = ["qrels", *(f"qrels-{variant}" for variant in manifest.variants)]
        configs += [{"config_name": folder, "data_files": files} for folder in folders if (files := labels(folder))]
    if manifest.answer_files:
        files = [{"split": Path(name).stem, "path": name} for name in manifest.answer_files]
        configs.append({"config_name": "answers", "data_files": files})
    licence = hub_licence(info.labels_licence)
    block: dict[str, Any] = {
        "pretty_name": info.name,
        "language": list(info.all_languages),
        "license": licence,
    }
    if licence == "other":
        block["license_name"] = re.sub(r"[^a-z0-9.]+", "-", info.labels_licence.lower()).strip("-") or "unnamed"
    own_queries, brought = "count" in manifest.query_fields, _brought(manifest)
    block |= {
        "annotations_creators": [
            *["expert-generated"] * (PEOPLE in manifest.variants),
            *["found"] * bool(brought),
            *["machine-generated"] * _judged(manifest),
        ],
        "language_creators": ["found"] if own_queries else ["machine-generated", "found"],
        "multilinguality": ["multilingual" if len(info.all_languages) > 1 else "monolingual"],
        "size_categories": [_size(manifest.statistics.passages)],
        "task_categories": ["text-retrieval"],
        "task_ids": ["document-retrieval"],
        "tags": [
            "mteb",
            "text",
            "information-retrieval",
            *([] if own_queries else ["synthetic"]),
            "airgen",
            info.task,
            info.domain,
        ],
        "configs": configs,
        "dataset_info": [
            {"config_name": c["config_name"], "features": _features(c["config_name"], manifest)} for c in configs
        ],
    }
    return block


def _judged(manifest: Manifest) -> bool:
    """Return whether re-rankers or a model made labels, rather than people all of them."""
    return bool(manifest.provenance) or not _brought(manifest)


def _brought(manifest: Manifest) -> int:
    """Return the number of labels that came with the queries."""
    return sum(step.left for step in manifest.funnel if step.stage == BROUGHT_LABELS)


def _features(table: str, manifest: Manifest) -> list[dict[str, Any]]:
    """Return the columns' types. Otherwise, `datasets` would infer them, and read an id such as 2024-01-31 as a
    date."""
    dtypes = {str: "string", int: "int64", float: "float64"}
    features: list[dict[str, Any]] = [
        {"name": name, "dtype": dtypes[kind]} for name, kind in table_fields(table).items()
    ]
    if table == "queries":
        fields = [{"name": field, "dtype": dtype} for field, dtype in manifest.query_fields.items()]
        features.append({"name": "metadata", "struct": fields})
    return features


_VARIANTS = {
    "positives": "without the 0s, for tools that take every row as a positive",
    "graded": "with the judge's levels 0 to 3",
    "soft": "with gains between 0 and 1",
    PEOPLE: "with the levels that people gave, and only the pairs that they were asked about",
}
_PAPER = """@misc{chen2024airbench,
  title = {AIR-Bench: Automated Heterogeneous Information Retrieval Benchmark},
  year = {2024},
  eprint = {2412.13102},
  archivePrefix = {arXiv},
}"""


@cache
def _template() -> "jinja2.Template":
    """Compile `card.md.j2` once, since this takes longer than writing a small dataset."""
    import jinja2  # slow to import, as yaml is

    environment = jinja2.Environment(trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True)
    environment.filters |= {"md": md, "code": lambda text: " ".join(text.replace("`", "'").split()), "fence": _fence}
    environment.tests["link"] = lambda text: bool(re.fullmatch(r"https?://[^\s<>()\"'\\]+", text))
    return environment.from_string(Path(__file__).with_suffix(".md.j2").read_text("utf-8"))


def render_card(manifest: Manifest) -> str:
    """Render README.md with `card.md.j2`."""
    import yaml

    info = manifest.info
    levels = [
        [str(level), md(text), str(int(level >= info.relevant_from))]
        for level, text in sorted((info.levels or _LEVELS).items())
    ]
    models = [list(map(md, (use.role, use.model, use.prompt, use.version))) for use in manifest.provenance]
    funnel = [
        [md(step.stage), f"{step.entered:,}", f"{step.left:,}", _reasons(step.reasons)] for step in manifest.funnel
    ]
    known = {"task", "domain", "source", "licence", "dataset", "language"}
    statistics = [{name: cell for name, cell in row.items() if name not in known} for row in table_rows([manifest])]
    citation = info.citation or (
        f"@misc{{{re.sub(r'[^A-Za-z0-9]+', '-', info.name)},\n"
        f"  title = {{{info.name}: a retrieval benchmark made with airgen}},\n"
        f"  version = {{{info.version}}},\n"
        f"  note = {{data {manifest.digest[:16]}}},\n"
        "}"
    )
    return _template().render(
        front=yaml.safe_dump(front_matter(manifest), allow_unicode=True, sort_keys=False, width=1000),
        manifest=manifest,
        info=info,
        own="count" in manifest.query_fields,
        brought=_brought(manifest),
        judged=_judged(manifest),
        votes=not any("judge" in use.role for use in manifest.provenance),
        written=_has_written_negatives(manifest),
        answers=manifest.answer_files,
        variants=_VARIANTS,
        statistics=statistics_markdown(statistics),
        levels=markdown_table(["judge's level", "meaning", "`qrels`"], levels, [True, False, True]),
        models=models and markdown_table(["used for", "model", "prompt", "version"], models, [False] * 4),
        funnel=funnel
        and markdown_table(["stage", "entered", "left", "why the others did not"], funnel, [False, True, True, False]),
        audit=_figures(manifest.audit),
        notes=_figures({**manifest.notes, **_in_words(manifest.notes)}),
        citation=f"{citation}\n\n{_PAPER}",
    )


def _has_written_negatives(manifest: Manifest) -> bool:
    """Return whether a model may have written documents, which is unknown without the models of a dataset."""
    roles = {use.role for use in manifest.provenance}
    return "count" not in manifest.query_fields and (not roles or any("negative" in role for role in roles))


def _in_words(notes: Mapping[str, Any]) -> dict[str, str]:
    """Return the notes that have words."""
    words = {NOTE: note_text(notes.get(NOTE)), AGREEMENT: agreement_text(notes.get(AGREEMENT))}
    return {name: text for name, text in words.items() if text}


def _figures(values: Mapping[str, Any] | None) -> str:
    texts = {
        name: value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, sort_keys=True)
        for name, value in sorted((values or {}).items())
    }
    return markdown_table(["", ""], [[md(name), md(text)] for name, text in texts.items()]) if texts else ""


def _reasons(counts: Mapping[str, int]) -> str:
    """List reasons with their counts, most frequent first."""
    ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    return "; ".join(f"{md(reason)}: {count:,}" for reason, count in ordered)


def _fence(text: str, language: str) -> str:
    """Return a code block whose fence is longer than any in its content."""
    longest = max((len(run) for run in re.findall(r"`{3,}", text)), default=2)
    fence = "`" * (longest + 1)
    return f"{fence}{language}\n{text}\n{fence}"


def _size(passages: int) -> str:
    """Return the Hub's size category for a number of rows.

    >>> _size(999), _size(1000)
    ('n<1K', '1K<n<10K')
    """
    names = ["1K", "10K", "100K", "1M", "10M", "100M", "1B"]
    place = bisect([10**power for power in range(3, 10)], passages)
    return f"n<{names[0]}" if not place else f"n>{names[6]}" if place == 7 else f"{names[place - 1]}<n<{names[place]}"


_FACTS = "airgen"  # the key of the front matter with what is known about each dataset
_SPLIT_NAME = re.compile(r"\w+(\.\w+)*")


def air_bench_group(manifest: Manifest) -> str:
    """Return the name of the Hub repository for a dataset's passages and queries."""
    return f"{manifest.info.task}_{manifest.info.domain}_{manifest.info.language}"


def air_bench_cards(manifests: Iterable[Manifest], permission: str = "") -> dict[str, str]:
    """Return the card of each repository, which lists the files of its datasets, with one config per version.

    Raises DatasetError if the names of two datasets in a repository differ only by `-` and `_`.
    """
    cards: dict[str, str] = {}
    for manifest in manifests:
        info = manifest.info
        if not _SPLIT_NAME.fullmatch(info.name.replace("-", "_")):
            raise DatasetError(f"the name {info.name!r} cannot be a part of a split's name in AIR-Bench's layout")
        facts = {"source": info.source, "source_licence": info.source_licence, "licence": info.labels_licence}
        if permission or manifest.notes.get("permission to publish the corpus"):
            facts["permission"] = permission or str(manifest.notes["permission to publish the corpus"])
        group, name, folder = air_bench_group(manifest), info.name.replace("-", "_"), f"{info.version}/{info.name}"
        files = {group: {f"corpus_{name}": f"{folder}/corpus.jsonl"}}  # of each repository: split name -> path in it
        for split in sorted(manifest.statistics.splits):
            files[group][f"queries_{name}_{split}"] = f"{folder}/{split}_queries.jsonl"
        for split in manifest.labelled_splits:
            labels = files.setdefault(labels_repository(group, split), {})
            labels[f"qrels_{name}_{split}"] = f"{folder}/{split}_qrels.jsonl"
        for repo, paths in files.items():
            rows = [{"split": split, "path": path} for split, path in paths.items()]
            block = {
                "language": sorted(info.all_languages),
                "license": hub_licence(info.labels_licence),
                "configs": [{"config_name": info.version, "data_files": rows}],
                _FACTS: {info.version: {info.name: facts}},
            }
            cards[repo] = merged_card(cards.get(repo, ""), _card(block, repo), repo)
    return cards


def merged_card(old: str, new: str, repo: str) -> str:
    """Add the versions and datasets that only the card `old` lists to the card `new`.

    Raises DatasetError if the old card's front matter cannot be read, or if both cards use the same split for different
    files.
    """
    before, after = _front_matter(old, repo), _front_matter(new, repo)
    if not before:
        return new
    folders = tuple(f"{version}/{name}/" for version, known in after[_FACTS].items() for name in known)
    configs: dict[str, dict[str, str]] = {}
    for block in (before, after):
        for config in block.get("configs") or []:
            splits = configs.setdefault(str(config["config_name"]), {})
            for row in config["data_files"]:
                if block is before and row["path"].startswith(folders):
                    continue
                if splits.setdefault(str(row["split"]), str(row["path"])) != str(row["path"]):
                    raise DatasetError(
                        f"{repo}: {splits[row['split']]} and {row['path']} are both the split {row['split']} of its "
                        "card: AIR-Bench's layout replaces - with _, so rename one of the datasets"
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

    match = re.match(r"---\r?\n(.*?)\r?\n---(?:\r?\n|$)", text, re.DOTALL)
    if match is None:
        return {}
    try:
        value = yaml.safe_load(match[1])
        rows = [row for config in value.get("configs") or [] if config["config_name"] for row in config["data_files"]]
        readable = all(isinstance(row["split"], str) and isinstance(row["path"], str) for row in rows)
        readable &= all(isinstance(known, dict) for known in (value.get(_FACTS) or {}).values())
    except (yaml.YAMLError, AttributeError, KeyError, TypeError, RecursionError):
        readable = False
    if not readable:
        raise DatasetError(f"{repo}: the configs of its README.md cannot be read: repair or delete that file")
    return dict(value)


def _card(block: Mapping[str, Any], repo: str) -> str:
    """Format a card: its front matter, and a table of the datasets."""
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
