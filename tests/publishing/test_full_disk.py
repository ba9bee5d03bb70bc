"""Sharing a dataset when the disk becomes full: one line, no half of a file, and the same command continues.

The disk is real: a file system of some kilobytes that only the child process sees. TMPDIR is on it, too.
"""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from dataset_maker import make_content

from airgen.dataset.write import write_dataset

CHILD = """
import atexit, json, os, shutil, subprocess, sys, tempfile
from pathlib import Path
from airgen.cli import main
import airgen.audit.holes, airgen.audit.labels, airgen.publishing.publish, airgen.report.report
disk, commands = Path(sys.argv[1]), json.loads(sys.argv[2])
os.environ["TMPDIR"] = str(disk / "tmp")

def call(words):
    with (disk.parent / "error").open("w") as error:
        child = os.fork()
        if child == 0:
            os.dup2(error.fileno(), 2), os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
            tempfile.tempdir = None
            try:
                main(words)
            except SystemExit as ended:
                atexit._run_exitfuncs()
                os._exit(int(ended.code or 0))
            finally:
                os._exit(99)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return code, (disk.parent / "error").read_text()

def files(folder):
    paths = sorted(path for path in folder.rglob("*") if path.is_file() and not path.name.endswith(".lock"))
    return {path.relative_to(folder).as_posix(): path.read_bytes().hex() for path in paths}

def kilobytes():
    state = os.statvfs(disk)
    return (state.f_blocks - state.f_bfree) * state.f_frsize // 1024

subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64m", "tmpfs", disk], check=True)
for name, words in commands.items():
    for share in (None, 0.3, 0.9):
        for path in disk.iterdir():
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        (disk / "tmp").mkdir()
        size = "64m" if share is None else f"{max(4, int(needed * share) // 4 * 4)}k"
        subprocess.run(["mount", "-o", f"remount,size={size}", disk], check=True)
        code, error = call(words)
        if share is None:
            needed = kilobytes()
        first = files(disk)
        subprocess.run(["mount", "-o", "remount,size=64m", disk], check=True)
        again = (0, "") if share is None else call(words)
        print(json.dumps([name, share, code, error, first, *again, files(disk)]))
"""


def test_full_disk(tmp_path: Path) -> None:
    alone = ["unshare", "--user", "--map-root-user", "--mount"]
    if shutil.which("unshare") is None or subprocess.run([*alone, "true"], capture_output=True, check=False).returncode:
        pytest.skip("this system lets nobody make a file system of their own")
    data, disk, run = tmp_path / "weather-notes", tmp_path / "disk", tmp_path / "bm25.run"
    write_dataset(data, make_content(60, 30))
    hits = [f"q-{at:02d} Q0 doc{at:03d} 1 2.0 b" for at in range(30)]
    run.write_text("\n".join(hits) + "\n", "utf-8")
    disk.mkdir()
    commands = {
        "public": ["report", data, "--public", "--private-qrels", "test", "--out", disk / "r"],
        "file": ["report", data, "--out", disk / "r.html", "--single-file"],
        "plan": ["publish", data, "--repo", "org/name", "--private-qrels", "test", "--report", disk / "r"],
        "submission": ["publish", "submit", "--dataset", data, "--run", run, "--model", "b", "--out", disk / "s.zip"],
        "sample": ["audit", "sample", data, "30", "--out", disk / "audit"],
        "holes": ["audit", "holes", data, "--run", run, "--out", disk / "holes"],
    }
    words = json.dumps({name: list(map(str, command)) for name, command in commands.items()})
    child = subprocess.run(
        [*alone, sys.executable, "-c", CHILD, str(disk), words], capture_output=True, text=True, check=False
    )
    assert child.returncode == 0, child.stderr
    whole: dict[str, dict[str, str]] = {}
    full = 0
    for name, share, code, error, first, code_again, error_again, last in map(json.loads, child.stdout.splitlines()):
        where = (name, share, error, error_again)
        if share is None:
            assert code == 0, where
            whole[name] = last
            continue
        assert code in (0, 1) and "Traceback" not in error, where
        if code:
            full += 1
            line = error.splitlines()[-1]
            assert line.startswith(f"airgen: {disk}/") and "No space left on device: free some space" in line, where
        assert first.items() <= whole[name].items() and (code == 1 or first == whole[name]), where
        assert (code_again, last) == (0, whole[name]), where
    assert full > len(commands)
