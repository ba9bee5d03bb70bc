"""Build and test the files of a release from a tag, without publishing: `make release`.

    python tests/makers/release.py                  # in dist/; the wheel is tried without an extra, and with each alone
    python tests/makers/release.py embedded fast    # ... with these extras only

dist/ then holds wheel, sdist, an SBOM of what `pip install airgen-bench` installs (CycloneDX) and SHA256SUMS. Needs
git, the packages build, twine and cyclonedx-bom, and a package registry.
"""

import hashlib
import io
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import venv
import zipfile
from collections.abc import Sequence
from email import message_from_bytes
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DIST = ROOT / "dist"
MOST = 5_000_000  # bytes of a file that is published
CONSTRAINT = "torch==2.13.0\n"  # an unpinned one may bring several GB of CUDA

JOB = """
name: job
task: qa
corpus: corpus.yaml
target: 2
llm: {backend: scripted}
control: {recall: {pools_only: true, top_k: 100}, pools: [bm25], rerankers: [bm25], judge: {kind: votes}}
evaluate: {systems: lexical.yaml, split: all}
"""
# Not pipeline.yaml, which init may give models of a Hub that is not reached here.
STEPS = (
    "--help", "show settings", "show prompts query", "init notes", "check job.yaml", "run job.yaml",
    "publish verify runs/job/dataset",
)  # fmt: skip

# Every module of airgen can be imported, or says what it needs; and what the packages of the extra provide.
IMPORTS = """
import contextlib, importlib, importlib.metadata, pkgutil, re, sys
import airgen, airgen.errors
for found in pkgutil.walk_packages(airgen.__path__, "airgen."):
    if not found.name.endswith("__main__") and (sys.argv[1] == "fast" or not found.name.endswith("_compiled")):
        with contextlib.suppress(airgen.errors.MissingExtra):
            importlib.import_module(found.name)
flat = lambda name: re.sub(r"[-_.]+", "-", name).lower()
wanted = {flat(re.match(r"[\\w.-]+", line)[0]) for line in importlib.metadata.requires("airgen-bench")
          if re.search(f"extra == '{sys.argv[1]}'", line)}
for module, packages in sorted(importlib.metadata.packages_distributions().items()):
    if wanted & set(map(flat, packages)) and module.isidentifier() and not module.startswith("_"):
        importlib.import_module(module)
"""


