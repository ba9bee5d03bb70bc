"""Rank correlation of benchmarks: against SciPy, against the paper's figures, and on files that MTEB itself wrote."""

import itertools
import json
import math
import shutil
from pathlib import Path

import numpy as np
import pytest
from command_line import call
from packages import package

from airgen.errors import DatasetError, UsageError
from airgen.evaluation.score_tables import ScoreRow, benchmarks, read_system_scores
from airgen.studies.correlate import correlate
from airgen.studies.rank_correlation import average_ranks, kendall, kendall_p, rank_correlation, spearman_p

stats = package("scipy.stats")

# The paper's Table 5: 17 systems with human labels, generated ones, without hard negatives, without quality control.
TABLE_5 = """system,human,generated,negatives,control
repllama-v1-7b-lora-passage,48.000,59.625,61.906,33.434
e5-large-v2,45.232,55.260,57.078,32.581
multilingual-e5-large,45.119,54.431,56.554,32.099
multilingual-e5-base,44.130,52.581,54.597,30.870
bge-large-en-v1.5,44.122,55.513,56.975,33.119
e5-mistral-7b-instruct,43.787,59.015,59.391,36.186
e5-small-v2,43.104,51.456,52.922,30.471
e5-base-v2,43.056,51.438,53.702,30.411
bge-small-en-v1.5,42.553,51.528,52.773,30.155
bge-base-en-v1.5,42.388,54.292,55.613,32.067
multilingual-e5-small,42.253,47.989,49.919,28.579
simlm-base-msmarco-finetuned,41.675,48.102,48.748,30.548
jina-embeddings-v2-base-en,39.887,51.112,52.190,29.560
bge-m3,39.565,54.404,55.651,33.286
contriever-msmarco,36.570,47.127,47.868,29.231
msmarco-roberta-base-ance-firstp,33.637,42.107,43.067,24.798
BM25,26.211,34.155,35.203,22.582
"""


@pytest.mark.parametrize("systems", [3, 5, 9, 33, 60])
@pytest.mark.parametrize("ties", [False, True])
def test_p_values_are_scipys(systems: int, ties: bool) -> None:
    random = np.random.default_rng(systems)
    for _ in range(20):
        left = random.normal(size=systems)
        right = left + random.normal(size=systems)
        if ties:
            left, right = np.round(left), np.round(right)
        if len(set(left)) == 1 or len(set(right)) == 1:
            assert math.isnan(kendall_p(left, right))
            continue
        found = rank_correlation(left, right)
        rho, tau = stats.spearmanr(left, right), stats.kendalltau(left, right)
        assert (found.spearman, found.kendall) == pytest.approx((rho.statistic, tau.statistic), abs=1e-12)
        if systems > 7 or not ties:  # SciPy approximates where systems tie, airgen counts for seven systems
            assert found.kendall_p == pytest.approx(tau.pvalue, abs=1e-12)
        if systems > 7 and rho.pvalue > 1e-3:  # below, few systems have too few orders for Student's t
            assert found.spearman_p == pytest.approx(rho.pvalue, abs=1e-9)


@pytest.mark.parametrize("systems", [3, 4, 5, 6, 7])
def test_p_values_of_up_to_seven_systems_are_counted_over_all_orders(systems: int) -> None:
    """Every pattern of ties on both sides, one arrangement of each pair, and the distance of all n! others."""
    orders = np.array(list(itertools.permutations(range(systems))))
    first, second = np.triu_indices(systems, 1)
    steps = itertools.product([0, 1], repeat=systems - 1)
    patterns = [np.cumsum([0, *one]).astype(float) for one in steps if any(one)]  # 0, 0, 1, 1, 2, ...
    random = np.random.default_rng(systems)
    for left in patterns:
        every = stats.rankdata(left)[orders] - (systems + 1) / 2
        signs = np.sign(left[orders][:, first] - left[orders][:, second])
        for at, right in enumerate(patterns[:: 1 if systems < 7 else 5]):  # all 5,040 orders of each take long
            place = random.integers(len(orders))
            pairs = [(spearman_p, every @ stats.rankdata(right))]
            if systems < 7 or at % 8 == 0:  # signs of all pairs take ten times as long
                pairs.append((kendall_p, signs @ np.sign(right[first] - right[second])))
            for found, figure in pairs:
                expected = np.mean(np.abs(figure) > abs(figure[place]) - 1e-9)
                assert found(left[orders[place]], right) == pytest.approx(expected, abs=1e-12)


