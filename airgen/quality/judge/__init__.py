"""Is the judge right? A judge on human-labelled pairs, its figures, and the fit of the combined judge."""

__all__: list[str] = []
