"""Read scores of systems on benchmarks from airgen's results, MTEB's results or a table.

    rows = read_system_scores(Path("mteb-results"))         # one ScoreRow for each model, task and subset
    sets = benchmarks({"mteb": rows}, by="folder")          # the mean of each system over the folder's datasets

MTEB writes `MODEL/REVISION/TASK.json` next to a `model_meta.json`. Earlier versions used another file format, which is
recognised by its content, so a clone of MTEB's results repository can be read as is.
"""

import json
import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from airgen.components.registry import closest
from airgen.errors import DatasetError, UsageError
from airgen.evaluation.result import Paths, load_result, read_scores
from airgen.safety.escaping import one_line
from airgen.storage.yaml_text import read_yaml
from airgen.tables import Role, TableColumn, choose
from airgen.tables.cells import finite_number
from airgen.tables.read import read
from airgen.tables.vocabulary import names

GroupBy = Literal["folder", "task", "domain", "language", "dataset"]

_LARGEST_FILE_BYTES = 64 << 20  # maximum bytes per file
_MOST_FILES = 200_000  # maximum files per folder
_SPLITS = ("test", "dev", "validation")  # the first of these that a task has is used
_META = "model_meta.json"


@dataclass(frozen=True, slots=True)
class ScoreRow:
    """One mean score of a system.

    Attributes:
        part: The subset of a dataset with several subsets, such as a language in MIRACL, or "".
        by_query: Function that reads {query id: score}, if the source has these scores.
    """

    system: str
    dataset: str
    value: float
    split: str = ""
    part: str = ""
    task: str = ""
    domain: str = ""
    language: str = ""
    by_query: Callable[[], Mapping[str, float]] | None = field(default=None, compare=False)

    @property
    def where(self) -> tuple[str, str, str]:
        """Describe what the system was scored on."""
        return self.dataset, self.split, self.part


@dataclass(frozen=True)
class BenchmarkMeans:
    """The mean score of each system over some datasets.

    Attributes:
        incomplete: {system: number of missing datasets} for systems that have no mean.
        rows: {dataset: {part: {system: score}}} for the systems with a mean.
    """

    name: str
    means: Mapping[str, float]
    incomplete: Mapping[str, int]
    rows: Mapping[str, Mapping[tuple[str, str, str], Mapping[str, ScoreRow]]]

    def queries(self, systems: Sequence[str]) -> list[list[NDArray[np.float64]]] | None:
        """Read the scores per query, (systems, queries), for each part of each dataset, or None if any are unknown."""
        matrices: list[list[NDArray[np.float64]]] = []
        for parts in self.rows.values():
            matrices.append([])
            for scores in parts.values():
                readers = [scores[system].by_query for system in systems]
                if any(reader is None for reader in readers):
                    return None
                values = [reader() for reader in readers if reader is not None]
                if any(value.keys() != values[0].keys() for value in values) or not values[0]:
                    return None
                matrices[-1].append(np.array([[value[key] for key in sorted(values[0])] for value in values]))
        return matrices


def read_system_scores(source: Path, *, measure: str | None = None, split: str | None = None) -> list[ScoreRow]:
    """Read all scores in a folder of results, or in a CSV or TSV table with a row per system.

    Args:
        source: The folder or table.
        measure: A measure in airgen's results. Default: the one that ranks systems on the dataset. MTEB's files have a
            main score.
        split: The split to use if a dataset has several. Default: test, dev, validation, or the first.

    Raises:
        DatasetError: The source cannot be read, or has no scores.
    """
    if source.is_file():
        rows = _table(source)
    elif source.is_dir():
        # Next to each MTEB file that airgen writes is the result itself, which has more information.
        paths = (path for path in source.rglob("*.json") if path.name != _META and not path.name.endswith(".mteb.json"))
        files = sorted(path for path in paths if path.is_file())
        if len(files) > _MOST_FILES:
            raise DatasetError(f"{source}: more than {_MOST_FILES:,} JSON files: name a folder inside it")
        rows = [row for path in files for row in _file_scores(path, measure)]
        splits: dict[str, set[str]] = {}
        for row in rows:
            splits.setdefault(row.dataset, set()).add(row.split)
        # The same split for all systems, so that all answer the same queries.
        order = (*([split] if split else []), *_SPLITS)
        chosen = {
            dataset: next((name for name in order if name in of_dataset), min(of_dataset))
            for dataset, of_dataset in splits.items()
        }
        rows = [row for row in rows if row.split == chosen[row.dataset]]
    else:
        raise DatasetError(f"{source}: no such file or folder")
    if not rows:
        of_measure = f" of the measure {measure}" if measure else ""
        raise DatasetError(
            f"{source}: no scores{of_measure}: give a folder that `airgen evaluate --out` wrote, a folder of MTEB's "
            "results, or a CSV table with a row for each system"
        )
    return rows


