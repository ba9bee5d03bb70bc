"""A finished dataset directory, written without flushing, and a folder with a small job."""

from dataset_maker import dataset, no_flush
from job_maker import folder

__all__ = ["dataset", "folder", "no_flush"]
