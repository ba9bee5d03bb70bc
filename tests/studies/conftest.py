"""The small job of the pipeline's tests, and a small dataset whose scores can be worked out by hand."""

from job_maker import asked, configure, distinct, done, folder, model_says, run
from little_dataset import dataset

__all__ = ["asked", "configure", "dataset", "distinct", "done", "folder", "model_says", "run"]
