"""A finished benchmark: its corpus, queries and labels as tables and mappings, which can be exported to other tools.

    bench = load("runs/handbook/dataset")
    bench.queries["q-1"]; bench.qrels["q-1"]; bench.to_pandas()
    bench.to_ranx(); bench.to_mteb("Handbook"); bench.to_ragas(); bench.save("handbook/")

Every function that takes a dataset also accepts a Benchmark.
"""

import os
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property, partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, Literal, Self, TypeVar, overload

from airgen.components.registry import closest, load_extra
from airgen.dataset.beir import BeirDataset, typed_rows
from airgen.dataset.human_labels import AGREEMENT, agreement_text
from airgen.dataset.manifest import MANIFEST
from airgen.display.study import Column, Study, Table, fragment
from airgen.errors import DatasetError, UsageError
from airgen.python.entrance import entrance
from airgen.safety.escaping import md, one_line
from airgen.settings.languages import language_name

if TYPE_CHECKING:
    from airgen.job.run_result import RunResult
    from airgen.python.recipe import JobRecipe

V = TypeVar("V")


class Records(Mapping[str, V], Generic[V]):
    """A mapping of records by id, in the order of their file, which can also be shown as a table.

    A whole number that is no id is a position, and a slice selects by position: `queries[0]` is the first, and
    `queries[:5]` has the first five.
    """

    def __init__(self, name: str, values: Mapping[str, V], rows: Callable[[str, V], list[dict[str, Any]]]) -> None:
        self._name, self._values, self._rows = name, values, rows

    @overload
    def __getitem__(self, key: str | int) -> V: ...
    @overload
    def __getitem__(self, key: slice) -> "Records[V]": ...

    def __getitem__(self, key: str | int | slice) -> "V | Records[V]":
        if isinstance(key, slice):
            return Records(self._name, {id_: self._values[id_] for id_ in list(self._values)[key]}, self._rows)
        if isinstance(key, int):
            if not -len(self) <= key < len(self):
                raise IndexError(f"no position {key} among the {len(self):,} {self._name}")
            return self._values[list(self._values)[key]]
        try:
            return self._values[key]
        except KeyError:
            known = list(self._values) if len(self._values) < 10_000 else []
            raise KeyError(
                f"no {key!r} among the {self._name}{closest(key, known) if len(known) < 100 else ''}"
            ) from None

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def rows(self) -> list[dict[str, Any]]:
        """Return the rows of the table, in the order of the file."""
        return [row for key, value in self._values.items() for row in self._rows(key, value)]

    def to_pandas(self) -> Any:
        """Return the table as a data frame. Raises MissingExtra if pandas is not installed."""
        return load_extra("pandas", "to_pandas()").DataFrame(self.rows())

    def __repr__(self) -> str:
        some = ", ".join(f"{key!r}: {one_line(repr(value), 60)}" for key, value in islice(self._values.items(), 3))
        return f"{len(self):,} {self._name}" + (f": {some}{', ...' if len(self) > 3 else ''}" if some else "")

    def _repr_html_(self) -> str:
        some = [
            row
            for _, (key, value) in zip(range(20), self._values.items(), strict=False)
            for row in self._rows(key, value)
        ][:20]
        names = list(dict.fromkeys(name for row in some for name in row))[:8]
        columns = [Column(name, partial(_short, name), left=True) for name in names]
        return fragment([f"{len(self):,} {self._name}", Table(some, columns)])


def _short(name: str, row: Mapping[str, Any]) -> Any:
    value = row.get(name)
    return value if value is None or isinstance(value, int | float) else str(value)[:200]


