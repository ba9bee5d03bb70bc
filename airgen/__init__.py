"""airgen: turn a real corpus into a retrieval benchmark, after AIR-Bench, and evaluate retrievers on it, after BEIR."""

__all__ = ["__version__"]
__version__ = "0.1.0"
