"""docs/papers.md has a row for every table and figure, with a command; and every command runs here, or says why not."""

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from beir_folder import read_rows, write_beir
from command_line import call
from job_maker import CORPUS, LEXICAL, make_corpus
from small_models import make_bert, make_t5

import airgen
from airgen import cli, models
from airgen.settings.base import find_yaml
from airgen.storage.paths import COLLECTIONS, cache_dir
from airgen.training.task import read_card

ROOT = Path(airgen.__file__).parents[1]
PAPERS = "".join((ROOT / "docs" / name).read_text("utf-8") for name in ("papers.md", "papers-airbench.md"))

# The tables and figures of each paper; 7 of BEIR's is not in the text that the project has.
HELD = {
    "AIR-Bench": (set(range(1, 24)), set(range(1, 7))),
    "BEIR": (set(range(1, 11)) - {7}, set(range(1, 6))),
    "BM25 query augmentation": ({1, 2, 3, 4}, set()),
    "E5": (set(range(1, 14)), {1}),
}

# In the order in which one needs the other. A stand-in has the name that the command gives: pipelines, systems,
# collections and models are folders and files of the test.
RUN = """
check airbench-24.04
check airbench-24.05
run airbench-24.04
run airbench-24.05
publish diff suites/airbench/24.04 suites/airbench/24.05
study stats suites/airbench/24.05
evaluate suites/airbench/24.05 --systems systems-airbench --split test
evaluate suites/airbench/24.05 --systems systems-airbench
study correlate results --by task
study correlate results mteb-results --names names.yaml
study correlate results ~/.cache/mteb/results --names names.yaml
check full --target 6319
run full
show full --queries
show prompts judge
show collections beir
show collections open-qa
evaluate scifact --systems systems-offline
evaluate msmarco --systems systems-airbench --only e5-mistral-7b-instruct --only e5-mistral-7b-instruct-Instr-2
evaluate cranfield --systems systems-cosine-dot --only bert-tiny-cosine --only bert-tiny-dot --lengths
evaluate beir --systems systems-beir
evaluate beir --systems systems-beir --metrics "R_cap@100 Recall@100"
evaluate beir --systems systems-cosine-dot --lengths
study correlate results --by dataset
study correlate offline.csv --by dataset
report results
audit holes scifact --run results/scifact/test/bm25.run.gz --run results/scifact/test/bm25-multi.run.gz --pipeline full
study diversity scifact cranfield medline
study diversity full --label-with full
study inspect scifact
study judge --simulate scifact --pipeline full --systems systems-offline
study stats scifact
study stats beir
study gain cranfield medquad-liveqa-open scifact --systems systems-offline --before bm25 --after bm25-multi
study agree msmarco --pipeline full --systems systems-airbench --check
study agree scifact --pipeline full --systems systems-airbench-17 --target 300 --check
study agree msmarco --pipeline full --systems systems-airbench-17 --target 6319
study agree msmarco --pipeline full --systems systems-airbench-17 --draws 30 --drawn 2000
study stats msmarco runs/full-msmarco/dataset runs/full-msmarco/agreement/datasets/without-control
"""

