"""Systems whose hits are pages, on passages that are sections of them."""

import json
from pathlib import Path
from typing import Any

import pytest
from http_double import answering

import airgen
from airgen.control.recall import search_systems
from airgen.errors import AirgenError, DatasetError
from airgen.evaluation import document_level, evaluate
from airgen.evaluation.document_level import PageLookup
from airgen.evaluation.result_tables import note_lines
from airgen.evaluation.run import read_run
from airgen.evaluation.systems import SystemSettings, load_systems
from airgen.retrievers.passages import Passages

SECTIONS = {
    "guide/reset#router": "hold the button of the router",
    "guide/reset#camera": "press the pin of the camera",
    "guide/sound": "the speaker hums",
    "faq/sound#left": "the left speaker is silent",
    "faq/sound#right": "the right speaker is silent",
}
QUERIES = {"q1": "reset the camera", "q2": "silent speaker"}
LABELS = {"q1": {"guide/reset#camera": 1, "guide/reset#router": 0}, "q2": {"faq/sound#right": 1}}


@pytest.fixture
def sections(tmp_path: Path) -> Path:
    folder = tmp_path / "docs"
    (folder / "qrels").mkdir(parents=True)
    rows = [{"_id": key, "text": text} for key, text in SECTIONS.items()]
    (folder / "corpus.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    rows = [{"_id": key, "text": text} for key, text in QUERIES.items()]
    (folder / "queries.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    labels = [f"{query}\t{key}\t{label}\n" for query, of in LABELS.items() for key, label in of.items()]
    (folder / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\n" + "".join(labels))
    return folder


def lookup(**more: Any) -> PageLookup:
    corpus = Passages(list(SECTIONS), list(SECTIONS.values()))
    return PageLookup(corpus, more.get("parents", {}), more.get("labels", {}))


@pytest.mark.parametrize(
    ("own", "page"),
    [
        ("guide/reset", "guide/reset"),
        ("guide/reset#camera", "guide/reset"),
        ("https://docs.example.org/guide/reset.html", "guide/reset"),
        ("https://docs.example.org/en/guide/reset/", "guide/reset"),
        ("/guide/reset/index.html?from=search", "guide/reset"),
        ("reset.md", "guide/reset"),
        ("sound", None),  # two pages are called so
        ("guide/unknown", None),
        ("https://docs.example.org/other/reset", None),
        ("", None),
    ],
)
def test_a_page_is_found_by_its_id_or_address(own: str, page: str | None) -> None:
    assert lookup().find(own) == page


def test_the_best_section_is_the_labelled_one_else_the_nearest_in_words() -> None:
    assert lookup().best("guide/reset", "q1", "where is the pin of my camera") == "guide/reset#camera"
    assert lookup().best("guide/reset", "q1", "none of these") == "guide/reset#router"  # the first one
    assert lookup(labels=LABELS).best("guide/reset", "q1", "the button of the router") == "guide/reset#camera"
    low = {"q1": {"guide/reset#camera": 0, "guide/reset#router": 0}}
    assert lookup(labels=low).best("guide/reset", "q1", "camera") == "guide/reset#camera"
    flat = Passages(["a", "b"], ["x", "y"])
    assert PageLookup(flat, {"a": "p", "b": "p"}, {}).find("p") == "p"
    assert PageLookup(flat, {}, {}).find("https://docs.example.org/a.html") == "a"


def test_a_page_of_chunked_sections_is_found_by_every_name() -> None:
    ids = ["guide/reset#router#chunk=1", "guide/reset#router#chunk=2", "guide/reset#camera#chunk=1", "faq#chunk=1"]
    pages = PageLookup(Passages(ids, ["hold", "button", "press the pin", "noise"]), {}, {})
    assert [ids[place] for place in pages.places(pages.find("guide/reset") or "")] == ids[:3]
    assert pages.find("https://docs.example.org/guide/reset.html") == "guide/reset"
    assert pages.find("guide/reset#router") == "guide/reset#router"  # the section, of which the passages are chunks
    assert pages.best("guide/reset#router", "q", "which button") == ids[1]
    opaque = PageLookup(Passages(["x1", "x2"], ["a", "b"]), {"x1": "x9", "x2": "x9"}, {}, {"faq": "x9"}.get)
    assert opaque.find("https://docs.example.org/faq.html") == "x9"


def test_words_of_a_page_are_split_once(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []
    monkeypatch.setattr(document_level, "folded_words", lambda text, language: read.append(text) or text.split())
    pages = lookup()
    for _ in range(3):
        for query, text in QUERIES.items():
            pages.best("guide/reset", query, text)
            pages.best("faq/sound", query, text)
    sections = [text for key, text in SECTIONS.items() if "#" in key]
    assert sorted(read) == sorted([*QUERIES.values(), *QUERIES.values(), *sections])


def service(url: str, **settings: Any) -> SystemSettings:
    return SystemSettings.model_validate({"name": "site", "kind": "http", "url": url, **settings})


def test_ids_that_many_queries_find_are_looked_up_once() -> None:
    looked_up: list[str] = []
    corpus = Passages(list(SECTIONS), list(SECTIONS.values()))
    pages = PageLookup(corpus, {}, {}, renamed=looked_up.append)  # type: ignore[arg-type]
    assert {pages.find("https://docs.example.org/guide/reset.html#chunk7") for _ in QUERIES} == {"guide/reset"}
    assert len(looked_up) == len(set(looked_up)) > 0


def test_systems_on_a_dataset_share_the_words_of_its_pages(
    sections: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    split: list[str] = []
    plain = document_level.folded_words
    monkeypatch.setattr(
        document_level, "folded_words", lambda text, language: split.append(text) or plain(text, language)
    )
    (sections / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\nq1\tguide/sound\t1\n")
    systems = tmp_path / "systems.yaml"
    systems.write_text(
        "systems:\n" + "".join(f"  - {{name: s{k}, kind: bm25, k1: {k}, level: document}}\n" for k in (1, 2))
    )
    evaluate(sections, load_systems(systems), tmp_path / "out")
    passages = [text for text in split if text in SECTIONS.values()]
    assert len(passages) == len(set(passages)) > 0


def test_a_search_of_pages_is_scored(sections: Path, tmp_path: Path) -> None:
    def answer(asked: Any) -> tuple[int, Any]:
        query = asked.json()["query"]
        first, second = ("guide/sound", "guide/reset") if "reset" in query else ("faq/sound", "guide/sound")
        address = "https://docs.example.org/{}.html"
        hits = [address.format(page) for page in (first, second, second)]
        return 200, {"hits": [{"id": one, "score": 3.0 - rank} for rank, one in enumerate(hits)]}

    with answering(answer) as url:
        with pytest.raises(DatasetError, match="not in the dataset"):
            evaluate(sections, [service(url, level="passage")], tmp_path / "out")
        (result,) = evaluate(sections, [service(url, level="document")], tmp_path / "out")
        (recognised,) = evaluate(sections, [service(url)], tmp_path / "recognised")
    assert recognised.means == result.means and recognised.notes == result.notes
    assert result.means["RR@10"] == pytest.approx((1 / 2 + 1) / 2)
    run = {query: [key for key, _ in hits] for query, hits in read_run(result.paths.run).ranked().items()}
    assert run == {"q1": ["guide/sound", "guide/reset#camera"], "q2": ["faq/sound#right", "guide/sound"]}
    assert "site: hits are pages, each of which counts for the best of its sections" in note_lines([result])
    assert "compare with" not in note_lines([result])  # there is no system of passages


def test_a_run_of_pages_is_scored(sections: Path, tmp_path: Path) -> None:
    path = tmp_path / "site.run"
    path.write_text("q1 Q0 guide/reset.html 1 2.5 site\nq1 Q0 guide/reset#router 2 1.5 site\nq2 Q0 nowhere 1 1 site\n")
    value = {"name": "site", "kind": "run", "path": str(path), "level": "document"}
    (result,) = evaluate(sections, [SystemSettings.model_validate(value)], tmp_path / "out")
    assert result.means["RR@10"] == pytest.approx(0.5) and result.notes["unknown_passages"] == 1
    path.write_text("q1 Q0 nowhere 1 2.5 site\n")
    with pytest.raises(DatasetError, match=r"none of its passages, such as 'nowhere'.*the ids of its pages look like"):
        evaluate(sections, [SystemSettings.model_validate(value)], tmp_path / "none")


def pages_of(query: str) -> list[str]:
    return ["guide/reset", "guide/sound", "faq/sound"] if "reset" in query else ["faq/sound", "guide/sound"]


def test_functions_and_runs_may_return_pages(sections: Path, tmp_path: Path) -> None:
    run = {query: {page: 9.0 - rank for rank, page in enumerate(pages_of(text))} for query, text in QUERIES.items()}
    systems = {"function": lambda query: pages_of(query), "run": run}
    results = airgen.evaluate(str(sections), systems, out=tmp_path / "out", quiet=True)
    assert [result.means["RR@10"] for result in results] == [1.0, 1.0]
    assert "function, run: hits are pages" in repr(results)
    as_said = {"function": {"kind": lambda query: pages_of(query), "level": "document"}}
    (said,) = airgen.evaluate(str(sections), as_said, out=tmp_path / "said", quiet=True)
    assert said.means == results[0].means
    with pytest.raises(
        AirgenError, match=r"none of its \d+ hits, such as 'guide/reset', is in the dataset: its ids look"
    ):
        passages = {"function": {"kind": lambda query: ["guide/reset"], "level": "passage"}}
        airgen.evaluate(str(sections), passages, out=tmp_path / "passages", quiet=True)


def test_hits_on_dropped_sections_are_not_pages(sections: Path, tmp_path: Path) -> None:
    def search(query: str) -> list[str]:
        return ["guide/reset#camera", "guide/reset#dropped", "faq/sound#right"]

    (result,) = airgen.evaluate(str(sections), {"search": search}, out=tmp_path / "out", quiet=True)
    assert result.notes["unknown_passages"] == 2 and "pages_taken_as_sections" not in result.notes


PAGES = {"site/guide/reset": "hold the button", "site/guide/sound": "the speaker hums", "site/7": "a note"}


def test_addresses_name_passages_that_are_whole_pages(tmp_path: Path) -> None:
    (tmp_path / "qrels").mkdir()
    (tmp_path / "corpus.jsonl").write_text("".join(json.dumps({"_id": k, "text": t}) + "\n" for k, t in PAGES.items()))
    (tmp_path / "queries.jsonl").write_text('{"_id": "q1", "text": "reset"}\n')
    (tmp_path / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\nq1\tsite/guide/reset\t1\n")
    addresses = ["https://help.example.org/guide/reset.html", "https://help.example.org/guide/sound.html"]
    hits = {"hits": [{"id": id_, "score": -rank} for rank, id_ in enumerate(addresses)]}
    with answering(lambda asked: (200, hits)) as url:
        systems = {
            "function": lambda query: addresses,
            "run": {"q1": {id_: 9.0 - rank for rank, id_ in enumerate(addresses)}},
            "service": {"kind": "http", "url": url},
            "said": {"kind": "http", "url": url, "level": "document"},
        }
        results = airgen.evaluate(str(tmp_path), systems, out=tmp_path / "out", quiet=True)
    assert [result.means["RR@10"] for result in results] == [1.0] * 4
    assert not any("pages_taken_as_sections" in result.notes for result in results)  # each page is one passage
    with pytest.raises(AirgenError, match=r"none of its 2 hits, such as '7', is in the dataset"):  # a row, not site/7
        airgen.evaluate(str(tmp_path), {"rows": lambda query: [7, 0]}, out=tmp_path / "rows", quiet=True)


def test_the_hits_of_any_system_are_pages_if_it_says_so(sections: Path, tmp_path: Path) -> None:
    systems: dict[str, Any] = {
        "passages": "bm25",
        "pages": {"kind": "bm25", "level": "document"},
        "site": lambda query: pages_of(query),
    }
    results = airgen.evaluate(str(sections), systems, out=tmp_path / "out", quiet=True)
    found = {result.name: sorted(read_run(result.paths.run).items()) for result in results}
    pages = [{key.partition("#")[0] for key, _ in hits} for _, hits in found["pages"]]
    assert [len(hits) for _, hits in found["pages"]] == list(map(len, pages))  # a page counts once
    assert found["pages"] != found["passages"]
    assert "pages, site: hits are pages" in repr(results)
    assert "hits of pages and site are pages: do not compare with passages" in repr(results)
    again = airgen.evaluate(str(sections), {"pages": "bm25"}, out=tmp_path / "out", quiet=True)
    assert sorted(read_run(again["pages"].paths.run).items()) == found["passages"]  # another system


def test_before_there_are_labels_the_section_nearest_in_words_is_judged(tmp_path: Path) -> None:
    (tmp_path / "site.run").write_text("q1 Q0 guide/reset 1 2.5 site\n")
    (tmp_path / "systems.yaml").write_text("systems: [{name: site, kind: run, path: site.run, level: document}]")
    corpus = Passages(list(SECTIONS), list(SECTIONS.values()))
    ((_, hits),) = search_systems(load_systems(tmp_path / "systems.yaml"), corpus, QUERIES, "docs", 10)
    assert [corpus.ids[place] for place in hits.positions[0] if place >= 0] == ["guide/reset#camera"]
