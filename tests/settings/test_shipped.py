"""What airgen ships is found by name in any folder, and a path that was written for another folder is explained."""

from pathlib import Path

import pytest
from command_line import call
from refusals import refused

from airgen.corpus import load_corpus_settings
from airgen.errors import CorpusError, SettingsError
from airgen.job import Job
from airgen.settings.base import find_yaml
from airgen.settings.suite import load_suite
from airgen.storage.paths import data_dir


@pytest.fixture(autouse=True)
def empty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working directory."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("name", ["quickstart", "quickstart.yaml", "pipelines/quickstart.yaml", "pipelines/quickstart"])
def test_a_shipped_pipeline_has_many_names(name: str) -> None:
    assert find_yaml("pipelines", name) == data_dir("pipelines") / "quickstart.yaml"
    job = Job(Path(name))
    assert job.pipeline.name == "quickstart" and job.directory == Path("runs/quickstart")
    assert job.systems_file == data_dir("pipelines") / "systems-quickstart.yaml"


@pytest.mark.parametrize("name", ["python-reference", "python-reference.yaml", "corpora/python-reference.yaml"])
def test_a_shipped_corpus_has_many_names(name: str, empty: Path) -> None:
    assert load_corpus_settings(name).name == "python-reference"
    assert load_corpus_settings(name, empty / "elsewhere").base == data_dir("corpora")


def test_commands_take_names() -> None:
    assert "python" in call("show", "corpus", "python-reference", "--sample", 1).lower()
    with refused(SettingsError, "unknown_name", "quickstart"):
        call("check", "quickstrat")
    with refused(SettingsError, "no_file", where="nowhere.yaml"):
        call("check", "nowhere.yaml")
    with refused(CorpusError, "unknown_name", "python-reference"):
        call("show", "corpus", "python-refrence")


def test_ones_own_file_comes_first(empty: Path) -> None:
    for place in ("pipelines/quickstart.yaml", "quickstart.yaml", "work/quickstart.yaml", "work/corpora/mine.yaml"):
        (empty / place).parent.mkdir(parents=True, exist_ok=True)
        (empty / place).write_text("")
        assert find_yaml("corpora" if "corpora" in place else "pipelines", Path(place).stem, empty / "work").samefile(
            place
        )
    assert find_yaml("pipelines", "work/full.yaml") == Path("work/full.yaml")  # a wrong path is not a shipped name


def test_a_suite_takes_shipped_pipelines(empty: Path) -> None:
    (empty / "suite.yaml").write_text("name: s\nversion: '24.04'\npipelines: [{path: quickstart}, {path: own.yaml}]\n")
    shipped, own = load_suite(empty / "suite.yaml").pipelines
    assert shipped.path == data_dir("pipelines") / "quickstart.yaml" and own.path == empty / "own.yaml"


def test_a_path_that_was_meant_from_the_working_directory_is_explained(empty: Path) -> None:
    (empty / "handbook").mkdir()
    (empty / "handbook" / "a.md").write_text("# Leave\n\nAsk your manager.\n")
    (empty / "corpora").mkdir()
    text = "name: mine\nlanguage: en\ndomain: d\nlicence: l\nsource: s\nreader: {kind: markdown, path: handbook/}\n"
    (empty / "corpora" / "mine.yaml").write_text(text)
    with pytest.raises(CorpusError) as caught:
        call("show", "corpus", "mine")
    message = str(caught.value)
    assert f"{empty / 'corpora' / 'handbook'}: no such file" in message
    assert f"{empty / 'handbook'} exists: write ../handbook" in message
    (empty / "corpora" / "mine.yaml").write_text(text.replace("handbook/", "nothing/"))
    with pytest.raises(CorpusError, match=r"nothing: no such file; check reader\.path"):
        call("show", "corpus", "mine")
    (empty / "systems").mkdir()
    (empty / "systems" / "own.yaml").write_text("systems:\n- {name: e, kind: expanded, expansions: handbook/a.md}\n")
    from airgen.evaluation import load_systems
    from airgen.evaluation.systems import missing_needs

    (line,) = missing_needs(load_systems(empty / "systems" / "own.yaml"))
    assert line.endswith(f"{empty / 'handbook' / 'a.md'} exists: write ../handbook/a.md")


def test_a_corpus_of_ones_own_that_lost_all_documents(empty: Path) -> None:
    """The command that the message names takes the YAML: a corpus of one's own is not found by its name."""
    (empty / "docs").mkdir()
    (empty / "docs" / "a.md").write_text("Too short.")
    (empty / "mine.yaml").write_text(
        "{name: mine, language: en, domain: d, licence: CC0-1.0, source: s, reader: {kind: markdown, path: docs}}"
    )
    with pytest.raises(
        CorpusError, match=r"has no passages: 1 of 1 documents .* `airgen show corpus --dropped` with .* YAML"
    ):
        call("show", "corpus", "mine.yaml")
    assert "too short" in call("show", "corpus", "mine.yaml", "--dropped")
