"""Candidate generation: from a passage to a query and its hard negatives (paper 2.3)."""
