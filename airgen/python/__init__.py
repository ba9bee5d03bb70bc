"""The classes of the Python API: `Corpus`, `JobRecipe`, `Benchmark`, systems and `Results`."""
