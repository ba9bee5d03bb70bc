"""Systems in a report: a case worked out by hand, figures as in the files of the results, and what a browser shows."""

import csv
import json
import math
import re
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from beir_folder import write_beir
from report_reader import cells, column, read_report

from airgen.errors import DatasetError
from airgen.evaluation import EvaluationOptions, evaluate, read_run, run_from_dict, write_run
from airgen.evaluation.result import read_scores
from airgen.evaluation.systems import SystemSettings
from airgen.report.find_sources import find_sources
from airgen.report.report import make_report
from airgen.report.source import ranks_of

CORPUS = [{"_id": f"p{n}", "title": f"Page {n}", "text": f"text of page {n}"} for n in range(1, 6)]
KINDS = ("claim", "claim", "question", "question")
QUERIES = [{"_id": f"q{n}", "text": f"query {n}", "metadata": {"type": kind}} for n, kind in enumerate(KINDS, 1)]
LABELS = [("q1", "p1", 1), ("q1", "p2", 0), ("q2", "p2", 1), ("q3", "p3", 1), ("q4", "p4", 1)]
# a: finds p1 first, nothing of q2, p3 first, p4 first. b: p1 second, p2 first, p3 first, nothing of q4.
RUNS = {
    "a": {"q1": ["p1", "p2"], "q2": ["p5"], "q3": ["p3"], "q4": ["p4", "p5"]},
    "b": {"q1": ["p2", "p1"], "q2": ["p2"], "q3": ["p3"]},
    "c": {"q1": ["p5", "p2", "p1"], "q2": ["p5", "p1", "p2"], "q3": ["p1", "p4", "p3"], "q4": ["p4"]},
}
SECOND = 1 / math.log2(3)


@pytest.fixture
def little(tmp_path: Path) -> Path:
    return write_beir(tmp_path / "little", CORPUS, QUERIES, {"test": LABELS}, name="little", task="qa", language="en")


def results_of(dataset: Path, out: Path, runs: dict[str, Any] = RUNS, **options: Any) -> Path:
    """Results of run files; each system has a family."""
    out.mkdir(exist_ok=True)
    for name, ranked in runs.items():
        hits = {query: {p: 9.0 - at for at, p in enumerate(found)} for query, found in ranked.items()}
        write_run(out / f"{name}.run", run_from_dict(hits), name)
    systems = [SystemSettings(name=name, kind="run", family=f"of {name}", path=f"{name}.run") for name in runs]
    evaluate(dataset, systems, out, EvaluationOptions(folder=out, **options))
    return out


def rows_of(path: Path) -> list[list[str]]:
    """The rows of a CSV file."""
    return list(csv.reader(path.read_text("utf-8").splitlines()))


def board_of(data: dict[str, Any], place: int = 0) -> dict[str, Any]:
    return data["d0/systems"]["boards"][place]  # type: ignore[no-any-return]


@dataclass(frozen=True)
class Made:
    """The little dataset, its results, the page of its report, and the data of it."""

    dataset: Path
    out: Path
    index: Path
    data: dict[str, Any]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    home = tmp_path_factory.mktemp("little")
    dataset = write_beir(home / "little", CORPUS, QUERIES, {"test": LABELS}, name="little", task="qa", language="en")
    out = results_of(dataset, home / "results")
    index = make_report([dataset, out], home / "report")
    return Made(dataset, out, index, read_report(index))


def test_a_system_that_made_labels_is_marked(little: Path, tmp_path: Path) -> None:
    manifest = json.loads((little / "manifest.json").read_text(encoding="utf-8"))
    manifest["provenance"] = [{"role": "recall", "model": "run"}]  # all three systems are of this kind
    (little / "manifest.json").write_text(json.dumps(manifest), encoding="utf-8")
    out = results_of(little, tmp_path / "results")
    board = board_of(read_report(make_report([little, out], tmp_path / "report")))
    assert [one["made_labels"] for one in board["systems"]] == [["run"]] * 3
    assert board["notes"][0].startswith("† helped to make the labels")


