"""BM25: by hand, against bm25s, against Anserini's published figures; re-ranker, Dirichlet, saving."""

import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airgen.dataset.beir import BeirDataset
from airgen.errors import UsageError
from airgen.evaluation.run import run_from_hits
from airgen.retrievers.hits import Hits
from airgen.retrievers.lexical import bm25
from airgen.retrievers.lexical.bm25 import BM25, BM25Reranker, QueryLikelihood
from airgen.retrievers.lexical.postings import lossy_lengths
from airgen.retrievers.passages import Passages
from airgen.text.analysis import Analyser, Encoder

from .conftest import assert_same

TEXTS = ["cats eat fish", "dogs eat meat and more meat", "", "birds fly", "fish swim with fish"]


def corpus(texts: list[str], titles: list[str] | None = None, language: str = "en") -> Passages:
    return Passages([str(number) for number in range(len(texts))], texts, titles or (), language)


def built(texts: list[str], titles: list[str] | None = None, **settings: object) -> BM25:
    compiled = settings.pop("compiled", None)
    made = BM25(**settings)  # type: ignore[arg-type]
    made.compiled = compiled  # type: ignore[assignment]
    made.index(corpus(texts, titles))
    return made


def scores_of(hits: Hits) -> np.ndarray:
    """The first query's scores by passage, of as many passages as there are hits."""
    scores, found = np.zeros(hits.positions.shape[1], np.float32), hits.positions[0] >= 0
    scores[hits.positions[0][found]] = hits.scores[0][found]
    return scores


def test_worked_by_hand() -> None:
    """Four passages count: the empty one does not. Terms: 3, 5 (and is a stop word), 2, 3 ("with" is one)."""
    mean = 13 / 4
    idf = math.log(1 + (4 - 2 + 0.5) / (2 + 0.5))  # fish is in two
    once = idf * 1 / (1 + 0.9 * (1 - 0.4 + 0.4 * 3 / mean))
    twice = idf * 2 / (2 + 0.9 * (1 - 0.4 + 0.4 * 3 / mean))
    for compiled in (False, True):
        hits = built(TEXTS, compiled=compiled).search(["a fish?", "fish fish"], 5)
        assert hits.positions.tolist() == [[4, 0, -1, -1, -1]] * 2
        np.testing.assert_allclose(hits.scores[0, :2], [twice, once], rtol=1e-6)
        np.testing.assert_allclose(hits.scores[1, :2], [2 * twice, 2 * once], rtol=1e-6)


def test_fields_are_scored_apart_and_summed() -> None:
    texts, titles = ["red apple", "blue sky", "apple pie recipe"], ["fruit", "apple", ""]
    both, alone, title_only = (
        scores_of(made.search(["apple"], 3))
        for made in (built(texts, titles, fields="multi"), built(texts), built(titles))
    )
    np.testing.assert_allclose(both, alone + title_only, rtol=1e-6)
    assert both.argmax() == 1
    assert built(["", ""], ["apple", "pear"], fields="multi").search(["pear"], 2).positions.tolist() == [[1, -1]]
    assert built(["", ""], ["apple", "pear"]).search(["pear"], 2).positions.tolist() == [[1, -1]]
    assert built(["pear"], fields="multi").search(["pear"], 1).positions.tolist() == [[0]]  # no titles at all


def test_odd_queries_and_corpora() -> None:
    bm25 = built(TEXTS)
    hits = bm25.search(["", "the of and", "unknownword", "fish \x00 \ud800 🐟"], 2)
    assert hits.positions.tolist() == [[-1, -1], [-1, -1], [-1, -1], [4, 0]]
    assert bm25.search([], 3).positions.shape == (0, 3)
    assert bm25.search(["fish"], 50).positions.shape == (1, 50)
    assert built(["only one"]).search(["one"], 2).positions.tolist() == [[0, -1]]
    assert built(["", "  "]).search(["one"], 2).positions.tolist() == [[-1, -1]]
    assert built(["word " * 200_000, "word"]).search(["word"], 2).positions.tolist() == [[0, 1]]
    for wrong in ({"k1": -1}, {"b": 1.5}, {"k1": float("nan")}, {"fields": "both"}):
        with pytest.raises(UsageError):
            BM25(**wrong)  # type: ignore[arg-type]


def test_weighted_queries() -> None:
    bm25 = built(TEXTS)
    plain = bm25.search(["fish eat"], 5)
    weighted = bm25.search_weighted([{"fish": 1, "eat": 1, "nothing": 7}, {"fish": 0.25}], 5)
    np.testing.assert_array_equal(plain.scores[0], weighted.scores[0])
    np.testing.assert_allclose(weighted.scores[1, :2], bm25.search(["fish"], 2).scores[0] / 4)
    with pytest.raises(UsageError):
        bm25.search_weighted([{"fish": -1.0}], 5)


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.lists(st.sampled_from("abcdefgh"), min_size=1, max_size=20), min_size=1, max_size=30),
    st.lists(st.sampled_from("abcdefghz"), max_size=6),
    st.sampled_from([(0.9, 0.4), (1.2, 0.75), (1.5, 0.0), (0.5, 1.0)]),
)
def test_equals_bm25s(texts: list[list[str]], query: list[str], parameters: tuple[float, float]) -> None:
    bm25s = pytest.importorskip("bm25s")
    vocabulary = {letter: number for number, letter in enumerate("abcdefgh")}
    oracle = bm25s.BM25(method="lucene", k1=parameters[0], b=parameters[1], backend="numpy")
    oracle.index(([[vocabulary[word] for word in text] for text in texts], vocabulary), show_progress=False)
    known = [vocabulary[word] for word in query if word in vocabulary]
    expected = oracle.get_scores_from_ids(known) if known else np.zeros(len(texts))
    options = {"stem": False, "stopwords": False}
    for compiled in (False, True):
        made = BM25(*parameters, analyser=options)
        made.compiled = compiled
        made.index(corpus([" ".join(text) for text in texts]))
        np.testing.assert_allclose(scores_of(made.search([" ".join(query)], len(texts))), expected, atol=1e-4)


