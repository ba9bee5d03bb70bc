"""Find the sources of a report, that is, jobs, datasets and results, from command-line arguments.

sources, notes = find_sources(["runs/python-reference"], public=False)
sources[0].dataset, sources[0].results, sources[0].job
"""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from airgen.dataset.beir import BeirDataset
from airgen.dataset.manifest import MANIFEST
from airgen.errors import DatasetError, SettingsError, StoreError, UsageError
from airgen.evaluation.result import Paths, Result, load_result
from airgen.job.job import Job
from airgen.job.show import find_job, job_of_directory
from airgen.publishing.public import public_text
from airgen.publishing.scores import DIGITS
from airgen.publishing.suites import dataset_folders
from airgen.report.source import ReportSource
from airgen.steps.progress import STATUS
from airgen.storage.paths import EVALUATION

DEV = "dev"
_INSIDE = (STATUS, MANIFEST, "corpus.jsonl", "corpus.jsonl.gz")
_RESULTS = (EVALUATION, "agreement/generated")  # below a job: of its pipeline's systems, and of `airgen study agree`
_NO_RESULTS = ("comparison", "mteb")


def find_sources(
    words: Sequence[str | Path | Job],
    *,
    runs: Path | None = None,
    public: bool = False,
    private: Sequence[str] | None = None,
) -> tuple[list[ReportSource], list[str]]:
    """Return the sources for command-line arguments, and notes about what is not shown.

    Each argument is a pipeline (YAML or name), a job's directory, a dataset, a suite, or a folder of results. Results
    are assigned to the dataset with their name if they are for exactly its files. `private` are the splits whose labels
    a public report does not show; the default is every split except dev or, for the public part of a dataset, those
    that it lacks.

    Raises UsageError if an argument is none of these, and DatasetError if a dataset lacks a file.
    """
    sources: list[ReportSource] = []
    notes: list[str] = []
    folders: list[Path] = []
    for word in words:
        if isinstance(word, Job):
            sources.append(_of_job(word))
            continue
        path = Path(word)
        if not path.is_dir():
            sources.append(_of_job(_job(path, runs)))
        elif (path / STATUS).is_file() or (path / "work.duckdb").is_file():
            sources.append(_of_directory(path, notes))
        elif _results_below(path):
            folders.append(path)
        else:
            datasets = [BeirDataset.open(place) for place in _dataset_folders(path)]
            sources += [ReportSource("", dataset.name, dataset=dataset) for dataset in datasets]
    jobs = [source.job.directory for source in sources if source.job is not None and source.dataset is not None]
    folders += [directory / below for directory in jobs for below in _RESULTS]
    _give_results(sources, [result for folder in folders for result in _results_below(folder)], notes)
    for place, source in enumerate(sources):
        source.key = f"d{place}"
        if public:
            _make_public(source, private)
    if public:
        notes = [public_text(note) for note in notes]
    if not sources:
        raise UsageError("nothing to report on: name a pipeline, a job's directory, a dataset or a folder of results")
    return sources, notes


def _dataset_folders(path: Path) -> list[Path]:
    """Return the datasets in a folder. For a folder of anything else, the error names the jobs or datasets inside."""
    folders = list(dataset_folders(path).values())
    named = ("corpus", "queries", "qrels", MANIFEST)
    if folders == [path] and not any(child.name.startswith(named) for child in path.iterdir()):
        inside = sorted(child.name for child in path.iterdir() if any((child / name).exists() for name in _INSIDE))
        hint = f"; give one of its subfolders: {', '.join(inside[:5])}" if inside else ""
        raise UsageError(f"{path}: is no job's directory, dataset, suite or folder of results{hint}")
    return folders


def _job(path: Path, runs: Path | None) -> Job:
    if path.is_file() and path.suffix in (".yaml", ".yml"):
        return find_job(path, runs)
    try:
        if not path.is_file():
            return find_job(path, runs)
    except SettingsError:
        pass
    raise UsageError(f"{path}: is neither a pipeline (YAML or name) nor the folder of a job, a dataset or results")


def _of_job(job: Job) -> ReportSource:
    known = (job.directory / "work.duckdb").is_file() or (job.dataset / MANIFEST).is_file()
    if not known and not job.running:
        raise StoreError(f"{job.directory}: this pipeline has not been run yet: run `airgen run {job.words}`")
    source = ReportSource("", job.pipeline.name, job=job, home=job.directory)
    if (job.dataset / MANIFEST).is_file():
        source.dataset = BeirDataset.open(job.dataset)
    elif job.dataset.is_dir():
        source.notes.append(f"{job.dataset} has no {MANIFEST}, so the dataset is not shown: run the pipeline again")
    return source


def _of_directory(path: Path, notes: list[str]) -> ReportSource:
    """Return the job of a work directory or, if its YAML is missing, what else the directory contains."""
    job_or_problem = job_of_directory(path)
    if isinstance(job_or_problem, Job):
        return _of_job(job_or_problem)
    if not (path / "dataset" / MANIFEST).is_file():
        raise DatasetError(f"{path}: {job_or_problem}, and there is no finished dataset in it: nothing to report on")
    dataset = BeirDataset.open(path / "dataset")
    source = ReportSource("", dataset.name, dataset=dataset, home=path)
    source.notes.append(f"{path}: {job_or_problem}, so the steps before the dataset are not shown")
    _give_results([source], [result for below in _RESULTS for result in _results_below(path / below)], notes)
    return source


