"""Write the pipeline for `airgen label`: the models and judge of another pipeline, for existing queries.

    path = label_pipeline(Path("log.csv"), Path("pipeline.yaml"), sample=500)      # log.yaml, next to pipeline.yaml

`airgen run` does the rest with this file, so `airgen show` and `airgen check` work with it too.
"""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from airgen.corpus.settings import AS_IS, find_manifest
from airgen.dataset.beir import BeirDataset
from airgen.errors import DatasetError, SettingsError, StoreError, UsageError
from airgen.job.starter import name_of
from airgen.job.user_query_files import files_behind, queries_path
from airgen.settings import Labelling
from airgen.settings.base import find_yaml, parse_yaml
from airgen.settings.control import NONE, VOTES
from airgen.storage.paths import RUNS, beside, is_shipped
from airgen.storage.store import Store
from airgen.storage.whole_files import keep_copy, write_text
from airgen.storage.yaml_text import read_yaml

_HEADER = "# Written by `airgen label`: `airgen run` with this file continues it. {}\n"
_NO_DOCUMENTS = "no corpus is given: use --corpus (a corpus YAML, which `airgen init DOCUMENTS` writes)"


def label_pipeline(
    queries: Path,
    pipeline: Path,
    *,
    corpus: str | None = None,
    name: str = "",
    sample: int | None = None,
    labels: Sequence[Path] | None = None,
    of_labels: Mapping[str, Any] | None = None,
    systems: Path | None = None,
    judge: bool = True,
    settings: Mapping[str, Any] | None = None,
    runs: Path | None = None,
) -> Path:
    """Write NAME.yaml next to `pipeline` (or in the working directory for a shipped pipeline) and return its path.

    `corpus` is a YAML file or a shipped name; the default is the corpus of a BEIR folder of queries, or the pipeline's.
    `labels` are files, with `of_labels` as their settings; the default is the qrels of a BEIR folder. `systems` is a
    YAML file whose hits join the recall, and `settings` are other fields of `queries:`. Without `judge`, only the
    labels count. Raises UsageError if there are none, or if NAME.yaml differs in more than the sample and its job in
    `runs` has begun, SettingsError for invalid settings, DatasetError for a missing file, and CorpusError for a
    missing corpus.
    """
    base = find_yaml("pipelines", pipeline)
    value, _ = read_yaml(base.read_text(encoding="utf-8-sig"), str(base))
    if not isinstance(value, dict):
        raise SettingsError([f"{base}: contains no pipeline"])
    if not queries.exists():
        raise DatasetError(f"{queries}: no such file", code="no_file", where=queries)
    folder = beside(base)
    name = name or name_of(queries)
    # A dataset repeats queries on purpose, but a log does not.
    duplicates = {"duplicates": "keep"} if queries.is_dir() else {}
    own_queries = {"file": _relative(queries, folder), **duplicates, **(settings or {})}
    if labels is None:
        every = sorted(path for path in (queries / "qrels").glob("*") if path.suffix in (".tsv", ".jsonl"))
        labels = list({path.stem: path for path in every}.values())
    if labels:
        own_queries["labels"] = [{"file": _relative(path, folder), **(of_labels or {})} for path in labels]
    prompts = (value.get("generation") or {}).get("prompts")
    control = {**(value.get("control") or {}), **({"systems": _relative(systems, folder)} if systems else {})}
    judges = control.get("judge")
    unmeasured = not labels and isinstance(judges, dict) and judges.get("kind") == VOTES
    if not judge:
        if not labels:
            raise UsageError("--no-judge: only labels count, and there are none: name a file with --labels")
        control = {"judge": {"kind": NONE}}
    elif unmeasured:
        control["judge"] = {"kind": "yes-no"}
    values = {
        "name": name,
        "task": value.get("task", "qa"),
        "corpus": _corpus(queries, corpus, pipeline=value, folder=folder, name=name, shipped=is_shipped(base)),
        **{key: value[key] for key in ("language", "domain", "relevance", "seed") if key in value},
        **({"target": sample} if sample else {}),
        "queries": own_queries,
        "llm": value.get("llm"),
        **({"generation": {"prompts": prompts}} if prompts else {}),
        "control": control,
        "export": {**(value.get("export") or {}), "splits": {"test": 1}, **_ids(queries, labels)},
        **({"evaluate": {**value["evaluate"], "split": "test"}} if value.get("evaluate") else {}),
    }
    where = "Its models and its judge are those of " + base.name
    if not judge:
        where = "No model judges: only the labels count"
    elif unmeasured:
        where = f"Its models are those of {base.name}. Votes need a known relevant passage, so its LLM judges"
    text = _HEADER.format(where) + yaml.safe_dump(values, sort_keys=False, allow_unicode=True, width=100)
    path = folder / f"{name}.yaml"
    written = parse_yaml(text, Labelling, str(path), folder.resolve())
    files_behind(written.queries, folder)
    find_manifest(written.corpus, folder)
    _write(path, text, values, begun=_has_begun((runs or folder / RUNS) / name / "work.duckdb"))
    return path


