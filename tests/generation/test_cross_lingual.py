"""Queries in another language than the corpus, from the prompts to the dataset, with a scripted model of German."""

import sys
from pathlib import Path
from typing import Any

import pytest
from beir_folder import read_rows
from job_maker import CORPUS, make_corpus, run_quietly

from airgen import models
from airgen.dataset.manifest import load_manifest
from airgen.errors import AirgenError, SettingsError
from airgen.job import Job
from airgen.job.preflight import advice
from airgen.llms.base import backend_class
from airgen.retrievers.encoding_cache import shared_encodings
from airgen.steps.step import stage_prompt
from airgen.text.language_check import untranslated, wrong_language

GERMAN = '''
"""The scripted model, whose queries are German."""
import json
from typing import ClassVar

from airgen.llms.scripted import ScriptedBackend, ScriptedSettings, asked_length, document, keywords
from airgen.components.keys import rng

FILLER = "und was sagt man dazu wenn es auf dem Land sehr lange nicht mehr so ist wie es früher immer war".split()


def german(request):
    count = asked_length(request)
    names = keywords(document(request), 2, rng("query", request.key))
    words = [*"wie ist das mit".split()[: max(1, count - 2)], *names, *FILLER]
    return json.dumps({"query": " ".join(words[:count]) + "?"}, ensure_ascii=False)


class GermanSettings(ScriptedSettings):
    backend: str = "german_llm:German"


class German(ScriptedBackend):
    Settings = GermanSettings
    SEEN: ClassVar[list] = []

    @classmethod
    def make(cls, settings, *, folder, rules):
        return cls(rules={**rules, "query": german, "rewrite": german})

    async def send(self, request):
        self.SEEN.append((request.stage, "\\n".join(one.content for one in request.messages)))
        return await super().send(request)
'''

