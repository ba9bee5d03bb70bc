"""Measure the quality of a judge on human-labelled pairs."""
