"""A system has one identity: what makes it run again in an evaluation makes recall ask it again."""

import json
import os
from pathlib import Path

import pytest
import yaml

from airgen.control.recall import systems_identity
from airgen.evaluation.systems import load_systems, stamp_of

CODE = "def search(queries, k, table='', depth=3):\n    return [[] for _ in queries]\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "identity_of_a_table.py").write_text(CODE)
    (tmp_path / "table.json").write_text(json.dumps({"d1": 1}))
    (tmp_path / "little.run").write_text("q Q0 d1 1 2.0 x\n")
    systems = [
        {"name": "mine", "kind": "identity_of_a_table:search", "settings": {"table": "table.json"}},
        {"name": "made", "kind": "run", "path": "{dataset}.run"},
    ]
    (tmp_path / "s.yaml").write_text(yaml.safe_dump({"systems": systems}))
    return tmp_path


CHANGES = {
    "table.json": ("1", "10"),
    "little.run": ("2.0", "12.0"),
    "identity_of_a_table.py": ("depth=3", "depth=13"),
    "s.yaml": ("table.json", "other.json"),
}


@pytest.mark.parametrize(("name", "change"), CHANGES.items())
def test_recall_and_evaluation_see_the_same_changes(folder: Path, name: str, change: tuple[str, str]) -> None:
    def seen() -> tuple[object, object]:
        systems = load_systems(folder / "s.yaml")
        return systems_identity(systems, "little"), [system.identity("little", "all", stamp_of) for system in systems]

    before = seen()
    assert seen() == before
    (folder / name).write_text((folder / name).read_text().replace(*change))
    recall, evaluation = seen()
    assert recall != before[0] and evaluation != before[1]


def test_a_copied_file_is_the_same_for_recall(folder: Path) -> None:
    before = systems_identity(load_systems(folder / "s.yaml"), "little")
    os.utime(folder / "table.json", (1, 1))
    assert systems_identity(load_systems(folder / "s.yaml"), "little") == before
