"""The format of datasets: write, verify, describe, derive and read them."""

from __future__ import annotations