def test_figures_are_those_of_the_result_files_and_ranks_and_holes_by_hand(made: Made) -> None:
    data, out = made.data, made.out
    board = board_of(data)
    compared = json.loads((out / "little" / "test" / "comparison.json").read_text())
    about = data["d0/overview"]  # no model made it, so a label 0 is not a hard negative, and no model needs checking
    assert not about["facts"]["generated"] and not about["unchecked"]
    assert [one["name"] for one in board["systems"]] == ["a", "b", "c"]
    queries = column(data["d0/board0/queries"]["table"], "Query")
    ids = queries["ids"]
    assert ids == ["q1", "q2", "q3", "q4"] and queries["texts"][0] == "query 1"
    for at, one in enumerate(board["systems"]):
        folder = out / "little" / "test"
        kept = json.loads((folder / f"{one['name']}.json").read_text())
        assert one["score"] == kept["means"]["nDCG@10"] and one["family"] == kept["family"] == f"of {one['name']}"
        (drawn,) = [each for each in board["views"]["ranking"]["columns"] if "picture" in each and each["title"]]
        assert drawn["picture"]["values"][at] == [one["score"], *kept["intervals"]["nDCG@10"]]
        for measure, mean in kept["means"].items():
            shown = column(board["views"]["measures"], measure)
            assert shown["sort"][at] == pytest.approx(mean, abs=1e-9) and shown["texts"][at] == f"{mean:.4f}"
        assert [row[:2] for row in cells(one["measures"])] == [
            (measure, f"{kept['means'][measure]:.4f}") for measure in kept["means"]
        ]
        assert column(board["views"]["costs"], "p50 ms")["sort"][at] is kept["costs"]["latency_p50_ms"] is None
        scores = read_scores(folder / f"{one['name']}.parquet", "nDCG@10")
        by_query = column(data[f"d0/board0/system-{at:03}"]["table"], "Score")
        assert by_query["sort"] == [round(scores[key] * 1e6) for key in ids]
        assert by_query["texts"] == [f"{scores[key]:.3f}" for key in ids]
    assert [one["ranks"] for one in board["systems"]] == compared["ranks"]
    (types,) = [one for one in board["attributes"] if one["attribute"] == "type"]
    assert [(value["value"], value["queries"]) for value in types["values"]] == [("claim", 2), ("question", 2)]
    assert types["values"][0]["means"] == pytest.approx([0.5, (SECOND + 1) / 2, 0.5])
    files = [data[f"d0/board0/system-{at:03}"] for at in range(3)]
    first = {file["name"]: "".join(column(file["table"], "First relevant")["texts"]) for file in files}
    assert first == {"a": "1–11", "b": "211–", "c": "3331"}
    square = board["square"]
    assert [row[:2] for row in cells(square)] == [("1", "a"), ("2", "b"), ("3", "c")]
    assert {sign for row in cells(square) for sign in row[2:]} == {""}  # four queries do not distinguish any systems
    assert column(square, "2")["ids"] == [["a", "b"], None, ["c", "b"]]
    assert column(square, "2")["picture"]["values"] == [0.0, None, 0.0]
    (pair,) = [one for one in compared["pairs"] if {one["first"], one["second"]} == {"a", "b"}]
    assert column(square, "2")["remarks"][0] == (
        f"a is better than b by {pair['difference']:.4f}, p {pair['fisher_holm']:.4f}"
    )
    holes = board["holes"]
    assert holes["shares"] == [2 / 40, 0.0, 5 / 40]  # p5 of q2 and q4; none; p5 of q1, p5 and p1 of q2, p1 and p4 of q3
    assert cells(holes["first"])[0] == ("query 2", "p5", "2", "1") and holes["pairs"] == 6
    assert column(holes["first"], "Query")["ids"][0] == "q2"
    assert cells(holes["table"])[0][:3] == ("1", "a", "5.0%")
    by_type = board["attributes"][0]["table"]
    assert cells(by_type)[1] == ("2", "b", f"{(SECOND + 1) / 2:.4f}", "0.5000")
    assert column(by_type, "claim (2)")["picture"]["values"] == [0.0, 1.0, 0.0]
    assert [row[0] for row in cells(board["pairs_table"])] == [
        f"{one['first']} – {one['second']}" for one in compared["pairs"]
    ]
    worst = data["d0/board0/system-001"]["worst"]
    assert [row[:3] for row in cells(worst)][:2] == [
        ("query 4", "0.0000", "not found"), ("query 1", f"{SECOND:.4f}", "2"),
    ]  # fmt: skip