TRAIN = """
train recipe pretrain
train recipe encoder
train pairs cranfield --out pairs
train pretrain --on pairs --base all-minilm-l6-v2 --out minilm-cranfield --set batch_size=64 --set max_steps=40
study gain cranfield medline --before all-minilm-l6-v2 --after minilm-cranfield
train pairs reddit:RS_2022-08.zst reddit:RC_2022-08.zst pairs:gooaq.jsonl --out data/pairs
train pretrain --on data/pairs --base bert-base-uncased --out models/e5
python benchmarks/e5.py --table 5 --steps 40 --pairs data/pairs --on cranfield
python benchmarks/e5.py --table 7 --pairs data/pairs --on cranfield
python benchmarks/e5.py --table 8 --pairs data/pairs --on cranfield
train encoder --on msmarco --on nq --on nli=1,teacher=none --base models/e5 --out models/e5-ft --set teacher=BAAI/bge-reranker-base
evaluate beir --systems systems-e5
evaluate open-qa --systems systems-e5 --metrics "RR@10 Recall@1000"
train encoder --on msmarco --base distilbert-base-uncased --set similarity=dot --out models/dot
evaluate open-qa --systems systems-augment
train augment --on nq --base distilbert-base-uncased --recipe augment-nq --out models/ablation --ablate
python benchmarks/augment.py train work cranfield scifact
train doct5query --on msmarco --base t5-base --out models/doct5query
train expand scifact --model models/doct5query --out scifact-queries.jsonl
train genq scifact --model models/doct5query --base sentence-transformers/msmarco-distilbert-base-tas-b --out models/genq-scifact
train flag-embedding --on msmarco --base facebook/mcontriever-msmarco --recipe finetune-airbench --out models/finance
study gain datasets/finance datasets/law --before facebook/mcontriever-msmarco --after models/finance
"""  # noqa: E501

# What ends with another exit code than 0 here: forty passages are too few for so many queries, and it says so.
SAYS_WHY_NOT = {
    "airgen check full --target 6319": 1,
    "airgen study agree scifact --pipeline full --systems systems-airbench-17 --target 300 --check": 1,
}

SAID = {
    "airgen evaluate beir --systems systems-e5": ["| msmarco (in-domain) |"],
    "airgen evaluate open-qa --systems systems-augment": [
        "nq-open: augmented first trains augment", "Answers, ranking and latency", "Answer@5", "AP@1000", "p50 ms",
    ],
    "python benchmarks/e5.py --table 5 --steps 40 --pairs data/pairs --on cranfield": [
        "| batch 1,024, 40 steps |", "| batch 64, 40 steps |",
    ],
}  # fmt: skip
"""What some of them print."""

NOT_HERE = {
    "airgen fetch beir": "BEIR's server; tests/corpus has a double of it",
    "airgen init --demo": "a language model of a gigabyte; `make demo` runs it",
    "airgen check": "the name of a command, in a sentence",
    "airgen publish submit": "the name of a command, in a sentence; tests/publishing runs it",
}


def commands() -> set[str]:
    """Every command of the page as it is printed: code spans, and lines of shell blocks."""
    kind, lines, text = None, [], []
    for line in PAPERS.splitlines():
        if line.startswith("```"):
            kind = line[3:] if kind is None else None
        elif kind == "":
            lines.append(line)
        elif kind is None:
            text.append(line)
    spans = (" ".join(span.split()) for span in re.findall(r"`([^`]+)`", "\n".join(text)))
    return {line for line in (*lines, *spans) if re.match(r"(?:airgen [a-z]|python benchmarks/)", line)}


def lines(text: str) -> list[str]:
    """The commands of a list, as they are printed."""
    return [line if line.startswith("python") else f"airgen {line}" for line in text.strip().splitlines()]


def numbers(section: str, what: str) -> set[int]:
    """The numbers after "Table" or "Figure" in bold: `**Tables 12-14**` is three."""
    found: set[int] = set()
    for text in re.findall(rf"\*\*{what}s? ([\d, -]+)\*\*", section):
        for part in text.split(","):
            first, _, last = part.strip().partition("-")
            found |= set(range(int(first), int(last or first) + 1))
    return found


@pytest.mark.parametrize("paper", HELD)
def test_every_table_and_figure_has_a_row(paper: str) -> None:
    (section,) = re.findall(rf"^## {re.escape(paper)} .*?(?=^## |\Z)", PAPERS, re.MULTILINE | re.DOTALL)
    assert (numbers(section, "Table"), numbers(section, "Figure")) == HELD[paper]
    for row in re.findall(r"^\| \*\*(?:Table|Figure).*$", section, re.MULTILINE):
        assert "`" in row or "none" in row, row  # a command, or a word on why there is none


