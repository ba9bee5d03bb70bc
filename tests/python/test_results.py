"""Results and benchmarks as values: tables, comparisons by hand, charts, and what other tools read of them."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from refusals import refused

import airgen
from airgen.errors import UsageError


@pytest.fixture
def results(made: airgen.Benchmark, here: Path) -> airgen.Results:
    systems = {"bm25": "bm25", "few": lambda queries, k: [["p1", "p2"]] * len(queries)}
    return airgen.evaluate(made, systems, quiet=True)


def test_a_table_fits_and_its_scores_are_those_of_the_queries(results: airgen.Results) -> None:
    pytest.importorskip("pandas")
    table, each = results.to_pandas(), results.per_query().to_pandas()
    assert table.shape[0] == 2 and len(results.table()[0]) <= 12 and table["system"].iloc[0] == "bm25"
    means = each.groupby("system")["score"].mean()
    assert {name: round(value, 9) for name, value in means.items()} == {
        one.name: round(one.score, 9) for one in results
    }
    assert len(repr(results).splitlines()) < 20 and "2 hits at most" in results._repr_html_()
    assert "queries" in results.verdict


def test_every_value_is_short_as_text_and_a_table(results: airgen.Results, made: airgen.Benchmark) -> None:
    pytest.importorskip("pandas")
    texts = [row["text"] for row in made.corpus.values()][:30]
    labels = {f"q{number}": [key] for number, key in enumerate(list(made.corpus)[:30], 1)}
    values: list[Any] = [
        results, results["bm25"], results[:1], results.table(), results.per_query(), results.by("type"),
        results.compare("bm25", "few"), results.comparison, made, made.queries, made.qrels, made.corpus,
        made.queries[:5], made.run,
    ]  # fmt: skip
    for value in values:
        assert len(repr(value)) < 3000, value
        assert "<table" in value._repr_html_() and "dataclass" not in repr(value)
        assert len(value.to_pandas()) > 0
    advice = "airgen.study_diversity(DATASET, real=LOG)"
    own = airgen.label(made.corpus, [text[:60] for text in texts], labels=labels, judge=None, work="own", quiet=True)
    text = repr(airgen.evaluate(own, {"bm25": "bm25"}, out="of_own", quiet=True))
    assert advice in text and "--" not in text
    text = repr(results["bm25"])
    assert "nDCG@10" in text and "batch ms" in text and "Paths(" not in text
    assert results["bm25"].means["Judged@10"] < 1 and "unjudged hits" not in text  # it counts queries, of which all are
    assert repr(made.queries).startswith("12 queries: 'q") and len(made.queries[:5]) == 5
    assert made.queries[:5][4] == made.queries[4]
    row = results.per_query()[0]
    assert row["text"] == made.queries[row["query"]]


def test_a_comparison_is_what_one_counts_by_hand(results: airgen.Results) -> None:
    scores: dict[str, dict[str, float]] = {}
    for row in results.per_query():
        scores.setdefault(row["system"], {})[row["query"]] = row["score"]
    gained = np.array([scores["bm25"][key] - scores["few"][key] for key in scores["bm25"]])
    found = results.compare("bm25", "few")
    assert found.difference == pytest.approx(gained.mean())
    assert (found.wins, found.losses, found.ties) == ((gained > 0).sum(), (gained < 0).sum(), (gained == 0).sum())
    assert found.low <= found.difference <= found.high and 0 <= found.p <= 1
    back = results.compare("few", "bm25")
    assert back.difference == pytest.approx(-found.difference) and back.wins == found.losses
    with refused(UsageError, "unknown_name", "bm25", "few"):
        results.compare("bm52", "few")
    with pytest.raises(UsageError, match="the measure 'nDCG@11' was not computed"):
        results.per_query("nDCG@11")


def test_scores_by_metadata_hold_all_queries(results: airgen.Results, made: airgen.Benchmark) -> None:
    table = results.by("metadata.product").to_pandas()
    assert table["queries"].sum() == len(made)
    mean = (table["bm25"] * table["queries"]).sum() / len(made)
    assert mean == pytest.approx(results["bm25"].score)
    shown = results.by("metadata.product").text()
    assert "bm25 95 %" in shown and "Fewer than 25 queries rank no systems: " in shown
    low, high = table["bm25 95 %"][0]
    assert low <= table["bm25"][0] <= high
    with pytest.raises(UsageError, match=r"no attribute 'metadata\.prodcut'"):
        results.by("metadata.prodcut")


def test_an_unknown_attribute_names_those_that_there_are(results: airgen.Results) -> None:
    with pytest.raises(UsageError, match=r"by: no attribute 'colour' \(known: "):
        results.by("colour")


def test_results_that_are_asked_for_by_an_attribute_show_it(made: airgen.Benchmark, here: Path) -> None:
    plain = airgen.evaluate(made, {"bm25": "bm25"}, quiet=True)
    sliced = airgen.evaluate(made, {"bm25": "bm25"}, by="metadata.product", quiet=True)
    for shown in (repr, airgen.Results._repr_html_):
        assert "metadata.product" in shown(sliced) and "metadata.product" not in shown(plain)
    assert "metadata.product" in repr(sliced.on(sliced.datasets[0]))


def test_charts_and_files(results: airgen.Results, tmp_path: Path) -> None:
    for kind in ("intervals", "cost", "pairs", "wins"):
        svg = results.plot(kind)._repr_svg_()  # type: ignore[arg-type]
        assert svg.startswith("<svg") and "bm25" in svg
    with pytest.raises(UsageError, match=r"plot: no chart 'intervalls' \(did you mean 'intervals'\?\)"):
        results.plot("intervalls")  # type: ignore[arg-type]
    message = results.save(tmp_path / "table.md").read_text()
    assert "bm25" in message and "95 %" in message and results.verdict.split(":")[0] in message.replace("\\", "")
    assert max(map(len, message.partition("|")[2].split("\n\n")[0].splitlines())) < 100 and "<u>" not in message
    assert json.loads(results.save(tmp_path / "table.json").read_text())["tables"][0][0]["system"] == "bm25"
    page = results.report(tmp_path / "page.html")
    assert page.is_file() and page.stat().st_size > 100_000


def test_a_benchmark_is_mappings_and_tables(made: airgen.Benchmark, tmp_path: Path) -> None:
    lines = [line.split("\t") for line in (made.path / "qrels/test.tsv").read_text().splitlines()[1:]]
    expected: dict[str, dict[str, int]] = {}
    for query, passage, label in lines:
        expected.setdefault(query, {})[passage] = int(label)
    assert dict(made.qrels) == expected and len(made) == len(made.queries) == 12
    table = made.to_pandas()
    assert list(table["_id"]) == list(made.queries) and set(table["relevant"][0]) == set(made.relevant(table["_id"][0]))
    saved = airgen.load(made.save(tmp_path / "copy"))
    assert saved.qrels == made.qrels and repr(saved).startswith("Benchmark 'handbook': 12 queries")
    assert made.split("test").qrels == made.qrels and "12" in made._repr_html_()
    (tmp_path / "other").mkdir()
    (tmp_path / "other/file").write_text("")
    with pytest.raises(UsageError, match="already exists and is not a dataset"):
        made.save(tmp_path / "other")
    tests = made.to_promptfoo(tmp_path / "tests.json")
    assert json.loads((tmp_path / "tests.json").read_text()) == tests and tests[0]["vars"]["query"]


def test_datasets_reads_it(made: airgen.Benchmark, tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    found = airgen.load(made, "datasets")
    assert isinstance(found, datasets.DatasetDict)
    found.save_to_disk(tmp_path / "disk")
    again = datasets.load_from_disk(tmp_path / "disk")
    assert again["queries"].num_rows == 12 and again["corpus"].num_rows == len(made.corpus)
    assert sum(again["qrels.test"]["score"]) == sum(label for row in made.qrels.values() for label in row.values())
    assert set(airgen.load(made, "pandas")) == set(found)


def letters(texts: Any) -> Any:
    """Counts of letters."""
    return np.array([[text.lower().count(one) + 0.01 for one in "abcdefghijklmnopqrstuvwxyz"] for text in texts])


class Letters:
    """An encoder as mteb wants one."""

    mteb_model_meta = None

    def encode(self, inputs: Any, **more: Any) -> Any:
        """Vectors of the texts of a loader's batches."""
        return letters([text for batch in inputs for text in batch["text"]])

    def similarity(self, one: Any, other: Any) -> Any:
        """Cosines."""
        unit = [np.asarray(side) / np.linalg.norm(side, axis=1, keepdims=True) for side in (one, other)]
        return unit[0] @ unit[1].T


