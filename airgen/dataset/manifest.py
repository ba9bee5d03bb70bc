"""A dataset's description: the manifest, statistics (as in the paper's Tables 16 to 21) and Croissant metadata (version
1.0).

`manifest.json` lists every file with its size and SHA-256, and contains all facts on the card. It is written last: a
directory without it is not a dataset. It contains no times and no paths, so equal content gives equal bytes. Only
`made_with` depends on the machine: on another machine, the same vectors and answers give the same files, but the last
digits of an encoder's output may differ.
"""

import dataclasses
import hashlib
import json
import platform
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any, ClassVar

from threadpoolctl import threadpool_info

from airgen.dataset.content import SHORT_NAME, DatasetInfo, FunnelStep, ModelUse, check_info
from airgen.display.study import Shown, Study, Table, columns
from airgen.errors import DatasetError
from airgen.safety.escaping import csv_text, json_text, markdown_table, md
from airgen.storage.json_values import adapter_of

FORMAT = 1
MANIFEST = "manifest.json"
_DERIVED = ("README.md", "croissant.json", MANIFEST)
_PRIVATE = "private/"
_COMPUTING = ("airgen-bench", "numpy", "onnxruntime", "tokenizers", "torch", "sentence-transformers", "xllamacpp")


@dataclass(frozen=True, slots=True)
class FileEntry:
    """A file's size in bytes and its SHA-256 in hex."""

    __pydantic_config__: ClassVar[dict[str, Any]] = {"extra": "forbid"}

    bytes: int
    sha256: str


@dataclass(frozen=True, slots=True)
class SplitStatistics:
    """Statistics of a split: the number of queries, their mean length in tokens, and the numbers of positives and hard
    negatives.

    The public part does not contain the numbers of labels of a withheld split, which are None.
    """

    __pydantic_config__: ClassVar[dict[str, Any]] = {"extra": "forbid"}

    queries: int
    mean_tokens: float
    positives: int | None
    hard_negatives: int | None


@dataclass(frozen=True, slots=True)
class Statistics:
    """Statistics of a dataset: the number of passages, their mean length in tokens (title and text), and each split."""

    __pydantic_config__: ClassVar[dict[str, Any]] = {"extra": "forbid"}

    passages: int
    mean_tokens: float
    splits: Mapping[str, SplitStatistics]


@dataclass(frozen=True, slots=True, repr=False)
class Manifest(Shown):
    """The content of `manifest.json`. `digest` identifies the data (see `data_digest`).

    `query_fields` are the names and types (string, int64, float64, bool) of the queries' metadata. `variants` are the
    label directories besides `qrels`. `withheld` are the splits whose labels are not in this directory. `part` is
    whole, public (without the withheld labels and the lineage) or labels (only what the public part lacks). `secret` is
    the public name of the secret on which ids and splits depend, or "". `notes` describe what was done to the dataset
    after its export, such as trimming. `made_with` is explained in the function of that name.
    """

    __pydantic_config__: ClassVar[dict[str, Any]] = {"extra": "forbid"}

    info: DatasetInfo
    statistics: Statistics
    files: Mapping[str, FileEntry]
    digest: str
    part: str = "whole"
    query_fields: Mapping[str, str] = field(default_factory=dict)
    variants: tuple[str, ...] = ()
    withheld: tuple[str, ...] = ()
    secret: str = ""
    provenance: tuple[ModelUse, ...] = ()
    funnel: tuple[FunnelStep, ...] = ()
    pipeline_yaml: str = ""
    audit: Mapping[str, Any] | None = None
    notes: Mapping[str, Any] = field(default_factory=dict)
    made_with: Mapping[str, str] = field(default_factory=dict)

    def study(self) -> Study:
        """Return the splits and what the data is, without the files and the funnel."""
        info, splits = self.info, self.statistics.splits
        rows = [
            (
                split,
                counts.queries,
                counts.positives,
                counts.hard_negatives,
                "withheld" if split in self.withheld else "",
            )
            for split, counts in splits.items()
        ]
        about = (
            f"{md(info.task)}, {md(', '.join(info.all_languages))}, {md(info.domain)}; {self.statistics.passages:,} "
            f"passages; {self.part}, {len(self.files)} files; licence of the labels: {md(info.labels_licence)}; "
            f"digest {self.digest[:16]}"
        )
        title = f"{info.name} {info.version}"
        names = ("split", "queries", "positives", "hard negatives", "labels")
        return Study(title, [Table(rows, columns(*names, left=(0, 4))), about])

    @property
    def labelled_splits(self) -> tuple[str, ...]:
        """Return the splits whose labels are in this directory, sorted."""
        return tuple(sorted(set(self.statistics.splits) - set(self.withheld)))

    @property
    def answer_files(self) -> list[str]:
        """Return the files of reference answers, by split."""
        names = (f"answers/{split}.jsonl" for split in self.labelled_splits)
        return [name for name in names if name in self.files]


