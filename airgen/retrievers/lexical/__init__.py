"""Lexical retrieval: an inverted index, its weightings, and query and document expansion."""
