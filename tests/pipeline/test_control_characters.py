"""Nothing that the program prints or writes has a raw control character, whatever a document or a model said."""

import io
import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from command_line import call
from dataset_maker import INFO, make_content
from rich.console import Console

import airgen.commands
from airgen.cli import main
from airgen.commands.command import echo
from airgen.dataset.content import CorpusRow, FunnelStep, QueryRow
from airgen.dataset.manifest import load_manifest
from airgen.dataset.write import write_dataset
from airgen.kept import plain
from airgen.pipeline import Job, RunResult
from airgen.pipeline.progress import Display
from airgen.pipeline.run import result_lines, result_values, run_job
from airgen.publishing.leaderboard import write_leaderboard
from airgen.publishing.scores import DatasetScore, SystemScore
from airgen.quality.audit.label_audit import draw_labels
from airgen.text.display import csv_text, html_text, json_text, md, plain_text, terminal_lines, terminal_table, visible

EVIL = "\x1b[2J\x1b]0;title\x07\u202egnp.exe\u2066x\u2069\x00\x08\x7f\x85\x9b31m\x9d0;t\x9c\rbees"
RAW = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def assert_clean(text: str, *, colours: bool = False) -> None:
    """No control character; `colours` allows what rich itself sends to a terminal."""
    if colours:
        text = re.sub(r"\x1b\[[0-9;?]*[mKAlh]|\r", "", text)
    found = RAW.search(text)
    assert found is None, text[max(0, found.start() - 40) : found.end() + 40]


def assert_clean_files(folder: Path) -> None:
    """No file of text below the folder holds one; values of JSON may, as escapes."""
    paths = [path for path in folder.rglob("*") if path.suffix in (".jsonl", ".json", ".md", ".csv", ".html", ".tsv")]
    assert paths
    for path in paths:
        assert_clean(path.read_text(encoding="utf-8"))


@pytest.mark.parametrize("sink", [visible, plain_text, terminal_lines, md, html_text, json_text])
def test_each_sink(sink: Callable[[str], str]) -> None:
    assert_clean(sink(EVIL.replace("\r", "") if sink is plain_text else EVIL))
    ordinary = "Grüße, «naïve» 日本語\u3000می\u200cخواهم\n\tone\r\n"
    if sink in (visible, plain_text):
        assert sink(ordinary) == ordinary
    assert json.loads(json_text({"a": EVIL})) == {"a": EVIL}


def test_tables() -> None:
    assert_clean(terminal_table([["a", "b"], [EVIL, "1"]]))
    assert_clean(csv_text(["a"], [[EVIL.replace("\r", "")]]))
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
    job = Job(poisoned / "job.yaml", poisoned / "runs")
    screen = io.StringIO()
    display = Display(job.directory / "status.json", Console(file=screen, force_terminal=True, width=300))
    result = run_job(job, display)
    assert "bees" in screen.getvalue() or "last:" in screen.getvalue()
    assert_clean(screen.getvalue(), colours=True)
    assert_clean((job.directory / "status.json").read_text(encoding="utf-8"))

    assert_clean_files(job.dataset)
    for line in (job.dataset / "queries.jsonl").read_text(encoding="utf-8").splitlines():
        assert_clean(json.loads(line)["text"])
    for line in (job.dataset / "corpus.jsonl").read_text(encoding="utf-8").splitlines():
        assert_clean(json.loads(line)["text"].replace("\n", " "))

    arguments = [job.path, "--runs", poisoned / "runs"]
    listed = call("show", *arguments, "--queries")
    assert "q" in listed
    for options in ([], ["--json"]):
        for words in ([], ["--queries"], [listed.split()[0]]):
            assert_clean(call("show", job.path, *words, *arguments[1:], *options))
    draw_labels(job, 20, poisoned / "audit")
    assert_clean_files(poisoned / "audit")
    capsys.readouterr()
    print("\n".join(result_lines(result)))
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


def test_a_status_file_of_a_stranger(folder: Path, run: Callable[..., RunResult]) -> None:
    result = run()
    path = result.directory / "status.json"
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
    print("\n".join(result_lines(RunResult(tmp_path, manifest, scores=scores, ranking=EVIL, note=EVIL))))
    assert_clean(capsys.readouterr().out)


def test_leaderboard(tmp_path: Path) -> None:
    row = DatasetScore(INFO.name, "qa", "law", "en", "test", {"nDCG@10": 0.5, "Recall@10": 0.0}, 10)
    write_leaderboard([SystemScore(EVIL, EVIL, "26.11", (row,))], tmp_path, title=EVIL)
    assert_clean_files(tmp_path)


def test_errors(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "job.yaml"
    path.write_text('name: "a\\e[2J\\u202e\\x9b31m"\n"\\e]0;t\\a": 1\n', encoding="utf-8")
    with pytest.raises(SystemExit) as end:
        main(["run", str(path)])
    assert end.value.code == 1
    printed = capsys.readouterr().err
    assert "airgen: " in printed
    assert_clean(printed)


def test_every_command_prints_with_one_function() -> None:
    commands = Path(airgen.commands.__file__).parent
    direct = [path.name for path in commands.glob("*.py") if re.search(r"typer\.echo\(|\bprint\(", path.read_text())]
    assert direct == ["command.py"]
