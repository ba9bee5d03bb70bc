"""Submissions and the leaderboard: numbers against pytrec_eval and by hand; strangers' zips against every trick."""

import dataclasses
import json
import re
import struct
import time
import zipfile
from pathlib import Path
from typing import Any

import pytest
from dataset_maker import INFO, make_content

from airgen.dataset.write import write_dataset
from airgen.errors import DatasetError
from airgen.publishing.leaderboard import leaderboard, write_leaderboard
from airgen.publishing.scores import (
    DatasetScore,
    SystemScore,
    load_labels,
    load_scores,
    save_score,
    score_results,
)
from airgen.publishing.submission import NO_RERANKER, Submission, SystemHits, pack
from airgen.publishing.withhold import labels_part

BASE = SystemHits(
    "my-model", NO_RERANKER, "26.11", "qa", "science", "en", "weather-notes", "test", {"q-00": {"doc000": 1.0}}
)
ENTRY = "qa/science/en_weather-notes_test.json"
LAW = "qa/law/en_weather-notes_test.json"


def read_submission(path: Path, **limits: int) -> list[SystemHits]:
    with pytest.MonkeyPatch.context() as patch:
        for name, limit in limits.items():
            patch.setattr(f"airgen.publishing.submission._{name.upper()}", limit)
        found = list(Submission(path).read())
    for one in found:
        if isinstance(one, DatasetError):
            raise one
    return [one for one in found if isinstance(one, SystemHits)]


def results(**changes: Any) -> SystemHits:
    return dataclasses.replace(BASE, **changes)


def as_json(one: SystemHits = BASE, **changes: Any) -> str:
    names = ("model_name", "reranker_name", "benchmark_version", "task_type", "domain", "language", "dataset_name",
             "split", "search_results")  # fmt: skip
    values = (one.model, one.reranker, one.version, one.task, one.domain, one.language, one.dataset, one.split)
    return json.dumps(dict(zip(names, (*values, one.hits), strict=True)) | changes)


def zip_of(path: Path, *entries: tuple[str, str | bytes]) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in entries:
            archive.writestr(name, data)
    return path


def test_packed_and_read_again(tmp_path: Path) -> None:
    other = results(domain="law", hits={"q": {"d é": 0.25, "e": -1.0}})
    pack([BASE, other], tmp_path / "a.zip")
    pack([other, BASE], tmp_path / "b.zip")
    assert (tmp_path / "a.zip").read_bytes() == (tmp_path / "b.zip").read_bytes()
    assert read_submission(tmp_path / "a.zip") == [other, BASE]


def test_scores_are_trec_evals_with_missing_queries_as_zero(dataset: Path) -> None:
    pytrec_eval = pytest.importorskip("pytrec_eval")
    labels = load_labels([dataset])
    hits = {
        "q-00": {"doc002": 9.0, "doc000": 8.0, "doc001": 7.0},  # the negative first
        "q-01": {"doc001": 1.0, "doc009": 0.5},
        "q-03": {"doc011": 1.0},
        "q-99": {"doc000": 1.0},  # no such query
    }
    (scored,) = score_results([results(hits=hits)], labels).datasets
    judge = pytrec_eval.RelevanceEvaluator(dict(labels[0].qrels), {"ndcg_cut.10"})
    theirs = judge.evaluate(hits)
    assert sorted(theirs) == ["q-00", "q-01", "q-03"]
    total = sum(row["ndcg_cut_10"] for row in theirs.values()) / 4  # q-04 has no results and counts as zero
    assert scored.measures == {"nDCG@10": round(total, 3)} and set(scored.standard_errors) == {"nDCG@10"}
    assert (scored.queries, scored.missing, scored.missing_count, scored.unknown_queries) == (4, ("q-04",), 1, 1)
    assert scored.unknown_documents == 0
    (nothing,) = score_results([results(hits={"q-77": {"doc000": 1.0}})], labels).datasets
    assert set(nothing.measures.values()) == {0.0}
    assert (nothing.missing_count, nothing.unknown_queries) == (4, 1)


def test_labels_part_is_enough_and_documents_are_checked_where_they_are(dataset: Path, tmp_path: Path) -> None:
    labels_part(dataset, tmp_path / "private", ["test"])
    bad = results(hits={"q-00": {"doc000": 2.0, "doc777": 1.0}})
    (whole,) = score_results([bad], load_labels([dataset])).datasets
    (part,) = score_results([bad], load_labels([tmp_path / "private"])).datasets
    assert part.measures == whole.measures
    assert whole.unknown_documents == part.unknown_documents == 1
    with pytest.raises(DatasetError, match="no labels of 'dev'"):
        load_labels([tmp_path / "private"], "dev")
    with pytest.raises(DatasetError, match="two sets of labels"):
        load_labels([dataset, tmp_path / "private"])
    write_dataset(tmp_path / "law", make_content(info=dataclasses.replace(INFO, domain="law")))
    assert score_results([BASE], load_labels([dataset, tmp_path / "law"])).absent == ("qa_law_en/weather-notes test",)