def test_the_hits_are_those_of_the_run(tmp_path: Path) -> None:
    """Ids with spaces, hits whose id is the query's own, and more hits than are shown."""
    names = [f"page {n:02}" for n in range(40)]
    queries = ["page 00", "page 07", "other", "never asked"]
    labels = [(query, names[(at * 3 + n * 11) % 40], n % 2) for at, query in enumerate(queries) for n in range(3)]
    dataset = write_beir(tmp_path / "data", [{"_id": n, "text": n} for n in names],
                         [{"_id": q, "text": q} for q in queries], {"test": labels})  # fmt: skip
    ranked = {query: [names[(at + n * 7) % 40] for n in range(30)] for at, query in enumerate(queries[:3])}
    for own in (False, True):
        out = results_of(dataset, tmp_path / f"out{own}", {"one": ranked}, ignore_identical_ids=own)
        (source,), _ = find_sources([dataset, out])
        found = ranks_of(source.results["test"][0], source.labels("test"))
        run = read_run(source.results["test"][0].paths.run)
        expected = dict((run.without_identical_ids() if own else run).ranked().items())
        assert set(found) == set(expected)
        for query, hits in expected.items():
            ids = [passage for passage, _ in hits]
            assert list(found[query].top) == ids[:10]
            assert found[query].ranks == {p: ids.index(p) + 1 for p in source.labels("test")[query] if p in ids}
    source.results["test"][0].paths.run.write_bytes(b"\x1f\x8b\x08 no archive")
    with pytest.raises(DatasetError, match=r"one.run.gz: the gzip ends early"):
        ranks_of(source.results["test"][0], source.labels("test"))


def test_results_of_every_split_together(little: Path, tmp_path: Path, browse: Any) -> None:
    """`all` has the labels of each split, and serves the queries of each of them."""
    (little / "qrels" / "dev.tsv").write_text("query-id\tcorpus-id\tscore\nq4\tp4\t1\n")
    lines = (little / "qrels" / "test.tsv").read_text().splitlines(True)
    (little / "qrels" / "test.tsv").write_text("".join(line for line in lines if not line.startswith("q4")))
    out = results_of(little, tmp_path / "results", split="all")
    data = read_report(make_report([little, out], tmp_path / "report"))
    assert board_of(data)["split"] == "all" and board_of(data)["holes"]["pairs"] == 6
    assert data["d0/lives-000"][0]["ranked"][0]["top"]
    index = make_report([little, out], tmp_path / "public", public=True)
    public = read_report(index)
    board = board_of(public)
    assert board["private"] and not board["by_query"] and not [name for name in public if "/board" in name]
    assert board["attributes"] == [] and board["systems"][0]["settings"] == {} and board["systems"][0]["score"] > 0
    assert not public["d0/lives-000"][0]["ranked"]
    page = browse(f"{index.resolve().as_uri()}#/d0/systems")
    page.wait_for_selector("main table")
    assert "0.7500" in page.inner_text("main table") and "labels of this split are private" in page.inner_text("main")
    assert page.get_by_role("button", name="Compare").count() == 0


def test_without_the_dataset_and_with_scores_that_are_missing(made: Made, tmp_path: Path) -> None:
    data = read_report(make_report([made.out], tmp_path / "alone"))
    assert board_of(data)["by_query"] and "holes" not in board_of(data)
    assert column(data["d0/board0/queries"]["table"], "Query")["texts"] == [
        f"query {n}" for n in range(1, 5)
    ]  # of the worst queries
    shutil.copytree(made.out, tmp_path / "results")
    (tmp_path / "results" / "little" / "test" / "b.parquet").unlink()
    board = board_of(read_report(make_report([made.dataset, tmp_path / "results"], tmp_path / "report")))
    assert "b.parquet" in board["notes"][0] and board["systems"][0]["ranks"] is None


