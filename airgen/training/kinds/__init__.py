"""The kinds of training: one model family a module, each ending in the one loop."""

__all__: list[str] = []
