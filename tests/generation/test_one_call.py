"""Character, scenario and searches in one answer: the paper's rows, one call, and the choice among the searches."""

import json
import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from beir_folder import read_rows
from job_maker import LEXICAL, Run

from airgen.errors import SettingsError, Stopped
from airgen.generation.attributes import length_class
from airgen.generation.one_call import _little_of, _own_words, _poor_keywords, drafts_of, keywords_pattern, unanswered
from airgen.generation.round_trip import RoundTrip
from airgen.job import Job
from airgen.llms.base import Reply, Request
from airgen.llms.prompts import PromptSet
from airgen.llms.scripted import ScriptedBackend
from airgen.settings import Pipeline
from airgen.steps.progress import Display
from airgen.storage.records import Candidate, Character, Query, Scenario

JOB = LEXICAL
TYPES = "types: {question: 3, keywords: 3, problem: 1, claim: 1}"
REST = "rewrites: 0, hard_negatives: [0, 0]}"
AT_ONCE = {"target: 4": f"target: 4\ngeneration: {{prompts: small, one_call: true, {TYPES}, {REST}"}
GOOD = {
    "character": "an old hand", "scenario": "Work stands still, and somebody has to know what to do.",
    "fact": "Specimens differ.", "question": "how does a specimen decline", "keywords": "specimen violins repair",
    "problem": "my specimen breaks every winter", "claim": "A specimen of this kind grows in winter",
}  # fmt: skip


def says(**changed: str) -> Callable[[Request], Reply | None]:
    """A model that gives this answer about every document, told apart by the document's number."""

    def answer(request: Request) -> Reply | None:
        if request.stage != "query":
            return None
        number = request.messages[-1].content.partition("Specimen ")[2].partition(" ")[0]
        value = {**GOOD, **changed}
        for kind in ("keywords", "question", "problem", "claim"):
            value[kind] = value[kind].replace("specimen", f"specimen {number}")
        return Reply(json.dumps(value), prompt_tokens=1, completion_tokens=1)

    return answer


def rows(folder: Path) -> dict[str, list[Any]]:
    job = Job(folder / "job.yaml", folder / "runs")
    with job.open_store(read_only=True) as store:
        lineages = job.accepted(store).lineages
        return {kind.__name__: [row for one in lineages for row in one.every(kind)] for kind in
                (Character, Scenario, Candidate, Query)}  # fmt: skip


def test_one_call_makes_the_rows_of_all_steps(run: Run, folder: Path) -> None:
    result = run(changes=AT_ONCE)
    found = rows(folder)
    assert len(found["Character"]) == len(found["Scenario"]) == len(found["Query"]) == 4
    drafts = Counter(draft.parent for draft in found["Candidate"])
    assert len(drafts) == 4 and set(drafts.values()) <= {4, 5}  # all of an answer's searches are kept
    tried = result.usage["query"]["calls"]
    assert "character" not in result.usage and "scenario" not in result.usage
    with Job(folder / "job.yaml", folder / "runs").open_store(read_only=True) as store:
        samples = len(store.query("SELECT key FROM sample"))
    assert tried <= samples  # three steps, one answer
    again = run(changes=AT_ONCE)
    assert not again.usage  # and it is on the disk


def test_the_bytes_do_not_depend_on_concurrency(run: Run, folder: Path) -> None:
    one = run("one", {**AT_ONCE, "concurrency: 32": "concurrency: 1"}).directory / "dataset"
    other = run("other", AT_ONCE).directory / "dataset"
    for name in ("queries.jsonl", "corpus.jsonl"):
        assert (one / name).read_bytes() == (other / name).read_bytes()


