"""The entry point in odd surroundings: closed streams, a reader that leaves, a folder that is gone."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(os.name == "nt", reason="a POSIX shell")


def shell(line: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a line of shell in which $AIRGEN is the command, with its errors in `errors`."""
    environment = {**os.environ, "AIRGEN": f"{sys.executable} -m airgen"}
    return subprocess.run(
        ["bash", "-c", line], cwd=folder, env=environment, capture_output=True, text=True, timeout=120
    )


@pytest.mark.parametrize("closed", ["<&-", ">&-", "<&- >&-", "2>&-", "<&- >&- 2>&-"])
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
