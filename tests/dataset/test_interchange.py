"""Labels for other tools, each read by the tool itself where it is installed."""

import csv
import json

import pytest
from beir_folder import write_beir
from command_line import call
from refusals import refused

from airgen.dataset.beir import BeirDataset, read_qrels
from airgen.dataset.layouts import FORMATS, convert
from airgen.errors import DatasetError, UsageError
from airgen.evaluation import score
from airgen.evaluation.run import run_from_dict
from airgen.job.user_queries import read_labels
from airgen.settings import LabelFile

CORPUS = [
    {"_id": "p1", "title": 'Cats, and "dogs"', "text": "cats eat fish\tand\nsleep"},
    {"_id": "p2", "title": "", "text": "=HYPERLINK(1)"},
    {"_id": "p3", "title": "", "text": "birds sing"},
]
QUERIES = [
    {"_id": "q1", "text": 'what do\ncats, "big" ones, eat'},
    {"_id": "q2", "text": "птицы поют"},
    {"_id": "q3", "text": "птицы поют"},
]
LABELS = [("q1", "p1", 2), ("q1", "p2", 0), ("q2", "p3", 1), ("q3", "p3", 0), ("q3", "p1", 1), ("lost", "p1", 1)]


@pytest.fixture
def folder(tmp_path):
    return write_beir(tmp_path / "data", CORPUS, QUERIES, {"test": LABELS}, name="little")


@pytest.fixture
def written(folder, tmp_path):
    def write(kind, **more):
        return convert(BeirDataset.open(folder), "test", kind, tmp_path / FORMATS[kind][0], **more).out

    return write


def by_id():
    found = {}
    for query, passage, label in LABELS:
        found.setdefault(query, {})[passage] = label
    return found


def test_quepid_has_a_row_for_each_label_and_names_a_query_by_its_text(written):
    rows = list(csv.DictReader(written("quepid").read_text("utf-8").splitlines()))
    assert list(rows[0]) == ["query", "docid", "rating"]
    assert rows[0] == {"query": 'what do cats, "big" ones, eat', "docid": "p1", "rating": "2"}
    # Two queries have one text: the higher label counts.
    assert [(row["docid"], row["rating"]) for row in rows if row["query"] == "птицы поют"] == [("p3", "1"), ("p1", "1")]


def test_opensearch_is_a_list_of_judgments(written):
    value = json.loads(written("opensearch").read_text("utf-8"))
    assert value["type"] == "IMPORT_JUDGMENT" and value["name"] == "little test"
    assert value["judgmentRatings"][0] == {
        "query": 'what do cats, "big" ones, eat',
        "ratings": [{"docId": "p1", "rating": "2"}, {"docId": "p2", "rating": "0"}],
    }


def test_elasticsearch_asks_one_template_with_each_text(written):
    value = json.loads(written("elasticsearch", index="docs", fields=["body"]).read_text("utf-8"))
    assert value["templates"][0]["template"]["source"]["query"]["multi_match"]["fields"] == ["body"]
    names = {one["id"] for one in value["templates"]}
    assert [one["id"] for one in value["requests"]] == ["q1", "q2", "q3"]  # "lost" has no text to search for
    assert {one["template_id"] for one in value["requests"]} == names
    assert value["requests"][0]["params"] == {"text": 'what do\ncats, "big" ones, eat'}
    assert value["requests"][0]["ratings"][0] == {"_index": "docs", "_id": "p1", "rating": 2}


def test_ranx_scores_a_run_as_airgen_does(written, tmp_path):
    ranx = pytest.importorskip("ranx")
    qrels = ranx.Qrels.from_file(str(written("ranx")), kind="json")
    run = {"q1": {"p2": 2.0, "p1": 1.0}, "q2": {"p1": 2.0, "p3": 1.5}, "q3": {"p1": 1.0}, "lost": {"p3": 1.0}}
    theirs = ranx.evaluate(qrels, ranx.Run(run), "ndcg@10", return_mean=True, make_comparable=True)
    assert theirs == pytest.approx(score(run_from_dict(run), by_id(), "nDCG@10").means()["nDCG@10"])


