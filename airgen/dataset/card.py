"""The dataset card: `README.md` with the front matter that the Hub, `datasets` and mteb read.

The card is made from the manifest alone, so it describes what the directory holds. Everything that comes from outside
(names of models, licences, reasons) is escaped.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from airgen.dataset.content import ANSWERED, hub_licence
from airgen.dataset.layouts import answer_files
from airgen.dataset.manifest import COLUMNS, Manifest, statistics_markdown, table_rows
from airgen.text.display import markdown_table, md

_LEVELS = {
    0: "the document is not relevant to the query",
    1: "the document looks relevant on the surface, but is not",
    2: "the document is somewhat relevant",
    3: "the document is relevant",
}
_HEAD_MEASURE = {"qa": "nDCG@10", "long-doc": "Recall@10"}


def front_matter(manifest: Manifest) -> dict[str, Any]:
    """The card's metadata block: languages, licence, size, tags, one config per table and its columns' types.

    Only JSONL files are listed, because `datasets` infers one builder for a whole repository. `default` and `qrels`
    are the same labels under the names that mteb and beir look for.
    """
    info = manifest.info

    def labels(folder: str) -> list[dict[str, str]]:
        return [{"split": split, "path": f"{folder}/{split}.jsonl"} for split in manifest.labelled_splits]

    configs: list[dict[str, Any]] = [
        {"config_name": "corpus", "data_files": [{"split": "corpus", "path": "corpus.jsonl"}]},
        {"config_name": "queries", "data_files": [{"split": "queries", "path": "queries.jsonl"}]},
    ]
    if manifest.labelled_splits:
        configs.append({"config_name": "default", "data_files": labels("qrels"), "default": True})
        folders = ["qrels", *(f"qrels-{variant}" for variant in manifest.variants)]
        configs += [{"config_name": folder, "data_files": labels(folder)} for folder in folders]
    if answers := answer_files(manifest):
        files = [{"split": Path(name).stem, "path": name} for name in answers]
        configs.append({"config_name": "answers", "data_files": files})
    licence = hub_licence(info.labels_licence)
    block: dict[str, Any] = {
        "pretty_name": info.name,
        "language": list(info.all_languages),
        "license": licence,
    }
    if licence == "other":
        block["license_name"] = re.sub(r"[^a-z0-9.]+", "-", info.labels_licence.lower()).strip("-") or "unnamed"
    block |= {
        "annotations_creators": ["machine-generated"],
        "language_creators": ["machine-generated", "found"],
        "multilinguality": ["multilingual" if len(info.all_languages) > 1 else "monolingual"],
        "size_categories": [_size(manifest.statistics.passages)],
        "task_categories": ["text-retrieval"],
        "task_ids": ["document-retrieval"],
        "tags": ["mteb", "text", "information-retrieval", "synthetic", "airgen", info.task, info.domain],
        "configs": configs,
        "dataset_info": [{"config_name": c["config_name"], "features": _features(c, manifest)} for c in configs],
    }
    return block


def _features(config: Mapping[str, Any], manifest: Manifest) -> list[dict[str, Any]]:
    """The columns' types. Without them `datasets` infers them, and reads an id like 2024-01-31 as a date."""

    def text(*names: str) -> list[dict[str, Any]]:
        return [{"name": name, "dtype": "string"} for name in names]

    name = config["config_name"]
    if name == "corpus":
        return text("_id", "title", "text")
    if name == "queries":
        fields = [{"name": field, "dtype": dtype} for field, dtype in manifest.query_fields.items()]
        return [*text("_id", "text"), {"name": "metadata", "struct": fields}]
    if name == "answers":
        spans = [{"name": field, "dtype": "int64"} for field in ("start", "end")]
        return [*text("query-id", "corpus-id", "answer", "quote"), *spans]
    dtype = "float64" if name == "qrels-soft" else "int64"
    return [*text("query-id", "corpus-id"), {"name": "score", "dtype": dtype}]