def _file_scores(path: Path, measure: str | None) -> list[ScoreRow]:
    """Read the scores in a JSON file; none if it contains something else."""
    value = _read_json(path)
    if not isinstance(value, dict):
        return []
    if "means" in value and "headline" in value:
        return _airgen_scores(path, measure)
    if isinstance(value.get("task_results"), list):  # all tasks of a model, as MTEB's ModelResult writes them
        name = str(value.get("model_name") or path.stem)
        return [row for task in value["task_results"] if isinstance(task, dict) for row in _mteb_scores(task, name)]
    if "task_name" in value or "mteb_dataset_name" in value:
        meta = _read_json(path.with_name(_META))
        named = meta.get("name") if isinstance(meta, dict) else None
        folder = path.parent.parent.name.replace("__", "/")
        return list(_mteb_scores(value, named if isinstance(named, str) and named else folder))
    return []


def _read_json(path: Path) -> Any:
    try:
        if path.stat().st_size > _LARGEST_FILE_BYTES:
            return None
        return json.loads(path.read_text(encoding="utf-8", errors="surrogatepass"))
    except (OSError, ValueError, RecursionError):
        return None  # it is not a result


def _airgen_scores(path: Path, measure: str | None) -> list[ScoreRow]:
    paths = Paths.of(path.parent, path.stem)
    result = load_result(paths)
    if result is None:
        raise DatasetError(f"{path}: the result is damaged, or another version wrote it: run `airgen evaluate` again")
    wanted = measure or result.headline
    if wanted not in result.means:
        return []
    about = {name: str(result.about.get(name) or "") for name in ("task", "domain", "language")}
    by_query = partial(read_scores, paths.scores, wanted) if paths.scores.is_file() else None
    return [ScoreRow(result.name, result.dataset, result.means[wanted], result.split, by_query=by_query, **about)]


def _mteb_scores(value: Mapping[str, Any], model: str) -> Iterator[ScoreRow]:
    """Yield the main scores of a task by split and subset; none if it is not in MTEB's format."""
    if "task_name" in value:
        scores = value.get("scores")
        splits = scores if isinstance(scores, dict) else {}
    else:  # before MTEB 1.11: {split: {subset: {...}} or {...}}
        splits = {
            name: [{"hf_subset": key, **subset} for key, subset in entry.items() if isinstance(subset, dict)]
            or [{"hf_subset": "default", **entry}]
            for name, entry in value.items()
            if isinstance(entry, dict)
        }
    task = one_line(value.get("task_name") or value.get("mteb_dataset_name"), 200)
    for split, subsets in splits.items():
        for subset in subsets if isinstance(subsets, list) else ():
            score = subset.get("main_score", subset.get("ndcg_at_10")) if isinstance(subset, dict) else None
            if (number := finite_number(score)) is None:
                continue
            part = str(subset.get("hf_subset") or "default")
            languages = subset.get("languages")
            language = "+".join(map(str, languages)) if isinstance(languages, list) else ""
            yield ScoreRow(
                system=model,
                dataset=task,
                value=number,
                split=str(split),
                part="" if part == "default" else one_line(part, 100),
                language=one_line(language, 100),
            )


_SYSTEMS, _DATASETS = names("system"), names("dataset")


def _is_score(column: TableColumn) -> bool:
    return column.numbers >= 0.9


_LONG = {
    "system": Role("the system", _SYSTEMS, lambda column: column.letters >= 0.5),
    "dataset": Role("the dataset", _DATASETS, lambda column: column.letters >= 0.5),
    "score": Role("the score", names("mean"), _is_score),
}


def _table(path: Path) -> list[ScoreRow]:
    """Read a table with a row per system and a column per dataset, or with a row per system and dataset.

    Empty cells are left out.
    """
    if path.is_file() and path.stat().st_size > _LARGEST_FILE_BYTES:
        raise DatasetError(f"{path}: more than {_LARGEST_FILE_BYTES >> 20} MB is not a table of scores")
    table = read(path, known={*_SYSTEMS, *_DATASETS}, header=True)
    columns = table.columns()
    if len(columns) < 2:
        raise DatasetError(f"{path}: a table needs a header with `system` and a column for each benchmark")
    choice = choose(columns, _LONG, where=str(path))
    system, names, values = (choice[role] or "" for role in _LONG)
    if system and names and values:
        cells = [(number, row.get(system), row.get(names), row.get(values)) for number, row in table.rows]
    else:
        system = system or columns[0].name
        cells = [
            (number, row.get(system), name, value)
            for number, row in table.rows
            for name, value in row.items()
            if name != system
        ]
    rows = []
    for number, of, dataset, value in cells:
        if value is None or not str(value).strip():
            continue
        try:
            score = math.nan if isinstance(value, bool) else float(value)
        except (TypeError, ValueError, OverflowError):
            score = math.nan
        if not math.isfinite(score):
            raise DatasetError(f"{table.where(number)}: {one_line(value, 40)!r} of {dataset} is not a number")
        rows.append(ScoreRow(str(of).strip(), str(dataset).strip(), score))
    return rows


