"""Refer to users' functions and objects by a name and a version, which settings can hold.

    answer = Function(my_llm, version="2")       # results are saved under this name and version
    named(my_search)                             # {"name": "my_search", "version": "5c9e0f..."}: the hash of its source

Settings and the keys of saved results are plain values. In place of a function, they hold its name and version; this
process keeps the function itself. Other processes import the function, if possible.

The default version of a function is a hash of its source, the sources of the functions it calls, and the data it reads:
plain values, collections that it does not change, arrays, data frames, FAISS indexes and models. For an object of the
user's own class, it is a hash of the methods and attributes. `unidentified` names what else is read, such as a client.
For a torch model, the version is a hash of the weights; for a component of airgen, of its settings. Anything else gets
a version that is never used again, so that outdated results are never reused.
"""

import ast
import asyncio
import functools
import hashlib
import importlib
import inspect
import logging
import secrets
import sys
import textwrap
import threading
import types
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from airgen.components.keys import canonical_json, text_key
from airgen.components.user_code import is_installed
from airgen.errors import AirgenError, UsageError
from airgen.safety.guard import guarded

T = TypeVar("T")


class Unkept(UserWarning):
    """The results of a user's function cannot be saved, because nothing identifies the function."""


UNKEPT = "unkept-"
"""Prefix of the version of a function that cannot be identified."""

_known: dict[tuple[str, str], Any] = {}
_PLAIN = (str, int, float, bool, bytes, type(None))
_CALL_DEPTH = 8  # levels of calls between functions whose sources count


@dataclass(frozen=True)
class Function:
    """A user's function or object, with a name and a version that identify its results.

    Args:
        value: The function, or an object that airgen can call.
        name: Name used in tables and settings. Default: the function's name.
        version: Version of the function. Results of other versions are not reused. Default: a hash of the source code,
            or of the compiled code if there is no source.
    """

    value: Any
    name: str = ""
    version: str = ""


def named(value: Any, name: str = "") -> dict[str, str]:
    """Register a user's function or object, so that `find` returns it.

    Args:
        value: A function, an object, or a Function.
        name: Name to use unless `value` is a Function with a name. Default: the function's name.

    Returns:
        The `name`, the `version` and, if it can be imported, the `place` as `module:name`.

    Raises:
        UsageError: The value is an async function or a generator.
    """
    function = value if isinstance(value, Function) else Function(value)
    inner = function.value
    refuse(inner)
    name = function.name or name or name_of(inner)
    version = function.version or identity_of(inner)
    if not version:
        version = f"{UNKEPT}{secrets.token_hex(6)}"
        warnings.warn(
            f"{name} has neither a version nor source code that airgen can read, so its results are not saved: "
            f"pass airgen.Function({name}, version='1') to save them",
            Unkept,
            stacklevel=_users_frame(),
        )
    _known[name, version] = inner
    place = _import_path(inner)
    return {"name": name, "version": version, **({"place": place} if place else {})}


def _users_frame() -> int:
    """Return the stack level of the user's code that called airgen, seen from the caller."""
    frame, level = sys._getframe(1), 1
    while frame.f_back is not None and str(frame.f_globals.get("__name__")).partition(".")[0] == "airgen":
        frame, level = frame.f_back, level + 1
    return level


def find(name: str, version: str, place: str = "", folder: Path | None = None) -> Any:
    """Return a function or object that was registered with `named`, importing it if necessary.

    Args:
        name: Its name.
        version: Its version.
        place: Where to import it from, as `module:name`.
        folder: Folder that may hold the module.

    Raises:
        UsageError: It cannot be imported, or its version has changed.
    """
    if (name, version) in _known:
        return _known[name, version]
    if not place:
        raise UsageError(
            f"{name} (version {version[:12]}) is a function of another Python process: repeat the same call there, "
            "or move the function into a module and pass it from there"
        )
    value = imported(place, folder)
    now = identity_of(value)
    if now is not None and version and not version.startswith(UNKEPT) and now != version and len(version) == len(now):
        raise UsageError(f"{place}: has changed since its results were saved: repeat the same call in Python")
    return value


