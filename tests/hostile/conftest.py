"""A dataset of a few lines, and the small job."""

from job_maker import configure, done, folder, run
from little_dataset import dataset

__all__ = ["configure", "dataset", "done", "folder", "run"]
