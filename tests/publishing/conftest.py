"""A finished dataset directory, written without flushing."""

from dataset_maker import dataset, no_flush

__all__ = ["dataset", "no_flush"]
