"""Settings of pipelines, and their reference."""

import importlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import typer
import yaml
from command_line import call
from pydantic import ValidationError

from airgen.cli import words_of
from airgen.commands import COMMANDS
from airgen.commands.command import app_of
from airgen.components.registry import REGISTRY
from airgen.corpus.settings import CleanSettings
from airgen.errors import SettingsError
from airgen.evaluation.collections import load_collections
from airgen.job.settings_reference import _class_sources, json_schema, reference
from airgen.settings import ALL_QUERIES, Labelling, Pipeline, load_pipeline
from airgen.settings.base import Settings, parse_yaml
from airgen.settings.llm import LlmSettings
from airgen.settings.suite import PublishedSizes, is_suite, load_suite
from airgen.storage.paths import data_dir
from airgen.storage.yaml_text import read_yaml
from airgen.studies.chunkers.chunkers import load_chunkers

GOOD = """
name: demo
task: qa
corpus: python-reference
target: 10
llm: {backend: scripted}
"""


def problems(text: str) -> list[str]:
    with pytest.raises(SettingsError) as caught:
        parse_yaml(text, Pipeline, "p.yaml")
    return caught.value.problems


def test_the_papers_numbers_are_the_defaults() -> None:
    pipeline = parse_yaml(GOOD, Pipeline)
    generation, control = pipeline.generation, pipeline.control
    assert generation.lengths == {"lt5": 1, "lt10": 4, "10to20": 2, "ge20": 1}
    assert generation.types == {"question": 3, "problem": 1, "claim": 1}
    assert generation.information == {"overall": 1, "partial": 1}
    assert list(generation.styles.values()) == [5, 3, 3, 1, 1, 1, 1]
    assert generation.hard_negatives == (3, 7)
    assert control.recall.top_k == 1000
    assert (control.thresholds.hard_negative, control.thresholds.other) == (20, 10)
    assert len(control.rerankers) == 3
    assert pipeline.export.splits == {"dev": 1, "test": 4}


def test_a_pipeline_with_queries_labels_them_whatever_its_generation_says() -> None:
    generation = "generation: {candidates: 3, negatives: mined, unanswerable: 0.2, queries_per_passage: 2}\n"
    votes = generation + "control: {judge: {kind: votes}}\n"
    generated = parse_yaml(GOOD + votes, Pipeline)
    assert type(generated) is Pipeline and generated.round_trips and generated.mines_negatives
    assert (generated.unanswerable, generated.least_passages, generated.votes_accept) == (0.2, 5, True)
    labels = "queries: {file: log.csv, labels: [{file: labels.tsv}]}\n"
    own = parse_yaml(GOOD.replace("target: 10\n", "") + votes + labels, Pipeline)
    assert isinstance(own, Labelling) and own.queries.file == "log.csv" and own.target == ALL_QUERIES
    assert own.brings_labels and not (own.round_trips or own.mines_negatives or own.votes_accept)
    assert (own.unanswerable, own.least_passages) == (0, 1)
    missing, unknown = problems(GOOD + "queries: {fil: log.csv}")
    assert missing == "p.yaml:7: queries.file: is missing" and unknown.startswith("p.yaml:7: queries.fil: unknown key")


def test_a_misspelt_reranker_is_no_model_of_the_hub() -> None:
    (problem,) = problems(GOOD + "control: {rerankers: [maxsim, splade, bm52]}\n")
    assert problem == "p.yaml:7: control.rerankers.2: no reranker is named 'bm52' (did you mean 'bm25'?)"
    names = "[BAAI/bge-reranker-large, maidalun1020/bce-reranker-base_v1, nreimers/mmarco-mMiniLMv2-L12-H384-v1]"
    assert parse_yaml(GOOD + f"control: {{rerankers: {names}}}\n", Pipeline).control.rerankers