class Benchmark(os.PathLike[str]):
    """A dataset in BEIR format: passages, queries and relevance labels.

    Args:
        path: The dataset's folder.
        recipe: The recipe that made the dataset, if `generate` or `label` did.
        run: The result of the run that made the dataset.
        only: The only split to use. Default: all splits.

    Raises:
        DatasetError: The folder holds no dataset, or the dataset has no such split.
    """

    def __init__(
        self, path: str | Path, *, recipe: "JobRecipe | None" = None, run: "RunResult | None" = None, only: str = ""
    ) -> None:
        self.dataset = BeirDataset.open(path)
        self.path, self.recipe, self.run, self.only = Path(path), recipe, run, only
        self._state = _state_of(self.dataset)
        if only and only not in self.dataset.splits:
            raise DatasetError(f"{path}: no split {only!r}{closest(only, self.dataset.splits)}")

    @classmethod
    def load(cls, path: "str | Path | Benchmark") -> Self:
        """Open the folder of a dataset or of a job. Raises DatasetError if it holds no dataset."""
        place = path.path if isinstance(path, Benchmark) else Path(path)
        inside = place / "dataset"
        return cls(inside if (inside / "manifest.json").is_file() else place)

    def __fspath__(self) -> str:
        """Return the folder.

        Raises:
            UsageError: The benchmark is one of several splits, whereas the folder holds all of them; or another run of
                the job has made another version of it.
        """
        if self.only and len(self.dataset.splits) > 1:
            raise UsageError(
                f"this is the split {self.only!r} alone: pass the whole benchmark, and split={self.only!r}"
            )
        if self._state != (now := _state_of(BeirDataset.open(self.path))):
            was, is_now = (f"{version} ({count:,} queries)" for version, count, _ in (self._state, now))
            raise UsageError(
                f"{self.path}: holds version {is_now} now, and this Benchmark is version {was}: load it again "
                f"(airgen.load({str(self.path)!r})){self._earlier}"
            )
        return str(self.path)

    @property
    def _earlier(self) -> str:
        """Say where the version of this benchmark is kept, if it is."""
        kept = self.path.parent / "versions" / self._state[0]
        is_kept = (kept / MANIFEST).is_file() and _state_of(BeirDataset.open(kept)) == self._state
        return f", or the earlier version ({str(kept)!r})" if is_kept else ""

    @property
    def name(self) -> str:
        """Name of the dataset."""
        return self.dataset.name

    @property
    def splits(self) -> list[str]:
        """Names of the splits that have labels."""
        return [self.only] if self.only else list(self.dataset.splits)

    def split(self, name: str) -> "Benchmark":
        """Return the benchmark with the queries of one split only. Raises DatasetError for an unknown split."""
        return Benchmark(self.path, recipe=self.recipe, run=self.run, only=name)

    @cached_property
    def corpus(self) -> Records[dict[str, Any]]:
        """The passages as {id: {"title": ..., "text": ...}}, with "metadata" if the corpus has any."""
        values = {
            row.id: {"title": row.title, "text": row.text, **({"metadata": dict(row.metadata)} if row.metadata else {})}
            for row in self.dataset.passages()
        }
        return Records("passages", values, lambda key, value: [{"_id": key, **_flat(value)}])

    @cached_property
    def queries(self) -> Records[str]:
        """The queries that have labels, as {id: text}. The table also has metadata, such as type and length."""
        every_query = self.dataset.queries()
        known = {key: every_query[key] for key in self.qrels if key in every_query}
        metadata = {key: dict(query.metadata) for key, query in known.items()}
        texts = {key: query.text for key, query in known.items()}
        return Records("queries", texts, lambda key, text: [{"_id": key, "text": text, **_flat(metadata[key])}])

    @cached_property
    def qrels(self) -> Records[dict[str, int]]:
        """The relevance labels as {query id: {passage id: label}}. Labels of 1 and above are relevant, and 0 is a hard
        negative."""
        values: dict[str, dict[str, int]] = {}
        for split in self.splits:
            for query, labels in self.dataset.qrels(split).labels.items():
                values[query] = {passage: _whole(label) for passage, label in labels.items()}
        return Records(
            "labelled queries",
            values,
            lambda key, labels: [
                {"query-id": key, "corpus-id": passage, "score": label} for passage, label in labels.items()
            ],
        )

    @cached_property
    def answers(self) -> dict[str, str]:
        """The reference answers as {query id: answer}, for the queries that have one."""
        answers: dict[str, str] = {}
        for split in self.splits:
            for _, row in typed_rows(self.path / "answers" / f"{split}.jsonl", {"query-id": str, "answer": str}):
                answers.setdefault(row["query-id"], row["answer"])
        return answers

    def relevant(self, query: str) -> list[str]:
        """Return the ids of the passages that are relevant to a query."""
        return [passage for passage, label in self.qrels[query].items() if label > 0]

    def __len__(self) -> int:
        return len(self.queries)

    def to_pandas(self) -> Any:
        """Return a data frame with one row per query: its text, metadata, and the ids of relevant and irrelevant
        passages."""
        table = [
            {
                **row,
                "relevant": self.relevant(row["_id"]),
                "not_relevant": [passage for passage, label in self.qrels[row["_id"]].items() if label <= 0],
                **({"answer": self.answers[row["_id"]]} if row["_id"] in self.answers else {}),
            }
            for row in self.queries.rows()
        ]
        return load_extra("pandas", "to_pandas()").DataFrame(table)

    def to_datasets(self) -> Any:
        """Return a `datasets.DatasetDict` with `corpus`, `queries` and `qrels.SPLIT`. Raises MissingExtra."""
        datasets = load_extra("datasets", "to_datasets()")
        tables = {"corpus": self.corpus.rows(), "queries": self.queries.rows()}
        for split in self.splits:
            part = self if self.only else self.split(split)
            tables[f"qrels.{split}"] = part.qrels.rows()
        return datasets.DatasetDict({name: datasets.Dataset.from_list(rows) for name, rows in tables.items()})

    def to_ranx(self) -> Any:
        """Return the labels as `ranx.Qrels`. Raises UsageError if ranx is not installed."""
        from airgen.python import exports

        return exports.ranx_qrels(self)

    def to_mteb(self, name: str = "") -> Any:
        """Return a retrieval task for `mteb.evaluate(model, task)`.

        Args:
            name: Name of the task in mteb's results. Default: the dataset's name.

        Raises:
            UsageError: mteb is not installed.
        """
        from airgen.python import exports

        return exports.mteb_task(self, name)

    def to_ragas(self) -> Any:
        """Return a `ragas.EvaluationDataset` with relevant passages as reference contexts, and reference answers."""
        from airgen.python import exports

        return exports.ragas_dataset(self)

    def to_deepeval(self) -> Any:
        """Return a deepeval `EvaluationDataset` of goldens, with the reference answers as expected outputs."""
        from airgen.python import exports

        return exports.deepeval_dataset(self)

    def to_promptfoo(self, path: str | Path | None = None) -> list[dict[str, Any]]:
        """Return promptfoo tests with the query as a variable and assertions on the reference answers.

        Args:
            path: YAML or JSON file to write the tests to, for `tests: file://...` in promptfoo's configuration.

        Returns:
            One test per query, with `vars` and, for queries with a reference answer, `assert`.
        """
        from airgen.python import exports

        return exports.promptfoo_tests(self, path)

    def save(self, path: str | Path) -> Path:
        """Copy the dataset to a folder, replacing an existing dataset.

        Args:
            path: The folder to write.

        Returns:
            The path of the folder.

        Raises:
            UsageError: The folder exists and is not a dataset.
        """
        target = Path(path)
        if target.exists() and any(target.iterdir() if target.is_dir() else [target]):
            if not (target / "queries.jsonl").is_file():
                raise UsageError(f"{target}: already exists and is not a dataset: choose another folder")
            if target.resolve() == self.path.resolve():
                return target
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=target.parent, prefix=".partial-") as folder:
            shutil.copytree(self.path, Path(folder) / "dataset")
            if target.exists():
                target.rename(Path(folder) / "before")
            (Path(folder) / "dataset").rename(target)
        return target

    def study(self) -> Study:
        """Return a summary with the sizes, the kinds of queries, and examples."""
        labels = [label for row in self.qrels.values() for label in row.values()]
        about = self.dataset.info
        kinds = Counter(str(row.get("type")) for row in self.queries.rows() if row.get("type"))
        counts = [
            ("queries", f"{len(self.queries):,}"),
            ("passages", f"{len(self.corpus):,}"),
            ("relevant", f"{sum(label > 0 for label in labels):,}"),
            ("hard negatives", f"{sum(label <= 0 for label in labels):,}"),
            ("splits", ", ".join(self.splits)),
            ("language", language_name(str(about.get("language") or "en"))),
            ("kinds of queries", ", ".join(f"{count} {kind}" for kind, count in kinds.most_common())),
            ("folder", str(self.path)),
        ]
        counts = [row for row in counts if row[1]]
        examples = [(key, text) for key, text in list(self.queries.items())[:3]]
        table = [Column("", lambda row: row[0], left=True), Column("", lambda row: row[1], left=True)]
        shown = [Column("id", lambda row: row[0], left=True), Column("for example", lambda row: row[1], left=True)]
        return Study(f"Benchmark {self.name}", [*map(md, self._notes), Table(counts, table), Table(examples, shown)])

    def __repr__(self) -> str:
        count = sum(label > 0 for row in self.qrels.values() for label in row.values())
        return (
            f"Benchmark {self.name!r}: {len(self.queries):,} queries, {count:,} relevant of {len(self.corpus):,} "
            f"passages ({self.path}){''.join(f'; {line}' for line in self._notes)}"
        )

    @property
    def agreement(self) -> str:
        """How often the judge agrees with your own labels, as a sentence; "" if there are none, or no judge."""
        return agreement_text(dict(self.dataset.manifest.get("notes") or {}).get(AGREEMENT))

    @property
    def _notes(self) -> list[str]:
        fewer = [] if self.run is None else self.run.fewer
        return [*([self.agreement] if self.agreement else []), *fewer]

    def _repr_html_(self) -> str:
        return fragment([f"### {md(f'Benchmark {self.name}')}", *self.study().parts])