def test_p_values_of_perfect_agreement_with_ties() -> None:
    """As many orders agree as perfectly as there are ways to draw the tied ones, however many systems there are."""
    for counts, expected in (
        ([5, 1], 1 / 6),
        ([1, 4], 1 / 5),
        ([3, 3], 2 / 20),
        ([9, 1], 1 / 10),
        ([10, 10], 2 / 184756),
    ):
        values = np.repeat(np.arange(len(counts)), counts).astype(float)
        assert spearman_p(values, values) == pytest.approx(expected)
        assert spearman_p(values, -values) == pytest.approx(expected)
        assert kendall_p(values, values) >= expected
    best = np.r_[np.zeros(8), 0.5, 1.0]  # the other has the best one alone: one order in ten
    assert spearman_p(best, np.r_[np.zeros(9), 1.0]) == pytest.approx(0.1)


def test_intervals_over_systems_by_hand_and_what_has_none() -> None:
    left = np.arange(9.0)
    found = rank_correlation(left, left[[1, 0, 2, 5, 3, 4, 8, 7, 6]])
    middle, reach = math.atanh(found.spearman), 1.959964 * math.sqrt((1 + found.spearman**2 / 2) / 6)
    assert np.arctanh([found.spearman_low, found.spearman_high]) == pytest.approx([middle - reach, middle + reach])
    five, four = rank_correlation(left[:5], left[[1, 0, 2, 3, 4]]), rank_correlation(left[:4], left[[1, 0, 2, 3]])
    assert [math.isnan(one.kendall_low) for one in (five, four)] == [False, True]
    for one, other in ((np.ones(5), left[:5]), (left[:2], left[:2])):  # a constant row, too few systems
        assert math.isnan(spearman_p(one, other)) and math.isnan(kendall_p(other, one))


def test_intervals_over_systems_hold_what_they_say() -> None:
    """Bonett and Wright: of 300 samples of 20 systems, 95 % of the intervals hold the true coefficients."""
    random, rho = np.random.default_rng(5), 0.6
    true_spearman, true_kendall = 6 / math.pi * math.asin(rho / 2), 2 / math.pi * math.asin(rho)
    held = np.zeros(2)
    for _ in range(300):
        left = random.normal(size=20)
        found = rank_correlation(left, rho * left + math.sqrt(1 - rho * rho) * random.normal(size=20))
        held += [
            found.spearman_low <= true_spearman <= found.spearman_high,
            found.kendall_low <= true_kendall <= found.kendall_high,
        ]
    assert ((held / 300 > 0.92) & (held / 300 < 0.99)).all(), held / 300


def test_the_papers_table_5(tmp_path: Path) -> None:
    (tmp_path / "table5.csv").write_text(TABLE_5)
    study = correlate(benchmarks({"t": read_system_scores(tmp_path / "table5.csv")}, by="dataset"))
    assert len(study.pairs) == 6
    assert all(pair.spearman_holm >= pair.figures.spearman_p for pair in study.pairs)
    assert any(pair.kendall_holm > pair.figures.kendall_p for pair in study.pairs)
    assert all(not pair.by_queries for pair in study.pairs)  # a table of means knows no queries
    out = tmp_path / "out"
    value = json.loads(call("study", "correlate", tmp_path / "table5.csv", "--by", "dataset", "--out", out, "--json"))
    pairs = {(pair["first"], pair["second"]): pair["figures"] for pair in value["pairs"]}
    rounded = {second: round(pairs["human", second]["spearman"], 4) for second in ("generated", "negatives", "control")}
    assert rounded == {"generated": 0.8211, "negatives": 0.8358, "control": 0.7010}
    assert pairs["human", "generated"]["spearman_p"] == pytest.approx(5e-5, rel=0.1)
    assert pairs["human", "generated"]["systems"] == 17
    assert {path.name for path in out.iterdir()} == {"correlation.md", "correlation.json", "correlation.svg"}
    assert "0.82" in (out / "correlation.svg").read_text() and "repllama" in (out / "correlation.md").read_text()
    text = call("study", "correlate", tmp_path / "table5.csv", "--by", "dataset", "--out", out, "--only", "BM25",
                "--only", "bge-m3", "--only", "e5-base-v2")  # fmt: skip
    assert "6 of 6 pairs have only 3 systems in common" in text and "–" in text  # no interval over three systems


