"""Text processing: words, tokens, index terms, overlap, near duplicates and language checks."""
