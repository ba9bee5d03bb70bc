"""A dataset of a few lines."""

from little_dataset import dataset

__all__ = ["dataset"]