def made_with() -> dict[str, str]:
    """Return the versions of the libraries that compute vectors and scores, and numpy's BLAS kernel on this
    processor."""
    versions = {"python": platform.python_version(), "machine": platform.machine()}
    for package in _COMPUTING:
        with suppress(metadata.PackageNotFoundError):
            versions[package] = metadata.version(package)
    for library in threadpool_info():
        if library["user_api"] == "blas" and "numpy" in library["filepath"]:
            versions["blas"] = (
                f"{library['internal_api']} {library['version']} {library.get('architecture', '')}".strip()
            )
    return versions


def data_digest(files: Mapping[str, FileEntry]) -> str:
    """Return the SHA-256 of the names and hashes of the corpus, queries and labels, without the card and lineage."""
    total = hashlib.sha256()
    for name in sorted(files):
        if name not in _DERIVED and not name.startswith(_PRIVATE) and name != "pipeline.yaml":
            total.update(f"{name}\0{files[name].sha256}\n".encode())
    return total.hexdigest()


def manifest_text(manifest: Manifest) -> str:
    """Return the text of manifest.json, with `format`, the fields of `DatasetInfo` and the other fields at the top
    level."""
    value = dataclasses.asdict(manifest)
    info = value.pop("info")
    for name in ("personal_data", "unmasked"):
        if not info[name]:
            del info[name]
    value = {"format": FORMAT, **info, **value}
    return json_text(value, allow_nan=False, indent=1, sort_keys=True) + "\n"


def load_manifest(directory: Path) -> Manifest:
    """Read and validate `manifest.json`. Raises DatasetError."""
    path = directory / MANIFEST
    if not directory.is_dir():
        raise DatasetError(f"{directory} is not a directory")
    if not path.is_file():
        raise DatasetError(f"{directory} has no {MANIFEST}, so it is not a finished dataset: export it again")
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise DatasetError(f"{path} is not JSON ({error}): export the dataset again") from error
    except OSError as error:
        raise DatasetError(f"{path} cannot be read: {error.strerror}") from error
    if not isinstance(value, dict):
        raise DatasetError(f"{path} is not a JSON object: export the dataset again")
    version = value.pop("format", None)
    if version != FORMAT:
        advice = "read it with the airgen that wrote it, or export the dataset again"
        raise DatasetError(f"{path} has format {version!r}, this airgen reads {FORMAT}: {advice}")
    names = {item.name for item in dataclasses.fields(DatasetInfo)}
    nested: dict[str, Any] = {key: item for key, item in value.items() if key not in names}
    nested["info"] = {key: item for key, item in value.items() if key in names}
    manifest = _parse(nested, path)
    _check_names(manifest, path)
    return manifest


def _check_names(manifest: Manifest, path: Path) -> None:
    """Check names that become paths, because a manifest is untrusted."""
    check_info(manifest.info)
    for kind, names in (("split", [*manifest.statistics.splits, *manifest.withheld]), ("variant", manifest.variants)):
        for name in names:
            if not SHORT_NAME.fullmatch(name):
                raise DatasetError(f"{path}: {kind} {name!r} cannot be a part of a file's name")
    for name in manifest.files:
        parts = name.split("/")
        if any(part in ("", ".", "..") for part in parts) or any(char in name for char in "\\\0"):
            raise DatasetError(f"{path}: the file {name!r} lies outside the dataset")


def _parse(value: dict[str, Any], path: Path) -> Manifest:
    import pydantic  # slow to import, and needed here only

    try:
        manifest: Manifest = adapter_of(Manifest).validate_python(value)
        return manifest
    except pydantic.ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"])
        more = f" (and {error.error_count() - 1} more)" if error.error_count() > 1 else ""
        advice = "it may have been edited by hand; export the dataset again"
        raise DatasetError(f"{path}: {place}: {first['msg']}{more}: {advice}") from error


Row = Mapping[str, str | int | float]

# In Chinese, Japanese and Korean each character counts, in other scripts each run of letters and digits.
_IDEOGRAPHS = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff"
_WORD = re.compile(f"[{_IDEOGRAPHS}]|[^\\W{_IDEOGRAPHS}]+")


def count_words_and_characters(text: str) -> int:
    """Count words, counting each Chinese, Japanese or Korean character as a word.

    >>> count_words_and_characters("nDCG@10, 検索")
    4
    """
    return sum(1 for _ in _WORD.finditer(text))


def _paper_order(manifest: Manifest) -> tuple[bool, str, str, str]:
    info = manifest.info
    return info.task != "qa", info.domain, info.language, info.name


def table_rows(manifests: Iterable[Manifest]) -> list[dict[str, str | int | float]]:
    """Return one row per dataset and split, in the paper's order: task, domain, language, name, split."""
    rows: list[dict[str, str | int | float]] = []
    for manifest in sorted(manifests, key=_paper_order):
        info, statistics = manifest.info, manifest.statistics
        rows += [
            {
                "task": info.task,
                "domain": info.domain,
                "language": info.language,
                "dataset": info.name,
                "source": info.source,
                "licence": info.source_licence,
                "passages": statistics.passages,
                "mean tokens of passages": round(statistics.mean_tokens, 1),
                "split": split,
                "queries": part.queries,
                "mean tokens of queries": round(part.mean_tokens, 1),
                "positives": "" if part.positives is None else part.positives,
                "hard negatives": "" if part.hard_negatives is None else part.hard_negatives,
            }
            for split, part in sorted(statistics.splits.items())
        ]
    return rows


