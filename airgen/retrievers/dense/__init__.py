"""Dense retrieval: embedders, the cache of their vectors, exact search."""