MODELS = ("BM25", "intfloat/e5-large-v2", "BAAI/bge-m3", "facebook/contriever-msmarco")


@pytest.fixture
def mteb_results(tmp_path: Path) -> Path:
    """Two tasks of four models in MTEB's cache, written by MTEB itself, and an extra task of one model."""
    mteb = pytest.importorskip("mteb")
    from mteb.cache import ResultCache
    from mteb.results import TaskResult

    cache = ResultCache(tmp_path / "cache")
    for place, name in enumerate(MODELS):
        meta = mteb.get_model_meta("mteb/baseline-bm25s" if name == "BM25" else name)
        meta = meta.model_copy(update={"name": "mteb/BM25"} if name == "BM25" else {})
        for task, splits in {
            "SciFact": {"test": {"default": {"main_score": 0.6 + place / 100, "ndcg_at_10": 0.6 + place / 100}}},
            "MIRACLRetrieval": {
                "dev": {
                    part: {"main_score": 0.5 - place / 50 * weight, "ndcg_at_10": 0.1}
                    for part, weight in (("de", 1), ("en", 2))
                }
            },
            **({"ArguAna": {"test": {"default": {"main_score": 0.4}}}} if place == 0 else {}),
        }.items():
            result = TaskResult.from_task_results(mteb.get_task(task), splits, evaluation_time=1.0)
            cache.save_to_cache(result, meta, meta.revision or "no_revision_available")
    return tmp_path / "cache"


def test_files_that_mteb_wrote(mteb_results: Path, tmp_path: Path) -> None:
    rows = read_system_scores(mteb_results)
    assert {row.system for row in rows} == {"mteb/BM25", *MODELS[1:]}
    assert {row.part for row in rows if row.dataset == "MIRACLRetrieval"} == {"de", "en"}
    assert {row.language for row in rows if row.part == "de"} == {"deu-Latn"}
    own = tmp_path / "ours.tsv"
    own.write_text("system\tours\nbm25\t0.1\ne5-large-v2\t0.2\nBGE-M3\t0.3\ncontriever-msmarco\t0.4\n")
    by_task = benchmarks({"mteb": rows, "ours": read_system_scores(own)}, by="dataset")
    found = {one.name: one for one in by_task}
    # Subsets are averaged within their task: (.5 - .02 + .5 - .04) / 2 for the second model.
    assert found["mteb: MIRACLRetrieval"].means["e5-large-v2"] == pytest.approx(0.47)
    assert set(found["ours: ours"].means) == set(found["mteb: SciFact"].means)
    study = correlate(by_task)
    figures = {frozenset((pair.first, pair.second)): pair.figures.spearman for pair in study.pairs}
    assert figures[frozenset(("mteb: SciFact", "mteb: MIRACLRetrieval"))] == pytest.approx(-1)
    assert figures[frozenset(("mteb: SciFact", "ours: ours"))] == pytest.approx(1)
    assert {count for *names, count in study.too_few if "mteb: ArguAna" in names} == {1}
    # As one benchmark each: only BM25 has all three tasks, so ArguAna must be left out, and the error says so.
    with pytest.raises(UsageError, match="left out with --dataset"):
        call("study", "correlate", mteb_results, own, "--out", tmp_path / "out")
    text = call(
        "study", "correlate", mteb_results, own, "--dataset", "SciFact", "--dataset", "ours", "--out", tmp_path / "out"
    )
    assert "cache ~ ours" in text and "1.000" in text


