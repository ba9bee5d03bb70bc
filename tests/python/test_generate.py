"""A job from Python: the same as from its YAML, functions in place of models, and what is refused before it is paid."""

import asyncio
import json
import os
import signal
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from report_reader import read_report
from rows_maker import LEXICAL, PLAIN, corpus, rows

import airgen
from airgen.errors import AirgenError, DatasetError, LlmError, SettingsError, Stopped, UsageError
from airgen.python.recipe import make_recipe
from airgen.safety.interruptible import ask_to_stop


def files(folder: Path) -> dict[str, bytes]:
    """The bytes of all files of a folder."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def test_the_yaml_and_python_are_the_same_job(here: Path) -> None:
    """The printed YAML, run elsewhere, gives the same bytes; and what the shell runs goes on with Python's job."""
    bench = airgen.generate(corpus(metadata=["product"]), n=6, work="runs/handbook", **LEXICAL)
    other = here / "elsewhere"
    other.mkdir()
    assert bench.recipe is not None
    (other / "pipeline.yaml").write_text(bench.recipe.to_yaml(), encoding="utf-8")
    for name in ("corpus.yaml", "corpus.jsonl"):
        (other / name).write_bytes((here / "runs/handbook" / name).read_bytes())
    again = airgen.run(other / "pipeline.yaml", quiet=True, report=False)
    assert files(again.directory / "dataset") == files(bench.path)
    assert airgen.run(here / "runs/handbook/pipeline.yaml", quiet=True, report=False).already_done
    assert airgen.run("runs/handbook", quiet=True, report=False).already_done
    # Python goes on with it, and a larger number keeps what is there.
    more = airgen.generate(corpus(metadata=["product"]), n=8, work="runs/handbook", **LEXICAL)
    assert len(more) == 8 and set(bench.queries) <= set(more.queries)


def test_a_benchmark_of_an_earlier_version_is_refused(here: Path) -> None:
    first = airgen.generate(corpus(), n=6, work="runs/handbook", **LEXICAL)
    assert airgen.evaluate(first, "bm25", quiet=True)[0].queries == 6
    more = airgen.generate(corpus(), n=8, work="runs/handbook", **LEXICAL)
    with pytest.raises(UsageError, match=r"holds version 0\.1 \(8 queries\) now, .* 0\.1 \(6 queries\): load it"):
        airgen.evaluate(first, "bm25", quiet=True)
    assert airgen.evaluate(more, "bm25", quiet=True)[0].queries == 8
    assert len(airgen.load(first)) == 8


def test_another_corpus_needs_another_folder(here: Path) -> None:
    airgen.generate(corpus(), n=4, work="runs/handbook", **LEXICAL)
    others = [{"id": f"other-{number}", "text": f"{row['body']} Otherwise."} for number, row in enumerate(rows())]
    with pytest.raises(UsageError, match=r"work: runs/handbook holds a job on another corpus: 0 of its \d+ doc"):
        airgen.generate(airgen.Corpus(others), n=4, work="runs/handbook", **LEXICAL)
    (here / "docs").mkdir()
    (here / "docs/page.md").write_text("# A page\n\nwith a text of several words that are kept.\n")
    with pytest.raises(UsageError, match=r"holds a job on another corpus: .*corpus\.jsonl\. Choose another"):
        airgen.generate(here / "docs", n=4, work="runs/handbook", **LEXICAL)


def test_fewer_queries_than_asked_for_are_said(here: Path) -> None:
    few = airgen.Corpus(rows()[:6], id="url", title="name", text="body", **PLAIN)
    bench = airgen.generate(few, n=500, work="runs/handbook", **LEXICAL)
    said = f"{len(bench):,} of the 500 queries asked for (the corpus gave "
    assert (
        said in repr(bench)
        and said in bench.study().text()
        and bench.run is not None
        and said in bench.run.study().text()
    )
    again = airgen.generate(few, n=500, work="runs/handbook", **LEXICAL)
    assert said in repr(again)


