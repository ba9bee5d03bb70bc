"""docs/papers.md has a row for every table and figure, with a command; and every command runs here, or says why not."""

import csv
import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest
import yaml
from beir_folder import read_rows, write_beir
from command_line import call
from http_double import Asked, answering
from job_maker import CORPUS, LEXICAL, make_corpus
from paper_models import make_models_of, make_paper_model

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
show collections e5-data
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
evaluate beir --systems systems-e5-data
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

# The lists of systems that run as they ship. Of systems-airbench, whose 39 models run in a test of their own, the suite
# gets a system of each family. systems-offline, which is no paper's, is a stand-in of three systems.
SHIPPED = ("systems-airbench", "systems-airbench-17", "systems-augment", "systems-beir", "systems-cosine-dot",
           "systems-e5", "systems-e5-data")  # fmt: skip

# What ends with another exit code than 0 here: forty passages are too few for so many queries, and it says so.
SAYS_WHY_NOT = {
    "airgen check full --target 6319": 1,
    "airgen study agree scifact --pipeline full --systems systems-airbench-17 --target 300 --check": 1,
}

BEIR = "| set | bm25 | deepct | sparta | doct5query | dpr | ance | tas-b | genq | colbert | bm25+ce |"
"""The columns of BEIR's Table 2, in its order."""

SAID = {
    "airgen evaluate beir --systems systems-beir": [
        BEIR, "| msmarco (in-domain) |", "| scifact |", "| better than bm25 |", "| worse than bm25 |",
        "Without 17 of 19 sets",
    ],
    "airgen evaluate beir --systems systems-e5": [
        "| set | bm25 | simcse | laprador | contriever |", "| msmarco (in-domain) |",
    ],
    "airgen evaluate beir --systems systems-e5-data": [
        "| set | no-fine-tuning | msmarco+nq | nli | all |", "| mean of 1 |",
    ],
    "airgen evaluate open-qa --systems systems-augment": [
        "Answers, ranking and latency", "Answer@5", "AP@1000", "p50 ms", "entityquestions", "trivia-open",
    ],
    "python benchmarks/e5.py --table 5 --steps 40 --pairs data/pairs --on cranfield": [
        "| batch 1,024, 40 steps |", "| batch 64, 40 steps |",
    ],
}  # fmt: skip
"""What some of them print."""

TABLES = {
    "airgen study agree msmarco --pipeline full --systems systems-airbench-17 --target 6319": (
        "AIR-Bench's Table 5", "runs/full-msmarco/agreement/agreement.md",
        r"\| system \| family \| human \| generated \|.* no quality control \|",
    ),
    "airgen evaluate suites/airbench/24.05 --systems systems-airbench --split test": (
        "AIR-Bench's Tables 22 and 23", "results/results.md", r"\| system \|",
    ),
    "airgen evaluate beir --systems systems-beir": ("BEIR's Table 2", "results/beir.md", re.escape(BEIR)),
    "airgen evaluate beir --systems systems-e5-data": ("E5's Table 6", "results/beir.md", r"\| set \|"),
}  # fmt: skip
"""The tables that are printed: their name, their file, and how their first line begins."""

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


def vector(text: str) -> list[float]:
    return [float(text.count(letter)) + 0.1 for letter in "aeioust"]


def embeddings(asked: Asked) -> tuple[int, object]:
    """Answer as a server of one model does (TEI, vLLM)."""
    return 200, {"data": [{"index": at, "embedding": vector(text)} for at, text in enumerate(asked.json()["input"])]}


