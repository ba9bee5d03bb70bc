"""The strict base class of all settings, and marks that describe what a field is about.

    class Dense(Settings):
        embedder: Annotated[Any, Part("embedder")]     # a name, or {kind: ..., settings of that kind}
        path: Annotated[str, FILE]                     # a file or folder; a relative path starts at the YAML's folder
        batch_size: Annotated[int, SPEED] = 64         # changes only the speed, never the result

Fingerprints, `airgen check`, the reuse of results and the building of parts all read these marks, so there is no second
list of names.

YAML files are read into pydantic models. All problems are reported at once, with the file, line, path and closest name.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar, Self, TypeVar

import yaml
from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    GetCoreSchemaHandler,
    ModelWrapValidatorHandler,
    ValidationError,
    ValidatorFunctionWrapHandler,
    model_validator,
)
from pydantic_core import CoreSchema, InitErrorDetails, PydanticCustomError
from pydantic_core.core_schema import no_info_wrap_validator_function

from airgen.components.registry import closest
from airgen.errors import SettingProblem, SettingsError
from airgen.storage.paths import data_dir
from airgen.storage.yaml_text import read_yaml

Written = str | dict[str, Any]
"""A part in YAML: a name, or {kind: ..., settings of that kind}."""


def _not_a_boolean(value: Any) -> Any:
    return "no" if value is False else value  # YAML 1.1 reads the code of Norwegian as false


Language = Annotated[str, BeforeValidator(_not_a_boolean)]  # an ISO 639 code


@dataclass(frozen=True)
class Mark:
    """A mark in a field's type that describes what the field is about: `Annotated[int, SPEED]`."""

    name: str


SPEED = Mark("speed")  # changes only the time or the cost of a result, never the result
FILE = Mark("file")  # names a file or folder that must exist; a relative path starts at the folder of the YAML file
MODEL = Mark("model")  # names a model: of the catalogue, of the Hub, or a folder (relative as for FILE)
SERVED = Mark("served")  # names a model that an endpoint runs: nothing is needed on this machine
KEY = Mark("key")  # names environment variables that hold keys: a name, or headers with ${NAME}


LARGEST_INT = 2**63 - 1
"""The largest integer in settings. A larger one is meaningless, and floats can overflow."""


def _plain_number(value: Any, handler: ValidatorFunctionWrapHandler) -> Any:
    """Reject booleans as numbers, which pydantic would read as 0 and 1, and integers of unlimited length."""
    if isinstance(value, bool):
        raise PydanticCustomError("no_number", "must be a number")
    number = handler(value)
    if isinstance(number, int) and abs(number) > LARGEST_INT:
        raise PydanticCustomError("too_large", "is too large for a setting")
    return number


def _with_plain_numbers(schema: Any) -> Any:
    """Return a model's schema in which `_plain_number` checks every number, at any depth."""
    if isinstance(schema, list | tuple):
        return type(schema)(_with_plain_numbers(part) for part in schema)
    if not isinstance(schema, dict):
        return schema
    if schema.get("type") in ("int", "float") and "ref" not in schema:
        return no_info_wrap_validator_function(_plain_number, schema)
    apart = ("default", "expected", "metadata", "serialization")  # values, and what is written
    return {key: part if key in apart else _with_plain_numbers(part) for key, part in schema.items()}


class Settings(BaseModel):
    """Base class of all settings. Unknown keys, NaN, infinity and booleans as numbers are errors. Instances are frozen.

    `packages` lists the imports that a component with these settings needs. `rules` is raised when the same settings
    begin to give other results, so that results of the old rules are not reused.
    """

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        populate_by_name=True,
        protected_namespaces=(),
        arbitrary_types_allowed=True,
        allow_inf_nan=False,
        validate_default=True,
        defer_build=True,
    )
    packages: ClassVar[tuple[str, ...]] = ()
    rules: ClassVar[int] = 0

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """Return pydantic's schema with stricter numbers."""
        return _with_plain_numbers(handler(source))  # type: ignore[no-any-return]

    def required_packages(self) -> tuple[str, ...]:
        """Return the imports that these values need. Subclasses may add imports that only certain values need."""
        return self.packages

    def missing(self, folder: Path | None) -> list[str]:
        """Return a line for each missing requirement other than packages, files, models and keys."""
        return []

    def makes_first(self, passages: int, folder: Path | None) -> str:
        """Return what a system must train or generate before it can search this many passages, and the cost, or ""."""
        return ""

    @model_validator(mode="wrap")
    @classmethod
    def _with_closest_names(cls, value: Any, handler: ModelWrapValidatorHandler[Self]) -> Self:
        """Report an unknown key along with the closest known key."""
        try:
            return handler(value)
        except ValidationError as error:
            known = [field.alias or name for name, field in cls.model_fields.items()]
            raise moved(error, lambda place: place, known) from None