def test_the_earlier_form_of_mteb(tmp_path: Path) -> None:
    for place, name in enumerate(("a", "b", "c")):
        folder = tmp_path / "results" / f"org__{name}" / "no_revision_available"
        folder.mkdir(parents=True)
        old = {"dataset_revision": None, "mteb_dataset_name": "NFCorpus", "mteb_version": "1.1.2"}
        scores = {"ndcg_at_10": place / 10, "map_at_10": 0.9, "evaluation_time": 3.5}
        (folder / "NFCorpus.json").write_text(json.dumps({**old, "test": scores}))
        subsets = {part: {"main_score": place / 10, "ndcg_at_10": 0.0} for part in ("de", "fr")}
        (folder / "Multi.json").write_text(json.dumps({**old, "mteb_dataset_name": "Multi", "dev": subsets}))
        (folder / "broken.json").write_text('{"task_name": "x", "scores": {"test": 5}}')
        (folder / "other.json").write_text("[1, 2")
    rows = [row for row in read_system_scores(tmp_path / "results") if row.system == "org/b"]
    assert {row.value for row in rows} == {0.1}
    assert {row.where for row in rows} == {("NFCorpus", "test", ""), ("Multi", "dev", "de"), ("Multi", "dev", "fr")}


SYSTEMS = """systems:
- {name: bm25, kind: bm25}
- {name: raw, kind: bm25, analyser: {stem: false}}
- {name: flat, kind: query-likelihood, mu: 1000000}
- {name: grams, kind: bm25, analyser: {ngram: 3}}
"""


def test_results_of_airgen_resample_their_queries(dataset: Path, tmp_path: Path) -> None:
    other = shutil.copytree(dataset, tmp_path / "second")
    (tmp_path / "systems.yaml").write_text(SYSTEMS)
    call("evaluate", dataset, other, "--systems", tmp_path / "systems.yaml", "--out", tmp_path / "results")
    arguments = ("--by", "dataset", "--out", tmp_path / "out", "--measure", "RR@10", "--json")
    value = json.loads(call("study", "correlate", tmp_path / "results", *arguments))
    (pair,) = value["pairs"]
    assert (pair["first"], pair["second"], pair["figures"]["spearman"]) == ("little", "second", pytest.approx(1))
    low, high = pair["by_queries"]["spearman"]
    assert -1 <= low <= high <= 1
    (row, *_) = read_system_scores(tmp_path / "results", measure="RR@10")
    assert row.by_query is not None and np.mean(list(row.by_query().values())) == pytest.approx(row.value)
    with pytest.raises(DatasetError, match=r"no scores of the measure nDCG@7"):
        read_system_scores(tmp_path / "results", measure="nDCG@7")


def test_intervals_over_queries_grow_with_noise() -> None:
    """Six systems whose true means differ by .02: with 400 queries the order is known, with 10 it is not."""

    def rows(dataset: str, queries: int, seed: int) -> list[ScoreRow]:
        random = np.random.default_rng(seed)
        found = []
        for place in range(6):
            scores = {f"q{at}": float(0.5 + place / 50 + random.normal(0, 0.1)) for at in range(queries)}
            mean = float(np.mean(list(scores.values())))
            found.append(ScoreRow(f"s{place}", dataset, mean, by_query=lambda scores=scores: scores))
        return found

    width = {}
    for queries in (10, 400):
        study = correlate(benchmarks({"one": rows("a", queries, 1), "other": rows("b", queries, 2)}))
        again = correlate(benchmarks({"one": rows("a", queries, 1), "other": rows("b", queries, 2)}))
        assert study.pairs == again.pairs
        low, high = study.pairs[0].by_queries["kendall"]
        width[queries] = high - low
    assert width[10] > 2 * width[400] > 0


