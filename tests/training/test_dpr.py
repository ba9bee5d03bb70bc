"""The files of DPR and of EntityQuestions become a dataset."""

import gzip
import json
import re
from pathlib import Path

import pytest
from beir_folder import read_rows
from command_line import call

from airgen.dataset.beir import BeirDataset
from airgen.errors import AirgenError
from airgen.evaluation.experiment import evaluate
from airgen.evaluation.systems import SystemSettings
from airgen.training.data import load_training_set
from airgen.training.mining import dpr

PASSAGES = [
    ("1", "The ferry of Lunn leaves at nine. A second one leaves at ten.", "Lunn"),
    ("2", 'The lamp is called "Old Tom" by all.', "Lamp"),
    ("3", "Bread is baked at night in Orby.", "Orby"),
    ("4", "Ferries are painted white each spring.", "Ferry"),
]
TRAIN = [
    {
        "dataset": "x", "question": f"when does ferry {n} leave", "answers": ["at nine"],
        "positive_ctxs": [{"title": "Lunn", "text": PASSAGES[0][1], "score": 1000, "passage_id": "1"}],
        "negative_ctxs": [],
        "hard_negative_ctxs": [{"title": "Ferry", "text": PASSAGES[3][1], "psg_id": 4}, {"title": "", "text": "x"}],
    }
    for n in range(4)
]  # fmt: skip


@pytest.fixture
def files(tmp_path: Path) -> Path:
    rows = [f'{key}\t"{text.replace(chr(34), chr(34) * 2)}"\t{title}' for key, text, title in PASSAGES]
    (tmp_path / "psgs.tsv").write_text("id\ttext\ttitle\n" + "\n".join(rows) + "\n")
    with gzip.open(tmp_path / "train.json.gz", "wt") as file:
        json.dump(TRAIN, file, indent=2)
    (tmp_path / "test.csv").write_text(
        "where is bread baked\t['Orby', \"orby's\"]\nwho is old\t['Tom']\nwhat is lost\t['nothing of it']\n"
    )
    (tmp_path / "P19.dev.json").write_text(json.dumps([{"question": "where is bread baked", "answers": ["orby"]}]))
    return tmp_path


def test_a_folder_of_files_for_each_split(tmp_path: Path) -> None:
    """EntityQuestions has a file for each relation."""
    folder = tmp_path / "dataset" / "test"
    folder.mkdir(parents=True)
    for relation, question in (("P19", "where is old tom"), ("P106", "who bakes")):
        row = {"question": question, "answers": ["Orby"]}
        (folder / f"{relation}.test.json").write_text(json.dumps([row]))
    (folder / "notes.txt").write_text("of no question")
    passages = tmp_path / "psgs.tsv"
    passages.write_text("id\ttext\ttitle\n" + "".join(f"{key}\t{text}\t{title}\n" for key, text, title in PASSAGES[2:]))
    dpr.convert_dpr({"test": folder}, tmp_path / "out", passages=passages)
    queries = read_rows(tmp_path / "out" / "queries.jsonl")
    assert [query["text"] for query in queries] == ["who bakes", "where is old tom"]
    (tmp_path / "empty").mkdir()
    with pytest.raises(AirgenError, match="empty: has no JSON file of questions"):
        dpr.convert_dpr({"test": tmp_path / "empty"}, tmp_path / "none", passages=passages)


def test_one_command_makes_a_dataset_that_can_be_trained_on(files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(files)
    monkeypatch.setattr(dpr, "_PIECE_CHARACTERS", 7)  # no question fits into one piece
    words = ("train=train.json.gz", "test=test.csv", "dev=P19.dev.json", "--passages", "psgs.tsv", "--out", "nq")
    said = call("train", "dpr", *words)
    assert re.search(r"questions without a passage that answers them +1\n", said)
    assert re.search(r"labels of passages that are not in the corpus +4\n", said)
    found = BeirDataset.open(files / "nq")
    assert {one.id: (one.title, one.text) for one in found.passages()} == {k: (t, x) for k, x, t in PASSAGES}
    assert found.qrels("train").labels == {f"train-{n}": {"1": 1.0, "4": 0.0} for n in range(1, 5)}
    # No passage answers the third question: it counts as a failure of every system, as in DPR's accuracy.
    assert found.qrels("test").labels == {"test-1": {"3": 1.0}, "test-2": {"2": 1.0}, "test-3": {"1": 0.0}}
    assert found.qrels("dev").labels == {"dev-1": {"3": 1.0}}
    assert found.queries()["test-1"].metadata == {"split": "test", "answers": ["Orby", "orby's"]}
    data = load_training_set(files / "nq", split="train")
    assert len(data.examples) == 4
    with pytest.raises(AirgenError, match="is not empty"):
        call("train", "dpr", *words)


def test_without_passages_the_corpus_is_what_stands_beside_the_questions(files: Path) -> None:
    counts = dpr.convert_dpr({"train": files / "train.json.gz"}, files / "own", negatives=1)
    assert counts == {"passages": 2, "queries of train": 4, "labels": 8}


def test_accuracy_counts_questions_that_bm25_cannot_answer(tmp_path: Path) -> None:
    (tmp_path / "psgs.tsv").write_text("id\ttext\ttitle\n" + "".join(f"{k}\t{x}\t{t}\n" for k, x, t in PASSAGES[2:]))
    questions = "where is bread baked\t['Orby']\nwho drove the ferries\t['Lunn']\nzzz\t['white']\n"
    (tmp_path / "test.csv").write_text(questions)
    dpr.convert_dpr({"test": tmp_path / "test.csv"}, tmp_path / "nq", passages=tmp_path / "psgs.tsv", depth=1)
    (result,) = evaluate(tmp_path / "nq", [SystemSettings(name="bm25", kind="bm25")], tmp_path / "results")
    assert (result.queries, result.about["queries_with_answers"]) == (3, 3)
    assert result.answers["Answer@5"][0] == pytest.approx(1 / 3)


def test_a_train_question_without_positives_is_not_trained_on(files: Path) -> None:
    (files / "more.csv").write_text(
        "what is lost\t['nothing of it']\n" + "".join(f"bread {n}\t['orby']\n" for n in range(3))
    )
    dpr.convert_dpr({"train": files / "more.csv"}, files / "own", passages=files / "psgs.tsv")
    data = load_training_set(files / "own", split="train", dev_share=0)
    assert len(data.examples) == 3
    assert data.about["left_out"] == {"without a positive in the corpus": 1}


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("q.json", '{"question": "x"}', "contains no JSON list of questions"),
        ("q.json", '[{"question": "x"}', "not JSON near"),
        ("q.json", '[{"answers": []}]', "question 1: needs a text `question`"),
        ("q.json", '[{"question": "x", "positive_ctxs": ["y"]}]', "positive_ctxs is not a list of passages"),
        ("q.csv", "a question\tParis\n", "'Paris' is not a list of answers"),
        ("q.csv", "a question\n", "a question, a tab and a list of answers"),
        ("q.json", '[{"question": "x", "answers": ["y"]}]', "there are no passages"),
    ],
)
def test_other_files_are_refused_in_one_line(tmp_path: Path, name: str, content: str, words: str) -> None:
    (tmp_path / name).write_text(content)
    with pytest.raises(AirgenError, match=words):
        dpr.convert_dpr({"train": tmp_path / name}, tmp_path / "out")