@pytest.mark.servers
def test_mteb_gives_the_score_that_airgen_gives(made: airgen.Benchmark, here: Path) -> None:
    mteb = pytest.importorskip("mteb")
    found = mteb.evaluate(Letters(), made.to_mteb("Handbook"), cache=None)
    theirs = found.task_results[0].scores["test"][0]["ndcg_at_10"]
    # Without filters, which mteb does not know.
    dataset = made.save(here / "plain")
    rows = [json.loads(line) for line in (dataset / "queries.jsonl").read_text().splitlines()]
    text = "".join(json.dumps({**row, "metadata": {}}) + "\n" for row in rows)
    (dataset / "queries.jsonl").write_text(text)
    (dataset / "manifest.json").unlink()
    ours = airgen.evaluate(dataset, {"letters": airgen.Dense(lambda texts: letters(texts))}, quiet=True)
    assert theirs == pytest.approx(ours[0].score, abs=1e-6)


@pytest.mark.servers
@pytest.mark.parametrize("package", ["ranx", "ragas", "deepeval"])
def test_others_open_it(package: str, made: airgen.Benchmark) -> None:
    library = pytest.importorskip(package)
    if package == "ranx":
        run = library.Run({query: dict.fromkeys(made.relevant(query), 1.0) for query in made.queries})
        assert library.evaluate(made.to_ranx(), run, "ndcg@10") == pytest.approx(1.0)
    elif package == "ragas":
        table = made.to_ragas().to_pandas()
        assert list(table["user_input"]) == list(made.queries.values()) and all(table["reference_contexts"])
    else:
        assert [one.input for one in made.to_deepeval().goldens] == list(made.queries.values())


def test_charts_are_drawn_on_axes_of_matplotlib(results: airgen.Results) -> None:
    figure = pytest.importorskip("matplotlib.figure")
    for kind in ("intervals", "cost", "pairs", "wins"):
        axes = figure.Figure().subplots()
        assert results.plot(kind, ax=axes) is axes and axes.has_data()
    axes = figure.Figure().subplots()
    results.plot("intervals", ax=axes)
    assert [label.get_text() for label in axes.get_yticklabels()] == ["bm25", "few"]  # the best first, at the top
    points = sorted(axes.lines[0].get_xdata())
    assert points == pytest.approx(sorted(result.score for result in results)) and axes.yaxis_inverted()


def test_records_have_positions(made: airgen.Benchmark) -> None:
    texts = list(made.queries.values())
    assert [made.queries[0], made.queries[-1]] == [texts[0], texts[-1]]
    with pytest.raises(IndexError, match=rf"no position {len(texts)} among"):
        made.queries[len(texts)]
