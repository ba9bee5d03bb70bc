"""Each layout, loaded by the real library of its readers, row by row against what was written."""

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from dataset_maker import INFO, make_content
from refusals import refused

from airgen.dataset.beir import BeirDataset
from airgen.dataset.content import CorpusRow, QrelRow, QueryRow
from airgen.dataset.derive import derive
from airgen.dataset.layouts import export_layouts
from airgen.dataset.verify import verify
from airgen.dataset.write import write_dataset
from airgen.errors import DatasetError, UsageError
from airgen.publishing.scores import load_labels, score_results
from airgen.publishing.submission import read_results_tree
from airgen.publishing.withhold import public_part

pytestmark = pytest.mark.filterwarnings("ignore")  # of the libraries' own dependencies

CONTENT = make_content()
DOCUMENTS = {row.id: (row.title, row.text) for row in CONTENT.corpus}
QUERIES = {row.id: row for row in CONTENT.queries}
LABELS: dict[str, dict[str, dict[str, int]]] = {"dev": {}, "test": {}}
for label in CONTENT.qrels:
    LABELS[QUERIES[label.query].split].setdefault(label.query, {})[label.document] = label.score


@pytest.fixture(autouse=True)
def fresh_caches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """No network, and no rows of an earlier test: `datasets` caches by the card's content."""
    cache = tmp_path / "cache"
    for name in ("HF_HOME", "HF_DATASETS_CACHE", "IR_DATASETS_HOME", "MTEB_CACHE"):
        monkeypatch.setenv(name, str(cache / name))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    try:
        import datasets
    except ImportError:
        yield cache
        return
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", cache / "datasets")
    monkeypatch.setattr(datasets.config, "HF_DATASETS_OFFLINE", True)
    datasets.disable_progress_bars()
    yield cache


def flat(title: str, text: str) -> str:
    return f"{title} {text}" if title else text


def test_beir(dataset: Path) -> None:
    loader = pytest.importorskip("beir.datasets.data_loader").GenericDataLoader
    for split, labels in LABELS.items():
        corpus, queries, qrels = loader(str(dataset)).load(split=split)
        assert {key: (row["title"], row["text"]) for key, row in corpus.items()} == DOCUMENTS
        assert queries == {key: QUERIES[key].text for key in labels}
        assert qrels == labels
    qrels = loader(str(dataset), qrels_folder="qrels-graded").load(split="test")[2]
    assert qrels["q-00"] == {"doc000": 3, "doc001": 2, "doc002": 1}


def test_datasets(dataset: Path, fresh_caches: Path) -> None:
    load_dataset = pytest.importorskip("datasets").load_dataset
    corpus = load_dataset(str(dataset), "corpus", split="corpus")
    assert {row["_id"]: (row["title"], row["text"]) for row in corpus} == DOCUMENTS
    queries = load_dataset(str(dataset), "queries", split="queries")
    for row in queries:
        query = QUERIES[row["_id"]]
        assert (row["text"], row["metadata"]) == (query.text, {"split": query.split, **query.metadata})
    for config in ("default", "qrels", "qrels-positives", "qrels-graded", "qrels-soft"):
        loaded = load_dataset(str(dataset), config)
        assert set(loaded) == {"dev", "test"}
    assert rows_of(load_dataset(str(dataset))) == LABELS
    positives = rows_of(load_dataset(str(dataset), "qrels-positives"))
    assert positives["test"]["q-00"] == {"doc000": 1, "doc001": 1}
    assert rows_of(load_dataset(str(dataset), "qrels-soft"))["test"]["q-00"]["doc001"] == 0.6


