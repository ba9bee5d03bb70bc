"""Find datasets on disk in AIR-Bench's own layout, as in its repositories on the Hub.

    AIR-Bench/qa_finance_en/AIR-Bench_24.05/default/      corpus.jsonl, dev_queries.jsonl, test_queries.jsonl
    AIR-Bench/qrels-qa_finance_en-dev/...the same.../     dev_qrels.jsonl
    AIR-Bench/qrels-qa_finance_en/...the same.../         test_qrels.jsonl (private)

A repository is named {task}_{domain}_{language}. Its folders are versions, and their subfolders are datasets. The
labels are in two separate repositories. Files without a split in their name (queries.jsonl, qrels.jsonl) belong to
`test`.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from airgen.errors import DatasetError

_CORPUS = ("corpus.jsonl", "corpus.jsonl.gz")
_FILE = re.compile(r"\A(?:(?P<split>[a-z][a-z0-9_]*)_)?(?P<kind>queries|qrels)\.jsonl(?:\.gz)?")
_GROUP = re.compile(r"(?P<task>[a-z][a-z-]*)_(?P<domain>.+)_(?P<language>[A-Za-z-]{2,12})")
_MOST_SHOWN = 5


@dataclass(frozen=True)
class AirBenchFiles:
    """The files of one dataset, with `queries` and `qrels` by split. Splits may lack labels."""

    group: str
    version: str
    name: str
    corpus: Path
    queries: Mapping[str, Path]
    qrels: Mapping[str, Path]

    @property
    def folder(self) -> Path:
        """Return the folder with the corpus and queries."""
        return self.corpus.parent

    @property
    def info(self) -> dict[str, str]:
        """Return the facts for a manifest. `name` is unique in a version, and `dataset` is AIR-Bench's name."""
        match = _GROUP.fullmatch(self.group)
        facts = match.groupdict() if match else {}
        return {**facts, "version": self.version, "name": f"{self.group}_{self.name}", "dataset": self.name}

    def labels_folder(self, split: str) -> Path:
        """Return the folder in which the labels of a split are expected."""
        home = self.folder.parent.parent.parent
        return home / labels_repository(self.group, split) / self.version / self.name


def labels_repository(group: str, split: str) -> str:
    """Return the repository with a split's labels.

    >>> labels_repository("qa_finance_en", "dev"), labels_repository("qa_finance_en", "test")
    ('qrels-qa_finance_en-dev', 'qrels-qa_finance_en')
    """
    return f"qrels-{group}-dev" if split == "dev" else f"qrels-{group}"


def air_bench_datasets(path: Path) -> list[AirBenchFiles]:
    """Find every dataset in the folder of a dataset, a version or a repository, or in a folder of repositories.

    Returns nothing if the folder has another layout. The repository's own name determines the group.
    """
    path = path.resolve()
    for steps in ("", "*", "*/*", "*/*/*"):
        corpora = sorted({corpus for name in _CORPUS for corpus in path.glob(f"{steps}/{name}" if steps else name)})
        datasets = [files for files in map(_dataset, corpora) if files is not None]
        if datasets:
            return datasets
        if corpora:
            return []
    return []


def air_bench_files(path: Path) -> AirBenchFiles | None:
    """Return the single dataset in a folder, or None if the folder has another layout.

    Raises DatasetError if there are several.
    """
    datasets = air_bench_datasets(path)
    if len(datasets) > 1:
        shown = ", ".join(str(dataset.folder.relative_to(path.resolve())) for dataset in datasets[:_MOST_SHOWN])
        more = f" and {len(datasets) - _MOST_SHOWN} more" if len(datasets) > _MOST_SHOWN else ""
        raise DatasetError(f"{path} contains {len(datasets)} datasets: name the folder of one ({shown}{more})")
    return datasets[0] if datasets else None


def _dataset(corpus: Path) -> AirBenchFiles | None:
    folder = corpus.parent
    group = folder.parent.parent.name
    queries = dict(_of_kind(folder, "queries"))
    unnamed = any(path.name.startswith("queries") for path in queries.values())  # such a file is also in BEIR's layout
    if not queries or (unnamed and not _GROUP.fullmatch(group)):
        return None
    files = AirBenchFiles(group, version=folder.parent.name, name=folder.name, corpus=corpus, queries=queries, qrels={})
    labels = dict(_of_kind(folder, "qrels"))
    for split in queries:
        place = files.labels_folder(split)
        labels |= {name: path for name, path in _of_kind(place, "qrels") if name == split}
    return replace(files, qrels=labels)


def _of_kind(folder: Path, kind: str) -> Iterator[tuple[str, Path]]:
    """Yield (split, file) for the files of one kind, sorted."""
    for path in sorted(folder.glob(f"*{kind}.jsonl*")):
        match = _FILE.fullmatch(path.name)
        if match is not None and match["kind"] == kind:
            yield match["split"] or "test", path
