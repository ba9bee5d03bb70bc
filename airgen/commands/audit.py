"""`airgen audit`: people check a sample of a dataset's labels."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from airgen.commands.options import RUNS, Dataset, Json, PipelineFile, Runs, Seed, Split, echo, finite, new_app

app = new_app("audit")

AuditFolder = Annotated[
    Path | None, typer.Option(help="Folder of the sample. Default: RUNS/NAME/audit, for a dataset audit/NAME.")
]
PipelineOrDataset = Annotated[
    Path, typer.Argument(metavar="PIPELINE.yaml", help="The pipeline; or a dataset directory, such as a released one.")
]


@app.command()
def sample(
    pipeline: PipelineOrDataset,
    count: Annotated[int, typer.Argument(metavar="N", min=1, help="Number of pairs that people are shown.")],
    out: AuditFolder = None,
    seed: Seed = 0,
    split: Split = "test",
    runs: Runs = RUNS,
    as_json: Json = False,
) -> None:
    """Draw pairs of every kind and level and write them as an HTML page and a CSV file.

    Neither file shows the label that the judge gave. Of a dataset without its job the labels of --split are drawn.

    Example: airgen audit sample pipelines/quickstart.yaml 40
    """
    import json

    from airgen.pipeline.job import Job
    from airgen.quality.audit.label_audit import draw_from_labels, draw_sample

    if pipeline.is_dir():
        folder = out or _folder(pipeline)
        drawn = draw_from_labels(pipeline, split, count, folder, seed)
    else:
        job = Job(pipeline, runs)
        folder = out or job.directory / "audit"
        drawn = draw_sample(job, count, folder, seed)
    if as_json:
        value = {"folder": str(folder), "pairs": len(drawn.items), "strata": dict(drawn.populations)}
        echo(json.dumps(value, ensure_ascii=False))
        return
    echo(f"{len(drawn.items)} pairs of {sum(drawn.populations.values())}: open {folder / 'audit.html'}")
    of_split = f" --split {split}" if pipeline.is_dir() and split != "test" else ""
    at = f" --out {out}" if out else ""
    echo(f"then: airgen audit score {pipeline} audit-answers.json{of_split}{at}")


@app.command()
def score(
    pipeline: PipelineOrDataset,
    answers: Annotated[list[Path], typer.Argument(help="Answers: the JSON that the page saves, or the filled-in CSV.")],
    out: AuditFolder = None,
    split: Split = "test",
    runs: Runs = RUNS,
    as_json: Json = False,
) -> None:
    """Read people's answers and write their agreement, by kind of document and by level, into the dataset's card.

    Example: airgen audit score pipelines/quickstart.yaml audit-answers.json
    """
    import json

    from airgen.dataset.beir import BeirDataset
    from airgen.pipeline.job import Job
    from airgen.quality.audit.label_audit import decided_items, labelled_items, score_answers, score_labels
    from airgen.quality.audit.page import chosen_pairs, read_chosen
    from airgen.quality.audit.sample import load_sample
    from airgen.text.display import terminal_table

    if pipeline.is_dir():
        folder = out or _folder(pipeline)
        result, place = score_labels(pipeline, split, answers, folder), folder / "result.json"
    else:
        job = Job(pipeline, runs)
        folder = out or job.directory / "audit"
        result, place = score_answers(job, answers, folder), job.dataset / "README.md"
    by_hand = {}
    if chosen := [one for path in answers for one in read_chosen(path)]:
        items = labelled_items(BeirDataset.open(pipeline), split) if pipeline.is_dir() else decided_items(job)
        by_hand = chosen_pairs(items, chosen, load_sample(folder / "sample.json").relevant_from)
    if as_json:
        echo(json.dumps({**result.as_dict(), **({"chosen_by_hand": by_hand} if by_hand else {})}, ensure_ascii=False))
        return
    echo(terminal_table([["", "people say"], *([name, str(value)] for name, value in result.as_card().items())]))
    if by_hand:
        echo(
            f"in no estimate: {by_hand['pairs']} answers to pairs that people chose themselves or whose label they had "
            f"seen; {by_hand['confirmed']} confirm the label"
        )
    echo(f"written into {place}")


@app.command()
def compare(
    dataset: Dataset,
    systems: Annotated[
        list[str] | None,
        typer.Argument(metavar="[A B]", help="Systems of the results, or TREC run files. Default: all of the results."),
    ] = None,
    results: Annotated[Path, typer.Option(help="The folder that `airgen evaluate` wrote.")] = Path("results"),
    split: Split = "test",
    answers: Annotated[
        list[Path] | None, typer.Option(help="Answers that the page saved (repeatable): say what they decide.")
    ] = None,
    count: Annotated[int, typer.Option(min=25, help="Number of pairs that people are shown.")] = 100,
    margin: Annotated[
        float | None,
        typer.Option(min=0, callback=finite, help="A difference in mean DCG@10 that does not matter. Default: a 20th."),
    ] = None,
    judge: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Probabilities of relevance as TSV or JSONL. Default: the dataset's labels."),
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Folder of the sample. Default: audit/ beside the results.")] = None,
    seed: Seed = 0,
    as_json: Json = False,
) -> None:
    """Say which system is better, from the labels and as few answers of a person as possible.

    Without --answers: draw pairs on which the systems differ, and write the page. With them: A is better, they differ
    by less than the margin, or about how many more answers would decide. It may be asked after every 25 answers.

    Example: airgen audit compare datasets/scifact bm25 dense --answers audit-answers.json
    """
    import json

    from airgen.dataset.beir import BeirDataset
    from airgen.evaluation.experiment import results_folder
    from airgen.quality.audit.system_audit import audit_text, draw_systems, score_systems
    from airgen.quality.audit.systems_of import families_of, find_runs, share_models

    opened = BeirDataset.open(dataset)
    home = results_folder(results, opened.name, split)
    runs = find_runs(home, systems or [])
    folder = out or home / ("audit" if not systems else "audit-" + "-".join(runs))
    if answers:
        shared = share_models(dataset, home, list(runs))
        found = score_systems(folder, answers, margin=margin, models={"systems that share its models": shared})
        echo(json.dumps(found.as_dict(), ensure_ascii=False) if as_json else audit_text(found))
        if not as_json:
            echo(f"written into {folder / 'result.json'}")
        return
    sample = draw_systems(dataset, split, runs, count, folder, families=families_of(home, runs), judge=judge, seed=seed)
    if as_json:
        value = {"folder": str(folder), "key": sample.key, "pairs": len(sample.items), "differ": len(sample.pairs)}
        echo(json.dumps(value, ensure_ascii=False))
        return
    drawn = f"{len(sample.items)} of {len(sample.pairs)} pairs that the systems rank differently"
    echo(f"{drawn}: open {folder / 'audit.html'}")
    again = " ".join(["airgen audit compare", str(dataset), *(systems or [])])
    extra = [f"--results {results}"] * (results != Path("results")) + [f"--split {split}"] * (split != "test")
    extra += [f"--out {out}"] if out else []
    echo(" ".join([f"then: {again}", *extra, "--answers audit-answers.json"]))


@app.command()
def relevance(
    pipeline: PipelineFile,
    answers: Annotated[
        list[Path] | None, typer.Option(help="Answers that the page saved (repeatable): say which word fits.")
    ] = None,
    set_it: Annotated[
        bool, typer.Option("--set", help="With --answers: write the word that fits into the pipeline's YAML.")
    ] = False,
    queries: Annotated[int, typer.Option(min=1, help="Number of queries, each with five passages.")] = 10,
    out: Annotated[Path | None, typer.Option(help="Folder of the sample. Default: RUNS/NAME/audit-relevance.")] = None,
    seed: Seed = 0,
    runs: Runs = RUNS,
    as_json: Json = False,
) -> None:
    """Say whether `relevance: answer` or `subject` fits, from a person's answers to ten queries of a job of votes.

    Without --answers: draw five passages of each query, and write the page. With them: precision and recall of the
    labels by both words, and which one fits. With --set, `airgen run` then makes the labels again, without an LLM call.

    Example: airgen audit relevance pipelines/agree.yaml --answers audit-answers.json --set
    """
    import json

    from airgen.errors import UsageError
    from airgen.pipeline.job import Job
    from airgen.quality.audit.relevance_audit import draw_relevance, score_relevance, set_relevance

    job = Job(pipeline, runs)
    folder = out or job.directory / "audit-relevance"
    if answers:
        found = score_relevance(job, answers, folder)
        if set_it and found.word is not None and found.word != found.now:
            set_relevance(job.path, found.word)
        echo(json.dumps(found.as_dict(), ensure_ascii=False) if as_json else found.as_text())
        if set_it and found.word is None:
            raise UsageError(
                f"{job.path}: nothing is set, as the answers do not tell: ask more (--queries), or write the word"
            )
        if set_it and not as_json and found.word != found.now:
            echo(f"{job.path} says {found.word} now; labels are made again, without an LLM: airgen run {job.path}")
        return
    if set_it:
        raise UsageError("--set needs --answers: the file that the page saved")
    sample = draw_relevance(job, folder, queries, seed)
    drawn = len({one.query for one in sample.items})
    if as_json:
        value = {"folder": str(folder), "key": sample.key, "queries": drawn, "pairs": len(sample.items)}
        echo(json.dumps(value, ensure_ascii=False))
        return
    few = "" if drawn == queries else f" (not {queries}: the re-rankers find the source of no other)"
    echo(f"{len(sample.items)} passages of {drawn} queries{few}: open {folder / 'audit.html'}")
    at = f" --out {out}" if out else ""
    echo(f"then: airgen audit relevance {pipeline}{at} --answers audit-answers.json")


def _folder(dataset: Path) -> Path:
    """The folder of the sample of a dataset without its job."""
    from airgen.dataset.beir import BeirDataset
    from airgen.evaluation.experiment import results_folder

    return results_folder("audit", BeirDataset.open(dataset).name, "")
