"""The runner: pending work, done, and put on the disk, from the corpus to the evaluated dataset."""

from airgen.pipeline.job import Job
from airgen.pipeline.run import RunResult, run_job, run_pipeline

__all__ = ["Job", "RunResult", "run_job", "run_pipeline"]