def _ids(queries: Path, labels: Sequence[Path] | None) -> dict[str, Any]:
    """Return the settings for the ids of the dataset. The user's own ids are kept. In a FAQ, however, a query has the
    id of its answer, which would reveal the labels, so the ids are new."""
    same = any(path.resolve() == queries.resolve() for path in labels or ())
    return {"ids": "opaque" if same else "original"}


def _has_begun(database: Path) -> bool:
    """Return whether a work database has answers or labels, which belong to the settings of its pipeline."""
    if not database.is_file():
        return False
    try:
        with Store.open(database, read_only=True) as store:
            return bool(store.query("SELECT 1 FROM answer WHERE error = '' UNION ALL SELECT 1 FROM plan LIMIT 1"))
    except StoreError:  # another process has it open
        return True


def _write(path: Path, text: str, values: Mapping[str, Any], *, begun: bool) -> None:
    if path.exists():
        value, _ = read_yaml(path.read_text(encoding="utf-8-sig"), str(path))
        existing = value if isinstance(value, dict) else {}
        if begun and {**existing, "target": 0} != {**values, "target": 0}:
            other = [key for key in values if existing.get(key) != values[key]]
            raise UsageError(
                f"{path}: already exists with other settings ({', '.join(other) or 'more'}): change them there and "
                f"continue with `airgen run {path}`, or choose another --name"
            )
        if existing == values:
            return  # unchanged, with its author's comments
        keep_copy(path, text)
    write_text(path, text)


def _relative(path: Path, folder: Path) -> str:
    """Return the path as a YAML file in `folder` names it."""
    return Path(os.path.relpath(path.expanduser().resolve(), folder.resolve())).as_posix()


def _corpus(
    queries: Path, corpus: str | None, pipeline: Mapping[str, Any], folder: Path, name: str, shipped: bool
) -> str:
    """Return the value of `corpus:`. For a BEIR folder with a corpus, a corpus YAML is written."""
    if corpus is not None:
        path = Path(corpus)
        return _relative(path, folder) if path.is_file() else corpus
    own = [queries / name for name in ("corpus.jsonl", "corpus.jsonl.gz") if (queries / name).is_file()]
    if not own:
        if not pipeline.get("corpus") or shipped:
            raise UsageError(_NO_DOCUMENTS)
        return str(pipeline["corpus"])
    info = BeirDataset(queries_path(queries).parent).info
    path = folder / f"{name}-corpus.yaml"
    values = {
        "name": f"{name}-corpus",
        "language": str(info.get("language") or pipeline.get("language") or "en"),
        "domain": str(info.get("domain") or pipeline.get("domain") or "web"),
        "licence": str(info.get("source_licence") or "unknown"),
        "source": str(info.get("source") or name),
        "reader": {"kind": "beir", "path": _relative(queries, folder)},
        "clean": dict(AS_IS),  # a dataset is clean, and its labels need all its documents
    }
    text = _HEADER.format(f"The passages are those of {queries.name}") + yaml.safe_dump(values, sort_keys=False)
    if not path.exists():
        write_text(path, text)
    return path.name