def statistics_markdown(rows: Sequence[Row]) -> str:
    """Format the rows as a Markdown table with right-aligned numbers and thousands separators."""
    if not rows:
        return ""
    right = [all(isinstance(row[column], int | float) or row[column] == "" for row in rows) for column in rows[0]]
    return markdown_table(list(rows[0]), [list(map(_cell, row.values())) for row in rows], right)


def statistics_csv(rows: Sequence[Row]) -> str:
    """Format one or more rows as CSV with a header."""
    return csv_text(list(rows[0]), [list(row.values()) for row in rows])


def _cell(value: str | int | float) -> str:
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:,.1f}" if isinstance(value, float) else md(value)


_OWN_TERMS = (
    "citeAs column equivalentProperty extract field fileObject fileProperty fileSet format includes isLiveDataset "
    "jsonPath key md5 parentField path recordSet references regex repeated replace samplingRate separator source "
    "subField transform"
)
_CONTEXT = {
    "@language": "en",
    "@vocab": "https://schema.org/",
    "conformsTo": "dct:conformsTo",
    "cr": "http://mlcommons.org/croissant/",
    "data": {"@id": "cr:data", "@type": "@json"},
    "dataType": {"@id": "cr:dataType", "@type": "@vocab"},
    "dct": "http://purl.org/dc/terms/",
    "examples": {"@id": "cr:examples", "@type": "@json"},
    "rai": "http://mlcommons.org/croissant/RAI/",
    "sc": "https://schema.org/",
    **{term: f"cr:{term}" for term in _OWN_TERMS.split()},
}
_CONTEXT = dict(sorted(_CONTEXT.items()))


def table_fields(table: str) -> dict[str, type]:
    """Return the names and types of the columns of a table: corpus, queries (without metadata), answers, qrels,
    qrels-soft..."""
    if table in ("corpus", "queries"):
        return dict.fromkeys(("_id", "title", "text") if table == "corpus" else ("_id", "text"), str)
    pair: dict[str, type] = {"query-id": str, "corpus-id": str}
    if table == "answers":
        return pair | {"answer": str, "quote": str, "start": int, "end": int}
    return pair | {"score": float if table == "qrels-soft" else int}


def croissant_text(manifest: Manifest) -> str:
    """Return the text of croissant.json: every JSONL data file with its hash, and the fields of its rows."""
    info = manifest.info
    tables = {"corpus": "corpus.jsonl", "queries": "queries.jsonl"}
    for folder in ("qrels", *(f"qrels-{variant}" for variant in manifest.variants)):
        tables |= {f"{folder}-{split}": f"{folder}/{split}.jsonl" for split in manifest.labelled_splits}
    tables |= {f"answers-{split}": f"answers/{split}.jsonl" for split in manifest.labelled_splits}
    value: dict[str, Any] = {
        "@context": _CONTEXT,
        "@type": "sc:Dataset",
        "conformsTo": "http://mlcommons.org/croissant/1.0",
        "name": info.name,
        "description": info.description or f"A retrieval benchmark: task {info.task}, domain {info.domain}.",
        "inLanguage": list(info.all_languages),
        "license": info.labels_licence,
        "version": info.version,
        "keywords": ["information retrieval", "benchmark", info.task, info.domain],
        "distribution": [_file(manifest, path) for path in tables.values() if path in manifest.files],
        "recordSet": [_record_set(name, path) for name, path in tables.items() if path in manifest.files],
    }
    if info.source_url:
        value["isBasedOn"] = info.source_url
    if info.citation:
        value["citeAs"] = info.citation
    return json_text(value, indent=1) + "\n"


def _file(manifest: Manifest, path: str) -> dict[str, Any]:
    entry = manifest.files[path]
    return {
        "@type": "cr:FileObject",
        "@id": path,
        "name": path,
        "contentUrl": path,
        "contentSize": f"{entry.bytes} B",
        "encodingFormat": "application/jsonlines",
        "sha256": entry.sha256,
    }


def _record_set(name: str, path: str) -> dict[str, Any]:
    kinds = {str: "sc:Text", int: "sc:Integer", float: "sc:Float"}
    return {
        "@type": "cr:RecordSet",
        "@id": name,
        "name": name,
        "field": [
            {
                "@type": "cr:Field",
                "@id": f"{name}/{field}",
                "name": field,
                "dataType": kinds[kind],
                "source": {"fileObject": {"@id": path}, "extract": {"column": field}},
            }
            for field, kind in table_fields(path.partition("/")[0].removesuffix(".jsonl")).items()
        ],
    }