def _make_public(source: ReportSource, private: Sequence[str] | None) -> None:
    """Remove what the public must not see. A job's rows are private, like its lineage when it is published.

    Only the public part of airgen's datasets is left, as made by `airgen publish`.
    """
    source.public = True
    if source.job is not None and source.dataset is None:
        raise UsageError(f"{source.name}: has no finished dataset yet, so it has no public part")
    source.job = None
    known = set(source.dataset.splits) | set(source.dataset.withheld) if source.dataset else set(source.results)
    if source.dataset is not None and (unknown := sorted(set(private or ()) - known)):
        raise UsageError(f"{source.name} has no split {unknown[0]!r} (it has: {', '.join(sorted(known))})")
    whole = source.manifest is None or source.manifest.part != "public"
    if private is None:
        private = sorted(known - {DEV}) if whole else ()
    source.private = frozenset(private)
    if source.dataset is not None and source.manifest is not None and whole:
        source.take_public_part(sorted(private))
    for split, every in source.results.items():
        if source.is_private(split):
            queries = sum(split in (own, "all") for own in source.split_of.values())
            source.results[split] = [_public_result(result, queries) for result in every]
    source.notes[:] = map(public_text, source.notes)


def _public_result(result: Result, queries: int) -> Result:
    """Return what a leaderboard would show: the rounded main measure. Individual queries, and anything that follows
    from the number of labelled queries, are left out, because labels could be computed from the hits or from more
    digits."""
    low, high = (round(end, DIGITS) for end in result.intervals[result.headline])
    return Result(
        name=result.name,
        kind=result.kind,
        family=result.family,
        dataset=result.dataset,
        split=result.split,
        headline=result.headline,
        means={result.headline: round(result.score, DIGITS)},
        intervals={result.headline: (low, high)},
        queries=queries or result.queries,
        missing=0,
        unjudged=0,
        costs=result.costs,
        paths=Paths.of(Path("private"), result.name),
        settings={},
        description={},
        about={
            name: value for name, value in result.about.items() if name in ("passages", "task", "language", "domain")
        },
        rules={},
        versions={},
        made_labels=result.made_labels,
        cached=result.cached,
    )


def _results_below(folder: Path) -> list[Result]:
    """Return the results in a folder, down to the depth of DATASET/SPLIT/SYSTEM.json."""
    if not folder.is_dir():
        return []
    results = []
    for pattern in ("*.json", "*/*.json", "*/*/*.json"):
        for path in sorted(folder.glob(pattern)):
            if path.name.endswith(".mteb.json") or path.stem in _NO_RESULTS:
                continue
            if (result := load_result(Paths.of(path.parent, path.stem))) is not None:
                results.append(result)
    return results


def _give_results(sources: list[ReportSource], results: Sequence[Result], notes: list[str]) -> None:
    """Assign results to their datasets. Results for other datasets become sources."""
    by_name: dict[str, list[Result]] = {}
    for result in results:
        by_name.setdefault(result.dataset, []).append(result)
    for name, every in by_name.items():
        same = [source for source in sources if source.dataset is not None and source.dataset.name == name]
        if not same:
            sources.append(_only_results(name, every, notes))
            continue
        digests: dict[tuple[str, str], str] = {}
        others: Counter[str] = Counter()
        for result in every:
            fitting = [source for source in same if _fits(source, result, digests)]
            for source in fitting:
                _add(source.results.setdefault(result.split, []), result)
            others[result.split] += not fitting
        notes += [
            f"{count} results on {name} ({split}) are of another version of the dataset, so they are not shown: "
            "run `airgen evaluate` on this one"
            for split, count in others.items()
            if count
        ]


def _fits(source: ReportSource, result: Result, digests: dict[tuple[str, str], str]) -> bool:
    """Return whether a result is for exactly the source's files."""
    dataset, split = source.dataset, result.split
    assert dataset is not None
    if split not in (*dataset.splits, *dataset.withheld, "all"):
        return False
    key = (str(dataset.path), split)
    if key not in digests:
        digests[key] = dataset.digest(split)
    return digests[key] == result.about.get("digest")


def _add(every: list[Result], result: Result) -> None:
    if all(known.name != result.name for known in every):
        every.append(result)


def _only_results(name: str, every: Sequence[Result], notes: list[str]) -> ReportSource:
    """Return a source for results without their dataset: for each split, those of the most frequent version."""
    source = ReportSource("", name)
    source.notes.append("the dataset is not on this machine, so its queries are not shown: also give its folder")
    for split in dict.fromkeys(result.split for result in every):
        of_split = [result for result in every if result.split == split]
        counts = Counter(str(result.about.get("digest")) for result in of_split)
        digest = max(counts, key=lambda digest: (counts[digest], digest))
        if len(counts) > 1:
            notes.append(
                f"results on {name} ({split}) are of {len(counts)} versions of the dataset: only the "
                f"{counts[digest]} of one version are shown"
            )
        for result in of_split:
            if str(result.about.get("digest")) == digest:
                _add(source.results.setdefault(split, []), result)
    return source
