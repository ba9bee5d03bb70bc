"""The work database of one job."""

from airgen.store.store import Store

__all__ = ["Store"]
