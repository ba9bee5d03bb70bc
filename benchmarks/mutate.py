"""Mutation testing: change the code in one place, run the tests of that module, and check whether any of them fails.

    python benchmarks/mutate.py                                 all modules of MODULES, in that order
    python benchmarks/mutate.py airgen/components/keys.py --json keys.json one module, and every mutant in a file
    python benchmarks/mutate.py airgen/components/keys.py --only 12 13     some mutants
    python benchmarks/mutate.py --again keys.json               those that survived then

A mutant is killed when a test fails or does not end. One that survives shows code that no test depends on, or a change
that makes no difference (then it stands in EQUIVALENT with the reason, and does not count).

mutmut leaves constants of a module, functions with decorators and the removal of statements alone, and the last is
what reviews found untested here; cosmic-ray starts a new interpreter for each mutant. So this script changes the syntax
tree itself, and runs each mutant in a fork of a process that has collected the tests already, and there only the
tests that execute its line, short ones first.

Changed are: comparisons, `and`/`or`, `not`, operators, numbers, booleans and strings; removed are statements, and a
returned value becomes None. Not changed are docstrings, annotations, `__all__`, imports, parts of f-strings, and the
words of errors (a string inside `raise`).
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import copy
import importlib
import inspect
import io
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
import types
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]

# Module -> the tests that protect it, fast ones first.
MODULES: dict[str, list[str]] = {
    "airgen/components/keys.py": ["tests/components/test_keys.py"],
    "airgen/llms/call_queue.py": [f"tests/llms/test_{name}.py" for name in ("call_queue", "engine", "rate_limits")],
    "airgen/llms/money.py": ["tests/llms/test_budget.py", "tests/llms/test_money.py"],
    "airgen/control/table2.py": ["tests/control/test_table2.py"],
    "airgen/steps/votes.py": ["tests/control/test_votes.py"],
    "airgen/storage/store.py": ["tests/storage/test_group_commit.py", "tests/storage/test_store.py"],
    "airgen/dataset/verify.py": ["tests/dataset/test_verify.py"],
    "airgen/publishing/withhold.py": ["tests/publishing/test_withhold.py"],
    "airgen/evaluation/measures.py": ["tests/evaluation/test_measures.py"],
    "airgen/evaluation/significance.py": ["tests/evaluation/test_significance.py", "tests/evaluation/test_gate.py"],
    "airgen/studies/rank_correlation.py": ["tests/studies/test_correlate.py"],
}

# (module, line's text, change) -> why no test can distinguish it from the original.
EQUIVALENT: dict[tuple[str, str, str], str] = {
    (
        "airgen/steps/votes.py",
        "return (min(own) - max(others)) / ((max(scores) - min(scores)) or 1.0)",
        "1.0 to 2.0",
    ): "of equal scores the difference is 0",
    **{
        ("airgen/llms/call_queue.py", line, change): "a call is sized and numbered before these are read"
        for line, *changes in (
            ("prompt: int = 0", "removed", "0 to 1"),
            ("reserved: float = 0.0", "removed", "0.0 to 1.0"),
            (
                "replaced: Sequence[str] = ()  # open reservations of a killed process that this attempt's replaces",
                "removed",
            ),
            ("tokens: float = 0.0", "removed", "0.0 to 1.0"),
            ("number: int = 0", "removed", "0 to 1"),
        )
        for change in changes
    },
    (
        "airgen/llms/call_queue.py",
        "if room != call.request.room:",
        "always",
    ): "the same request, made once more",
    (
        "airgen/llms/call_queue.py",
        'key = secrets.token_hex(16) if call.reserved or call.replaced else ""  # of this attempt\'s own reservation',
        "16 to 17",
    ): "a longer random key is as good",
    (
        "airgen/llms/call_queue.py",
        'self._set_aside.append((call, Retry("stopped")))  # so that `empty` finds it',
        "'stopped' changed",
    ): "the engine stops, and nobody sees the reason",
    (
        "airgen/publishing/withhold.py",
        "with building(out, durable=False) as directory:",
        "False to True",
    ): "the copy is flushed to the disk as well: slower, and the same files",
    (
        "airgen/dataset/verify.py",
        'text = path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""',
        "'' changed",
    ): "other words in place of a missing file hold no secret either",
    ("airgen/storage/store.py", 'T = TypeVar("T")', "removed"): "only annotations use it",
    (
        "airgen/storage/store.py",
        "several = len(statements) > 1",
        "Gt to GtE",
    ): "BEGIN and COMMIT around one statement cost time",
    ("airgen/evaluation/significance.py", "Matrix = NDArray[np.float64]", "removed"): "only annotations use it",
    ("airgen/studies/rank_correlation.py", "Matrix = NDArray[np.float64]", "removed"): "only annotations use it",
    **{
        ("airgen/evaluation/significance.py", line, change): "the same figures, more or fewer of them held at once"
        for line, change in (
            ("_RESAMPLED_CELLS = 4_000_000  # resampled cells held at once: 32 MB", "4000000 to 4000001"),
            ("step = max(1, _RESAMPLED_CELLS // total)", "1 to 2"),
            ("step = max(1, _RESAMPLED_CELLS // total)", "FloorDiv to Mult"),
        )
    },
    ("airgen/storage/store.py", 'T = TypeVar("T")', "'T' changed"): "only annotations use it",
    (
        "airgen/storage/store.py",
        "STREAMED_ROWS = 2048  # of a long result, held in memory at a time",
        "2048 to 2049",
    ): "the same rows, one more of them in memory",
    (
        "airgen/storage/store.py",
        "for ordinal, (key, id_, _, *rest) in zip(ordinals[part].tolist(), rows, strict=True):",
        "True to False",
    ): "there is a row for each place, or the line before fails",
    (
        "airgen/storage/store.py",
        "if (np.diff(places) == 1).all():",
        "never",
    ): "a range is the faster way to name the same places",
    (
        "airgen/storage/store.py",
        "if (np.diff(places) == 1).all():",
        "1 to 2",
    ): "a range that holds other places, too, gives rows that nobody asks for",
}

_SWAPS: dict[type[ast.AST], type[ast.AST]] = {
    ast.Eq: ast.NotEq, ast.NotEq: ast.Eq, ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt,
    ast.In: ast.NotIn, ast.NotIn: ast.In, ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.And: ast.Or, ast.Or: ast.And,
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Add, ast.Div: ast.Mult, ast.FloorDiv: ast.Mult,
    ast.Mod: ast.Add, ast.BitOr: ast.BitAnd, ast.BitAnd: ast.BitOr, ast.LShift: ast.RShift, ast.Pow: ast.Mult,
}  # fmt: skip


@dataclass(frozen=True)
class Mutant:
    """A change: its position, its line, its description, and the changed text of the module."""

    module: str
    number: int
    line: int
    text: str
    change: str
    source: str

    @property
    def name(self) -> tuple[str, str, str]:
        return self.module, self.text, self.change


def mutants(path: Path) -> list[Mutant]:
    """Return all mutants of a module in the order of its lines."""
    source = path.read_text(encoding="utf-8")
    tree, lines = ast.parse(source), source.splitlines()
    module = path.resolve().relative_to(ROOT).as_posix()
    found = []
    for place, node in enumerate(_changeable(tree)):
        for choice in range(len(list(_changes(node)))):
            twin = copy.deepcopy(tree)
            target = list(_changeable(twin))[place]
            change, apply = list(_changes(target))[choice]
            new = apply()
            if new is not target:
                _replace(twin, target, new)
            text = ast.unparse(ast.fix_missing_locations(twin))
            line = node.lineno  # type: ignore[attr-defined]
            found.append((line, lines[line - 1].strip(), change, text))
    found.sort(key=lambda one: one[0])
    return [Mutant(module, number, *one) for number, one in enumerate(found)]


def _changeable(tree: ast.AST) -> Iterator[ast.AST]:
    """Return the nodes that may be changed, in a fixed order."""
    if isinstance(tree, (ast.JoinedStr, ast.Import, ast.ImportFrom)):
        return
    if isinstance(tree, ast.If) and ast.unparse(tree.test) == "TYPE_CHECKING":
        return
    if isinstance(tree, ast.Assign) and ast.unparse(tree.targets[0]) == "__all__":
        return
    if isinstance(tree, ast.Expr) and isinstance(tree.value, ast.Constant):
        return  # a docstring
    yield tree
    for name, value in ast.iter_fields(tree):
        if name in ("annotation", "returns", "decorator_list", "type_comment") or isinstance(tree, ast.Raise):
            continue
        if isinstance(tree, ast.AnnAssign) and name == "target":
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST):
                yield from _changeable(child)


def _changes(node: ast.AST) -> Iterator[tuple[str, Any]]:
    """Yield (description, function that makes the change and returns the new node)."""

    def swap(place: int | None = None) -> ast.AST:
        if place is None:
            node.op = _SWAPS[type(node.op)]()  # type: ignore[attr-defined]
        else:
            node.ops[place] = _SWAPS[type(node.ops[place])]()  # type: ignore[attr-defined]
        return node

    def put(value: object) -> Any:
        return lambda: ast.copy_location(ast.Constant(value), node)

    if isinstance(node, ast.Compare):
        for place, op in enumerate(node.ops):
            change = f"{type(op).__name__} to {_SWAPS[type(op)].__name__}"
            yield change, lambda place=place: swap(place)
    elif isinstance(node, (ast.BoolOp, ast.BinOp, ast.AugAssign)) and type(node.op) in _SWAPS:
        yield f"{type(node.op).__name__} to {_SWAPS[type(node.op)].__name__}", swap
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, (ast.Not, ast.USub)):
        yield f"no {type(node.op).__name__}", lambda: node.operand
    elif isinstance(node, ast.Constant):
        if isinstance(node.value, bool):
            yield f"{node.value} to {not node.value}", put(not node.value)
        elif isinstance(node.value, (int, float)):
            yield f"{node.value} to {node.value + 1}", put(node.value + 1)
        elif isinstance(node.value, str):
            yield f"{node.value[:30]!r} changed", put(f"XX{node.value}XX")
    if isinstance(node, ast.Return) and node.value is not None and ast.unparse(node.value) != "None":
        yield "returns None", lambda: ast.copy_location(ast.Return(ast.Constant(None)), node)
    simple = (ast.Expr, ast.Assign, ast.AugAssign, ast.Raise, ast.Continue, ast.Break)
    if isinstance(node, simple) or (isinstance(node, ast.AnnAssign) and node.value is not None):
        yield "removed", lambda: ast.copy_location(ast.Pass(), node)
    elif isinstance(node, ast.If):
        yield "never", lambda: _condition(node, False)
        yield "always", lambda: _condition(node, True)


def _condition(node: ast.If, value: bool) -> ast.AST:
    node.test = ast.copy_location(ast.Constant(value), node.test)
    return node


def _replace(tree: ast.AST, old: ast.AST, new: ast.AST) -> None:
    for parent in ast.walk(tree):
        for name, value in ast.iter_fields(parent):
            if value is old:
                setattr(parent, name, new)
                return
            if isinstance(value, list):
                for place, child in enumerate(value):
                    if child is old:
                        value[place] = new
                        return
    raise LookupError("the node is not in the tree")


def become(mutant: Mutant) -> None:
    """Change the loaded module into the mutant, in place, so that everything that has imported from it sees that.

    Functions and methods keep their identity and get the mutant's code and defaults; other values are set again.
    """
    name = mutant.module.removesuffix(".py").replace("/", ".")
    module = sys.modules[name]
    twin = types.ModuleType(name)
    twin.__file__ = module.__file__
    sys.modules[name] = twin  # dataclasses look their module up
    try:
        exec(compile(mutant.source, str(module.__file__), "exec"), twin.__dict__)
    finally:
        sys.modules[name] = module
    _adopt(module, vars(module), vars(twin))


def _adopt(owner: Any, old: Mapping[str, Any], new: Mapping[str, Any]) -> None:
    for name, value in list(new.items()):
        before = old.get(name)
        one, other = _function(before), _function(value)
        if one is not None and other is not None:
            one.__code__, one.__defaults__, one.__kwdefaults__ = (
                other.__code__,
                other.__defaults__,
                other.__kwdefaults__,
            )
        elif isinstance(value, type) and isinstance(before, type):
            if before.__module__ == owner.__name__ if isinstance(owner, types.ModuleType) else True:
                _adopt(before, vars(before), vars(value))
        elif not name.startswith("__") and not isinstance(value, (types.MemberDescriptorType, types.ModuleType)):
            with contextlib.suppress(AttributeError, TypeError):
                setattr(owner, name, value)
    for name in [name for name in old if name not in new and isinstance(owner, types.ModuleType)]:
        if not name.startswith("__"):
            delattr(owner, name)  # a constant that the mutant does not set


def _function(value: Any) -> Any:
    """Return the plain function behind a function, method, property or decorated function."""
    value = getattr(value, "__func__", value)
    value = value.fget if isinstance(value, property) else value
    value = inspect.unwrap(value) if callable(value) and not isinstance(value, type) else value
    return value if isinstance(value, types.FunctionType) else None


class Runner:
    """A pytest plugin that, after collection, runs the tests of each mutant's line in a fork.

    `report` gets each mutant with "survived", "killed" or "timeout" and the seconds that it took. `baseline` is how the
    tests end without any mutant.
    """

    def __init__(self, module: str, wanted: Sequence[Mutant], report: Callable[[Mutant, str, float], None]) -> None:
        self.file, self.wanted, self.report = str(ROOT / module), wanted, report
        self.baseline = "killed"

    def pytest_runtestloop(self, session: Any) -> bool:
        with tempfile.NamedTemporaryFile("r", prefix="airgen-mutate-") as seen:
            self.baseline, _ = self.one(session, None, trace_to=Path(seen.name))
            if self.baseline != "survived":
                return True
            facts = json.loads(seen.read())
        for name in facts["modules"]:  # imported once, and not in each fork
            with contextlib.suppress(Exception):
                importlib.import_module(name)
        for mutant in self.wanted:
            tests = facts["tests"].get(str(mutant.line), facts["seconds"])  # all where an import executes the line
            tests = dict(sorted(((name, facts["seconds"][name]) for name in tests), key=lambda one: one[1]))
            self.report(mutant, *self.one(session, mutant, tests))
        return True

    def one(
        self,
        session: Any,
        mutant: Mutant | None,
        tests: Mapping[str, float] | None = None,
        trace_to: Path | None = None,
    ) -> tuple[str, float]:
        """These tests (None: all) in a fork, with the mutant in place of its module; `tests`: their usual seconds.

        `trace_to`: a file for the names of all modules that are imported then, the tests of each line, and the seconds
        of each test.
        """
        from _pytest.main import pytest_runtestloop

        began = time.monotonic()
        child = os.fork()
        if child == 0:
            code = 1
            try:
                os.setpgid(0, 0)
                nowhere = os.open(os.devnull, os.O_RDWR)
                for stream in (0, 1, 2):
                    os.dup2(nowhere, stream)
                if mutant is not None:
                    become(mutant)
                if tests is not None:
                    items = {item.nodeid: item for item in session.items}
                    session.items = [items[name] for name in tests]
                    session.config.pluginmanager.register(Alarm(tests))
                lines = Lines(self.file) if trace_to else None
                if lines:
                    session.config.pluginmanager.register(lines)
                pytest_runtestloop(session)
                code = 1 if session.testsfailed else 0
                if trace_to and lines:
                    facts = {"modules": list(sys.modules), "tests": lines.tests, "seconds": lines.seconds}
                    trace_to.write_text(json.dumps(facts), encoding="utf-8")
            finally:
                os._exit(code)
        _, status = os.waitpid(child, 0)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child, signal.SIGKILL)  # what it has started
        killed = "timeout" if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGALRM else "killed"
        return (killed if status else "survived"), time.monotonic() - began


class Alarm:
    """A pytest plugin that ends the process if a test takes more than five seconds and five times its usual
    duration."""

    def __init__(self, seconds: Mapping[str, float]) -> None:
        self.seconds = seconds

    def pytest_runtest_protocol(self, item: Any) -> None:
        signal.setitimer(signal.ITIMER_REAL, 5 + 5 * self.seconds[item.nodeid])


class Lines:
    """A pytest plugin that records the tests that execute each line of a file, in any thread, and their durations."""

    def __init__(self, file: str) -> None:
        self.file = file
        self.tests: dict[int, list[str]] = {}
        self.seconds: Counter[str] = Counter()

    def pytest_runtest_logreport(self, report: Any) -> None:
        self.seconds[report.nodeid] += report.duration

    def pytest_runtest_protocol(self, item: Any) -> None:
        def local(frame: types.FrameType, event: str, argument: object) -> Any:
            tests = self.tests.setdefault(frame.f_lineno, [])
            if not tests or tests[-1] != item.nodeid:
                tests.append(item.nodeid)
            return local

        def every(frame: types.FrameType, event: str, argument: object) -> Any:
            return local(frame, event, argument) if frame.f_code.co_filename == self.file else None

        threading.settrace(every)
        sys.settrace(every)


def measure(module: str, only: set[int] | None, keep: list[dict[str, Any]]) -> tuple[int, int]:
    """Return (killed, survived) for a module, printing each surviving mutant."""
    import pytest

    counts: Counter[str] = Counter()

    def report(mutant: Mutant, state: str, seconds: float) -> None:
        counts[state] += 1
        keep.append({**asdict(mutant), "source": "", "state": state, "seconds": round(seconds, 2)})
        if state == "survived":
            print(
                f"  survived {mutant.number}: {module}:{mutant.line}: {mutant.text}   [{mutant.change}]",
                file=sys.__stdout__,
                flush=True,
            )

    every = [one for one in mutants(ROOT / module) if only is None or one.number in only]
    plugin = Runner(module, [one for one in every if one.name not in EQUIVALENT], report)
    tests = [test for test in MODULES[module] if (ROOT / test).exists()]
    options = ["-x", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "--hypothesis-profile=mutate"]
    options += ["--tb=native", "--assert=plain"]  # that a test failed is enough
    with tempfile.TemporaryDirectory(prefix="airgen-mutate-") as folder, contextlib.redirect_stdout(io.StringIO()):
        pytest.main([*options, f"--basetemp={folder}/tests", *tests], plugins=[plugin])
    if plugin.baseline != "survived":
        raise SystemExit(f"{module}: its tests fail without any mutant: {' '.join(tests)}")
    killed, survived = counts["killed"] + counts["timeout"], counts["survived"]
    score = killed / max(1, killed + survived)
    print(
        f"{module}: {killed} of {killed + survived} killed ({score:.1%}), {len(every) - killed - survived} equivalent"
    )
    return killed, survived


def child(module: str, options: Any) -> None:
    """Measure one module in this process, which imports it for the first time."""
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    sys.path.insert(0, str(ROOT))
    sys.dont_write_bytecode = True
    keep: list[dict[str, Any]] = []
    only = set(options.only) if options.only else None
    if options.again:
        before = [one for one in json.loads(options.again.read_text()) if one["module"] == module]
        only = {one["number"] for one in before if one["state"] == "survived"}
    killed, survived = measure(module, only, keep)
    if options.json:
        earlier = json.loads(options.json.read_text()) if options.json.exists() else []
        options.json.write_text(json.dumps([*earlier, *keep], indent=1), encoding="utf-8")
    if killed < options.least * (killed + survived):
        raise SystemExit(f"{module}: less than {options.least:.0%} killed")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("modules", nargs="*", default=list(MODULES), help="modules of MODULES")
    parser.add_argument("--only", type=int, nargs="*", help="the numbers of mutants")
    parser.add_argument("--again", type=Path, metavar="JSON", help="only the mutants that survived in this file")
    parser.add_argument("--json", type=Path, help="write every mutant and what became of it")
    parser.add_argument("--least", type=float, default=0.0, help="exit with 1 where a module's share killed is below")
    options = parser.parse_args()
    os.chdir(ROOT)
    if len(options.modules) == 1:
        child(options.modules[0], options)
        return
    codes = []
    for module in options.modules:  # each in a process of its own
        words = [word for word in sys.argv[1:] if word not in MODULES]
        codes.append(subprocess.run([sys.executable, __file__, module, *words], check=False).returncode)
    raise SystemExit(max(codes))


if __name__ == "__main__":
    main()
