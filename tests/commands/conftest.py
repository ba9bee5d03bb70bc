"""A small dataset whose scores can be worked out by hand."""

from little_dataset import dataset

__all__ = ["dataset"]
