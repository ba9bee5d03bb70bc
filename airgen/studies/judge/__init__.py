"""Is the judge right? A judge on human-labelled pairs, and its figures."""
