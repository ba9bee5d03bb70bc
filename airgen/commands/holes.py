"""`airgen holes`: judge hits that have no relevance label."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from airgen.commands.options import Budget, Dataset, Json, Split, echo, new_app, shipped

__all__ = ["app"]

app = new_app()


@app.command()
def holes(
    dataset: Dataset,
    runs: Annotated[list[Path], typer.Option("--run", help="A TREC run file (repeatable).")],
    judge: Annotated[str | None, typer.Option(help="module:function(query text, passage text) -> label.")] = None,
    pipeline: Annotated[
        Path | None, typer.Option(help="Use this pipeline's judge and its `relevant_from`.", callback=shipped)
    ] = None,
    depth: Annotated[int, typer.Option(min=1, help="Depth of the runs down to which hits are judged.")] = 10,
    metric: Annotated[str, typer.Option(help="The measure to compare before and after judging.")] = "nDCG@10",
    split: Split = "test",
    out: Annotated[Path, typer.Option(help="Folder where judgments are kept, so that no pair is judged twice.")] = Path(
        "holes"
    ),
    budget: Budget = None,
    as_json: Json = False,
) -> None:
    """Judge the unjudged top hits of runs, without showing the judge which system found them; compare the scores.

    Without --judge and --pipeline the command only counts these hits and writes them to OUT/holes.jsonl, where people
    can label them.

    Example: airgen holes scifact --run bm25.run --run dense.run --pipeline pipelines/quickstart.yaml
    """
    import json
    from dataclasses import asdict

    from airgen.dataset.beir import BeirDataset
    from airgen.errors import DatasetError, UsageError
    from airgen.evaluation import read_run
    from airgen.quality.holes import Ledger, before_and_after, fill, find_holes, judge_with
    from airgen.records import prompt_text
    from airgen.text.display import terminal_table

    if judge and pipeline:
        raise UsageError("--judge or --pipeline, not both")
    opened = BeirDataset.open(dataset)
    labels = opened.qrels(split).labels
    found = {str(path): read_run(path) for path in runs}
    pairs = find_holes(found.values(), labels, depth)
    wanted = {passage for _, passage in pairs}
    texts = {p.id: prompt_text(p.title, p.text) for p in opened.passages() if p.id in wanted}
    queries = {key: query.text for key, query in opened.queries().items()}
    out.mkdir(parents=True, exist_ok=True)
    ledger = Ledger(out / "judgments.jsonl")
    open_pairs = [pair for pair in pairs if pair not in ledger.judged]
    unknown = [pair for pair in open_pairs if pair[1] not in texts or pair[0] not in queries]
    if unknown and len(unknown) == len(pairs):
        raise DatasetError(f"none of the unjudged hits is in {dataset}: check that the runs belong to this dataset")
    open_pairs = [pair for pair in open_pairs if pair not in set(unknown)]
    rows = [{"query-id": q, "corpus-id": p, "query": queries[q], "text": texts[p]} for q, p in open_pairs]
    lines = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    (out / "holes.jsonl").write_text(lines, encoding="utf-8", errors="surrogatepass")
    if judge:
        ask = _function(judge)
        ledger.judge(open_pairs, lambda query, passage: float(ask(queries[query], texts[passage])))
    elif pipeline:
        judge_with(pipeline, out, open_pairs, queries, texts, ledger, budget_usd=budget)
    changes = before_and_after(
        found, labels, fill(labels, {p: ledger.judged[p] for p in pairs if p in ledger.judged}), metric, depth
    )
    judged = sum(pair in ledger.judged for pair in pairs)
    if as_json:
        summary = {"holes": len(pairs), "judged": judged, "not_in_the_dataset": len(unknown)}
        echo(json.dumps({**summary, "systems": [asdict(change) for change in changes]}, ensure_ascii=False))
        return
    header = ["run", "holes before", "after", f"{metric} before", "after", "rank before", "after"]
    table = [
        [
            c.system,
            f"{c.hole_before:.3f}",
            f"{c.hole_after:.3f}",
            f"{c.before:.4f}",
            f"{c.after:.4f}",
            str(c.rank_before),
            str(c.rank_after),
        ]
        for c in changes
    ]
    echo(terminal_table([header, *table]))
    echo(f"{len(pairs)} holes, {judged} judged, {len(unknown)} not in the dataset; to label: {out / 'holes.jsonl'}")


def _function(target: str) -> Callable[[str, str], Any]:
    """A callable by dotted name, from the working directory too."""
    import importlib
    import sys

    from airgen.errors import UsageError

    module, _, name = target.replace(":", ".").rpartition(".")
    sys.path.insert(0, str(Path.cwd()))
    try:
        found = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise UsageError(f"--judge {target}: {error}") from error
    finally:
        sys.path.remove(str(Path.cwd()))
    if not callable(found):
        raise UsageError(f"--judge {target}: is not a function")
    return found  # type: ignore[no-any-return]