def test_datasets_and_mteb_load_the_public_part(dataset: Path, tmp_path: Path, fresh_caches: Path) -> None:
    load_dataset = pytest.importorskip("datasets").load_dataset
    public_part(dataset, tmp_path / "public", ["test"])
    assert rows_of(load_dataset(str(tmp_path / "public"))) == {"dev": LABELS["dev"]}
    assert len(load_dataset(str(tmp_path / "public"), "queries", split="queries")) == len(QUERIES)
    module = pytest.importorskip("mteb.abstasks.retrieval_dataset_loaders")
    loaded = module.RetrievalDatasetLoader(str(tmp_path / "public"), revision=None, split="dev").load()
    assert loaded["relevant_docs"] == LABELS["dev"]
    assert sorted(row["id"] for row in loaded["queries"]) == sorted(LABELS["dev"])


def test_verify_warns_of_ids_that_datasets_rewrites(tmp_path: Path, fresh_caches: Path) -> None:
    load_dataset = pytest.importorskip("datasets").load_dataset
    corpus = [CorpusRow("2024-01-31", "", "a"), CorpusRow("2024-02-28", "", "b")]
    labels = [QrelRow("q", "2024-01-31", 1)]
    write_dataset(
        tmp_path / "d", make_content(corpus=corpus, queries=[QueryRow("q", "?", "test")], qrels=labels, lineage=[])
    )
    loaded = load_dataset(str(tmp_path / "d"), "corpus", split="corpus")
    assert loaded[0]["_id"] != "2024-01-31"  # if this fails, `datasets` was mended: drop the warning
    assert [(problem.kind, problem.severity) for problem in verify(tmp_path / "d")] == [("date", "warning")] * 2


def test_columns_have_their_types_where_nothing_is_known(tmp_path: Path, fresh_caches: Path) -> None:
    load_dataset = pytest.importorskip("datasets").load_dataset
    queries = [dataclasses.replace(row, metadata={"style": None}) for row in CONTENT.queries]
    write_dataset(tmp_path / "d", make_content(queries=queries))
    loaded = load_dataset(str(tmp_path / "d"), "queries", split="queries")
    assert loaded.features["metadata"]["style"].dtype == "string"  # without the card's word it would be null
    assert loaded[0]["metadata"] == {"split": "test", "style": None}


def rows_of(loaded: Any) -> dict[str, dict[str, dict[str, float]]]:
    result: dict[str, dict[str, dict[str, float]]] = {}
    for split, rows in loaded.items():
        for row in rows:
            result.setdefault(split, {}).setdefault(row["query-id"], {})[row["corpus-id"]] = row["score"]
    return result


def test_mteb(dataset: Path, fresh_caches: Path) -> None:
    module = pytest.importorskip("mteb.abstasks.retrieval_dataset_loaders")
    for split, labels in LABELS.items():
        loaded = module.RetrievalDatasetLoader(str(dataset), revision=None, split=split).load()
        assert {row["id"]: (row["title"], row["text"]) for row in loaded["corpus"]} == DOCUMENTS
        assert {row["id"]: row["text"] for row in loaded["queries"]} == {key: QUERIES[key].text for key in labels}
        assert loaded["relevant_docs"] == labels


def test_ir_datasets(dataset: Path, tmp_path: Path) -> None:
    ir_datasets = pytest.importorskip("ir_datasets")
    export_layouts({"": dataset}, "trec", tmp_path / "trec")
    for split, labels in LABELS.items():
        loaded = ir_datasets.create_dataset(
            docs_tsv=str(tmp_path / "trec" / "docs.tsv"),
            queries_tsv=str(tmp_path / "trec" / f"topics.{split}.tsv"),
            qrels_trec=str(tmp_path / "trec" / f"qrels.{split}.txt"),
        )
        documents = {row.doc_id: row.text for row in loaded.docs_iter()}
        assert documents == {key: " ".join(flat(*row).split()) for key, row in DOCUMENTS.items()}
        assert {row.query_id: row.text for row in loaded.queries_iter()} == {key: QUERIES[key].text for key in labels}
        found: dict[str, dict[str, int]] = {}
        for row in loaded.qrels_iter():
            found.setdefault(row.query_id, {})[row.doc_id] = row.relevance
        assert found == labels