def test_masked_documents_are_not_dropped() -> None:
    texts = ["Write to ann@example.org about the tides of the northern coast, please.", "Bridges are measured near it."]
    masked = airgen.Corpus(texts, language="en", clean={"min_tokens": 3, "personal_data": "mask"}, tokenizer="words")
    assert repr(masked).startswith("Corpus 'corpus': 2 of 2 passages; personal data masked in 1")
    assert masked.dropped == []


def test_passages_keep_their_metadata_and_are_drawn_evenly(made: airgen.Benchmark) -> None:
    known = {row["url"]: row for row in rows()}
    for key, passage in made.corpus.items():
        assert set(passage["metadata"]) == {"product", "version"}
        if key in known:
            assert passage["metadata"] == {name: known[key][name] for name in ("product", "version")}
    lineage = [json.loads(line) for line in (made.path / "private/lineage.jsonl").read_text().splitlines()]
    drawn = Counter(known[one["source"]]["product"] for one in lineage)
    assert set(drawn) == {"core", "cloud", "desk"} and max(drawn.values()) - min(drawn.values()) <= 2
    asked = {row["_id"]: row["filter.version"] for row in made.queries.rows()}
    assert all(asked[one["query"]] == known[one["source"]]["version"] for one in lineage)


def answer(messages: list[dict[str, str]], schema: Any = None) -> str:
    """What the scripted model would say, as a function of messages."""
    words = [word for word in messages[-1]["content"].split() if word.isalpha() and len(word) > 4][:8]
    if not schema:
        return "2"
    text = " ".join(dict.fromkeys(words))
    kinds = {name: one.get("type") for name, one in schema["properties"].items()}
    return json.dumps({name: [text] if kind == "array" else text for name, kind in kinds.items()})


def test_a_function_answers_and_another_one_judges(here: Path) -> None:
    calls = []

    def relevant(query: str, passages: list[str]) -> list[bool]:
        calls.append(query)
        return [sum(word in passage for word in query.split()) >= 2 for passage in passages]

    queries = {"q1": "glaciers attract visitors", "q2": "violins were banned"}
    bench = airgen.label(
        corpus(), queries, llm=answer, judge=relevant, work="runs/own", control=LEXICAL["control"],
        rerankers=[lambda query, passages: [len(set(query.split()) & set(one.split())) for one in passages]],
        quiet=True,
    )  # fmt: skip
    assert set(bench.queries) == {"q1", "q2"} and all(any(row.values()) for row in bench.qrels.values())
    assert calls and set(calls) == set(queries.values())
    text = (here / "runs/own/pipeline.yaml").read_text()
    assert "backend: python-judge" in text and "model: relevant" in text


def test_what_a_function_must_return(here: Path) -> None:
    judge: Any = lambda query, passages: "certainly"  # noqa: E731
    with pytest.raises(LlmError, match="the judge function must return, for each passage, a level of 0, 1, 2 or 3"):
        airgen.label(corpus(), ["glaciers attract visitors"], llm=answer, judge=judge, work="runs/own",
                     control=LEXICAL["control"], rerankers=["bm25"], quiet=True)  # fmt: skip
    broken: Any = lambda messages: {"text": "yes"}  # noqa: E731
    with pytest.raises(LlmError, match="the LLM function must return the text of the answer, but returned"):
        airgen.generate(corpus(), n=2, work="runs/two", **{**LEXICAL, "llm": broken})


def test_an_estimate_pays_nothing(here: Path) -> None:
    found = airgen.estimate(corpus(), n=10, llm="gpt-4o-mini", judge="gpt-4o-mini", work="runs/x",
                            control=LEXICAL["control"], rerankers=["bm25"], measure=False)  # fmt: skip
    assert found.usd and found.calls > 50 and found.tokens > found.calls
    assert any("OPENAI_API_KEY" in line for line in found.problems) and not Path("runs").exists()
    assert {"stage", "calls", "tokens in", "tokens out", "USD"} == set(found.to_pandas().columns)
    assert found.minutes and "plus the LLM's own time" in repr(found)


