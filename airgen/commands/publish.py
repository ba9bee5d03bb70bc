"""`airgen publish`: publish datasets and suites, optionally with private labels, and score submissions."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from airgen.commands.command import command
from airgen.commands.options import DatasetOrSuite, Place, Places, Split, arg, dataset_of, opt, paths
from airgen.commands.outcome import Outcome
from airgen.commands.printing import echo
from airgen.display.study import Rows
from airgen.errors import UsageError
from airgen.publishing import A_DAY

if TYPE_CHECKING:
    from airgen.dataset.verify import DatasetProblem
    from airgen.publishing.publish import Published, Upload
    from airgen.publishing.scores import SystemScore
    from airgen.studies.compare_versions import DatasetChange


@command
def publish(
    dataset: DatasetOrSuite,
    repo: Annotated[
        str, opt("Public repository. For a suite: its page, and the prefix of its datasets.", metavar="ORG/NAME")
    ] = "",
    to: Annotated[
        Place | None, opt("Write what the Hub would get to this folder instead, a folder per repository.", "--to")
    ] = None,
    private_qrels: Annotated[
        Sequence[str],
        opt("Upload this split's labels to the private repository ORG/qrels-NAME.", metavar="SPLIT"),
    ] = (),
    layout: Annotated[
        Literal["airgen", "air-bench"],
        opt("With air-bench: AIR-Bench's repositories, ORG/{task}_{domain}_{language} and its qrels."),
    ] = "airgen",
    yes: Annotated[bool, opt("Upload the files. Without it, they are only listed.")] = False,
    report: Annotated[Place | None, opt("Also write a report of the public data to this folder.")] = None,
    permission: Annotated[str, opt("The rights holder's permission, if the licence does not allow publication.")] = "",
    unmasked: Annotated[bool, opt("Publish although names of persons and other personal data stay.")] = False,
) -> Outcome[Rows[Upload] | Rows[Published]]:
    """Publish a dataset or a suite on the Hugging Face Hub, or in a folder. After a failure, run the command again.

    Every dataset is checked before anything is uploaded. Tags are created last, so a tagged version is always complete.
    The endpoint and the token are read from the environment variables HF_ENDPOINT and HF_TOKEN.

    Example: airgen publish runs/python-reference/dataset --repo my-org/python-reference --private-qrels test --yes

    Returns:
        The uploads that were made or, without --yes, that would be made, one per repository.

    Raises:
        UsageError: Neither --repo nor --to is given, or both --to and --yes.
        DatasetError: A dataset cannot be published, or its version has been published with other files.
    """
    from airgen.dataset.manifest import load_manifest
    from airgen.publishing.hub import Hub
    from airgen.publishing.publish import name_of, plan, write_folders
    from airgen.publishing.publish import publish as carry_out
    from airgen.publishing.suites import dataset_folders
    from airgen.publishing.withhold import secrecy_problems, warnings_of
    from airgen.report.report import make_report

    if not repo and to is None:
        raise UsageError("give --repo ORG/NAME for the Hub, or --to FOLDER for a folder")
    if yes and to is not None:
        raise UsageError("--to writes a folder and --yes uploads: give one of them")
    home, tell = Path(dataset), partial(echo, err=True)
    folders = dataset_folders(home)
    repo = repo or f"folder/{name_of(home)}"
    for folder in folders.values():
        masked = load_manifest(folder).info.personal_data or "its manifest does not say which personal data is masked"
        tell(f"{folder}: {masked}" if len(folders) > 1 else masked)
    with tempfile.TemporaryDirectory(prefix="airgen-publish-") as work:
        uploads = plan(
            home,
            repo,
            Path(work),
            layout=layout,
            private_qrels=private_qrels,
            permission=permission,
            unmasked=unmasked,
        )
        # After `plan`, which verifies the dataset; only then do the rows have the expected form.
        for folder in folders.values() if private_qrels else ():
            for problem in [*secrecy_problems(folder), *warnings_of(folder, private_qrels)]:
                tell(f"{folder}: {problem}" if len(folders) > 1 else str(problem))
        if report is not None:
            parts = sorted(path.parent for path in Path(work).rglob("public/manifest.json"))  # every layout has this
            written = make_report(parts, Path(report), public=True, private=())
            tell(f"{written} the report of the public data")
        folders_written = write_folders(uploads, Path(to)) if to is not None else ()
        if yes:
            sent = carry_out(uploads, Hub(say=tell), say=tell)
    if yes:
        lines = [
            line
            for done in sent
            for line in (
                f"{_name(done, done.url)}, revision {done.revision}, {len(done.sent)} files sent",
                *_files(done),
            )
        ]
        return Outcome(Rows(sent), lines)
    places = (
        [f"written to {folder}" for folder in folders_written]
        if to is not None
        else [upload.repo for upload in uploads]
    )
    lines = [
        line
        for upload, place in zip(uploads, places, strict=True)
        for line in (f"{_name(upload, place)}, version {upload.version}: {upload.bytes:,} bytes", *_files(upload))
    ]
    shown = [{**asdict(upload), "directory": None} for upload in uploads]  # the folder does not exist any more
    if to is not None:
        shown = [{**row, "directory": str(folder)} for row, folder in zip(shown, folders_written, strict=True)]
        return Outcome(Rows(uploads), lines, json=shown)
    return Outcome(Rows(uploads), [*lines, "Nothing was uploaded. Add --yes to publish."], json=shown)


def _name(part: Upload | Published, place: str) -> str:
    return f"{place} ({'private' if part.private else 'public'})"


def _files(part: Upload | Published) -> list[str]:
    return [f"  {sha256[:16]}  {name}" for name, sha256 in part.files.items()]


@command
def publish_verify(
    directories: Annotated[Places, arg("DATASET|SUITE", "Datasets, jobs, or versions of suites."), dataset_of],
) -> Outcome[dict[str, list[DatasetProblem]]]:
    """Check hashes, ids, labels, splits and leaks of finished datasets. Exits with code 1 if there is an error.

    Example: airgen publish verify runs/python-reference/dataset

    Returns:
        The problems of each dataset, by name.

    Raises:
        DatasetError: A folder is not a finished dataset or suite.
    """
    from airgen.publishing.suites import verify_directory

    problems_of = {name: problems for home in paths(directories) for name, problems in verify_directory(home).items()}
    lines = [
        f"{name}: {line}" for name, problems in problems_of.items() for line in list(map(str, problems)) or ["whole"]
    ]
    wrong = any(problem.severity == "error" for problems in problems_of.values() for problem in problems)
    return Outcome(problems_of, lines, code=1 if wrong else 0)


@command
def publish_diff(
    old: Annotated[Place, arg("OLD", "Directory of the older version.")],
    new: Annotated[Place, arg("NEW", "Directory of the newer version.")],
) -> Outcome[Rows[DatasetChange]]:
    """List what changed between two versions, without reading the texts: the first part of `airgen study compare`.

    Changes are datasets that were added, trimmed or extended, and queries that moved to another split (which should
    never happen).

    Example: airgen publish diff suites/python/26.11 suites/python/26.12

    Returns:
        The changes of each dataset.

    Raises:
        DatasetError: A directory is not a finished version.
    """
    from airgen.studies.compare_versions import changes_between, changes_text

    changes = changes_between(Path(old), Path(new), needed=True)
    return Outcome(Rows(changes), changes_text(changes))


@command
def publish_submit(
    out: Annotated[Place, opt("Zip file to write.", metavar="ZIP")],
    results: Annotated[
        Place | None, arg("RESULTS", "Folder of air-benchmark's results, {retriever}/{reranker}.")
    ] = None,
    dataset: Annotated[Sequence[Place], opt("Dataset of the corresponding --run.", metavar="DIR")] = (),
    run: Annotated[Sequence[Place], opt("TREC run file.", metavar="RUN")] = (),
    model: Annotated[str, opt("With --run: name of the retriever. Default: from the record beside the run.")] = "",
    reranker: Annotated[
        str | None, opt("With --run: name of the re-ranker. Default: from the record beside the run.")
    ] = None,
    split: Annotated[str, opt("With --run: split to submit.")] = "test",
) -> Outcome[Path]:
    """Pack search results as a submission, from TREC runs and their datasets or from air-benchmark's results.

    The leaderboard's class depends on the re-ranker, which `airgen evaluate` records beside each run.

    Example: airgen publish submit --dataset data/python-reference --run bm25.run --model BM25 --out bm25.zip

    Returns:
        The path of the zip file.

    Raises:
        UsageError: Neither results nor runs are given, a run lacks its dataset, or has no record and no model name, or
            its record contradicts --reranker.
        DatasetError: A run does not fit its dataset.
    """
    from airgen.publishing.submission import pack, read_results_tree, results_of_run

    if bool(results) == bool(run) or len(dataset) != len(run):
        raise UsageError("give either RESULTS, or one --dataset for each --run")
    packed = read_results_tree(Path(results)) if results else []
    notes: list[str] = []
    for home, path in zip(paths(dataset), paths(run), strict=True):
        named, last, doubt = _system_of(path, model, reranker)
        if doubt:
            notes.append(doubt)
            echo(doubt, err=True)
        of_run, missing = results_of_run(home, path, model=named, reranker=last, split=split)
        packed.append(of_run)
        if missing:
            notes.append(f"{path}: {missing} queries of {split} have no hits and will score zero")
            echo(notes[-1], err=True)
    pack(packed, Path(out))
    rows = [{"entry": hits.entry, "queries": len(hits.hits)} for hits in packed]
    lines = [f"{hits.entry}: {len(hits.hits):,} queries" for hits in packed]
    return Outcome(Path(out), [*lines, str(out)], json={"file": out, "results": rows, "notes": notes})


def _system_of(run: Path, model: str, reranker: str | None) -> tuple[str, str, str]:
    """Return the names of a run's retriever and re-ranker, and a line if they may give it the wrong class.

    Raises UsageError if there is no name, or if the record beside the run contradicts the re-ranker.
    """
    from airgen.evaluation.result import recorded_system
    from airgen.publishing.submission import NO_RERANKER

    recorded = recorded_system(run)
    if recorded is None:
        if not model:
            raise UsageError(f"{run}: no record beside it names its system: add --model NAME, its retriever's name")
        doubt = "" if reranker else f"{run}: nothing records whether it was re-ranked: if so, add --reranker NAME"
        return model, reranker or NO_RERANKER, doubt
    if reranker and (reranker == NO_RERANKER) == bool(recorded.rerankers):
        fact = f"was re-ranked by {recorded.rerankers[-1]}" if recorded.rerankers else "was not re-ranked"
        raise UsageError(f"--reranker {reranker}: {run} {fact}, according to its record: leave the option out")
    doubt = ""
    if recorded.rerankers and recorded.retriever == "bm25" and model and model.lower() != "bm25":
        doubt = f"{run}: its record says that it re-ranks BM25's hits: for the class Reranking Only, add --model bm25"
    names = "+".join(each.rpartition("/")[2] for each in recorded.rerankers)
    return model or recorded.retriever, reranker or names or NO_RERANKER, doubt


@command
def publish_score(
    submission: Annotated[Place, arg("ZIP", "A submission made by airgen or air-benchmark.")],
    qrels: Annotated[Sequence[Place], opt("A dataset, private labels, or a folder of either.", metavar="DIR")],
    split: Split = "test",
    bm25: Annotated[Place | None, opt("BM25's submission, to verify the class Reranking Only.", metavar="ZIP")] = None,
    save: Annotated[
        Place | None, opt("Save the score to this folder, for `airgen publish leaderboard`.", metavar="DIR")
    ] = None,
    replace: Annotated[bool, opt("Overwrite the saved score of this system.")] = False,
    per_day: Annotated[
        int, opt("With --save: maximum number of scored submissions per system and day (UTC).", min=1)
    ] = A_DAY,
) -> Outcome[SystemScore]:
    """Validate a submission and score it with the labels of the split. Queries without results score zero.

    If the submission is rejected, all reasons are reported at once. To limit what scores reveal about private labels,
    only the leaderboard's measure is reported, rounded as there, and --save limits the submissions per day.

    Example: airgen publish score bm25.zip --qrels private/ --save scores/

    Returns:
        The scores of the system on each dataset, and its class.

    Raises:
        DatasetError: The submission is rejected, the labels cannot be read, or the daily limit is reached.
    """
    from airgen.components.keys import file_sha256
    from airgen.publishing.scores import load_labels, save_score, score_results
    from airgen.publishing.submission import Submission

    official = Submission(Path(bm25)) if bm25 else None
    scored = score_results(Submission(Path(submission)), load_labels(paths(qrels), split), bm25=official)
    lines = scored.lines()
    if save:
        sent = file_sha256(Path(submission))
        lines.append(str(save_score(scored, Path(save), replace=replace, submission=sent, per_day=per_day)))
    return Outcome(scored, lines, json={"class": scored.system_class, **asdict(scored)})


@command
def publish_leaderboard(
    scores: Annotated[Place, arg("DIR", "Folder written by `airgen publish score --save`.")],
    out: Annotated[Place | None, opt("Folder to write to. Default: the folder of scores.", metavar="DIR")] = None,
    title: Annotated[str, opt("Title of the page.")] = "Leaderboard",
) -> Outcome[list[Path]]:
    """Write a leaderboard of saved scores, with AIR-Bench's three classes of systems, by task, domain and language.

    Example: airgen publish leaderboard scores/ --title "Python retrieval"

    Returns:
        The paths of the page and of the scores as JSON.

    Raises:
        DatasetError: There are no saved scores, or a file of scores is damaged.
    """
    from airgen.publishing.leaderboard import write_leaderboard
    from airgen.publishing.scores import load_scores

    files = list(write_leaderboard(load_scores(Path(scores)), Path(out or scores), title=title))
    return Outcome(files, list(map(str, files)), json=json.loads(files[1].read_text(encoding="utf-8")))
