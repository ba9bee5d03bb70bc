"""Search engines that nobody here wrote: what they index, find, lose, and refuse."""

import os
import shutil
from contextlib import contextmanager

import httpx
import numpy as np
import pytest
from little_dataset import PASSAGES
from real_servers import KEYS, free_port, started
from refusals import refused

from airgen import models
from airgen.errors import ModelError
from airgen.evaluation import EvaluationOptions, evaluate
from airgen.evaluation.run import read_run
from airgen.evaluation.systems import SystemSettings
from airgen.net import http
from airgen.retrievers import Passages, load_retriever
from airgen.retrievers.search_engines import NO_INDEX

MODEL = "wordllama-256"
SETTINGS = {
    "qdrant": {"embedder": MODEL},
    "chroma": {"embedder": MODEL},
    "meilisearch": {"api_key_env": "ENGINE_KEY"},
    "typesense": {"headers": {"X-TYPESENSE-API-KEY": "${ENGINE_KEY}"}},
}
WORDS = [
    f"{first}{second}" for first in ("ba", "ko", "mi", "tu", "re", "so") for second in ("lan", "dor", "nex", "pil")
]
TEXTS = [f"{WORDS[at % 24]} {WORDS[at // 24 % 24]} {WORDS[at // 576 % 24]} passage{at}" for at in range(2300)]
CORPUS = Passages([f"p{at}" for at in range(2300)], TEXTS)

pytestmark = [
    pytest.mark.servers,
    pytest.mark.skipif(not models.fetched(MODEL), reason=f"airgen fetch {MODEL}"),
]


@pytest.fixture(params=SETTINGS)
def name(request, monkeypatch):
    monkeypatch.setattr(http, "_LONGEST_WAIT_SECONDS", 0.0)
    monkeypatch.setenv("ENGINE_KEY", KEYS.get(request.param, "unused"))
    return request.param


def engine(name, url, **settings):
    return load_retriever({"kind": name, "url": url, **SETTINGS[name], **settings})


@contextmanager
def counted(made):
    """The passages that are sent while the block lasts."""
    add, sent = made._add, []
    made._add = lambda corpus, places: (add(corpus, places), sent.extend(places))
    yield sent


def test_stopped_resumed_reused_and_lost(name, tmp_path):
    """One index through its life; vector engines find what exact search finds."""
    port = free_port()
    with started(name, tmp_path / "server", port) as url:
        stopped, add, calls = engine(name, url), None, []
        add = stopped._add

        def until_the_sixth(corpus, places):
            calls.append(places)
            if len(calls) == 6:
                raise KeyboardInterrupt
            add(corpus, places)

        stopped._add = until_the_sixth
        with pytest.raises(KeyboardInterrupt):
            stopped.index(CORPUS)
        resumed = engine(name, url)
        with counted(resumed) as sent:
            resumed.index(CORPUS)
        assert set(sent) == set(range(1000, 2300))
        queries = ["passage7", "passage1999", TEXTS[42]]
        hits = resumed.search(queries, 1000)
        if "embedder" in SETTINGS[name]:
            exact = load_retriever({"kind": "dense", "embedder": MODEL})
            exact.index(CORPUS)
            assert resumed.ann_recall(queries, hits) >= 0.9
            best = exact.search(queries, 1)
            assert hits.scores[:, 0] - best.scores[:, 0] == pytest.approx(
                np.full(3, hits.scores[0, 0] - best.scores[0, 0]), abs=1e-3
            )
        else:
            assert hits.positions[:, 0].tolist() == [7, 1999, 42]
        assert (hits.positions[:, 0] >= 0).all()
    with started(name, tmp_path / "server", port) as url:  # its files are still there
        again = engine(name, url)
        with counted(again) as sent:
            again.index(CORPUS)
        assert not sent
        assert (again.search(queries, 3).positions == hits.positions[:, :3]).all()
        assert again.describe()["version"]
    with refused(ModelError, "unreachable", where=f"http://127.0.0.1:{port}"):
        again.search(queries, 3)
    shutil.rmtree(tmp_path / "server")
    with started(name, tmp_path / "server", port) as url:
        with refused(ModelError, NO_INDEX, where=url):
            again.search(queries, 3)
        with counted(again) as sent:
            again.index(CORPUS)
        assert len(sent) == 2300


def test_evaluated_beside_airgens_own(name, dataset, tmp_path):
    with started(name, tmp_path / "server") as url:
        system = SystemSettings.model_validate({"name": name, "kind": name, "url": url, **SETTINGS[name]})
        beside = SystemSettings.model_validate({"name": "dense", "kind": "dense", "embedder": MODEL})
        found = evaluate(dataset, [system, beside], tmp_path / "out", EvaluationOptions(top=5))
        run, exact = (dict(read_run(one.paths.run).ranked().items()) for one in found)
    assert run["q3"][0][0] == "p5"
    assert {key for key, hits in run.items() for key, _ in hits} <= set(PASSAGES)
    if "embedder" in SETTINGS[name]:
        assert found[0].costs.ann_recall == 1.0
        assert {key: [id_ for id_, _ in hits] for key, hits in run.items()} == {
            key: [id_ for id_, _ in hits] for key, hits in exact.items()
        }
        assert "ANN recall" in (tmp_path / "out" / "little" / "test" / "report.md").read_text()
    else:
        # Meilisearch wants the first word of a query, and no passage has the "what" of q1.
        assert [key for key, _ in run.get("q1", [])][:1] == ["p1"] * (name == "typesense")


@pytest.mark.parametrize("name", ["meilisearch", "typesense"], indirect=True)
def test_a_wrong_key_is_one_line_without_it(name, tmp_path, monkeypatch):
    monkeypatch.setenv("ENGINE_KEY", "a-wrong-key-of-someone")
    with started(name, tmp_path) as url, pytest.raises(ModelError) as caught:
        engine(name, url).index(CORPUS)
    assert caught.value.code in ("http_401", "http_403")
    assert "a-wrong-key" not in str(caught.value)
    assert "\n" not in str(caught.value)


def test_settings_of_the_engine_reach_it(tmp_path):
    """With few edges and a narrow search, Qdrant's graph misses passages that exact search finds."""
    graph = {
        "hnsw_config": {"m": 4, "ef_construct": 4, "full_scan_threshold": 10},
        "optimizers_config": {"indexing_threshold": 10},
    }
    with started("qdrant", tmp_path) as url:
        wide, narrow = (
            engine("qdrant", url, index_settings=graph, search_settings={"params": {"hnsw_ef": ef}}) for ef in (2000, 4)
        )
        shares = []
        for made in (wide, narrow):
            made.index(CORPUS)
            shares.append(made.ann_recall(TEXTS[:50], made.search(TEXTS[:50], 10)))
        assert len(httpx.get(f"{url}/collections").json()["result"]["collections"]) == 1
        with refused(ModelError, "http_400", where=url):
            engine("qdrant", url, index_settings={"vectors": "three"}).index(CORPUS)
    assert shares[0] > shares[1]


def test_other_servers_than_the_one_that_is_named(tmp_path):
    with started("qdrant", tmp_path) as url:
        for name in ("typesense", "meilisearch", "chroma"):
            os.environ.setdefault("ENGINE_KEY", "unused")
            with pytest.raises(ModelError) as caught:
                engine(name, url).index(CORPUS)
            assert caught.value.where == url
            assert "\n" not in str(caught.value)
