"""Other people's evaluators load a dataset of airgen and score a run of airgen: the same figures, query by query.

trec_eval is Lucene's, of Anserini's jar. `tests/dataset/test_loaders.py` compares what each of them loads, row by row.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from dataset_maker import make_content
from real_servers import anserini

from airgen.dataset.layouts import export_layouts
from airgen.dataset.manifest import load_manifest
from airgen.dataset.write import write_dataset
from airgen.evaluation import EvaluationOptions as Options
from airgen.evaluation import evaluate
from airgen.evaluation.result import read_scores
from airgen.evaluation.run import read_run
from airgen.evaluation.systems import SystemSettings

pytestmark = [pytest.mark.servers, pytest.mark.filterwarnings("ignore")]
MEASURES = ("nDCG@10", "AP@100", "Recall@10", "Recall@100", "RR@10")


@dataclass(frozen=True)
class Scored:
    """A dataset, its TREC files, a run of BM25, and the scores of each query by airgen."""

    dataset: Path
    trec: Path
    file: Path
    hits: Mapping[str, Mapping[str, float]]
    means: Mapping[str, float]
    by_query: Mapping[str, Mapping[str, float]]


@pytest.fixture(scope="module")
def scored(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scored]:
    folder = tmp_path_factory.mktemp("scored")
    write_dataset(folder / "d", make_content(400, 120))
    export_layouts({"": folder / "d"}, "trec", folder / "trec")
    system = SystemSettings.model_validate({"name": "bm25", "kind": "bm25"})
    (result,) = evaluate(folder / "d", [system], folder / "out", Options(measures=" ".join(MEASURES)))
    run = read_run(result.paths.run).ranked()
    hits = {query: dict(found) for query, found in run.items()}
    (folder / "a.run").write_text(
        "".join(f"{q} Q0 {p} 0 {score!r} bm25\n" for q, of in hits.items() for p, score in of.items()), encoding="utf-8"
    )
    by_query = {one: read_scores(result.paths.scores, one) for one in MEASURES}
    assert 0.1 < result.means["nDCG@10"] < 0.95 and len(hits) == 80
    yield Scored(folder / "d", folder / "trec", folder / "a.run", hits, result.means, by_query)


def test_trec_eval_of_lucene(scored: Scored) -> None:
    names = {"ndcg_cut_10": "nDCG@10", "map_cut_100": "AP@100", "recall_10": "Recall@10", "recall_100": "Recall@100"}
    wanted = [word for name in ("ndcg_cut.10", "map_cut.100", "recall.10,100") for word in ("-m", name)]
    said = anserini("trec_eval", "-c", "-q", *wanted, scored.trec / "qrels.test.txt", scored.file)
    found: dict[str, dict[str, float]] = {}
    for name, query, value in (line.split() for line in said.splitlines()):
        found.setdefault(names[name], {})[query] = float(value)
    for measure, values in found.items():
        assert values.pop("all") == pytest.approx(scored.means[measure], abs=6e-5)
        assert values == pytest.approx(scored.by_query[measure], abs=6e-5)
    assert set(found) == set(names.values())


def test_beir(scored: Scored) -> None:
    loader = pytest.importorskip("beir.datasets.data_loader").GenericDataLoader
    beir = pytest.importorskip("beir.retrieval.evaluation").EvaluateRetrieval
    _, queries, qrels = loader(str(scored.dataset)).load(split="test")
    assert queries.keys() == scored.hits.keys()
    ndcg, average, recall, _ = beir.evaluate(qrels, scored.hits, [10, 100])
    mrr = beir.evaluate_custom(qrels, scored.hits, [10], metric="mrr")
    found = [ndcg["NDCG@10"], average["MAP@100"], recall["Recall@10"], recall["Recall@100"], mrr["MRR@10"]]
    assert dict(zip(MEASURES, found, strict=True)) == pytest.approx(dict(scored.means), abs=1e-5)


def test_mteb(scored: Scored, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setattr(pytest.importorskip("datasets").config, "HF_DATASETS_CACHE", tmp_path / "datasets")
    module = pytest.importorskip("mteb.abstasks.retrieval_dataset_loaders")
    score = pytest.importorskip("mteb._evaluators.retrieval_metrics").calculate_retrieval_scores
    loaded = module.RetrievalDatasetLoader(str(scored.dataset), revision=None, split="test").load()
    found = score(scored.hits, loaded["relevant_docs"], [10, 100])
    values = [found.ndcg["NDCG@10"], found.map["MAP@100"], *found.recall.values(), found.mrr["MRR@10"]]
    assert dict(zip(MEASURES, values, strict=True)) == pytest.approx(dict(scored.means), abs=1e-5)


def test_ir_datasets(scored: Scored) -> None:
    ir_datasets = pytest.importorskip("ir_datasets")
    pytrec_eval = pytest.importorskip("pytrec_eval")
    files = ("docs.tsv", "topics.test.tsv", "qrels.test.txt")
    loaded = ir_datasets.create_dataset(*(str(scored.trec / name) for name in files))
    assert {row.query_id for row in loaded.queries_iter()} == scored.hits.keys()
    judge = pytrec_eval.RelevanceEvaluator(loaded.qrels_dict(), {"ndcg_cut.10", "recall.100"})
    found = judge.evaluate(scored.hits)
    for name, measure in (("ndcg_cut_10", "nDCG@10"), ("recall_100", "Recall@100")):
        assert {query: row[name] for query, row in found.items()} == pytest.approx(scored.by_query[measure], abs=1e-6)


def test_air_benchmark(scored: Scored, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    utils = pytest.importorskip("air_benchmark.evaluation_utils")
    export_layouts({"": scored.dataset}, "air-bench", tmp_path)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setattr(pytest.importorskip("datasets").config, "HF_DATASETS_CACHE", tmp_path / "datasets")
    monkeypatch.chdir(tmp_path)  # where air-benchmark finds the folder AIR-Bench/... before the Hub
    info = load_manifest(scored.dataset).info

    class Replayed:
        search_top_k = 1000

        def __str__(self) -> str:
            return "replayed"

        def __call__(self, corpus: Any, queries: Any, **_: Any) -> dict[str, dict[str, float]]:
            return {query: dict(scored.hits[query]) for query in queries}

    evaluator = utils.Evaluator(utils.DataLoader(info.version, cache_dir=str(tmp_path / "cache")))
    group = {"task_type": info.task, "domain": info.domain, "language": info.language, "dataset_name": info.name}
    evaluator(**group, splits=["test"], search_results_save_dir="found", retriever=Replayed())
    found = evaluator.evaluate_results("found/replayed/NoReranker", split="test")
    values = found[info.task][info.domain][info.language][info.name]
    names = ("ndcg_at_10", "map_at_100", "recall_at_10", "recall_at_100", "mrr_at_10")
    assert {one: values[name] for one, name in zip(MEASURES, names, strict=True)} == pytest.approx(
        dict(scored.means), abs=1e-5
    )