@pytest.fixture
def checkpoints(rows: list[dict[str, str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Random models under the names of the papers' checkpoints, the shipped lists of systems beside them, and a server
    for each model that needs one."""
    for package in ("sentence_transformers", "FlagEmbedding", "peft"):
        pytest.importorskip(package)
    if not all(models.fetched(name) for name in ("all-minilm-l6-v2", "splade-bert-tiny")):
        pytest.skip("airgen fetch tests")
    fetched = cache_dir("models")
    monkeypatch.setenv("AIRGEN_CACHE", str(tmp_path / "cache"))
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache" / "models").symlink_to(fetched)
    with answering(embeddings) as url:
        for listed in SHIPPED:
            path = Path(f"{listed}.yaml")
            path.write_bytes(find_yaml("pipelines", listed).read_bytes())
            make_models_of(path)
            for variable in re.findall(r"base_url: \"\${(\w+)}\"", path.read_text("utf-8")):
                monkeypatch.setenv(variable, f"{url}/{variable}/v1")
        yield


def table_of(name: str, file: str, first: str) -> str:
    """The tables of a Markdown file with this first line."""
    parts = Path(file).read_text("utf-8").split("\n\n")
    tables = [part.strip() for part in parts if re.match(first, part)]
    assert tables, f"{file}: {first}"
    return "\n\n".join([f"{name}:", *tables])


def one_of_each_family() -> None:
    """Of the shipped systems-airbench, the first system of each family, and those of Table 11."""
    listed = yaml.safe_load(find_yaml("pipelines", "systems-airbench").read_text("utf-8"))["systems"]
    chosen = {system["family"]: system for system in reversed(listed)}.values()
    kept = [system for system in listed if system in chosen or "e5-mistral" in system["name"]]
    Path("systems-airbench.yaml").write_text(yaml.safe_dump({"systems": kept}, sort_keys=False), encoding="utf-8")


def rows_of(paper: str) -> Iterator[tuple[str, str, str]]:
    """The rows of docs/papers.md for a paper: the tables and figures, the line, and what the paper's figures need."""
    (section,) = re.findall(rf"^## {re.escape(paper)} .*?(?=^## |\Z)", PAPERS, re.MULTILINE | re.DOTALL)
    last = ""
    for line in re.findall(r"^\|.*\|$", section, re.MULTILINE):
        cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
        if names := re.findall(r"\*\*((?:Table|Figure)s? [\d, -]+)\*\*", line):
            yield ", ".join(names), line, cells[-1] if last in ("out of reach", "missing") else ""
        elif "---" not in line:
            last = cells[-1]


def states(ran: Mapping[str, str], *, others: bool) -> str:
    """A line for each table and figure of the papers with a command that ran, and for the `others` with none that is
    run: its state."""
    lines = ["The papers' tables and figures, on forty passages and with random models under the papers' names:"]
    for paper in HELD:
        for names, row, needs in rows_of(paper):
            printed = [f"{len(ran[text].splitlines())} lines of `{text}`" for text in ran if f"`{text}`" in row]
            why = [f"`{text}` is not run here ({reason})" for text, reason in NOT_HERE.items() if f"`{text}`" in row]
            if others and not printed and not any(f"`{text}`" in row for text in commands()):
                why = ["no command"]
            if printed or (others and why):
                needed = f" | the paper's figures need: {needs}" if needs else ""
                lines.append(f"{paper} {names}: {'; '.join(printed + why)}{needed}")
    return "\n".join(lines)


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
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")  # of FlagEmbedding and peft
@pytest.mark.usefixtures("checkpoints")
def test_the_commands_of_the_papers_run(
    rows: list[dict[str, str]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    record_property: Callable[[str, object], None],
) -> None:
    """As they are printed, on collections of forty passages, with the shipped systems and the scripted model."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    home = cache_dir(COLLECTIONS) / "beir"
    for name in ("msmarco", "scifact"):
        collection(str(home / name), rows)
    Path("small.yaml").write_text(CORPUS, encoding="utf-8")
    Path("full.yaml").write_text(LEXICAL.replace("name: job", "name: full"), encoding="utf-8")
    systems("systems-offline", "bm25", "bm25-multi", "ql")
    one_of_each_family()
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
    ran, kept = {}, []
    for printed in lines(RUN):
        print(printed)
        said = ran[printed] = follow(printed)
        assert "nan" not in said.split() and "Traceback" not in said, printed
        for words in SAID.get(printed, ()):
            assert words in said, printed
        if printed in TABLES:
            kept.append(table_of(*TABLES[printed]))
        if printed == "airgen publish diff suites/airbench/24.04 suites/airbench/24.05":
            assert "queries of test are dev queries now: their labels are public" in said
            assert "(trimmed)" in said and "added: long-doc_book_en/airbench-voyage" in said
            assert "should never happen" not in said
    record_property("printed", "\n\n".join([states(ran, others=True), *kept]))


@pytest.mark.nightly
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
@pytest.mark.usefixtures("checkpoints")
def test_the_39_models_of_airbench_run_by_one_command(record_property: Callable[[str, object], None]) -> None:
    """Table 15, and Table 11's second instruction: seven on servers, and RepLLaMA as an adapter of Llama 2."""
    printed = call("evaluate", "msmarco", "--systems", "systems-airbench")
    with Path("results/results.csv").open(encoding="utf-8", newline="") as file:
        scored = {row["system"] for row in csv.DictReader(file)}
    listed = yaml.safe_load(find_yaml("pipelines", "systems-airbench").read_text("utf-8"))["systems"]
    assert scored == {system["name"] for system in listed} and len(scored) == 40
    record_property("printed", printed)


def open_qa(rows: list[dict[str, str]]) -> None:
    """The collections of `open-qa`, converted as its instructions say, and MS MARCO."""
    home = cache_dir(COLLECTIONS) / "open-qa"
    passages = "".join(f"{row['_id']}\t{' '.join(row['text'].split())}\t{row['title']}\n" for row in rows)
    Path("psgs_w100.tsv").write_text(f"id\ttext\ttitle\n{passages}", encoding="utf-8")
    asked = [
        {"question": " ".join(row["text"].split()[3:9]), "answers": [" ".join(row["text"].split()[:2])]} for row in rows
    ]
    for name in ("nq-open", "entityquestions", "trivia-open"):
        words = []
        for split, questions in (("train", asked[12:]), ("test", asked[:12])):
            file = Path(f"{name}-{split}.json")
            if name == "entityquestions":  # a folder for each split, with a file for each relation
                file = Path("dataset", split, f"P19.{split}.json")
                file.parent.mkdir(parents=True)
            file.write_text(json.dumps(questions), encoding="utf-8")
            words.append(f"{split}={file.parent if name == 'entityquestions' else file}")
        call("train", "dpr", *words, "--passages", "psgs_w100.tsv", "--out", home / name)
    collection(str(home / "msmarco"), rows)


@pytest.mark.nightly
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
@pytest.mark.usefixtures("checkpoints")
def test_the_trainings_of_the_papers_run(
    rows: list[dict[str, str]], record_property: Callable[[str, object], None]
) -> None:
    """As they are printed, from random models of a few thousand weights under the names of the checkpoints."""
    zstd = pytest.importorskip("backports.zstd")
    for name in ("facebook/mcontriever-msmarco", "t5-base"):
        make_paper_model(name)
    for name in ("datasets/finance", "datasets/law"):
        collection(name, rows)
    for name in ("beir/msmarco", "beir/scifact", "e5-data/nli"):
        collection(str(cache_dir(COLLECTIONS) / name), rows)
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
    ran, kept = {}, []
    for printed in lines(TRAIN):
        print(printed)
        said_of_it = ran[printed] = follow(printed)
        assert "Traceback" not in said_of_it, printed
        for words in SAID.get(printed, ()):
            assert words in said_of_it, printed
        if printed in TABLES:
            kept.append(table_of(*TABLES[printed]))
    record_property("printed", "\n\n".join([states(ran, others=False), *kept]))
    card = read_card(Path("models/e5-ft")) or {}
    assert [part.get("teacher") for part in card["data"]["datasets"]] == [None, None, "none"]
    assert "RR@10" in Path("results/msmarco/dev/report.md").read_text("utf-8")
