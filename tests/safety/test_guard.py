"""Whatever other people's code raises is one line with its name and its place, and the others run."""

import asyncio
import concurrent.futures
import errno
import json
import os
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from beir_folder import write_beir

from airgen.cli import main
from airgen.errors import AirgenError, CorpusError, ModelError, Stopped
from airgen.safety.guard import failure, guarded, guarded_rows, is_out_of_memory

MODULE = '''
import sys
from airgen.retrievers import Component, Passages, Hits


class Odd(Exception):
    def __str__(self):
        raise ValueError("not even this")


class Own(BaseException):
    """No Exception at all."""


def fail(how):
    if how == "exit":
        sys.exit(7)
    if how == "key":
        return {}["id"]
    if how == "odd":
        raise Odd
    if how == "own":
        raise Own("mine")
    if how == "memory":
        raise MemoryError
    if how == "lines":
        raise RuntimeError("one\\ntwo\\x1b[31m " + "x" * 2000)
    if how == "deep":
        return fail(how)


class Retriever(Component):
    class Settings(Component.Settings):
        how: str
        when: str = "search"

    name = "mine"

    def set_up(self):
        if self.settings.when == "set_up":
            fail(self.settings.how)

    def index(self, corpus):
        self.size = len(corpus)
        if self.settings.when == "index":
            fail(self.settings.how)

    def search(self, queries, k):
        if self.settings.when == "search":
            fail(self.settings.how)
        return Hits.none(len(queries), k)

    def describe(self):
        if self.settings.when == "describe":
            fail(self.settings.how)
        return {}

    @property
    def facts(self):
        fail(self.settings.how)


class Embedder(Component):
    class Settings(Component.Settings):
        how: str

    name = "my embedder"
    dim = 4

    def encode(self, texts, kind):
        fail(self.settings.how)

    def describe(self):
        return {}


class Scorer(Component):
    class Settings(Component.Settings):
        gives: str

    name = "my scorer"

    def score(self, pairs):
        return {"texts": ["high"] * len(pairs), "huge": [10**400] * len(pairs), "none": None}[self.settings.gives]

    def describe(self):
        return {}


def function(queries, k, how="key"):
    if how == "huge":
        return [[("d1", 10**400)]] * len(queries)
    if how == "digits":
        return [[("d1", 10**6000)]] * len(queries)
    if how == "text":
        return [[("d1", "high")]] * len(queries)
    if how == "nan":
        return [[("d1", float("nan"))]] * len(queries)
    if how == "nothing":
        return None
    fail(how)
'''
TEXTS = {"d1": "saturn has rings of ice", "d2": "bread rises with yeast", "d3": "insulin lowers blood sugar"}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The working directory, with a dataset and a module that fails as it is told."""
    monkeypatch.chdir(tmp_path)
    rows = [{"_id": key, "title": "", "text": text} for key, text in TEXTS.items()]
    queries = [{"_id": "q1", "text": "rings of saturn"}, {"_id": "q2", "text": "yeast in bread"}]
    write_beir(tmp_path / "ds", rows, queries, {"test": [("q1", "d1", 1), ("q2", "d2", 1)]})
    (tmp_path / "failing.py").write_text(MODULE, "utf-8")
    (tmp_path / "broken.py").write_text("1 / 0\n", "utf-8")
    yield tmp_path
    for name in ("failing", "broken"):
        sys.modules.pop(name, None)


def evaluate(folder: Path, systems: Sequence[dict[str, object]], capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    (folder / "systems.yaml").write_text(json.dumps({"systems": systems}), "utf-8")
    with pytest.raises(SystemExit) as end:
        main(["evaluate", str(folder / "ds"), "--systems", str(folder / "systems.yaml"), "--out", str(folder / "out")])
    shown = capsys.readouterr()
    return int(end.value.code or 0), shown.out + shown.err


BAD: dict[str, tuple[dict[str, object], str]] = {
    "a retriever's search": ({"kind": "failing:Retriever", "how": "key"}, "failing.py:19: KeyError: 'id'"),
    "its index": ({"kind": "failing:Retriever", "how": "odd", "when": "index"}, "failing.py:21: Odd"),
    "its making": ({"kind": "failing:Retriever", "how": "own", "when": "set_up"}, "failing.py:23: Own: mine"),
    "its description": ({"kind": "failing:Retriever", "how": "exit", "when": "describe"}, "it called sys.exit(7)"),
    "a property": ({"kind": "failing:Retriever", "how": "key", "when": "never"}, "failing.py:19: KeyError: 'id'"),
    "too deep": ({"kind": "failing:Retriever", "how": "deep"}, "RecursionError: maximum recursion depth"),
    "long and with lines": ({"kind": "failing:Retriever", "how": "lines"}, "RuntimeError: one two"),
    "memory": ({"kind": "failing:Retriever", "how": "memory"}, "mine: out of memory (MemoryError): lower batch_size"),
    "an embedder": ({"kind": "dense", "embedder": {"kind": "failing:Embedder", "how": "key"}},
                    "my embedder: failing.py:19: KeyError"),
    "texts as scores": ({"kind": "rerank", "first": "bm25", "reranker": {"kind": "failing:Scorer", "gives": "texts"}},
                        "my scorer returned scores that are not numbers"),
    "huge scores": ({"kind": "rerank", "first": "bm25", "reranker": {"kind": "failing:Scorer", "gives": "huge"}},
                    "my scorer returned scores that are not numbers"),
    "no scores": ({"kind": "rerank", "first": "bm25", "reranker": {"kind": "failing:Scorer", "gives": "none"}},
                  "my scorer returned"),
    "a function": ({"kind": "failing:function"}, "system bad12: failing.py:19: KeyError: 'id'"),
    "a function's 400 digits": ({"kind": "failing:function", "settings": {"how": "huge"}}, "is not a finite number"),
    "a function's 6,000 digits": ({"kind": "failing:function", "settings": {"how": "digits"}},
                                  "score of type int is not a finite number"),
    "a function's text": ({"kind": "failing:function", "settings": {"how": "text"}}, "'high' is not a finite number"),
    "a function's NaN": ({"kind": "failing:function", "settings": {"how": "nan"}}, "nan is not a finite number"),
    "a function's nothing": ({"kind": "failing:function", "settings": {"how": "nothing"}}, "a NoneType"),
}  # fmt: skip


def test_every_failure_is_one_line_and_the_others_run(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    systems: list[dict[str, object]] = [{"name": "bm25", "kind": "bm25"}]
    systems += [{"name": f"bad{number}", **system} for number, (system, _) in enumerate(BAD.values())]
    code, shown = evaluate(folder, [*systems, {"name": "last", "kind": "bm25", "k1": 1.2}], capsys)
    assert code == 1 and "Traceback" not in shown
    said = [line for line in shown.splitlines() if line.startswith("airgen: ")]
    for number, (_, words) in enumerate(BAD.values()):
        lines = [line for line in said if re.search(rf"system [^:]*\bbad{number}\b", line)]
        assert len(lines) == 1 and words in lines[0] and len(lines[0]) < 900, (number, words, lines)
    table = shown[shown.index("nDCG@10") :]
    assert "bm25" in table and "last" in table


def test_a_module_that_fails_at_its_import_is_named_before_the_run(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, shown = evaluate(folder, [{"name": "bad", "kind": "broken:Retriever"}], capsys)
    assert code != 0 and "Traceback" not in shown
    assert "broken.py:1: ZeroDivisionError: division by zero" in shown


def test_what_ends_the_work_passes() -> None:
    async def cancelled() -> None:
        with guarded("a part"):
            raise asyncio.CancelledError

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(cancelled())

    async def closed() -> None:
        with guarded("a part"):
            raise GeneratorExit

    with pytest.raises(GeneratorExit):
        asyncio.run(closed())
    for error in (KeyboardInterrupt(), Stopped("stopped")):
        with pytest.raises(type(error)), guarded("a part"):
            raise error


def test_a_cancellation_that_nobody_asked_for_is_a_failure() -> None:
    for error in (asyncio.CancelledError(), concurrent.futures.CancelledError(), GeneratorExit()):
        name = type(error).__name__
        with pytest.raises(ModelError, match=rf"^a part: tests/safety/test_guard\.py:\d+: {name}$"), guarded("a part"):
            raise error


def test_a_full_disk_is_said_in_words_also_where_the_file_is_unknown() -> None:
    with pytest.raises(ModelError, match=r"^a part: No space left on device: free some space"), guarded("a part"):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def error_class(bases: tuple[type[BaseException], ...], **methods: object) -> type[BaseException]:
    return type("Odd", bases, methods)


def raising(error: BaseException) -> Callable[..., str]:
    def method(*_: object) -> str:
        raise error

    return method


class Mute:
    """An object that cannot be shown."""

    __str__ = __repr__ = __format__ = raising(ValueError("mute"))


class Text(str):
    """A text whose methods fail."""

    lower = __len__ = __getitem__ = __str__ = raising(ValueError("no text"))  # type: ignore[assignment]


class Nameless(type):
    __name__ = property(raising(ValueError("nameless")))


BASES = [(Exception,), (BaseException,), (OSError,), (RuntimeError,), (AirgenError,), (SyntaxError,), (SystemExit,)]
METHODS = {
    "str raises": {"__str__": raising(KeyError("x"))},
    "str exits": {"__str__": raising(SystemExit(0))},
    "str stops": {"__str__": raising(KeyboardInterrupt())},
    "str of no text": {"__str__": lambda _: None},
    "str of a text of its own": {"__str__": lambda _: Text("x")},
    "a long str": {"__str__": lambda _: "x" * (1 << 20)},
    "lines": {"__str__": lambda _: "a\nb\x1b[2J\u202e"},
    "another class": {"__class__": property(lambda _: KeyboardInterrupt)},
    "no class": {"__class__": property(raising(ValueError()))},
    "no attribute": {"__getattribute__": raising(ValueError("none"))},
    "mute attributes": dict.fromkeys(("filename", "errno", "strerror", "code", "lineno"), Mute()),
    "attributes that raise": dict.fromkeys(("filename", "errno", "strerror", "code"), property(raising(ValueError()))),
    "a name of lines": {"__qualname__": "a\nb", "__module__": Text("m")},
}


@pytest.mark.parametrize("methods", METHODS.values(), ids=METHODS)
@pytest.mark.parametrize("bases", BASES, ids=lambda bases: bases[0].__name__)
def test_an_error_of_any_class_is_one_line(bases: tuple[type[BaseException], ...], methods: dict[str, object]) -> None:
    named: list[Any] = [
        error_class(bases, **methods),
        Nameless("Odd", bases, methods),
        type("A\nB" * 500, bases, methods),
    ]
    for error in named:
        for arguments in ((), (Mute(), Mute()), (10**5000,), ("x" * (1 << 20), "y")):
            with pytest.raises(AirgenError) as raised, guarded("a part"):
                raise error(*arguments)
            words = str(raised.value)  # one of airgen's own that can be shown passes
            assert issubclass(error, AirgenError) or (words.isprintable() and len(words) < 900), words


def test_the_path_of_code_and_groups_of_errors_are_one_line() -> None:
    code = compile("raise ExceptionGroup('two', [KeyError(1)])", "a\nb\x1b[2J", "exec")
    with pytest.raises(ModelError) as raised, guarded("a part"):
        exec(code, {})
    assert str(raised.value).isprintable()
    with pytest.raises(ModelError, match=r"BaseExceptionGroup: two \(2 sub-exceptions\)$"), guarded("a part"):
        raise BaseExceptionGroup("two", [KeyboardInterrupt(), SystemExit(3)])


def test_rows_are_asked_for_under_the_guard_and_used_outside_of_it() -> None:
    def rows() -> Iterator[int]:
        yield 1
        raise KeyError("x")

    seen = guarded_rows(rows, "reader mine", CorpusError)
    assert next(seen) == 1
    with pytest.raises(CorpusError, match=r"^reader mine: tests/safety/test_guard\.py:\d+: KeyError: 'x'$"):
        next(seen)
    with pytest.raises(LookupError, match="outside"):
        for _ in guarded_rows(lambda: [1, 2], "reader mine", CorpusError):
            raise LookupError("outside")


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        RuntimeError("CUDA out of memory. Tried to allocate 20.00 MiB."),
        RuntimeError("[enforce fail at alloc_cpu.cpp:121] . DefaultCPUAllocator: can't allocate memory: you tried to"),
        RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
    ],
    ids=["python", "cuda", "cpu", "cublas"],
)
def test_exhausted_memory_is_known_in_every_wording(error: Exception) -> None:
    assert is_out_of_memory(error)
    with pytest.raises(ModelError, match=r"^dense e5: out of memory \(.+\): lower batch_size"), guarded("dense e5"):
        raise error
    assert not is_out_of_memory(ValueError("out of memory")) and not is_out_of_memory(RuntimeError("shape"))


def test_an_error_of_a_library_names_the_library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = tmp_path / "site-packages" / "torchlike"
    place.mkdir(parents=True)
    (place / "__init__.py").write_text("def run():\n    raise RuntimeError('no kernel image')\n", "utf-8")
    monkeypatch.syspath_prepend(str(place.parent))
    run: Callable[[], None] = __import__("torchlike").run
    with pytest.raises(RuntimeError) as raised:
        run()
    error = raised.value
    assert str(failure(error, "system dense")).startswith("system dense: tests/safety/test_guard.py:")  # who called it
    assert error.__traceback__ is not None
    alone = error.with_traceback(error.__traceback__.tb_next)  # called by airgen
    assert str(failure(alone, "system dense")) == "system dense: in torchlike: RuntimeError: no kernel image"
