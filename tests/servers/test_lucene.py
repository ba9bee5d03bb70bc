"""Lucene itself, by Anserini: BM25 gives each hit the score that Lucene gives it."""

import json
import random

import pytest
from real_servers import anserini

from airgen.evaluation.run import read_run
from airgen.retrievers import Passages, load_retriever

pytestmark = pytest.mark.servers

TEXT = """running ran the Statin's of U.S.A. 3.14 e-mail café naïve ® Gateway® ™ 😀 ❤️ 東京都 ไทย don't x_y foo:bar
studies studied universities ponies was and patients effect-size β-blocker 10,000 IL-2 ﬁne Straße ЖУК ½ http://a.b/c"""
WORDS = TEXT.split()
DRAW = random.Random(3)
TEXTS = {f"d{at}": " ".join(DRAW.choices(WORDS, k=DRAW.randint(1, 90))) for at in range(400)}
QUERIES = {f"q{at}": " ".join(DRAW.choices(WORDS, k=DRAW.randint(1, 8))) for at in range(60)}


@pytest.fixture
def lucene(tmp_path):
    def search(texts, queries, *more):
        (tmp_path / "corpus").mkdir()
        rows = [json.dumps({"id": key, "contents": text}) for key, text in texts.items()]
        (tmp_path / "corpus" / "corpus.jsonl").write_text("\n".join(rows), "utf-8")
        (tmp_path / "queries.tsv").write_text("".join(f"{key}\t{text}\n" for key, text in queries.items()), "utf-8")
        anserini(
            "io.anserini.index.IndexCollection", "-collection", "JsonCollection", "-input", tmp_path / "corpus",
            "-index", tmp_path / "index", "-generator", "DefaultLuceneDocumentGenerator", "-threads", 1,
        )  # fmt: skip
        anserini(
            "io.anserini.search.SearchCollection", "-index", tmp_path / "index", "-topics", tmp_path / "queries.tsv",
            "-topicReader", "TsvString", "-output", tmp_path / "run.txt", "-hits", 1000, *more,
        )  # fmt: skip
        return {key: dict(hits) for key, hits in read_run(tmp_path / "run.txt").ranked().items()}

    return search


@pytest.mark.parametrize(("k1", "b"), [(0.9, 0.4), (1.2, 0.75)])
def test_bm25_has_lucenes_scores(lucene, k1, b):
    theirs = lucene(TEXTS, QUERIES, "-bm25", "-bm25.k1", k1, "-bm25.b", b)
    ours = load_retriever({"kind": "bm25", "k1": k1, "b": b, "lossy_lengths": True})
    ours.index(Passages([*TEXTS], [*TEXTS.values()]))
    hits = ours.search([*QUERIES.values()], len(TEXTS))
    for key, places, scores in zip(QUERIES, hits.positions, hits.scores, strict=True):
        mine = {f"d{place}": float(score) for place, score in zip(places, scores, strict=True) if place >= 0}
        # Anserini lowers equal scores by their place, in the sixth digit.
        assert mine == pytest.approx(theirs.get(key, {}), abs=1e-3)