def refuse(*rules: tuple[object, str]) -> None:
    """Raise ValueError with the message of the first (failed, message) pair that failed."""
    for broken, words in rules:
        if broken:
            raise ValueError(words)


def moved(error: ValidationError, to: Any, known: list[str] | None = None) -> ValidationError:
    """Return the same problems at other locations. `to` maps each location to its new one.

    With `known`, an unknown key is reported with the closest of these names.
    """
    lines = []
    for item in error.errors():
        kind, words, names = item["type"], item["msg"], item.get("ctx", {}).get("names", ())
        if known is not None and kind == "extra_forbidden" and len(item["loc"]) == 1:
            kind, words, names = "unknown_key", f"unknown key{closest(str(item['loc'][0]), known)}", known
        custom = PydanticCustomError(kind, "{message}", {"message": words, "names": names})
        lines.append(InitErrorDetails(type=custom, loc=to(item["loc"]), input=item["input"]))
    return ValidationError.from_exception_data(error.title, lines)


def message(error: Mapping[str, Any]) -> str:
    """Describe one problem of a ValidationError, without its location. A value that may contain a key is not shown."""
    if error["type"] in ("missing", "unknown_key"):
        return "is missing" if error["type"] == "missing" else str(error["msg"])
    words = str(error["msg"]).removeprefix("Value error, ")
    given = error.get("input")
    if error["type"] != "secret" and isinstance(given, str | int | float | bool) and repr(given) not in words:
        words += f", not {given!r}"
    return words[:1].lower() + words[1:]


def marked(model: type[BaseModel], mark: str) -> Iterator[tuple[str, Mark]]:
    """Yield the name and mark of each of a model's fields that carry a mark of this name."""
    for name, field in model.model_fields.items():
        for item in field.metadata:
            if isinstance(item, Mark) and item.name == mark:
                yield name, item


def answer_settings(settings: BaseModel) -> dict[str, Any]:
    """Return all fields that can change results as JSON values, omitting those marked SPEED, at any depth."""
    speed = {name for name, _ in marked(type(settings), "speed")}
    kept: dict[str, Any] = {}
    for name in (name for name in type(settings).model_fields if name not in speed):
        value = getattr(settings, name)
        items = value if isinstance(value, list) else [value]
        if nested := [answer_settings(item) for item in items if isinstance(item, BaseModel)]:
            kept[name] = nested if items is value else nested[0]
        else:
            kept[name] = settings.model_dump(mode="json", include={name})[name]
    return kept


M = TypeVar("M", bound=BaseModel)


def find_yaml(kind: str, name: str | Path, folder: Path | None = None) -> Path:
    """Find a YAML file by its path, or by the name under which airgen ships it.

    `quickstart`, `quickstart.yaml` and `pipelines/quickstart.yaml` are the same file. It is looked up in `folder` (of
    the YAML file that names it), in the working directory, in the subfolder `kind` of both, and among the files that
    airgen ships. A path with an extension is returned, relative to `folder`, even if it does not exist.
    `suite.yaml#part`, a pipeline in a suite, is looked up by its file. Raises SettingsError for an unknown name.

    Args:
        kind: `pipelines` or `corpora`.
    """
    file, mark, part = str(name).rpartition("#")
    if mark and not Path(name).is_file():
        return Path(f"{find_yaml(kind, file, folder)}#{part}")
    path = Path(name).expanduser()
    named = path.suffix in (".yaml", ".yml") or path.name in ("", "..")
    wanted = path if named else path.with_name(f"{path.name}.yaml")
    inside = Path(*wanted.parts[1:]) if wanted.parts[:1] == (kind,) else wanted
    places = dict.fromkeys([*([folder] if folder is not None else []), Path()])
    candidates = [place / file for place in places for file in (path, wanted, Path(kind) / inside)]
    if not inside.is_absolute() and len(inside.parts) == 1:
        candidates.append(data_dir(kind) / inside)
    for candidate in candidates:
        if candidate.is_file():
            return candidate
    if path.is_dir():
        inside_it = sorted(file.name for file in path.glob("*.y*ml"))[:5]
        hint = f" ({', '.join(inside_it)})" if inside_it else ""
        raise SettingsError([f"{path}: is a folder: name a YAML file{hint}"])
    if path.suffix:
        return path if folder is None else folder / path
    folders = (*(place / kind for place in places), data_dir(kind))
    known = {file.stem for place in folders for file in place.glob("*.yaml")}
    hint = closest(path.name, sorted(known))
    words = f"there is no file and no built-in {kind.removesuffix('s')} named {str(name)!r}{hint}"
    raise SettingsError([SettingProblem(words, code="unknown_name", names=sorted(known))])


