"""Score a pipeline's systems on its finished dataset and interpret the scores."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from airgen.evaluation.result import Result
from airgen.evaluation.verdict import Advice, advise, whole_verdict
from airgen.job.audit_answers import has_answers, last_checked
from airgen.job.job import Job
from airgen.job.run_result import RunResult
from airgen.safety.escaping import terminal_text
from airgen.steps.progress import Display
from airgen.storage.paths import EVALUATION


def evaluate_systems(job: Job, display: Display, result: RunResult) -> RunResult:
    """Return the result with the scores of the pipeline's systems on its finished dataset. Existing runs are reused."""
    from airgen.evaluation import EvaluationOptions, evaluate
    from airgen.evaluation.result_tables import compare_results, ranking_study
    from airgen.evaluation.systems import named_once

    settings = job.pipeline.evaluate
    path = job.systems_file
    assert path is not None
    systems = job.systems
    measures = ["nDCG@10", "R@10", "R@100", "MRR@10", "MAP", "Judged@10"]
    failed: list[str] = []
    with display.stage("evaluation", len(systems)) as bar:
        results = evaluate(
            job.dataset,
            systems,
            job.directory / EVALUATION,
            EvaluationOptions(settings.split, measures, folder=path.parent),
            progress=lambda line: bar.advance(note=line),
            started=lambda line: bar.advance(0, line),
            encoding=bar.encoding,
            failed=lambda name, error: failed.append(f"{path.name}: {named_once([name], str(error))}"),
        )
    if not results:
        return replace(result, failed=failed)
    results = sorted(results, key=lambda result: -result.score)
    comparison = compare_results(results)
    scores = [
        {"system": result_.name, **result_.means, "interval": list(result_.intervals[result_.headline])}
        for result_ in results
    ]
    audit = None if result.manifest is None else result.manifest.audit
    verdict = _verdict(job, results, audit=audit)
    ranking = ranking_study(results, comparison)
    return replace(result, scores=scores, ranking=ranking, verdict=verdict, failed=failed)


def advice_on(job: Job | None, results: Sequence[Result]) -> Advice:
    """Return what may be said about the systems of a job, or of a dataset without one."""
    more, passages = "label more queries", int(results[0].about.get("passages") or 0) or None
    if job is not None:
        # The corpus limits how many queries can be generated, but not how many queries of people there are.
        generated, own = ("raise `target`", passages), ("label more of your own queries", None)
        more, passages = generated if job.pipeline.generates else own
    return advise(results, more=more, passages=passages)


def _verdict(job: Job, results: Sequence[Result], audit: Mapping[str, Any] | None) -> str:
    """Return one line: whether there are enough queries to rank these systems, people's agreement with the labels, and
    the next step.
    """
    text = advice_on(job, results).sentence
    if job.pipeline.brings_labels:  # existing labels come from people
        unchecked = ""
    elif has_answers(job.directory):
        unchecked = (
            f". The labels have changed since people checked them: airgen audit score {job.words} audit-answers.json"
        )
    else:
        unchecked = f". No person has checked the labels yet: airgen audit sample {job.words} 40"
    return terminal_text(f"Verdict: {whole_verdict(text, audit, unchecked, last_checked(job.directory))}")