def test_people_beside_models(dataset: Path, made: Made, tmp_path: Path) -> None:
    """Systems on a dataset with people's labels and on a generated one: a slope graph, ranks by hand."""
    little, people = made.dataset, made.out
    # On the generated dataset b is best, then a and c, which are equal.
    runs = {"a": {"q-00": ["doc002"]}, "b": {"q-00": ["doc000"], "q-01": ["doc001"]}, "c": {"q-00": ["doc002"]}}
    models = results_of(dataset, tmp_path / "made", runs)
    data = read_report(make_report([little, dataset, people, models], tmp_path / "report"))
    side = data["together"]
    assert [one["generated"] for one in side["columns"]] == [False, True]
    (slope,) = side["slopes"]
    ranks = {one["system"]: (one["human"], one["generated"]) for one in slope["systems"]}
    assert ranks == {"a": (1, 2.5), "b": (2, 1), "c": (3, 2.5)}
    assert slope["spearman"] == pytest.approx(0.0)
    assert {name: text[:4] for name, text in slope["drawings"].items()} == dict.fromkeys(
        ("light-wide", "light-narrow", "dark-wide", "dark-narrow"), "<svg"
    )
    alone = read_report(make_report([dataset, people, models], tmp_path / "alone"))["together"]
    assert [one["generated"] for one in alone["columns"]] == [True, None] and alone["slopes"] == []  # nobody can tell
    (b,) = [one for one in side["systems"] if one["name"] == "b"]
    assert b["means"]["nDCG@10"] == pytest.approx(sum(b["scores"]) / 2)


def test_two_systems_in_a_browser(made: Made, browse: Any) -> None:
    """Two wins of a, one of b, one tie; the queries that decide, and the first hits with labels side by side."""
    index = made.index
    page = browse(index)
    page.wait_for_selector("main table")
    rows = page.locator('main table[aria-label^="Systems on"]').first.locator("tbody tr")
    assert rows.count() == 3 and "0.7500" in rows.nth(0).inner_text() and "of a" in rows.nth(0).inner_text()
    page.get_by_role("link", name="Systems", exact=True).click()
    page.get_by_role("button", name="All measures").click()
    assert "nDCG@10" in page.locator("main table").first.inner_text()
    page.get_by_role("button", name="Compare").click()
    page.wait_for_selector("#wins")
    assert [page.inner_text(f"#{name}") for name in ("wins", "ties", "losses")] == ["2", "1", "1"]
    assert "cannot tell which is better" in page.inner_text(".verdict") and "+0.0923" in page.inner_text(".versus")
    listed = lambda: page.locator("main tbody td.main").all_inner_texts()  # noqa: E731
    assert listed() == ["query 2", "query 4", "query 1", "query 3"]  # by the size of the difference
    page.get_by_role("button", name="A wins").click()
    assert listed() == ["query 4", "query 1"]
    page.get_by_role("searchbox").fill("QUERY 1")
    assert listed() == ["query 1"] and page.url.endswith("wins=a&q=QUERY+1")
    page.get_by_role("link", name="query 1").click()
    page.wait_for_selector(".beside ol")
    one, other = page.locator(".beside section").all_inner_texts()
    assert one.index("Page 1") < one.index("Page 2") and other.index("Page 2") < other.index("Page 1")
    assert one.index("relevant") < one.index("not relevant") and "nDCG@10 0.6309" in other
    page.get_by_role("link", name="All queries").click()
    page.wait_for_selector("#wins")
    page.goto(f"{index.resolve().as_uri()}#/d0/system/b")
    page.wait_for_selector("#h-worst")
    worst = page.locator("section:has(#h-worst) tbody tr").all_inner_texts()
    assert worst[0].startswith("query 4") and "not found" in worst[0] and worst[1].startswith("query 1")
    for route in ("compare/a/nobody", "system/nobody", "compare/a/b/q99"):  # what is not there
        page = browse(f"{index.resolve().as_uri()}#/d0/{route}")
        page.wait_for_selector("main h1")
        assert "This page cannot be shown" in page.inner_text("main")


def test_what_no_system_finds_by_hand(little: Path, tmp_path: Path) -> None:
    """Relevant passages beyond the first ten, or nowhere; and passages that nobody ever sees."""
    runs = {"a": {"q1": ["p2"], "q2": ["p2"]}, "b": {"q3": ["p3"]}}
    never = board_of(read_report(make_report([little, results_of(little, tmp_path / "r", runs)], tmp_path / "report")))[
        "never"
    ]
    assert (never["relevant"], never["missed"], never["unseen"]) == (4, 2, 3)
    assert cells(never["table"]) == [("query 4", "p4", "none", "–"), ("query 1", "p1", "none", "–")]
    public = read_report(make_report([little, tmp_path / "r"], tmp_path / "public", public=True))
    assert "never" not in board_of(public) and public["d0/overview"]["tables"]["next"] is None