def load_yaml(path: Path, model: type[M]) -> M:
    """Read a file as `model`. Raises SettingsError with one line for each problem."""
    value, node = read_mapping(path)
    return validate(value, model, name=str(path), node=node, folder=path.resolve().parent)


def read_mapping(path: Path) -> tuple[dict[str, Any], yaml.Node | None]:
    """Return the mapping in a YAML file, and its nodes, which have line numbers. Raises SettingsError."""
    return mapping_in(yaml_text(path), str(path))


def yaml_text(path: Path) -> str:
    """Return the text of a YAML file. Raises SettingsError."""
    try:
        return path.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        raise SettingsError([SettingProblem("no such file", code="no_file", where=str(path))]) from None
    except IsADirectoryError:
        raise SettingsError([f"{path}: is a directory, but a YAML file is needed"]) from None
    except UnicodeDecodeError as error:
        raise SettingsError([f"{path}: is not in UTF-8 (byte {error.start}): save it in UTF-8"]) from error
    except OSError as error:
        raise SettingsError([f"{path}: cannot be read: {error.strerror or error}"]) from error


def mapping_in(text: str, name: str) -> tuple[dict[str, Any], yaml.Node | None]:
    """Return the mapping in a YAML text, and its nodes. `name` is the file name in messages."""
    value, node = read_yaml(text, name)
    if not isinstance(value, dict):
        what = "is empty" if value is None else f"holds a {type(value).__name__}"
        raise SettingsError([f"{name}: {what}, a mapping of settings is needed"])
    return value, node


def merged(common: dict[str, Any], own: dict[str, Any]) -> dict[str, Any]:
    """Merge `own` into `common` recursively: `{"a": {"b": 1}}` and `{"a": {"c": 2}}` keep both b and c."""
    whole = dict(common)
    for key, value in own.items():
        both = isinstance(value, dict) and isinstance(whole.get(key), dict)
        whole[key] = merged(whole[key], value) if both else value
    return whole


def parse_yaml(text: str, model: type[M], name: str = "<text>", folder: Path | None = None) -> M:
    """Read a YAML text as `model`. `name` is the file name in messages. Classes named `module:Class` are looked up in
    `folder`."""
    value, node = mapping_in(text, name)
    return validate(value, model, name=name, node=node, folder=folder)


def validate(
    value: dict[str, Any], model: type[M], name: str, node: yaml.Node | None = None, folder: Path | None = None
) -> M:
    """Validate a mapping as `model`. `node` provides line numbers if the mapping comes from YAML."""
    try:
        return model.model_validate(value, context={"folder": folder})
    except ValidationError as error:
        raise SettingsError([_problem(name, node, dict(item)) for item in error.errors()]) from None


def _problem(name: str, node: yaml.Node | None, error: dict[str, Any]) -> SettingProblem:
    location = tuple(part for part in error["loc"] if not _is_union_tag(part))
    line = _line(node, location)
    return SettingProblem(
        message(error),
        code=error["type"],
        where=f"{name}:{line}" if line else name,
        setting=".".join(str(part) for part in location) or "the file",
        names=error.get("ctx", {}).get("names", ()),
    )


def _is_union_tag(part: object) -> bool:
    # pydantic includes the tried member of a union in the location: `function-after[...]`, `list[int]`, a class name
    return isinstance(part, str) and (
        part.endswith("]") or (part[:1].isupper() and part.isidentifier()) or part in ("str", "int")
    )


def _line(node: yaml.Node | None, location: tuple[Any, ...]) -> int | None:
    """Return the line number, from 1, of the deepest part of `location` that exists in the YAML text."""
    if node is None:
        return None
    line = node.start_mark.line
    for part in location:
        pair = None
        if isinstance(node, yaml.MappingNode):
            pair = next(((key, child) for key, child in node.value if key.value == str(part)), None)
        elif isinstance(node, yaml.SequenceNode) and isinstance(part, int) and part < len(node.value):
            pair = (node.value[part], node.value[part])
        if pair is None:
            break
        key, node = pair
        line = key.start_mark.line
    return line + 1
