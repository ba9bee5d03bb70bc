"""Suites and datasets of other people: names, manifests and rows of any form end in words; nothing outside is read."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from dataset_maker import make_content
from hostile import JSON, broken, few, replaced
from hypothesis import given
from hypothesis import strategies as st

from airgen.dataset.write import write_dataset
from airgen.errors import AirgenError
from airgen.publishing.suites import dataset_folders, datasets_of, key_of, verify_directory, versions
from airgen.studies.compare_versions import changes_between, changes_text, compare_versions, versions_text

PLACES = ["..", "../..", "/", "/etc", "~", "", ".", "a/../b", "qa_science_en", "a\0b", "x" * 300, "http://a.example/b",
          "file:///etc", "qa_science_en/../../c", "\ud800", "con", "a\nb"]  # fmt: skip
FILES = ["manifest.json", "queries.jsonl", "qrels/test.jsonl", "private/lineage.jsonl", "corpus.jsonl"]


@pytest.fixture(scope="module")
def suite(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished version of a suite with one dataset."""
    home = tmp_path_factory.mktemp("suite") / "26.11"
    manifest = write_dataset(home / "d", make_content())
    key = key_of(manifest)
    (home / key).parent.mkdir()
    (home / "d").rename(home / key)
    about = {"name": "notes", "version": "26.11", "datasets": {key: manifest.digest}}
    (home / "suite.json").write_text(json.dumps(about))
    return home


def read(old: Path, new: Path) -> str:
    """Read a version in every way; whatever fails must fail in words."""
    said: list[str] = []
    for action in (
        lambda: [str(problem) for problems in verify_directory(new).values() for problem in problems],
        lambda: sorted(map(str, dataset_folders(new).values())),
        lambda: changes_text(changes_between(old, new, needed=True)),
        lambda: changes_text(changes_between(new, old)),
        lambda: versions_text(compare_versions(old, new, split="test")),
        lambda: versions(new.parent.parent, new.parent.name),
    ):
        try:
            said += action()
        except AirgenError as error:
            assert str(error).strip() and len(str(error)) < 20_000
            said.append(str(error))
    text = "\n".join(map(str, said))
    assert "Error(" not in text and "object at 0x" not in text, text
    return text


@few
@given(data=st.data())
def test_the_list_of_a_suite(data: st.DataObject, outcome: Any, suite: Path) -> None:
    good = json.loads((suite / "suite.json").read_text())
    places = st.dictionaries(st.sampled_from([*PLACES, *good["datasets"]]), JSON | st.just("x"), max_size=3)
    value = data.draw(replaced(good) | st.fixed_dictionaries({"name": JSON, "version": JSON, "datasets": places}))
    content = data.draw(st.just(json.dumps(value).encode()) | broken((suite / "suite.json").read_bytes()))

    def change(folder: Path) -> Any:
        (folder / "manifest.json").write_text((suite / next(iter(good["datasets"])) / "manifest.json").read_text())
        shutil.copytree(suite, folder / "notes" / "26.12")
        (folder / "notes" / "26.12" / "suite.json").write_bytes(content)
        said = read(suite, folder / "notes" / "26.12")
        try:
            named = datasets_of(folder / "notes" / "26.12")
        except AirgenError:
            named = {}
        assert set(named) <= set(good["datasets"])  # nothing outside
        return said

    outcome(change)


@few
@given(name=st.sampled_from(FILES), data=st.data())
def test_a_dataset_of_a_suite(name: str, data: st.DataObject, outcome: Any, suite: Path) -> None:
    key = next(iter(json.loads((suite / "suite.json").read_text())["datasets"]))
    lines = (suite / key / name).read_text("utf-8").strip().split("\n") if name != "manifest.json" else []
    before = [json.loads(line) for line in lines] or json.loads((suite / key / name).read_text())
    after = data.draw(replaced(before))
    text = "".join(json.dumps(row) + "\n" for row in after) if lines and isinstance(after, list) else json.dumps(after)

    def change(folder: Path) -> Any:
        shutil.copytree(suite, folder / "notes" / "26.12")
        (folder / "notes" / "26.12" / key / name).write_text(text, "utf-8")
        return read(suite, folder / "notes" / "26.12") + read(suite / key, folder / "notes" / "26.12" / key)

    outcome(change)
