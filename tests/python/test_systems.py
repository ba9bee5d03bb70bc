"""Systems as objects: each form finds what it should, has an identity, and says in one line what is wrong with it."""

import asyncio
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest

import airgen
from airgen.components.user_functions import Unkept, identity_of, is_kept, named, unidentified
from airgen.errors import AirgenError, UsageError
from airgen.evaluation.run import run_from_dict, write_run

Bench = airgen.Benchmark


def perfect(bench: Bench) -> dict[str, dict[str, float]]:
    """A run of the relevant passages that fit the query's filter, and nothing else."""
    version = {row["_id"]: row["filter.version"] for row in bench.queries.rows()}
    fits = {key: one["metadata"]["version"] for key, one in bench.corpus.items()}
    return {
        query: {key: 1.0 for key in bench.relevant(query) if fits[key] == version[query]} for query in bench.queries
    }


@pytest.mark.filterwarnings("ignore::airgen.components.user_functions.Unkept")
def test_every_form_of_the_same_hits_has_the_same_scores(made: Bench, here: Path) -> None:
    run = perfect(made)
    by_text = {made.queries[key]: list(hits) for key, hits in run.items()}
    write_run("best.run", run_from_dict(run), "best")

    def batch(queries: list[str], k: int) -> list[list[str]]:
        return [by_text[text][:k] for text in queries]

    def one(query: str) -> list[dict[str, Any]]:
        return [{"id": key, "score": 1 / rank} for rank, key in enumerate(by_text[query], 1)]

    nodes = lambda text: [SimpleNamespace(node=SimpleNamespace(node_id=key), score=None) for key in by_text[text]]  # noqa: E731
    pages = lambda text: [SimpleNamespace(id=None, metadata={"url": key}, page_content="") for key in by_text[text]]  # noqa: E731
    systems = {
        "run": run, "file": "best.run", "path": Path("best.run"), "batch": batch, "one": one,
        "llama-index": SimpleNamespace(retrieve=nodes), "langchain": SimpleNamespace(invoke=pages),
        "lambda": lambda queries, k: [dict.fromkeys(by_text[text], 2.0) for text in queries],
    }  # fmt: skip
    rows = lambda text: [{"_id": key, "_score": 2.0} for key in by_text[text]]  # noqa: E731
    systems |= {
        "elasticsearch": lambda query: {"took": 1, "hits": {"total": 1, "hits": rows(query)}},
        "meilisearch": lambda query: {"hits": [{"id": key} for key in by_text[query]]},
        "chroma": lambda query: {"ids": [by_text[query]], "distances": [[0.5] * len(by_text[query])]},
        "no distances": lambda query: {"ids": by_text[query], "distances": None},
    }
    frames = pytest.importorskip("pandas")
    systems |= {
        "series": lambda query: frames.Series(dict.fromkeys(by_text[query], 2.0), dtype=float),
        "series of ids": lambda query: frames.Series(by_text[query], dtype=object),
        "frame": lambda query: frames.DataFrame({"id": by_text[query], "score": 2.0, "title": "x"}),
        "frames": lambda queries, k: [frames.DataFrame({"score": 2.0}, index=frames.Index(by_text[text], name="id"))
                                      for text in queries],
    }  # fmt: skip
    results = airgen.evaluate(made, systems, quiet=True)
    assert [one.name.replace("-", " ") for one in results] == [name.replace("-", " ") for name in systems]
    assert {round(one.score, 9) for one in results} == {1.0}


@pytest.mark.filterwarnings("ignore::airgen.components.user_functions.Unkept")
def test_distances_count_as_distances_at_every_entrance(made: Bench, here: Path) -> None:
    """The relevant passages are nearest, and the smallest score is theirs."""
    others = list(made.corpus)[:20]
    run = {
        key: {
            passage: 0.1 + rank for rank, passage in enumerate([*hits, *(each for each in others if each not in hits)])
        }
        for key, hits in perfect(made).items()
    }
    by_text = {made.queries[key]: hits for key, hits in run.items()}
    lines = [f"{query} Q0 {key} 0 {score} near" for query, hits in run.items() for key, score in hits.items()]
    Path("near.run").write_text("\n".join(lines))

    def single(query: str) -> list[tuple[str, float]]:
        return list(by_text.get(query, {}).items())

    def batch(queries: list[str], k: int) -> list[list[tuple[str, float]]]:
        return [single(query)[:k] for query in queries]

    systems = {
        "single": single, "batch": batch, "run": run, "file": "near.run",
        "mapping": lambda query: by_text.get(query, {}),
        "said": {"kind": single, "best": "smallest"}, "said-run": {"kind": run, "best": "smallest"},
    }  # fmt: skip
    results = airgen.evaluate(made, systems, quiet=True)
    assert {result.name: round(result.score, 9) for result in results} == dict.fromkeys(systems, 1.0)
    assert "single, batch, run, file, mapping: scores rise from the first hit to the last" in str(results)
    (wrong,) = airgen.evaluate(made, {"wrong": {"kind": single, "best": "largest"}}, quiet=True)
    assert wrong.score < 1