def call(*words: object, cwd: Path = ROOT, **environment: str) -> str:
    """Return the standard output of a program. If it fails, its output ends the release."""
    done = subprocess.run(
        [str(word) for word in words], cwd=cwd, env={**os.environ, **environment}, capture_output=True, text=True
    )
    if done.returncode:
        sys.exit(f"release: {' '.join(map(str, words))}: exit code {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def need(right: object, words: str) -> None:
    """End the release with this message unless the condition holds."""
    if not right:
        sys.exit(f"release: {words}")


def tagged_version() -> str:
    """Return the version named by the tag and the changelog, for a clean git tree."""
    (version,) = re.findall(r'^__version__ = "(.+)"$', (ROOT / "airgen" / "__init__.py").read_text(), re.MULTILINE)
    need(not call("git", "status", "--porcelain"), "the tree has changes: commit or stash them")
    tags = call("git", "tag", "--points-at", "HEAD").split()
    need(f"v{version}" in tags, f"this commit has not the tag v{version} (tags: {', '.join(tags) or 'none'}): git tag "
         f"v{version}, or set __version__ in airgen/__init__.py")  # fmt: skip
    for name in ("README.md", "CHANGELOG.md", "docs/01-start.md"):
        stale = re.search(r".*(unreleased|not released yet).*", (ROOT / name).read_text())
        need(not stale, f"{name} says {stale and stale[0].strip()!r}: say what is true after the release")
    need(re.search(rf"^## {re.escape(version)}\b", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE),
         f"CHANGELOG.md has no part {version}")  # fmt: skip
    return version


def build(folder: Path) -> dict[str, bytes]:
    """Build the wheel and sdist of the commit, and return them by name."""
    source, epoch = folder / "source", call("git", "log", "-1", "--format=%ct").strip()
    packed = subprocess.run(["git", "archive", "HEAD"], cwd=ROOT, check=True, capture_output=True).stdout
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        archive.extractall(source, filter="data")
    call(sys.executable, "-m", "build", "--outdir", folder / "out", source, SOURCE_DATE_EPOCH=epoch)
    return {path.name: path.read_bytes() for path in sorted((folder / "out").iterdir())}


def check_contents(built: dict[str, bytes], version: str) -> list[str]:
    """Check that the archives contain exactly the files of the repository, and that the metadata is correct. Returns
    the extras."""
    tracked = set(call("git", "ls-files").splitlines()) - {".ci/run"}
    stem = f"airgen_bench-{version}"
    need(set(built) == {f"{stem}-py3-none-any.whl", f"{stem}.tar.gz"}, f"built {', '.join(built)}")
    for name, data in built.items():
        need(len(data) < MOST, f"{name} has {len(data):,} bytes, of at most {MOST:,}")
    with tarfile.open(fileobj=io.BytesIO(built[f"{stem}.tar.gz"])) as sdist:
        found = {name.partition("/")[2] for name in sdist.getnames()}
    differ("the sdist", found - {"PKG-INFO"}, tracked)
    wheel = zipfile.ZipFile(io.BytesIO(built[f"{stem}-py3-none-any.whl"]))
    info = f"{stem}.dist-info"
    data = {one for one in tracked if one.startswith(("prompts/", "corpora/", "docs/", "pipelines/"))}
    code = {one for one in tracked if one.startswith("airgen/")}
    own = {f"{info}/{one}" for one in ("METADATA", "RECORD", "WHEEL", "entry_points.txt", "licenses/LICENSE")}
    differ("the wheel", set(wheel.namelist()), {*code, *own, *(f"airgen/_data/{one}" for one in data)})
    need(wheel.read(f"{info}/licenses/LICENSE") == (ROOT / "LICENSE").read_bytes(), "the wheel has another LICENSE")
    about = message_from_bytes(wheel.read(f"{info}/METADATA"))
    text = about.get_payload(decode=True).decode()
    need(not re.search(r"\]\((?!https:)|\]\[|^\[.+\]: ", text, re.MULTILINE), "the description has a link to no site")
    need(about["License-Expression"] == "Apache-2.0", "the metadata has another licence")
    return about.get_all("Provides-Extra", [])


def differ(what: str, found: set[str], wanted: set[str]) -> None:
    """End the release if two sets of files differ."""
    need(found == wanted, f"{what} lacks {sorted(wanted - found)[:5]}, and has {sorted(found - wanted)[:5]} besides")


def install(folder: Path, wheel: Path, extra: str) -> Path:
    """Create an environment with only the wheel and one extra, without pip, and return its programs."""
    venv.create(folder / "env")
    (folder / "constraint").write_text(CONSTRAINT)
    programs = folder / "env" / ("Scripts" if os.name == "nt" else "bin")
    pip = (sys.executable, "-m", "pip", "--quiet", "--python", programs / "python")
    call(*pip, "install", "--no-compile", "-c", folder / "constraint", f"{wheel}[{extra}]" if extra else wheel)
    call(*pip, "check")
    return programs


def try_out(folder: Path, programs: Path, extra: str, version: str) -> None:
    """Run a user's first commands, and a whole job with the scripted model on the guide, with an empty cache."""
    work = folder / "work"
    (work / "notes").mkdir(parents=True)
    for page in (ROOT / "docs").glob("[0-9]*.md"):
        shutil.copy(page, work / "notes")
    (work / "job.yaml").write_text(JOB)
    (work / "lexical.yaml").write_text("systems: [{name: bm25, kind: bm25}, {name: rm3, kind: rm3}]\n")
    empty = {"HOME": str(folder), "AIRGEN_CACHE": str(folder / "cache"), "OPENAI_API_KEY": "none", "PYTHONPATH": ""}
    (folder / "imports.py").write_text(IMPORTS)
    call(programs / "python", folder / "imports.py", extra, cwd=work, **empty)
    airgen = programs / "airgen"
    said = call(airgen, "--version", cwd=work, **empty)
    need(said == f"airgen {version}\n", f"airgen --version says {said!r}")
    for step in STEPS:
        call(airgen, *step.split(), cwd=work, **empty)


def write_sbom(programs: Path, place: Path, version: str) -> str:
    """The packages of an environment, as CycloneDX; returns how many they are, and which the GPL or its kin covers."""
    call(sys.executable, "-m", "cyclonedx_py", "environment", "--output-reproducible", "--pyproject",
         ROOT / "pyproject.toml", "-o", place, programs / "python")  # fmt: skip
    bom = json.loads(place.read_text())
    bom["metadata"]["component"]["version"] = version
    place.write_text(json.dumps(bom, indent=2) + "\n")
    found = [part["name"] for part in bom["components"] if "GPL" in str(part.get("licenses"))]
    return f"{len(bom['components'])} packages; with a licence of the GPL's kind: {', '.join(found) or 'none'}"


def main(extras: Sequence[str]) -> None:
    """Make, check and try everything."""
    version = tagged_version()
    with tempfile.TemporaryDirectory() as name:
        first, second = (build(Path(name) / one) for one in ("a", "b"))
    need(first == second, "two builds differ: a wheel or an sdist is not reproducible")
    known = check_contents(first, version)
    need(set(extras) <= set(known), f"EXTRAS: the extras are {', '.join(known)}")
    shutil.rmtree(DIST, ignore_errors=True)
    DIST.mkdir()
    for file, data in first.items():
        (DIST / file).write_bytes(data)
        print(f"{file}: {len(data):,} bytes, twice the same")
    call(sys.executable, "-m", "twine", "check", "--strict", *(DIST / file for file in first))
    (wheel,) = DIST.glob("*.whl")
    for extra in ["", *(extras or known)]:
        with tempfile.TemporaryDirectory() as name:
            programs = install(Path(name), wheel, extra)
            try_out(Path(name), programs, extra, version)
            if not extra:
                print("SBOM:", write_sbom(programs, DIST / f"airgen_bench-{version}.cdx.json", version))
            size = sum(path.stat().st_size for path in (Path(name) / "env").rglob("*") if path.is_file())
        print(f"installed {f'with {extra}' if extra else 'without an extra'}, {size / 1e6:,.0f} MB: works", flush=True)
    sums = [f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in sorted(DIST.iterdir())]
    (DIST / "SHA256SUMS").write_text("".join(sums))
    print(f"nothing is published yet. What does that:\n  twine upload {' '.join(f'dist/{file}' for file in first)}\n"
          f"  git push origin v{version}")  # fmt: skip


if __name__ == "__main__":
    main(sys.argv[1:])
