"""The first page of the report: the answer in words, what to do next, and how the results were made.

    answers(board, labels, todo)   # which system is better, by how much, how sure that is, what to do
    next_steps(source, boards)     # a table: what, why, and the command
    made_by(source)                # a table: when, by which command, with which models, on which machine

Commands, dates and the machine are for the author only: a public report shows just the models.
"""

import shlex
import time
from collections.abc import Sequence
from operator import itemgetter
from typing import Any

from airgen.display.study import Table, columns
from airgen.evaluation.verdict import ENOUGH, FEWEST, Advice, labels_of
from airgen.job.audit_answers import has_answers, last_checked
from airgen.job.job import Job
from airgen.report.compared_systems import Board
from airgen.report.page_table import PageColumn
from airgen.report.source import ReportSource
from airgen.steps.progress import STATUS, read_status

_SHOWN_MODELS = 6  # models on the first page; the section on models lists all


_MEASURES = {
    "nDCG": "1 means that the relevant passages come first, 0 that none is among the first {top}",
    "Recall": "the share of the relevant passages that are among the first {top}",
}


def answers(board: Board | None, labels: tuple[str, bool], todo: Table | None, agreement: str = "") -> list[list[str]]:
    """Answer in words what somebody asks who has to choose: [question, answer, explanation].

    Args:
        board: The systems; None without any.
        labels: What people found about the labels, and whether this is bad.
        todo: What to do next, most urgent first.
        agreement: How often the judge agrees with the user's own labels.

    Returns:
        No rows without two systems.
    """
    advice = None if board is None else board.advice
    if board is None or advice is None:
        return []
    if advice.pair is None:
        return [["Which is better?", "These scores cannot tell.", f"{advice.sentence}."], *_to_do(advice, todo)]
    pair, queries, scores = advice.pair, board.results[0].queries, {each.name: each.score for each in board.results}
    name, _, top = board.headline.partition("@")
    meaning = _MEASURES.get(name, "").format(top=top)
    which = "Which is better?" if advice.alone else "Which is the best?"
    who = pair.first if advice.decided else f"It is unclear whether {pair.first} or {pair.second} is better"
    rows = [[which, f"{who}.", "" if advice.alone or not advice.decided else f"The second is {pair.second}."]]
    change = f"{scores[pair.first]:.3f} for {pair.first}, {scores[pair.second]:.3f} for {pair.second}"
    range_ = f"with other queries of this kind, the difference may be from {pair.low:+.3f} to {pair.high:+.3f}"
    explained = f"{board.headline}: {meaning}; {range_}." if meaning else f"{range_[0].upper()}{range_[1:]}."
    rows.append(["By how much?", f"{board.headline} {pair.difference:+.3f}: {change}.", explained])
    p = advice.p
    chance = "less than once in 1,000 times" if p < 0.001 else f"about {max(1, round(100 * p))} times in 100"
    by_chance = f"If the two were equally good, {queries:,} queries would differ as much by chance {chance}."
    text, bad = labels
    doubts = [text.partition(":")[0]] if bad else []
    doubts += [f"most of the first ten hits of {', '.join(advice.unjudged)} have no label"] if advice.unjudged else []
    sure = "Sure enough to choose." if advice.decided and not doubts else "Not sure enough to choose."
    more = f" Also, {'; '.join(doubts)}." if doubts else ""
    known = ["" if bad else text, agreement]
    checked = "".join(f" {words[0].upper()}{words[1:]}." for words in known if words)
    rows.append(["How sure is that?", sure, f"{by_chance}{more}{checked}"])
    return [*rows, *_to_do(advice, todo)]


def _to_do(advice: Advice, todo: Table | None) -> list[list[str]]:
    if todo is not None:
        step, why, _ = todo.rows[0]
        return [["What to do?", f"{step}.", f"{why[0].upper()}{why[1:]}."]]
    return [["What to do?", f"Use {advice.use}.", ""]] if advice.use else []


