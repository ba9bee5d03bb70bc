"""The package of docs/plugins.md, installed, and what becomes of names that are taken or wrong."""

import csv
import importlib.util
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest
from beir_folder import write_beir
from child import AIRGEN, Ended, finish
from refusals import refused

import airgen
from airgen.components import registry
from airgen.components.registry import REGISTRY, installed, resolve, target_of
from airgen.errors import UsageError
from airgen.evaluation.measures import parse_measure, score
from airgen.evaluation.run import run_from_dict
from airgen.settings.spec import read_spec

ROOT = Path(airgen.__file__).parents[1]
PAGE = (ROOT / "docs" / "plugins.md").read_text(encoding="utf-8")
SYSTEMS = "systems: [{name: mine, kind: words, power: 2}, {name: bm25, kind: bm25}]\n"


def block(kind: str) -> str:
    match = re.search(rf"```{kind}\n(.*?)```", PAGE, re.DOTALL)
    assert match
    return match[1]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Install the package of the page into a folder."""
    if importlib.util.find_spec("pip") is None or importlib.util.find_spec("setuptools") is None:
        pytest.skip("needs pip and setuptools")
    source, target = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("site")
    (source / "pyproject.toml").write_text(block("toml"), encoding="utf-8")
    (source / "airgen_words.py").write_text(block("python"), encoding="utf-8")
    options = ["--quiet", "--no-deps", "--no-index", "--no-build-isolation", "--target", str(target)]
    subprocess.run([sys.executable, "-m", "pip", "install", *options, str(source)], check=True, capture_output=True)
    return target


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    corpus = [{"_id": "a", "text": "bees make honey"}, {"_id": "b", "text": "trains run on rails through long tunnels"}]
    queries = [{"_id": "q1", "text": "who make honey"}, {"_id": "q2", "text": "what run on rails"}]
    labels = {"test": [("q1", "a", 1), ("q2", "b", 1)]}
    return write_beir(tmp_path_factory.mktemp("data") / "small", corpus, queries, labels)


def shell(site: Path, folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(site), str(ROOT)]), "COLUMNS": "200"}
    command = [sys.executable, "-m", "airgen", *words]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


def forked(site: Path, folder: Path, *words: str) -> Ended:
    """Run a command as `shell` does, without the time for imports."""
    return finish(f"import sys\nsys.path.insert(0, {str(site)!r})\n{AIRGEN}", *words, cwd=folder, COLUMNS="200")


def test_the_package_of_the_page_works_as_the_page_says(site: Path, dataset: Path, tmp_path: Path) -> None:
    (tmp_path / "systems.yaml").write_text(SYSTEMS, encoding="utf-8")
    words = ("evaluate", str(dataset), "--systems", "systems.yaml", "--metrics", "nDCG@10 clean@10", "--out", "out")
    first = shell(site, tmp_path, *words)
    assert first.returncode == 0 and re.search(r"(?m)^\d +mine +1\.0000 ", first.stdout), first.stderr
    rows = csv.DictReader((tmp_path / "out" / "results.csv").read_text(encoding="utf-8").splitlines())
    assert [row["mean"] for row in rows if row["measure"] == "clean@10"] == ["1.000000", "1.000000"]
    assert done(first) == {"mine": "ran", "bm25": "ran"}
    assert done(forked(site, tmp_path, *words)) == {"mine": "kept", "bm25": "kept"}
    # Results belong to their code: if the installed module is edited, its system runs again, and its measure is
    # computed again for every system.
    module = site / "airgen_words.py"
    module.write_text(module.read_text("utf-8").replace("return 1 - np.", "return 0.5 - np."), encoding="utf-8")
    assert done(forked(site, tmp_path, *words)) == {"mine": "ran", "bm25": "scored again"}
    rows = csv.DictReader((tmp_path / "out" / "results.csv").read_text(encoding="utf-8").splitlines())
    assert [row["mean"] for row in rows if row["measure"] == "clean@10"] == ["0.500000", "0.500000"]
    alone = (*words[:5], "nDCG@10", *words[6:])
    forked(site, tmp_path, *alone)
    module.write_text(module.read_text("utf-8").replace("text.lower().split()", "text.split()"), encoding="utf-8")
    assert done(forked(site, tmp_path, *alone)) == {"mine": "ran", "bm25": "kept"}


def done(ran: subprocess.CompletedProcess[str] | Ended) -> dict[str, str]:
    """Return what a command did for each system."""
    assert ran.returncode == 0, ran.stderr
    return dict(re.findall(r"small: (\w+): nDCG@10 [\d.]+ \(([\w ]+)\)", ran.stderr + ran.stdout))


def test_a_study_of_a_package_is_a_word_of_the_command(site: Path, dataset: Path, tmp_path: Path) -> None:
    ran = shell(site, tmp_path, "study", "longest", str(dataset))
    assert (ran.returncode, ran.stdout) == (0, "b\n"), ran.stderr
    assert "Print the id of the longest passage." in shell(site, tmp_path, "study", "longest", "--help").stdout
    assert "airgen study longest" in shell(site, tmp_path, "study", "--help").stdout


def declare(monkeypatch: pytest.MonkeyPatch, *entries: tuple[str, str, str]) -> None:
    """Pretend that installed packages declare entry points: (group, name, value)."""
    points = [EntryPoint(name, value, group) for group, name, value in entries]

    def entry_points(*, group: str) -> list[EntryPoint]:
        return [point for point in points if point.group == group]

    monkeypatch.setattr("importlib.metadata.entry_points", entry_points)
    installed.cache_clear()


@pytest.fixture(autouse=True)
def _forget() -> Iterator[None]:
    yield
    installed.cache_clear()


def test_a_name_of_airgens_own_cannot_be_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    declare(monkeypatch, ("airgen.retrievers", "bm25", "nowhere:Nothing"))
    assert target_of("retriever", "bm25") == "bm25"
    assert resolve("retriever", "bm25").__module__ == "airgen.retrievers.lexical.bm25"


def test_a_name_that_two_packages_declare_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    declare(monkeypatch, ("airgen.judges", "mine", "one:Judge"), ("airgen.judges", "mine", "other:Judge"))
    refused = r"^two installed packages declare the judge 'mine': write one:Judge or other:Judge$"
    with pytest.raises(UsageError, match=refused):
        resolve("judge", "mine")


def test_a_misspelt_name_of_a_package_is_hinted_at(monkeypatch: pytest.MonkeyPatch) -> None:
    declare(monkeypatch, ("airgen.retrievers", "counts", "one:Words"), ("airgen.measures", "coverage", "one:coverage"))
    with refused(UsageError, "unknown_name", "counts", where="retriever"):
        resolve("retriever", "count")
    with refused(UsageError, "unknown_name", "coverage", where="measure"):
        parse_measure("coverege@10")


def test_every_kind_of_component_has_a_group() -> None:
    assert set(registry.PLUGINS) == {*REGISTRY, "measure", "command"}
    inside = {"airgen.term_weighers", "airgen.sparta_encoders"}  # parts of one retriever each
    assert {group for group in registry.PLUGINS.values() if group not in PAGE} == inside


def test_a_part_of_a_package_is_known_by_its_class(monkeypatch: pytest.MonkeyPatch) -> None:
    target = "airgen.retrievers.lexical.bm25:BM25Reranker"
    declare(monkeypatch, ("airgen.rerankers", "mine", target))
    for written in ("mine", {"kind": "mine", "k1": 2.0}):
        spec = read_spec("reranker", written)
        assert spec.kind == target and isinstance(spec.written, dict) and spec.written["kind"] == target


def test_a_measure_must_return_a_number_for_each_query(monkeypatch: pytest.MonkeyPatch) -> None:
    declare(monkeypatch, ("airgen.measures", "lengths", "one:lengths"))
    monkeypatch.setattr("airgen.evaluation.measures.resolve", lambda kind, name: lambda hits, measure: [1.0, 2.0])
    run = run_from_dict({"q": {"a": 1.0}})
    with pytest.raises(UsageError, match=r"^measure lengths: must return one finite number for each of the 1 queries"):
        score(run, {"q": {"a": 1}}, "lengths@3")