def test_reranking_only_is_of_bm25s_top_100(tmp_path: Path) -> None:
    write_dataset(tmp_path / "d", make_content(n_documents=250))
    labels = load_labels([tmp_path / "d"])
    first = results(model="BM25", hits={"q-00": {f"doc{i:03d}": 1000.0 - i for i in range(200)}})
    bm25 = Submission(pack([first], tmp_path / "bm25.zip"))
    most = {"q-00": {f"doc{i:03d}": float(i) for i in range(101)}}
    for model, hits, outcome in (
        ("BM25", {"q-00": dict(list(most["q-00"].items())[:100])}, "Reranking Only"),
        ("dense", most, "Retrieval + Reranking"),
        ("BM25", most, "has 101 hits"),
        ("BM25", {"q-00": {"doc100": 1.0}}, "'doc100' of query 'q-00' is not in BM25's top 100"),
    ):
        one = results(model=model, reranker="r", hits=hits)
        if "R" in outcome[:1]:
            assert score_results([one], labels, bm25=bm25).system_class == outcome
        else:
            with pytest.raises(DatasetError, match=outcome):
                score_results([one], labels, bm25=bm25)


HUGE = as_json().replace('"doc000"', '"doc000' + "0" * 30_000_000 + '"')


@pytest.mark.parametrize(
    ("entries", "words"),
    [
        (HUGE, "unpacks to more than"),
        ([(f"{i}.txt", "") for i in range(3000)], "3000 entries, but at most 2000"),
        ([("../../etc/x.json", "{}")], "points outside the zip"),
        ([("/etc/x.json", "{}")], "points outside the zip"),
        ([("qa\\..\\x.json", "{}")], "points outside the zip"),
        ([("readme.txt", "x")], "contains no search results"),
        ("{", "is not JSON"),
        ("[" * 200_000, "is not JSON"),
        (b"\xff\xfe{}", "is not JSON"),
        ("[]", "lacks the object search_results"),
        (as_json(search_results=[]), "lacks the object search_results"),
        (as_json(model_name=7), "model_name is missing or is not a short text"),
        (as_json(model_name="a\n1. b"), "model_name is missing or is not a short text that can be printed"),
        (as_json(reranker_name="\x1b[2J"), "reranker_name is missing or is not a short text that can be printed"),
        (as_json(model_name="\ud800"), "model_name is missing or is not a short text that can be printed"),
        (as_json(domain="law"), "its contents name qa/law"),
        ([("qa/law/en_x_test.json", as_json())], "rename the file or correct the contents"),
        (as_json(results(hits={"q": {"d": float("nan")}})), "holds NaN"),
        (as_json(results(hits={"q": {"d": float("-inf")}})), "holds -Infinity"),
        (as_json(results(hits={"q": {"d": 1e999}})), "holds Infinity"),
        (as_json().replace("1.0", "1e999"), "not a finite number"),
        (as_json().replace("1.0", "1" + "0" * 400), "not a finite number"),
        (as_json().replace("1.0", "true"), "not a finite number"),
        (as_json().replace("1.0", '"9"'), "not a finite number"),
        (as_json().replace('"doc000": 1.0', '"a": 1, "a": 2'), "'a' appears twice"),
        (as_json(results(hits={"q": {str(i): 1.0 for i in range(1001)}})), "has 1001 hits"),
        ([(ENTRY, as_json()), ("x/" + ENTRY, as_json())], "contains qa/science/en_weather-notes_test.json twice"),
        ([(ENTRY, as_json()), (LAW, as_json(domain="law", model_name="other"))], "several systems"),
    ],
)
def test_zips_of_strangers(tmp_path: Path, entries: str | bytes | list[tuple[str, str | bytes]], words: str) -> None:
    """`entries` are those of the zip, or the data of one entry."""
    if not isinstance(entries, list):
        entries = [(ENTRY, entries)]
    with pytest.raises(DatasetError, match=words):
        read_submission(zip_of(tmp_path / "z.zip", *entries))


