"""Word errors for Python: arguments in place of the keys of a YAML file, and functions in place of commands.

    @entrance
    def generate(corpus, n=50, *, llm=None, ...): ...

Everything below names settings, options and commands as YAML files and the shell do. Whatever reaches a caller in
Python passes through here, so that `llm.budget_usd` is `budget`, and `--retry-failed` is `retry_failed=True`.
"""

import functools
import inspect
import re
import shlex
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, ParamSpec, TypeVar

import airgen
from airgen.errors import AirgenError, SettingProblem, SettingsError, disk_error
from airgen.safety.interruptible import stoppable
from airgen.storage.yaml_text import read_yaml

T = TypeVar("T")
P = ParamSpec("P")

_PHRASES = {
    "run the same command again": "make the same call again",
    "run the command again": "make the call again",
    "`airgen show corpus --dropped` with the corpus YAML shows them": "`dropped` of the corpus lists them",
    "`airgen show corpus --dropped` lists what its cleaners removed": "`dropped` of the corpus lists what was left out",
    "write it in the pipeline as ": "give it as ",
    "lower the target": "lower n",
}
_ARGUMENTS = {
    "target": "n",
    "name": "work",
    "llm.budget_usd": "budget",
    "control.judge": "judge",
    "control.rerankers": "rerankers",
    "control.systems": "systems",
    "evaluate.systems": "systems",
    "queries.file": "queries",
    "queries.labels": "labels",
    "queries.column": "column",
}
"""The settings of a pipeline that have an argument with another name."""

_OPTIONS = {"runs": "work", "name": "work", "target": "n"}
_JOBS = ("generate", "label", "estimate")
"""The functions whose arguments are the settings of a pipeline."""

RECIPE = "airgen.generate"
"""What the settings of a pipeline that is made from arguments are called in messages, whichever function it is."""

_PATH = r"(?P<path>(?:llm|queries|generation|control|export|evaluate|compute)(?:\.\w+)+)"
_SETTING = re.compile(
    rf"(?<![\w./'\"-]){_PATH}(?![/-])|(?<![\w.'\"])(?P<name>[a-z_]+)(?=: \{{[a-z_]+: )|"
    r"(?<=\bset )(?P<set>[a-z_]+)(?=: [\w-])|(?<=\bwrite )(?P<write>[a-z_]+)(?=: [\w-])"
)
_SCALAR = re.compile(r": ([\w-]+)")
_FLOW = re.compile(r"\{[a-z_]+: [^{}]*\}")
_PIPELINE = re.compile(r"; in a pipeline, [^)]*")  # where a YAML file has what an option of the shell sets
_OPTION = re.compile(r"(?<![\w-])--([a-z][a-z-]*)(?: ([A-Z][A-Z_]*)\b)?")
_COMMAND = re.compile(
    r"`airgen ([^`]+)`|(?<![\w.`/-])airgen (fetch [\w.-]+|[a-z]+(?: [a-z]+)?(?: --[a-z-]+| [A-Z][A-Z_]+\b)*)"
)


_from_shell: ContextVar[bool] = ContextVar("called by a command", default=False)


@contextmanager
def shell_words() -> Iterator[None]:
    """Leave the words of errors as they are, for functions that a command of the shell calls."""
    token = _from_shell.set(True)
    try:
        yield
    finally:
        _from_shell.reset(token)


def entrance(work: Callable[P, T]) -> Callable[P, T]:
    """Make a function stoppable, and word the errors that it raises for Python, also those of the disk."""
    stopping = stoppable(work)

    @functools.wraps(work)
    def call(*values: P.args, **named: P.kwargs) -> T:
        try:
            return stopping(*values, **named)
        except AirgenError as error:
            error.reword(words_of(call))
            raise
        except OSError as error:
            about = disk_error(error)
            about.reword(words_of(call))
            raise about from error

    return call


def words_of(function: Callable[..., Any]) -> Callable[[str], str]:
    """Return what words a message for the callers of a function."""
    if _from_shell.get():
        return str
    arguments = inspect.signature(function).parameters
    defaults = {name: parameter.default for name, parameter in arguments.items()}
    return functools.partial(in_python, called=function.__name__, options=defaults)


def in_python(text: str, called: str, options: dict[str, Any]) -> str:
    """Return a message as a caller in Python needs it.

    Args:
        text: The message, which may name settings of YAML files, options and commands.
        called: Name of the function.
        options: Its arguments with their defaults.

    >>> in_python("llm.budget_usd: raise it, and run the same command again", "generate", {})
    'budget: raise it, and make the same call again'
    """
    if isinstance(text, SettingProblem):
        where, setting = text.where, text.setting
        if called in _JOBS and where in ("", RECIPE):  # of an argument rather than of a file
            where, setting = where and f"airgen.{called}", _name_of(setting)
        return text.changed(words=in_python(text.words, called, options), where=where, setting=setting)
    for phrase, words in _PHRASES.items():
        text = text.replace(phrase, words)
    text = _PIPELINE.sub("", text)
    if called in _JOBS:  # of arguments, where `check` takes the file of a job
        text = text.replace("airgen check", "airgen estimate")
    text = _COMMAND.sub(_call, text)
    text = _OPTION.sub(lambda match: _keyword(match, options), text)
    if called in _JOBS:
        text = "".join(_with_arguments(text))
    return text


