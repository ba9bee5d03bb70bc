"""The runner: pending work, done, and put on the disk, from the corpus to the evaluated dataset."""

from airgen.pipeline.job import Job, RunResult
from airgen.pipeline.summary import run_pipeline

__all__ = ["Job", "RunResult", "run_pipeline"]
