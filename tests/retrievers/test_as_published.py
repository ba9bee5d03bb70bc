"""Models score as with sentence-transformers' own evaluator and with MTEB, whatever way they are given."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from beir_folder import write_beir
from packages import package
from published_models import KINDS, make_published, put_in_hub_cache, texts_and_labels

import airgen
from airgen.retrievers.model_prompts import known_prompts

library = package("sentence_transformers")
CORPUS, QUERIES, LABELS = texts_and_labels()
WITHIN = 1e-6  # exact scores in float64 may order passages differently that are equal in float32


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Each model as a folder."""
    return {kind: make_published(kind, tmp_path_factory.mktemp("published")) for kind in KINDS}


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty cache of a Hub that cannot be reached."""
    constants = pytest.importorskip("huggingface_hub.constants")
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    hub = pytest.importorskip("transformers.utils.hub")
    if hasattr(hub, "constants"):
        monkeypatch.setattr(hub.constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    yield tmp_path / "hub"


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("dataset")
    rows = [{"_id": key, "title": "", "text": text} for key, text in CORPUS.items()]
    asked = [{"_id": key, "text": text} for key, text in QUERIES.items()]
    labels = [(query, passage, 1) for query, row in LABELS.items() for passage in row]
    write_beir(folder, rows, asked, {"test": labels})
    return airgen.load(folder)


def score(bench: Any, system: Any, out: Path) -> float:
    """Return airgen's nDCG@10."""
    results = airgen.evaluate(bench, {"s": system}, out=out, quiet=True)
    return float(results["s"].means["nDCG@10"])


def of_the_library(model: Any, **prompts: Any) -> float:
    """Return nDCG@10 of sentence-transformers' evaluator."""
    from sentence_transformers.sentence_transformer.evaluation import InformationRetrievalEvaluator

    relevant = {query: set(row) for query, row in LABELS.items()}
    evaluator = InformationRetrievalEvaluator(QUERIES, CORPUS, relevant, write_csv=False, **prompts)
    return float(evaluator(model)[f"{model.similarity_fn_name}_ndcg@10"])


def of_mteb(model: Any) -> float:
    """Return nDCG@10 of MTEB."""
    mteb = pytest.importorskip("mteb")
    from datasets import Dataset
    from mteb.abstasks.retrieval import AbsTaskRetrieval
    from mteb.abstasks.task_metadata import TaskMetadata

    class Task(AbsTaskRetrieval):  # type: ignore[misc]
        metadata = TaskMetadata(
            name="SmallRetrieval", type="Retrieval", description="A small dataset of random words.", reference=None,
            dataset={"path": "none", "revision": "none"}, eval_splits=["test"], eval_langs=["eng-Latn"],
            main_score="ndcg_at_10", modalities=["text"], category="t2t",
        )  # fmt: skip

        def load_data(self, **_: Any) -> None:
            corpus = Dataset.from_list([{"id": key, "title": "", "text": text} for key, text in CORPUS.items()])
            queries = Dataset.from_list([{"id": key, "text": text} for key, text in QUERIES.items()])
            parts = {"corpus": corpus, "queries": queries, "relevant_docs": LABELS, "top_ranked": None}
            self.dataset = {"default": {"test": parts}}
            self.data_loaded = True

    result = mteb.evaluate(model, Task(), cache=None, show_progress_bar=False)
    return float(result.task_results[0].scores["test"][0]["ndcg_at_10"])


@pytest.mark.filterwarnings("ignore")  # of the libraries
@pytest.mark.parametrize("kind", KINDS)
def test_every_way_in_gives_the_figures_of_the_libraries(
    kind: str, folders: dict[str, Path], hub: Path, bench: Any, tmp_path: Path
) -> None:
    folder = folders[kind]
    name = put_in_hub_cache(folder, hub, "acme/tiny")
    model = library.SentenceTransformer(str(folder))
    wanted = of_the_library(model)
    assert of_mteb(model) == round(wanted, 5)  # which MTEB reports
    found = {
        "folder": score(bench, str(folder), tmp_path / "folder"),
        "name": score(bench, name, tmp_path / "name"),
        "object": score(bench, model, tmp_path / "object"),
    }
    assert found == {way: pytest.approx(wanted, abs=WITHIN) for way in found}, wanted
    assert 0.02 < wanted < 0.98  # otherwise, most rankings would give the same figure


@pytest.mark.filterwarnings("ignore")
def test_the_settings_win_over_the_model(folders: dict[str, Path], bench: Any, tmp_path: Path) -> None:
    folder = str(folders["prompts"])
    given = {"query_prefix": "candle: ", "passage_prefix": "", "max_length": 6, "pooling": "cls", "truncate_dim": 20}
    system = {"kind": "dense", "embedder": {"kind": "sentence-transformers", "model": folder, **given}}
    model = library.SentenceTransformer(folder, truncate_dim=20)
    model.max_seq_length, model[1].pooling_mode = 6, "cls"
    wanted = of_the_library(model, query_prompt="candle: ", corpus_prompt="")
    assert score(bench, system, tmp_path) == pytest.approx(wanted, abs=WITHIN)
    assert wanted != of_the_library(library.SentenceTransformer(folder))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("way", ["name", "folder", "object"])