class Shouting:
    """A retriever by AIR-Bench's protocol: finds each query's first positive first, its negative second."""

    search_top_k = 1000

    def __str__(self) -> str:
        return "shouting"

    def __call__(self, corpus: Any, queries: Any, **_: Any) -> dict[str, dict[str, float]]:
        assert {key: row["text"] for key, row in corpus.items()} == {k: flat(*v) for k, v in DOCUMENTS.items()}
        first = {query: int(query[2:]) for query in queries}
        return {query: {f"doc{i:03d}": 2.0, f"doc{i + 2:03d}": 1.0} for query, i in first.items()}


def test_air_benchmark_runs_a_whole_suite(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fresh_caches: Path) -> None:
    """Its own entry point, from its table of tasks to its table of scores, with two datasets in one repository."""
    air_benchmark = pytest.importorskip("air_benchmark")
    tasks = pytest.importorskip("air_benchmark.tasks")
    homes = {}
    for name, task, domain, split in (
        ("a-b", "long-doc", "law", "dev"),
        ("c", "long-doc", "law", "test"),
        ("d", "qa", "web", ""),
    ):
        info = dataclasses.replace(INFO, name=name, task=task, domain=domain)
        write_dataset(tmp_path / "in" / name, make_content(info=info))
        homes[name] = tmp_path / "out" / name
        derive(tmp_path / "in" / name, homes[name], split=split or None)
    export_layouts(homes, "air-bench", tmp_path / "work")
    monkeypatch.chdir(tmp_path / "work")
    table = {
        "long-doc": {"law": {"en": {"a-b": {"splits": ["dev"]}, "c": {"splits": ["test"]}}}},
        "qa": {"web": {"en": {"d": {"splits": ["dev", "test"]}}}},
    }
    monkeypatch.setitem(tasks.BenchmarkTable, "26.11", table)
    air_benchmark.AIRBench(benchmark_version="26.11", cache_dir=str(fresh_caches)).run(Shouting(), output_dir="found")
    air_benchmark.AIRBench.evaluate_dev("26.11", "found", cache_dir=str(fresh_caches), output_path="./scores/dev.md")
    text = Path("scores/dev.md").read_text()
    assert "| shouting | NoReranker | **61.315** |" in text
    packed = read_results_tree(Path("found") / "shouting" / "NoReranker")
    assert [one.entry for one in packed] == ["long-doc/law/en_c_test.json", "qa/web/en_d_test.json"]
    scored = score_results(packed, load_labels([*homes.values()]))
    means = {one.dataset: dict(one.measures) for one in scored.datasets}  # of the head measure, as it is shown
    assert means == {"c": {"Recall@10": means["c"]["Recall@10"]}, "d": {"nDCG@10": 0.613}}


def test_layouts_are_whole_or_not_there(dataset: Path, tmp_path: Path) -> None:
    with refused(UsageError, "unknown_name", "air-bench", where="layout"):
        export_layouts({"": dataset}, "airbench", tmp_path / "x")
    (dataset / "corpus.jsonl").write_text('{"_id": "a", "text": "x"}\nnot json\n')
    with pytest.raises(DatasetError, match="not JSON"):
        export_layouts({"": dataset}, "trec", tmp_path / "x")
    assert not (tmp_path / "x").exists()


@pytest.mark.parametrize("name", ["corpus.jsonl", "queries.jsonl", "qrels/test.tsv"])
def test_a_copy_that_stopped_at_the_end_of_a_line_is_not_read(dataset: Path, name: str) -> None:
    """It would look whole: fewer passages, queries or labels, and other scores."""
    lines = (dataset / name).read_bytes().splitlines(keepends=True)
    (dataset / name).write_bytes(b"".join(lines[:-1]))
    with pytest.raises(
        DatasetError, match=rf"{name}: has [\d,]+ of the [\d,]+ bytes that manifest\.json says: copy it"
    ):
        BeirDataset.open(dataset)
    (dataset / "manifest.json").unlink()
    assert BeirDataset.open(dataset)