def is_kept(version: str) -> bool:
    """Return whether results of this version can be reused."""
    return not version.startswith(UNKEPT)


def imported(place: str, folder: Path | None = None) -> Any:
    """Import the value at `module:name`; the module may be in `folder`. Raises UsageError if this fails."""
    module, _, name = place.partition(":")
    outside = [str(directory.resolve()) for directory in (folder, Path()) if directory is not None]
    sys.path[:0] = outside
    try:
        return functools.reduce(getattr, name.split("."), importlib.import_module(module))
    except (ImportError, AttributeError) as error:
        raise UsageError(f"{place} cannot be imported: {error}") from error
    finally:
        for directory in outside:
            sys.path.remove(directory)


def name_of(value: Any) -> str:
    """Return a name for a function or object: its own, its model's or its class's name."""
    if isinstance(value, functools.partial):
        return name_of(value.func)
    if inspect.ismethod(value):
        return f"{type(value.__self__).__name__}.{value.__name__}"
    if callable(value) and isinstance(name := getattr(value, "__name__", None), str):
        return "function" if name == "<lambda>" else name
    for place in (("model_card_data", "base_model"), ("name",), ("model_name",), ("name_or_path",)):
        attribute = functools.reduce(lambda owner, part: getattr(owner, part, None), place, value)
        if isinstance(attribute, str) and attribute:
            return Path(attribute).name
    return type(value).__name__


def identity_of(value: Any) -> str | None:
    """Return a hash that identifies the results of a function or object, or None if there is none."""
    if callable(describe := getattr(value, "describe", None)) and not inspect.isclass(value):
        value = describe()
    if isinstance(value, Mapping):
        try:
            text = canonical_json(value)
        except (TypeError, ValueError):
            return None
        return None if UNKEPT in text else text_key(text)[:16]
    if callable(getattr(value, "state_dict", None)) and not inspect.isclass(value):
        return _weights(value)
    identity = _Identity()
    return identity.total.hexdigest() if identity.add(value, _CALL_DEPTH) else None


def unidentified(value: Any) -> list[str]:
    """Return the names of what a function reads and its version does not depend on: clients, counters and the like."""
    identity = _Identity()
    identity.add(value, _CALL_DEPTH)
    return list(dict.fromkeys(identity.missed))


