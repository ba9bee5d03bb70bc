"""`airgen prompts list|show|render|try`: look at prompts and try them."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from airgen.commands.options import RUNS, Json, PipelineFile, Runs, echo, new_app

app = new_app("prompts")

Name = Annotated[str, typer.Argument(metavar="PROMPT", help="Name of a prompt: query, small/query, judge, ...")]


@app.command("list")
def list_prompts(as_json: Json = False) -> None:
    """List all prompts with version, inputs and fingerprint, and those that are in other languages.

    Example: airgen prompts list
    """
    import json

    from airgen.prompts import Prompt, PromptSet

    def by_language(rows: list[Prompt]) -> dict[str, list[str]]:
        """The folders of the languages, with the prompts that each has in its own language."""
        found: dict[str, list[str]] = {}
        for one in rows:
            folder, _, name = one.name.rpartition("/")
            if one.translates:
                found.setdefault(f"{folder}/", []).append(name)
        return found

    prompts = PromptSet()
    rows = [prompts.get(name) for name in prompts.names()]
    if as_json:
        shown = ("name", "version", "about", "inputs", "fingerprint")
        echo(json.dumps([{name: getattr(one, name) for name in shown} for one in rows], indent=1))
        return
    for one in rows:
        if not one.translates:
            echo(f"{one.name:<24} v{one.version:<3} {one.fingerprint[:8]}  {one.about}")
    for folder, names in by_language(rows).items():
        echo(f"{folder:<24} {', '.join(names)}")


@app.command()
def show(name: Name) -> None:
    """Print the template of a prompt and the templates that it includes.

    Example: airgen prompts show query
    """
    from airgen.prompts import PromptSet

    prompt = PromptSet().get(name)
    for included, text in prompt.included.items():
        echo(f"# {included}\n{text}")
    echo(prompt.source)


@app.command()
def render(
    pipeline: PipelineFile,
    name: Name,
    place: Annotated[int, typer.Option("--document", min=0, help="Number of the document in the corpus, from 0.")] = 0,
) -> None:
    """Print a prompt as it would be sent for a document of the pipeline's corpus.

    Example: airgen prompts render pipelines/quickstart.yaml small/query --document 3
    """
    from airgen.pipeline.try_prompts import trial_inputs

    prompts, values, _ = trial_inputs(pipeline, place)
    for message in prompts.get(name).render(**values):
        echo(f"=== {message.role} ===\n{message.content}\n")


@app.command("try")
def try_prompts(
    pipeline: PipelineFile,
    names: Annotated[list[str], typer.Argument(metavar="PROMPT...", help="One or more prompts: names, or .j2 files.")],
    documents: Annotated[int, typer.Option("-n", min=1, help="Number of documents.")] = 3,
    runs: Runs = RUNS,
    as_json: Json = False,
) -> None:
    """Send prompts for real documents and show the parsed answers side by side, with the results of a job's checks.

    Answers are kept, so that none is paid for twice.

    Example: airgen prompts try pipelines/quickstart.yaml query my/query.j2 -n 5
    """
    import json
    from dataclasses import asdict

    from airgen.pipeline.try_prompts import try_on_documents
    from airgen.text.display import terminal_table, terminal_text

    trial = try_on_documents(pipeline, names, documents, runs)
    totals = trial.totals()
    if as_json:
        rows: list[dict[str, Any]] = [
            {**row, "tried": {name: asdict(one) for name, one in row["tried"].items()}} for row in trial.rows
        ]
        echo(json.dumps({"documents": rows, "totals": totals}, ensure_ascii=False, indent=1))
        return
    width = max(map(len, names))
    for row in trial.rows:
        echo(terminal_text(f"{row['document']}  {row['title']}"))
        for name, one in row["tried"].items():
            echo(terminal_text(f"  {name:<{width}}  {one.answer}" + (f"  ({one.problem})" if one.problem else "")))
    table = [["prompt", "usable", "tokens in", "tokens out", "borrowed"]]
    for name, total in totals.items():
        share = "" if total["borrowed"] is None else f"{total['borrowed']:.0%}"
        tokens = [f"{total[one]:,.0f}" for one in ("prompt_tokens", "completion_tokens")]
        table.append([name, f"{total['usable']} of {total['documents']}", *tokens, share])
    echo(terminal_table(table))
