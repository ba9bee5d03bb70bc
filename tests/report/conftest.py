"""Jobs to report on, and one small dataset without a job."""

from dataset_maker import dataset, no_flush
from job_maker import configure, done, folder, run

__all__ = ["configure", "dataset", "done", "folder", "no_flush", "run"]
