"""The command line, thin: each command is a module of `airgen.commands`, imported when it is called.

`airgen --help` lists names and one-liners from the table below, so that it answers at once.
"""

from __future__ import annotations

import importlib
import sys
from typing import Any

import click

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
    "models": ("Local models: list, fetch, verify.", "models"),
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
    ("Give it to others", ("verify", "suite", "publish", "submit", "score", "leaderboard")),
)


class Lazy(click.Group):
    """A group that imports a command's module when the command is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """All names, in the table's order."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The click command behind a name."""
        if cmd_name not in COMMANDS:
            return None
        module = importlib.import_module(f"airgen.commands.{COMMANDS[cmd_name][1]}")
        import typer

        command: Any = typer.main.get_command(module.app)
        command.name = cmd_name
        return command  # type: ignore[no-any-return]

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        """As click does it, with the closest name in the message."""
        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            from airgen.registry import closest

            raise click.UsageError(f"no command {args[0]!r}{closest(args[0], list(COMMANDS))}", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The table, without importing anything."""
        for title, names in GROUPS:
            with formatter.section(title):
                formatter.write_dl([(name, COMMANDS[name][0]) for name in names])


@click.group(cls=Lazy, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="airgen")
def app() -> None:
    """Turn your own corpus into a retrieval benchmark, and find the retriever that is best for it.

    \b
    Start with:   airgen check pipelines/quickstart.yaml
                  airgen run pipelines/quickstart.yaml
    Exit codes:   0 done, 1 failed, 2 wrong usage, 3 stopped and resumable
    """


def main(arguments: list[str] | None = None) -> None:
    """Run the command line; an airgen error is printed as it is, without a traceback."""
    from airgen.errors import AirgenError

    try:
        code = app.main(arguments, standalone_mode=False)
    except AirgenError as error:
        print(f"airgen: {error}", file=sys.stderr)
        raise SystemExit(error.exit_code) from None
    except click.exceptions.Exit as stop:
        raise SystemExit(stop.exit_code) from None
    except click.ClickException as error:
        error.show()
        raise SystemExit(error.exit_code) from None
    except (click.Abort, KeyboardInterrupt):
        print("airgen: stopped by the user: run the same command to go on", file=sys.stderr)
        raise SystemExit(3) from None
    raise SystemExit(code if isinstance(code, int) else 0)
