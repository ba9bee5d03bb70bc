"""The runner: pending work, done, and put on the disk, from the corpus to the dataset."""

from airgen.runner.job import Job, RunResult

__all__ = ["Job", "RunResult"]
