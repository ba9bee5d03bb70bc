"""Learned sparse retrieval: weights over a vocabulary in an inverted index."""