def test_faiss_arrays_are_hits_for_two_queries_too(made: Bench, here: Path) -> None:
    run = perfect(made)
    by_text = {made.queries[key]: next(iter(hits)) for key, hits in run.items()}

    def pair(queries: list[str], k: int) -> tuple[Any, Any]:
        ids = np.array([[by_text.get(query, "p0")] for query in queries])
        return np.zeros(ids.shape, np.float32), ids

    (result,) = airgen.evaluate(made, {"pair": pair}, metrics="RR@10", quiet=True)
    assert result.score == 1.0
    with pytest.raises(AirgenError, match=r"\(passage id, score\), .* is needed, not array"):
        airgen.evaluate(made, {"scores": lambda queries, k: (np.ones((2, 3)), np.ones((2, 3)))}, quiet=True)


def bag(texts: list[str]) -> list[list[float]]:
    """Counts of letters."""
    return [[text.lower().count(letter) + 0.01 for letter in "abcdefghijklmnopqrstuvwxyz"] for text in texts]


@pytest.mark.filterwarnings("ignore::airgen.components.user_functions.Unkept")
def test_every_embedder_of_the_same_vectors_finds_the_same(made: Bench, here: Path) -> None:
    kinds = {
        "function": airgen.Dense(bag),
        "array": airgen.Dense(lambda texts: np.array(bag(texts))),
        "kind": airgen.Dense(lambda texts, kind: bag(texts)),
        "encode": SimpleNamespace(encode=bag),
        "sentence-transformers": SimpleNamespace(encode=None, encode_query=bag, encode_document=bag),
        "langchain": SimpleNamespace(embed_query=lambda text: bag([text])[0], embed_documents=bag),
    }
    kinds["sentence-transformers"].encode = bag  # type: ignore[attr-defined]
    results = airgen.evaluate(made, kinds, quiet=True)
    assert len(results) == len(kinds) and len({one.score for one in results}) == 1 and results[0].score > 0.05


def test_a_function_is_kept_by_its_source_or_its_version(made: Bench, here: Path) -> None:
    calls = []

    def site(queries: list[str], k: int) -> list[list[str]]:
        calls.append(len(queries))
        return [["p1", "p2"] for _ in queries]

    first = airgen.evaluate(made, {"site": site}, quiet=True)
    after = len(calls)
    again = airgen.evaluate(made, {"site": site}, quiet=True)
    assert len(calls) == after and not first[0].cached and again[0].cached
    airgen.evaluate(made, {"site": airgen.Function(site, version="2")}, quiet=True)
    assert len(calls) > after
    counted = SimpleNamespace(search=site)  # what is behind an object cannot be known
    for _ in range(2):
        after = len(calls)
        with pytest.warns(Unkept, match=r"object has neither a version nor source code .*airgen\.Function\(object, "):
            (result,) = airgen.evaluate(made, {"object": counted}, quiet=True)
        assert not result.cached and len(calls) > after


def test_identity_is_the_source_with_what_it_reads() -> None:
    def make(depth: int) -> Any:
        return lambda queries: [depth for _ in queries]

    assert identity_of(make(1)) == identity_of(make(1)) != identity_of(make(2))
    with pytest.warns(Unkept, match="its results are not saved"):
        assert identity_of(SimpleNamespace()) is None and not is_kept(named(SimpleNamespace(), "x")["version"])
    assert named(airgen.Function(print, "shout", "7")) == {"name": "shout", "version": "7"}


NO_SOURCE = """
seen = {}
def search(query):
    seen[query] = 1
    return [id_ for id_ in ids if id_ in {"p1", "p2", NUMBER}]
"""