@settings(max_examples=30, deadline=None)
@given(st.lists(st.text("ab cé東京한.'", max_size=30), min_size=1, max_size=12), st.sampled_from(["flat", "multi"]))
def test_compiled_and_numpy_give_equal_indexes(texts: list[str], fields: str) -> None:
    for model in (BM25, QueryLikelihood):
        made = [model(fields=fields), model(fields=fields)]  # type: ignore[operator]
        for one, compiled in zip(made, (True, False), strict=True):
            one.compiled = compiled
            one.index(corpus(texts, texts[::-1], "zh"))
        fast, slow = (one.search(texts, 10) for one in made)
        assert_same(fast, slow)


@settings(max_examples=30, deadline=None)
@given(st.lists(st.text("abc de", min_size=1, max_size=30), min_size=1, max_size=12), st.text("abc de", max_size=12))
def test_reranker_gives_the_retrievers_scores(texts: list[str], query: str) -> None:
    expected = scores_of(built(texts).search([query], len(texts)))
    scores = BM25Reranker().fit(corpus(texts)).score([(query, text) for text in texts])
    np.testing.assert_allclose(scores, expected, rtol=1e-6)


def test_reranker_of_unseen_text() -> None:
    reranker = BM25Reranker().fit(corpus(TEXTS))
    scores = reranker.score([("zebra", "a zebra"), ("zebra", "a lion"), ("", "a lion"), ("fish", "")])
    assert scores[0] > 0
    assert scores[1:].tolist() == [0, 0, 0]
    assert reranker.score([]).shape == (0,)
    with pytest.raises(UsageError):
        BM25Reranker().score([("a", "b")])


def test_reranker_splits_a_text_once_for_all_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    reranker = BM25Reranker().fit(corpus(TEXTS))
    first = reranker.score([("cat", TEXTS[0]), ("fish", TEXTS[0]), ("cat", TEXTS[1])])
    monkeypatch.setattr(Analyser, "prepare", None)
    assert reranker.score([("cat", TEXTS[1]), ("cat", TEXTS[0])]).tolist() == [first[2], first[0]]


@pytest.mark.parametrize("compiled", [True, False])
def test_reranker_scores_many_queries_as_each_alone(compiled: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bm25, "Encoder", lambda analyser: Encoder(analyser, compiled))
    monkeypatch.setattr(bm25, "_KEPT_TEXTS", 3)  # fewer than there are
    reranker = BM25Reranker().fit(corpus(TEXTS))
    queries = ["cat fish cat", "dog", "fish cat zebra", "zebra", "dog"]
    pairs = [(query, text) for text in [*TEXTS, "a zebra and a cat", ""] for query in queries]
    scores = reranker.score(pairs)
    assert scores.tobytes() == b"".join(BM25Reranker().fit(corpus(TEXTS)).score([pair]).tobytes() for pair in pairs)
    assert (scores > 0).sum() > len(TEXTS)


def test_dirichlet_by_hand() -> None:
    model = QueryLikelihood(mu=10)
    model.index(corpus(["cat cat dog", "dog bird"]))
    hits = model.search(["cat"], 2)
    share = (2 + 1) / (5 + 1)
    assert hits.positions.tolist() == [[0, -1]]
    assert hits.scores[0, 0] == pytest.approx(math.log(1 + 2 / (10 * share)) + math.log(10 / 13), rel=1e-6)


def test_lossy_lengths_are_lucenes() -> None:
    """SmallFloat.byte4ToInt(intToByte4(n)): exact to 40, then a byte for 42, 44, ..., 56, 60, ..."""
    lengths = [0, 1, 23, 24, 39, 40, 41, 42, 55, 56, 59, 60, 100, 1000, 100_000]
    assert lossy_lengths(np.array(lengths)).tolist() == [
        *[0, 1, 23, 24, 39, 40, 40, 42, 54, 56, 56, 60, 96, 984, 98_328]
    ]


def test_scifact_as_anserini(shared: Path) -> None:
    pytrec_eval = pytest.importorskip("pytrec_eval")
    dataset = BeirDataset.open(shared / "collections" / "scifact")
    qrels = {query: {p: int(v) for p, v in row.items()} for query, row in dataset.qrels("test").labels.items()}
    data, queries = Passages.of(dataset.passages(), "en"), dataset.queries()
    judge = pytrec_eval.RelevanceEvaluator(qrels, {"ndcg_cut.10", "recall.100"})
    for fields, lossy, ndcg, recall in (
        ("flat", False, 0.6789, 0.9253), ("flat", True, 0.6789, 0.9253), ("multi", False, 0.6647, 0.9076)
    ):  # fmt: skip
        made = BM25(fields=fields, lossy_lengths=lossy)
        made.index(data)
        hits = made.search([queries[query].text for query in qrels], 100)
        run = {query: dict(found) for query, found in run_from_hits(list(qrels), data.ids, hits).items()}
        scores = judge.evaluate(run).values()
        assert np.mean([one["ndcg_cut_10"] for one in scores]) == pytest.approx(ndcg, abs=0.005)
        assert np.mean([one["recall_100"] for one in scores]) == pytest.approx(recall, abs=0.0005)
