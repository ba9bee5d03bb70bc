"""Training data without labels: pairs mined from a corpus, the consistency filter, and queries generated for
passages."""
