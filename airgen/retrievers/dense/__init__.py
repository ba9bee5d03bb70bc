"""Dense retrieval: embedders, the cache of their vectors, and exact search."""