def _state_of(dataset: BeirDataset) -> tuple[str, int, str]:
    """Return the version, number of queries and digest of a dataset; empty if its manifest lacks them."""
    manifest = dataset.manifest
    splits = dict(dict(manifest.get("statistics") or {}).get("splits") or {}).values()
    queries = sum(int(split.get("queries") or 0) for split in splits)
    return str(manifest.get("version") or ""), queries, str(manifest.get("digest") or "")


def _whole(label: float) -> Any:
    return int(label) if float(label).is_integer() else label


def _flat(values: Mapping[str, Any]) -> dict[str, Any]:
    """Flatten inner mappings into fields such as `metadata.product`."""
    fields: dict[str, Any] = {}
    for name, value in values.items():
        if isinstance(value, Mapping):
            fields |= {f"{name}.{inner}": field for inner, field in value.items()}
        else:
            fields[name] = value
    return fields


@overload
def load(path: str | Path | Benchmark) -> Benchmark: ...
@overload
def load(path: str | Path | Benchmark, form: Literal["datasets"]) -> Any: ...
@overload
def load(path: str | Path | Benchmark, form: Literal["pandas"]) -> dict[str, Any]: ...


@entrance
def load(path: str | Path | Benchmark, form: str = "") -> Any:
    """Load a dataset in BEIR format, made by airgen or not.

    Args:
        path: Folder of the dataset or of a job.
        form: "datasets" for a `datasets.DatasetDict`, "pandas" for data frames. Default: a Benchmark.

    Returns:
        The Benchmark, or the tables `corpus`, `queries` and `qrels.SPLIT` as a DatasetDict or as a dict of data frames.

    Raises:
        DatasetError: The folder holds no dataset.
        UsageError: The form is unknown.
        MissingExtra: The package for the form is not installed.
    """
    bench = Benchmark.load(path)
    if form == "datasets":
        return bench.to_datasets()
    if form == "pandas":
        frames = {"corpus": bench.corpus.to_pandas(), "queries": bench.queries.to_pandas()}
        return frames | {f"qrels.{split}": bench.split(split).qrels.to_pandas() for split in bench.splits}
    if form:
        raise UsageError(f"form: {form!r} is neither 'datasets' nor 'pandas'{closest(form, ['datasets', 'pandas'])}")
    return bench