PIPELINE = """
name: cross
task: qa
corpus: small.yaml
target: 4
llm: {backend: "german_llm:German", concurrency: 4}
generation: {types: {question: 1}, rewrites: 1, hard_negatives: [1, 2], query_language: de}
control: {recall: {pools_only: true, top_k: 20}, pools: [bm25], rerankers: [bm25]}
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    make_corpus(tmp_path / "small.jsonl", 24)
    (tmp_path / "small.yaml").write_text(CORPUS.replace("near_duplicates: null", "near_duplicates: null"))
    (tmp_path / "german_llm.py").write_text(GERMAN, encoding="utf-8")
    (tmp_path / "cross.yaml").write_text(PIPELINE, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "german_llm", raising=False)
    return tmp_path


def run(folder: Path, text: str = PIPELINE) -> tuple[Job, Any]:
    (folder / "cross.yaml").write_text(text, encoding="utf-8")
    job = Job(folder / "cross.yaml", folder / "runs")
    return job, run_quietly(job)


def test_from_the_prompts_to_the_dataset(folder: Path) -> None:
    job, _ = run(folder)
    queries, corpus = read_rows(job.dataset / "queries.jsonl"), read_rows(job.dataset / "corpus.jsonl")
    assert len(queries) == 4
    assert all(wrong_language(row["text"], "de") is None for row in queries)
    assert any(wrong_language(row["text"], "en") for row in queries)
    assert all(untranslated(row["text"], "en", "de") is None for row in corpus)
    info = load_manifest(job.dataset).info
    assert (info.language, info.languages) == ("en", ("en", "de"))
    assert info.description == "Cross-lingual retrieval: queries in German, documents in English."
    card = (job.dataset / "README.md").read_text(encoding="utf-8")
    assert "multilingual" in card and "queries in German, documents in English" in card
    # Queries and rewrites are requested in German, everything else in English.
    prompts = backend_class(job.pipeline.llm).SEEN  # type: ignore[attr-defined]
    for stage, text in prompts:
        asked = "Write in German, not in English (the language of the document)." in text
        assert asked == (stage in ("query", "rewrite")), (stage, text)
    assert {stage for stage, _ in prompts} >= {"character", "scenario", "query", "rewrite", "hard_negative", "judgment"}

    (folder / "cross.yaml").write_text(PIPELINE.replace("query_language: de", "query_language: xx"), encoding="utf-8")
    with pytest.raises(SettingsError, match=r"generation\.query_language: must be one of"):
        Job(folder / "cross.yaml")


def test_queries_in_the_documents_language_are_refused(folder: Path) -> None:
    """The scripted model writes English whatever it is asked: no such query is accepted, and the reason is kept."""
    text = PIPELINE.replace('"german_llm:German"', "scripted").replace("rewrites: 1", "rewrites: 1, lengths: {ge20: 1}")
    with pytest.raises(AirgenError, match="no query was accepted"):
        run(folder, text)
    with Job(folder / "cross.yaml", folder / "runs").open_store(read_only=True) as store:
        reasons = {reason for (reason,) in store.query("SELECT DISTINCT reason FROM skip WHERE stage = 'query'")}
    assert reasons == {"wrong language"}
    assert untranslated("what is the use of this and how long does it take", "it", "en") is None  # unknown words
    assert untranslated("was ist das und wie lange dauert es auf dem Land", "es", "de") is not None
    assert untranslated("cuánto tiempo dura el viaje a la costa", "es", "de") is None
    assert untranslated("die Frage", "de", "de") is None


def test_check_warns_of_what_knows_one_language(folder: Path) -> None:
    def lines(control: str) -> list[str]:
        text = PIPELINE.partition("control:")[0] + control
        (folder / "cross.yaml").write_text(text, encoding="utf-8")
        return advice(Job(folder / "cross.yaml", folder / "runs"))

    found = lines(
        "control: {recall: {model: all-minilm-l6-v2-int8}, pools: [rm3], rerankers: [BAAI/bge-reranker-large]}"
    )
    assert [line.partition(":")[0] for line in found if "English only" in line] == ["control.recall.model"]
    assert {line[:15] for line in found if "compares words" in line} == {"control.pools.0"}
    assert "multilingual-e5-small-q4" in found[0]
    two = "rerankers: [multilingual-e5-small-q4]}"
    assert lines(f"control: {{recall: {{model: BAAI/bge-m3}}, {two}") == []
    (line,) = lines(f"control: {{recall: {{model: BAAI/bge-large-en-v1.5}}, {two}")
    assert "BAAI/bge-large-en-v1.5 knows English only, and cannot compare German with English" in line
    (folder / "cross.yaml").write_text(PIPELINE.replace(", query_language: de", ""), encoding="utf-8")
    assert advice(Job(folder / "cross.yaml", folder / "runs")) == []  # lexical control of one language is no fault


def test_instructions_are_in_the_language_of_the_answer(folder: Path) -> None:
    """A small model is asked for German queries in German, and for characters of the English document in English."""
    small = PIPELINE.replace("rewrites: 1", "rewrites: 1, prompts: small")
    (folder / "cross.yaml").write_text(small, encoding="utf-8")
    job = Job(folder / "cross.yaml", folder / "runs")
    names = ("character", "scenario", "query", "rewrite", "hard_negative")
    found = {name: stage_prompt(job.pipeline, job.prompts, name).name for name in names}
    assert found == {
        "character": "small/character", "scenario": "small/scenario", "query": "small/de/query",
        "rewrite": "small/de/rewrite", "hard_negative": "small/hard_negative",
    }  # fmt: skip


def test_own_queries_of_another_language(folder: Path) -> None:
    """`other_language: skip` goes by the language of the queries."""
    (folder / "log.txt").write_text("wie ist das mit den bridges im Winter\nhow are the bridges in the winter\n")
    text = PIPELINE + "queries: {file: log.txt, other_language: skip}\n"
    job, _ = run(folder, text)
    assert [row["text"] for row in read_rows(job.dataset / "queries.jsonl")] == [
        "wie ist das mit den bridges im Winter"
    ]


@pytest.mark.nightly
@pytest.mark.skipif(not models.fetched("multilingual-e5-small-q4"), reason="airgen fetch multilingual-e5-small-q4")
def test_a_multilingual_model_recalls_and_votes(folder: Path) -> None:
    make_corpus(folder / "small.jsonl", 8)  # the model needs a tenth of a second for a passage
    control = "control: {recall: {model: multilingual-e5-small-q4, top_k: 20}, rerankers: [multilingual-e5-small-q4]}\n"
    with shared_encodings(folder / "embeddings"):
        job, result = run(folder, PIPELINE.partition("control:")[0].replace("target: 4", "target: 2") + control)
    assert result.manifest is not None and len(read_rows(job.dataset / "queries.jsonl")) == 2
    assert advice(job) == []
