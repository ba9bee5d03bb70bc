"""What commands print or write about a stranger's dataset, corpus or run has no control character."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from beir_folder import write_beir
from command_line import invoke
from dataset_maker import make_content
from little_dataset import LABELS, PASSAGES, QUERIES

from airgen.cli import main
from airgen.dataset.content import CorpusRow, QueryRow
from airgen.dataset.write import write_dataset

EVIL = "\x1b[2J\x1b]0;title\x07\u202egnp.exe\u2066x\u2069\x08\x7f\x85\x9b31m\x9d0;t\x9cbees"
RAW = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
SAFE = EVIL.replace("\x00", "")


def printed(*words: object, codes: tuple[int, ...] = (0,)) -> str:
    """What a command prints, errors among it, after a look at it."""
    found = invoke(*words)
    text = found.output + str(found.exception or "") * (not isinstance(found.exception, SystemExit))
    assert found.exit_code in codes, (found.exit_code, found.output, found.exception)
    if not found.exception or isinstance(found.exception, SystemExit):
        assert_clean(text, str(words))
    return text


def assert_clean(text: str, where: str) -> None:
    found = RAW.search(text)
    assert found is None, (where, text[max(0, found.start() - 60) : found.end() + 60])


def assert_clean_files(folder: Path) -> int:
    count = 0
    for path in folder.rglob("*"):
        if path.suffix in (".json", ".md", ".csv", ".html", ".svg", ".tsv", ".jsonl"):
            assert_clean(path.read_text(encoding="utf-8"), str(path))
            count += 1
    return count


@pytest.fixture
def evil(tmp_path: Path) -> Path:
    """A dataset in BEIR format whose ids, titles, texts and metadata hold control characters."""
    corpus = [
        {"_id": f"{key}\x9b", "title": f"{title}{EVIL}", "text": f"{text} {EVIL}"}
        for key, (title, text) in PASSAGES.items()
    ]
    queries = [
        {"_id": f"{key}\u202e", "text": f"{text} {EVIL}", "metadata": {"type": EVIL, "split": "test"}}
        for key, (text, _) in QUERIES.items()
    ]
    labels = [(f"{query}\u202e", f"{passage}\x9b", label) for (query, passage), label in LABELS.items()]
    return write_beir(tmp_path / "evil", corpus, queries, {"test": labels})


def test_evaluation(evil: Path, tmp_path: Path) -> None:
    (tmp_path / "systems.yaml").write_text(json.dumps({"systems": [
        {"name": "a", "kind": "bm25"}, {"name": "b", "kind": "query-likelihood"},
    ]}), encoding="utf-8")  # fmt: skip
    out = tmp_path / "out"
    for options in ([], ["--json"]):
        text = printed("evaluate", evil, "--systems", tmp_path / "systems.yaml", "--out", out, *options)
        assert "nDCG@10" in text
    assert assert_clean_files(out) >= 3
    runs = sorted(out.rglob("*.run.gz"))
    qrels = evil / "qrels" / "test.tsv"
    printed("evaluate", "measures", runs[0], qrels)
    for options in ([], ["--json"]):
        printed("evaluate", "compare", *runs, "--qrels", qrels, *options)


def test_a_run_of_a_stranger(evil: Path, tmp_path: Path) -> None:
    run = tmp_path / f"x{EVIL.replace('/', '')}.run"
    run.write_text("".join(f"{query}\u202e Q0 {passage}\x9b 1 2.5 {EVIL}\n" for query, passage in LABELS))
    qrels = evil / "qrels" / "test.tsv"
    printed("evaluate", "measures", run, qrels, codes=(0, 1))
    printed("evaluate", "compare", run, run, "--qrels", qrels, codes=(0, 1))


def test_diversity(evil: Path, tmp_path: Path) -> None:
    for options in ([], ["--json"]):
        printed("study", "diversity", evil, "--out", tmp_path / "diversity", *options)
    assert assert_clean_files(tmp_path / "diversity") >= 3


def test_verification(tmp_path: Path) -> None:
    content = make_content()
    rows = [*content.corpus, CorpusRow("evil", SAFE, SAFE)]
    queries = [QueryRow(row.id, f"{row.text} {SAFE}", row.split, row.metadata) for row in content.queries]
    write_dataset(tmp_path / "d", make_content(corpus=rows, queries=queries))
    (tmp_path / "d" / f"more{EVIL}.tsv").write_text(EVIL)
    for name in ("corpus.jsonl", "queries.jsonl"):
        path = tmp_path / "d" / name
        path.write_text(
            path.read_text().replace("bees", EVIL) + json.dumps({"_id": EVIL, "text": EVIL}, ensure_ascii=False)
        )
    for options in ([], ["--json"]):
        assert "corpus.jsonl" in printed("publish", "verify", tmp_path / "d", *options, codes=(1,))


def test_corpora(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "corpora"
    folder.mkdir()
    value = {
        "name": "evil", "language": "en", "domain": EVIL, "licence": f"CC0 {EVIL}", "source": EVIL,
        "reader": {"kind": "jsonl", "path": "f.jsonl"}, "tokenizer": "words",
        "clean": {"min_tokens": 4, "language": "off", "boilerplate": "off", "offensive_share": None},
    }  # fmt: skip
    (folder / "evil.yaml").write_text(json.dumps(value), encoding="utf-8")
    rows = [
        {"_id": f"{place}{EVIL}", "title": EVIL, "text": f"{word} {EVIL}"}
        for place, word in enumerate(["a", "many bees are " * 9])
    ]
    (folder / "f.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows) + EVIL + "\n", encoding="utf-8")
    assert "evil" in printed("show", "corpus")
    for options in ([], ["--json"]):
        for more in ([], ["--sample", "5"], ["--dropped"]):
            assert "bees" in printed("show", "corpus", "evil", *more, *options) or not more


def test_holes(evil: Path, tmp_path: Path) -> None:
    run = tmp_path / "x.run"
    run.write_text("".join(f"{query}\u202e Q0 {passage}\x9b 1 2.5 x\n" for query in QUERIES for passage in PASSAGES))
    for options in ([], ["--json"]):
        assert "holes" in printed("audit", "holes", evil, "--run", run, "--out", tmp_path / f"out{EVIL[:3]}", *options)
    assert assert_clean_files(tmp_path / f"out{EVIL[:3]}") == 1


def test_suites(evil: Path, tmp_path: Path) -> None:
    queries = [QueryRow(row.id, f"{row.text} {SAFE}", row.split, row.metadata) for row in make_content().queries]
    homes = [tmp_path / name for name in ("old", "new")]
    for home, rows in zip(homes, (queries, queries[1:]), strict=True):
        kept = {row.id for row in rows}
        labels = [label for label in make_content().qrels if label.query in kept]
        corpus = [*make_content().corpus, CorpusRow("evil", SAFE, SAFE)]
        write_dataset(home, make_content(corpus=corpus, queries=rows, qrels=labels))
    for options in ([], ["--json"]):
        printed("study", "contamination", homes[1], "--against", evil, *options)
        printed("study", "compare", *homes, "--split", "dev", "--out", tmp_path / "compare", *options)
        printed("study", "stats", homes[0], *options)
        printed("export", "layout", homes[0], "trec", "--out", tmp_path / f"trec{len(options)}", *options)


@pytest.mark.parametrize(
    "words",
    [
        ["fetch", f"--{EVIL}"],
        ["study", "stats", "a", EVIL],
        ["study", EVIL],
        [EVIL],
        ["audit", "holes", EVIL, "--x\x9b"],
    ],
)
def test_wrong_usage(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert ended.value.code == 2
    said = capsys.readouterr()
    assert_clean(said.out + said.err, str(words))
    assert said.err.startswith(("Usage", "airgen: unknown command", "airgen: unknown word"))


def test_an_error_is_not_as_long_as_the_file_that_it_is_about(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "x.run").write_text("q Q0 p 1 " + "9x" * 1_000_000 + " x\n")
    (tmp_path / "q.tsv").write_text("query-id\tcorpus-id\tscore\nq\tp\t1\n")
    with pytest.raises(SystemExit):
        main(["evaluate", "measures", str(tmp_path / "x.run"), str(tmp_path / "q.tsv")])
    said = capsys.readouterr().err
    assert "x.run:1" in said and len(said) < 5_000


def test_models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRGEN_CACHE", str(tmp_path / f"[/x]{EVIL}"))
    for words in (["show", "models"], ["show", "models", "--json"], ["fetch", "--verify"]):
        printed(*words)


def test_checking(tmp_path: Path) -> None:
    (tmp_path / "f.jsonl").write_text(
        json.dumps({"_id": EVIL, "title": EVIL, "text": "many bees are " * 20 + EVIL}) + "\n"
    )
    corpus = {
        "name": "evil", "language": "en", "domain": EVIL, "licence": f"CC0 {EVIL}", "source": EVIL,
        "reader": {"kind": "jsonl", "path": "f.jsonl"}, "tokenizer": "words",
        "clean": {"language": "off", "offensive_share": None},
    }  # fmt: skip
    (tmp_path / "evil.yaml").write_text(json.dumps(corpus))
    job = {
        "name": "job", "task": "qa", "corpus": "evil.yaml", "target": 1, "domain": EVIL,
        "llm": {"backend": "openai", "base_url": "http://localhost:9/v1", "model": f"m{EVIL}"},
        "control": {"recall": {"model": f"gone{EVIL}"}, "rerankers": ["bm25"]},
    }  # fmt: skip
    (tmp_path / "job.yaml").write_text(json.dumps(job))
    for options in ([], ["--json"]):
        printed("check", tmp_path / "job.yaml", *options, codes=(0, 1))