def test_long_doc_has_no_problems_and_no_negatives() -> None:
    pipeline = parse_yaml(GOOD.replace("task: qa", "task: long-doc"), Pipeline)
    assert pipeline.generation.types == {"question": 3, "claim": 1}
    assert pipeline.generation.hard_negatives == (0, 0)
    assert pipeline.export.splits == {"test": 1}  # one document is dev or test as a whole (A.4)
    chosen = parse_yaml(GOOD.replace("task: qa", "task: long-doc") + "export: {splits: {dev: 1}}\n", Pipeline)
    assert chosen.export.splits == {"dev": 1}
    (problem,) = problems(GOOD.replace("task: qa", "task: long-doc") + "generation: {hard_negatives: [3, 7]}")
    assert "the Long-Doc task has none (A.2.2)" in problem


def test_every_problem_is_reported_with_its_line_and_the_closest_name() -> None:
    found = problems(
        "name: A b\ntask: qa\ncorpus: x\ntarget: 0\nlanuage: en\nllm: {backend: openi, model: gpt}\n"
        "generation:\n  rewritess: 3\n  lengths: {lt5: 1, lt6: 2}\ncontrol:\n  judge: {llm: {modle: x}}\n"
    )
    text = "\n".join(found)
    assert "p.yaml:1: name:" in text
    assert "p.yaml:4: target:" in text
    assert "p.yaml:5: lanuage: unknown key (did you mean 'language'?)" in text
    assert "p.yaml:6: llm.backend:" in text
    assert "p.yaml:8: generation.rewritess: unknown key (did you mean 'rewrites'?)" in text
    assert "p.yaml:9: generation.lengths: unknown lt6" in text
    assert "p.yaml:11: control.judge.llm.model: is missing" in text
    assert "p.yaml:11: control.judge.llm.modle: unknown key" in text


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "is empty"),
        ("- a\n- b", "holds a list"),
        ("a: [1", "p.yaml:1: not YAML"),
        ("a: b: c", "not YAML"),
        (GOOD + "export: {splits: {dev: 0}}", "must give each split a ratio"),
        (GOOD + "generation: {types: {claim: 1}, lengths: {lt5: 1}}", "a short claim is ambiguous"),
        (GOOD + "generation: {hard_negatives: [7, 3]}", "must be [minimum, maximum]"),
        (GOOD + "control: {rerankers: []}", "at least one re-ranker"),
        (GOOD + "language: xx", "must be one of"),
        (GOOD + "language: German", "did you mean 'de'"),
        (GOOD.replace("{backend: scripted}", "{model: m, api_key_env: 'sk-123/abc'}"), "not the key itself"),
    ],
)
def test_bad_files(text: str, words: str) -> None:
    assert any(words in problem for problem in problems(text))


def test_a_missing_file(tmp_path: Path) -> None:
    for path, words in ((tmp_path / "none.yaml", "no such file"), (tmp_path, "is a directory")):
        with pytest.raises(SettingsError, match=words):
            load_pipeline(path)


@pytest.mark.parametrize("path", sorted(data_dir("pipelines").glob("*.yaml")), ids=lambda path: path.name)
def test_shipped_pipelines_are_valid(path: Path) -> None:
    if path.name.startswith("chunkers"):
        assert load_chunkers(path)
    elif is_suite(path):
        assert load_suite(path).pipelines
        with pytest.raises(SettingsError, match=rf"is a suite: name one of its datasets, {path.name}#DATASET"):
            load_pipeline(path)
    elif path.stem in ("beir", "e5-data", "open-qa"):
        assert load_collections(path).name == path.stem
    elif not path.name.startswith(("systems", "train", "augment", "finetune")):  # systems, and recipes of trainings
        assert load_pipeline(path).name == path.stem


