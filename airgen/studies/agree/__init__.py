"""Measure whether a generated benchmark ranks systems like human labels (paper 4.1, RQ1)."""
