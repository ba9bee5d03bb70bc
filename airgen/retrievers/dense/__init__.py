"""Dense retrieval: embedders, the cache of their vectors, exact search."""

__all__: list[str] = []