class _Identity:
    """The hash of a function's code and of what it reads, and the names of what cannot be hashed."""

    def __init__(self) -> None:
        self.total = hashlib.blake2b(digest_size=8)
        self.missed: list[str] = []
        self._seen: set[int] = set()

    def add(self, value: Any, deep: int) -> bool:
        """Add a function, a method or an object of the user's class, and return whether its code is known."""
        if inspect.ismethod(value):
            self._add_bytes("of", value.__func__.__qualname__.encode())
            return self._add_object(value.__self__, deep) and self.add(value.__func__, deep)
        if isinstance(value, functools.partial):
            held = [*value.args, *value.keywords.values()]
            self.total.update(repr(sorted(value.keywords)).encode())
            return all(self._add_data(item) for item in held) and self.add(value.func, deep)
        if not isinstance(value, types.FunctionType):
            return self._add_object(value, deep)
        if id(value) in self._seen or not deep:
            return True
        self._seen.add(id(value))
        try:
            source = textwrap.dedent(inspect.getsource(value))
        except (OSError, TypeError):  # as in a cell that begins with %%time: what it was compiled to identifies it too
            source = None
        code = repr(_compiled(value.__code__)) if source is None else source
        self.total.update(code.encode("utf-8", "replace"))
        held = [*(value.__defaults__ or ()), *(value.__kwdefaults__ or {}).values()]
        read = {**{f"\x1f{place}": item for place, item in enumerate(held)}, **_read_by(value)}
        changed, used = (read.keys(), read.keys()) if source is None else _changed_in(source)
        for name, item in read.items():
            of_module = getattr(item, "__module__", None) == value.__module__
            if isinstance(item, types.FunctionType) and of_module:
                self.add(item, deep - 1)
            elif isinstance(
                item, (types.ModuleType, type, logging.Logger, types.FunctionType, types.BuiltinFunctionType)
            ):
                continue  # code of libraries
            elif name in changed and (isinstance(item, list | dict | set) or _users_classes(item)):
                self.missed += [name] if name in used else []
            elif not self._add_data(item) and not self._add_object(item, deep - 1) and not name.startswith("\x1f"):
                self.missed.append(name)
        return True

    def _add_object(self, value: Any, deep: int) -> bool:
        """Add an object of a class of the user's: its methods, and its attributes that they do not change."""
        classes, attributes = _users_classes(value), getattr(value, "__dict__", None)
        if not classes or attributes is None:
            return False
        if id(value) in self._seen or not deep:
            return True
        self._seen.add(id(value))
        changed: set[str] = set()
        used: set[str] = set()
        for name, item in [pair for each in classes for pair in sorted(vars(each).items(), key=lambda pair: pair[0])]:
            function = getattr(item, "__func__", getattr(item, "fget", item))  # of a static method, or a property
            if isinstance(function, types.FunctionType):
                self._add_bytes("method", name.encode())
                self.add(function, deep)
                parts = _changed_attributes(function) if name != "__init__" else (set(), set())
                changed, used = changed | parts[0], used | parts[1]
            elif not name.startswith("__"):
                self._add_data(item)
        for name, item in sorted(attributes.items()):
            self._add_bytes("attribute", name.encode())
            if name in changed:
                self.missed += [f"{type(value).__name__}.{name}"] if name in used else []
            elif not self._add_data(item) and not self.add(item, deep - 1):
                self.missed.append(f"{type(value).__name__}.{name}")
        return True

    def _add_data(self, value: Any) -> bool:
        """Add data to the hash, and return whether it is data."""
        if isinstance(value, _PLAIN):
            return self._add_bytes(type(value).__name__, repr(value).encode("utf-8", "replace"))
        if isinstance(value, dict):
            parts: list[Any] = [part for item in value.items() for part in item]
        elif isinstance(value, set | frozenset):
            parts = sorted(value, key=repr)
        elif isinstance(value, list | tuple):
            parts = list(value)
        else:
            content = _content(value)
            return content is not None and all(self._add_bytes(*part) for part in content)
        if id(value) in self._seen:
            return True  # read twice, or a part of itself
        if isinstance(value, list | dict):
            self._seen.add(id(value))
        self._add_bytes(type(value).__name__, str(len(parts)).encode())
        return all(map(self._add_data, parts))

    def _add_bytes(self, kind: str, content: Any) -> bool:
        self.total.update(f"{kind} ".encode())
        self.total.update(content)
        self.total.update(b"\x1f")
        return True


def _compiled(value: Any) -> Any:
    """Return what distinguishes a function's code, or a constant in it, in the same way in every process."""
    if isinstance(value, types.CodeType):
        held = [_compiled(constant) for constant in value.co_consts]
        return [value.co_code, value.co_names, value.co_varnames, value.co_freevars, held]
    if isinstance(value, tuple):
        return tuple(map(_compiled, value))
    return sorted(map(repr, value)) if isinstance(value, frozenset) else value


def _read_by(function: types.FunctionType) -> dict[str, Any]:
    """Return the values that a function reads from its module and from the functions around it."""
    code = function.__code__
    values = {name: function.__globals__[name] for name in _names_in(code) if name in function.__globals__}
    for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=False):
        try:
            values[name] = cell.cell_contents
        except ValueError:  # not bound yet
            continue
    return dict(sorted(values.items()))