def test_a_price_is_the_systems_and_that_of_what_it_builds_on(little: Path, tmp_path: Path) -> None:
    kinds: list[dict[str, Any]] = [
        {"name": "a", "kind": "bm25", "price": 0.5}, {"name": "b", "kind": "bm25", "k1": 2.0},
        {"name": "both", "kind": "fuse", "systems": ["a", "b"], "price": 0.25},
    ]  # fmt: skip

    def costs(systems: list[dict[str, Any]]) -> dict[str, float | None]:
        found = evaluate(little, [SystemSettings(**one) for one in systems], tmp_path / "out", EvaluationOptions())
        return {one.name: one.costs.usd_per_1000 for one in found}

    assert costs(kinds) == {"a": 0.5, "b": None, "both": 0.75}
    kinds[0]["price"] = 1.0  # nothing is searched again for a price
    assert costs(kinds) == {"a": 1.0, "b": None, "both": 1.25}


def test_what_is_taken_along_and_what_keys_do(made: Made, browse: Any) -> None:
    page = browse(f"{made.index.resolve().as_uri()}#/d0/compare/a/b")
    page.wait_for_selector(".histogram svg")
    # a wins q4 by 1 and q1 by .37, b wins q2 by 1; q3 is a tie.
    assert page.locator(".histogram rect").count() == 4
    page.get_by_role("button", name="A finds it, B does not").click()
    assert page.locator("main tbody td.main").all_inner_texts() == ["query 4"]
    page.get_by_role("button", name="B finds it, A does not").click()
    assert page.locator("main tbody td.main").all_inner_texts() == ["query 2"]
    for kind, begins in (("SVG", b"<svg"), ("PNG", b"\x89PNG")):
        with page.expect_download() as taken:
            page.get_by_role("button", name=f"Queries by difference as {kind}").click()
        content = taken.value.path().read_bytes()
        assert content.startswith(begins) and (kind == "PNG" or b'xmlns="http://www.w3.org/2000/svg"' in content)
    with page.expect_download() as taken:
        page.get_by_role("button", name="Queries by difference as Markdown").click()
    assert taken.value.path().read_text("utf-8").startswith("| Query | A | B |")
    lines = taken.value.path().read_text("utf-8").splitlines()
    rows = {line.split(" | ")[0]: line.split(" | ")[1:] for line in lines[2:]}
    assert list(rows) == ["| query 2"] and rows["| query 2"] == ["0.000", "1.000", "-1.000", "–", "1 |"]
    # Tables that Python made: as they are sorted on the screen, without the pictures; and the square of all pairs.
    page.goto(f"{made.index.resolve().as_uri()}#/d0/systems")
    page.wait_for_selector("table.pairs")
    page.get_by_role("button", name="System", exact=True).first.click()
    page.get_by_role("button", name="System", exact=True).first.click()
    with page.expect_download() as taken:
        page.get_by_role("button", name=re.compile("^Systems on .* as CSV")).first.click()
    lines = taken.value.path().read_text("utf-8").splitlines()
    assert lines[0].startswith("#,System,Family,Rank,nDCG@10,") and [line.split(",")[1] for line in lines[1:]] == [
        "c", "b", "a",
    ]  # fmt: skip
    page.locator("section:has(#h-pairs) summary").click()
    with page.expect_download() as taken:
        page.get_by_role("button", name="Pairs of systems as CSV").click()
    assert len(taken.value.path().read_text("utf-8").splitlines()) == 4
    with page.expect_download() as taken:
        page.get_by_role("button", name="Every two systems as CSV").click()
    lines = taken.value.path().read_text("utf-8").splitlines()
    assert lines == ["#,System,1,2,3", "1,a,,,", "2,b,,,", "3,c,,,"]
    with page.expect_download() as taken:
        page.get_by_role("button", name="Pairs of systems as SVG").click()
    assert taken.value.path().read_bytes().count(b"<rect") == 1 + 6
    # The list of queries: found by one and not by another, and the keys that the page names.
    page.goto(f"{made.index.resolve().as_uri()}#/d0/queries")
    page.wait_for_selector("table.virtual td.main a")
    page.select_option("select[data-name=finds]", "a")
    page.select_option("select[data-name=misses]", "b")
    page.wait_for_function("document.querySelectorAll('table.virtual td.main').length === 1")
    assert page.inner_text("table.virtual td.main") == "query 4" and "finds=a&misses=b" in page.url
    with page.expect_download() as taken:  # what is shown of the list
        page.get_by_role("button", name="Queries as CSV").click()
    value = made.data["d0/queries"]["table"]
    shown = dict(zip(column(value, "Query")["ids"], cells(value), strict=True))
    header = [each["title"] for each in value["columns"]]
    assert rows_of(taken.value.path()) == [header, list(shown["q4"])]
    page.get_by_role("button", name="Clear").click()
    page.evaluate("document.activeElement.blur()")
    page.keyboard.press("/")
    assert page.evaluate("document.activeElement.type") == "search"
    page.keyboard.press("ArrowDown")
    assert page.evaluate("document.activeElement.textContent") == "query 1"
    page.keyboard.press("ArrowDown")
    assert page.evaluate("document.activeElement.textContent") == "query 2"
    page.keyboard.press("Enter")
    page.wait_for_selector("header.query h1")
    assert page.inner_text("header.query h1") == "query 2"
    with page.expect_download() as taken:
        page.get_by_role("button", name="Systems on this query as CSV").click()
    systems = made.data["d0/lives-000"][1]["systems"]
    assert rows_of(taken.value.path())[1:] == [list(row) for row in cells(systems)]