def render_card(manifest: Manifest) -> str:
    """The text of README.md."""
    import yaml  # slow to import

    block = yaml.safe_dump(front_matter(manifest), allow_unicode=True, sort_keys=False, width=1000)
    parts = [
        f"---\n{block}---\n",
        _opening(manifest),
        _statistics(manifest),
        _files(manifest),
        _levels(manifest),
        _models(manifest),
        _funnel(manifest),
        _figures("Audit by people", manifest.audit),
        _figures("What was done after the export", manifest.notes),
        _limits(manifest),
        _licences(manifest),
        _citation(manifest),
        _pipeline(manifest),
    ]
    return "\n".join(part for part in parts if part)


def _opening(manifest: Manifest) -> str:
    info = manifest.info
    made = "whole documents" if info.task == "qa" else "chunks of one long document"
    text = f"# {md(info.name)}\n\n"
    if info.description:
        text += f"{md(info.description)}\n\n"
    languages = ", ".join(f"`{_code(language)}`" for language in info.all_languages)
    text += (
        f"A retrieval benchmark: task `{info.task}` ({made}), domain `{info.domain}`, language {languages}, "
        f"version `{info.version}`. Head measure: {_HEAD_MEASURE[info.task]}. "
        f"{_OWN if _has_own_queries(manifest) else _GENERATED}\n"
    )
    if info.source:
        source = f"[{md(info.source)}]({_url(info.source_url)})" if _url(info.source_url) else md(info.source)
        text += f"\nSource of the corpus: {source}.\n"
    return text


_GENERATED = (
    "Its queries were written by a language model for passages of the corpus and its labels checked by "
    "re-rankers and a language model, after the method of AIR-Bench, by airgen."
)
_OWN = (
    "Its queries were not generated: they were given. Its labels are by re-rankers and a language model, by airgen, "
    "and those that were given with the queries. A query with `answered: false` has no label: none of its judged "
    "passages answers it, and no average counts it."
)


def _has_own_queries(manifest: Manifest) -> bool:
    return "judged" in manifest.query_fields


def _statistics(manifest: Manifest) -> str:
    columns = [name for name in COLUMNS if name not in ("task", "domain", "source", "licence", "dataset", "language")]
    table = statistics_markdown(table_rows([manifest]), columns)
    return f"## Statistics\n\n{table}\nTokens are counted by `{_code(manifest.info.tokenizer)}`.\n"


def _files(manifest: Manifest) -> str:
    about = "split and what was asked of the query's writer"
    if _has_own_queries(manifest):
        about = "split; how often it was asked; whether a judged passage answers it; how many were judged"
    lines = [
        "## Files",
        "",
        "- `corpus.jsonl`: `_id`, `title`, `text`",
        f"- `queries.jsonl`: `_id`, `text`, `metadata` ({about})",
    ]
    if ANSWERED in manifest.query_fields and not _has_own_queries(manifest):
        lines.append("- A query with `answered: false` has no label: no passage that was judged answers it.")
    if manifest.labelled_splits:
        splits = ", ".join(f"`{split}`" for split in manifest.labelled_splits)
        lines.append(f"- `qrels/` ({splits}): `query-id`, `corpus-id`, `score` as JSONL and TSV")
        lines += [f"- `qrels-{variant}/`: the same, {_VARIANTS[variant]}" for variant in manifest.variants]
    if answer_files(manifest):
        lines.append("- `answers/`: `query-id`, `corpus-id`, `answer`, and the `quote` at [`start`, `end`) of the text")
    for split in manifest.withheld:
        lines.append(
            f"- The labels of `{split}` are private, against leaks into training data: "
            "send in search results to have them scored."
        )
    lines.append("- `manifest.json`: every file with its SHA-256; `croissant.json`: the same for machines")
    return "\n".join(lines) + "\n"


_VARIANTS = {
    "positives": "without the 0s, for tools that take every row as a positive",
    "graded": "with the judge's levels 0 to 3",
    "soft": "with gains between 0 and 1",
}


def _levels(manifest: Manifest) -> str:
    start = manifest.info.relevant_from
    levels = sorted((manifest.info.levels or _LEVELS).items())
    rows = [[str(level), md(text), str(int(level >= start))] for level, text in levels]
    return (
        "## What a label means\n\n`qrels`: 1 is relevant; 0 is a hard negative, which looks relevant and is not. "
        "Other pairs are not labelled.\n\n"
        + markdown_table(["judge's level", "meaning", "`qrels`"], rows, [True, False, True])
    )