def test_a_local_model_writes_a_query_before_the_corpus_is_indexed(
    run: Run, folder: Path, distinct: None, asked: list[Request], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The job is stopped while the corpus is indexed, and the first answer is taken over when it goes on."""
    changes = {**AT_ONCE, "top_k: 20}": "top_k: 300}\n  judge: {kind: votes}"}
    plain = run("plain", changes).directory
    asked.clear()
    noted: list[str] = []
    monkeypatch.setattr(ScriptedBackend, "SERIAL", True)
    prepare = RoundTrip.prepare
    monkeypatch.setattr(Display, "say", lambda display, text: noted.append(text))

    def stop(trip: RoundTrip) -> None:
        raise Stopped("stopped while indexing")

    monkeypatch.setattr(RoundTrip, "prepare", stop)
    with pytest.raises(Stopped):
        run(changes=changes)
    (first,) = asked
    (note,) = noted
    queries = {line["text"] for line in read_rows(plain / "dataset" / "queries.jsonl")}
    assert note.removeprefix("first query, not checked yet: ") in queries

    monkeypatch.setattr(RoundTrip, "prepare", prepare)
    resumed = run(changes=changes).directory
    assert [request.key for request in asked].count(first.key) == 1
    for name in ("queries.jsonl", "corpus.jsonl", "qrels/test.tsv"):
        assert (resumed / "dataset" / name).read_bytes() == (plain / "dataset" / name).read_bytes()


def test_types_are_those_that_the_queries_have(run: Run, folder: Path, model_says: Callable[..., None]) -> None:
    """Here keywords and problems are questions, which they must not be: another search of the answer is taken."""
    model_says(says(keywords="what is a specimen for", problem="why does my specimen break?"))
    result = run(changes=AT_ONCE)
    queries = read_rows(result.directory / "dataset" / "queries.jsonl")
    kinds = Counter(row["metadata"]["type"] for row in queries)
    assert set(kinds) <= {"question", "keywords", "claim"} and sum(kinds.values()) == len(queries) == 4
    starts = {"how does": "question", "A specimen": "claim"}
    for row in queries:
        kind = next((kind for start, kind in starts.items() if row["text"].startswith(start)), "keywords")
        assert row["metadata"]["type"] == kind and "what" not in row["text"]
        assert row["metadata"]["length"] == length_class(row["text"], "en")
    reasons = Counter(draft.problem for draft in rows(folder)["Candidate"])
    assert reasons["wrong type"] == 8


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"keywords": "specimen search engine"}, "has a word of the instructions"),
        ({"keywords": "specimen led street lights caterpillars"}, "has words of the examples"),
        ({"character": "a plumber", "keywords": "plumber specimen repair"}, "mentions its character"),
        ({"keywords": "specimen"}, "is vague"),
        ({"question": "how does a specimen look after 1937 days"}, "has a number that is not in its document"),
        ({"question": "how does a thing " + " ".join(f"a{place}" for place in range(40))[:92]}, "is cut off"),
        ({"problem": "I need information on my specimen"}, "wrong type"),
        ({"claim": "A specimen is what this document is about"}, "has a word of the instructions"),
        ({"question": "how does the author look at a specimen"}, "refers to the document"),
    ],
)
def test_what_is_wrong_with_a_search(
    changed: dict[str, str], reason: str, run: Run, folder: Path, model_says: Callable[..., None]
) -> None:
    model_says(says(**changed))
    run(changes=AT_ONCE)
    assert reason in {draft.problem for draft in rows(folder)["Candidate"]}


def test_a_second_query_of_a_passage_is_asked_for_anew(run: Run, folder: Path, asked: list[Request]) -> None:
    few = (folder / "small.jsonl").read_text("utf-8").splitlines()[:12]
    (folder / "small.jsonl").write_text("\n".join(few), encoding="utf-8")
    run(changes={"target: 4": AT_ONCE["target: 4"].replace("target: 4", "target: 14").replace(
        "one_call: true", "one_call: true, queries_per_passage: 2")})  # fmt: skip
    requests = [request for request in asked if request.stage == "query"]
    assert (
        len({request.key for request in requests}) > 12 == len({request.messages[-1].content for request in requests})
    )


VALUE = {
    "question": "How does a kiln crack?", "keywords": "kiln  crack cold", "problem": "my kiln cracks",
    "claim": "Kilns crack when they cool",
}  # fmt: skip


def test_drafts_are_in_the_order_of_choice() -> None:
    assert drafts_of(VALUE, ["keywords", "claim", "question"], "en") == [
        ("keywords", "keywords", "kiln crack cold"),
        ("keywords", "question", "kiln crack"),
        ("claim", "claim", "Kilns crack when they cool"),
        ("question", "question", "How does a kiln crack?"),
    ]


def test_a_draft_that_comes_twice_counts_once() -> None:
    value = {"question": "how does a kiln crack", "keywords": "Kiln crack"}
    assert drafts_of(value, ["keywords"], "en") == [("keywords", "keywords", "Kiln crack")]


def test_examples_show_only_what_is_asked_for(run: Run, asked: list[Request]) -> None:
    """Where they go on, a model writes on at the end of its answer, too, until it is cut off."""
    run(changes={"target: 4": AT_ONCE["target: 4"].replace(TYPES, "types: {keywords: 1}")})
    (request, *_) = [request for request in asked if request.stage == "query"]
    assert request.schema is not None
    examples = [json.loads(message.content) for message in request.messages if message.role == "assistant"]
    assert len(examples) == 4
    for example in examples:
        assert list(example) == list(request.schema["properties"]) == ["character", "scenario", "fact", "keywords"]


def test_the_prefix_of_all_calls_is_one(run: Run, asked: list[Request]) -> None:
    run(changes=AT_ONCE)
    requests = [request for request in asked if request.stage == "query"]
    assert len(requests) > 4 and len({request.messages[:-1] for request in requests}) == 1


def test_passages_that_nobody_looks_for_are_counted_and_cost_nothing(
    run: Run, folder: Path, asked: list[Request]
) -> None:
    lines = (folder / "small.jsonl").read_text("utf-8").splitlines()
    caption = {
        "id": "caption",
        "title": "",
        "text": "Figure 7: a violin under dry conditions, seen from the north side.",
    }
    few = [json.dumps({**caption, "id": f"caption-{place}", "text": caption["text"] + f" Part {place}."})
           for place in range(8)]  # fmt: skip
    (folder / "small.jsonl").write_text("\n".join([*lines[:8], *few]), encoding="utf-8")
    result = run(changes={"target: 4": AT_ONCE["target: 4"].replace("target: 4", "target: 8")})
    assert result.manifest is not None
    (step,) = [step for step in result.manifest.funnel if step.stage == "character"]
    assert step.reasons["users do not search for a caption"] > 0
    written = [request.messages[-1].content for request in asked if request.stage == "query"]
    assert written and not any("seen from the north side" in text for text in written)
    assert "Figure 7" in (result.directory / "dataset" / "corpus.jsonl").read_text("utf-8")  # it stays in the corpus


def test_keywords_are_held_to_the_documents_words() -> None:
    document = "Öfen\n\nDer Ofen (aus Ton) hat zwei „Züge“ und reißt, wenn er bei 12 °C abkühlt: --help, .git-Ordner."
    pattern = keywords_pattern(document, "de")
    assert pattern is not None
    for good in ("ofen züge ton", "Ofen reißt 12 abkühlt", ".git-Ordner ofen Öfen"):
        assert re.fullmatch(pattern, good), good
    for bad in ("ofen ton", "der ofen reißt", "ofen züge backofen", "ofen  ton züge", "OFEN TON ZÜGE",
                "ofen ton züge reißt 12 abkühlt zwei"):  # fmt: skip
        assert not re.fullmatch(pattern, bad), bad
    elided = keywords_pattern("L'ingénieur n'avait pas calculé l'effet du vent sur qu'une arche d'acier", "fr")
    assert elided is not None and re.fullmatch(elided, "ingénieur effet vent acier")
    assert keywords_pattern("Der Ofen aus Ton", "de") is None  # nothing to choose from
    many = keywords_pattern(" ".join(f"Wort{number}" for number in range(100_000)), "de")
    assert many is not None and len(many) < 100_000 and re.fullmatch(many, "Wort1 Wort20 Wort1999")
    assert keywords_pattern("เตาเผา แตกร้าว เมื่อ เย็น ลง เร็ว มาก", "th") is None


def test_chinese_keywords_are_short_groups() -> None:
    pattern = keywords_pattern("", "zh")
    assert pattern is not None
    for good in ("抗体药物 副作用", "LED 路灯 毛虫 数量", "tar 排除 .git目录"):
        assert re.fullmatch(pattern, good), good
    for bad in ("抗体药物", "抗体药物，副作用", "抗体药物的副作用有哪些表现 治疗", "一二 三四 五六 七八 九十"):
        assert not re.fullmatch(pattern, bad), bad


def test_a_language_that_the_model_knows_less_holds_its_keywords_to_the_document(
    run: Run, folder: Path, asked: list[Request]
) -> None:
    """And asks for nothing else there; in English, the model is free."""
    german = {**AT_ONCE, "task: qa": "task: qa\nlanguage: de", "backend: scripted": "backend: scripted, size: small"}
    german["target: 4"] = "target: 2\ngeneration: {rewrites: 0, hard_negatives: [0, 0]}"
    run("german", german)
    request = next(request for request in asked if request.stage == "query")
    assert request.schema is not None and "question" not in request.schema["properties"]
    pattern = request.schema["properties"]["keywords"]["pattern"]
    assert re.fullmatch(pattern, "specimen decline harbours") or "pecimen" in pattern
    run("english", AT_ONCE)
    (*_, request) = [request for request in asked if request.stage == "query"]
    assert request.schema is not None and "pattern" not in request.schema["properties"]["keywords"]


@pytest.mark.parametrize(
    ("language", "question", "fact", "expected"),
    [
        ("zh", "诺曼家族何时抵达地中海", "他们是最著名的诺曼家族", True),
        ("zh", "诺曼家族何时抵达地中海", "他们于 1030 年抵达", False),
        ("zh", "房东多久退押金", "房东应在三十天内退还押金", False),
        ("zh", "泰河大桥为什么会倒塌", "工程师没有考虑风力", False),
        ("de", "wie viele Züge hat der Ofen", "Der Ofen ist aus Ton", True),
        ("de", "wann reißt der Ofen", "Er reißt bei 12 Grad", False),
        ("en", "how many people died", "the bridge fell", False),  # is not asked there
    ],
)
def test_a_question_for_a_number_needs_a_fact_with_one(language: str, question: str, fact: str, expected: bool) -> None:
    assert (unanswered("question", question, fact, language) is not None) is expected
    assert unanswered("keywords", question, fact, language) is None


@pytest.mark.parametrize(
    ("text", "invented"),
    [
        ("如何在 Excel 中显示公式", "Excel"),
        ("如何在 Calc 中显示公式", ""),
        ("显示公式 单元格 担担", "担担"),
        ("公式 单元格 显示", ""),
        ("怎么烤面包和蛋糕", "only 0%"),
    ],
)
def test_chinese_searches_name_what_is_in_the_document(text: str, invented: str) -> None:
    problem = _little_of(text, "显示公式或数值\n\n如果要在单元格中显示公式，请选择「LibreOffice Calc - 视图」。", "zh")
    assert (problem.detail if problem else "") == (f"{invented} are" if "%" in invented else invented)


def test_the_words_of_a_chinese_question_are_not_those_of_the_instructions() -> None:
    instructions, _ = _own_words(PromptSet(), "small/zh/searches", "zh")
    assert instructions and not {"什么", "谁", "哪些"} & instructions


@pytest.mark.parametrize(
    ("keywords", "circle"),
    [
        ("sicherung datensicherung laufwerk", True),
        ("benachrichtigungen liste benachrichtigungsfeld", True),
        ("ordner .git ausschließen", False),
        ("sicherung laufwerk wiederherstellen", False),
        ("a aal fang", False),
    ],
)
def test_keywords_that_go_round_in_circles(keywords: str, circle: bool) -> None:
    own = keywords.split()
    assert _poor_keywords(own, own) is None  # they are different words
    assert (_poor_keywords(own, own, held=True) is not None) is circle


@pytest.mark.parametrize(
    "generation",
    [
        {"one_call": True},
        {"one_call": True, "prompts": "small", "multi_hop": 0.5},
        {"prompts": "small", "types": {"keywords": 1}},
    ],
)
def test_what_does_not_go_together(generation: dict[str, Any]) -> None:
    values = {"name": "p", "task": "qa", "corpus": "c", "target": 1, "llm": {"backend": "scripted"}}
    with pytest.raises((SettingsError, ValueError), match=r"one_call"):
        Pipeline.model_validate({**values, "generation": generation})