def _names_in(code: types.CodeType) -> Iterator[str]:
    """Yield the global names in a function and in the comprehensions and functions inside it."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _names_in(constant)


_CHANGING = frozenset(
    {"add", "append", "clear", "discard", "extend", "insert", "pop", "popitem", "remove", "setdefault", "update"}
)
"""The methods that change a collection."""


def _changed_in(source: str) -> tuple[set[str], set[str]]:
    """Return the names of what a function changes, such as a list of its calls, and the names that it also reads."""
    changed: dict[ast.AST, str] = {}
    tree = _parsed(source)
    for owner in _changed_parts(tree):
        while isinstance(owner, ast.Subscript | ast.Attribute):
            owner = owner.value
        if isinstance(owner, ast.Name):
            changed[owner] = owner.id
    read = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and node not in changed}
    return set(changed.values()), read


def _changed_attributes(method: types.FunctionType) -> tuple[set[str], set[str]]:
    """Return the names of the attributes that a method changes, and of those that it reads."""
    try:
        tree = _parsed(textwrap.dedent(inspect.getsource(method)))
    except (OSError, TypeError):  # of a cell without source, it may change all that it reads
        return set(method.__code__.co_names), set(method.__code__.co_names)
    changed: dict[ast.AST, str] = {}
    for owner in _changed_parts(tree):
        while isinstance(owner, ast.Subscript) or (isinstance(owner, ast.Attribute) and not _is_own(owner, method)):
            owner = owner.value
        if isinstance(owner, ast.Attribute):
            changed[owner] = owner.attr
    read = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute) and node not in changed}
    return set(changed.values()), read


def _is_own(node: ast.Attribute, method: types.FunctionType) -> bool:
    """Return whether an expression is an attribute of a method's object, such as `self.calls`."""
    return isinstance(node.value, ast.Name) and node.value.id == next(iter(method.__code__.co_varnames), "")


def _parsed(source: str) -> ast.Module:
    try:
        return ast.parse(source)
    except SyntaxError:  # a lambda within a line, which seldom changes anything
        return ast.Module([], [])


def _changed_parts(tree: ast.Module) -> Iterator[ast.expr]:
    """Yield the expressions that a function changes: collections, items and attributes."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _CHANGING:
            yield node.func.value
        elif isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store | ast.Del):
            yield node.value
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store | ast.Del):
            yield node
        elif isinstance(node, ast.AugAssign):
            yield node.target


def _users_classes(value: Any) -> list[type]:
    """Return the classes of an object that are the user's: not from airgen, the standard library or a package."""
    return [each for each in type(value).__mro__ if _is_users(each.__module__)]


@functools.cache
def _is_users(module: str) -> bool:
    file = getattr(sys.modules.get(module), "__file__", None)
    return module == "__main__" or (file is not None and not is_installed(Path(file)))


def _content(value: Any) -> list[tuple[str, Any]] | None:
    """Return the content of an array, a sparse matrix, a data frame, a FAISS index or a model as (kind, bytes), or None
    for another object."""
    library = type(value).__module__.partition(".")[0]
    if callable(getattr(value, "state_dict", None)):
        return [("weights", _weights(value).encode())]
    if library == "airgen" and callable(getattr(value, "describe", None)):
        identity = identity_of(value)
        return None if identity is None else [("component", identity.encode())]
    if library == "faiss" and hasattr(value, "ntotal"):
        return _content(importlib.import_module("faiss").serialize_index(value))
    if library == "scipy" and callable(getattr(value, "tocsr", None)):
        rows = value.tocsr()
        parts = [_content(part) for part in (rows.data, rows.indices, rows.indptr)]
        return [("sparse", str(rows.shape).encode()), *(item for part in parts for item in part or ())]
    if library == "pandas" and hasattr(value, "to_numpy"):
        try:
            hashed = importlib.import_module("pandas").util.hash_pandas_object(value).to_numpy()
        except TypeError:  # of lists or mappings
            return None
        return [("frame", repr(list(getattr(value, "columns", ()))).encode()), *(_content(hashed) or ())]
    if library == "torch" and callable(getattr(value, "detach", None)):
        value = value.detach().cpu().float().numpy()
    dtype = getattr(value, "dtype", None)
    if dtype is None or not callable(getattr(value, "tobytes", None)) or getattr(dtype, "kind", "O") == "O":
        return None
    return [(f"array {dtype} {value.shape}", value.tobytes())]


