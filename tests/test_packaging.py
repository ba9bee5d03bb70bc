"""What is given to others: the wheel's content, the README's links, and a package that needs no POSIX."""

import ast
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from child import AIRGEN, finish

import airgen
from airgen.commands import init
from airgen.components.registry import EXTRAS, load_extra
from airgen.errors import AirgenError
from airgen.job.starter import install_extras

ROOT = Path(airgen.__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())

# Runs in a separate process: POSIX-only modules are removed, then every module is imported, then a small job runs.
WITHOUT_POSIX = """
import asyncio, builtins, contextlib, importlib, pkgutil, sys, types

AWAY = {"resource", "fcntl", "termios", "pwd", "grp", "tty", "pty", "syslog", "readline", "curses"}
ONLY_POSIX = {
    "os": {"getuid", "geteuid", "fork", "pread", "pwrite", "statvfs", "killpg", "setsid", "mkfifo", "nice",
           "sched_getaffinity", "uname", "getloadavg", "register_at_fork", "O_DIRECTORY", "O_NOFOLLOW", "kill"},
    "signal": {"SIGKILL", "SIGHUP", "SIGUSR1", "SIGPIPE", "SIGALRM", "SIGCHLD", "setitimer", "alarm"},
}

def windows(name):  # a copy of the module without what only POSIX has
    real = importlib.import_module(name)
    copy = types.ModuleType(name)
    copy.__dict__.update({key: value for key, value in vars(real).items() if key not in ONLY_POSIX[name]})
    return copy

COPIES = {name: windows(name) for name in ONLY_POSIX}
real_import = builtins.__import__

def guarded(name, globals=None, locals=None, fromlist=(), level=0):
    if level == 0 and str((globals or {}).get("__name__", "")).startswith("airgen"):
        if name in AWAY:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        if name in COPIES:
            return COPIES[name]
    return real_import(name, globals, locals, fromlist, level)

builtins.__import__ = guarded

sys.modules |= dict.fromkeys(("torch", "transformers", "sentence_transformers", "datasets"))  # they take long
import airgen
from airgen.errors import MissingExtra
for found in pkgutil.walk_packages(airgen.__path__, "airgen."):
    if not found.name.endswith(("__main__", "_compiled")):
        with contextlib.suppress(MissingExtra):
            importlib.import_module(found.name)

def refuse(self, *arguments):
    raise NotImplementedError  # as the event loop of Windows
asyncio.unix_events._UnixSelectorEventLoop.add_signal_handler = refuse
asyncio.unix_events._UnixSelectorEventLoop.remove_signal_handler = refuse
from pathlib import Path
from rich.console import Console
from airgen.job import Job
from airgen.job.run_job import run_pipeline
result = run_pipeline(Job(Path("job.yaml")), console=Console(quiet=True))
assert result.manifest is not None and result.scores, result
print("done")
"""