def test_what_commands_name_ships() -> None:
    """What docs/papers.md names: pipelines and systems by name, scripts, test files and recipes by path."""
    named = set()
    for text in commands():
        named |= set(re.findall(r"--(?:pipeline|systems|label-with) (\S+)", text))
        if re.match(r"airgen (?:check|run|show) (?:\w+-)*[\w.]+", text) and len(text.split()) > 2:
            job = (cli.find_app(text.split()[1:])[2] or [""])[0].partition("#")[0]
            named |= {job} if re.match(r"airgen (check|run|show) " + job, text) else set()
    assert {"full", "systems-airbench-17", "systems-offline", "airbench-24.05"} <= named
    for name in named:
        assert find_yaml("pipelines", name).is_file(), name
    paths = re.findall(r"\b((?:benchmarks|tests|pipelines|prompts)/[\w/.-]+\.\w+)", PAPERS)
    assert paths and [path for path in paths if not (ROOT / path).is_file()] == []


def test_every_command_is_run_or_says_why_not() -> None:
    tried = {*lines(RUN), *lines(TRAIN), *NOT_HERE}
    assert commands() == tried
    assert [
        text for text in commands() if re.search(r"\b[A-Z]{4,}\b", text.replace("BAAI", ""))
    ] == []  # no placeholder


def follow(printed: str) -> str:
    """Run a command in this folder, word for word, as a shell does."""
    words = [os.path.expanduser(word) for word in shlex.split(printed)]
    if words[0] == "python":
        ran = subprocess.run([sys.executable, ROOT / words[1], *words[2:]], capture_output=True, text=True, check=False)
        assert ran.returncode == 0, ran.stderr[-2000:]
        return ran.stdout
    return call(*words[1:], code=SAYS_WHY_NOT.get(printed, 0))


def collection(name: str, rows: list[dict[str, str]], first: int = 0) -> Path:
    """A collection of these passages, whose queries are words of theirs: 12 of test, 24 of train, 4 of dev."""
    queries = [
        {"_id": f"q{at}", "text": " ".join(row["text"].split()[3 + first : 9 + first])} for at, row in enumerate(rows)
    ]
    splits = {"test": range(12), "train": range(12, 36), "dev": range(36, 40)}
    labels = {split: [(f"q{at}", rows[at]["_id"], 1) for at in places] for split, places in splits.items()}
    return write_beir(Path(name), rows, queries, labels, name=Path(name).name, task="qa", language="en")


@pytest.fixture
def rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[dict[str, str]]:
    """Forty passages; the collections of the page are made of them."""
    monkeypatch.chdir(tmp_path)
    make_corpus(Path("small.jsonl"), 40)
    passages = [{**row, "_id": row["id"]} for row in read_rows(Path("small.jsonl"))]
    for at, name in enumerate(("scifact", "cranfield", "medline", "medquad-liveqa-open", "msmarco", "nq", "nli")):
        collection(name, passages, at)
    return passages


def systems(
    name: str, *named: str, kinds: tuple[str, ...] = ("kind: bm25", "kind: bm25, k1: 0.2", "kind: bm25, b: 0")
) -> None:
    """A list of systems under the names that the commands give."""
    listed = (f"  - {{name: {system}, {kinds[at % len(kinds)]}}}\n" for at, system in enumerate(named))
    Path(f"{name}.yaml").write_text("systems:\n" + "".join(listed), encoding="utf-8")


