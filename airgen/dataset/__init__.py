"""Datasets: written, checked, described, published, collected in suites, and read back."""

from __future__ import annotations

__all__: list[str] = []
