"""The entry point in odd surroundings: closed streams, a reader that leaves, a folder that is gone."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from job_maker import CORPUS, LEXICAL, make_corpus

from airgen.errors import SettingsError
from airgen.settings.base import find_yaml

pytestmark = pytest.mark.skipif(os.name == "nt", reason="a POSIX shell")


def shell(line: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a line of shell in which $AIRGEN is the command, with its errors in `errors`."""
    environment = {**os.environ, "AIRGEN": f"{sys.executable} -m airgen"}
    return subprocess.run(
        ["bash", "-c", line], cwd=folder, env=environment, capture_output=True, text=True, timeout=120
    )


@pytest.mark.parametrize("closed", [">&-", "<&- >&- 2>&-"])
def test_output_never_gets_into_a_file_that_took_the_number_of_a_closed_stream(closed: str, tmp_path: Path) -> None:
    (tmp_path / "bm25.run").write_text("q1 Q0 d1 1 2.0 a\n")
    (tmp_path / "test.tsv").write_text("query-id\tcorpus-id\tscore\nq1\td1\t1\n")
    done = shell(f"$AIRGEN evaluate measures bm25.run test.tsv --metrics nDCG@10 {closed}; echo $? > code", tmp_path)
    assert (tmp_path / "code").read_text() == "0\n", done.stderr
    assert "Traceback" not in done.stderr
    assert ("nDCG@10" in done.stdout) == (">&-" not in closed.replace("2>&-", ""))
    assert (tmp_path / "test.tsv").read_text() == "query-id\tcorpus-id\tscore\nq1\td1\t1\n"


def test_a_reader_that_leaves_is_no_error(tmp_path: Path) -> None:
    done = shell("$AIRGEN show settings | head -1", tmp_path)
    assert done.stdout.count("\n") == 1 and done.stderr == ""


def test_a_folder_that_is_gone_is_named(tmp_path: Path) -> None:
    done = shell("mkdir x && cd x && rmdir ../x && $AIRGEN check job.yaml", tmp_path)
    assert done.returncode == 1 and done.stderr.count("\n") == 1
    assert done.stderr.startswith("airgen: ") and "no longer exists" in done.stderr


def test_settings_that_are_not_utf_8_say_so(tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_bytes("name: größe\n".encode("utf-16"))
    done = shell("$AIRGEN check job.yaml", tmp_path)
    assert (done.returncode, done.stderr) == (1, "airgen: job.yaml: is not in UTF-8 (byte 0): save it in UTF-8\n")


@pytest.mark.parametrize("started", [3, 4])
def test_a_system_that_starts_no_thread_is_named(started: int, tmp_path: Path) -> None:
    make_corpus(tmp_path / "small.jsonl", 12)
    (tmp_path / "small.yaml").write_text(CORPUS)
    (tmp_path / "job.yaml").write_text(LEXICAL.replace("target: 4", "target: 2"))
    code = (
        "import sys, threading; from airgen.cli import main; left, start = [int(sys.argv[1])], threading.Thread.start\n"
        "def limited(thread):\n"
        "    left[0] -= 1\n"
        '    if left[0] < 0: raise RuntimeError("can\'t start new thread")\n'
        "    start(thread)\n"
        "threading.Thread.start = limited; main(['run', 'job.yaml', '--quiet'])"
    )
    call = [sys.executable, "-c", code, str(started)]
    done = subprocess.run(call, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stderr.count("\n")) == (1, 1), done.stderr
    assert "starts no more threads: raise its limit" in done.stderr


@pytest.mark.parametrize("place", [".", "..", "/", "sub", "./"])
def test_a_folder_in_place_of_a_job_is_named(place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "mine.yaml").write_text("name: mine\n")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SettingsError, match="is a folder: name a YAML file") as refused:
        find_yaml("pipelines", place)
    assert ("(mine.yaml)" in str(refused.value)) == (place in (".", "./"))


def test_a_corpus_is_named_before_large_packages_are_imported() -> None:
    code = (
        "import sys, airgen; airgen.Corpus; print(sorted({'numpy', 'duckdb', 'pandas', 'torch'} & sys.modules.keys()))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert (done.stdout, done.stderr) == ("[]\n", "")
