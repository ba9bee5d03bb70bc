"""Load, check and render prompts: one Jinja2 template per prompt, with front matter; sandboxed and strict.

    prompt = PromptSet().get("query")
    messages = prompt.render(document="...", character="...", ...)      # tuple of llms.base.Message

A template is split into messages at the lines `=== system ===`, `=== user ===` and `=== assistant ===` before anything
is rendered, so that no document can forge a message. External text passes through the filters `fenced(tag)`, which puts
it between tags and makes closing tags in it harmless, or `unquoted`. It is never evaluated.
"""

import re
from collections.abc import Iterable, Mapping
from functools import cache, cached_property
from pathlib import Path
from typing import Annotated, Any, Self

import jinja2
import jinja2.meta
import jinja2.sandbox
from pydantic import Field, model_validator

from airgen.components.keys import canonical_json, fingerprint
from airgen.components.registry import closest
from airgen.errors import PromptError, SettingsError
from airgen.llms.base import Message
from airgen.settings.base import Settings, mapping_in, refuse, validate
from airgen.storage.paths import data_dir

_MESSAGE = re.compile(r"^=== (system|user|assistant) ===\n", re.MULTILINE)
_FRONT_MATTER = re.compile(r"\A---\n(.*?)\n---\n", re.DOTALL)


_JUDGED = ("document", "query")
"""The two texts of a judgment: neither may look like the beginning or the end of the other."""

_UNSEEN = "\u00ad\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff"


@cache
def _tags(own: str) -> re.Pattern[str]:
    """Match the bracket of a tag by the name `own`, or of a judged text, also with signs that nobody sees in it."""
    names = "|".join(r"[^\w<>]*".join(map(re.escape, name)) for name in (own, *_JUDGED))
    return re.compile(rf"[<＜﹤](?=[^\w<>]*(?:{names})(?![^\W_]))", re.IGNORECASE)


def fenced(text: str, tag: str) -> str:
    """Put text between `<tag>` lines. A tag of that name in the text loses its bracket, so that it cannot close the
    fence, and so do the tags of the two texts of a judgment, so that a document cannot bring its own query."""
    return f"<{tag}>\n{_tags(tag).sub('‹', str(text))}\n</{tag}>"


def _unquoted(text: str) -> str:
    """Break up the two marks that delimit the fields of Table 8."""
    return re.sub(rf"“[{_UNSEEN}]*‘", "“ ‘", re.sub(rf"”[{_UNSEEN}]*’", "” ’", str(text)))


class FrontMatter(Settings):
    """The front matter of a template. `output` is a JSON schema, or the name of a plain form: level, yes_no or text.

    `constrain` names the property of the output whose words and punctuation the schema restricts, for models that
    cannot count: see `airgen.generation.query_pattern.form_pattern`. `count` names a list in the output whose number of
    items the schema fixes to the prompt's input `count`. `translates` names the prompt from which a translation
    inherits the front matter that it lacks.
    """

    version: int
    inputs: tuple[Annotated[str, Field(pattern=r"^[^\W\d]\w*$")], ...]
    output: dict[str, Any] | str
    about: str = ""
    constrain: str = ""
    count: str = ""
    translates: str = ""

    @model_validator(mode="after")
    def _names_are_in_the_output(self) -> Self:
        properties = self.output.get("properties") or () if isinstance(self.output, dict) else ()
        for key, named in (("constrain", self.constrain), ("count", self.count)):
            refuse((named and named not in properties, f"{key}: {named} is not a property of the output"))
        return self


class Prompt(FrontMatter):
    """A prompt. `source` is its template, including the front matter."""

    name: str
    source: str
    included: dict[str, str]
    blocks: tuple[tuple[str, jinja2.Template], ...]

    @cached_property
    def fingerprint(self) -> str:
        """Return a hash of the template, its includes and its output schema."""
        return fingerprint(source=self.source, included=dict(self.included))

    def constrained(self, pattern: str | None = None, count: int | None = None) -> Mapping[str, Any] | None:
        """Return the JSON schema of the answer with constraints, or None for a plain form.

        Args:
            pattern: Regular expression for the whole value of the property to constrain.
            count: Exact number of items in the list to count.
        """
        if isinstance(self.output, str):
            return None
        changed: dict[str, Any] = {}
        if self.constrain and pattern is not None:
            changed[self.constrain] = {"type": "string", "pattern": pattern}
        if self.count and count is not None:
            changed[self.count] = {**self.output["properties"][self.count], "minItems": count, "maxItems": count}
        return {**self.output, "properties": {**self.output["properties"], **changed}} if changed else self.output

    def render(self, **values: Any) -> tuple[Message, ...]:
        """Render the messages. Raises PromptError with every missing variable; unused variables are ignored."""
        missing = sorted(set(self.inputs) - set(values))
        if missing:
            raise PromptError(f"prompt {self.name!r} needs {', '.join(missing)}")
        variables = {name: values[name] for name in self.inputs}
        try:
            return tuple(Message(role, template.render(variables).strip()) for role, template in self.blocks)
        except jinja2.TemplateError as error:
            raise PromptError(f"prompt {self.name!r} cannot be rendered: {error}") from error
        except Exception as error:  # an expression in the user's template may raise any exception
            words = f"{type(error).__name__}: {error}".removesuffix(": ")
            raise PromptError(f"prompt {self.name!r} cannot be rendered: {words}") from error