def test_a_function_without_source_is_identified_by_its_code() -> None:
    """As in a cell that begins with %%time, or in a script from standard input."""

    def made_from(text: str, ids: list[str]) -> Any:
        names: dict[str, Any] = {"ids": tuple(ids)}
        exec(compile(text, "<no file>", "exec"), names)
        return names["search"]

    one = NO_SOURCE.replace("NUMBER", "'p3'")
    assert identity_of(made_from(one, ["p1"])) == identity_of(made_from(one, ["p1"])) is not None
    assert identity_of(made_from(one, ["p1"])) != identity_of(made_from(one, ["p2"]))
    assert identity_of(made_from(one, ["p1"])) != identity_of(made_from(NO_SOURCE.replace("NUMBER", "'p4'"), ["p1"]))
    search = made_from(one, ["p1"])
    before = identity_of(search)
    assert search("a query") == ["p1"] and identity_of(search) == before and unidentified(search) == ["seen"]


def test_a_warning_points_at_the_users_line(made: Bench, here: Path) -> None:
    system = SimpleNamespace(search=lambda queries, k: [["p1"] for _ in queries])
    with pytest.warns(Unkept) as caught:
        airgen.evaluate(made, {"object": system}, quiet=True)
    assert {warning.filename for warning in caught} == {__file__}


class Engine:
    """A search with state, as people write one in a notebook."""

    size = 2

    def __init__(self, ids: list[str], client: Any = None) -> None:
        self.ids, self.client, self.calls, self.cache = ids, client, 0, {"": ["p9"]}

    def search(self, queries: list[str], k: int) -> list[list[str]]:
        self.calls += 1
        return [self._one(query) for query in queries]

    def _one(self, query: str) -> list[str]:
        if query not in self.cache:
            self.cache[query] = self.ids[: self.size]
        return self.cache[query]


def test_an_object_of_the_users_class_is_identified_by_its_code_and_attributes(made: Bench, here: Path) -> None:
    class Other(Engine):
        def _one(self, query: str) -> list[str]:
            return self.ids[:1]

    engine = Engine(["p1", "p2"])
    before = identity_of(engine)
    assert before == identity_of(Engine(["p1", "p2"]))
    different = [identity_of(each) for each in (Engine(["p2", "p1"]), Other(["p1", "p2"]))]
    assert None not in different and len({before, *different}) == 3
    assert before != identity_of(engine.search) == identity_of(Engine(["p1", "p2"]).search) is not None
    assert unidentified(engine) == ["Engine.cache"]  # which it fills; nothing reads the count of calls
    assert unidentified(Engine([], SimpleNamespace())) == ["Engine.cache", "Engine.client"]

    def search(query: str) -> list[str]:
        return engine.search([query], 2)[0]

    of_function = identity_of(search)
    first = airgen.evaluate(made, {"object": engine, "method": engine.search, "function": search}, quiet=True)
    assert engine.calls and identity_of(engine) == before and identity_of(search) == of_function
    again = airgen.evaluate(made, {"object": engine, "method": engine.search, "function": search}, quiet=True)
    assert [each.cached for each in again] == [True] * 3 and not any(each.cached for each in first)
    assert "object: kept, but it reads Engine.cache" in repr(again)
    engine.ids = ["p3"]
    assert before != identity_of(engine) and of_function != identity_of(search)


async def later(queries: list[str], k: int) -> list[list[str]]:
    """A coroutine."""
    return [["p1"] for _ in queries]


@pytest.mark.filterwarnings("ignore::airgen.components.user_functions.Unkept")
def test_identity_is_the_data_that_a_function_reads() -> None:
    matrix, table, client, calls = np.eye(3), {"a": [1, 2]}, SimpleNamespace(), []

    def search(queries: list[str]) -> Any:
        calls.append(queries)
        return [[key for key in table if matrix.any() and client] for _ in queries]

    before = identity_of(search)
    assert before == identity_of(search)
    calls.append("a count of calls is no input")
    assert before == identity_of(search) and unidentified(search) == ["client"]
    matrix[0] = 2
    changed = identity_of(search)
    table["a"].append(3)
    assert len({before, changed, identity_of(search)}) == 3

    def remembers(query: str) -> Any:  # what it has seen decides nothing, but airgen cannot know
        if query not in table:
            table[query] = [len(query)]
        return table[query]

    before = identity_of(remembers)
    remembers("new")
    assert before == identity_of(remembers) and unidentified(remembers) == ["table"]


