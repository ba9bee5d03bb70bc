"""The identity of users' code: a result belongs to the code that produced it.

    own_code({"kind": "my_module:MyRetriever", "depth": 3}, folder)     # {"my_module:MyRetriever": "5f1c..."}

The code of a `module:name` in a YAML file consists of the module's file and every local file that it imports, at any
depth. It does not include the standard library, installed packages and airgen, which have versions. Code that was
edited after it was imported is reloaded, so that the current files run.
"""

import ast
import hashlib
import re
import sys
import sysconfig
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from importlib import invalidate_caches
from importlib.machinery import all_suffixes
from importlib.util import cache_from_source
from pathlib import Path
from typing import Any

TARGET = re.compile(r"(?<![\w.])[A-Za-z_][\w.]*+:[A-Za-z_]\w*+")
"""`module:name`."""

_NAME = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")
_AIRGEN = Path(__file__).resolve().parents[1]
_INSTALLED = [Path(sysconfig.get_path(name)).resolve() for name in ("stdlib", "platstdlib", "purelib", "platlib")]
_MOST_FILES = 2000  # maximum files; larger code is a package, which should be installed
_imported: dict[tuple[str, Path | None], dict[Path, tuple[int, int]]] = {}  # (module, folder): its files as they were


def own_code(value: Any, folder: Path | None = None) -> dict[str, str]:
    """Return {target: digest} for every `module:name` in settings, at any depth.

    `folder` is the YAML file's folder. The digest is empty for a module without a file (in a notebook, or created by a
    program), because its code cannot be compared. Text that only looks like a module is ignored.
    """
    digests: dict[str, str] = {}
    for target in dict.fromkeys(_targets(value)):
        module = target.partition(":")[0]
        if module.partition(".")[0] in sys.stdlib_module_names:
            continue
        digest = code_digest(module, folder)
        if digest or module in sys.modules:
            digests[target] = digest
    return digests


def code_of(component: object) -> dict[str, str]:
    """Return {"code": digest} of an object's class if it is neither airgen's nor an installed package's."""
    module = type(component).__module__
    if module.partition(".")[0] == "airgen" or module in sys.builtin_module_names:
        return {}
    file = getattr(sys.modules.get(module), "__file__", None)
    if file is not None and is_installed(Path(file)):
        return {}
    return {"code": code_digest(module, None if file is None else Path(file).parent)}


def code_digest(module: str, folder: Path | None = None) -> str:
    """Return the digest of a module's file and of the local files that it imports; empty if it has no file."""
    files = local_files(module, folder)
    total = hashlib.blake2b(digest_size=16)
    for name, path in sorted(files.items()):
        total.update(f"{name}\0{_contents(path).digest}\n".encode())
    return total.hexdigest() if files else ""


def local_files(module: str, folder: Path | None = None) -> dict[str, Path]:
    """Return {module: file} for a module and the local modules that it imports, even inside functions, at any depth."""
    roots = _roots(folder)
    first = _file(module, roots) or _module_file(module)
    files: dict[str, Path] = {} if first is None else {module: first}
    waiting = list(files)
    for parent in _parents(module) if files else ():
        if (path := _file(parent, roots)) is not None:
            files[parent] = path
            waiting.append(parent)
    while waiting and len(files) < _MOST_FILES:
        name = waiting.pop()
        for other in _imports(name, files[name]):
            for each in (*_parents(other), other):
                if each not in files and (path := _file(each, roots)) is not None and not is_installed(path):
                    files[each] = path
                    waiting.append(each)
    return files


def import_anew(module: str, folder: Path | None = None) -> None:
    """Unload a module and the local modules that it imports if they come from another file or have been edited.

    Call this before importing the module, in a long-running process or one that reads several folders.
    """
    known, loaded = _imported.get((module, folder)), _module_file(module)
    same = known is not None and all(_stamp(path) == at for path, at in known.items())
    if same and known and loaded == next(iter(known)):
        return
    if _file(module, _roots(folder)) is None:
        return  # an installed module, or a module whose folder is unknown and could not be found again
    files = local_files(module, folder)
    stamps = {path: _stamp(path) for path in files.values()}
    if loaded is not None and (loaded != files[module] or (known is not None and known != stamps)):
        for name, path in files.items():
            sys.modules.pop(name, None)
            with suppress(OSError, NotImplementedError):  # Python takes an edit of the same second for the same code
                Path(cache_from_source(str(path))).unlink(missing_ok=True)
        invalidate_caches()
    _imported[module, folder] = stamps


