"""A command's two signatures: for typer in the shell, and for Python's `help()`.

dataset: Annotated[Place, arg("DATASET", "A dataset.")]      in the function
dataset: Annotated[Path, Argument("DATASET", ...)]           for the shell, which parses words
dataset: Place                                               for Python
"""

from __future__ import annotations

import inspect
import os
import re
import types
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from pathlib import Path
from typing import Annotated, Any, Union, get_args, get_origin

import typer
from typer.models import OptionInfo

_JSON = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
_SECTIONS = re.compile(r"^(?:Examples|Returns|Raises):$", re.MULTILINE)
_OPTION = re.compile(r"(?<![\w-])--([a-z][a-z-]*)")


def evaluated(function: Callable[..., Any]) -> inspect.Signature:
    """Return the signature with resolved types. The return type stays text, because only a type checker may know its
    names."""
    signature = inspect.signature(function)
    names = getattr(function, "__globals__", {})

    def resolved(annotation: Any) -> Any:  # text where the module postpones its annotations
        return eval(annotation, names) if isinstance(annotation, str) else annotation

    parameters = [
        parameter.replace(annotation=resolved(parameter.annotation)) for parameter in signature.parameters.values()
    ]
    return signature.replace(parameters=parameters)


def give_signature(call: Callable[..., Any], signature: inspect.Signature, *, shell: bool) -> None:
    """Give a function the signature for typer (`shell`) or for `help()`, which has plain types and the type of the
    value.
    """
    parameters = list(signature.parameters.values())
    if shell:
        parameters.append(inspect.Parameter("as_json", inspect.Parameter.KEYWORD_ONLY, default=False, annotation=_JSON))
        parameters = [
            parameter.replace(annotation=_option(parameter.name, parameter.annotation)) for parameter in parameters
        ]
        result: Any = None
    else:
        parameters = [parameter.replace(annotation=bare_type(parameter.annotation)) for parameter in parameters]
        result = str(signature.return_annotation).removeprefix("Outcome[").removesuffix("]")
    call.__signature__ = signature.replace(parameters=parameters, return_annotation=result)  # type: ignore[attr-defined]
    call.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}


def split_docstring(docstring: str) -> tuple[str, str]:
    """Split a docstring into the help of the command, and the sections that only Python shows."""
    text = inspect.cleandoc(docstring)
    section = _SECTIONS.search(text)
    start = section.start() if section else len(text)
    return text[:start].rstrip(), text[start:]


def in_python(help_text: str) -> str:
    """Return the help of a command as that of its function: without examples for the shell, and with the names of
    arguments."""
    paragraphs = [part for part in help_text.split("\n\n") if not part.startswith("Example: ")]
    return _OPTION.sub(lambda match: match[1].replace("-", "_"), "\n\n".join(paragraphs))


def arguments_section(signature: inspect.Signature, also: Mapping[Any, str]) -> str:
    """Return the `Args` section: a line for each argument, with the help text of its option, and with what is `also`
    accepted for its type."""
    lines = []
    for parameter in signature.parameters.values():
        hint = parameter.annotation
        info = hint.__metadata__[0] if get_origin(hint) is Annotated else None
        words = " ".join([*str(getattr(info, "help", "") or "").split(), *also.get(bare_type(hint), "").split()])
        words = _OPTION.sub(lambda match: match[1].replace("-", "_"), words)
        lines.append(f"    {parameter.name}: {words}" if words else f"    {parameter.name}")
    return "\n".join(["Args:", *lines]) if lines else ""


def makers_of(hint: Any) -> list[Callable[[Any], Any]]:
    """Return the functions in an `Annotated` type, which convert given values."""
    return [item for item in hint.__metadata__[1:] if callable(item)] if get_origin(hint) is Annotated else []


def bare_type(hint: Any) -> Any:
    """Return a type without its annotations."""
    return get_args(hint)[0] if get_origin(hint) is Annotated else hint


def _option(name: str, hint: Any) -> Any:
    """Return a parameter for typer. A flag has no `--no-...` form unless it names one, and a list is "repeatable"."""
    kind, info = shell_type(bare_type(hint)), copy(hint.__metadata__[0])
    if isinstance(info, OptionInfo):
        if kind is bool and info.default is ...:
            info.param_decls = (f"--{name.replace('_', '-')}",)
        if get_origin(kind) is list:
            info.help = f"{str(info.help).removesuffix('.')} (repeatable)."
    return Annotated[kind, info]


def shell_type(hint: Any) -> Any:
    """Return the type that typer parses: a path for `str | Path` or a `PathLike`, and a list for a sequence, with or
    without single values."""
    members = get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)
    items = [
        get_args(member)[0] for member in members if get_origin(member) is Sequence and get_args(member)[0] is not Any
    ]
    is_path = any(member is Path or get_origin(member) is os.PathLike for member in members)
    parsed = list[shell_type(items[0])] if items else Path if is_path else None  # type: ignore[misc]
    if parsed is None:
        return hint
    return parsed | None if type(None) in members else parsed
