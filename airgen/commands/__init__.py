"""The command line: each command is a module of this package and a line in `GROUPS`.

A subcommand is the function `COMMAND_WORD` of that module.
"""

from __future__ import annotations

# Title of a group -> {command and module: its line in `airgen --help`}.
GROUPS: dict[str, dict[str, str]] = {
    "Make a benchmark": {
        "init": "Inspect your documents and write the YAML files; --demo to try it out.",
        "check": "Report what a pipeline lacks and what it will cost; try out prompts.",
        "run": "Build a benchmark from documents; continue any job.",
        "label": "Label your own queries, such as those of a search log.",
        "show": "Show a job, a query, a corpus, prompts, settings or models.",
        "report": "Write a report that you can browse; --live follows a running job.",
    },
    "Use it": {
        "evaluate": "Run systems on datasets; compare and score runs; tune a hybrid.",
        "train": "Train retrievers and re-rankers, and prepare their data.",
    },
    "Trust it": {
        "audit": "Have people check labels, relevance and which system is better.",
        "study": "Test a benchmark, a judge or a model, against human labels if any.",
    },
    "Share it": {
        "export": "Rewrite a dataset, or convert it or its labels for other tools.",
        "publish": "Verify and publish datasets; score and rank submissions.",
        "fetch": "Download models, corpora and public collections.",
    },
}

_LABEL = "to label your own queries, use `airgen label QUERIES --corpus CORPUS`"
MOVED: dict[str, dict[str, str]] = {
    "run": {
        **dict.fromkeys(("--queries", "--corpus", "--labels", "--no-labels", "--systems", "--sample"), _LABEL),
        **dict.fromkeys(("--column", "--count-column", "--keep-languages", "--name"), _LABEL),
        "--check": "to learn the cost, use `airgen check`",
    }
}
"""Command -> {option that it does not have: where it is}."""

COMMANDS: dict[str, str] = {name: line for group in GROUPS.values() for name, line in group.items()}
