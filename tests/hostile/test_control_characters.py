"""What commands print or write about a stranger's dataset, corpus, run, model or job has no control character."""

import io
import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from beir_folder import read_rows, write_beir
from command_line import call, invoke
from dataset_maker import INFO, make_content
from job_maker import LEXICAL, Run
from little_dataset import LABELS, PASSAGES, QUERIES
from rich.console import Console

import airgen.commands
from airgen.audit.labels import draw_labels
from airgen.cli import main
from airgen.commands.printing import echo
from airgen.dataset.content import CorpusRow, FunnelStep, QueryRow
from airgen.dataset.manifest import load_manifest
from airgen.dataset.write import write_dataset
from airgen.display.study import Plain, Study, Table, columns
from airgen.job import Job, RunResult
from airgen.job.run_job import run_job
from airgen.job.run_result import result_values
from airgen.publishing.leaderboard import write_leaderboard
from airgen.publishing.scores import DatasetScore, SystemScore
from airgen.safety.escaping import (
    csv_text,
    html_text,
    json_text,
    md,
    plain_text,
    terminal_lines,
    terminal_table,
    visible,
)
from airgen.steps.progress import Display
from airgen.storage.json_values import plain

JOB = LEXICAL
EVIL = "\x1b[2J\x1b]0;title\x07\u202egnp.exe\u2066x\u2069\x08\x7f\x85\x9b31m\x9d0;t\x9cbees"
RAW = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def printed(*words: object, codes: tuple[int, ...] = (0,)) -> str:
    """What a command prints, errors among it, after a look at it."""
    found = invoke(*words)
    text = found.output + str(found.exception or "") * (not isinstance(found.exception, SystemExit))
    assert found.exit_code in codes, (found.exit_code, found.output, found.exception)
    if not found.exception or isinstance(found.exception, SystemExit):
        assert_clean(text, str(words))
    return text


def assert_clean(text: str, where: str = "", *, colours: bool = False) -> None:
    """No control character; `colours` allows what rich itself sends to a terminal."""
    if colours:
        text = re.sub(r"\x1b\[[0-9;?]*[mKAlh]|\r", "", text)
    found = RAW.search(text)
    assert found is None, (where, text[max(0, found.start() - 60) : found.end() + 60])


def assert_clean_files(folder: Path) -> int:
    """No file of text below the folder holds one; values of JSON may, as escapes. How many there are."""
    kinds = (".json", ".md", ".csv", ".html", ".svg", ".tsv", ".jsonl")
    paths = [path for path in folder.rglob("*") if path.suffix in kinds]
    for path in paths:
        assert_clean(path.read_text(encoding="utf-8"), str(path))
    assert paths
    return len(paths)


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
    run = tmp_path / f"x{EVIL.replace('/', '')}.run"
    run.write_text("".join(f"{query}\u202e Q0 {passage}\x9b 1 2.5 {EVIL}\n" for query, passage in LABELS))
    printed("evaluate", "measures", run, qrels, codes=(0, 1))
    printed("evaluate", "compare", run, run, "--qrels", qrels, codes=(0, 1))


def test_diversity(evil: Path, tmp_path: Path) -> None:
    for options in ([], ["--json"]):
        printed("study", "diversity", evil, "--out", tmp_path / "diversity", *options)
    assert assert_clean_files(tmp_path / "diversity") >= 2


def test_verification(tmp_path: Path) -> None:
    content = make_content()
    rows = [*content.corpus, CorpusRow("evil", EVIL, EVIL)]
    queries = [QueryRow(row.id, f"{row.text} {EVIL}", row.split, row.metadata) for row in content.queries]
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
    assert assert_clean_files(tmp_path / f"out{EVIL[:3]}") == 4  # the lines, the page, the table and the sample


def test_suites(evil: Path, tmp_path: Path) -> None:
    queries = [QueryRow(row.id, f"{row.text} {EVIL}", row.split, row.metadata) for row in make_content().queries]
    homes = [tmp_path / name for name in ("old", "new")]
    for home, rows in zip(homes, (queries, queries[1:]), strict=True):
        kept = {row.id for row in rows}
        labels = [label for label in make_content().qrels if label.query in kept]
        corpus = [*make_content().corpus, CorpusRow("evil", EVIL, EVIL)]
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
        ["study", "inspect", "a", EVIL],
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


# -- jobs -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sink", [visible, plain_text, terminal_lines, md, html_text, json_text])
def test_each_sink(sink: Callable[[str], str]) -> None:
    assert_clean(sink(EVIL))
    ordinary = "Grüße, «naïve» 日本語\u3000می\u200cخواهم\n\tone\r\n"
    if sink in (visible, plain_text):
        assert sink(ordinary) == ordinary
    assert json.loads(json_text({"a": EVIL})) == {"a": EVIL}
    assert_clean(terminal_table([["a", "b"], [EVIL, "1"]]))
    assert_clean(csv_text(["a"], [[EVIL]]))
    assert plain_text("a\x1b[31mb\x1b]0;t\x07c") == "abc"