def test_an_estimate_says_what_it_does_not_contain(here: Path) -> None:
    settings = {"rerankers": ["bm25", "ms-marco-minilm-l12-int8"], "control": LEXICAL["control"]}
    found = airgen.estimate(corpus(), n=5, llm="scripted", measure=False, **settings)
    assert found.unmeasured == ["ms-marco-minilm-l12-int8"]
    assert "plus the time of the models on this machine, which was not measured: ms-marco-minilm-l12-int8" in repr(
        found
    )
    votes = {name: LEXICAL[name] for name in ("rerankers", "control")}
    assert "not measured" not in repr(airgen.estimate(corpus(), n=5, llm="scripted", measure=False, **votes))


def test_an_estimate_and_a_check_count_the_same(here: Path) -> None:
    """One function answers both, whether the job comes from Python or from a file."""
    airgen.generate(corpus(), n=2, work="runs/same", **LEXICAL)
    call = {name: value for name, value in LEXICAL.items() if name != "quiet"}
    asked, checked = airgen.estimate(corpus(), n=9, work="runs/same", **call), airgen.check("runs/same", target=9)
    assert (asked.usd, asked.calls, asked.tokens) == (checked.usd, checked.calls, checked.tokens)
    assert [(row.what, row.model, row.texts) for row in asked.local] == [
        (row.what, row.model, row.texts) for row in checked.local
    ]


def test_an_estimate_asks_the_model_only_if_told_to(here: Path, loopback: Callable[..., Any]) -> None:
    server = loopback(text="3")
    call = {"n": 3, "llm": {"model": "m", "base_url": server.base_url}, "measure": False}
    call |= {name: LEXICAL[name] for name in ("rerankers", "control")}
    assert "how fast: airgen.estimate(..., probe=True) asks" in repr(airgen.estimate(corpus(), **call))
    assert not server.stats()["requests"]
    assert airgen.estimate(corpus(), probe=True, **call).probed and server.stats()["requests"]


NOT_OPENAI = {
    "address": ("http://localhost:11434/v1", "address of a server needs the name of a model on it: {'model': NAME"),
    "host": ("localhost:11434/v1", "address of a server needs"),
    "domain": ("https://llm.example/v1", "address of a server needs"),
    "local model": ("qwen2.5-coder-1.5", r"did you mean 'qwen2\.5-coder-1\.5b'\?"),
    "misspelt": ("gpt-4o-minni", r"did you mean 'gpt-4o-mini'\?"),
    "other maker": ("claude-opus-9", "no model is named 'claude-opus-9': for a model of OpenAI, write"),
    "in a mapping": ({"model": "http://localhost:11434/v1"}, "address of a server needs"),
}


@pytest.mark.parametrize("case", NOT_OPENAI)
@pytest.mark.parametrize("argument", ["llm", "judge"])
def test_nothing_goes_to_openai_that_names_another(
    argument: str, case: str, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "a-key")
    given, words = NOT_OPENAI[case]
    with pytest.raises(UsageError, match=f"^{argument}: .*{words}"):
        airgen.estimate(corpus(), n=5, measure=False, **{"llm": "scripted", argument: given})


def test_a_judge_is_not_taken_for_a_model(here: Path) -> None:
    with pytest.raises(UsageError, match=r"judge: no model is named 'vote' \(did you mean 'votes'\?\)"):
        airgen.estimate(corpus(), n=5, llm="scripted", judge="vote", measure=False)


def test_labels_of_ones_own_need_no_judge(here: Path) -> None:
    queries = ["Which bridges need repair?", "Where do glaciers grow?", "never labelled"]
    labels = {"q1": {"p0": 1, "p10": 1}, "q2": {"p2": 1, "p3": 0}}
    bench = airgen.label(corpus(), queries, labels=labels, judge=None, work="runs/own", quiet=True)
    assert dict(bench.qrels) == {"q1": {"p0": 1, "p10": 1}, "q2": {"p2": 1, "p3": 0}}
    assert bench.run is not None and not bench.run.usage and not bench.agreement
    results = airgen.evaluate(bench, {"bm25": "bm25"}, quiet=True)
    assert not results["bm25"].mark  # BM25 found none of the labels
    with pytest.raises(UsageError, match="judge: None uses your own labels alone: give them with labels="):
        airgen.label(corpus(), queries, judge=None)
    with pytest.raises(SettingsError, match="your own labels are the only ones"):
        airgen.generate(corpus(), n=2, judge=None, work="runs/none")


