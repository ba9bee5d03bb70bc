"""The command line: each command is a module of this package, and a line of `GROUPS`.

A word behind a command is a function `COMMAND_WORD` of its module.
"""

from __future__ import annotations

# Title of a group -> {command and module: its line in `airgen --help`}.
GROUPS: dict[str, dict[str, str]] = {
    "Make a benchmark": {
        "init": "Look at your documents and write the YAML files; --demo shows it all.",
        "check": "Say what a pipeline lacks and what it will cost; try prompts.",
        "run": "Build a benchmark from documents, or label your own queries.",
        "show": "Show a job, a query, a corpus, prompts, settings, models.",
        "report": "Write a page to browse it all; --live follows a running job.",
    },
    "Use it": {
        "evaluate": "Run systems on datasets; compare runs, score one, tune a hybrid.",
        "train": "Train retrievers and re-rankers, and prepare their data.",
    },
    "Trust it": {
        "audit": "Have people decide: labels, what is relevant, which system is better.",
        "study": "Test a benchmark, a judge or a model against people and each other.",
    },
    "Share it": {
        "export": "Write a dataset again, its labels or its files for other tools.",
        "publish": "Verify and publish datasets; take in submissions, score, rank.",
        "fetch": "Download models, corpora and public collections.",
    },
}

COMMANDS: dict[str, str] = {name: line for group in GROUPS.values() for name, line in group.items()}