@pytest.fixture
def poisoned(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The small job, whose model puts escape sequences into every text, and one of whose documents has them, too."""
    from airgen.llms import base, scripted

    def poison(value: object) -> object:
        if isinstance(value, str):
            return f"{value}\x1b[2J\x1b]0;t\x07\u202e\x85\x9b31m"
        if isinstance(value, dict):
            return {key: poison(item) for key, item in value.items()}
        return [poison(item) for item in value] if isinstance(value, list) else value

    send = scripted.ScriptedBackend.send

    async def poisoning(self: scripted.ScriptedBackend, request: base.Request) -> base.Reply:
        reply = await send(self, request)
        try:
            value = json.loads(reply.text)
        except ValueError:
            return reply
        return base.Reply(json.dumps(poison(value))) if isinstance(value, dict) else reply

    monkeypatch.setattr(scripted.ScriptedBackend, "send", poisoning)
    with (folder / "small.jsonl").open("a", encoding="utf-8") as out:
        text = f"Beetles and tides are measured near the coast {EVIL} whenever lanterns are banned by decree."
        out.write(json.dumps({"id": "doc-evil", "title": EVIL, "text": text}) + "\n")
    return folder


def test_a_whole_job_of_a_poisoning_model(
    poisoned: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    job = Job(poisoned / "job.yaml", poisoned / "runs", target=3)
    screen = io.StringIO()
    display = Display(job.directory / "status.json", Console(file=screen, force_terminal=True, width=300))
    result = run_job(job, display)
    assert "samples tried, last: " in screen.getvalue()
    assert_clean(screen.getvalue(), colours=True)
    assert_clean((job.directory / "status.json").read_text(encoding="utf-8"))

    assert_clean_files(job.dataset)
    for name in ("queries", "corpus"):
        for row in read_rows(job.dataset / f"{name}.jsonl"):
            assert_clean(row["text"].replace("\n", " "))

    arguments = [job.path, "--runs", poisoned / "runs"]
    listed = call("show", *arguments, "--queries")
    assert "q" in listed
    for options in ([], ["--json"]):
        for words in ([], ["--queries"], [listed.split()[0]]):
            assert_clean(call("show", job.path, *words, *arguments[1:], *options))
    draw_labels(job, 20, poisoned / "audit")
    assert_clean_files(poisoned / "audit")
    capsys.readouterr()
    print(result.study().text())
    echo(json_text(plain(result_values(result))))
    assert_clean(capsys.readouterr().out, colours=True)


def test_progress_notes_and_lines(tmp_path: Path) -> None:
    screen = io.StringIO()
    display = Display(tmp_path / "status.json", Console(file=screen, force_terminal=True, width=200))
    display.say(f"said {EVIL}")
    with display.stage("stage", 2, note=EVIL) as bar:
        bar.advance(1, f"last: {EVIL}")
    plain = io.StringIO()
    with Display(tmp_path / "s.json", Console(file=plain)).stage("stage", 2) as bar:
        bar.advance(1, f"last: {EVIL}")
    assert "said" in screen.getvalue() and "last:" in plain.getvalue()
    assert_clean(screen.getvalue(), colours=True)
    assert_clean(plain.getvalue())
    assert_clean((tmp_path / "status.json").read_text(encoding="utf-8"))


def test_a_status_file_of_a_stranger(folder: Path, run: Run) -> None:
    path = run(until="corpus").directory / "status.json"
    value = json.loads(path.read_text())
    path.write_text(json.dumps({**value, "stages": {EVIL: {"done": 1, "total": 2, "rate": 1, "note": EVIL}}}))
    for options in ([], ["--json"]):
        assert_clean(call("show", folder / "job.yaml", "--runs", folder / "runs", *options))


def test_funnel_scores_and_card(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    steps = [FunnelStep("stage", 2, 1, {EVIL: 1})]
    content = make_content()
    corpus = [*content.corpus, CorpusRow("evil", EVIL, EVIL)]
    queries = [QueryRow(row.id, f"{row.text} {EVIL}", row.split, row.metadata) for row in content.queries]
    content = make_content(corpus=corpus, queries=queries, funnel=steps)
    manifest = write_dataset(tmp_path / "dataset", content)
    assert_clean_files(tmp_path / "dataset")
    assert load_manifest(tmp_path / "dataset") == manifest
    capsys.readouterr()
    scores = [{"system": EVIL, "nDCG@10": 0.5}]
    ranking = Study("", [Table([(EVIL,)], columns(EVIL)), Plain(EVIL)])
    result = RunResult(tmp_path, manifest, scores=scores, ranking=ranking, note=EVIL)
    print(result.study().text())
    assert_clean(result.study().html())
    assert_clean(capsys.readouterr().out)


def test_leaderboard(tmp_path: Path) -> None:
    row = DatasetScore(INFO.name, "qa", "law", "en", "test", {"nDCG@10": 0.5, "Recall@10": 0.0}, 10)
    write_leaderboard([SystemScore(EVIL, EVIL, "26.11", (row,))], tmp_path, title=EVIL)
    assert assert_clean_files(tmp_path)


def test_every_command_prints_with_one_function() -> None:
    commands = Path(airgen.commands.__file__).parent
    direct = [path.name for path in commands.glob("*.py") if re.search(r"typer\.echo\(|\bprint\(", path.read_text())]
    assert direct == ["printing.py"]


def test_errors(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "job.yaml"
    path.write_text('name: "a\\e[2J\\u202e\\x9b31m"\n"\\e]0;t\\a": 1\n', encoding="utf-8")
    with pytest.raises(SystemExit) as end:
        main(["run", str(path)])
    assert end.value.code == 1
    printed = capsys.readouterr().err
    assert "airgen: " in printed
    assert_clean(printed)
