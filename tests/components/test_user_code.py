"""A result belongs to the code that made it: what counts as the user's code, and what is made again when it changes."""

import importlib
import json
import os
import sys
import types
from collections.abc import Iterator
from pathlib import Path

import pytest
from command_line import call
from dataset_maker import make_content
from job_maker import Run, configure, done, folder, run

from airgen.components.user_code import code_digest, code_of, import_anew, local_files, own_code
from airgen.dataset.write import write_dataset
from airgen.evaluation import EvaluationOptions, evaluate, load_systems
from airgen.evaluation.result import Result
from airgen.job import Job
from airgen.retrievers.component import Component
from airgen.retrievers.model_facts import model_identity

__all__ = ["configure", "done", "folder", "run"]

TREE = {
    "mine.py": "import json, numpy, airgen\nimport helper\nfrom pack.deep import deeper\n\ndef f():\n    import late\n",
    "helper.py": "from importlib import import_module\nnamed = import_module('named')\nimport mine\n",
    "named.py": "",
    "late.py": "def g(): return 1\n",
    "pack/__init__.py": "from . import beside\n",
    "pack/beside.py": "from .. import nothing_above\n",
    "pack/deep/__init__.py": "",
    "pack/deep/deeper.py": "from ..other import x\n",
    "pack/other.py": "x = 1\n",
    "unused.py": "1 / 0\n",
    "json.py": "raise SystemExit\n",  # the standard library's comes first
}
USED = {"mine", "helper", "named", "late", "pack", "pack.beside", "pack.deep", "pack.deep.deeper", "pack.other"}


@pytest.fixture(autouse=True)
def forget() -> Iterator[None]:
    """No module of one test is known to the next."""
    before = set(sys.modules)
    yield
    for name in set(sys.modules) - before:
        if not name.startswith(("airgen", "numpy", "torch")) and "." not in name:
            file = str(getattr(sys.modules[name], "__file__", "") or "")
            if "pytest-of" in file or not file:
                del sys.modules[name]


