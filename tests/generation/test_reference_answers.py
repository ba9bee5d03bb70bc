"""Reference answers in a whole job, in its dataset, and in what is published of it."""

from pathlib import Path
from typing import Any

import pytest
from beir_folder import read_rows
from hypothesis import given
from hypothesis import strategies as st
from job_maker import LEXICAL, Run

from airgen.dataset.derive import derive
from airgen.dataset.verify import verify
from airgen.generation.reference_answer import span_of
from airgen.job import Job
from airgen.job.show import find_lineage, life, life_study
from airgen.publishing.withhold import labels_part, public_part

JOB = LEXICAL
ANSWERS = {"target: 4": "target: 4\ngeneration: {answers: true}"}


def answers(dataset: Path) -> dict[str, dict[str, Any]]:
    return {row["query-id"]: row for path in sorted((dataset / "answers").glob("*.jsonl")) for row in read_rows(path)}


def test_each_query_has_an_answer_with_its_span_in_the_positive(run: Run, done: Run, folder: Path) -> None:
    plain = done("runs")
    assert not (plain.directory / "dataset" / "answers").exists()
    path = folder / "job.yaml"
    path.write_text(path.read_text().replace(*next(iter(ANSWERS.items()))), encoding="utf-8")
    job = Job(path, folder / "runs")
    with job.open_store(read_only=True) as store:  # a job can be read before it has answers
        accepted = job.accepted(store)
        assert len(accepted.lineages) == 4
        assert "\nanswer" not in life_study(life(store, job, accepted.lineages[0], "")).text()
    result = run("runs", ANSWERS)  # the same job goes on: only the answers are asked for
    assert set(result.usage) == {"reference_answer"}
    dataset = result.directory / "dataset"
    assert verify(dataset) == []
    found = answers(dataset)
    queries = {row["_id"]: row for row in read_rows(dataset / "queries.jsonl")}
    sources = {row["query"]: row["positive"] for row in read_rows(dataset / "private" / "lineage.jsonl")}
    texts = {row["_id"]: row["text"] for row in read_rows(dataset / "corpus.jsonl")}
    assert found.keys() == queries.keys() == sources.keys()
    for query, row in found.items():
        assert row["corpus-id"] == sources[query]
        assert row["quote"] == texts[row["corpus-id"]][row["start"] : row["end"]] != ""
        assert row["answer"]
        assert (dataset / "answers" / f"{queries[query]['metadata']['split']}.jsonl").is_file()
    assert result.manifest is not None
    (step,) = [step for step in result.manifest.funnel if step.stage == "queries with a reference answer"]
    assert (step.entered, step.left) == (4, 4)
    card = (dataset / "README.md").read_text(encoding="utf-8")
    assert "config_name: answers" in card and "reference answer" in card
    with job.open_store() as store:
        value = life(store, job, *find_lineage(job.accepted(store), next(iter(found)), job.ids))
    assert "\nanswer     " in life_study(value).text()


def test_answers_of_withheld_splits_stay_private(done: Run, tmp_path: Path) -> None:
    dataset = done("runs", ANSWERS).directory / "dataset"
    splits = {path.stem for path in (dataset / "answers").iterdir()}
    assert "test" in splits
    public_part(dataset, tmp_path / "public", ["test"])
    labels_part(dataset, tmp_path / "labels", ["test"])
    assert not (tmp_path / "public" / "answers" / "test.jsonl").exists()
    assert (tmp_path / "labels" / "answers" / "test.jsonl").is_file()
    assert "answers/test" not in (tmp_path / "public" / "croissant.json").read_text()
    assert verify(tmp_path / "public") == []
    copied = tmp_path / "public" / "answers" / "test.jsonl"
    copied.parent.mkdir(exist_ok=True)
    copied.write_bytes((dataset / "answers" / "test.jsonl").read_bytes())
    assert "leak" in {problem.kind for problem in verify(tmp_path / "public")}
    derive(dataset, tmp_path / "one", split="test")
    assert answers(tmp_path / "one") == answers(dataset)
    assert verify(tmp_path / "one") == []


@given(st.lists(st.text(st.characters(exclude_categories=("Cs", "Cc", "Z")), min_size=1), min_size=1, max_size=8))
def test_a_quote_is_found_whatever_its_white_space(words: list[str]) -> None:
    text = "Before. " + " \n ".join(words) + " after"
    span = span_of(' "' + "\t".join(words) + '…" ', text) or span_of("\t".join(words), text)
    if span is None:  # a word of quotation marks alone is no quote
        assert not "".join(words).strip("\"'“”‘’«»…")[0:1] or any(w.strip("\"'“”‘’«»…") != w for w in words)
    else:
        assert text[slice(*span)].split() and text[slice(*span)].strip() == text[slice(*span)]


@pytest.mark.parametrize(
    ("quote", "found"),
    [
        ("bees  cluster", "bees cluster"),
        ("“bees cluster”", "bees cluster"),
        ("in\nwinter", "in winter"),
        ("Bees cluster", None),
        ("bees (cluster", None),
        ("", None),
        ("…", None),
        ("Bees: Most bees cluster in winter", "Most bees cluster in winter"),  # a heading before the words
        ("Most bees cluster in winter quarters", "Most bees cluster in winter"),
        ("Many bees cluster in summer", None),  # three words of five
    ],
)
def test_quotes(quote: str, found: str | None) -> None:
    text = "Most bees cluster in winter (they do)."
    span = span_of(quote, text)
    assert (text[slice(*span)] if span else None) == found
