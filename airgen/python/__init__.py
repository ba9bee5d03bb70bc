"""The classes of the Python API: `Corpus`, `JobRecipe`, `Benchmark`, systems and `Results`."""

VALUES = {
    "BM25": "airgen.retrievers.lexical.bm25",
    "Benchmark": "airgen.python.benchmark",
    "Check": "airgen.job.check_job",
    "Corpus": "airgen.python.corpus",
    "Dense": "airgen.retrievers.dense.retriever",
    "Function": "airgen.components.user_functions",
    "Fused": "airgen.retrievers.combine",
    "JobRecipe": "airgen.python.recipe",
    "RerankedRetriever": "airgen.retrievers.combine",
    "Results": "airgen.python.results",
    "Study": "airgen.display.study",
    "estimate": "airgen.python.generate",
    "generate": "airgen.python.generate",
    "label": "airgen.python.generate",
    "load": "airgen.python.benchmark",
}
"""Names that are not commands, with their modules, which are imported on first use."""
