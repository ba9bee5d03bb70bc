"""Inspect one split of a dataset, with existing runs or with inexpensive systems.

inspection = inspect_dataset(Path("scifact"), out=Path("inspect"))
inspection.verdict                        # "Use it with care. Check: saturation."
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from operator import itemgetter
from pathlib import Path
from typing import Any

from airgen.dataset.beir import BeirDataset
from airgen.display.study import Column, Html, Shown, Study, Table, columns
from airgen.errors import AirgenError, DatasetError, UsageError
from airgen.evaluation.dataset_split import DatasetSplit
from airgen.evaluation.experiment import EvaluationOptions, evaluate, results_folder
from airgen.evaluation.intervals import Interval
from airgen.evaluation.measures import check_common, score
from airgen.evaluation.result import Paths, load_result
from airgen.evaluation.run import Run, read_own_run
from airgen.evaluation.systems import SystemSettings, load_systems, missing_needs
from airgen.safety.escaping import html_text, md, one_line
from airgen.settings.base import find_yaml
from airgen.storage.json_values import FORMAT, plain, write_json
from airgen.storage.paths import EVALUATION
from airgen.storage.whole_files import write_text
from airgen.studies.contamination import Contamination, contamination
from airgen.studies.inspect.checks import CHECKS, STATES, Finding, finding, not_measured, share, verdict
from airgen.studies.inspect.measures import by_systems, by_texts, language_of, random_floor, system_means
from airgen.studies.label_sets import LabelSets, label_sets
from airgen.studies.rank_correlation import LEAST_SYSTEMS

DEFAULT_SYSTEMS = "systems-inspect"
_EXAMPLE_CHARACTERS = 160
_MOST_PASSAGES = 500  # passages that a model encodes in about fifteen seconds without a GPU

_ENDINGS = (".run", ".run.gz", ".trec", ".trec.gz")


def given_runs(results: Path, task: DatasetSplit) -> dict[str, Run]:
    """Return {system: run} from a folder: the `--out` of `airgen evaluate`, or a folder of TREC run files.

    Raises DatasetError if the folder has no runs, or results for another version of the dataset.
    """
    inner = results_folder(results, task.dataset.name, task.split)
    folder = inner if inner.is_dir() else results
    files = {path: path.name.removesuffix(end) for end in _ENDINGS for path in sorted(folder.glob(f"*{end}"))}
    if not files:
        raise DatasetError(
            f"{results}: neither it nor {inner} has runs (*.run.gz): give the --out folder of `airgen evaluate`, "
            "or leave out --results"
        )
    runs = {}
    for path, name in sorted(files.items(), key=itemgetter(1)):
        known = load_result(Paths.of(folder, name))
        if known is not None and known.about.get("digest") != task.digest:
            raise DatasetError(
                f"{path}: was made on another version of {task.dataset.name}: run `airgen evaluate` again"
            )
        run = read_own_run(path)
        if len(run):
            check_common(str(path), run, task.qrels.labels)
        runs[name] = run
    return runs


def own_runs(
    systems: Path | None, out: Path, task: DatasetSplit, say: Callable[[str], None]
) -> tuple[dict[str, Run], list[str]]:
    """Run the systems in a YAML file; return {system: run}, and a line for each system that is left out.

    The default is the built-in systems, of which English models run only on small English corpora. Results are saved in
    `out`. Raises UsageError if no system can run.
    """
    shipped = systems is None
    systems = systems or find_yaml("pipelines", DEFAULT_SYSTEMS)
    folder = systems.resolve().parent
    chosen: list[SystemSettings] = []
    left_out: list[str] = []
    for system in load_systems(systems):
        lacks = missing_needs([system])
        if shipped and any(spec.model for _, spec in system.parts()):
            large = f"the corpus has more than {_MOST_PASSAGES:,} passages" if len(task.corpus) > _MOST_PASSAGES else ""
            why = f"its model is English, the corpus is {task.language}" if task.language != "en" else large
            lacks += [f"{why} (use --systems to run it anyway)"] if why else []
        lacks += [
            f"{used} is left out"
            for used in system.uses
            if used not in {chosen_system.name for chosen_system in chosen}
        ]
        if lacks:
            left_out.append(f"{system.name} is left out: {lacks[0].removeprefix(f'system {system.name}: ')}")
        else:
            chosen.append(system)
    if not chosen:
        raise UsageError(f"{systems}: no system can run here: {left_out[0]}")
    options = EvaluationOptions(task.split, top=100, language=task.language, folder=folder, report=False)
    results = evaluate(
        task.dataset, chosen, out, options, progress=say, failed=lambda name, error: left_out.append(f"{name}: {error}")
    )
    if not results:
        raise UsageError(f"{systems}: every system failed: {left_out[0]}")
    return {result.name: read_own_run(result.paths.run) for result in results}, left_out


def _of_the_job(folder: Path, task: DatasetSplit) -> Path | None:
    """Return the results of the job that made the dataset, if they are for this version and enough systems."""
    own = folder.resolve().parent / EVALUATION
    for place in (own, results_folder(own, task.dataset.name, "all")):
        try:
            if len(given_runs(place, task)) >= LEAST_SYSTEMS:
                return place
        except AirgenError:
            continue
    return None


@dataclass(frozen=True)
class Inspection(Shown):
    """The result of an inspection. Findings are sorted: faults first, then doubtful values.

    `random` is the expected score of a random ranking. `left_out` lists systems that this machine cannot run, and why.
    """

    dataset: str
    split: str
    language: str
    task: str
    passages: int
    queries: int
    measure: str
    findings: tuple[Finding, ...]
    systems: Mapping[str, Interval]
    random: float
    left_out: tuple[str, ...]
    contamination: tuple[Mapping[str, object], ...]

    @property
    def verdict(self) -> str:
        """Summarise the findings in one or two sentences."""
        return verdict(self.findings)

    def as_dict(self) -> dict[str, Any]:
        """Return plain values for JSON. Each finding has its limits, their source and the advice."""
        findings = [{**asdict(row), **asdict(row.check)} for row in self.findings]
        rounded: dict[str, Any] = plain(
            {"format": FORMAT, **vars(self), "verdict": self.verdict, "findings": findings}, 6
        )
        return rounded


def inspect_dataset(
    folder: Path,
    *,
    out: Path,
    systems: Path | None = None,
    split: str = "test",
    language: str | None = None,
    results: Path | None = None,
    against: Sequence[Path] = (),
    say: Callable[[str], None] = lambda line: None,
) -> Inspection:
    """Inspect one split.

    `results` are existing runs. Without `results` and `systems`, the results of the dataset's job are used, if there
    are at least three. Otherwise, the systems in the YAML file `systems`, or the built-in ones, are run, and their
    results are saved in `out`. `language` is by default the manifest's, or else detected.

    Raises DatasetError if the dataset cannot be read or its labels are withheld, and UsageError if no system can run.
    """
    dataset = BeirDataset.open(folder)
    known = language or str(dataset.info.get("language") or "")
    task = DatasetSplit(dataset, split, known or "en")
    if not task.qrels.labels:
        raise DatasetError(f"{folder}: the split {split} has no labels")
    if not known and (found_language := language_of(task.corpus.texts)):
        task = DatasetSplit(dataset, split, found_language)
    say(f"{dataset.name}: reading texts")
    findings = by_texts(task)
    if results is None and systems is None:
        results = _of_the_job(folder, task)
    runs, left_out = (given_runs(results, task), []) if results else own_runs(systems, out / "results", task, say)
    scores = {name: score(run, task.qrels.labels, task.headline).of(task.headline) for name, run in runs.items()}
    findings += by_systems(runs, scores, labels=task.qrels.labels, measure=task.headline, passages=len(task.corpus))
    findings.append(_label_sets(label_sets(dataset, task.qrels.labels, runs, task.headline)))
    known_there = contamination(folder, against, language=task.language) if against else []
    findings.append(_contaminated(known_there, task.queries))
    states, checks = list(STATES), list(CHECKS)
    return Inspection(
        dataset=dataset.name,
        split=split,
        language=task.language,
        task=str(dataset.info.get("task") or ""),
        passages=len(task.corpus),
        queries=len(task.queries),
        measure=task.headline,
        findings=tuple(sorted(findings, key=lambda row: (states.index(row.state), checks.index(row.name)))),
        systems=system_means(scores),
        random=random_floor(task.qrels.labels, task.headline, len(task.corpus)),
        left_out=tuple(left_out),
        contamination=tuple(
            {
                "collection": row.collection,
                "queries_exact": row.queries.exact,
                "queries_near": row.queries.near,
                "passages_exact": row.passages.exact,
                "passages_near": row.passages.near,
            }
            for row in known_there
        ),
    )


def _label_sets(sets: LabelSets | None) -> Finding:
    if sets is None:
        return not_measured("label sets", "no lineage, no positive besides the sources, or too few systems or queries")
    return finding("label sets", sets.spearman.value, sets.sentence)


def _contaminated(contaminations: Sequence[Contamination], queries: Collection[str]) -> Finding:
    if not contaminations:
        return not_measured("contamination", "no other collection was named (--against)")
    matches = {match.id: match.other for row in contaminations for match in row.queries.matches if match.id in queries}
    passages = ", ".join(f"{row.collection} {len(row.passages.matches):,}" for row in contaminations)
    examples = [f"{query} = {other}" for query, other in matches.items()]
    return share("contamination", examples, len(queries), f"queries; passages known there: {passages}")


_FINDINGS = (
    Column("Check", lambda row: row.check.title, left=True),
    Column("Value", lambda row: row.check.shown(row.value)),
    Column("What was found", lambda row: one_line(row.detail, 300), left=True),
)
_TAG = Column("State", lambda row: Html(f'<span class="tag {row.state}">{STATES[row.state]}</span>'))
_STATE = Column("State", lambda row: STATES[row.state])


def inspection_study(inspection: Inspection) -> Study:
    """Return the findings as a page."""
    worst = inspection.findings[0].state if inspection.findings else "unknown"
    advice = []
    for row in inspection.findings:
        if row.state in ("bad", "look"):
            examples = "".join(f"\n- {md(one_line(text, _EXAMPLE_CHARACTERS))}" for text in row.examples)
            advice += [f"### {row.check.title} ({row.check.shown(row.value)})", row.check.advice]
            advice += [f"For example:\n{examples}"] if examples else []
    return Study(
        f"Inspection of {inspection.dataset}, {inspection.split}",
        [
            Html(f'<p class="notice {worst}">{html_text(inspection.verdict)}</p>\n'),
            f"{inspection.queries:,} queries and {inspection.passages:,} passages in {md(inspection.language)}; "
            f"{len(inspection.systems)} systems by {inspection.measure}.",
            "## Findings",
            Table(inspection.findings, [_TAG, *_FINDINGS]),
            "## What to do",
            *advice,
            "## Systems",
            f"{inspection.measure} with its 95 % interval (bootstrap over queries). A random order of the corpus "
            f"scores {inspection.random:.4f}.",
            Table(list(inspection.systems.items()), columns("System", "Mean", form=".3f")),
            "\n".join(f"- {md(one_line(line, 300))}" for line in inspection.left_out),
            "## Checks, limits and their sources",
            *(
                f"**{row.check.title}.** {row.check.meaning} Limits: {row.check.limits}. Source: {row.check.source}."
                for row in inspection.findings
            ),
            "`inspect.json` has all figures.",
        ],
    )


def inspection_text(inspection: Inspection) -> str:
    """Return the text for a terminal: the findings and the verdict. The page says what to do."""
    parts = [
        Table(inspection.findings, [_STATE, *_FINDINGS]).text(),
        *(one_line(line, 200) for line in inspection.left_out),
    ]
    return "\n\n".join([*parts, f"{one_line(inspection.dataset, 100)}, {inspection.split}: {inspection.verdict}"])


def write_inspection(inspection: Inspection, out: Path) -> list[Path]:
    """Write `inspect.html` and `inspect.json` to a folder, and return their paths."""
    write_text(out / "inspect.html", inspection_study(inspection).html())
    write_json(out / "inspect.json", inspection)
    return [out / "inspect.html", out / "inspect.json"]