def suite() -> None:
    """Two versions of a suite: the second opens two test sets, trims a corpus, splits a dataset, and has one more."""
    for name, text in (
        ("web", CORPUS.replace("small.jsonl", "web.jsonl")),
        ("book", CORPUS.replace("kind: jsonl, path: small.jsonl", "kind: text, path: book.txt")),
    ):
        Path(f"{name}.yaml").write_text(text.replace("name: small", f"name: {name}"), encoding="utf-8")
    make_corpus(Path("web.jsonl"), 120)
    Path("book.txt").write_text("\n\n".join(row["text"] for row in read_rows(Path("small.jsonl"))), encoding="utf-8")
    common = LEXICAL.partition("control:")[2]
    head = f"""name: airbench
version: "24.0%s"
common:
  llm: {{backend: scripted, concurrency: 8}}
  target: 6
  task: qa
  language: en
  control:{common.replace(chr(10), chr(10) + "  ")}
datasets:
"""
    long_doc = "task: long-doc, domain: book, corpus: book.yaml"
    Path("airbench-24.04.yaml").write_text(
        head % 4
        + f"""  web-en: {{domain: web, corpus: web.yaml, split: test, pipeline: {{export: {{splits: {{test: 1}}}}}}}}
  msmarco: {{domain: web, corpus: web.yaml, split: test}}
  origin: {{{long_doc}, split: test}}
""",
        encoding="utf-8",
    )
    Path("airbench-24.05.yaml").write_text(
        head % 5
        + f"""  web-en: {{domain: web, corpus: web.yaml, max_passages: 110}}
  msmarco: {{domain: web, corpus: web.yaml, split: dev}}
  origin: {{{long_doc}, split: dev}}
  voyage: {{{long_doc}, split: test}}
""",
        encoding="utf-8",
    )