def test_pairs_that_differ_lead_to_their_comparison(tmp_path: Path, browse: Any) -> None:
    """One system finds each of twelve passages, the other none: a sign each way, and a colour."""
    corpus = [{"_id": f"p{n}", "title": "", "text": f"page {n}"} for n in range(12)]
    queries = [{"_id": f"q{n}", "text": f"query {n}"} for n in range(12)]
    labels = [(f"q{n}", f"p{n}", 1) for n in range(12)]
    dataset = write_beir(tmp_path / "data", corpus, queries, {"test": labels}, name="data")
    finds = {f"q{n}": [f"p{n}"] for n in range(12)}
    out = results_of(
        dataset, tmp_path / "out", {"good": finds, "bad": {f"q{n}": [f"p{(n + 1) % 12}"] for n in range(12)}}
    )
    index = make_report([dataset, out], tmp_path / "report")
    square = board_of(read_report(index))["square"]
    assert cells(square) == [("1", "good", "", "+"), ("2", "bad", "−", "")]
    assert column(square, "1")["picture"]["values"] == [None, -1.0]
    page = browse(f"{index.resolve().as_uri()}#/d0/systems")
    cell = page.get_by_label("bad is worse than good by 1.0000, p 0.00")
    cell.wait_for()
    assert "worse" in cell.get_attribute("class") and cell.inner_text() == "−"
    cell.click()
    page.wait_for_selector("#wins")
    assert page.inner_text("h1") == "Two systems compared" and page.inner_text("#losses") == "12"
    assert page.locator("tbody tr").first.inner_text().split("\t")[1:] == ["0.000", "1.000", "-1.000", "–", "1"]


def test_kinds_are_those_of_passages_too_and_an_address_is_no_kind(tmp_path: Path, browse: Any) -> None:
    corpus = [
        {"_id": f"p{n}", "title": "", "text": f"page {n}",
         "metadata": {"product": "AB"[n % 2], "url": f"https://docs.example.com/{n}"}}
        for n in range(12)
    ]  # fmt: skip
    queries = [{"_id": f"q{n}", "text": f"query {n}"} for n in range(12)]
    labels = [(f"q{n}", f"p{n}", 1) for n in range(12)]
    dataset = write_beir(tmp_path / "data", corpus, queries, {"test": labels}, name="data")
    out = results_of(dataset, tmp_path / "out", {"even": {f"q{n}": [f"p{n}"] for n in range(0, 12, 2)}})
    index = make_report([dataset, out], tmp_path / "report")
    data = read_report(index)
    (kind,) = board_of(data)["attributes"]
    assert kind["attribute"] == "metadata.product" and cells(kind["table"]) == [("1", "even", "1.0000", "0.0000")]
    assert data["d0/lives-000"][0]["docs"]["p0"]["address"] == "https://docs.example.com/0"
    page = browse(f"{index.resolve().as_uri()}#/d0/query/q0")
    page.get_by_role("link", name="https://docs.example.com/0").wait_for()
