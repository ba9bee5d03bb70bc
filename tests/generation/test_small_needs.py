"""The wordings of a small model's query: the rows, what is refused, and what it costs."""

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from beir_folder import read_rows
from job_maker import LEXICAL, Run

from airgen.job import Job
from airgen.llms.base import Reply, Request
from airgen.settings import Pipeline
from airgen.settings.generation import WORDINGS
from airgen.storage.records import Candidate, Need, Query, Rewrite

JOB = LEXICAL
SMALL = "generation: {method: needs, prompts: small, one_call: true, rewrites: 0, hard_negatives: [0, 0]"
WORDED = {"target: 4": f"target: 4\n{SMALL}, types: {{question: 1, keywords: 0.001}}}}"}
SEARCHES = {
    "character": "an old hand", "scenario": "Work stands still, and somebody has to know what to do.",
    "fact": "Specimens differ.", "question": "how does specimen NUMBER decline",
    "keywords": "specimen NUMBER violins repair",
}  # fmt: skip
WORDS = {"lay": "why do things of kind NUMBER get worse", "described": "what makes such a thing NUMBER fade away"}


def says(**changed: str) -> Callable[[Request], Reply | None]:
    """A model that gives these answers, with the number of the document in place of NUMBER."""

    def answer(request: Request) -> Reply | None:
        if request.stage not in ("query", "rewrite"):
            return None
        texts = WORDS if request.stage == "rewrite" else SEARCHES
        last = request.messages[-1].content.lower()
        number = last.partition("specimen ")[2].split()[0]
        value = {
            name: {**texts, **changed}[name].replace("NUMBER", number) for name in (request.schema or {})["properties"]
        }
        return Reply(json.dumps(value), prompt_tokens=1, completion_tokens=1)

    return answer


def rows(folder: Path, kind: type[Any]) -> list[Any]:
    job = Job(folder / "job.yaml", folder / "runs")
    with job.open_store(read_only=True) as store:
        return [row for lineage in job.accepted(store).lineages for row in lineage.every(kind)]


def test_each_query_has_four_wordings_for_one_more_call(
    run: Run, folder: Path, model_says: Callable[..., None]
) -> None:
    model_says(says())
    result = run(changes=WORDED)
    assert Counter(row.style for row in rows(folder, Rewrite)) == {"terms": 4, "lay": 4, "described": 4}
    assert {row.text for row in rows(folder, Need)} == {"Specimens differ."}
    calls = {stage: usage["calls"] for stage, usage in result.usage.items() if stage != "judgment"}
    assert calls["rewrite"] == calls["query"]
    wordings = read_rows(result.directory / "dataset" / "wordings.jsonl")
    assert Counter(row["metadata"]["wording"] for row in wordings) == dict.fromkeys(WORDINGS, 4)
    overlaps = {
        name: [row["metadata"]["overlap"] for row in wordings if row["metadata"]["wording"] == name]
        for name in WORDINGS
    }
    assert min(overlaps["plain"]) > max(overlaps["described"])


def test_another_wording_asks_nothing_again(run: Run, folder: Path, model_says: Callable[..., None]) -> None:
    model_says(says())
    first = run(changes=WORDED).directory / "dataset"
    labels = (first / "qrels" / "test.tsv").read_bytes()
    again = run(changes={"target: 4": WORDED["target: 4"][:-1] + ", wording: {plain: 0, lay: 1}}"})
    assert not again.usage
    queries = read_rows(again.directory / "dataset" / "queries.jsonl")
    assert all(row["text"].startswith("why do things of kind") for row in queries)
    assert (again.directory / "dataset" / "qrels" / "test.tsv").read_bytes() == labels


def test_a_wording_with_other_numbers_is_left_out(run: Run, folder: Path, model_says: Callable[..., None]) -> None:
    model_says(says(lay="why do old things get worse", described="what makes thing NUMBER and 99 fade away"))
    run(changes=WORDED)
    assert {row.style for row in rows(folder, Rewrite)} == {"terms"}
    problems = Counter(row.problem for row in rows(folder, Candidate) if row.problem)
    assert problems["lay: does not have the numbers of its query"] == 4
    assert problems["described: does not have the numbers of its query"] == 4


def test_an_unreadable_answer_leaves_the_query_as_it_is(
    run: Run, folder: Path, model_says: Callable[..., None]
) -> None:
    def answer(request: Request) -> Reply | None:
        if request.stage == "rewrite" and number_of(request.messages[-1].content) % 3 == 0:
            return Reply("sorry", 1, 1)
        return says()(request)

    model_says(answer)
    run(changes=WORDED)
    queries = [number_of(row.text) for row in rows(folder, Query)]
    assert len(queries) == 4
    reworded = [number for number in queries if number % 3]
    assert Counter(map(number_of, (row.text for row in rows(folder, Rewrite) if row.style == "terms"))) == Counter(
        reworded
    )


def number_of(text: str) -> int:
    return int(text.partition("specimen ")[2].split()[0])


def test_a_small_model_words_queries_several_ways_only_if_its_prompts_are_named() -> None:
    """Settings that `airgen init` writes for a large model give a small one its own method."""
    llm = {"backend": "scripted", "model": "tiny-1.5b"}
    values = {"name": "a", "task": "qa", "corpus": "b", "target": 1, "language": "en", "llm": llm}
    for_large = {"method": "needs", "one_call": True, "types": {"question": 3, "keywords": 1}}
    named = {**for_large, "prompts": "small", "rewrites": 0, "hard_negatives": [0, 0], "wording": {"overlap": 0.4}}
    methods = [
        Pipeline.model_validate({**values, "generation": generation}).generation.method
        for generation in (for_large, named)
    ]
    assert methods == ["paper", "needs"]