def test_nothing_needs_posix(tmp_path: Path) -> None:
    from job_maker import CORPUS, LEXICAL, make_corpus

    make_corpus(tmp_path / "small.jsonl", 20)
    corpus = CORPUS.replace(", near_duplicates: null", "")  # the search for duplicates has its own files
    assert corpus != CORPUS
    (tmp_path / "small.yaml").write_text(corpus)
    job = LEXICAL.replace("target: 4", "target: 2")
    (tmp_path / "job.yaml").write_text(f"{job}evaluate: {{systems: systems.yaml, split: all}}\n")
    (tmp_path / "systems.yaml").write_text("systems: [{name: bm25, kind: bm25}]\n")
    done = subprocess.run([sys.executable, "-c", WITHOUT_POSIX], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0 and done.stdout.endswith("done\n"), done.stderr[-3000:]


def test_the_readme_of_the_package_leads_nowhere_else() -> None:
    """PyPI has no files of the repository: the links to them are away there, and their words stay."""
    text = (ROOT / "README.md").read_text("utf-8")
    used, defined = re.findall(r"\]\[([^]]+)\]", text), re.findall(r"^\[([^]]+)\]: ", text, re.MULTILINE)
    assert set(used) == set(defined)
    hook = PROJECT["tool"]["hatch"]["metadata"]["hooks"]["fancy-pypi-readme"]
    for one in hook["substitutions"]:
        text = re.sub(one["pattern"], one["replacement"], text)
    assert all(link.startswith("https://") for link in re.findall(r"\]\(([^)]*)", text))
    assert "Page 1 of the guide is" in " ".join(text.split()) and not re.search(r"\]\[|^\[", text, re.MULTILINE)


def test_the_wheel_holds_what_is_found_by_name() -> None:
    included = PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["force-include"]
    for name in ("prompts", "corpora", "pipelines", "docs"):
        assert included[name] == f"airgen/_data/{name}" and (ROOT / name).is_dir()


def test_extras_and_the_registry_name_the_same_packages() -> None:
    extras = PROJECT["project"]["optional-dependencies"]
    for distribution, extra in EXTRAS.values():
        assert any(re.match(rf"{re.escape(distribution)}\b", line) for line in extras[extra]), (distribution, extra)
    assert set().union(*init.DEMO_EXTRAS.values()) <= set(extras) and "long-doc" not in init.DEMO_EXTRAS["qa"]


def test_each_optional_package_that_is_loaded_has_an_extra() -> None:
    """If not, a missing package ends in a traceback, and not in a line that says what to install."""
    loaded = set()
    for path in (ROOT / "airgen").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") in ("load_extra", "missing_extra"):
                loaded |= {str(name.value) for name in node.args[:1] if isinstance(name, ast.Constant)}
    required = " ".join(PROJECT["project"]["dependencies"])
    assert len(loaded) > 30
    assert not {
        name for name in loaded if name.partition(".")[0] not in EXTRAS and name.partition(".")[0] not in required
    }


def test_a_demo_without_its_packages_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    import importlib.util

    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *rest: None if name == "xllamacpp" else find(name, *rest)
    )
    monkeypatch.setattr(sys, "prefix", sys.base_prefix)
    with pytest.raises(AirgenError, match=r"the demo needs xllamacpp: pip install 'airgen-bench\[embedded,corpus\]'"):
        install_extras(init.DEMO_EXTRAS["qa"], print)


@pytest.mark.parametrize("words", ["--help", "show settings", "check nowhere"])
@pytest.mark.parametrize("both", [False, True])
def test_nobody_reads_the_output(words: str, both: bool) -> None:
    """`airgen ... | head -0`: quiet, and never "wrong usage" or 0 for what could not be said."""
    closed = "import os\nreader, writer = os.pipe()\nos.close(reader)\nos.dup2(writer, 1)\n"
    done = finish(f"{closed}{'os.dup2(writer, 2)' if both else ''}\n{AIRGEN}", *words.split())
    assert done.returncode == 1
    said = done.stderr.strip()
    assert said.startswith("airgen: ") == (words == "check nowhere" and not both)
    assert said.startswith("airgen: ") or said == ""


def test_a_package_that_is_there_and_broken_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As justext with lxml 6 where an older pip left lxml_html_clean out."""
    (tmp_path / "mammoth.py").write_text("raise ImportError('lxml.html.clean is\\na separate project')")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "mammoth", raising=False)
    told = (
        r"^reader 'docx' needs the package mammoth, .*\(lxml.html.clean is a separate project\): pip install .*corpus"
    )
    with pytest.raises(AirgenError, match=told):
        load_extra("mammoth", "reader 'docx'")


def test_an_environment_of_uv_has_no_pip(monkeypatch: pytest.MonkeyPatch) -> None:
    import importlib.util
    import shutil

    from airgen.job.starter import _installer

    assert _installer("x")[1:] == ["-m", "pip", "install"]
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *rest: None)
    monkeypatch.setattr(shutil, "which", lambda name: f"/a place/{name}")
    assert _installer("x") == ["/a place/uv", "pip", "install", "--python", sys.executable]
    monkeypatch.setattr(shutil, "which", lambda name: None)
    with pytest.raises(AirgenError, match="no pip, and there is no uv: python -m ensurepip, then x"):
        _installer("x")