def test_labels_of_a_frame_are_understood_as_those_of_a_file(here: Path) -> None:
    """Documents by page under an unusual name, and stars, of which no value says "not relevant"."""
    pages = airgen.Corpus(rows(), id="url", text="body", chunk=16, clean=False, language="en")
    assert all("#chunk=" in passage["id"] for passage in pages)
    queries = {"q1": "Which bridges need repair?", "q2": "Where do glaciers grow?"}
    table = pd.DataFrame({"question": ["q1", "q1", "q2"], "article": ["p0", "p1", "p2"], "stars": [5, 2, 4]})
    with pytest.raises(DatasetError, match=r"in 'stars' go from 2 to 5.*\(relevant_from=N\), or write 1"):
        airgen.label(pages, queries, labels=table, judge=None, quiet=True)
    settings = {"judge": None, "quiet": True}
    bench = airgen.label(pages, queries, labels=table, relevant_from=4, work="runs/frame", **settings)
    found = {query: {id_.partition("#")[0]: label for id_, label in of.items()} for query, of in bench.qrels.items()}
    assert found == {"q1": {"p0": 1, "p1": 0}, "q2": {"p2": 1}}
    own = {"file": table.rename(columns={"stars": "points"}), "rating_column": "points", "relevant_from": 5}
    table.drop(columns="stars").assign(good=[0, 1, 0]).to_csv(here / "more.csv", index=False)
    bench = airgen.label(pages, queries, labels=[own, "more.csv"], work="runs/both", **settings)
    assert sum(label for of in bench.qrels.values() for label in of.values()) == 1  # p0: the first of two labels counts


def test_a_column_that_no_label_can_name_says_how_to_name_it(here: Path) -> None:
    table = pd.DataFrame({"question": ["q1"], "where": ["elsewhere"], "rating": [1]})
    with pytest.raises(UsageError, match=r"\(call it `doc_id`, or name it: label_column=\)"):
        airgen.label(corpus(), {"q1": "Which bridges need repair?"}, labels=table, judge=None, quiet=True)


def test_a_judge_is_compared_with_the_labels_given(here: Path) -> None:
    """Also where no other LLM is at hand."""
    settings = {name: value for name, value in LEXICAL.items() if name != "llm"}

    def judge(query: str, passages: list[str]) -> list[bool]:
        return ["Bridges" in passage for passage in passages]

    labels = {"q1": {"p0": 1, "p10": 1, "p20": 0, "p1": 0}}
    queries = ["Which bridges need repair?"]
    bench = airgen.label(corpus(), queries, labels=labels, judge=judge, work="runs/own", **settings)
    assert bench.agreement.startswith("the judge agrees with 3 of 4 of your labels: 75% (95% interval ")
    assert bench.agreement.endswith("2 of 2 that are relevant, 1 of 2 that are not relevant)")
    assert bench.agreement in repr(bench) and bench.agreement in repr(airgen.load("runs/own"))
    for systems in {"bm25": "bm25"}, {"bm25": "bm25", "flat": {"kind": "bm25", "k1": 0.2}}:  # without and with a pair
        page = airgen.evaluate(bench, systems, quiet=True, out="results").report("page.html")
        first = read_report(Path(page))["d0/overview"]
        said = [*first["labels_by_people"], *(why for question, _, why in first["answers"])]
        assert sum(bench.agreement[1:] in words for words in said) == 1