def test_a_frame_and_a_sparse_matrix_identify_a_function() -> None:
    pandas, sparse = pytest.importorskip("pandas"), pytest.importorskip("scipy.sparse")
    frame, weights = pandas.DataFrame({"id": ["a", "b"], "text": ["x", "y"]}), sparse.eye(3, format="csc")

    def search(query: str) -> Any:
        return [id_ for id_ in frame["id"] if weights.nnz]

    before = identity_of(search)
    assert unidentified(search) == []
    frame.loc[0, "text"] = "changed"
    changed = identity_of(search)
    weights.data[0] = 5
    assert len({before, changed, identity_of(search)}) == 3


def test_a_kept_result_says_when_it_ran_and_what_it_reads(made: Bench, here: Path) -> None:
    service = SimpleNamespace(first="p1")

    def site(query: str) -> list[str]:
        return [service.first, "p2"]

    first = airgen.evaluate(made, {"bm25": "bm25", "site": site}, quiet=True)
    assert "kept" not in repr(first) and "kept" not in first.table()[0]
    service.first = "p9"
    again = airgen.evaluate(made, {"bm25": "bm25", "site": site}, quiet=True)
    for shown in (repr(again), again._repr_html_()):
        assert "site: kept, but it reads service" in shown and again["site"].kept in shown
    assert {row["system"]: row["kept"] for row in again.table()} == {each.name: each.kept for each in again}
    third = airgen.evaluate(made, {"bm25": "bm25", "site": site}, quiet=True, fresh=True)
    assert third["site"].score != again["site"].score or third["site"].paths.run.is_file()
    assert "kept" not in repr(third)
    measured = airgen.evaluate(made, {"bm25": "bm25"}, metrics="nDCG@10 R@7", quiet=True)
    assert measured["bm25"].cached and "Recall@7" in measured["bm25"].means  # the run was kept, and scored again


def test_an_async_function_is_a_system_in_a_notebook_too(made: Bench, here: Path) -> None:
    loops = set()

    async def search(query: str) -> list[str]:
        await asyncio.sleep(0)
        loops.add(asyncio.get_running_loop())
        return ["p1"]

    async def notebook() -> Any:
        return airgen.evaluate(made, {"later": later, "single": search}, quiet=True)

    later_result, single = asyncio.run(notebook())
    assert later_result.score == single.score and len(loops) == 1
    assert airgen.evaluate(made, {"later": later}, quiet=True)[0].cached


def test_a_few_failing_queries_have_no_hits_and_a_reason(made: Bench, here: Path) -> None:
    run = perfect(made)
    by_text = {made.queries[key]: list(hits) for key, hits in run.items()}
    broken = made.queries[list(run)[3]]

    def single(query: str) -> list[str]:
        if query == broken:
            raise KeyError("no_such_key")
        return by_text.get(query, [])

    def batch(queries: list[str], k: int) -> list[list[str]]:
        return [single(query) for query in queries]

    results = airgen.evaluate(made, {"single": single, "batch": batch}, quiet=True)
    for result in results:
        assert result.score == pytest.approx(1 - 1 / len(run))
        words = rf"{result.name}: 1 queries without hits, because the search failed \(.*KeyError: 'no_such_key'"
        assert re.search(words, " ".join(str(results).split()))

    def often(query: str) -> list[str]:
        return by_text[query] if query in [*by_text][:2] else single(broken)

    with pytest.raises(AirgenError, match=r"often: .*KeyError"):
        airgen.evaluate(made, {"often": often}, quiet=True)
    results = airgen.evaluate(made, {"often": often, "single": single}, quiet=True)
    assert [result.name for result in results] == ["single"] and "KeyError" in results.failed[0]
    for text in (str(results), results._repr_html_(), str(results.on(results.datasets[0]))):
        assert "failed: " in text and "often" in text


def lazily(queries: list[str], k: int) -> Any:
    """A generator."""
    yield from queries


def fails(queries: list[str], k: int) -> Any:
    """Raise what a bug raises."""
    return queries[100]


