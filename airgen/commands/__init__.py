"""The command line: each command is a module of this package that defines `app`, and a line of `GROUPS`."""

from __future__ import annotations

# Title of a group -> {command and module: its line in `airgen --help`}.
GROUPS: dict[str, dict[str, str]] = {
    "The main job": {
        "demo": "Make a small benchmark with a model on this machine.",
        "init": "Look at your documents and write the YAML files.",
        "check": "Validate a pipeline and estimate its cost.",
        "run": "Build, control, export and evaluate a benchmark.",
        "label": "Label your own queries: a benchmark without generation.",
        "status": "Show the progress of a job, also while it runs.",
        "report": "Write a page to browse queries, labels and systems.",
        "view": "Serve that page to this machine, and follow a running job.",
        "show": "Show everything that is known about one query.",
        "export": "Write a job's dataset again, whole or without a stage.",
        "evaluate": "Evaluate systems on datasets in BEIR format.",
        "models": "List, fetch and verify local models.",
    },
    "Look inside": {
        "corpus": "List, fetch and inspect corpora.",
        "prompts": "List, show, render and try prompts.",
        "settings": "Print every setting of every YAML file.",
    },
    "Compare systems": {
        "compare": "Compare runs with significance tests.",
        "collections": "List and fetch the sets of BEIR and other benchmarks.",
        "metrics": "Compute the measures of one run file.",
        "holes": "Judge hits that have no relevance label.",
        "gain": "Compare a model before and after, on many datasets.",
        "correlate": "Test whether benchmarks or tasks rank systems alike.",
        "tune": "Tune the weights of a hybrid on dev labels.",
    },
    "Learned systems": {
        "train": "Train retrievers and re-rankers, and prepare their data.",
    },
    "Quality of a benchmark": {
        "inspect": "Look for faults of any benchmark, with a verdict.",
        "calibrate": "Compare a judge with human labels.",
        "audit": "Have people check a sample of a dataset's labels.",
        "diversity": "Measure how diverse queries are and how corpora differ.",
        "agree": "Test whether a benchmark ranks systems as people do.",
    },
    "Give it to others": {
        "verify": "Check a dataset directory.",
        "convert": "Write a dataset's labels for other tools.",
        "suite": "Build and compare suites of datasets.",
        "publish": "Publish a dataset, with test labels kept private.",
        "submit": "Pack search results as a submission.",
        "score": "Score a submission, with private labels or public ones.",
        "leaderboard": "Write a leaderboard page from scores.",
    },
}

COMMANDS: dict[str, str] = {name: line for group in GROUPS.values() for name, line in group.items()}
