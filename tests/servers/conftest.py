"""Fixtures of the tests against real servers."""

from little_dataset import dataset

__all__ = ["dataset"]
