"""Retrievers made of retrievers: fusion, and a first stage with a re-ranker."""