def _models(manifest: Manifest) -> str:
    if not manifest.provenance:
        return ""
    cells = ((use.role, use.model, use.prompt, use.version) for use in manifest.provenance)
    rows = [list(map(md, row)) for row in cells]
    return "## Models and prompts\n\n" + markdown_table(["used for", "model", "prompt", "version"], rows, [False] * 4)


def _funnel(manifest: Manifest) -> str:
    if not manifest.funnel:
        return ""
    rows = []
    for step in manifest.funnel:
        ordered = sorted(step.reasons.items(), key=lambda item: (-item[1], item[0]))
        reasons = "; ".join(f"{md(reason)}: {count:,}" for reason, count in ordered)
        rows.append([md(step.stage), f"{step.entered:,}", f"{step.left:,}", reasons])
    header = ["stage", "entered", "left", "why the others did not"]
    return "## Funnel\n\n" + markdown_table(header, rows, [False, True, True, False])


def _figures(title: str, values: Mapping[str, Any] | None) -> str:
    if not values:
        return ""
    rows = []
    for name, value in sorted(values.items()):
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, sort_keys=True)
        rows.append([md(name), md(text)])
    return f"## {title}\n\n" + markdown_table(["", ""], rows)


def _limits(manifest: Manifest) -> str:
    lines = [
        "## Intended use and limits",
        "",
        "For evaluating retrievers and re-rankers. Not for training: a model that saw the labels cannot be "
        "measured by them.",
        "",
        "- Queries and labels were made by models and inherit their errors and tastes; a retriever related to one of "
        "the models above may be favoured.",
        "- A document that the re-rankers did not bring to the top was never judged: it counts as not relevant, "
        "and may be relevant.",
        "- Documents marked 0 may have been written by a language model to look relevant. Nothing in them is a fact.",
    ]
    if manifest.audit is None:
        lines.append("- No person has checked a sample of these labels.")
    return "\n".join(lines) + "\n"


def _licences(manifest: Manifest) -> str:
    info = manifest.info
    corpus, labels = md(info.source_licence) or "unknown", md(info.labels_licence)
    return f"## Licences\n\nThe corpus: {corpus}. Queries and labels: {labels}.\n"


def _citation(manifest: Manifest) -> str:
    entry = manifest.info.citation or (
        f"@misc{{{re.sub(r'[^A-Za-z0-9]+', '-', manifest.info.name)},\n"
        f"  title = {{{manifest.info.name}: a retrieval benchmark made with airgen}},\n"
        f"  version = {{{manifest.info.version}}},\n"
        f"  note = {{data {manifest.digest[:16]}}},\n"
        "}"
    )
    paper = (
        "@misc{chen2024airbench,\n"
        "  title = {AIR-Bench: Automated Heterogeneous Information Retrieval Benchmark},\n"
        "  year = {2024},\n"
        "  eprint = {2412.13102},\n"
        "  archivePrefix = {arXiv},\n"
        "}"
    )
    return f"## Citation\n\n{_fence(entry + chr(10) + chr(10) + paper, 'bibtex')}"


def _pipeline(manifest: Manifest) -> str:
    if not manifest.pipeline_yaml:
        return ""
    return f"## Pipeline\n\nThis dataset is the outcome of:\n\n{_fence(manifest.pipeline_yaml.rstrip(), 'yaml')}"


def _fence(text: str, language: str) -> str:
    """A code block whose fence is longer than any in its content."""
    longest = max((len(run) for run in re.findall(r"`{3,}", text)), default=2)
    fence = "`" * (longest + 1)
    return f"{fence}{language}\n{text}\n{fence}\n"


def _code(text: str) -> str:
    return " ".join(text.replace("`", "'").split())


def _url(text: str) -> str:
    return text if re.fullmatch(r"https?://[^\s<>()\"'\\]+", text) else ""


def _size(passages: int) -> str:
    """The Hub's size category of a number of rows.

    >>> _size(999), _size(1000)
    ('n<1K', '1K<n<10K')
    """
    names = ["1K", "10K", "100K", "1M", "10M", "100M", "1B"]
    for power, name in enumerate(names):
        if passages < 10 ** (power + 3):
            return f"{names[power - 1]}<n<{name}" if power else f"n<{name}"
    return "n>1B"