@pytest.mark.parametrize(
    ("given", "settings"),
    [
        ({"model": "m", "base_url": "http://h/v1"}, {"backend": "openai", "model": "m", "base_url": "http://h/v1"}),
        ({"model": "gpt-4o-mini", "temperature": 0}, {"backend": "openai", "model": "gpt-4o-mini", "temperature": 0,
                                                      "api_key_env": "OPENAI_API_KEY"}),
        ("openai:mine-7", {"backend": "openai", "model": "mine-7", "api_key_env": "OPENAI_API_KEY"}),
        ("anthropic:claude-opus-9", {"backend": "anthropic", "model": "claude-opus-9"}),
    ],
)  # fmt: skip
def test_what_names_an_llm(given: Any, settings: dict[str, Any], here: Path) -> None:
    recipe = make_recipe(corpus(), n=5, llm=given, judge=given)
    assert recipe.values["llm"] == settings and recipe.values["control"]["judge"]["llm"] == settings


def test_it_runs_under_a_running_loop(here: Path) -> None:
    async def notebook() -> airgen.Benchmark:
        return airgen.generate(corpus(), n=2, work="runs/loop", **LEXICAL)

    assert len(asyncio.run(notebook())) == 2


def test_the_stop_button_of_a_notebook_reaches_local_models(here: Path) -> None:
    """The button interrupts the main thread, while a model reads texts in another one."""
    read: list[str] = []
    stopped = threading.Event()

    def slow(query: str, passages: list[str]) -> Any:
        if threading.current_thread() is not threading.main_thread():
            read.append(query)
        if len(read) == 2 and not stopped.is_set():
            os.kill(os.getpid(), signal.SIGINT)
            stopped.wait(20)
        return [float(len(set(query.split()) & set(passage.split()))) for passage in passages]

    voter = airgen.Function(slow, version="1")
    loop = asyncio.new_event_loop()  # asyncio.run handles the interrupt itself, which a kernel does not

    async def notebook() -> None:
        airgen.generate(corpus(), n=6, work="runs/loop", **{**LEXICAL, "rerankers": [voter, "bm25"]})

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("airgen.steps.ask.ask_to_stop", lambda *asked: (ask_to_stop(*asked), asked or stopped.set()))
        with pytest.raises(Stopped, match="make the same call again to continue"):
            loop.run_until_complete(notebook())
    assert len(read) == 2
    loop.run_until_complete(notebook())
    loop.close()
    assert len(read) > 2


COLUMNS = {"id": "url", "title": "name", "text": "body"}
BAD: dict[str, tuple[dict[str, Any], str]] = {
    "no such": ({"id": "id"}, r"id: no column 'id'; there are: 'url', 'name', 'body', 'product', 'version'"),
    "column": ({"text": "bdy"}, r"text: no column 'bdy' \(did you mean 'body'\?\); there are: 'url', 'name', 'body'"),
    "metadata": ({"metadata": ["versoin"]}, r"metadata: no column 'versoin' \(did you mean 'version'\?\)"),
    "ids": ({"id": "product"}, "id: 'cloud' is the product of two rows|id: 'core' is the product of two rows"),
    "numbers": ({"text": "version"}, "text: no row has a text in 'version': its values are of the type int"),
    "key": ({"licnce": "MIT"}, r"licnce: unknown key \(did you mean 'licence'\?\)"),
}


@pytest.mark.parametrize("case", BAD)
def test_rows_that_cannot_be_a_corpus(case: str) -> None:
    more, words = BAD[case]
    with pytest.raises((UsageError, SettingsError), match=words):
        corpus(**more)


def test_rows_without_a_text_are_counted() -> None:
    found = airgen.Corpus([*rows(20), {"url": "x", "body": float("nan")}, {"url": "y", "body": None}], id="url",
                          title="name", text="body", **PLAIN)  # fmt: skip
    assert len(found) == 20 and Counter(row["reason"] for row in found.dropped) == {"missing text": 2}
    assert "20 of 22 passages" in repr(found) and "2 of 22 rows have no text in" in found._repr_html_()


def test_a_corpus_says_that_it_makes_its_ids() -> None:
    """A search of the user's own returns ids that it would not find in the corpus."""
    unknown = [{"article": number, "body": row["body"]} for number, row in enumerate(rows(9), 31)]
    assert "text = 'body'; no id column, so ids are made from the texts (id=COLUMN)" in repr(airgen.Corpus(unknown))
    assert "no id column" not in repr(airgen.Corpus(unknown, id="article"))
    assert "no id column" not in repr(airgen.Corpus([row["body"] for row in rows(9)]))