def _stamp(path: Path) -> tuple[int, int]:
    try:
        status = path.stat()
    except OSError:
        return -1, -1
    return status.st_mtime_ns, status.st_size


def _module_file(module: str) -> Path | None:
    """Return the file of an imported module."""
    file = getattr(sys.modules.get(module), "__file__", None)
    return None if file is None else Path(file).resolve()


def _targets(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        if TARGET.fullmatch(value):
            yield value
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from _targets(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _targets(item)


def _roots(folder: Path | None) -> list[Path]:
    """Return where to look for modules: the folder, the working directory, and path entries without packages."""
    places = [*([folder] if folder is not None else []), Path(), *map(Path, sys.path)]
    return list(dict.fromkeys(place for path in places if not is_installed(place := path.resolve())))


def is_installed(path: Path) -> bool:
    """Return whether a file is airgen's, the standard library's or an installed package's, and not the user's."""
    path = path.resolve()
    inside = any(path.is_relative_to(place) for place in _INSTALLED)
    return inside or path.is_relative_to(_AIRGEN) or bool({"site-packages", "dist-packages"} & set(path.parts))


def _file(module: str, roots: Sequence[Path]) -> Path | None:
    """Return the file of a module: the first that Python would find, including a package's `__init__`."""
    top = module.partition(".")[0]
    if not _NAME.fullmatch(module) or top == "airgen" or top in sys.stdlib_module_names:
        return None
    for root in roots:
        place = root.joinpath(*module.split("."))
        for path in (place / "__init__", place):
            for suffix in all_suffixes():
                if (whole := path.with_name(path.name + suffix)).is_file():
                    return whole.resolve()
    return None


def _parents(module: str) -> list[str]:
    names = module.split(".")
    return [".".join(names[:size]) for size in range(1, len(names))]


@dataclass(frozen=True, slots=True)
class _Contents:
    """The SHA-256 of a file, and its imports as (dots before the name, module, imported names)."""

    digest: str
    imports: tuple[tuple[int, str, tuple[str, ...]], ...]


def _imports(module: str, path: Path) -> Iterator[str]:
    """Yield the modules that a file imports with a statement or `import_module("...")`. A name may not be a module."""
    package = module if path.stem == "__init__" else module.rpartition(".")[0]
    for level, base, names in _contents(path).imports:
        if level:
            parts = package.split(".") if package else []
            above = parts[: len(parts) - level + 1]
            base = ".".join([*above, *([base] if base else [])])
        yield from ([base] if base else [])
        yield from (f"{base}.{name}" if base else name for name in names)


def _contents(path: Path) -> _Contents:
    try:
        status = path.stat()
        return _parsed(path, status.st_mtime_ns, status.st_size)
    except OSError:
        return _Contents("", ())


@lru_cache(maxsize=_MOST_FILES)
def _parsed(path: Path, changed: int, size: int) -> _Contents:
    """Parse a file as it was at that time, so that it is read only once."""
    data = path.read_bytes()
    digest, imports = hashlib.sha256(data).hexdigest(), list[tuple[int, str, tuple[str, ...]]]()
    try:
        tree = ast.parse(data) if path.suffix == ".py" else ast.Module([], [])
    except (SyntaxError, ValueError, RecursionError):
        return _Contents(digest, ())  # the importing code reports it
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            imports += [(0, alias.name, ()) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            imports.append((node.level, node.module or "", tuple(alias.name for alias in node.names)))
        elif isinstance(node, ast.Call) and node.args and isinstance(first := node.args[0], ast.Constant):
            name = getattr(node.func, "attr", getattr(node.func, "id", ""))
            if name in ("import_module", "__import__") and isinstance(first.value, str):
                base = first.value.lstrip(".")
                imports.append((len(first.value) - len(base), base, ()))
    return _Contents(digest, tuple(imports))