LAUGHS = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{name}: &{name} [{', '.join(['*' + before] * 9)}]\n" for before, name in zip("abcdefgh", "bcdefghi", strict=True)
)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("a: " + "[" * 1_000, "p.yaml: is nested too deeply for settings"),
        ("a: " + "[" * 1_000 + "]" * 1_000, "p.yaml: is nested too deeply for settings"),
        (LAUGHS, "p.yaml: its aliases expand to more than 200,000 values; use fewer of them"),
        ("a: &a [*a]", "p.yaml: its aliases expand to more than 200,000 values; use fewer of them"),
        ("a: 2026-13-01", "p.yaml: not YAML: month must be in 1..12"),
        ('a: !!int ""', "p.yaml: not YAML: string index out of range"),
        ("a: " + "9" * 5000, "p.yaml: not YAML: Exceeds the limit"),
        ("a: b\nc: [1.0, .nan]", "p.yaml:2: .nan is not a finite number"),
        ("a: {b: -.INF}", "p.yaml:1: -.INF is not a finite number"),
        ("a: 1.0e+999", "p.yaml:1: 1.0e+999 is not a finite number"),
        ("a: !!float nan", "p.yaml:1: nan is not a finite number"),
        ("a: b" + "c" * 4_000_000, "p.yaml: has more than 4,000,000 characters, which is too long for settings"),
    ],
    ids=["open", "deep", "laughs", "itself", "month", "number", "digits", "nan", "inf", "large", "tag", "long"],
)
def test_a_hostile_yaml_is_one_problem(text: str, wanted: str) -> None:
    found = problems(text)
    assert len(found) == 1 and found[0].startswith(wanted) and "\n" not in found[0]


def all_settings(base: type[Settings]) -> Iterator[type[Settings]]:
    for kind in base.__subclasses__():
        yield kind
        yield from all_settings(kind)


def test_no_setting_can_be_nan_or_infinite() -> None:
    for name in ("budget_usd", "timeout_seconds"):
        for value in ("nan", "inf", "-inf", "1e999", "-1"):  # YAML's strings, which pydantic would read as numbers
            text = GOOD.replace("{backend: scripted}", f"{{backend: scripted, {name}: {value}}}")
            assert any(f"llm.{name}:" in problem for problem in problems(text)), (name, value)
    kinds = list(all_settings(Settings))
    assert len(kinds) > 30
    assert [kind for kind in kinds if kind.model_config.get("allow_inf_nan") is not False] == []


@pytest.mark.parametrize("value", [True, False, 10**400, -(10**30)])
def test_no_number_is_a_boolean_or_beyond_all_integers(value: object) -> None:
    places: list[dict[str, Any]] = [{"concurrency": value}, {"prices": {"m": {"input": value}}}, {"max_tokens": value}]
    places += [{"temperature": value}, {"budget_usd": value}]
    for place in places:
        with pytest.raises(ValidationError, match=r"must be a number|too large|valid number|greater than|less than"):
            LlmSettings.model_validate({"model": "m", **place})
    with pytest.raises(ValidationError, match=r"dev\.1\n"):
        PublishedSizes.model_validate({"passages": 1, "tokens": 1, "dev": [1, value, 1, 1]})
    assert LlmSettings.model_validate({"model": "m", "temperature": "0.5"}).temperature == 0.5


def commands() -> Iterator[tuple[str, Any]]:
    for name in COMMANDS:
        for function in words_of(name).values():
            yield name, typer.main.get_command(app_of(function))


@pytest.mark.parametrize("value", ["nan", "inf", "-inf", "1e999", "-1"])
def test_every_option_that_is_a_number_refuses_what_is_none(value: str) -> None:
    seen = set()
    for name, command in commands():
        for option in command.params:
            descriptor = getattr(option, "type_descriptor", None)
            if descriptor is None or descriptor.annotation not in (int, float):
                continue
            if value == "-1" and option.min is None:
                # A post can have more downs than ups, and a rating can be below 0.
                assert option.opts in (["--seed"], ["--min-score"], ["--relevant-from"])
                continue
            with pytest.raises(Exception, match=r"finite|range|valid|greater|less") as error:
                option.process_value(command.make_context(name, [], resilient_parsing=True), value)
            assert "BadParameter" in type(error.value).__name__, option.opts
            seen.add(option.opts[0])
    assert {"--budget", "--margin", "--top"} <= seen


