"""`airgen holes`: judge hits that have no relevance label."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from airgen.commands.options import Budget, Dataset, Json, Split, echo, new_app, shipped

app = new_app()


@app.command()
def holes(
    dataset: Dataset,
    runs: Annotated[list[Path] | None, typer.Option("--run", help="A TREC run file (repeatable).")] = None,
    submissions: Annotated[
        list[Path] | None,
        typer.Option(metavar="DIR", help="A folder of submissions, or one zip (repeatable)."),
    ] = None,
    judge: Annotated[str | None, typer.Option(help="module:function(query text, passage text) -> label.")] = None,
    pipeline: Annotated[
        Path | None,
        typer.Option(
            help="Use this pipeline's judge and its `relevant_from`; for submissions its re-rankers, too.",
            callback=shipped,
        ),
    ] = None,
    depth: Annotated[int, typer.Option(min=1, help="Depth of the runs down to which hits are judged.")] = 10,
    metric: Annotated[str, typer.Option(help="The measure to compare before and after judging.")] = "nDCG@10",
    split: Split = "test",
    out: Annotated[Path, typer.Option(help="Folder where judgments are kept, so that no pair is judged twice.")] = Path(
        "holes"
    ),
    next_version: Annotated[
        str | None,
        typer.Option(metavar="VERSION", help="With --submissions: write OUT/dataset, with the new labels."),
    ] = None,
    estimate: Annotated[
        bool, typer.Option("--estimate", help="With --submissions: say what the judgments would cost, and ask nothing.")
    ] = False,
    budget: Budget = None,
    as_json: Json = False,
) -> None:
    """Judge the unjudged top hits of runs or submissions, without showing the judge which system found them.

    Scores before and after are compared. Without --judge and --pipeline the command only counts these hits and writes
    them to OUT/holes.jsonl, where people can label them.

    Example: airgen holes scifact --run bm25.run --run dense.run --pipeline pipelines/quickstart.yaml
    """
    import json
    from dataclasses import asdict

    from airgen.dataset.beir import BeirDataset
    from airgen.errors import DatasetError, UsageError
    from airgen.evaluation import read_run
    from airgen.quality.holes import Ledger, before_and_after, fill, find_holes, judge_with, write_holes
    from airgen.records import prompt_text
    from airgen.text.display import terminal_table

    if judge and pipeline:
        raise UsageError("--judge or --pipeline, not both")
    if bool(runs) == bool(submissions):
        raise UsageError("give --run or --submissions, and not both")
    if submissions:
        if estimate and not pipeline:
            raise UsageError("--estimate needs --pipeline, whose judge would be asked")
        if estimate and next_version:
            raise UsageError("--estimate asks nothing, so there is no --next-version to write")
        _pool(
            dataset, submissions, out, as_json=as_json, estimate=estimate, pipeline=pipeline, depth=depth,
            judge=_function(judge) if judge else None, measure=metric, split=split, version=next_version,
            budget_usd=budget,
        )  # fmt: skip
        return
    if next_version or estimate:
        raise UsageError("--next-version and --estimate need --submissions")
    opened = BeirDataset.open(dataset)
    labels = opened.qrels(split).labels
    found = {str(path): read_run(path) for path in runs or ()}
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
    write_holes(out / "holes.jsonl", open_pairs, queries, texts)
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


def _pool(
    dataset: Path, submissions: list[Path], out: Path, *, as_json: bool, estimate: bool, measure: str, **options: Any
) -> None:
    """Judge what submissions found, and print who moved."""
    import json
    from dataclasses import asdict

    from airgen.pipeline.estimate import Estimate
    from airgen.quality.pooling import judge_submissions
    from airgen.text.display import terminal_table

    def before_asking(found: Estimate) -> bool:
        calls = sum(stage.calls for stage in found.stages)
        tokens = sum(stage.prompt_tokens + stage.completion_tokens for stage in found.stages)
        usd = "an unknown price" if found.usd is None else f"{found.usd:.4f} USD"
        echo(f"{calls:,} judgments, about {tokens:,} tokens, {usd}", err=True)
        for line in found.warnings:
            echo(f"! {line}", err=True)
        return not estimate

    found = judge_submissions(dataset, submissions, out, measure=measure, before_asking=before_asking, **options)
    if as_json:
        value = {**asdict(found), "dataset": str(found.dataset or "")}
        echo(json.dumps(value, ensure_ascii=False))
        return
    for file, reasons in found.refused.items():
        echo(f"left out: {file}: {'; '.join(reasons)}", err=True)
    header = ["system", f"{measure} before", "95 %", "after", "95 %", "change", "95 %", "rank", "95 %", "after", "95 %"]

    def span(pair: tuple[float, float], digits: int = 3) -> str:
        return f"[{pair[0]:.{digits}f}, {pair[1]:.{digits}f}]"

    table = [
        [
            one.system,
            f"{one.before:.3f}", span(one.before_interval), f"{one.after:.3f}", span(one.after_interval),
            f"{one.change:+.3f}", span(one.change_interval),
            str(one.rank_before), span(one.ranks_before, 0), str(one.rank_after), span(one.ranks_after, 0),
        ]
        for one in found.moves
    ]  # fmt: skip
    echo(terminal_table([header, *table]))
    moved = [one for one in found.moves if one.rank_before != one.rank_after]
    sure = [one for one in moved if one.ranks_after[1] < one.rank_before or one.ranks_after[0] > one.rank_before]
    echo(f"{len(moved)} of {len(found.moves)} systems have another rank, {len(sure)} of them beyond its interval")
    echo(
        f"{found.unjudged} hits without a label, {found.voted} chosen by the re-rankers, {found.judged} judged, "
        f"{found.relevant} relevant; {found.unknown} are not in the dataset"
    )
    if found.dataset:
        echo(f"{found.dataset}: version {options['version']}; score the submissions again with `airgen score`")


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
