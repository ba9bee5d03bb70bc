"""The runner: pending work, done, and put on the disk, from the corpus to the evaluated dataset."""

from airgen.runner.job import Job, RunResult
from airgen.runner.summary import run_pipeline

__all__ = ["Job", "RunResult", "run_pipeline"]
