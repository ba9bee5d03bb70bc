"""Lexical retrieval: an inverted index, the weightings over it, and what learns or adds terms."""
