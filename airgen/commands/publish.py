"""`airgen publish`: send a dataset or a suite to the Hub, with the labels of some splits in a private repository."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from airgen.commands.options import Json, echo, new_app

if TYPE_CHECKING:
    from airgen.publishing.publish import Published, Upload


app = new_app()


@app.command()
def publish(
    dataset: Annotated[
        Path, typer.Argument(metavar="DIR", help="A finished dataset directory, or a finished version of a suite.")
    ],
    repo: Annotated[
        str, typer.Option(metavar="ORG/NAME", help="The public repository; of a suite, its page and its other names.")
    ],
    private_qrels: Annotated[
        list[str] | None,
        typer.Option(
            metavar="SPLIT", help="Put this split's labels into the private repository ORG/qrels-NAME (repeatable)."
        ),
    ] = None,
    layout: Annotated[
        Literal["airgen", "air-bench"],
        typer.Option(help="air-bench: the repositories of AIR-Bench, ORG/{task}_{domain}_{language} and its qrels."),
    ] = "airgen",
    yes: Annotated[bool, typer.Option("--yes", help="Send the files; without it they are only listed.")] = False,
    report: Annotated[
        Path | None,
        typer.Option(help="Also write the report of what is public to this folder, for a web site. It is not sent."),
    ] = None,
    permission: Annotated[str, typer.Option(help="The rights holder's permission, if the licence gives none.")] = "",
    as_json: Json = False,
) -> None:
    """Publish a dataset or a suite on the Hugging Face Hub. Run the command again after a failure: it goes on.

    Every dataset is checked before anything is sent, and the tags come last, so that a tagged version is whole.

    Endpoint and token come from the environment variables HF_ENDPOINT and HF_TOKEN.

    Example: airgen publish runs/python-reference/dataset --repo my-org/python-reference --private-qrels test --yes
    """
    import json
    import tempfile
    from dataclasses import asdict
    from functools import partial

    from airgen.publishing.hub import Hub
    from airgen.publishing.publish import plan, plan_suite
    from airgen.publishing.publish import publish as carry_out
    from airgen.publishing.secrecy import secrecy_problems
    from airgen.publishing.suites import dataset_folders, is_dataset
    from airgen.report.report import make_report

    folders = dataset_folders(dataset)
    for folder in folders.values() if private_qrels else ():
        for problem in secrecy_problems(folder):
            echo(f"{folder}: {problem}" if len(folders) > 1 else str(problem), err=True)
    with tempfile.TemporaryDirectory(prefix="airgen-publish-") as work:
        if layout == "airgen" and is_dataset(dataset):
            uploads = plan(dataset, repo, Path(work), private_qrels=private_qrels or (), permission=permission)
        else:
            uploads = plan_suite(
                dataset, repo, Path(work), layout=layout, private_qrels=private_qrels or (), permission=permission
            )
        if report is not None:
            parts = sorted(path.parent for path in Path(work).rglob("public/manifest.json"))  # of every layout
            made = make_report(parts, report, public=True, private=())
            echo(f"{made}  the report of what is public", err=True)
        if not yes:
            if as_json:
                rows = [{**asdict(upload), "directory": None} for upload in uploads]
                echo(json.dumps(rows, indent=1))
                return
            for upload in uploads:
                echo(f"{_name(upload, upload.repo)}, version {upload.version}: {upload.bytes:,} bytes")
                _print_files(upload)
            echo("Nothing was sent. Add --yes to publish.")
            return
        say = partial(echo, err=True)
        published = carry_out(uploads, Hub(say=say), say=say)
    if as_json:
        echo(json.dumps([asdict(item) for item in published], indent=1))
        return
    for item in published:
        echo(f"{_name(item, item.url)}, revision {item.revision}, {len(item.sent)} files sent")
        _print_files(item)


def _name(part: Upload | Published, place: str) -> str:
    return f"{place} ({'private' if part.private else 'public'})"


def _print_files(part: Upload | Published) -> None:
    for name, sha256 in part.files.items():
        echo(f"  {sha256[:16]}  {name}")
