"""Kill every phase with SIGKILL at random and chosen moments, rerun the command until it ends, and compare every byte.

    python benchmarks/kill.py --kills 1000                       all phases
    python benchmarks/kill.py --kills 50 --only publish,train    some of them
    python benchmarks/kill.py --kills 1000 --json kills.json     save every trial; a later call continues from the file

Each phase is a command of airgen that starts from the same files. A trial copies them, kills the command one to six
times, lets it end, and compares what it left with an uninterrupted run. Half of the kills are at a random moment of the
uninterrupted run's time. The other half are aimed at an event: a file that is opened for writing, renamed, linked or
removed, a transaction of the work database (before and after), a call of the LLM (before and after its answer), a
commit on the Hub. Which events are hit is drawn from `--seed` and the trial's number; at which instruction a timed
kill falls is not. New secrets are all the same one, so that two jobs have the same public ids. With `--work` on a RAM
disk the kills are faster, and test the same: SIGKILL loses nothing that was written.

Compared are: all files byte by byte, where a command writes files; all rows of the work database, where a phase only
adds rows; the files and tags of the repositories, for publishing. Not compared are times of day,
seconds and the chart of latencies (`_TIMES`).
Judgments of holes are compared as a set of lines, because their order is that of the answers. "asked twice" counts LLM
calls that were made again after a kill, of all calls.

Commands run in forks of this process, which has loaded the libraries before: a kill costs a second, not ten.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import importlib.util
import json
import multiprocessing
import os
import re
import shutil
import signal
import sys
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from random import Random
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
MAKERS = ROOT / "tests" / "makers"

PIPELINE = """
name: job
task: qa
corpus: small.yaml
target: 6
llm: {backend: scripted, concurrency: 8, latency: 0.002}
control:
  recall: {model: all-minilm-l6-v2-int8, top_k: 12}
  rerankers: [bm25, dense]
"""
SYSTEMS = """
systems:
  - {name: bm25, kind: bm25}
  - {name: lsa, kind: lsa, dim: 16}
  - {name: both, kind: fuse, systems: [bm25, lsa]}
