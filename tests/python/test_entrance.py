"""What a caller in Python reads: arguments and functions in place of a file's keys and the shell's words."""

import pickle
from pathlib import Path
from typing import Any

import pytest
from rows_maker import LEXICAL, corpus, rows

import airgen
from airgen.errors import AirgenError, LlmError, SettingProblem, SettingsError, UsageError
from airgen.python.entrance import in_python, shell_words

OPTIONS: dict[str, Any] = {"retry_failed": False, "work": None, "budget": None}
WORDED = {
    "llm.api_key_env: the variable K is not set": "llm={'api_key_env': ...}: the variable K is not set",
    "llm.budget_usd: raise the budget, or lower the target": "budget: raise the budget, or lower n",
    "control.rerankers.0: needs torch": "rerankers[0]: needs torch",
    "write judge: {kind: yes-no, threshold: 0.5}": "write judge={'kind': 'yes-no', 'threshold': 0.5}",
    "write it in the pipeline as llm.prices: {'m': {input: 0.0}}": "give it as llm={'prices': {'m': {'input': 0.0}}}",
    "set generation.method: needs, which": "set generation={'method': 'needs'}, which",
    "write language: de unless": "write language='de' unless",
    "set unknown: skip for these": "set {'unknown': 'skip'} for these",
    "retry them with --retry-failed": "retry them with retry_failed=True",
    "choose another folder (--runs)": "choose another folder (work=)",
    "not here: airgen fetch bge-small-en-int8": "not here: airgen.fetch('bge-small-en-int8')",
    "`airgen audit sample job.yaml 50`": "`airgen.audit_sample('job.yaml', 50)`",
    "(airgen study diversity DATASET --real LOG compares)": "(airgen.study_diversity(DATASET, real=LOG) compares)",
    "see `airgen show`": "see `airgen.show(...)`",
    "stopped: run the same command again": "stopped: make the same call again",
}
AS_THEY_ARE = [
    "work/queries.jsonl:3: no text", "queries.jsonl: no text", "/tmp/llm.py: no such file",
    "control.yaml: no such file",
    "soffice --headless --convert-to csv FILE", "it said {\"level: 3}", "the airgen that wrote it", "x {a: b",
]  # fmt: skip


@pytest.mark.parametrize("text", WORDED)
def test_a_message_names_what_python_has(text: str) -> None:
    assert in_python(text, "label", OPTIONS) == WORDED[text]
    assert in_python(WORDED[text], "label", OPTIONS) == WORDED[text]


PROBLEMS = {
    ("", "target"): "n: it is 0",
    ("", "llm.budget_usd"): "budget: it is 0",
    ("airgen.generate", "control.judge.kind"): "airgen.label: judge={'kind': ...}: it is 0",
    ("airgen.generate", "the file"): "airgen.label: the file: it is 0",
    ("corpus.yaml:3", "name"): "corpus.yaml:3: name: it is 0",
    ("pipeline.yaml:3", "control.judge.kind"): "pipeline.yaml:3: control.judge.kind: it is 0",
}


@pytest.mark.parametrize(("where", "setting"), PROBLEMS)
def test_a_problem_names_the_argument_unless_a_file_has_the_setting(where: str, setting: str) -> None:
    error = SettingsError([SettingProblem("it is 0", code="zero", where=where, setting=setting, names=["one"])])
    error.reword(lambda text: in_python(text, "label", OPTIONS))
    assert str(error) == PROBLEMS[where, setting] and (error.code, error.names) == ("zero", ("one",))
    (problem,) = pickle.loads(pickle.dumps(error)).problems  # as it comes from a worker
    assert (problem, problem.setting) == (str(error), error.problems[0].setting)


@pytest.mark.parametrize("text", AS_THEY_ARE)
def test_files_programs_and_answers_are_left_alone(text: str) -> None:
    assert in_python(text, "generate", OPTIONS) == text


def test_keys_of_a_file_stay_where_a_file_has_them() -> None:
    assert in_python("llm.budget_usd: too low", "run", {}) == "llm.budget_usd: too low"


def test_what_a_command_calls_keeps_the_words_of_the_shell() -> None:
    with pytest.raises(AirgenError, match=r"airgen\.show_models\("):
        airgen.fetch(["no-such-model"])
    with shell_words(), pytest.raises(AirgenError, match="airgen show models"):
        airgen.fetch(["no-such-model"])


def test_errors_of_a_job_name_arguments(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    votes = {name: LEXICAL[name] for name in ("rerankers", "control")}
    with pytest.raises(SettingsError, match=r"^llm=\{'api_key_env': ...\}: the environment variable OPENAI_API_KEY"):
        airgen.generate(corpus(), n=2, llm="gpt-4o-mini", quiet=True, **votes)
    server = {"model": "m", "base_url": "http://example.org/v1"}
    with pytest.raises(SettingsError, match=r"give it as llm=\{'prices': \{'m': \{'input': 0.0, 'output': 0.0\}\}\}"):
        airgen.generate(corpus(), n=2, llm=server, budget=1, quiet=True, **votes)
    with pytest.raises(SettingsError, match=r"^airgen.label: judge=\{'knd': ...\}: unknown key"):
        airgen.label(corpus(), ["a query"], judge={"knd": "paper"}, **LEXICAL)

    def say_nothing(messages: Any) -> str:
        return "x"

    with pytest.raises(LlmError, match=r"and [1-9]\d* calls cost .*retry failed calls with retry_failed=True"):
        airgen.generate(corpus(), n=2, **{**LEXICAL, "llm": say_nothing})


def test_an_estimate_names_arguments(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    votes = {name: LEXICAL[name] for name in ("rerankers", "control")}
    found = airgen.estimate(corpus(), n=900, llm="gpt-4o-mini", measure=False, **votes)
    assert "llm={'api_key_env': ...}: the environment variable OPENAI_API_KEY is not set" in found.problems
    assert any(line.startswith("n: 900 queries are requested") for line in found.problems)
    assert "`airgen.estimate(..., probe=True)` measures it" in repr(found) and "--" not in repr(found)


def test_a_file_in_the_way_is_one_line(here: Path) -> None:
    Path("taken").write_text("a file")
    for work in ("taken", "taken/inside"):
        with pytest.raises(AirgenError, match=r"taken.*: a file is in the way of the folder: choose another folder"):
            airgen.generate(corpus(), n=2, work=work, **LEXICAL)


@pytest.mark.parametrize("settings", [{"chunk": "big"}, {"chunk": 0}, {"chunk": True}, {"clean": "yes"}])
def test_a_corpus_refuses_what_is_no_setting(settings: dict[str, Any]) -> None:
    (name,) = settings
    with pytest.raises(UsageError, match=f"^{name}: .* is neither "):
        airgen.Corpus(rows(), **settings)


def test_a_long_list_of_names_is_cut() -> None:
    with pytest.raises(AirgenError, match=r"no corpus is named 'hello' \(known: .* and \d+ more\)$"):
        airgen.Corpus("hello")