def test_pytrec_eval_and_airgen_read_trec(written):
    assert read_qrels(written("trec")).labels == by_id()
    pytrec_eval = pytest.importorskip("pytrec_eval")
    with written("trec").open(encoding="utf-8") as stream:
        assert pytrec_eval.parse_qrel(stream) == by_id()


def test_ir_datasets_reads_the_folder(written):
    ir_datasets = pytest.importorskip("ir_datasets")
    out = written("ir_datasets")
    made = ir_datasets.create_dataset(*(str(out / name) for name in ("docs.tsv", "queries.tsv", "qrels.trec")))
    assert [(one.doc_id, one.text) for one in made.docs_iter()] == [
        ("p1", 'Cats, and "dogs" cats eat fish and sleep'), ("p2", "=HYPERLINK(1)"), ("p3", "birds sing"),
    ]  # fmt: skip
    assert made.docs_store().get("p3").text == "birds sing"
    assert {one.query_id: one.text for one in made.queries_iter()}["q2"] == "птицы поют"
    assert made.qrels_dict() == by_id()


def test_other_labels_and_what_a_format_cannot_hold(folder, tmp_path):
    dataset = BeirDataset.open(folder)
    (folder / "qrels-soft").mkdir()
    (folder / "qrels-soft" / "test.tsv").write_text("query-id\tcorpus-id\tscore\nq1\tp1\t0.25\n")
    convert(dataset, "test", "quepid", tmp_path / "soft.csv", variant="soft")
    assert "0.25" in (tmp_path / "soft.csv").read_text()
    for kind in ("trec", "elasticsearch"):
        with pytest.raises(DatasetError, match=r"'q1', passage 'p1': label 0\.25 is not an integer"):
            convert(dataset, "test", kind, tmp_path / "x", variant="soft")
    with pytest.raises(DatasetError, match="the dataset has soft"):
        convert(dataset, "test", "trec", tmp_path / "x", variant="graded")
    with refused(UsageError, "unknown_name", "quepid"):
        convert(dataset, "test", "quepit", tmp_path / "x")
    assert not (tmp_path / "x").exists()
    (folder / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\nq1\tp 1\t1\n")
    with pytest.raises(DatasetError, match="'p 1' contains whitespace"):
        convert(BeirDataset.open(folder), "test", "trec", tmp_path / "x")


def test_the_command_says_what_it_wrote(folder, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert "judgments.json: 6 labels of 4 queries" in call("export", "labels", folder, "--to", "opensearch")
    assert (tmp_path / "judgments.json").is_file()
    value = json.loads(call("export", "labels", folder, "--to", "quepid", "--out", "a/b.csv", "--json"))
    assert value == {"out": "a/b.csv", "queries": 4, "labels": 6, "without_text": 1}
    with pytest.raises(DatasetError, match=r"contains files but no qrels\.trec"):
        call("export", "labels", folder, "--to", "ir_datasets", "--out", folder)


@pytest.mark.parametrize("kind", ["quepid", "opensearch", "trec"])
def test_airgen_label_reads_what_was_written(written, kind):
    """The way back: the same documents with the same labels, under the query's text (TREC: under its id)."""
    path = written(kind)
    labels = LabelFile(file=path.name, levels={0: 0, 1: 1, 2: 2})
    found = sorted((" ".join(one.query.split()), one.document, one.level) for one in read_labels(labels, path, "en"))
    first = "q1" if kind == "trec" else 'what do cats, "big" ones, eat'
    assert [row for row in found if row[0] == first] == [(first, "p1", 2), (first, "p2", 0)]
    ids = {"q2": [("p3", 1)], "q3": [("p1", 1), ("p3", 0)]}
    others = ids if kind == "trec" else {"птицы поют": [("p1", 1), ("p3", 1)]}  # two queries have this text
    assert {name: [row[1:] for row in found if row[0] == name] for name in others} == others