def test_prompts_of_a_model_card(way: str, folders: dict[str, Path], hub: Path, bench: Any, tmp_path: Path) -> None:
    """E5's files name no prompts; a model with prompts of its own keeps them, whatever its name."""
    name = put_in_hub_cache(folders["plain"], hub, "intfloat/e5-small-v2")
    snapshot = next((hub / "models--intfloat--e5-small-v2" / "snapshots").iterdir())
    system = {"name": name, "folder": str(snapshot), "object": library.SentenceTransformer(name)}[way]
    wanted = of_the_library(
        library.SentenceTransformer(str(snapshot)), query_prompt="query: ", corpus_prompt="passage: "
    )
    assert score(bench, system, tmp_path / "e5") == pytest.approx(wanted, abs=WITHIN)
    assert wanted != of_the_library(library.SentenceTransformer(str(snapshot)))
    own = put_in_hub_cache(folders["prompts"], hub, "intfloat/e5-base-v2")
    wanted = of_the_library(library.SentenceTransformer(str(folders["prompts"])))
    assert score(bench, own, tmp_path / "own") == pytest.approx(wanted, abs=WITHIN)


def test_a_cross_encoder_scores_as_the_library_does(tiny_cross_encoder: Path, tmp_path: Path) -> None:
    """With its own maximum length and activation, as a folder and as an object."""
    from airgen.retrievers import load_reranker

    model = library.CrossEncoder(str(tiny_cross_encoder), max_length=9)
    model.activation_fn = pytest.importorskip("torch").nn.Sigmoid()
    model.save_pretrained(str(tmp_path / "short"))
    pairs = [("how do cells get energy", f"{'cell ' * count}makes most of the energy") for count in range(12)]
    wanted = library.CrossEncoder(str(tmp_path / "short")).predict(pairs)
    assert wanted.std() > 0 and (wanted > 0).all() and len(set(wanted[6:].tolist())) == 1  # cut, so all are equal
    for system in (str(tmp_path / "short"), library.CrossEncoder(str(tmp_path / "short"))):
        assert load_reranker(system).score(pairs) == pytest.approx(wanted, abs=1e-6)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("similarity", ["dot", "cosine"])
def test_a_sparse_encoder_scores_as_the_library_does(similarity: str, tiny_mlm: Path, tmp_path: Path) -> None:
    """With its prompts, maximum length, similarity and maximum number of active dimensions."""
    from airgen.retrievers import Passages, load_retriever

    prompts = {"query": "cells: ", "document": "the "}
    model = library.SparseEncoder(str(tiny_mlm), prompts=prompts, max_active_dims=7, similarity_fn_name=similarity)
    model.max_seq_length = 12
    model.save_pretrained(str(tmp_path / "sparse"))
    model = library.SparseEncoder(str(tmp_path / "sparse"))
    texts = ["The mitochondrion makes most of the energy of the cell " * 3, "a list in Python", "bread and yeast"]
    wanted = model.similarity(model.encode_query(["energy", "bread"]), model.encode_document(texts)).numpy()
    system = load_retriever({"kind": "sparse", "model": str(tmp_path / "sparse")})
    system.index(Passages(["a", "b", "c"], texts))
    hits = system.search(["energy", "bread"], 3)
    for row, positions in enumerate(hits.positions):
        found = positions[positions >= 0]
        assert hits.scores[row, : len(found)] == pytest.approx(wanted[row, found], abs=1e-5)


def test_the_table_of_prompts_agrees_with_mteb() -> None:
    """For every model of MTEB's registry whose prompts are fixed texts, if it is in the table."""
    registry = pytest.importorskip("mteb.models.model_implementations").MODEL_REGISTRY
    checked = 0
    for name, meta in registry.items():
        prompts = (meta.loader_kwargs or {}).get("model_prompts") or {}
        known = known_prompts(name)
        if known is None or "query" not in prompts or "{text}" in prompts["query"]:
            continue
        assert (known.query, known.passage) == (prompts["query"], prompts.get("document", "")), name
        checked += 1
    assert checked > 40


@pytest.mark.parametrize(
    ("name", "query"),
    [
        ("intfloat/e5-base-v2", "query: "),
        ("/models/e5-base-v2/", "query: "),
        ("/cache/models--intfloat--e5-base-v2/snapshots/0123", "query: "),
        ("sentence-transformers/all-MiniLM-L6-v2", ""),
        ("bge-small-en-int8", "Represent this sentence for searching relevant passages: "),
        ("maidalun1020/bce-embedding-base_v1", ""),
        ("acme/our-e5-base-v2-tuned", None),
        ("", None),
    ],
)
def test_a_name_is_found_wherever_it_stands(name: str, query: str | None) -> None:
    known = known_prompts(name)
    assert query is None if known is None else known.query == query


@pytest.mark.filterwarnings("ignore")
def test_a_model_without_a_maximum_length(folders: dict[str, Path], bench: Any, tmp_path: Path) -> None:
    """Static embeddings of sentence-transformers read texts of any length."""
    from sentence_transformers.sentence_transformer.modules import StaticEmbedding
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(folders["plain"] / "tokenizer.json"))
    library.SentenceTransformer(modules=[StaticEmbedding(tokenizer, embedding_dim=16)]).save(str(tmp_path / "static"))
    model = library.SentenceTransformer(str(tmp_path / "static"))
    assert score(bench, str(tmp_path / "static"), tmp_path) == pytest.approx(of_the_library(model), abs=WITHIN)