def test_a_name_given_twice_and_a_mapping(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("system,x\norg/m,1\nm,2\nn,3\no,4\n")
    (tmp_path / "b.csv").write_text("system,y\nfirst,1\nm,2\nn,3\nelse,9\n")
    both, out = (tmp_path / "a.csv", tmp_path / "b.csv"), ("--out", tmp_path / "out")
    with pytest.raises(UsageError, match="'org/m' and 'm' both have a score on x"):
        call("study", "correlate", *both, *out)
    (tmp_path / "names.yaml").write_text("org/m: first\nelse: o\n")
    text = call("study", "correlate", *both, "--names", tmp_path / "names.yaml", *out)
    assert "a ~ b" in text and "1.000" in text
    (tmp_path / "names.yaml").write_text("- a\n")
    with pytest.raises(UsageError, match="a mapping of names is needed"):
        call("study", "correlate", *both, "--names", tmp_path / "names.yaml")
    with pytest.raises(UsageError, match=r"no source has the system 'elze' \(did you mean 'else'"):
        call("study", "correlate", *both, "--only", "elze")


def test_no_column_is_over_two_tasks() -> None:
    """Domain law has a QA and a Long-Doc dataset: their measures differ."""
    rows = [
        ScoreRow("a", "l", 0.2, task="qa", domain="law"), ScoreRow("a", "book", 0.9, task="long-doc", domain="law"),
        ScoreRow("a", "n", 0.4, task="qa", domain="news"),
    ]  # fmt: skip
    by_domain = {one.name: one.means["a"] for one in benchmarks({"s": rows}, by="domain")}
    assert by_domain == {"law: qa": 0.2, "law: long-doc": 0.9, "news: qa": 0.4}
    whole = {one.name: one.means["a"] for one in benchmarks({"s": rows})}
    assert whole == {"s: qa": pytest.approx(0.3), "s: long-doc": 0.9}


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("system\n", "needs a header"),
        ("system,x\na,much\n", "a.csv:2: 'much' of x is not a number"),
        ("system,x\na,nan\n", "not a number"),
        ("system,x\n", "no scores"),
    ],
)
def test_bad_tables_end_in_one_line(tmp_path: Path, text: str, told: str) -> None:
    (tmp_path / "a.csv").write_text(text)
    with pytest.raises(DatasetError, match=told):
        read_system_scores(tmp_path / "a.csv")
    (tmp_path / "a.csv").write_text("system,x,y\na,1,2\nb,2,1\nc,3,4\nd,4,\n")  # a dataset that only some have
    (one,) = benchmarks({"a": read_system_scores(tmp_path / "a.csv")})
    assert one.means == {"a": 1.5, "b": 1.5, "c": 3.5} and one.incomplete == {"d": 1}


def test_last_bits_break_no_tie_and_two_systems_are_too_few():
    nearly = np.array([[0.1 + 0.2, 0.3, 0.5, 0.1], [3.0, 1.0, 2.0, 2.0]])
    assert nearly[0, 0] != nearly[0, 1]
    assert average_ranks(nearly).tolist() == [[2.5, 2.5, 4, 1], [4, 1, 2.5, 2.5]]
    exact = np.array([0.3, 0.3, 0.5, 0.1])
    assert kendall(nearly[0], exact) == pytest.approx(1) and kendall(exact, nearly[0]) == pytest.approx(1)
    assert kendall_p(nearly[0], nearly[1]) == kendall_p(exact, nearly[1]) == kendall_p(nearly[1], nearly[0])
    with pytest.raises(UsageError, match="a rank correlation needs at least 3"):
        rank_correlation([1, 2], [2, 1])


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.csv", "name;x;y\nlexical;.5;.6\ndense;.4;\n"),
        ("a.tsv", "x\ty\tmodel\n.5\t.6\tlexical\n.4\t\tdense\n"),
        ("a.csv", "model,task,main_score\nlexical,x,.5\nlexical,y,.6\ndense,x,.4\n"),
        ("a.json", '[{"model": "lexical", "x": 0.5, "y": 0.6}, {"model": "dense", "x": 0.4}]'),
        ("a.json", '{"lexical": {"x": 0.5, "y": 0.6}, "dense": {"x": 0.4}}'),
    ],
)
def test_scores_in_the_forms_that_people_have(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text)
    found = {(row.system, row.dataset): row.value for row in read_system_scores(tmp_path / name)}
    assert found == {("lexical", "x"): 0.5, ("lexical", "y"): 0.6, ("dense", "x"): 0.4}
