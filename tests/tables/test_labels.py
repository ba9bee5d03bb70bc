"""Labels of people in every form: the same names everywhere, several raters, and what is refused."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas
import pyarrow
import pyarrow.parquet
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from refusals import refused

from airgen.errors import AirgenError, DatasetError
from airgen.job.user_queries import read_labels
from airgen.job.user_query_files import read_queries
from airgen.settings import LabelFile, QueriesSettings
from airgen.tables.documents import guess_fields
from airgen.tables.labels import rated_pairs
from airgen.tables.objects import rows_of
from airgen.tables.vocabulary import names

Rows = list[dict[str, Any]]
PAIRS = [("q1", "d1", 2.0), ("q1", "d2", 0.0), ("q2", "d3", 1.0)]


def _csv(rows: Rows, folder: Path) -> Path:
    pandas.DataFrame(rows).to_csv(folder / "t.csv", index=False)
    return folder / "t.csv"


def _written(name: str, text: Callable[[Rows], str]) -> Callable[[Rows, Path], Path]:
    def write(rows: Rows, folder: Path) -> Path:
        (folder / name).write_text(text(rows), encoding="utf-8")
        return folder / name

    return write


def _parquet(rows: Rows, folder: Path) -> Path:
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), folder / "t.parquet")
    return folder / "t.parquet"


FORMS: dict[str, Callable[[Rows, Path], Any]] = {
    "csv": _csv,
    "json": _written("t.json", json.dumps),
    "jsonl": _written("t.jsonl", lambda rows: "".join(json.dumps(row) + "\n" for row in rows)),
    "parquet": _parquet,
    "rows": lambda rows, folder: rows,
    "iterator": lambda rows, folder: iter(rows),
    "columns": lambda rows, folder: {name: [row[name] for row in rows] for name in rows[0]},
    "frame": lambda rows, folder: pandas.DataFrame(rows),
    "indexed frame": lambda rows, folder: pandas.DataFrame(rows).set_index(list(rows[0])[:2]),
    "arrow": lambda rows, folder: pyarrow.Table.from_pylist(rows),
}


def pairs(source: Any, **known: Any) -> list[tuple[str, str, float]]:
    return [(pair.query, pair.document, pair.rating) for pair in rated_pairs(source, **known).pairs]


QUERIES = sorted({*names("query", "query id", "topic", "search")})
DOCUMENTS = sorted({*names("document id", "document", "page")})
RATINGS = sorted(names("rating"))
_STYLES = (str, str.title, str.upper, lambda name: f" {name}", lambda name: f"{name[:2]}_{name[2:]}")


@settings(max_examples=120, deadline=None)
@given(
    columns=st.tuples(st.sampled_from(QUERIES), st.sampled_from(DOCUMENTS), st.sampled_from(RATINGS)),
    form=st.sampled_from(sorted(FORMS)),
    style=st.sampled_from(_STYLES),
)
def test_a_usual_name_is_understood_in_every_form_and_spelling(
    tmp_path_factory: pytest.TempPathFactory, columns: tuple[str, str, str], form: str, style: Callable[[str], str]
) -> None:
    shown = [style(name) for name in columns]
    source = FORMS[form]([dict(zip(shown, pair, strict=True)) for pair in PAIRS], tmp_path_factory.mktemp("t"))
    assert pairs(source) == PAIRS


@pytest.mark.parametrize("form", FORMS)
def test_queries_have_the_same_names_in_every_form(tmp_path: Path, form: str) -> None:
    for text, count in [("Search Term", "Searches"), ("frage", "anzahl"), ("query", "n")]:
        rows = [{"id": "7", text: "when does it leave", count: 3}, {"id": "8", text: "lost luggage", count: 1}]
        own = read_queries(QueriesSettings(file="q"), FORMS[form](rows, tmp_path), "en")
        assert [(line.id, line.text, line.count) for line in own.lines] == [
            ("7", "when does it leave", 3), ("8", "lost luggage", 1),
        ]  # fmt: skip


@pytest.mark.parametrize("name", sorted(names("id", "document id", "number", "ticket")))
def test_the_ids_of_documents_are_found_by_every_name(name: str) -> None:
    rows = [{"extra": "x", name: f"d{n}", "text": f"A text about number {n}, of some length."} for n in range(3)]
    assert guess_fields(rows)["id"] == name


WORDS = {
    "booleans": [True, False],
    "words of pandas": ["TRUE", "FALSE"],
    "yes and no": ["Yes", "no"],
    "letters": ["y", "N"],
    "relevant": ["relevant", "Not relevant"],
    "German": ["ja", "nein"],
    "Japanese": ["はい", "いいえ"],
}


@pytest.mark.parametrize("form", ["csv", "json", "rows", "frame"])
@pytest.mark.parametrize("kind", WORDS)
def test_words_for_yes_and_no(tmp_path: Path, kind: str, form: str) -> None:
    for column in ("relevant", "unheard of"):  # the only other column is that of the ratings
        rows = [{"qid": "q", "docid": f"d{n}", column: value} for n, value in enumerate(WORDS[kind])]
        assert pairs(FORMS[form](rows, tmp_path)) == [("q", "d0", 1), ("q", "d1", 0)]


REFUSED: dict[str, tuple[Rows, str, str]] = {
    "words of degree": (
        [{"relevance": "partially relevant"}, {"relevance": "relevant"}], "unknown_rating", "partially relevant",
    ),
    "letters of shops": ([{"label": "E"}, {"label": "I"}], "unknown_rating", "E"),
    "a flag beside others": ([{"note": "x", "fits": True}, {"note": "y", "fits": False}], "unread_ratings", "fits"),
    "small numbers": ([{"note": "x", "level": 1}, {"note": "y", "level": 3}], "unread_ratings", "level"),
    "two columns": ([{"a": 0, "b": 1}, {"a": 1, "b": 0}], "unread_ratings", "a"),
    "good and bad": ([{"mark": "good"}, {"mark": "bad"}], "unread_ratings", "mark"),
    "stars": ([{"stars": 1}, {"stars": 3}], "unclear_scale", "stars"),
    "grades from 1 to 5": ([{"rating": 1}, {"rating": 5}], "unclear_scale", "rating"),
    "one star": ([{"stars": 1}, {"stars": 1}], "unclear_scale", "stars"),
    "ratings from 1 to 3": ([{"rating": 1}, {"rating": 3}], "unclear_scale", "rating"),
    "verdicts of their own": ([{"kind": word} for word in ("hit", "miss", "miss", "hit")], "unread_ratings", "kind"),
    "a list that nobody answered": ([{"annotations": []}, {"annotations": []}], "unread_ratings", "annotations"),
    "annotations without a choice": ([{"annotations": [{"result": []}]}], "unread_ratings", "annotations"),
    "remarks": ([{"remark": "fine"}, {"remark": "not relevant at all"}], "unread_ratings", "remark"),
    "probabilities": ([{"score": 0.2}, {"score": 0.9}], "unclear_scale", "score"),
}  # fmt: skip


@pytest.mark.parametrize("form", ["json", "rows", "frame"])
@pytest.mark.parametrize("case", REFUSED)
def test_ratings_that_are_not_understood_are_refused(tmp_path: Path, case: str, form: str) -> None:
    rows = [{"qid": "q", "docid": f"d{n}", **row} for n, row in enumerate(REFUSED[case][0])]
    with refused(DatasetError, *REFUSED[case][1:]):
        rated_pairs(FORMS[form](rows, tmp_path)).check_scale()


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ([{"label": "E"}], "labels: row 1: the rating 'E' is not a number, nor a word such as yes, no,"),
        ([{"a": 0, "b": 1}, {"a": 1, "b": 0}], "labels: 'a', 'b' may hold ratings: call the column of the ratings"),
        ([{"stars": 1}, {"stars": 3}], "labels: the ratings in 'stars' go from 1 to 3, and it is not clear which"),
        ([{"score": 0.2}, {"score": 0.9}], "labels: the ratings in 'score' go only up to 0.9, but documents are"),
    ],
)
def test_a_refusal_of_ratings_is_one_line(values: Rows, words: str) -> None:
    with pytest.raises(DatasetError) as error:
        rated_pairs([{"qid": "q", "docid": f"d{n}", **row} for n, row in enumerate(values)]).check_scale()
    assert str(error.value).startswith(words) and "\n" not in str(error.value)


def test_a_scale_that_the_settings_explain_is_read(tmp_path: Path) -> None:
    path = _csv([{"qid": "q", "docid": f"d{n}", "stars": n} for n in (1, 3, 4)], tmp_path)
    with refused(DatasetError, "unclear_scale", "stars"):
        list(read_labels(LabelFile(file=path.name), path, "en"))
    assert [one.level for one in read_labels(LabelFile(file=path.name, relevant_from=3), path, "en")] == [0, 3, 3]
    assert [one.level for one in read_labels(LabelFile(file=path.name, levels={1: 0, 3: 1, 4: 2}), path, "en")] == [
        0, 1, 2,
    ]  # fmt: skip


def test_a_table_without_ratings_says_what_answers(tmp_path: Path) -> None:
    rows = [{"id": "d1", "question": "what is it", "category": "a"}, {"id": "d2", "question": "where", "category": "b"}]
    found = rated_pairs(_csv(rows, tmp_path))
    assert [pair.rating for pair in found.pairs] == [1, 1] and "no ratings" in found.about


NESTED: dict[str, Any] = {
    "by pair": {"q1": {"d1": 2, "d2": 0}, "q2": {"d3": 1}},
    "by pair, one unrated": {"q1": {"d1": 2, "d2": 0}, "q2": {"d3": 1, "d1": None}},
    "by pair, one empty": {"q0": {}, "q1": {"d1": 2, "d2": 0}, "q2": {"d3": 1}},
    "in a split": {"test": {"q1": {"d1": 2, "d2": 0}, "q2": {"d3": 1}}},
    "triples": PAIRS,
    "columns of pandas": {"qid": {"0": "q1", "1": "q1", "2": "q2"}, "docid": {"0": "d1", "1": "d2", "2": "d3"},
                          "rating": {"0": 2, "1": 0, "2": 1}},
    "Argilla": [
        {"id": f"record-{n}", "fields": {"query": q, "text": "A passage"}, "metadata": {"doc_id": d},
         "responses": {"relevance": [{"value": r, "user_id": "a", "status": "submitted"},
                                     {"value": 9, "user_id": "b", "status": "draft"}]}}
        for n, (q, d, r) in enumerate(PAIRS)
    ],
    "Argilla's first records": [
        {"fields": {"query": q}, "metadata": {"doc_id": d},
         "responses": [{"user_id": "a", "values": {"relevance": {"value": r}}, "status": "submitted"}]}
        for q, d, r in PAIRS
    ],
    "Argilla's data set": [
        {"query": q, "metadata.doc_id": d, "relevance.responses": [r], "relevance.responses.users": ["a"],
         "relevance.suggestion": 2} for q, d, r in PAIRS
    ],
}  # fmt: skip


@pytest.mark.parametrize("form", NESTED)
def test_nested_labels_are_read_from_files_and_from_python(tmp_path: Path, form: str) -> None:
    path = tmp_path / "l.json"
    path.write_text(json.dumps(NESTED[form]))
    known = {"queries": {"q1", "q2"}, "documents": {"d1", "d2", "d3"}}
    assert pairs(NESTED[form], **known) == pairs(path, **known) == PAIRS


def test_grades_of_qrels_that_list_only_what_is_relevant_are_kept() -> None:
    rows = [{"query-id": "q", "corpus-id": f"d{n}", "score": n} for n in (1, 2, 3)]
    rated_pairs(rows).check_scale()
    rated_pairs({"q": {"d1": 1, "d2": 2}}).check_scale()


def test_a_series_of_ratings_by_pair() -> None:
    frame = pandas.DataFrame([{"qid": q, "docid": d, "rating": r} for q, d, r in PAIRS])
    series = frame.set_index(["qid", "docid"])["rating"]
    assert pairs(series) == pairs(series.rename(None)) == PAIRS


def test_sets_and_lists_of_relevant_documents() -> None:
    expected = [("q1", "d1", 1), ("q1", "d2", 1), ("q2", "d3", 1)]
    assert pairs({"q1": {"d2", "d1"}, "q2": {"d3"}}) == pairs({"q1": ["d1", "d2"], "q2": ["d3"]}) == expected
    assert pairs({"first": ["d1"], "second": ["d2"]}) == [("first", "d1", 1), ("second", "d2", 1)]


def test_label_studio_keeps_what_people_chose(tmp_path: Path) -> None:
    def task(number: int, choices: list[str], **more: Any) -> dict[str, Any]:
        results = [{"from_name": "relevance", "type": "choices", "value": {"choices": [choice]}} for choice in choices]
        annotations = [{"completed_by": n, "result": [result], **more} for n, result in enumerate(results)]
        guess = {"result": [{"from_name": "relevance", "value": {"choices": ["Relevant"]}}]}
        return {"id": number, "data": {"query": "q", "doc_id": f"d{number}"}, "annotations": annotations,
                "predictions": [guess]}  # fmt: skip

    tasks = [task(1, ["Relevant"]), task(2, ["Not relevant"]), task(3, ["Relevant"], was_cancelled=True),
             task(4, ["Relevant", "Not relevant", "Not relevant"])]  # fmt: skip
    assert pairs(tasks) == [("q", "d1", 1), ("q", "d2", 0), ("q", "d4", 0)]


@pytest.mark.parametrize("form", ["csv", "rows", "frame"])
def test_several_raters_decide_by_majority_or_mean(tmp_path: Path, form: str) -> None:
    columns = [{"query": "q", "docid": f"d{n}", "ann@example.org": a, "bob@example.org": b, "cy@example.org": c}
               for n, (a, b, c) in enumerate([(1, 1, 0), (0, 0, 1), (1, 1, 1)])]  # fmt: skip
    found = rated_pairs(FORMS[form](columns, tmp_path))
    assert [pair.rating for pair in found.pairs] == [1, 0, 1]
    assert "3 pairs have several ratings, 56% of which agree two by two: the majority decides" in found.about
    rows = [{"query": "q", "docid": "d1", "rating": r, "annotator": a} for r, a in [(3, "x"), (2, "y"), (0, "z")]]
    found = rated_pairs(FORMS[form]([*rows, {**rows[0], "docid": "d2"}], tmp_path))
    assert [pair.rating for pair in found.pairs] == [pytest.approx(5 / 3), 3] and "0% of which" in found.about


def test_a_tie_is_left_without_a_label_and_a_mean_takes_the_nearest_level(tmp_path: Path) -> None:
    rows = [{"qid": "q", "docid": "d1", "rating_ann": 1, "rating_bob": 0}, {"qid": "q", "docid": "d2", "rating_ann": 1,
            "rating_bob": 1}]  # fmt: skip
    found = rated_pairs(rows)
    assert [(pair.document, pair.rating) for pair in found.pairs] == [("d2", 1)] and "1 ties are left" in found.about
    path = _csv([{"qid": "q", "docid": "d", "rating": 3}, {"qid": "q", "docid": "d", "rating": 2}], tmp_path)
    labels = read_labels(LabelFile(file=path.name, levels={0: 0, 2: 1, 3: 3}), path, "en")
    assert [one.level for one in labels] == [1]  # 2.5 is as near to both


def test_unrated_pairs_are_left_out_and_whole_floats_are_ids(tmp_path: Path) -> None:
    frame = pandas.DataFrame({"qid": [7, 8, None], "docid": [0.0, 1.0, 2.0], "rating": [1, None, None]})
    assert pairs(frame) == [("7", "0", 1)]
    assert pairs(_csv(frame.to_dict("records"), tmp_path), queries={"7"}, documents={"0", "1"}) == [("7", "0", 1)]


def test_the_index_of_a_frame_is_a_column_if_it_has_a_name() -> None:
    frame = pandas.DataFrame({"doc_id": ["a", "b"], "text": ["x", "y"]})
    assert [*rows_of(frame.set_index("doc_id"))] == [*rows_of(frame)]
    assert [*rows_of(frame[["text"]])] == [{"text": "x"}, {"text": "y"}]
    assert [*rows_of(pandas.Series(["x", "y"], index=["a", "b"]))] == [
        {"_id": "a", "text": "x"},
        {"_id": "b", "text": "y"},
    ]
    twice = pandas.DataFrame([[1, 2]], columns=["a", "a"])
    with pytest.raises(AirgenError, match="two columns 'a'"):
        list(rows_of(twice))