def write(folder: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


def test_every_local_file_that_a_module_imports_counts(tmp_path: Path) -> None:
    write(tmp_path, TREE)
    assert set(local_files("mine", tmp_path)) == USED
    first = code_digest("mine", tmp_path)
    assert first and first == code_digest("mine", tmp_path)
    for name, text in TREE.items():
        (tmp_path / name).write_text(text + "# changed\n")
        now = code_digest("mine", tmp_path)
        assert (now != first) == (name not in ("unused.py", "json.py")), name
        (tmp_path / name).write_text(text)
        assert code_digest("mine", tmp_path) == first
    moved = write(tmp_path / "elsewhere", TREE)
    assert code_digest("mine", moved) == first  # the place is no part of it


def test_what_looks_like_code_and_is_none(tmp_path: Path) -> None:
    write(tmp_path, {"mine.py": ""})
    settings = {
        "kind": "mine:A",
        "more": [{"x": "filter:title"}, "os:path", "C:temp", "http://a:b", 3, None],
        "t": "a:b c",
    }
    assert list(own_code(settings, tmp_path)) == ["mine:A"]
    sys.modules["made_by_hand"] = types.ModuleType("made_by_hand")
    assert own_code("made_by_hand:A") == {"made_by_hand:A": ""}
    write(tmp_path, {"broken.py": "def f(:\n", "big.py": "x = 1\n" * 10})
    assert code_digest("broken", tmp_path) and not code_digest("no_such_module", tmp_path)


def test_code_that_was_edited_is_imported_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    write(tmp_path, {"mine.py": "import helper\nvalue = helper.value\n", "helper.py": "value = 1\n"})

    def value(place: Path = tmp_path) -> int:
        import_anew("mine", place)
        monkeypatch.syspath_prepend(str(place))
        return int(importlib.import_module("mine").value)

    assert value() == 1
    loaded = sys.modules["mine"]
    assert value() == 1 and sys.modules["mine"] is loaded  # nothing was edited
    (tmp_path / "helper.py").write_text("value = 2\n")
    assert value() == 2
    other = write(tmp_path / "other", {"mine.py": "value = 7\n"})  # another file of the same name
    assert value(other) == 7


# -- a score belongs to the code that produced it ----------------------------------------------------------------------

SEARCH = "from tool import best\n\n\ndef search(queries, k):\n    return [[best] for _ in queries]\n"
RETRIEVER = """
import numpy as np
from airgen.retrievers.component import Component
from airgen.retrievers.hits import Hits
from tool import best


class Mine(Component):
    class Settings(Component.Settings):
        pass

    name = "mine"

    def index(self, corpus):
        self.place = list(corpus.ids).index(best)

    def search(self, queries, k):
        hits = Hits.none(len(queries), k)
        hits.positions[:, 0], hits.scores[:, 0] = self.place, 1.0
        return hits

    def describe(self):
        return {}
"""
RERANKER = """
import numpy as np
from airgen.retrievers.component import Component
import tool


class Mine(Component):
    class Settings(Component.Settings):
        pass

    name = "mine"

    def score(self, pairs):
        return np.array([float(f"Passage {int(tool.best[3:])}:" in text) for _, text in pairs], np.float32)

    def describe(self):
        return {}
"""


@pytest.fixture
def dataset(tmp_path: Path) -> Path:
    write_dataset(tmp_path / "data", make_content())
    return tmp_path / "data"


@pytest.mark.parametrize("kind", ["function", "retriever", "re-ranker"])
def test_a_system_whose_code_was_edited_runs_again(dataset: Path, tmp_path: Path, kind: str) -> None:
    systems = {
        "function": ([{"name": "mine", "kind": "own:search"}], SEARCH),
        "retriever": ([{"name": "mine", "kind": "own:Mine"}], RETRIEVER),
        "re-ranker": (
            [{"name": "bm25", "kind": "bm25"},
             {"name": "mine", "kind": "rerank", "first": "bm25", "reranker": {"kind": "own:Mine"}}], RERANKER),
    }  # fmt: skip
    listed, code = systems[kind]
    write(tmp_path, {"own.py": code, "tool.py": "best = 'doc000'\n", "s.yaml": json.dumps({"systems": listed})})

    def go() -> Result:
        options = EvaluationOptions("test", folder=tmp_path)
        return evaluate(dataset, load_systems(tmp_path / "s.yaml"), tmp_path / "out", options)[-1]

    first = go()
    assert not first.cached and go().cached and first.score > 0
    (tmp_path / "own.py").write_text(code + "\n# a comment\n")
    assert not go().cached and go().cached
    (tmp_path / "tool.py").write_text("best = 'doc011'\n")  # a file that it imports
    second = go()
    assert not second.cached and second.score != first.score
    said = call("evaluate", dataset, "--systems", tmp_path / "s.yaml", "--out", tmp_path / "out")
    assert "mine (kept, " in said
    said = call("evaluate", dataset, "--systems", tmp_path / "s.yaml", "--out", tmp_path / "out", "--fresh")
    assert "mine" in said and "(kept" not in said


def test_a_file_that_a_setting_of_ones_own_names_counts(dataset: Path, tmp_path: Path) -> None:
    code = (
        "from pathlib import Path\n\n\ndef search(queries, k, hits=''):\n"
        "    return [[Path(hits).read_text()] for _ in queries]\n"
    )
    listed = [{"name": "mine", "kind": "reads:search", "settings": {"hits": str(tmp_path / "hits.txt")}}]
    write(tmp_path, {"reads.py": code, "hits.txt": "doc000", "s.yaml": json.dumps({"systems": listed})})

    def go() -> Result:
        options = EvaluationOptions("test", folder=tmp_path)
        return evaluate(dataset, load_systems(tmp_path / "s.yaml"), tmp_path / "out", options)[0]

    first = go()
    assert go().cached
    (tmp_path / "hits.txt").write_text("doc011")
    assert not go().cached and go().score != first.score


def test_code_without_a_file_runs_each_time(dataset: Path, tmp_path: Path) -> None:
    """As a notebook's: nobody can tell whether it is the same."""
    module = types.ModuleType("of_a_notebook")
    module.search = lambda queries, k: [["doc000"] for _ in queries]  # type: ignore[attr-defined]
    sys.modules["of_a_notebook"] = module
    write(tmp_path, {"s.yaml": json.dumps({"systems": [{"name": "mine", "kind": "of_a_notebook:search"}]})})
    for _ in range(2):
        (found,) = evaluate(dataset, load_systems(tmp_path / "s.yaml"), tmp_path / "out", EvaluationOptions("test"))
        assert not found.cached


def test_encodings_belong_to_the_code_of_their_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    write(tmp_path, {"enc.py": RERANKER.replace("import tool", "")})
    first = model_identity(importlib.import_module("enc").Mine())
    write(tmp_path, {"enc.py": RERANKER.replace("import tool", "# edited")})
    second = model_identity(importlib.import_module("enc").Mine())
    assert set(first) == set(second) == {"code"} and first != second
    assert code_of(Component()) == {} and code_of(json.JSONDecoder()) == {}


# -- jobs --------------------------------------------------------------------------------------------------------------

JUDGE = """
from airgen.steps.judge import Verdict


class Mine:
    PROMPT, FORM, WISH, ABOUT = "judge", "level", "answer with a number", "a judge"
    GRADED, PARAMS, TOKENS, QUERY_FIRST = True, {"max_tokens": 8}, 1, True

    def read(self, answer, prompt, threshold):
        return Verdict(3)
"""
READER = """
from airgen.corpus.readers.json_records import JsonLinesReader
from prefix import mark


class Mine(JsonLinesReader):
    def read(self):
        for row in super().read():
            yield row
"""


def test_a_judge_whose_code_was_edited_judges_again_and_pays_nothing(
    run: Run, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(folder))
    write(folder, {"own_judge.py": JUDGE})
    changes = {"control:": 'control:\n  judge: {kind: "own_judge:Mine"}'}
    first = run("runs", changes)
    assert run("runs", changes).already_done
    (folder / "own_judge.py").write_text(JUDGE.replace("Verdict(3)", "Verdict(2)"))
    second = run("runs", changes)
    assert not second.already_done and second.manifest is not None and first.manifest is not None
    assert second.manifest.digest != first.manifest.digest  # the levels are others
    assert all(row["calls"] == 0 for stage, row in second.usage.items() if stage == "judgment") or (
        "judgment" not in second.usage
    )


def test_passages_belong_to_the_code_of_their_reader(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(folder))
    write(folder, {"own_reader.py": READER, "prefix.py": "mark = 1\n"})
    corpus = folder / "small.yaml"
    corpus.write_text(corpus.read_text().replace("kind: jsonl", 'kind: "own_reader:Mine"'))

    def fingerprint() -> str:
        return Job(folder / "job.yaml", folder / "runs").fingerprints["corpus"]

    first = fingerprint()
    assert fingerprint() == first
    (folder / "prefix.py").write_text("mark = 22\n")
    os.utime(folder / "prefix.py")
    assert fingerprint() != first
