"""The command line: each command is a module of this package and a line in `GROUPS`.

A subcommand is the function `COMMAND_WORD` of that module.
"""

from __future__ import annotations

# Title of a group -> {command and module: its line in `airgen --help`}.
GROUPS: dict[str, dict[str, str]] = {
    "Make a benchmark": {
        "init": "Inspect your documents and write the YAML files; --demo to try it out.",
        "check": "Report what a pipeline lacks and what it will cost; try out prompts.",
        "run": "Build a benchmark from documents, or label your own queries.",
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

COMMANDS: dict[str, str] = {name: line for group in GROUPS.values() for name, line in group.items()}