@pytest.mark.parametrize("kind", ["pandas", "polars", "arrow", "datasets", "texts", "beir"])
def test_rows_of_every_kind_give_the_same_corpus(kind: str) -> None:
    data: Any = rows(12)
    if kind == "texts":
        data = [row["body"] for row in data]
        assert len(airgen.Corpus(data, **PLAIN)) == 12
        return
    if kind == "beir":
        data = {row["url"]: {"title": row["name"], "text": row["body"]} for row in data}
        assert [one["id"] for one in airgen.Corpus(data, **PLAIN)] == list(data)
        return
    if kind == "pandas":
        data = pytest.importorskip("pandas").DataFrame(data)
    elif kind == "polars":
        data = pytest.importorskip("polars").DataFrame(data)
    elif kind == "arrow":
        data = pytest.importorskip("pyarrow").Table.from_pylist(data)
    elif kind == "datasets":
        data = pytest.importorskip("datasets").Dataset.from_list(data)
    columns = {"id": "url", "title": "name", "text": "body", "metadata": ["version"]}
    expected = airgen.Corpus(rows(12), **columns, **PLAIN)
    assert list(airgen.Corpus(data, **columns, **PLAIN)) == list(expected)


NESTED: dict[str, Any] = {
    "metadata": lambda row: {"id": row["url"], "text": row["body"], "metadata": {"title": row["name"]}},
    "payload": lambda row: {"id": row["url"], "payload": {"text": row["body"], "title": row["name"]}},
    "lists": lambda row: {"_id": row["url"], "title": row["name"], "text": [row["body"]]},
}


@pytest.mark.parametrize("form", NESTED)
def test_nested_columns_are_found_and_can_be_named(form: str) -> None:
    made = [NESTED[form](row) for row in rows(12)]
    expected = [(one["id"], one["title"], one["text"]) for one in airgen.Corpus(rows(12), **COLUMNS, **PLAIN)]
    for data in (made, {name: [row[name] for row in made] for name in made[0]}):
        found = airgen.Corpus(data, **PLAIN)
        assert [(one["id"].removesuffix("#1"), one["title"], one["text"]) for one in found] == expected
    with pytest.raises(UsageError, match=r"metadata: no column 'metadata.titel'"):
        airgen.Corpus([NESTED["metadata"](row) for row in rows(12)], metadata=["metadata.titel"], **PLAIN)


def test_ids_are_kept_or_it_is_said_why_not() -> None:
    pandas = pytest.importorskip("pandas")
    given = [{"id": place, "title": row["name"], "text": row["body"]} for place, row in enumerate(rows(6))]
    frame = pandas.DataFrame(given)
    for data in (frame, frame.set_index("id"), frame.astype({"id": float}), frame.set_index(["id", "title"])):
        assert [one["id"] for one in airgen.Corpus(data, **PLAIN)] == list("012345")
    frame = frame.astype({"id": float})
    frame.loc[5, "id"] = None
    for more in ({}, {"id": "id"}):
        found = airgen.Corpus(frame, **more, **PLAIN)
        assert [one["id"] for one in found][:5] == list("01234") and "1 of 6 rows have no id in 'id'" in repr(found)
    frame["id"] = [1, 1, 2, 3, 4, 5]
    with pytest.raises(UsageError, match="id: two rows have the same 'id'"):
        airgen.Corpus(frame, **PLAIN)
    assert len(airgen.Corpus(frame, id=None, **PLAIN)) == 6
    renamed = airgen.Corpus(frame.rename(columns={"id": "doc_id"}), **PLAIN)
    assert "'doc_id' repeats" in repr(renamed) and "text = 'text'" in repr(renamed)


