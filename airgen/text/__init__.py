"""Everything that is done to text itself: words, tokens, index terms, overlap, near duplicates, language checks."""
