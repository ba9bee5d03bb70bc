"""Names of files become ids, which are the same in every locale, and different for different files."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

IDS = """
import json, sys
from pathlib import Path
from airgen.corpus import prepare
from airgen.storage.records import Passage
from airgen.corpus.settings import load_corpus_settings
corpus = load_corpus_settings("small.yaml", Path())
print(json.dumps(sorted([row.id, row.text] for row in prepare(corpus, "qa") if isinstance(row, Passage))))
"""
CORPUS = """
name: small
language: en
domain: test
licence: CC0-1.0
source: made by the tests
reader: {kind: text, path: texts}
clean: {min_tokens: 1, language: "off", boilerplate: "off", personal_data: "off", near_duplicates: null}
"""


def test_ids_do_not_depend_on_the_locale(tmp_path: Path) -> None:
    names = [
        "\u00e4 one".encode(),
        "\u00f6 one".encode(),
        b"\xe4 two",
        b"\xf6 two",
        "\u0131\u0130".encode(),
        "\u65e5\u672c".encode(),
    ]
    (tmp_path / "texts").mkdir()
    for name in names:
        try:
            Path(os.fsdecode(bytes(tmp_path / "texts") + b"/" + name + b".txt")).write_text(
                f"The text of {name.hex()}."
            )
        except OSError:
            pytest.skip("this file system has only names in UTF-8")
    (tmp_path / "small.yaml").write_text(CORPUS, encoding="utf-8")
    ids = []
    for locale in ({"LC_ALL": "C.UTF-8"}, {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"}):
        environment = {**os.environ, **locale}
        done = subprocess.run(
            [sys.executable, "-c", IDS], cwd=tmp_path, env=environment, capture_output=True, check=True
        )
        ids.append(json.loads(done.stdout))
    assert ids[0] == ids[1]
    assert len({id_ for id_, _ in ids[0]}) == len(names)
    assert {id_ for id_, _ in ids[0]} >= {
        "texts/\u00e4 one",
        "texts/\\xe4 two",
        "texts/\u0131\u0130",
        "texts/\u65e5\u672c",
    }