"""
LABEL = PIPELINE.replace("name: job", "name: label").replace("target: 6", "queries: {file: queries.csv}")
SUITE = "name: notes\nversion: '26.11'\npipelines: [job.yaml]\n"
_EVENTS = ("open", "os.rename", "os.remove", "os.link", "os.mkdir", "os.rmdir", "shutil.rmtree")
_TIMES = re.compile(  # in JSON, and the table of speeds in a report
    rb'"(?:[a-z_]*seconds|updated|date|memory_bytes|queries_per_second|[a-z0-9_]*_ms)": [^,}\n]*|(?m:^\|.*\| cpu \|.*$)'
    rb"|\b[\d.,]+ (?:s|MB|GB|seconds)\b"
)


@dataclass(frozen=True)
class Phase:
    """A command, its comparison, and its preparation."""

    name: str
    command: tuple[str, ...]
    compare: Callable[[Path], dict[str, Any]]
    needs: tuple[str, ...] = ()  # phases whose results it starts from
    again: tuple[str, ...] = ()  # added to the command after a kill
    calls: bool = False  # asks an LLM
    over: str = ""  # words of the refusal where everything was done before the kill


@dataclass
class Outcome:
    """The results of the trials of a phase."""

    kills: int = 0
    aimed: int = 0
    late: int = 0  # the command ended before its kill
    trials: int = 0
    same: int = 0
    calls: int = 0
    twice: int = 0
    events: int = 0
    seconds: float = 0.0
    faults: list[str] = field(default_factory=list)


# -- what is compared --------------------------------------------------------------------------------------------


def files(*names: str) -> Callable[[Path], dict[str, Any]]:
    """Return the bytes of all files in some folders, without times."""

    def read(home: Path) -> dict[str, Any]:
        found = {}
        for name in names:
            for path in sorted((home / name).rglob("*")):
                if path.is_file():
                    data = path.read_bytes()
                    if path.suffix in (".json", ".md", ".csv", ".html"):
                        data = _TIMES.sub(b"", data)
                    found[path.relative_to(home).as_posix()] = data
        return found

    return read


def rows(home: Path) -> dict[str, Any]:
    """Return all rows of the work database by table, without the seconds of the answers."""
    import duckdb

    with duckdb.connect(str(home / "runs/job/work.duckdb"), read_only=True) as connection:
        tables = [name for (name,) in connection.execute("SELECT table_name FROM duckdb_tables()").fetchall()]
        found = {}
        for table in sorted(tables):
            without = "EXCLUDE (seconds)" if table == "answer" else ""
            found[table] = sorted(map(repr, connection.execute(f"SELECT * {without} FROM {table}").fetchall()))
        return found


def lines(name: str) -> Callable[[Path], dict[str, Any]]:
    """Return the lines of a file, in any order."""
    return lambda home: {name: sorted((home / name).read_bytes().splitlines())}


def hub_state(home: Path) -> dict[str, Any]:
    """Return the contents of the Hub, read before it is stopped."""
    return dict(json.loads((home / "hub.json").read_text()))


PHASES = [
    Phase("corpus", ("run", "job.yaml", "--until", "corpus"), rows),
    Phase("generation", ("run", "job.yaml", "--until", "hard_negative"), rows, ("corpus",), calls=True),
    Phase("control", ("run", "job.yaml", "--until", "judgment"), rows, ("generation",), calls=True),
    Phase("export", ("run", "job.yaml", "--no-evaluate"), files("runs/job/dataset"), ("control",), calls=True),
    Phase("whole job", ("run", "job.yaml", "--no-evaluate"), files("runs/job/dataset"), calls=True),
    Phase("label", ("run", "label.yaml", "--no-evaluate"), files("runs/label/dataset"), calls=True),
    Phase(
        "evaluation",
        ("evaluate", "runs/job/dataset", "--systems", "systems.yaml", "--out", "results", "--top", "50"),
        files("results"),
        ("export",),
    ),
    Phase(
        "publish",
        ("publish", "runs/job/dataset", "--repo", "my-org/job", "--private-qrels", "test", "--unmasked", "--yes"),
        hub_state,
        ("export",),
    ),
    Phase("suite", ("run", "suite.yaml"), files("suites"), ("export",), over="finished versions do not change"),
    Phase("audit", ("audit", "sample", "job.yaml", "20"), files("runs/job/audit"), ("export",)),
    Phase("audit score", ("audit", "score", "job.yaml", "answers.json"), files("runs/job/dataset"), ("audit",)),
    Phase(
        "holes",
        (
            *("audit", "holes", "runs/job/dataset", "--run", "hits.run", "--pipeline", "job.yaml"),
            *("--out", "holes", "--depth", "6"),
        ),
        lines("holes/judgments.jsonl"),
        ("export",),
        calls=True,
    ),
    Phase(
        "train",
        (
            *("train", "encoder", "--on", "toy", "--base", "bert", "--out", "model", "--device", "cpu"),
            *("--set", "batch_size=8", "--set", "epochs=2", "--set", "max_length=16", "--set", "learning_rate=1e-3"),
        ),
        files("model"),
        again=("--resume",),
    ),
]


# -- the commands ------------------------------------------------------------------------------------------------


class Killer:
    """Counts events inside the command's process, and kills the process at the `at`-th event (0: only counts)."""

    def __init__(self, home: Path, at: int, log: Path) -> None:
        self.home, self.at, self.count = str(home), at, 0
        self.log = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        self.counter = os.open(log.with_name("events"), os.O_RDWR | os.O_CREAT | os.O_TRUNC)

    def tick(self) -> None:
        self.count += 1
        os.pwrite(self.counter, b"%d" % self.count, 0)
        if self.count == self.at:
            os.kill(os.getpid(), signal.SIGKILL)

    def hear(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event not in _EVENTS or not arguments:
            return
        if event == "open" and not (isinstance(arguments[1], str) and set(arguments[1]) & set("wax+")):
            return
        name = str(arguments[0])
        if name.startswith(self.home) or not name.startswith("/"):
            self.tick()

    def around(self, inner: Callable[..., Any]) -> Callable[..., Any]:
        """Wrap a function with an event before and after it."""

        def counted(*given: Any, **more: Any) -> Any:
            self.tick()
            found = inner(*given, **more)
            self.tick()
            return found

        return counted

    def install(self) -> None:
        """Count LLM calls, transactions, calls to the Hub, and file operations."""
        from airgen.dataset.secret import Secret
        from airgen.job import job as job_module
        from airgen.llms.scripted import ScriptedBackend
        from airgen.storage.store import Store

        job_module.new_secret = lambda: Secret(bytes(range(32)))
        send, killer = ScriptedBackend.send, self

        async def counted(backend: Any, request: Any) -> Any:
            os.write(killer.log, f"{request.key}\n".encode())
            killer.tick()
            reply = await send(backend, request)
            killer.tick()
            return reply

        ScriptedBackend.send = counted  # type: ignore[method-assign]
        Store.put = self.around(Store.put)  # type: ignore[method-assign]
        if "HF_ENDPOINT" in os.environ:
            from airgen.publishing.hub import Hub

            for name in ("commit", "tag", "ensure", "files", "head"):
                setattr(Hub, name, self.around(getattr(Hub, name)))
        sys.addaudithook(self.hear)


def start(words: tuple[str, ...], home: Path, at: int, environment: dict[str, str]) -> int:
    """Run an airgen command in a fork with the working directory `home`, and return its process id."""
    sys.stdout.flush()
    child = os.fork()
    if child:
        return child
    code = 70
    try:
        os.chdir(home)
        os.environ.update(environment)
        sink = os.open(home.parent / "output", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(sink, 1)
        os.dup2(sink, 2)
        if "HF_ENDPOINT" in environment:
            import huggingface_hub.constants as constants

            constants.HF_HUB_DISABLE_XET = True
            constants.ENDPOINT = environment["HF_ENDPOINT"]  # read from the environment when it was loaded
        Killer(home, at, home.parent / "calls").install()
        from airgen.cli import main

        main(list(words))
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else 1
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def finish(child: int, after: float | None = None, limit: float = 300.0) -> int:
    """Wait for a process, kill it after some seconds, and return its exit code (-9 if it was killed)."""
    began = time.monotonic()
    while True:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return -signal.SIGKILL if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)
        if time.monotonic() - began > (limit if after is None else after):
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            return -signal.SIGKILL if after is not None else 124
        time.sleep(0.0005)


def _serve(pipe: Any) -> None:
    sys.path.insert(0, str(MAKERS))
    from fake_hub import FakeHub

    with FakeHub() as hub:
        pipe.send(hub.url)
        pipe.recv()
        state = {}
        for name, repository in sorted(hub.repositories.items()):
            held = {path: data.hex() for path, data in sorted(repository.files.items())}
            tags = {tag: commit == repository.commits[-1].oid for tag, commit in repository.tags.items()}
            state[name] = {"files": held, "private": repository.private, "tags": tags}
        pipe.send(state)


@contextlib.contextmanager
def hub(phase: Phase, home: Path) -> Iterator[dict[str, str]]:
    """Run the Hub of `tests/makers/fake_hub.py` in its own process for publishing, and nothing for other phases."""
    if phase.name != "publish":
        yield {}
        return
    mine, theirs = multiprocessing.Pipe()
    server = multiprocessing.get_context("fork").Process(target=_serve, args=(theirs,), daemon=True)
    server.start()
    try:
        yield {"HF_ENDPOINT": mine.recv(), "HF_TOKEN": "hf_" + "g" * 34, "HF_HOME": str(home.parent / "hf")}
        mine.send("stop")
        (home / "hub.json").write_text(json.dumps(mine.recv()))
    finally:
        server.kill()
        server.join()


# -- trials ------------------------------------------------------------------------------------------------------


def prepare(home: Path) -> None:
    """Prepare the files from which every phase starts."""
    sys.path.insert(0, str(MAKERS))
    maker: Any = importlib.import_module("job_maker")
    home.mkdir(parents=True)
    maker.make_corpus(home / "small.jsonl", 24)
    (home / "small.yaml").write_text(maker.CORPUS, encoding="utf-8")
    queries = "query\n" + "".join(f"which {topic} need repair near the coast\n" for topic in maker.TOPICS[:6])
    made = {"job.yaml": PIPELINE, "label.yaml": LABEL, "queries.csv": queries, "systems.yaml": SYSTEMS}
    for name, text in {**made, "suite.yaml": SUITE}.items():
        (home / name).write_text(text, encoding="utf-8")


def prepare_training(home: Path) -> None:
    """Prepare a random BERT and a dataset of 40 passages, as in the tests of training."""
    spec = importlib.util.spec_from_file_location("small_bert", ROOT / "tests" / "training" / "conftest.py")
    assert spec is not None and spec.loader is not None
    maker: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(maker)
    maker.make_bert(home / "bert")
    maker.make_dataset(home / "toy")


def prepare_answers(home: Path) -> None:
    """Prepare one person's answers to the sample of an audit."""
    sample = json.loads((home / "runs/job/audit/sample.json").read_bytes())
    answers = {str(number): number % 4 for number in range(1, len(sample["items"]) + 1)}
    (home / "answers.json").write_text(json.dumps({"key": sample["key"], "answers": answers}))


def prepare_holes(home: Path) -> None:
    """Prepare a run that ranks unjudged documents."""
    queries = [json.loads(line)["_id"] for line in (home / "runs/job/dataset/queries.jsonl").read_bytes().splitlines()]
    passages = [json.loads(line)["_id"] for line in (home / "runs/job/dataset/corpus.jsonl").read_bytes().splitlines()]
    with (home / "hits.run").open("w") as out:
        for number, query in enumerate(queries):
            for rank in range(6):
                out.write(f"{query} Q0 {passages[(number * 5 + rank) % len(passages)]} {rank + 1} {10 - rank} made\n")


def copied(before: Path, home: Path) -> None:
    """Copy the files, and update the path of the pipeline in the job's status file."""
    shutil.copytree(before, home)
    for path in home.glob("runs/*/status.json"):
        path.write_text(path.read_text().replace(f"{before}/", f"{home}/"))


def uninterrupted(phase: Phase, home: Path) -> tuple[float, int]:
    """Run a whole phase, and return the seconds and the number of events."""
    began = time.monotonic()
    with hub(phase, home) as environment:
        code = finish(start(phase.command, home, 0, environment))
    if code:
        raise SystemExit(f"{phase.name} ended with {code}:\n{(home.parent / 'output').read_text()[-2000:]}")
    return time.monotonic() - began, int((home.parent / "events").read_text() or 0)


def trial(phase: Phase, before: Path, work: Path, wanted: Any, size: tuple[float, int], draw: Random, most: int,
          out: Outcome) -> list[dict[str, Any]]:  # fmt: skip
    """Kill a command up to `most` times, let it finish, and compare."""
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir()
    home = work / "home"
    copied(before, home)
    seconds, events = size
    done: list[dict[str, Any]] = []
    words = phase.command
    with hub(phase, home) as environment:
        code = -signal.SIGKILL
        for _ in range(most):
            aimed = draw.random() < 0.5
            at, moment = draw.randint(1, max(1, events)), draw.random() * seconds
            child = start(words, home, at if aimed else 0, environment)
            code = finish(child, None if aimed else moment)
            where = {"phase": phase.name, "event": at} if aimed else {"phase": phase.name, "seconds": round(moment, 4)}
            if code != -signal.SIGKILL:
                out.late += 1
                break
            out.kills, out.aimed = out.kills + 1, out.aimed + aimed
            done.append(where)
            if phase.again and any((home / "model.training").glob("checkpoint-*/airgen.json")):
                words = phase.command + phase.again
        if code == -signal.SIGKILL:
            code = finish(start(words, home, 0, environment))
    out.trials += 1
    text = (work / "output").read_text(errors="replace")[-600:]
    if code and not (phase.over and done and phase.over in text):
        out.faults.append(f"{done}: exit code {code}: {text}")
        return done
    calls = Counter((work / "calls").read_text().split())
    out.calls += sum(calls.values())
    out.twice += sum(count - 1 for count in calls.values())
    found = phase.compare(home)
    if found == wanted:
        out.same += 1
    else:
        names = [name for name in sorted(found.keys() | wanted.keys()) if found.get(name) != wanted.get(name)]
        out.faults.append(f"{done}: differs in {names[:5]}")
    return done


def load() -> bool:
    """Load the libraries of the commands before the forks, and return whether torch is installed."""
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    sys.path.insert(0, str(ROOT))
    for name in ("airgen.job.run_job", "airgen.publishing.publish", "airgen.evaluation.result_tables", "onnxruntime",
                 "airgen.retrievers.dense.embedders", "airgen.audit.holes", "airgen.publishing.suites", "typer",
                 "airgen.commands.train", "airgen.dataset.layouts", "tokenizers"):  # fmt: skip
        importlib.import_module(name)
    tokens: Any = importlib.import_module("airgen.text.token_counts")
    tokens.count_tokens("the vocabulary is read once")
    try:
        for name in ("torch", "transformers", "sentence_transformers"):
            importlib.import_module(name)
    except ImportError:
        return False
    return True


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=100, help="kills in all, divided among the phases")
    parser.add_argument("--minutes", type=float, default=600.0, help="stop after this time, with what there is")
    parser.add_argument("--only", default="", help="phases, by commas: " + ", ".join(phase.name for phase in PHASES))
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", type=Path, help="write the outcomes and every kill; go on from what it holds")
    parser.add_argument("--work", type=Path, help="where the temporary folder of the trials is made")
    options = parser.parse_args()
    warnings.simplefilter("ignore", DeprecationWarning)
    torch = load()
    only = [name.strip() for name in options.only.split(",") if name.strip()]
    phases = [phase for phase in PHASES if not only or phase.name in only]
    if not torch:
        phases = [phase for phase in phases if phase.name != "train"]
        print("train is left out: torch, transformers and sentence-transformers are not installed")
    began = time.monotonic()
    with contextlib.ExitStack() as stack:
        top = stack.enter_context(tempfile.TemporaryDirectory(prefix="airgen-kill-", dir=options.work))
        run_all(phases, Path(top).resolve(), options, began)