def _weights(model: Any) -> str:
    """Hash a torch model's weights, its modules, and the settings of sentence-transformers."""
    total = hashlib.blake2b(digest_size=8)
    for name, weights in sorted(model.state_dict().items()):
        total.update(name.encode())
        if callable(getattr(weights, "detach", None)):
            array = weights.detach().cpu().contiguous()
            total.update(str((array.dtype, tuple(array.shape))).encode())
            total.update(array.flatten().view(_bytes_of(array)).numpy().tobytes())
        else:
            total.update(repr(weights).encode())
    names = ("max_seq_length", "prompts", "default_prompt_name", "similarity_fn_name", "truncate_dim")
    total.update(repr([getattr(model, name, None) for name in names]).encode())
    total.update(repr(model).encode())  # which names the pooling
    return total.hexdigest()


def _bytes_of(_: Any) -> Any:
    import torch

    return torch.uint8


def _import_path(value: Any) -> str:
    """Return `module:name` if another process can import the value from a file, or ""."""
    module, name = getattr(value, "__module__", None), getattr(value, "__qualname__", "")
    if not isinstance(value, types.FunctionType) or module in (None, "__main__") or "<" in name:
        return ""
    owner_module = sys.modules.get(str(module))
    same = functools.reduce(lambda owner, part: getattr(owner, part, None), name.split("."), owner_module) is value
    return f"{module}:{name}" if same and getattr(owner_module, "__file__", None) else ""


def refuse(value: Any) -> None:
    """Raise UsageError for async functions, generators and their results, because calling them does not return a
    value."""
    inner = value.func if isinstance(value, functools.partial) else value
    call = inner if inspect.isroutine(inner) else getattr(inner, "__call__", None)  # noqa: B004  # the method itself
    name = name_of(value)
    if inspect.iscoroutinefunction(call) or inspect.isasyncgenfunction(call):
        raise UsageError(f"{name} is an async function, or an async generator: pass a plain one")
    if inspect.isgeneratorfunction(call):
        raise UsageError(f"{name} is a generator (it has `yield`): let it return a list")
    if inspect.iscoroutine(value) or inspect.isgenerator(value):
        raise UsageError(f"{name} is the result of a call: pass the function itself, without ()")


def synchronous(value: Any) -> Any:
    """Return an async function or method as a `Function` that returns the value itself, and anything else unchanged.

    Its calls run in one event loop in a thread of this process, so that it can keep a client between calls, and so that
    it works in a notebook, whose own loop is running.
    """
    given = value if isinstance(value, Function) else Function(value)
    inner = given.value
    if not inspect.iscoroutinefunction(inner):
        return value

    @functools.wraps(inner)
    def call(*args: Any, **kwargs: Any) -> Any:
        future = asyncio.run_coroutine_threadsafe(inner(*args, **kwargs), _loop())
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    return Function(call, given.name or name_of(inner), given.version or identity_of(inner) or "")


@functools.cache
def _loop() -> asyncio.AbstractEventLoop:
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, name="async functions", daemon=True).start()
    return loop


def parameters(function: Callable[..., Any]) -> Mapping[str, inspect.Parameter] | None:
    """Return the parameters of a function, or None if they are unknown, as for many compiled functions."""
    try:
        return inspect.signature(function).parameters
    except (TypeError, ValueError):
        return None


def required(function: Callable[..., Any]) -> list[str]:
    """Return the names of the positional parameters without a default."""
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    signature = parameters(function) or {}
    return [
        name
        for name, parameter in signature.items()
        if parameter.kind in kinds and parameter.default is inspect.Parameter.empty
    ]


def takes(function: Callable[..., Any], name: str) -> bool:
    """Return whether a function has a parameter of this name."""
    return name in (parameters(function) or {})


def foreign(work: Callable[[], T], where: str, kind: type[AirgenError] = UsageError) -> T:
    """Run user code, and reraise its exceptions as `kind` with a one-line message that says where they occurred."""
    with guarded(where, kind):
        return work()