def test_zips_whose_directory_lies(tmp_path: Path) -> None:
    """The directory says 10 bytes, and the stream unpacks to 64 MB; an entry is encrypted; there is no zip."""
    lies = zip_of(tmp_path / "z.zip", (ENTRY, b"0" * 64_000_000)).read_bytes()
    data, coded = bytearray(lies), bytearray(lies)
    for mark, offset in ((b"PK\x01\x02", 24), (b"PK\x03\x04", 22)):
        place = data.index(mark) + offset
        data[place : place + 4] = struct.pack("<I", 10)
    coded[coded.index(b"PK\x01\x02") + 8] |= 1
    for content, words in ((data, "bad.zip"), (coded, "is encrypted"), (b"hello", "cannot be read as a zip")):
        (tmp_path / "bad.zip").write_bytes(content)
        with pytest.raises(DatasetError, match=words):
            read_submission(tmp_path / "bad.zip")
    with pytest.raises(DatasetError, match=r"cannot be read as a zip.*airgen publish submit"):
        read_submission(tmp_path / "absent.zip")


def test_a_bomb_is_given_up_early(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, unpacked, read = zip_of(tmp_path / "z.zip", (ENTRY, b"0" * 64_000_000)), list[int](), zipfile.ZipExtFile.read

    def counting(self: zipfile.ZipExtFile, n: int | None = -1) -> bytes:
        block = read(self, n)
        unpacked.append(len(block))
        return block

    monkeypatch.setattr(zipfile.ZipExtFile, "read", counting)
    with pytest.raises(DatasetError, match="unpacks to more than 3,000,000 bytes"):
        read_submission(path, entry_bytes=3_000_000)
    assert 3_000_000 < sum(unpacked) < 5_000_000


def test_a_bomb_of_many_entries_stops_at_the_total(tmp_path: Path) -> None:
    entries = []
    for i in range(30):
        one = results(dataset=f"d{i:02d}", hits={"q": {f"{i}-{n}": n / 7 for n in range(900)}})
        entries.append((one.entry, as_json(one)))
    path = zip_of(tmp_path / "z.zip", *entries)
    assert len(read_submission(path)) == 30
    with pytest.raises(DatasetError, match="unpacks to more than"):
        read_submission(path, total_bytes=10 * len(entries[0][1]))
    assert len(read_submission(path, total_bytes=40 * len(entries[0][1]))) == 30


def test_a_bomb_of_values_is_not_parsed(tmp_path: Path) -> None:
    """The entry is smaller than the limits, but each of its lists takes ten times its bytes in memory."""
    value = as_json().encode()[:-1] + b', "more": [' + b"[]," * 31_000_000 + b"[]]}"
    path = zip_of(tmp_path / "z.zip", (ENTRY, value))
    with pytest.raises(DatasetError, match=r"has more than 30,000,000 JSON values"):
        read_submission(path, most_compression_ratio=10_000)


def test_a_repeated_key_is_found_in_linear_time(tmp_path: Path) -> None:
    """The repeated key comes after many others, so that a search that begins anew for each of them is quadratic."""

    def cpu_seconds(count: int) -> float:
        hits = ",".join(f'"d{number}":1' for number in [*range(count), count - 1])
        path = zip_of(tmp_path / "z.zip", (ENTRY, f'{{"search_results":{{"q":{{{hits}}}}}}}'))
        began = time.process_time()
        with pytest.raises(DatasetError, match=f"'d{count - 1}' appears twice"):
            read_submission(path)
        return time.process_time() - began

    # The minimum of three, because garbage collection of earlier tests may run during one of them.
    assert min(cpu_seconds(10_000) for _ in range(3)) < 3 * min(cpu_seconds(5_000) for _ in range(3)) + 0.1


def test_pack_refuses_what_cannot_be(tmp_path: Path) -> None:
    for wrong, words in (
        ([], "no results"),
        ([BASE, results(domain="law", model="other")], "must contain a single system"),
        ([BASE, BASE], "two results for the same dataset"),
        ([results(dataset="../x")], "cannot be a part of a path"),
        ([results(hits={"q": {"d": float("nan")}})], "not a finite number"),
    ):
        with pytest.raises(DatasetError, match=words):
            pack(wrong, tmp_path / "z.zip")
    assert not (tmp_path / "z.zip").exists()


def made(model: str, reranker: str = NO_RERANKER, version: str = "26.11", **values: float) -> SystemScore:
    """A saved score; `values` are nDCG@10 by domain_language."""
    rows = [
        DatasetScore("set", "qa", *key.split("_"), "test", {"nDCG@10": value, "Recall@10": 0.0}, 10)
        for key, value in values.items()
    ]
    return SystemScore(model, reranker, version, tuple(rows))


def test_tables_by_class_domain_language(tmp_path: Path) -> None:
    scores = [
        made("dense", law_en=0.5, law_fr=0.3, news_en=0.7),
        made("sparse", law_en=0.6, law_fr=0.6, news_en=0.6),
        made("half", law_en=0.9),
        made("BM25", "cross", law_en=0.4, law_fr=0.4, news_en=0.4),
        made("dense", "cross", law_en=0.8, law_fr=0.8, news_en=0.8),
        made("dense", version="26.9", law_en=0.1),
    ]
    for score in scores:
        save_score(score, tmp_path)
    assert sorted(load_scores(tmp_path), key=repr) == sorted(scores, key=repr)
    tables = leaderboard(load_scores(tmp_path))
    assert [(table.version, table.system_class) for table in tables] == [
        ("26.11", "Retrieval Only"),
        ("26.11", "Reranking Only"),
        ("26.11", "Retrieval + Reranking"),
        ("26.9", "Retrieval Only"),
    ]
    top = tables[0]
    assert top.columns == ("domain law", "domain news", "language en", "language fr")
    assert [(row["rank"], row["model"], row["mean"]) for row in top.rows] == [
        (1, "sparse", 0.6),
        (2, "dense", 0.5),
        (None, "half", None),
    ]
    assert top.rows[1]["cells"] == {"domain law": 0.4, "domain news": 0.7, "language en": 0.6, "language fr": 0.3}
    assert top.rows[2]["cells"] == {"domain law": None, "domain news": None, "language en": None, "language fr": None}
    assert top.rows[2]["datasets"] == "1 of 3"


def test_a_rank_has_an_interval_where_errors_are_known(tmp_path: Path) -> None:
    def known(model: str, value: float, errors: dict[str, float]) -> SystemScore:
        return SystemScore(model, NO_RERANKER, "26.11", (
            DatasetScore("set", "qa", "law", "en", "test", {"nDCG@10": value}, 10, standard_errors=errors),
        ))  # fmt: skip

    error = {"nDCG@10": 0.02}
    scores = [known("best", 0.9, error), known("two", 0.51, error), known("three", 0.5, error)]
    (table,) = leaderboard(scores)
    assert [(row["rank"], row["ranks"]) for row in table.rows] == [(1, [1, 1]), (2, [2, 3]), (3, [2, 3])]
    write_leaderboard(scores, tmp_path)
    assert (tmp_path / "index.html").read_text().count(">2–3</td>") == 2
    (table,) = leaderboard([*scores, known("old", 0.4, {})])  # scored before errors were kept
    assert [row["ranks"] for row in table.rows] == [None] * 4


def test_names_of_strangers_do_not_reach_the_page_as_markup(tmp_path: Path) -> None:
    evil = "</td><script>alert(1)</script><img src=x onerror=alert(1)>\u202e\x00"
    write_leaderboard([made(evil, evil, law_en=0.5)], tmp_path, title=evil)
    page = (tmp_path / "index.html").read_text()
    allowed = {"html", "head", "meta", "title", "style", "body", "main", "h1", "h2", "h3", "p", "div"}
    assert set(re.findall(r"<(\w+)", page)) <= allowed | {"table", "thead", "tbody", "tr", "th", "td"}
    assert not re.search(r"<[^>]*\son\w+=", page) and "\u202e" not in page
    assert json.loads((tmp_path / "leaderboard.json").read_text())[0]["rows"][0]["model"] == evil
    saved = save_score(made("../../evil name", law_en=0.5), tmp_path / "scores")
    assert saved.parent == tmp_path / "scores"


def test_the_page_in_a_real_browser(browse: Any, tmp_path: Path) -> None:
    evil = "<img src=x onerror='document.title = 1'>"
    write_leaderboard([made("plain", law_en=0.25, wiki_zh=0.5), made(evil, evil, law_en=0.5)], tmp_path)
    for colours in ("light", "dark"):
        page = browse(tmp_path / "index.html", color_scheme=colours, viewport={"width": 390, "height": 844})
        assert page.title() == "Leaderboard"
        names = page.get_by_role("row").locator("td:nth-child(3)").all_inner_texts()
        assert names == ["plain", evil]  # without wiki_zh there is no mean
        # The columns scroll inside their frame, and the page itself does not.
        assert page.evaluate("document.documentElement.scrollWidth") == 390


def test_saved_scores_edited_by_hand(tmp_path: Path) -> None:
    for text in ("{", "[]", '{"format": 1}', '{"format": 9}', '{"format": []}', "[" * 100_000):
        (tmp_path / "x.score.json").write_text(text)
        with pytest.raises(DatasetError, match="score the submission again"):
            load_scores(tmp_path)
    with pytest.raises(DatasetError, match="no scores to show"):
        write_leaderboard([], tmp_path)