def test_markup_in_a_column_is_removed_unless_texts_are_kept_as_they_are() -> None:
    pytest.importorskip("selectolax")
    marked = [{**row, "body": f"<div><p>{row['body']}</p></div>"} for row in rows(6)]
    assert list(airgen.Corpus(marked, **COLUMNS, **PLAIN)) == list(airgen.Corpus(rows(6), **COLUMNS, **PLAIN))
    kept = airgen.Corpus(marked, **COLUMNS, clean=False, language="en")
    assert [one["text"] for one in kept] == [row["body"] for row in marked]


def test_chunks_of_ones_own_are_taken_as_they_are() -> None:
    chunks = [{"id": str(place), "text": text} for place, text in enumerate(["Yes.", "Yes.", "a@b.example writes"])]
    found = airgen.Corpus(chunks, clean=False, language="en")
    assert [one["text"] for one in found] == ["Yes.", "Yes.", "a@b.example writes"]


PAGES = {
    "a.md": "---\nproduct: core\nversion: 2\n---\n# Bridges\n\nBridges carry a heavy load and need repair in winter.",
    "b.html": '<html><head><title>B</title><meta name="product" content="cloud"></head><body><p>Glaciers attract '
    "visitors and differ in colour, whenever tides grow in winter.</p></body></html>",
}


def test_files_say_their_metadata(tmp_path: Path) -> None:
    folder = tmp_path / "docs"
    folder.mkdir()
    for name, text in PAGES.items():
        (folder / name).write_text(text)
    found = airgen.Corpus(folder, metadata=["product", "version", "file"], language="en", clean=False)
    values = {one["metadata"]["file"]: one["metadata"] for one in found}
    assert values["a.md"]["product"] == "core" and values["a.md"]["version"] == 2
    assert values["b.html"]["product"] == "cloud" and values["b.html"]["version"] is None


def test_queries_of_a_log_keep_the_filter_that_they_were_asked_with(here: Path) -> None:
    asked = [
        {"query": "glaciers attract visitors", "filter.version": 1},
        {"query": "glaciers attract visitors", "filter.version": 2},
        {"query": "violins were banned", "filter": {"product": "core"}},
        {"query": "orchards grow in winter"},
    ]

    def relevant(query: str, passages: list[str]) -> list[bool]:
        return [query.split()[0] in passage for passage in passages]

    source = corpus(metadata=["product", "version"])
    bench = airgen.label(source, asked, judge=relevant, work="runs/log", **LEXICAL)
    of_query = {row["_id"]: row for row in bench.queries.rows()}
    glaciers = [row for row in of_query.values() if row["text"].startswith("glaciers")]
    assert sorted(row["filter.version"] for row in glaciers) == [1, 2]
    results = airgen.evaluate(bench, ["bm25"], quiet=True, split="all")
    from airgen.evaluation.run import read_run

    for query, hits in read_run(results["bm25"].paths.run).items():
        if (version := of_query[query].get("filter.version")) is not None:
            assert hits and {bench.corpus[key]["metadata"]["version"] for key, _ in hits} == {version}


def test_a_filter_that_is_no_value_is_refused_with_its_row(here: Path) -> None:
    def relevant(query: str, passages: list[str]) -> list[bool]:
        return [True for _ in passages]

    asked = [{"query": "glaciers", "filter": {"version": {"from": 1}}}]
    with pytest.raises(AirgenError, match="queries: row 1: the filter version must be a text, a number"):
        airgen.label(corpus(), asked, judge=relevant, work="runs/log", **LEXICAL)


def test_one_long_document_becomes_a_benchmark_of_its_chunks(here: Path) -> None:
    text = "\n\n".join(row["body"] for row in rows(80))
    source = airgen.Corpus([{"id": "manual", "title": "Manual", "text": text}], task="long-doc", language="en")
    bench = airgen.generate(source, n=3, task="long-doc", work="runs/manual", **LEXICAL)
    assert len(bench) == 3 and len(bench.corpus) > 5
    assert {key.rpartition("-")[0] or key for key in bench.corpus}
    results = airgen.evaluate(bench, ["bm25"], quiet=True)
    assert results["bm25"].headline == "Recall@10"
