"""Training data without labels: pairs mined from a corpus, the consistency filter, queries written for passages."""
