"""The command line, thin: each command is a module of `airgen.commands`, imported when it is called.

`airgen --help` lists names and one-liners from the table below, so that it answers at once.
"""

from __future__ import annotations

import importlib
import sys

from airgen import __version__

__all__ = ["COMMANDS", "main"]

# name -> (one line for --help, module of airgen.commands that defines `app`)
COMMANDS: dict[str, tuple[str, str]] = {
    "check": ("Validate a pipeline and say what it will cost.", "check"),
    "run": ("Build, control, export and evaluate a benchmark.", "run"),
    "status": ("How far a job is, also while it runs.", "status"),
    "show": ("The whole life of one query.", "show"),
    "export": ("Write the dataset again, or without a stage.", "export"),
    "evaluate": ("Evaluate systems on datasets in BEIR format.", "evaluate"),
    "compare": ("Compare two runs with significance tests.", "compare"),
    "metrics": ("Measures of one run file.", "metrics"),
    "holes": ("Judge what systems found and nobody judged.", "holes"),
    "calibrate": ("Is the judge right? Against human labels.", "calibrate"),
    "audit": ("People check a sample of a dataset's labels.", "audit"),
    "agree": ("Does it rank systems as people do?", "agree"),
    "diversity": ("How diverse queries are, how far corpora differ.", "diversity"),
    "models": ("Local models: list, fetch, verify.", "models"),
    "train": ("Train retrievers on a dataset.", "train"),
    "corpus": ("Corpora: list, fetch, stats, sample, dropped.", "corpus"),
    "prompts": ("Prompts: list, show, render, try.", "prompts"),
    "verify": ("Check a dataset directory.", "verify"),
    "suite": ("Build and compare suites of datasets.", "suite"),
    "publish": ("Publish a dataset, test labels apart.", "publish"),
    "submit": ("Pack search results as a submission.", "submit"),
    "score": ("Score a submission with private labels.", "score"),
    "leaderboard": ("A static leaderboard page of scores.", "leaderboard"),
}

GROUPS = (
    ("The main job", ("check", "run", "status", "show", "export", "evaluate", "models")),
    ("Look inside", ("corpus", "prompts")),
    ("Compare systems", ("compare", "metrics", "holes")),
    ("Learned systems", ("train",)),
    ("Is it any good?", ("calibrate", "audit", "diversity", "agree")),
    ("Give it to others", ("verify", "suite", "publish", "submit", "score", "leaderboard")),
)


ABOUT = """Usage: airgen COMMAND [OPTIONS]

  Turn your own corpus into a retrieval benchmark, and find the retriever that is best for it.

  Start with:   airgen check pipelines/quickstart.yaml
                airgen run pipelines/quickstart.yaml
  Help:         airgen COMMAND --help        Version: airgen --version
  Exit codes:   0 done, 1 failed, 2 wrong usage, 3 stopped and resumable
"""


def help_text() -> str:
    """What `airgen --help` prints; nothing is imported for it."""
    sections = [
        "\n".join([f"{title}:", *(f"  {name:<13}{COMMANDS[name][0]}" for name in names)]) for title, names in GROUPS
    ]
    return "\n\n".join([ABOUT, *sections])


def main(arguments: list[str] | None = None) -> None:
    """Run the command line; an airgen error is printed as it is, without a traceback.

    Always raises SystemExit, with the exit codes that the help names.
    """
    words = sys.argv[1:] if arguments is None else arguments
    if not words or words[0] in ("-h", "--help"):
        print(help_text())
        raise SystemExit(0 if words else 2)
    if words[0] == "--version":
        print(f"airgen {__version__}")
        raise SystemExit(0)
    name = words[0]
    if name not in COMMANDS:
        from airgen.registry import closest

        print(f"airgen: no command {name!r}{closest(name, list(COMMANDS))}; see airgen --help", file=sys.stderr)
        raise SystemExit(2)
    from airgen.errors import AirgenError

    try:
        import typer

        module = importlib.import_module(f"airgen.commands.{COMMANDS[name][1]}")
        typer.main.get_command(module.app).main(args=words[1:], prog_name=f"airgen {name}")
    except AirgenError as error:
        print("\n".join(f"airgen: {line}" for line in str(error).splitlines()), file=sys.stderr)
        raise SystemExit(error.exit_code) from None
    except KeyboardInterrupt:
        print("airgen: stopped by the user: run the same command to go on", file=sys.stderr)
        raise SystemExit(3) from None
    raise SystemExit(0)