def _call(match: re.Match[str]) -> str:
    """Return a command as a call; a word that is no command stays as it is."""
    public, quoted = {*dir(airgen), "report"}, match[1] is not None
    try:
        name, *words = shlex.split(match[1] if quoted else match[2])
    except ValueError:
        return match[0]
    rest = ""
    if words and f"{name}_{words[0]}" in public:
        name = f"{name}_{words.pop(0)}"
    elif name not in public:
        return match[0]
    elif not quoted and name != "fetch" and words and words[0].islower() and not words[0].startswith("-"):
        rest = f" {words.pop(0)}"  # prose, such as `airgen audit lets people judge`
    values: list[str] = []
    while words:
        word = words.pop(0)
        if not word.startswith("--"):
            values.append(_written(word))
            continue
        option, _, value = word.removeprefix("--").partition("=")
        value = value or (words.pop(0) if words and not words[0].startswith("--") else "")
        values += [] if values else ["..."]
        values.append(f"{option.replace('-', '_')}={_written(value) if value else True}")
    call = f"airgen.{'api.' if name == 'report' else ''}{name}({', '.join(values) or '...'}){rest}"
    return f"`{call}`" if quoted else call


def _written(word: str) -> str:
    """Return a word of a command as a value; a placeholder and a number stay as they are."""
    return word if word.isupper() or word.isdigit() else repr(word)


def _keyword(match: re.Match[str], options: dict[str, Any]) -> str:
    """Return an option of the called function as its argument; other programs' options stay as they are."""
    name = match[1].replace("-", "_")
    if name not in options:
        name = _OPTIONS.get(name, name)
    if name not in options:
        return match[0]
    value = match[2] or (True if isinstance(options[name], bool) else "")
    return f"{name}={value}"


def _with_arguments(text: str) -> Iterator[str]:
    """Yield the pieces of a text with Python's arguments in place of a pipeline's settings."""
    place = 0
    while match := _SETTING.search(text, place):
        yield _mappings(text[place : match.start()])
        place = match.end()
        path = match["path"] or match["name"] or match["set"] or match["write"]
        if match["path"] and not _is_setting(path):
            yield match[0]
            continue
        value, end = _value(text, match)
        yield _argument(path, value)
        place = end
    yield _mappings(text[place:])


def _mappings(text: str) -> str:
    """Return a text with Python's mappings in place of YAML's."""

    def in_words(match: re.Match[str]) -> str:
        value = _mapping(match[0])
        return match[0] if value is None else repr(value)

    return _FLOW.sub(in_words, text)


def _mapping(text: str) -> dict[Any, Any] | None:
    """Return a mapping that is written as in YAML; None if the text is something else, such as code."""
    try:
        value, _ = read_yaml(text)
    except SettingsError:
        return None
    return value if isinstance(value, dict) and None not in value.values() else None


def _value(text: str, match: re.Match[str]) -> tuple[Any, int]:
    """Return the value that follows a setting, if the text gives one, and where it ends."""
    place = match.end()
    if text.startswith(": {", place):
        depth = 0
        for end in range(place + 2, len(text)):
            depth += {"{": 1, "}": -1}.get(text[end], 0)
            if depth == 0:
                value = _mapping(text[place + 2 : end + 1])
                return (None, place) if value is None else (value, end + 1)
    asked = text[: match.start()].endswith(("set ", "write ", "needs "))
    if asked and (scalar := _SCALAR.match(text, place)):
        return scalar[1], scalar.end()
    return None, place


def _name_of(setting: str) -> str:
    """Return the argument that holds a setting of a pipeline; anything else stays as it is."""
    return _argument(setting, None) if setting.partition(".")[0] in _sections() else setting


def _argument(path: str, value: Any) -> str:
    """Return a setting as an argument: `llm.prices` becomes `llm={'prices': ...}`, and `target` becomes `n`."""
    from airgen.settings import Pipeline

    prefix = next((known for known in _ARGUMENTS if path == known or path.startswith(f"{known}.")), "")
    first, *rest = [_ARGUMENTS[prefix], *path[len(prefix) :].split(".")[1:]] if prefix else path.split(".")
    if not prefix and not rest and first not in Pipeline.model_fields:
        return repr({first: value}) if isinstance(value, str) else f"{first}={value!r}"  # of a mapping within
    while rest and rest[0].isdigit():
        first += f"[{rest.pop(0)}]"
    if not rest and value is None:
        return first
    text = "..." if value is None else repr(value)
    for part in reversed(rest):
        text = f"{{{part!r}: {text}}}"
    return f"{first}={text}"


@functools.cache
def _sections() -> dict[str, frozenset[str]]:
    """Return the settings of each section of a pipeline, and those of every LLM."""
    from airgen.components.registry import REGISTRY, resolve
    from airgen.settings import Pipeline, QueriesSettings

    sections = {
        name: frozenset(getattr(field.annotation, "model_fields", ())) for name, field in Pipeline.model_fields.items()
    }
    backends = (resolve("backend", name).Settings.model_fields for name in REGISTRY["backend"])
    return {**sections, "queries": frozenset(QueriesSettings.model_fields), "llm": frozenset().union(*backends)}


def _is_setting(path: str) -> bool:
    section, name, *_ = path.split(".")
    return name in _sections()[section]