WRONG: dict[str, tuple[Any, str]] = {
    "misspelt": ("bm52", r"no system is named 'bm52' \(did you mean 'bm25'\?\)"),
    "generator": (lazily, "lazily is a generator"),
    "coroutine": ({"x": lazily([], 1)}, "is the result of a call: pass the function itself"),
    "number": ({"x": 3}, "x: a int is not a system"),
    "frame": ({"x": lambda query: pd.DataFrame({"article": ["p1"], "title": ["t"]})},
              r"needed, not .*; call the id `id` \(there are: 'article', 'title'\)"),
    "class": ({"x": Engine}, r"x: Engine is a class: pass an object of it, Engine\(\.\.\.\)"),
    "unknown ids": ({"x": lambda queries, k: [["zz"]] * len(queries)},
                    "system x: none of its 2 hits, such as 'zz', is in the dataset: its ids look like 'p"),
    "one for all": ({"x": lambda queries, k: ["p1"]}, "the answer is a list of 1, but a list with the hits of each"),
    "scores alone": ({"x": lambda queries, k: [np.linspace(0, 1, 60) for _ in queries]},
                     r"needed, not array\(.*; a number is no id \(for an embedding function, pass airgen.Dense"),
    "text as score": ({"x": lambda queries, k: [[("p1", "high")]] * len(queries)}, "score 'high' is not a finite"),
    "text in a run": ({"x": {"q": {"p1": "high"}}}, "passage 'p1' has the score 'high': a number is needed"),
    "vectors": (airgen.Dense(lambda texts: [1.0, 2.0]), r"returned numbers of shape \(2,\) for 2 texts: one"),
    "fewer vectors": (airgen.Dense(lambda texts: [[1.0, 2.0]]), r"returned numbers of shape \(1, 2\) for 2 texts"),
    "bug": (fails, r"system fails: .*test_systems\.py:\d+: IndexError: list index out of range"),
}  # fmt: skip


@pytest.mark.parametrize("case", WRONG)
def test_what_is_wrong_is_one_line_before_any_system_runs(case: str, made: Bench, here: Path) -> None:
    given, words = WRONG[case]
    calls = []
    first = {"first": lambda queries, k: calls.append(len(queries)) or [["p1"]] * len(queries)}
    given = {**first, **given} if isinstance(given, dict) else given
    with pytest.raises(AirgenError, match=words) as caught:
        airgen.evaluate(made, given, quiet=True)
    assert "\n" not in str(caught.value).strip() and max(calls, default=0) <= 2


def test_fewer_hits_than_asked_for_are_said(made: Bench, here: Path) -> None:
    results = airgen.evaluate(made, {"x": lambda queries, k: [["p1", "p2", "p3"]] * len(queries)}, quiet=True)
    assert "3 hits at most for a query" in results._repr_html_()


def test_filters_reach_a_function_and_bound_every_system(made: Bench, here: Path) -> None:
    seen: dict[str, Any] = {}

    def filtered(queries: list[str], k: int, filters: list[dict[str, Any]]) -> list[list[str]]:
        seen.update(zip(queries, filters, strict=True))
        return [list(made.corpus)[:40] for _ in queries]

    results = airgen.evaluate(made, {"bm25": "bm25", "own": filtered}, quiet=True)
    version = {row["text"]: row["filter.version"] for row in made.queries.rows()}
    # The other wordings of a query have its filter, too.
    assert {text: seen[text] for text in version} == {text: {"version": value} for text, value in version.items()}
    assert all(set(wanted) == {"version"} for wanted in seen.values())
    from airgen.evaluation.run import read_run

    texts = dict(made.queries)
    for one in results:
        for query, hits in read_run(one.paths.run).items():
            assert {made.corpus[key]["metadata"]["version"] for key, _ in hits} <= {version[texts[query]]}


def test_runs_and_labels_in_memory_are_compared(made: Bench) -> None:
    best = perfect(made)
    worse = {query: {**dict.fromkeys(("p0", "p1", "p2"), 2.0), **hits} for query, hits in best.items()}
    found = airgen.evaluate_compare({"best": best, "worse": worse}, made)
    assert found.measures["nDCG@10"].names[0] == "best"
    assert airgen.evaluate_measures(best, made)["means"]["RR@10"] == 1.0
    with pytest.raises(UsageError, match="qrels: a file, or"):
        airgen.evaluate_measures(best, [1])
