"""Log a finished run in MLflow: one run for the job, with its cost and artefacts, and a nested run for each system.

    log_run(job, scores, manifest, cost, verdict)      # "handbook 0.1", or "" if it was logged before

`evaluate.mlflow` in the pipeline gives the server or folder. The `airgen.key` tag is a hash of the dataset and the
scores, so that nothing is logged twice.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any
from urllib.parse import urlsplit

from airgen import __version__
from airgen.components.keys import fingerprint
from airgen.components.registry import load_extra
from airgen.dataset.manifest import Manifest
from airgen.errors import AirgenError, ModelError
from airgen.evaluation.experiment import results_folder
from airgen.job.job import Job
from airgen.job.run_result import RunResult
from airgen.safety.guard import guarded
from airgen.safety.interruptible import interruptible
from airgen.steps.ask import money
from airgen.steps.progress import Display
from airgen.storage.paths import EVALUATION

TAG = "airgen.key"
_ANSWER_SECONDS = 30.0  # seconds after which a call is given up
_ARTEFACTS = ("dataset/manifest.json", "dataset/README.md", "dataset/pipeline.yaml")
"""Files in the job's folder to log next to the tables of its systems; they contain no document texts."""


def log_run(
    job: Job, scores: Sequence[Mapping[str, Any]], manifest: Manifest | None, cost: Mapping[str, float], verdict: str
) -> str:
    """Log a run and return its name in MLflow, or "" if the same dataset and scores were logged before.

    Args:
        job: A job whose dataset is finished.
        scores: The scores of each system by measure, with `system` and `interval`.
        manifest: The manifest of the dataset.
        cost: The cost figures of the whole job by name.
        verdict: The interpretation of the scores.
    Raises: MissingExtra, ModelError in one line with what MLflow said.
    """
    client = load_extra("mlflow", "evaluate.mlflow")
    place = job.pipeline.evaluate.mlflow or ""
    address = place if urlsplit(place).scheme else f"file:{(job.folder / place).resolve()}"
    key = fingerprint(scores=[dict(row) for row in scores], dataset=manifest.digest if manifest else "")
    with guarded(f"evaluate.mlflow: {place}"):
        tracking = _Bounded(client.MlflowClient(tracking_uri=address), f"evaluate.mlflow: {place}")
        experiment = tracking.get_experiment_by_name(job.pipeline.name)
        number = experiment.experiment_id if experiment else tracking.create_experiment(job.pipeline.name)
        if tracking.search_runs([number], filter_string=f"tags.`{TAG}` = '{key}'", max_results=1):
            return ""
        name = f"{job.pipeline.name} {job.pipeline.export.version}"
        run = tracking.create_run(number, run_name=name, tags={"airgen.verdict": verdict[:5000]})
        parent = run.info.run_id
        try:
            for param, value in _params(job, manifest).items():
                tracking.log_param(parent, param, value)
            for metric, figure in cost.items():
                tracking.log_metric(parent, metric, float(figure))
            for system in scores:
                below = tracking.create_run(number, run_name=system["system"], tags={"mlflow.parentRunId": parent})
                for metric, figure in _metrics(system).items():
                    tracking.log_metric(below.info.run_id, metric, figure)
                tracking.log_param(below.info.run_id, "system", system["system"])
                tracking.set_terminated(below.info.run_id)
            tables = results_folder(job.directory / EVALUATION, job.pipeline.name, job.pipeline.evaluate.split)
            for file in (tables / "report.md", *(job.directory / name for name in _ARTEFACTS)):
                if file.is_file():
                    tracking.log_artifact(parent, str(file))
            tracking.set_tag(parent, TAG, key)  # last: a run without it is logged again, whole
        except _NoAnswerError:
            raise
        except BaseException:
            tracking.set_terminated(parent, "FAILED")
            raise
        tracking.set_terminated(parent)
    return name


class _NoAnswerError(ModelError):
    """The server accepts a call but does not respond."""


class _Bounded:
    """A client with a timeout. By default, an MLflow call can wait for 16 minutes or forever."""

    def __init__(self, client: Any, subject: str) -> None:
        self._client, self._subject = client, subject

    def __getattr__(self, name: str) -> Callable[..., Any]:
        method = getattr(self._client, name)

        def call(*args: Any, **options: Any) -> Any:
            try:
                return interruptible(lambda: method(*args, **options), seconds=_ANSWER_SECONDS)
            except TimeoutError as error:
                raise _NoAnswerError(
                    f"{self._subject}: no response within {_ANSWER_SECONDS:g} s; run the same command again to "
                    f"log the run"
                ) from error

        return call


def _params(job: Job, manifest: Manifest | None) -> dict[str, Any]:
    """Return the parameters that determine the figures."""
    pipeline = job.pipeline
    judges = [(judge.llm or pipeline.llm).model for judge in pipeline.control.judge.members]
    params: dict[str, Any] = {
        "corpus": pipeline.corpus,
        "language": pipeline.language,
        "relevance": pipeline.relevance,
        "llm": pipeline.llm.model,
        "judges": ", ".join(judges) or "votes",
        "split": pipeline.evaluate.split,
        "airgen": __version__,
    }
    if manifest is not None:
        params["dataset"] = manifest.digest
        params["queries"] = sum(split.queries for split in manifest.statistics.splits.values())
        params["passages"] = manifest.statistics.passages
    return params


def _metrics(scores: Mapping[str, Any]) -> dict[str, float]:
    """Return the measures under names that MLflow accepts: nDCG@10 becomes nDCG_at_10. The interval of the main measure
    is split into low and high."""
    metrics = {
        re.sub(r"[^\w. /-]", "_", name.replace("@", "_at_")): float(value)
        for name, value in scores.items()
        if isinstance(value, int | float)
    }
    low, high = scores["interval"]
    return {**metrics, "interval_low": float(low), "interval_high": float(high)}


def logged_in_mlflow(job: Job, display: Display, result: RunResult) -> RunResult:
    """Return the result. MLflow's errors are reported in `failed`, since the dataset and its scores are on disk."""
    try:
        name = log_run(job, result.scores, manifest=result.manifest, cost=cost_of(job), verdict=result.verdict)
    except AirgenError as error:
        return replace(result, failed=[*result.failed, str(error)])
    if name:
        display.say(f"logged in MLflow as {name}")
    return result


def cost_of(job: Job) -> dict[str, float]:
    """Return the cost of the job, including earlier processes: calls, tokens and money."""
    with job.open_store(read_only=True) as store:
        ((calls, read, wrote),) = store.query(
            "SELECT count(*), coalesce(sum(prompt_tokens), 0), coalesce(sum(completion_tokens), 0) FROM answer"
        )
        return {
            "llm_calls": calls,
            "llm_tokens_in": read,
            "llm_tokens_out": wrote,
            "llm_usd": money(store).spent,
        }
