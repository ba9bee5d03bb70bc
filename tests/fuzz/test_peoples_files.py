"""Files that people filled in, with any bytes: they are read, or named in a line; none is replaced without a copy.

Also: whichever local file of a user's module is edited, the score that it had before is not used.
"""

import importlib
import json
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
from beir_folder import write_beir
from hostile import broken, few
from hypothesis import given
from hypothesis import strategies as st

from airgen.audit.answers import add_answer, answers_of, read_answers, saved_answers
from airgen.audit.holes import judge_holes
from airgen.audit.sample import AuditItem, AuditSample, load_sample, write_sample
from airgen.components.user_code import code_digest
from airgen.errors import AirgenError
from airgen.evaluation.run import run_from_dict

RUN = run_from_dict({"q1": {"d3": 3.0, "d1": 2.0, "d2": 1.0}, "q2": {"d2": 2.0, "d3": 1.0}})
FILES = ["holes.jsonl", "audit.csv", "audit-answers.json", "judgments.jsonl", "sample.json"]


def fill_in(out: Path) -> None:
    """Answer as people do: a level in the table, an answer in the page, a score in a line."""
    sample = load_sample(out / "sample.json")
    (out / "audit.csv").write_text((out / "audit.csv").read_text("utf-8").replace("\n1,", "\n1,", 1), "utf-8")
    (out / "audit-answers.json").write_text(
        json.dumps({"key": sample.key, "answers": {"1": 2}, "reasons": {"1": "why"}})
    )
    lines = (out / "holes.jsonl").read_text("utf-8")
    (out / "holes.jsonl").write_text(
        lines.replace('"score":null', '"score":1', 1).replace('"score": null', '"score": 1', 1)
    )


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A dataset and its audit of holes, filled in."""
    top = tmp_path_factory.mktemp("people")
    corpus = [{"_id": f"d{at}", "title": "", "text": f"words {at}"} for at in range(5)]
    queries = [{"_id": f"q{at}", "text": f"query {at}"} for at in (1, 2)]
    write_beir(top / "data", corpus, queries, {"test": [("q1", "d1", 1), ("q2", "d0", 1)]}, name="d", language="en")
    judge_holes(top / "data", {"a": RUN}, top / "out")
    fill_in(top / "out")
    judge_holes(top / "data", {"a": RUN}, top / "out")
    return top


def contents(folder: Path) -> list[bytes]:
    return [path.read_bytes() for path in folder.rglob("*") if path.is_file()]


@few
@given(name=st.sampled_from(FILES), data=st.data())
def test_holes(name: str, data: st.DataObject, outcome: Any, home: Path) -> None:
    content = data.draw(broken((home / "out" / name).read_bytes()))

    def act(folder: Path) -> None:
        shutil.copytree(home / "out", folder / "out")
        (folder / "out" / name).write_bytes(content)
        try:
            judge_holes(home / "data", {"a": RUN}, folder / "out")
        except AirgenError as error:
            assert (folder / "out" / name).read_bytes() == content, error
            raise
        # A judgment that was read may stand in a file of another form; a sample is drawn, not written by people.
        kept = b"".join(contents(folder))
        assert name == "sample.json" or content in contents(folder) or all(line in kept for line in told(name, content))

    outcome(act)


def told(name: str, content: bytes) -> list[bytes]:
    """Return the remarks in a file that were valid."""
    return [content] if name in ("audit.csv", "audit-answers.json") else []


ITEMS = tuple(AuditItem(f"q{n}", f"d{n}", "positive", 3, True, f"query {n}", "", f"text {n}") for n in range(1, 7))
SAMPLE = AuditSample("toy", 2, ITEMS[:4], {"positive, level 3": 30})


ADDS = 4  # the action that adds an answer


@few
@given(name=st.sampled_from(["audit.csv", "audit-answers.json", "sample.json"]), data=st.data())
def test_labels(name: str, data: st.DataObject, outcome: Any) -> None:
    answers = {"key": SAMPLE.key, "answers": {"1": 2, "2": None}, "reasons": {"1": "why"}, "others": []}

    def act(folder: Path) -> None:
        out = folder / "audit"
        write_sample(SAMPLE, out)
        table = (out / "audit.csv").read_text("utf-8").replace(f",,,{SAMPLE.key}", f",2,because,{SAMPLE.key}", 1)
        good = {"audit.csv": table.encode(), "audit-answers.json": json.dumps(answers).encode()}
        content = data.draw(broken(good.get(name, (out / "sample.json").read_bytes())))
        (out / name).write_bytes(content)
        actions = [
            lambda: load_sample(out / "sample.json"),
            lambda: answers_of(out / name, SAMPLE, {}),
            lambda: read_answers(out / name, SAMPLE.key, 4),
            lambda: saved_answers(out / "audit-answers.json", SAMPLE),
            lambda: add_answer(out / "audit-answers.json", SAMPLE, {"number": 3, "level": 1}),
            lambda: write_sample(AuditSample("toy", 2, ITEMS[1:], {"positive, level 3": 30}), out),
        ]
        for place, action in enumerate(actions):
            try:
                action()
            except AirgenError as error:
                assert str(error).strip()
            else:
                if place == ADDS and name == "audit-answers.json":  # what was in it is in it still
                    before, content = json.loads(content), (out / name).read_bytes()
                    after = json.loads(content)
                    for field in ("answers", "reasons"):
                        assert {**(before.get(field) or {}), **after[field]} == after[field]
                    assert all(other in after["others"] for other in before.get("others") or [])
            assert name == "sample.json" or content in contents(out), action

    outcome(act)


NAMES = ["code_a", "code_b", "code_c", "code_p.deep", "code_p.other", "code_p.sub.leaf"]
MODULES = ["code_m", *NAMES]
FORMS = [
    "import {0}", "import {0} as x", "from {0} import value", "from {0} import *", "import json, {0}",
    "import importlib; importlib.import_module('{0}')", "__import__('{0}')",
    "from importlib import import_module; import_module('{0}')",
    "def f():\n    import {0}\nf()", "try:\n    import {0}\nexcept ImportError:\n    pass",
    "if 1:\n    from {1} import {2}", "class A:\n    import {0}",
]  # fmt: skip


@few
@given(data=st.data())
def test_every_file_that_an_import_reads_counts(data: st.DataObject, outcome: Any) -> None:
    """The oracle is Python: what it has imported for a module is in the module's digest."""
    forms = st.sampled_from(FORMS)
    imports_of = st.lists(st.tuples(forms, st.sampled_from(NAMES)), max_size=3)
    trees = {name: data.draw(imports_of) for name in MODULES}

    def act(folder: Path) -> None:
        top = folder / "code"
        for name, imports in trees.items():
            path = top / f"{name.replace('.', '/')}.py"
            path.parent.mkdir(parents=True, exist_ok=True)
            # A module imports only those after it, so that no circle changes what is read.
            later = [(form, other) for form, other in imports if MODULES.index(other) > MODULES.index(name)]
            lines = [form.format(other, *(other.rpartition(".")[::2] if "." in other else ("json", "loads")))
                     for form, other in later]  # fmt: skip
            path.write_text("\n".join(["value = 1", *lines, ""]))
        for package in ("code_p", "code_p/sub"):
            (top / package / "__init__.py").write_text("")
        sys.path.insert(0, str(top))
        importlib.invalidate_caches()
        try:
            importlib.import_module("code_m")
            read = {name: Path(str(sys.modules[name].__file__)) for name in sys.modules if name.startswith("code_")}
        finally:
            sys.path.remove(str(top))
            for name in [name for name in sys.modules if name.startswith("code_")]:
                del sys.modules[name]
        first = code_digest("code_m", top)
        for name, path in read.items():
            before = path.read_text()
            path.write_text(f"{before}\n# edited\n")
            assert code_digest("code_m", top) != first, (name, {file: text for file, text in trees.items() if text})
            path.write_text(before)
        assert code_digest("code_m", top) == first

    outcome(act)
