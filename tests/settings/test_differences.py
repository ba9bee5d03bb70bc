"""docs/differences.md against pipelines/full.yaml and the defaults: it says what the code does, and omits nothing.

Each row of its table has a check here, by the row's title. A new row needs one too.
"""

import re
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

import airgen
from airgen.corpus.settings import MASKED_DOMAINS, CleanSettings, LongDocSettings
from airgen.generation.attributes import TYPE_TEXT
from airgen.generation.query_checks import wrong_type
from airgen.settings import Pipeline
from airgen.steps.votes import SOURCE_LABEL

ROOT = Path(airgen.__file__).parents[1]
TEXT = (ROOT / "docs" / "differences.md").read_text(encoding="utf-8")
LINES = [line.strip("| ").split(" | ") for line in TEXT.partition("\n## ")[0].splitlines() if line.startswith("| ")]
ROWS = {title: airgen_does for title, _, airgen_does in LINES[1:]}
FULL = yaml.safe_load((ROOT / "pipelines" / "full.yaml").read_text(encoding="utf-8"))
SYSTEMS = yaml.safe_load((ROOT / "pipelines" / "systems-airbench.yaml").read_text(encoding="utf-8"))["systems"]
SUITE = yaml.safe_load((ROOT / "pipelines" / "airbench-24.05.yaml").read_text(encoding="utf-8"))
NINE = {"news", "web", "wiki", "science", "finance", "healthcare", "law", "arxiv", "book"}
QA, LONG = (
    Pipeline.model_validate({"name": "p", "task": task, "corpus": "c", "target": 1, "llm": {"backend": "scripted"}})
    for task in ("qa", "long-doc")
)
JUDGE = QA.control.judge
BM25 = next(one for one in SYSTEMS if one["kind"] == "bm25")
WORDS_OF = {7: "Seven", 39: "39"}


def served() -> int:
    """How many of Table 15's models a server runs."""
    return sum(isinstance(one.get("embedder"), dict) and one["embedder"]["kind"] == "http" for one in SYSTEMS)


