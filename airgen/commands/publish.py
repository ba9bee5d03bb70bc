"""`airgen publish`: a dataset to the Hub, with the labels of some splits in a private repository."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

__all__ = ["app"]

app = typer.Typer(add_completion=False)


@app.command()
def publish(
    dataset: Annotated[Path, typer.Argument(metavar="DIR", help="A finished dataset directory.")],
    repo: Annotated[str, typer.Option(metavar="ORG/NAME", help="The public repository.")],
    private_qrels: Annotated[
        list[str] | None,
        typer.Option(metavar="SPLIT", help="Keep this split's labels in the private repository ORG/qrels-NAME."),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Send it. Without this, only say what would be sent.")] = False,
    permission: Annotated[
        str, typer.Option(help="The words of the rights' holder, where the licence alone does not allow it.")
    ] = "",
    as_json: Annotated[bool, typer.Option("--json", help="Print the plan or the outcome as JSON.")] = False,
) -> None:
    """Publish a dataset on the Hugging Face Hub; a dry run unless --yes is given. It can be repeated and resumes.

    The endpoint and the token come from HF_ENDPOINT and HF_TOKEN.

    Example: airgen publish runs/python-reference/dataset --repo my-org/python-reference --private-qrels test --yes
    """
    import json
    import tempfile
    from dataclasses import asdict

    from airgen.publishing.hub import Hub
    from airgen.publishing.publish import plan
    from airgen.publishing.publish import publish as carry_out

    with tempfile.TemporaryDirectory(prefix="airgen-publish-") as work:
        uploads = plan(dataset, repo, Path(work), private_qrels=private_qrels or (), permission=permission)
        if not yes:
            if as_json:
                rows = [{**asdict(upload), "directory": None} for upload in uploads]
                typer.echo(json.dumps(rows, indent=1))
                return
            for upload in uploads:
                kind = "private" if upload.private else "public"
                typer.echo(f"{upload.repo} ({kind}), version {upload.version}: {upload.bytes:,} bytes")
                for name, sha256 in upload.files.items():
                    typer.echo(f"  {sha256[:16]}  {name}")
            typer.echo("Nothing was sent. Add --yes to publish.")
            return
        published = carry_out(uploads, Hub(), say=lambda line: typer.echo(line, err=True))
    if as_json:
        typer.echo(json.dumps([asdict(item) for item in published], indent=1))
        return
    for item in published:
        kind = "private" if item.private else "public"
        typer.echo(f"{item.url} ({kind}), revision {item.revision}, {len(item.sent)} files sent")
        for name, sha256 in item.files.items():
            typer.echo(f"  {sha256[:16]}  {name}")