def run_all(phases: list[Phase], top: Path, options: Any, began: float) -> None:
    starts: dict[str, Path] = {}
    references: dict[str, tuple[Any, tuple[float, int]]] = {}

    def reference(phase: Phase) -> None:
        """Return the files before a phase, and the results of an uninterrupted run."""
        if phase.name in references:
            return
        home = top / f"{phase.name.replace(' ', '-')}-reference" / "home"
        if phase.needs:
            source = next(one for one in PHASES if one.name == phase.needs[0])
            reference(source)
            copied(top / f"{source.name.replace(' ', '-')}-reference" / "home", home)
        else:
            prepare(home)
        if phase.name == "holes":
            prepare_holes(home)
        if phase.name == "audit score":
            prepare_answers(home)
        if phase.name == "train":
            prepare_training(home)
        starts[phase.name] = top / f"{phase.name.replace(' ', '-')}-start"
        copied(home, starts[phase.name])
        seconds, events = uninterrupted(phase, home)
        first = phase.compare(home)
        twin = top / "twin" / "home"
        shutil.rmtree(twin.parent, ignore_errors=True)
        copied(starts[phase.name], twin)
        seconds = min(seconds, uninterrupted(phase, twin)[0])
        second = phase.compare(twin)
        if first != second:
            names = [name for name in sorted(first.keys() | second.keys()) if first.get(name) != second.get(name)]
            raise SystemExit(f"{phase.name}: two uninterrupted runs differ in {names[:10]}")
        if not first:
            raise SystemExit(f"{phase.name}: nothing to compare")
        references[phase.name] = first, (seconds, events)

    before = json.loads(options.json.read_bytes()) if options.json and options.json.exists() else {}
    outcomes = {name: Outcome(**one) for name, one in before.get("outcomes", {}).items()}
    kills: list[dict[str, Any]] = before.get("kills", [])
    share = -(-options.kills // len(phases))
    phases = [one for one in phases if one.name not in outcomes or outcomes[one.name].kills < share]
    for phase in phases:
        reference(phase)
        out = outcomes.setdefault(phase.name, Outcome())
        out.seconds, out.events = references[phase.name][1]
        seconds, events = references[phase.name][1]
        print(f"{phase.name}: {seconds:.2f} s and {events} events without a kill", flush=True)
    left = list(phases)
    while left and time.monotonic() - began < options.minutes * 60:
        for phase in list(left):
            out = outcomes[phase.name]
            draw = Random(f"{options.seed}/{phase.name}/{out.trials}")
            wanted, size = references[phase.name]
            most = min(draw.randint(1, 6), max(1, share - out.kills))
            kills += trial(phase, starts[phase.name], top / "trial", wanted, size, draw, most, out)
            if out.kills >= share:
                left.remove(phase)
            if options.json:
                value = {"outcomes": {name: asdict(one) for name, one in outcomes.items()}, "kills": kills}
                options.json.write_text(json.dumps(value, indent=1), encoding="utf-8")
    print(table(outcomes))
    for name, out in outcomes.items():
        for fault in out.faults:
            print(f"{name}: {fault}")
    if any(out.faults for out in outcomes.values()):
        raise SystemExit(1)


def table(outcomes: dict[str, Outcome]) -> str:
    """Format the outcomes as a Markdown table, with their total."""
    head = ("phase", "events", "kills", "of them aimed", "trials", "same bytes", "calls", "asked twice")
    parts = [
        (name, one.events, one.kills, one.aimed, one.trials, one.same, one.calls, one.twice)
        for name, one in outcomes.items()
    ]
    total = ("all", "", *(sum(part[place] for part in parts) for place in range(2, len(head))))
    body = [[f"{cell:,}" if isinstance(cell, int) else str(cell) for cell in part] for part in (*parts, total)]
    return "\n".join("| " + " | ".join(part) + " |" for part in (head, ["---"] * len(head), *body))


if __name__ == "__main__":
    main()
