"""Run a job, from the corpus to the evaluated dataset, and store its results on disk."""

from airgen.job.job import Job
from airgen.job.run_job import run_job, run_pipeline
from airgen.job.run_result import RunResult

__all__ = ["Job", "RunResult", "run_job", "run_pipeline"]