def next_steps(source: ReportSource, boards: Sequence[Board]) -> Table | None:
    """Return at most four recommendations, most urgent first, or None."""
    if source.public:
        return None
    job, manifest = source.job, source.manifest
    path = source.dataset.path if source.dataset is not None else ""
    name = job.words if job is not None else shlex.quote(str(path)) if path else ""
    board = next((board for board in boards if board.comparison is not None and len(board.results) > 1), None)
    audit = None if manifest is None else manifest.audit
    rows: list[tuple[str, str, str]] = []
    text, bad = labels_in_words(source)
    if job is not None and source.state in ("running", "stopped"):
        rows.append(("Finish the job", f"it is {source.state}", f"airgen run {name}"))
    if bad and audit:
        correct = f"airgen audit score {name} audit-answers.json --apply"
        rows.append(("Correct the labels", text.partition(":")[0], correct))
    elif bad:
        rows.append(("Check the labels again", text.partition(":")[0], f"airgen audit sample {name} 40"))
    elif not audit and manifest is not None and manifest.provenance and not brought_labels(job):
        again = job is not None and has_answers(job.directory)
        why = "people have checked labels, but not these" if again else "no person has checked the labels yet"
        rows.append(("Check 40 labels (about 15 minutes)", why, f"airgen audit sample {name} 40"))
    if board is not None and board.advice is not None:
        advice, queries, runs = (
            board.advice,
            board.results[0].queries,
            {each.name: each.paths.run for each in board.results},
        )
        places = shlex.join(["--results", str(board.results[0].paths.run.parents[2])]) if job is None else ""
        more = max(2 * job.pipeline.target, ENOUGH) if job is not None and job.pipeline.generates else 0
        if advice.use and not bad and source.dataset is not None:
            labels = source.dataset.path / "qrels" / f"{board.split}.tsv"
            compared = [runs[advice.use], *(path for name, path in runs.items() if name != advice.use)]
            rows.append(
                (
                    f"Use {advice.use}",
                    advice.why,
                    shlex.join(["airgen", "evaluate", "compare", *map(str, compared), "--qrels", str(labels)]),
                )
            )
        if advice.unjudged and job is not None:
            names = ", ".join(advice.unjudged[:3])
            why = f"more than half of the top ten hits of {names} are unjudged"
            chosen = shlex.join([part for name in advice.unjudged for part in ("--run", str(runs[name]))])
            of_split = [] if board.split == "test" else ["--split", board.split]
            judge = ["airgen", "audit", "holes", str(job.dataset), *of_split, "--pipeline", str(job.path)]
            rows.append(("Judge the unjudged hits", why, f"{shlex.join(judge)} {chosen}"))
        # With too few queries, nothing but the job itself comes before more of them.
        first = int(source.state in ("running", "stopped")) if queries < FEWEST else len(rows)
        few = f"{queries:,} queries are few; with {ENOUGH}, the order rarely changes"
        if (pair := advice.open) is not None:
            few = f"on {queries:,} queries, it is unclear whether {pair.first} or {pair.second} is better"
        if more and (pair is not None or queries < ENOUGH):
            rows.insert(first, (f"Generate more queries: target {more:,}", few, f"airgen run {name} --target {more}"))
        if pair is not None:
            folder = job.dataset if job is not None else path
            ask = "Or ask a person which is better" if more and queries >= FEWEST else "Ask a person which is better"
            asked = shlex.join(["airgen", "audit", "systems", str(folder), pair.first, pair.second])
            rows.append((ask, few, f"{asked} {places}".rstrip()))
    if not boards and source.dataset is not None:
        folder = job.dataset if job is not None else path
        why = "no system has been run on this dataset"
        rows.append(("Run systems", why, f"airgen evaluate {shlex.quote(str(folder))} --systems systems-offline"))
    if not rows:
        return None
    command = PageColumn("command", itemgetter(2), left=True, role="code")
    return Table(rows[:4], [*columns("next", "because", left=(1,)), command])


def commands_of(source: ReportSource) -> dict[str, str]:
    """Return the commands that other sections of the page advise; none in a public report."""
    if source.public or source.dataset is None:
        return {}
    dataset = shlex.quote(str(source.dataset.path))
    sample = source.job.words if source.job is not None else dataset
    return {"sample": f"airgen audit sample {sample} 40", "diversity": f"airgen study diversity {dataset}"}


def labels_in_words(source: ReportSource) -> tuple[str, bool]:
    """Return what people found about the labels, and whether this is bad, also if the labels have changed since."""
    audit = None if source.manifest is None else source.manifest.audit
    if not audit and source.job is not None and not source.public:
        text, bad = labels_of(last_checked(source.job.directory))
        return (f"before the labels last changed, {text}", True) if bad else ("", False)
    return labels_of(audit)


def brought_labels(job: Job | None) -> bool:
    """Return whether the user provided labels, which are already human labels."""
    return job is not None and job.pipeline.brings_labels


def made_by(source: ReportSource, uses: Sequence[Any]) -> Table | None:
    """Return when, how, with which models and where the results were made, or None if unknown."""
    rows: list[tuple[str, str]] = []
    job, manifest = source.job, source.manifest
    if not source.public:
        if job is not None:
            status = read_status(job.directory / STATUS)
            if status is not None and status["updated"]:
                rows.append(("Labels made", _date(status["updated"])))
        if ran := [
            changed
            for results in source.results.values()
            for result in results
            if (changed := _changed(result.paths.scores))
        ]:
            rows.append(("Systems scored", _date(max(ran))))
        if job is not None:
            rows.append(("Command", f"airgen run {job.words}"))
    models: dict[str, list[str]] = {}
    for use in uses:
        models.setdefault(use.model, []).append(use.role)
    for model, roles in list(models.items())[:_SHOWN_MODELS]:
        rows.append(("Model", f"{model}: {', '.join(dict.fromkeys(roles))}"))
    if len(models) > _SHOWN_MODELS:
        rows.append(("Model", f"and {len(models) - _SHOWN_MODELS} more, see below"))
    if not source.public and manifest is not None and manifest.made_with:
        parts = dict(manifest.made_with)
        machine = [
            parts.get("machine", ""),
            f"Python {parts['python']}" if "python" in parts else "",
            parts.get("blas", ""),
        ]
        devices = {
            f"{costs.device}{f', {costs.threads} threads' if costs.threads else ''}"
            for results in source.results.values()
            for result in results
            if (costs := result.costs).device
        }
        rows.append(("Machine", "; ".join([*filter(None, machine), *sorted(devices)])))
    return Table(rows, columns("", "", left=(1,))) if rows else None


def _date(seconds: float) -> str:
    return time.strftime("%Y-%m-%d", time.gmtime(seconds))


def _changed(path: Any) -> float | None:
    try:
        return float(path.stat().st_mtime)
    except OSError:
        return None
