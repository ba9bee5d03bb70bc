"""Real queries decide which wording is exported: their overlap by labels or by re-rankers, kept, asked for once."""

import json
from pathlib import Path

import pytest
from beir_folder import read_rows, write_beir
from job_maker import LEXICAL, Run
from refusals import refused

from airgen.errors import UsageError
from airgen.job import Job
from airgen.job.job import match_queries
from airgen.job.real_queries import FILE, answering, best_passage, real_queries
from airgen.storage.records import Prelabel

JOB = LEXICAL
NEEDS = {"target: 4": "target: 4\ngeneration: {method: needs, one_call: true, hard_negatives: [0, 0]}"}


def overlaps(dataset: Path) -> list[float]:
    return [row["metadata"]["overlap"] for row in read_rows(dataset / "queries.jsonl")]


def real(folder: Path, words: int) -> Path:
    """Real queries of the first passages' own words, the rest made up."""
    job = Job(folder / "job.yaml", folder / "runs")
    with job.open_store(read_only=True) as store:
        passages = list(store.passages(job.fingerprints["corpus"]))[:12]
    lines = [" ".join([*row.text.split()[2 : 2 + words], *(f"zz{at}y{n}" for n in range(6 - words))])
             for at, row in enumerate(passages)]  # fmt: skip
    path = folder / f"log-{words}.txt"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def test_the_nearer_real_queries_are_the_nearer_is_what_is_exported(run: Run, folder: Path) -> None:
    plain = run(changes=NEEDS)
    asked = plain.usage
    assert asked
    means = []
    for words in (6, 3):
        path = real(folder, words)
        match_queries(Job(folder / "job.yaml", folder / "runs"), str(path))
        result = run(changes=NEEDS)
        assert not result.usage and not result.already_done  # no call, but another choice
        figures = json.loads((result.directory / FILE).read_text())
        assert not figures["labelled"] and len(figures["overlaps"]) >= 10
        shares = overlaps(result.directory / "dataset")
        means.append((sum(figures["overlaps"]) / len(figures["overlaps"]), sum(shares) / len(shares)))
    (near, exported_near), (far, exported_far) = means
    assert near > far and exported_near > exported_far
    match_queries(Job(folder / "job.yaml", folder / "runs"), "")
    assert overlaps(run(changes=NEEDS).directory / "dataset") == overlaps(plain.directory / "dataset")


def test_labels_give_the_exact_overlap(run: Run, folder: Path) -> None:
    run(changes=NEEDS)
    job = Job(folder / "job.yaml", folder / "runs")
    with job.open_store(read_only=True) as store:
        passages = list(store.passages(job.fingerprints["corpus"]))[:10]
    queries = [{"_id": f"r{at}", "text": f"zzz {row.text.split()[3]}"} for at, row in enumerate(passages)]
    labels = [(f"r{at}", row.id, 1) for at, row in enumerate(passages)]
    corpus = [{"_id": row.id, "title": "", "text": row.text} for row in passages]
    beir = write_beir(folder / "log", corpus, queries, {"test": labels})
    match_queries(Job(folder / "job.yaml", folder / "runs"), str(beir))
    job = Job(folder / "job.yaml", folder / "runs")
    with job.open_store(read_only=True) as store:
        result = real_queries(job, store, job.fingerprints)
    assert result.labelled and set(result.overlaps) <= {0.0, 0.5} and result.mean > 0


def test_too_few_queries_or_another_method(run: Run, folder: Path) -> None:
    run(changes=NEEDS)
    few = folder / "few.txt"
    few.write_text("one query\nanother query\n", encoding="utf-8")
    match_queries(Job(folder / "job.yaml", folder / "runs"), str(few))
    with pytest.raises(UsageError, match="has 2 different queries, but 10 are needed"):
        run(changes=NEEDS)
    with refused(UsageError, "no_file", where="none.txt"):
        match_queries(Job(folder / "job.yaml", folder / "runs"), str(folder / "none.txt"))
    run("paper")
    with pytest.raises(UsageError, match=r"generation\.method: needs"):
        match_queries(Job(folder / "job.yaml", folder / "runs"), str(few))


def test_the_best_passage_is_the_one_that_re_rankers_put_first_together() -> None:
    def row(*scores: float) -> Prelabel:
        return Prelabel("", "", "", 0, "m", ["a", "b", "c", "d", "e"][: len(scores)], list(scores))

    assert best_passage([row(3, 2, 1), row(2, 3, 1), row(2, 3, 1)]) == "b"
    assert best_passage([row(3, 2, 1), row(2, 3, 1)]) == "a"  # a tie: the first re-ranker decides
    assert best_passage([]) is None
    rows = [row(9, 8.9, 0, 0, 0), row(9, 8.9, 0, 0, 0)]
    assert answering(rows, "answer") == ["a"] and answering(rows, "subject") == ["a", "b"]
    assert answering([], "subject") == []
