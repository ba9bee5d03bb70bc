"""The kinds of training: one module for each model family, with its recipe and its task."""

__all__: list[str] = []