class PromptSet:
    """The prompts in one or more folders. Files in earlier folders hide files of the same name in later ones."""

    def __init__(self, folders: Iterable[Path] = ()) -> None:
        self.folders = [*folders, data_dir("prompts")]
        self._environment = jinja2.sandbox.ImmutableSandboxedEnvironment(
            loader=jinja2.FileSystemLoader([str(folder) for folder in self.folders]),
            undefined=jinja2.StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
            keep_trailing_newline=False,
            autoescape=False,  # not HTML; the filters below delimit external text
        )
        self._environment.filters.update(fenced=fenced, unquoted=_unquoted)
        self._loaded: dict[str, Prompt] = {}

    @classmethod
    def beside(cls, folder: Path) -> "PromptSet":
        """Return the shipped prompts, overridden by those in `folder`/prompts, if it exists."""
        own_folder = folder / "prompts"
        return cls([own_folder]) if own_folder.is_dir() else _shipped()

    def names(self) -> list[str]:
        """Return the sorted names of all prompts, except templates to include, which begin with an underscore."""
        names = {
            path.relative_to(folder).with_suffix("").as_posix()
            for folder in self.folders
            for path in folder.rglob("*.j2")
            if not path.name.startswith("_")
        }
        return sorted(names)

    def get(self, name: str) -> Prompt:
        """Return one prompt. Raises PromptError if it is missing or malformed."""
        return self._get(name, ())

    def _get(self, name: str, translating: tuple[str, ...]) -> Prompt:
        if name not in self._loaded:
            self._loaded[name] = self._load(name, translating)
        return self._loaded[name]

    def in_language(self, name: str, language: str) -> str:
        """Return the name of a prompt's translation, such as `small/de/query` for `small/query`, or its own name.

        An earlier folder takes precedence here, too: a `small/query` beside a pipeline hides the shipped
        `small/de/query`.
        """
        folder, slash, last = name.rpartition("/")
        translated = f"{folder}{slash}{language}/{last}"
        for place in self.folders:
            prompt = next(
                (candidate for candidate in (translated, name) if (place / f"{candidate}.j2").is_file()), None
            )
            if prompt:
                return prompt
        return name

    def _load(self, name: str, translating: tuple[str, ...]) -> Prompt:
        try:
            source, filename, _ = self._environment.loader.get_source(self._environment, f"{name}.j2")  # type: ignore[union-attr]
        except jinja2.TemplateNotFound:
            known = self.names()
            raise PromptError(f"no prompt {name!r}{closest(name, known)}", code="unknown_name", names=known) from None
        front = _FRONT_MATTER.match(source)
        if front is None:
            raise PromptError(f"{filename}: no front matter between two lines of ---")
        try:
            head, _ = mapping_in(front[1], f"{filename}: front matter")
            left_out = self._left_out(head, filename or name, (*translating, name))
            head = validate({**left_out, **head}, FrontMatter, f"{filename}: front matter").model_dump()
        except SettingsError as error:
            raise PromptError("; ".join(error.problems)) from error
        parts = _MESSAGE.split(source[front.end() :])
        if parts[0].strip() or len(parts) < 3:
            raise PromptError(f"{filename}: the text must begin with a line === system === or === user ===")
        included = self._included(source, filename or name)
        if left_out:  # the allowed answers are part of the prompt, wherever they are written
            binding = {key: value for key, value in left_out.items() if key != "about"}
            included[f"front matter of {head['translates']}"] = canonical_json(binding)
        try:
            blocks = tuple(
                (role, self._environment.from_string(text)) for role, text in zip(parts[1::2], parts[2::2], strict=True)
            )
            undeclared = self._variables([source[front.end() :], *included.values()]) - {*head["inputs"]}
        except jinja2.TemplateSyntaxError as error:
            raise PromptError(f"{filename}:{error.lineno}: {error.message}") from error
        if undeclared:
            raise PromptError(f"{filename}: uses {', '.join(sorted(undeclared))} without naming it in inputs")
        return Prompt(name=name, source=source, included=included, blocks=blocks, **head)

    def _left_out(self, head: dict[str, Any], filename: str, translating: tuple[str, ...]) -> dict[str, Any]:
        """Return the front matter that a translation inherits from the original."""
        if "translates" not in head:
            return {}
        if translating[-1] in translating[:-1]:
            raise PromptError(f"{filename}: translates: {head['translates']} translates this prompt")
        try:
            other = self._get(str(head["translates"]), translating)
        except PromptError as error:
            raise PromptError(f"{filename}: translates: {error}") from error
        fields = other.model_dump(include=FrontMatter.model_fields.keys() - {"version", "translates"})
        return {key: value for key, value in fields.items() if key not in head and value}

    def _included(self, source: str, filename: str) -> dict[str, str]:
        sources: dict[str, str] = {}
        queue = [source]
        while queue:
            try:
                names = jinja2.meta.find_referenced_templates(self._environment.parse(queue.pop()))
            except jinja2.TemplateSyntaxError as error:
                raise PromptError(f"{filename}:{error.lineno}: {error.message}") from error
            for name in names:
                if name is None:
                    raise PromptError(f"{filename}: an include must be a plain name")
                if name not in sources:
                    try:
                        sources[name] = self._environment.loader.get_source(self._environment, name)[0]  # type: ignore[union-attr]
                    except jinja2.TemplateNotFound:
                        raise PromptError(f"{filename}: includes {name!r}, which does not exist") from None
                    queue.append(sources[name])
        return sources

    def _variables(self, sources: Iterable[str]) -> set[str]:
        return {
            name
            for source in sources
            for name in jinja2.meta.find_undeclared_variables(self._environment.parse(source))
        }


@cache
def _shipped() -> PromptSet:
    """Return the shipped prompts, shared by all jobs of a process that have no prompts of their own."""
    return PromptSet()
