"""Run a job, from the corpus to the evaluated dataset, and store its results on disk."""

from airgen.pipeline.job import Job
from airgen.pipeline.run import run_job, run_pipeline
from airgen.pipeline.run_result import RunResult

__all__ = ["Job", "RunResult", "run_job", "run_pipeline"]