def read_names(path: Path) -> dict[str, str]:
    """Read a mapping {name in a source: common name} from YAML. Raises UsageError for anything else."""
    try:
        value, _ = read_yaml(path.read_text(encoding="utf-8"), str(path))
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path}: cannot be read ({error})") from error
    if not isinstance(value, dict) or not all(isinstance(name, str) for pair in value.items() for name in pair):
        raise UsageError(f"{path}: a mapping of names is needed, such as `intfloat/e5-large-v2: e5-large`")
    return dict(value)


def _common_name(name: str, names: Mapping[str, str]) -> str:
    """Return the name that matches systems across sources: the name in the mapping, or else the part after the
    owner."""
    return (names.get(name) or name.rpartition("/")[2]).casefold()


def benchmarks(
    sources: Mapping[str, Sequence[ScoreRow]],
    *,
    by: GroupBy = "folder",
    names: Mapping[str, str] | None = None,
    only: Sequence[str] = (),
    datasets: Sequence[str] = (),
) -> list[BenchmarkMeans]:
    """Group scores into columns to compare: each source as a whole, or by task, domain, language or dataset. Tasks
    have different main measures, so a column is never over two of them.

    A system has a mean only if it has scores on all datasets in the column. A dataset with several parts counts with
    their mean.

    Args:
        sources: Scores by source.
        by: How to group the datasets of a source.
        names: {name in a source: common name}. Other systems are matched by the name after the owner, ignoring case
            (`intfloat/e5-large-v2` is `e5-large-v2`).
        only: The systems to include. Default: all.
        datasets: The datasets to include. Default: all.

    Raises:
        UsageError: Two systems in a source get the same name, or a system in `only` or a dataset is not in any source.
    """
    names, wanted = dict(names or {}), [_common_name(name, names or {}) for name in only]
    columns: dict[str, dict[str, dict[tuple[str, str, str], dict[str, ScoreRow]]]] = {}
    seen: set[str] = set()
    known = {row.dataset for rows in sources.values() for row in rows}
    if missing := [name for name in datasets if name not in known]:
        raise UsageError(f"no source has the dataset {missing[0]!r}{closest(missing[0], sorted(known))}")
    for source, rows in sources.items():
        tasks = {row.task for row in rows if row.task}
        for row in rows if not datasets else [row for row in rows if row.dataset in datasets]:
            system = _common_name(row.system, names)
            seen.add(system)
            if wanted and system not in wanted:
                continue
            label = "" if by == "folder" else (getattr(row, by) or f"no {by}")
            parts = [source if len(sources) > 1 or not label else "", label]
            if len(tasks) > 1 and by not in ("task", "dataset"):
                parts.append(row.task or "no task")
            title = ": ".join(filter(None, parts))
            cells = columns.setdefault(title, {}).setdefault(row.dataset, {}).setdefault(row.where, {})
            if system in cells:
                raise UsageError(
                    f"{source}: {cells[system].system!r} and {row.system!r} both have a score on {row.dataset} and "
                    f"would both be {system!r}: give them different names with --names"
                )
            cells[system] = row
    if missing := [name for name in wanted if name not in seen]:
        raise UsageError(f"no source has the system {missing[0]!r}{closest(missing[0], sorted(seen))}")
    return [_benchmark(title, cells) for title, cells in columns.items()]


def _benchmark(
    title: str, cells: Mapping[str, Mapping[tuple[str, str, str], Mapping[str, ScoreRow]]]
) -> BenchmarkMeans:
    each = [scores for parts in cells.values() for scores in parts.values()]
    count = Counter(system for scores in each for system in scores)
    complete = [system for system, covered in count.items() if covered == len(each)]
    means = {
        system: float(np.mean([np.mean([rows[system].value for rows in parts.values()]) for parts in cells.values()]))
        for system in complete
    }
    incomplete = {system: len(each) - covered for system, covered in count.items() if covered < len(each)}
    return BenchmarkMeans(title, means, incomplete, cells)