# Title of the row: what it must say, by the code, and whether the code is as it says.
CHECKS: dict[str, tuple[Callable[[], list[str]], Callable[[], bool]]] = {
    "Order": (
        lambda: ["generation.negatives_of: all", "own document is judged first"],
        lambda: QA.generation.negatives_of == "accepted",
    ),
    "What is relevant": (lambda: ["The same", "control.judge.kind: votes"], lambda: JUDGE.kind == "paper"),
    "Cutoff of the four levels": (
        lambda: [f"Levels {JUDGE.relevant_from} and 3", "control.judge.relevant_from"],
        lambda: FULL["control"]["judge"]["relevant_from"] == JUDGE.relevant_from,
    ),
    "Rewrites": (lambda: ["The same with the large prompts"], lambda: QA.generation.free_rewrites),
    "Names (A.1)": (
        lambda: ["the paper's nine domains", "--unmasked"],
        lambda: NINE <= MASKED_DOMAINS and CleanSettings().names == "auto",
    ),
    "Cleaning (A.1)": (
        lambda: [f"Texts of {CleanSettings().min_tokens} to {CleanSettings().max_tokens:,} tokens"],
        lambda: CleanSettings().near_duplicates is not None,
    ),
    "Which passages (2.3)": (lambda: ["generation.unasked: keep"], lambda: QA.generation.unasked == "skip"),
    "Zero-shot prompts (2.3)": (lambda: ["large models are zero-shot"], lambda: QA.generation.prompts == "default"),
    "Types (A.2.1)": (
        lambda: [TYPE_TEXT["problem"], "query or rewrite"],
        lambda: wrong_type("How do I mend it?", "problem", "en") is not None,
    ),
    "Checks of answers": (
        lambda: ["A query or rewrite", "language, length class, type"],
        lambda: wrong_type("It is broken.", "question", "en") is not None,
    ),
    "Splits of QA (A.4)": (
        lambda: ["{dev}:{test}".format(**QA.export.splits), "export: {exact: true}"],
        lambda: not QA.export.exact and FULL["export"]["splits"] == QA.export.splits,
    ),
    "LLM (4.1)": (
        lambda: [FULL["llm"]["model"], "the suites"],
        lambda: FULL["llm"]["model"] == SUITE["common"]["llm"]["model"],
    ),
    "Documents (2.3)": (
        lambda: [f"generation.queries_per_passage: {QA.generation.queries_per_passage}", "without replacement"],
        lambda: "queries_per_passage" not in FULL["generation"],
    ),
    "Negatives of other queries (A.3)": (
        lambda: ["{{hard_negative: {hard_negative}, other: {other}}}".format(**FULL["control"]["thresholds"])],
        lambda: FULL["control"]["thresholds"] == QA.control.thresholds.model_dump(),
    ),
    "Parts of a book (A.1)": (
        lambda: ["Front matter and index", "remove: [contents, references]"],
        lambda: {*LongDocSettings().remove} - {"contents", "references"} == {"front-matter", "index"},
    ),
    "MS MARCO (4.1, B.1)": (
        lambda: ["another copy on the Hub", "from any passage"],
        lambda: SUITE["datasets"]["msmarco"]["corpus"] == "hub-msmarco-en",
    ),
    "Numbers that are not given": (
        lambda: [
            "{characters} characters, {scenarios} scenarios, {rewrites} rounds".format(**QA.generation.model_dump()),
            f"{JUDGE.temperature:g} for the judge",
        ],
        lambda: FULL["generation"]["rewrites"] == QA.generation.rewrites,
    ),
    "Prompts": (lambda: ["Table 8 is used word for word"], lambda: FULL["control"]["judge"]["prompt"] == "judge"),
    "Types of Long-Doc": (
        lambda: ["{question:g} : {claim:g}".format(**LONG.generation.types)],
        lambda: QA.generation.types["question"] == LONG.generation.types["question"],
    ),
    "Without quality control (Table 5)": (
        lambda: ["generation: {negatives_of: all}"], lambda: QA.generation.negatives_of == "accepted",
    ),
    "Chunks of Long-Doc (A.1)": (
        lambda: [f"{LongDocSettings().chunk_size} tokens with an overlap of {LongDocSettings().chunk_overlap}"],
        lambda: "chunk_size: 160" in ROWS["Chunks of Long-Doc (A.1)"],
    ),
    "BM25 (E.1)": (lambda: [f"k1: {BM25['k1']}", f"b: {BM25['b']}", "lossy_lengths: true"], lambda: True),
    "Models with code in their repositories (Table 15)": (
        lambda: [f"{WORDS_OF[served()]} of the {WORDS_OF[39]} models"],
        lambda: len({one["name"].removesuffix("-Instr-2") for one in SYSTEMS}) == 39,
    ),
    "Labels": (lambda: [f"its source has {SOURCE_LABEL}"], lambda: True),
}  # fmt: skip
PROSE = {
    "Similarity", "Length of texts (E.2)", "Fine-tuning (4.3)", "BAAI's models", "Language of the instructions",
    "Similarity of corpora, near duplicates", "Judging with a small model",
}  # fmt: skip
"""Rows about methods and models, which other tests cover."""


def test_every_row_is_checked() -> None:
    assert sorted(ROWS) == sorted({*CHECKS, *PROSE})


@pytest.mark.parametrize("title", CHECKS)
def test_the_row_says_what_the_code_does(title: str) -> None:
    words, so = CHECKS[title]
    assert [one for one in words() if one not in ROWS[title]] == []
    assert so()


def test_the_papers_pipeline_has_no_other_difference() -> None:
    """pipelines/full.yaml sets nothing but the paper's numbers, which are the defaults."""
    full = Pipeline.model_validate(FULL)
    for part in ("generation", "control", "export"):
        assert getattr(full, part).model_dump() == getattr(QA, part).model_dump(), part
    assert set(FULL) == {"name", "task", "corpus", "language", "domain", "target", "seed", "llm"} | {
        "generation", "control", "export",
    }  # fmt: skip


@pytest.mark.parametrize("path", sorted(set(re.findall(r"`((?:generation|control|export)\.[a-z_.]+)", TEXT))))
def test_every_setting_that_is_named_exists(path: str) -> None:
    value: object = QA
    for name in path.rstrip(".").split("."):
        value = getattr(value, name)
