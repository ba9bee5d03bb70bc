"""A scorer that answers strangers tells them scores, and no labels: what can be learned by asking it."""

import dataclasses
import gc
import itertools
import json
import math
import random
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import date
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pytest
from command_line import call
from dataset_maker import INFO

from airgen.dataset.content import CorpusRow, DatasetContent, QrelRow, QueryRow
from airgen.dataset.secret import Secret
from airgen.dataset.write import write_dataset
from airgen.errors import DatasetError
from airgen.publishing import A_DAY
from airgen.publishing.scores import DatasetScore, Labels, load_labels, save_score, score_results
from airgen.publishing.submission import RefusedSubmission, Submission, SystemHits, pack
from airgen.publishing.withhold import labels_part, public_part

QUERIES, UNANSWERED, DOCUMENTS, CANDIDATES = 30, 8, 200, 10
QUERY_IDS = [f"q{i:03x}" for i in range(QUERIES + UNANSWERED)]
DOCUMENT_IDS = [f"d{i:03x}" for i in range(DOCUMENTS)]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A dataset with a split of its own, `test`: a third of each query's candidates are relevant, some queries have no
    answer. Its public part is in `public`, its private labels in `labels`."""
    chance, folder = random.Random(7), tmp_path_factory.mktemp("oracle")
    qrels = [
        QrelRow(query, document, int(place == 0 or chance.random() < 1 / 3))
        for query in QUERY_IDS[UNANSWERED:]
        for place, document in enumerate(chance.sample(DOCUMENT_IDS, CANDIDATES))
    ]
    queries = [QueryRow(one, f"What is {one}?", "test", {"answered": at >= UNANSWERED})
               for at, one in enumerate(QUERY_IDS)]  # fmt: skip
    corpus = [CorpusRow(one, "", f"About {one}.") for one in DOCUMENT_IDS]
    info = dataclasses.replace(INFO, splits={"test": 1})
    write_dataset(folder / "whole", DatasetContent(info, corpus, queries, qrels, secret=Secret(bytes(range(32)))))
    public_part(folder / "whole", folder / "public", ["test"])
    labels_part(folder / "whole", folder / "labels", ["test"])
    return folder


@pytest.fixture(params=["whole", "labels"])
def labels(home: Path, request: pytest.FixtureRequest) -> list[Labels]:
    """By the whole dataset, and by what the private repository holds alone."""
    return load_labels([home / request.param])


def of(hits: dict[str, dict[str, float]], model: str = "m") -> SystemHits:
    return SystemHits(model, "NoReranker", INFO.version, "qa", INFO.domain, "en", INFO.name, "test", hits)


def sent(hits: dict[str, dict[str, float]], path: Path) -> Submission:
    return Submission(pack([of(hits)], path))


def answer(hits: dict[str, dict[str, float]], labels: list[Labels]) -> DatasetScore:
    return score_results([of(hits)], labels).datasets[0]


def test_what_is_counted_does_not_depend_on_labels(labels: list[Labels]) -> None:
    """No submission tells which queries have labels: everything but the score is the same whatever was asked."""
    assert len(labels[0].qrels) == QUERIES < len(QUERY_IDS)
    nothing = answer({}, labels)
    assert (nothing.queries, nothing.missing_count) == (len(QUERY_IDS), len(QUERY_IDS))
    assert set(nothing.missing) <= set(QUERY_IDS)
    for query in QUERY_IDS:
        one = answer({query: {"d000": 1.0}}, labels)
        assert (one.missing_count, one.unknown_queries) == (len(QUERY_IDS) - 1, 0) and query not in one.missing
        assert one.queries == len(QUERY_IDS) and one.unknown_documents == 0
    empty = answer({query: {} for query in QUERY_IDS}, labels)
    assert (empty.missing_count, empty.unknown_queries) == (len(QUERY_IDS), 0)
    stranger = answer({"q9999": {"d000": 1.0}}, labels)
    assert (stranger.missing_count, stranger.unknown_queries) == (len(QUERY_IDS), 1)


def calls_of(work: Callable[[], object]) -> Counter[str]:
    """Count the calls of Python functions, and of functions in C by Python ones: a time without noise."""
    counts: Counter[str] = Counter()

    def count(frame: FrameType, event: str, function: Any) -> None:
        if event in ("call", "c_call"):
            name = frame.f_code.co_qualname if event == "call" else getattr(function, "__qualname__", "")
            counts[f"{event} {name}"] += 1

    gc.disable()  # finalizers run at any moment
    sys.setprofile(count)
    try:
        work()
    finally:
        sys.setprofile(None)
        gc.enable()
    return counts


def test_the_work_of_the_scorer_does_not_depend_on_labels(labels: list[Labels]) -> None:
    """A submission of all documents for one query takes as long without labels as with them."""
    unanswered, relevant = QUERY_IDS[0], QUERY_IDS[-1]
    hits = {document: float(-place) for place, document in enumerate(DOCUMENT_IDS)}
    answer({unanswered: hits}, labels)  # what is loaded once
    counts = [calls_of(lambda query=query: answer({query: hits}, labels)) for query in (unanswered, relevant)]  # type: ignore[misc]
    assert counts[0] == counts[1] and counts[0].total() > DOCUMENTS
    found = next(document for document, label in labels[0].qrels[relevant].items() if label)
    other = next(document for document in DOCUMENT_IDS if document not in labels[0].qrels[relevant])
    counts = [calls_of(lambda top=top: answer({relevant: {top: 1.0}}, labels)) for top in (found, other)]  # type: ignore[misc]
    assert counts[0] == counts[1]


def test_labels_without_the_ids_of_queries_and_documents(home: Path, tmp_path: Path) -> None:
    """As an older airgen published them: the number of queries is known, and it is that of the split."""
    old = [dataclasses.replace(one, queries=None, corpus=None) for one in load_labels([home / "labels"])]
    one = answer({QUERY_IDS[0]: {"d000": 1.0}, "other": {}}, old)
    assert (one.queries, one.missing_count, one.missing) == (len(QUERY_IDS), len(QUERY_IDS) - 1, ())
    assert one.unknown_queries is one.unknown_documents is None


def test_the_answer_has_one_measure_in_the_digits_of_the_leaderboard(labels: list[Labels]) -> None:
    chance = random.Random(1)
    hits = {query: {one: chance.random() for one in chance.sample(DOCUMENT_IDS, 50)} for query in QUERY_IDS}
    one = answer(hits, labels)
    assert set(one.measures) == set(one.standard_errors) == {"nDCG@10"}
    for value in (*one.measures.values(), *one.standard_errors.values()):
        assert value > 0 and value == round(value, 3)


def bits(count: int) -> Iterator[tuple[int, ...]]:
    return itertools.product((0, 1), repeat=count)


@pytest.mark.parametrize("fillers", ["invented", "real"])
def test_the_decoding_attack_ends_at_chance(home: Path, tmp_path: Path, fillers: str) -> None:
    """The i-th of nine queries has its candidate at a rank that tells it from the others, and the score is a sum.

    With invented documents at the other ranks, a reciprocal rank to six digits gave nine labels a submission. Such a
    submission is refused; with real documents there, the head measure in three digits says little more than how many.
    """
    labels = load_labels([home / "labels"])
    truth, chance = labels[0].qrels, random.Random(2)
    told: dict[tuple[str, str], int] = {}
    queue = {query: sorted(truth[query]) for query in truth}  # the adversary's retriever finds the judged ones
    submissions = 0
    while any(queue.values()):
        batch = sorted((query for query in queue if queue[query]), key=lambda query: -len(queue[query]))[:9]
        hits, chosen = {}, []
        for place, query in enumerate(batch):
            document = queue[query].pop()
            others = [one for one in DOCUMENT_IDS if one not in truth[query]]  # more than an adversary knows
            if fillers == "invented":
                others = [f"x{query}{number}" for number in range(2**place)]
            size = 2**place - 1 if fillers == "invented" else place
            hits[query] = {one: 1000.0 - at for at, one in enumerate(chance.sample(others, size))}
            hits[query][document] = 1000.0 - size
            chosen.append((query, document))
        submissions += 1
        try:
            score = score_results(sent(hits, tmp_path / "a.zip"), labels).datasets[0].measures["nDCG@10"]
        except RefusedSubmission as refused:
            assert fillers == "invented" and "documents that the dataset does not have" in str(refused)
            continue
        weights = np.array([1 / math.log2(place + 2) for place in range(len(batch))]) / 2.5 / len(truth)
        best = min(bits(len(batch)), key=lambda one: abs(float(np.dot(one, weights)) - score))
        told |= dict(zip(chosen, best, strict=True))
    assert submissions >= 33
    if fillers == "invented":
        assert len(told) < 0.05 * QUERIES * CANDIDATES
        return
    right = sum(value == truth[query][document] for (query, document), value in told.items())
    positive = sum(map(sum, (row.values() for row in truth.values()))) / (QUERIES * CANDIDATES)
    guessed = sum(told.values()) / len(told)
    expected = len(told) * (positive * guessed + (1 - positive) * (1 - guessed))
    deviation = math.sqrt(expected * (1 - expected / len(told)))
    print(f"{right} of {len(told)}, by chance {expected:.0f} ± {deviation:.0f}")
    assert right < expected + 4 * deviation


def test_a_submission_of_mostly_unknown_documents_is_refused(home: Path, tmp_path: Path) -> None:
    labels = load_labels([home / "labels"])
    half = {query: {"d000": 2.0, "nowhere": 1.0} for query in QUERY_IDS}
    assert score_results(sent(half, tmp_path / "a.zip"), labels).datasets[0].unknown_documents == len(QUERY_IDS)
    more = {**half, QUERY_IDS[0]: {"d000": 2.0, "nowhere": 1.0, "no": 0.5}}
    with pytest.raises(RefusedSubmission, match=r"39 of 77 hits are of documents that the dataset does not have"):
        score_results(sent(more, tmp_path / "b.zip"), labels)


# -- how often ---------------------------------------------------------------------------------------------------------


def test_a_system_has_few_submissions_a_day(home: Path, tmp_path: Path) -> None:
    labels, today = load_labels([home / "labels"]), date(2026, 11, 26)
    chance = random.Random(3)

    def ask(model: str, number: int, day: date = today, **more: int) -> Path:
        hits = {query: {one: chance.random() for one in chance.sample(DOCUMENT_IDS, 20)} for query in QUERY_IDS}
        scored = score_results([of(hits, model)], labels)
        return save_score(scored, tmp_path, replace=True, submission=str(number), today=day, **more)

    for number in range(A_DAY):
        ask("my model", number)
    ask("my model", 0)  # the same again is not counted
    for name in ("my model", "My-Model", "my_model"):  # one name for a person
        with pytest.raises(
            DatasetError, match=r"3 submissions were scored today \(2026-11-26 UTC\), which is the limit"
        ):
            ask(name, 9)
    with pytest.raises(DatasetError, match="limit"):
        ask("my model", 9, date(2026, 11, 20))  # the clock was set back
    ask("another", 9)
    ask("my model", 9, per_day=A_DAY + 1)
    ask("my model", 10, date(2026, 11, 27))
    (tmp_path / "submissions.jsonl").write_text("[1]\n")
    with pytest.raises(DatasetError, match="is damaged: repair it"):
        ask("my model", 11)


def test_the_command_tells_nothing_beyond_the_limit(home: Path, tmp_path: Path) -> None:
    for number in range(A_DAY + 1):
        pack([of({QUERY_IDS[-1]: {f"d{number:03x}": 1.0}})], tmp_path / f"{number}.zip")
    words = ("--qrels", home / "labels", "--save", tmp_path / "scores", "--replace")
    for number in range(A_DAY):
        assert "nDCG@10 0." in call("publish", "score", tmp_path / f"{number}.zip", *words)
    with pytest.raises(DatasetError, match=r"is the limit \(--per-day\)"):
        call("publish", "score", tmp_path / f"{A_DAY}.zip", *words)
    call("publish", "score", tmp_path / f"{A_DAY}.zip", *words, "--per-day", A_DAY + 1)
    call("publish", "leaderboard", tmp_path / "scores")
    (row,) = json.loads((tmp_path / "scores" / "leaderboard.json").read_text())[0]["rows"]
    assert row["mean"] == round(row["mean"], 3) and row["margin"] == round(row["margin"], 3)
