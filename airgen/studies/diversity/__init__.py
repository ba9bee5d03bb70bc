"""Measure the diversity of datasets' queries (paper 3.2 and B.3)."""