@pytest.mark.nightly
def test_the_commands_of_the_papers_run(
    rows: list[dict[str, str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As they are printed, on collections of forty passages, with lexical systems and the scripted model."""
    monkeypatch.setenv("AIRGEN_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    home = cache_dir(COLLECTIONS) / "beir"
    for name in ("msmarco", "scifact"):
        collection(str(home / name), rows)
    Path("small.yaml").write_text(CORPUS, encoding="utf-8")
    Path("full.yaml").write_text(LEXICAL.replace("name: job", "name: full"), encoding="utf-8")
    systems("systems-offline", "bm25", "bm25-multi", "ql")
    systems("systems-airbench", "BM25", "e5-mistral-7b-instruct", "e5-mistral-7b-instruct-Instr-2")
    systems("systems-airbench-17", "bm25", "flat", "ql")
    systems("systems-beir", "bm25", "deepct", "doct5query")
    systems("systems-cosine-dot", "bert-tiny-cosine", "bert-tiny-dot")
    suite()
    Path("names.yaml").write_text(
        "org/a: BM25\norg/b: e5-mistral-7b-instruct\norg/c: e5-mistral-7b-instruct-Instr-2\n", encoding="utf-8"
    )
    for folder in (Path("mteb-results"), tmp_path / "home" / ".cache" / "mteb" / "results"):
        for at, name in enumerate(("a", "b", "c")):
            place = folder / f"org__{name}" / "no_revision_available"
            place.mkdir(parents=True)
            about = {"dataset_revision": None, "mteb_dataset_name": "NFCorpus", "mteb_version": "1.1.2"}
            scores = {"ndcg_at_10": at / 10, "main_score": at / 10}
            (place / "NFCorpus.json").write_text(json.dumps({**about, "test": scores}), encoding="utf-8")
    Path("offline.csv").write_text("system,cranfield,medline\nbm25,.3,.6\nql,.2,.5\nflat,.1,.4\n", encoding="utf-8")
    for printed in lines(RUN):
        print(printed)
        said = follow(printed)
        assert "nan" not in said.split() and "Traceback" not in said, printed
        if printed == "airgen publish diff suites/airbench/24.04 suites/airbench/24.05":
            assert "queries of test are dev queries now: their labels are public" in said
            assert "(trimmed)" in said and "added: long-doc_book_en/airbench-voyage" in said
            assert "should never happen" not in said


def open_qa(rows: list[dict[str, str]]) -> None:
    """The collections of `open-qa`, converted as its instructions say, and MS MARCO."""
    home = cache_dir(COLLECTIONS) / "open-qa"
    passages = "".join(f"{row['_id']}\t{' '.join(row['text'].split())}\t{row['title']}\n" for row in rows)
    Path("psgs_w100.tsv").write_text(f"id\ttext\ttitle\n{passages}", encoding="utf-8")
    asked = [
        {"question": " ".join(row["text"].split()[3:9]), "answers": [" ".join(row["text"].split()[:2])]} for row in rows
    ]
    for name in ("nq-open", "entityquestions", "trivia-open"):
        files = {"train": Path(f"{name}-train.json"), "test": Path(f"{name}-test.json")}
        for file, questions in zip(files.values(), (asked[12:], asked[:12]), strict=True):
            file.write_text(json.dumps(questions), encoding="utf-8")
        call("train", "dpr", *(f"{split}={file}" for split, file in files.items()), "--passages", "psgs_w100.tsv",
             "--out", home / name)  # fmt: skip
    collection(str(home / "msmarco"), rows)


@pytest.mark.nightly
def test_the_trainings_of_the_papers_run(rows: list[dict[str, str]], monkeypatch: pytest.MonkeyPatch) -> None:
    """As they are printed, from random models of a few thousand weights under the names of the checkpoints."""
    pytest.importorskip("sentence_transformers")
    zstd = pytest.importorskip("backports.zstd")
    if not all(models.fetched(name) for name in ("all-minilm-l6-v2", "splade-bert-tiny")):
        pytest.skip("airgen fetch tests")
    for name in ("bert-base-uncased", "distilbert-base-uncased"):
        make_bert(Path(name))
    for name in (
        "sentence-transformers/msmarco-distilbert-base-tas-b",
        "facebook/mcontriever-msmarco",
    ):
        make_bert(Path(name), masked_lm=False)
    make_bert(Path("BAAI/bge-reranker-base"), ranks=True)
    make_t5(Path("t5-base"))
    for name in ("datasets/finance", "datasets/law"):
        collection(name, rows)
    systems("systems-e5", "bm25", "e5", kinds=("kind: bm25", "kind: dense, embedder: models/e5-ft"))
    fetched = cache_dir("models")
    monkeypatch.setenv("AIRGEN_CACHE", str(Path("cache").resolve()))
    Path("cache").mkdir()
    Path("cache", "models").symlink_to(fetched)
    for name in ("msmarco", "scifact"):
        collection(str(cache_dir(COLLECTIONS) / "beir" / name), rows)
    open_qa(rows)
    posts = [
        {"id": f"t{at}", "title": row["title"], "selftext": row["text"], "score": 5, "subreddit": "x"}
        for at, row in enumerate(rows)
    ]
    said = [
        {"id": f"c{at}", "link_id": f"t3_t{at}", "parent_id": f"t3_t{at}", "body": row["text"], "score": 5}
        for at, row in enumerate(rows)
    ]
    for name, made in (("RS_2022-08.zst", posts), ("RC_2022-08.zst", said)):
        Path(name).write_bytes(zstd.compress("".join(json.dumps(row) + "\n" for row in made).encode()))
    pairs = [json.dumps([" ".join(row["text"].split()[:6]), row["text"]]) for row in rows]
    Path("gooaq.jsonl").write_text("\n".join(pairs) + "\n", encoding="utf-8")
    for printed in lines(TRAIN):
        print(printed)
        said_of_it = follow(printed)
        assert "Traceback" not in said_of_it, printed
        for words in SAID.get(printed, ()):
            assert words in said_of_it, printed
    card = read_card(Path("models/e5-ft")) or {}
    assert [part.get("teacher") for part in card["data"]["datasets"]] == [None, None, "none"]
    assert "RR@10" in Path("results/msmarco/dev/report.md").read_text("utf-8")
