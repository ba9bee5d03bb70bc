"""Rank gains, saturation, overlap and circularity, worked by hand."""

import math

import numpy as np
import pytest

from airgen.dataset.beir import BeirQuery
from airgen.evaluation.systems import (
    SystemSettings,
    in_order,
    label_makers,
    made_labels,
    model_name,
    models_of,
)
from airgen.quality.agreement.rankings import (
    Side,
    circularity,
    family_gains,
    lexical_overlap,
    rank_gains,
    saturation,
)
from airgen.retrievers.base import Corpus

HUMAN = Side(("bm25", "lsa", "minilm"), np.array([[0.2], [0.6], [0.4]]))
GENERATED = Side(("minilm", "bm25", "lsa"), np.array([[0.5], [0.9], [0.1]]))


def test_rank_gains_are_human_rank_minus_generated_rank() -> None:
    found = rank_gains(HUMAN, GENERATED, {"bm25": "lexical", "lsa": "latent"})
    assert [(one.system, one.family, one.human, one.generated, one.gain) for one in found] == [
        ("lsa", "latent", 1, 3, -2),
        ("minilm", "", 2, 2, 0),
        ("bm25", "lexical", 3, 1, 2),
    ]


def test_ties_share_a_rank() -> None:
    tied = Side(("x", "y", "z"), np.array([[0.5], [0.5], [0.1]]))
    assert [one.human for one in rank_gains(tied, tied, {})] == [1.5, 1.5, 3]


def test_family_gains_are_means_the_most_over_rated_first() -> None:
    gains = rank_gains(HUMAN, GENERATED, {"bm25": "lexical", "lsa": "other", "minilm": "other"})
    assert family_gains(gains) == {"lexical": (1, 2.0), "other": (2, -1.0)}


def test_saturation() -> None:
    scores = np.array([[1.0, 1.0, 0.0], [1.0, 0.5, 0.0], [1.0, 0.3, 0.0]])
    found = saturation(Side(("x", "y", "z"), scores))
    assert found.median == pytest.approx(0.5)
    assert (found.solved, found.failed) == (pytest.approx(1 / 3), pytest.approx(1 / 3))


def test_lexical_overlap_counts_stems_without_stop_words() -> None:
    corpus = Corpus(["d1", "d2"], ["The wings of aeroplanes bend under load.", "Nothing alike."], (), "en")
    queries = {
        "half": BeirQuery("half", "why do wings vibrate"),  # why, do, wing, vibrat: one of four
        "all": BeirQuery("all", "the bending of a wing"),
        "unlabelled": BeirQuery("unlabelled", "x"),
    }
    found = lexical_overlap(queries, {"half": {"d1": 1}, "all": {"d1": 2, "d2": 0, "gone": 1}}, corpus)
    assert (found.queries, found.mean, found.whole) == (2, pytest.approx((0.25 + 1) / 2), 0.5)


def test_a_query_with_several_positives_counts_once() -> None:
    corpus = Corpus(["d1", "d2"], ["wings", "tails"], (), "en")
    queries = {"q": BeirQuery("q", "wings")}
    found = lexical_overlap(queries, {"q": {"d1": 1, "d2": 1}}, corpus)
    assert (found.queries, found.mean, found.whole) == (1, 0.5, 1.0)
    assert math.isnan(lexical_overlap(queries, {"q": {"d1": 0}}, corpus).mean)


def systems() -> list[SystemSettings]:
    made = [
        {"name": "bm25", "kind": "bm25"},
        {"name": "minilm", "kind": "dense"},
        {"name": "e5", "kind": "dense", "embedder": "e5-small"},
        {"name": "tokens", "kind": "late", "model": "all-minilm-l6-v2-int8"},
        {"name": "hybrid", "kind": "fuse", "systems": ["bm25", "e5"]},
        {"name": "reranked", "kind": "rerank", "first": "bm25", "reranker": "splade"},
    ]
    return in_order([SystemSettings.model_validate(one) for one in made])


def test_systems_are_made_of_what_their_parts_are_made_of() -> None:
    minilm = "all-minilm-l6-v2-int8"
    assert models_of(systems()) == {
        "bm25": {"bm25"},
        "minilm": {minilm},
        "e5": {"e5-small"},
        "tokens": {minilm},
        "hybrid": {"bm25", "e5-small"},
        "reranked": {"bm25", "splade-bert-tiny"},
    }


@pytest.mark.parametrize(
    ("part", "spec", "name"),
    [("reranker", "maxsim", "all-minilm-l6-v2-int8"), ("reranker", "bm25", "bm25"),
     ("retriever", {"kind": "lsa", "dim": 100}, "lsa"), ("embedder", {"kind": "http", "model": "x/y"}, "x/y"),
     ("retriever", {"kind": "dense"}, "all-minilm-l6-v2-int8"),
     ("retriever", {"kind": "dense", "embedder": {"kind": "onnx", "model": "m"}}, "m")],
)  # fmt: skip
def test_model_names(part: str, spec: str | dict[str, object], name: str) -> None:
    assert model_name(part, spec) == name


def test_circularity_compares_the_involved_with_the_others() -> None:
    names = ("a", "b", "c", "d")
    human = Side(names, np.array([[0.1], [0.2], [0.3], [0.4]]))
    generated = Side(names, np.array([[0.4], [0.3], [0.2], [0.1]]))
    gains = rank_gains(human, generated, {})  # a +3, b +1, c -1, d -3
    found = circularity(gains, {"a": ("m",), "b": ("m", "n")}, samples=20_000)
    assert dict(found.involved) == {"a": ("m",), "b": ("m", "n")}
    assert (found.gain, found.others) == (2.0, -2.0)
    assert found.p == pytest.approx(1 / 6, abs=0.01)  # one of the six groups of two gains as much


def test_nobody_or_everybody_involved_has_no_p() -> None:
    gains = rank_gains(HUMAN, GENERATED, {})
    nobody = circularity(gains, {})
    assert nobody.involved == {} and math.isnan(nobody.gain) and math.isnan(nobody.p)
    everybody = circularity(gains, dict.fromkeys(HUMAN.names, ("m",)))
    assert len(everybody.involved) == 3 and math.isnan(everybody.others) and math.isnan(everybody.p)


def test_who_made_the_labels() -> None:
    provenance = [
        {"role": "query", "model": "e5-small"},  # it wrote queries, and no label
        {"role": "recall", "model": "lsa"},
        {"role": "re-ranker (pre-label)", "model": "maxsim all-minilm-l6-v2-int8"},
        {"role": "re-ranker (pre-label)", "model": "splade-bert-tiny"},
    ]
    minilm = ("all-minilm-l6-v2-int8",)
    expected = {"minilm": minilm, "tokens": minilm, "reranked": ("splade-bert-tiny",)}
    assert made_labels(systems(), label_makers(provenance)) == expected
    assert made_labels(systems(), label_makers([])) == {}