def test_a_key_that_stands_twice_is_refused() -> None:
    with pytest.raises(SettingsError) as caught:
        read_yaml("a: 1\nb: {c: 2, c: 3}\nd: &x {k: 1}\ne: {<<: *x, k: 2}\na: 2\n", "job.yaml")
    assert caught.value.problems == [
        "job.yaml:2: the key 'c' is given twice: keep one",
        "job.yaml:5: the key 'a' is given twice: keep one",
    ]


# -- settings reference -----------------------------------------------------------------------------------------------


def test_every_key_and_kind_is_there() -> None:
    text = reference()
    for model in (Pipeline, CleanSettings):
        for name in model.model_fields:
            assert f"| `{name}` |" in text or name == "llm"
    for part in ("backend", "reader", "retriever", "reranker", "embedder"):
        for name in REGISTRY[part]:
            assert f": {name}" in text
    assert "| `target` | whole number from 1 | required |" in text
    assert "| `temperature` | number from 0, to 2 | `1.0` | from a secondary source on the paper's generation |" in text
    # Descriptions under `Attributes:` are in the table, and the section is not in the text above it.
    assert "| `dim` | whole number from 1 | `200` | number of components |" in text and "Attributes:" not in text
    assert "| `score_path` | text or nothing | `score` | dotted paths within a hit. Without" in text


def test_one_word_finds_its_lines() -> None:
    assert "| `top_k` |" in call("show", "settings", "top_k") and "| `seed` |" not in call("show", "settings", "top_k")
    assert "no setting mentions 'blub'" in call("show", "settings", "blub")


def test_the_schema_for_editors_takes_what_airgen_takes() -> None:
    check = jsonschema.Draft202012Validator(json_schema("pipeline")).iter_errors
    files = {path.stem: yaml.safe_load(path.read_text("utf-8")) for path in data_dir("pipelines").glob("*.yaml")}
    pipelines = {name: value for name, value in files.items() if "target" in value}
    assert len(pipelines) >= 4
    assert [(name, one.message) for name, value in pipelines.items() for one in check(value)] == []
    wrong = pipelines["quickstart"] | {"targett": 3, "control": {"rerankers": [{"model": "x"}]}}
    assert {tuple(one.path) for one in check(wrong)} == {(), ("control", "rerankers", 0)}
    corpus = yaml.safe_load((data_dir("corpora") / "python-reference.yaml").read_text("utf-8"))
    assert list(jsonschema.Draft202012Validator(json_schema("corpus")).iter_errors(corpus)) == []
    jsonschema.Draft202012Validator.check_schema(json.loads(call("show", "settings", "--schema", "suite")))


def test_an_editor_says_of_a_key_what_the_reference_says() -> None:
    schema = json_schema("pipeline")
    parts = {"": schema, **schema["$defs"]}
    for part, key in (("", "target"), ("GenerationSettings", "styles"), ("LlmSettings", "budget_usd")):
        assert f"| {parts[part]['properties'][key]['description']} |" in reference()


def test_the_source_of_a_class_ends_with_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = "class Plain:\n    first: int = 1  # of the plain one\n\n    second: int = 2\n"
    inner = "    class Settings(Plain):\n        third: int = 3  # nested\n\n"
    outer = f"class Outer(\n    Plain,\n):\n{inner}    fourth: int = 4\n"
    (tmp_path / "classes_of_a_test.py").write_text(
        f"{plain}\n\nVALUE = 1\n\n\n{outer}\n\ndef function():\n    return 5\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(sys.modules, "classes_of_a_test", importlib.import_module("classes_of_a_test"))
    sources = {name: source.rstrip() for name, source in _class_sources("classes_of_a_test").items()}
    assert sources == {"Plain": plain.rstrip(), "Outer": outer.rstrip(), "Outer.Settings": inner.rstrip()}
