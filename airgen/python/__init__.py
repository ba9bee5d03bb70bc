"""The values of the Python API: `Corpus`, `JobRecipe`, `Benchmark`, systems that are objects, and `Results`."""
