"""Use any LlamaHub reader: Confluence, Notion, SharePoint, Google Drive, Slack, databases, web pages and files.

    reader:
      kind: llama-index
      reader: "llama_index.readers.confluence:ConfluenceReader"     # pip install llama-index-readers-confluence
      arguments: {base_url: "https://example.org/wiki", api_token: "${CONFLUENCE_TOKEN}"}
      load: {space_key: HANDBOOK}

The reader is created with `arguments`, and its `load_data` is called with `load`. ${NAME} in either is an environment
variable, whose value no message shows. A text beginning with `./` or `../` is a path relative to the folder of the YAML
file.

Many readers give each document a new random id in each call. Ids are therefore made from what is stable: the id if it
is not random, otherwise the URL or path in the metadata, otherwise the text. Documents with the same URL are numbered.
"""

import builtins
import getpass
import importlib
import inspect
import re
import webbrowser
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar, NoReturn

from pydantic import Field, ValidationInfo, field_validator

from airgen.components.keys import text_key
from airgen.components.registry import EXTRAS, load_extra, meant
from airgen.corpus.readers.metadata import metadata_text
from airgen.corpus.readers.reader import Place, ReaderSettings, drop
from airgen.errors import CorpusError, MissingExtra
from airgen.safety.mask_secrets import SHORTEST, error_words, masked, masked_value, of_addresses
from airgen.settings.http import VARIABLE
from airgen.settings.llm import hidden, looks_like_a_key, secret
from airgen.storage.records import Document, Dropped

_CLASS = r"^[A-Za-z_][\w.]*:[A-Za-z_]\w*$"
_SECRET_NAME = re.compile(r"(?:api|access|secret|private)_?key|token|secret|passw|credential", re.IGNORECASE)
_PASSWORD = re.compile(r"://[^/\s:@]+:[^/\s@]+@")  # in an address
_RANDOM = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")
_ADDRESSES = (
    "url",
    "URL",
    "source_url",
    "file_path",
    "path",
    "permalink",
    "source",
    "page_id",
    "document_id",
    "doc_id",
)
_TITLES = ("title", "page_title", "note_name", "subject", "name", "file_name")
_MAX_ID_CHARACTERS = 200  # characters of an id


class AsksForLogin(Exception):
    """Third-party code would wait for a person."""


class LlamaIndexReader:
    """Yields the documents of a LlamaHub reader, in its order."""

    class Settings(ReaderSettings):
        """Settings of a LlamaIndex reader.

        Attributes:
            reader: The reader's class, as `module:Class`.
            id: Metadata name of the id, if it is not a usual name.
            title: Metadata name of the title, if it is not a usual name.
        """

        packages: ClassVar[tuple[str, ...]] = ("llama_index",)
        reader: str = Field(pattern=_CLASS)
        arguments: dict[str, Any] = Field(default={})
        load: dict[str, Any] = Field(default={})
        id: str | None = None
        title: str | None = None

        @field_validator("arguments", "load")
        @classmethod
        def _no_secrets(cls, values: dict[str, Any], info: ValidationInfo) -> dict[str, Any]:
            for name, text in _texts(values):
                if VARIABLE.search(text) or _is_path(text):
                    continue
                if _SECRET_NAME.search(name) or _PASSWORD.search(text) or looks_like_a_key(text):
                    raise hidden(f"{name} contains a secret: write ${{NAME}}, where NAME is an environment variable")
            return values

        def local_paths(self) -> tuple[str, ...]:
            """Return the files and folders that the arguments name."""
            return tuple(text for _, text in (*_texts(self.arguments), *_texts(self.load)) if _is_path(text))

        def problems(self) -> list[str]:
            """Return what prevents the reader from being called: its package, class, arguments or environment
            variables.
            """
            texts = [text for _, text in (*_texts(self.arguments), *_texts(self.load))]
            variables = (name for text in texts for name in VARIABLE.findall(text))
            unset = [name for name in dict.fromkeys(variables) if not secret(name)]
            lines = [f"reader: the environment variable {name} is not set" for name in unset]
            try:
                kind = reader_class(self.reader)
                _check_arguments(kind, self.arguments, f"reader {self.reader}: arguments")
                _check_arguments(kind.load_data, {"self": None, **self.load}, f"reader {self.reader}: load")
            except (CorpusError, MissingExtra) as error:
                lines.append(str(error))
            return lines

    def __init__(self, settings: Settings, place: Place) -> None:
        self.settings, self.place = settings, place
        self._secrets: list[str] = []
        self._keys = sorted(_keys({"arguments": settings.arguments, "load": settings.load}), key=len, reverse=True)

    def read(self) -> Iterator[Document | Dropped]:
        """Yield the documents. Raises a one-line CorpusError, which never shows environment variables."""
        chosen = self.settings
        if problems := chosen.problems():
            raise CorpusError("\n".join(problems))
        kind = reader_class(chosen.reader)
        counts = Counter[str]()
        for document in self._loaded(kind, self._filled(chosen.arguments), self._filled(chosen.load)):
            yield self._document(document, counts)

    def _loaded(self, kind: Any, arguments: dict[str, Any], load: dict[str, Any]) -> Iterator[Any]:
        with self._guarded():
            reader = kind(**arguments)
            documents = iter((reader.lazy_load_data if _is_lazy(kind) else reader.load_data)(**load))
        while True:
            with self._guarded():
                try:
                    document = next(documents)
                except StopIteration:
                    return
            yield document

    @contextmanager
    def _guarded(self) -> Iterator[None]:
        """Run third-party code, preventing it from waiting for a person and from revealing secrets."""
        try:
            with unattended():
                yield
        except (Exception, SystemExit) as error:  # noqa: BLE001  # a reader may raise what it likes
            name = self.settings.reader
            if isinstance(error, AsksForLogin | EOFError) or "asks for a login" in str(error):
                raise CorpusError(
                    f"reader {name} requires a login: set it in `arguments`, with ${{NAME}} for secrets"
                ) from None
            raise CorpusError(f"reader {name}: {error_words(error, self._secrets)}") from None

    def _filled(self, value: Any) -> Any:
        """Return the arguments with environment variables filled in and paths relative to the corpus's folder."""
        if isinstance(value, Mapping):
            return {name: self._filled(part) for name, part in value.items()}
        if isinstance(value, list):
            return [self._filled(part) for part in value]
        if not isinstance(value, str):
            return value
        if _is_path(value):
            return str((self.place.root / value).resolve())
        self._secrets += [text for name in VARIABLE.findall(value) if (text := secret(name))]
        return VARIABLE.sub(lambda match: secret(match[1]) or "", value)

    def _document(self, loaded: Any, counts: Counter[str]) -> Document | Dropped:
        metadata: Mapping[str, Any] = getattr(loaded, "metadata", None) or {}
        text = getattr(loaded, "text", None)
        if not isinstance(text, str):
            return drop("no text", detail=f"a {type(loaded).__name__}", source=self.settings.reader)
        text = masked(text, self._keys)
        metadata = {name: masked_value(part, self._keys) for name, part in metadata.items()}
        address = masked(self._address(loaded, metadata), self._keys)
        counts[address] += 1
        identity = address if counts[address] == 1 else f"{address}#{counts[address]}"
        if len(text.encode("utf-8", "surrogatepass")) > self.settings.max_bytes:
            return drop("too large", identity=identity, source=address, text=text)
        title = _first(metadata, (self.settings.title,) if self.settings.title else _TITLES)
        metadata_json = metadata_text(self.settings.metadata, metadata)
        return Document(
            identity,
            text,
            title,
            source=address,
            licence=self.place.licence,
            language=self.place.language,
            metadata=metadata_json,
        )

    def _address(self, loaded: Any, metadata: Mapping[str, Any]) -> str:
        if self.settings.id is not None:
            address = _first(metadata, (self.settings.id,))
        else:
            own = str(getattr(loaded, "id_", "") or "")
            address = "" if _RANDOM.fullmatch(own) else own
            address = address or _first(metadata, _ADDRESSES)
            if not address and (name := _first(metadata, ("file_name",))):
                address = str(Path(_first(metadata, ("folder_path",))) / name)
        address = " ".join(self._below(address).split())
        return (
            address if address and len(address) <= _MAX_ID_CHARACTERS else text_key(f"{address}\x1f{loaded.text}")[:16]
        )

    def _below(self, address: str) -> str:
        """Return a path relative to the corpus's folder, so that it is the same on every machine."""
        path, root = Path(address), self.place.root.resolve()
        return path.relative_to(root).as_posix() if path.is_absolute() and path.is_relative_to(root) else address


def reader_class(name: str) -> Any:
    """Return the class at module:Class. Raises CorpusError if it is not a reader, or says what to install."""
    module, _, attribute = name.partition(":")
    try:
        kind = getattr(importlib.import_module(module), attribute, None)
    except Exception as error:  # noqa: BLE001  # a package may fail in any way while it is imported
        raise CorpusError(_import_problem(name, module, error)) from None
    if kind is None:
        known = [public for public in dir(importlib.import_module(module)) if public[:1].isupper()]
        raise CorpusError(f"reader {name}: {module} has no {attribute}{meant(attribute, known)}")
    if not (isinstance(kind, type) and callable(getattr(kind, "load_data", None))):
        raise CorpusError(f"reader {name} is not a reader of LlamaIndex: it has no load_data")
    return kind


def _is_lazy(kind: Any) -> bool:
    """Return whether a reader yields its documents one by one."""
    base = load_extra("llama_index.core.readers.base", "the reader").BaseReader
    return getattr(kind, "lazy_load_data", base.lazy_load_data) is not base.lazy_load_data


def _import_problem(name: str, module: str, error: Exception) -> str:
    missing = (error.name or "") if isinstance(error, ModuleNotFoundError) else ""
    if missing.startswith("llama_index.readers"):
        package = ".".join(module.split(".")[:3]).replace(".", "-").replace("_", "-")
        return f"reader {name} needs a package of LlamaHub: pip install {package}"
    if missing == "llama_index":
        return str(MissingExtra(f"reader {name}", *EXTRAS["llama_index"]))
    return f"reader {name} cannot be imported: {error_words(error)}"


def _check_arguments(function: Callable[..., Any], given: Mapping[str, Any], label: str) -> None:
    """Raise CorpusError if a function cannot take these arguments."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # written in C, or hidden
        return
    try:
        signature.bind(**given)
    except TypeError as error:
        names = [name for name in signature.parameters if name != "self"]
        raise CorpusError(f"{label}: {error}; it takes {', '.join(names) or 'none'}") from None


@contextmanager
def unattended() -> Iterator[None]:
    """Raise AsksForLogin if the block would wait for a person, in the terminal or in a browser."""

    def refuse(*_: object, **__: object) -> NoReturn:
        raise AsksForLogin("it asks for a login")

    prompts = {builtins: ("input",), getpass: ("getpass",), webbrowser: ("open", "get")}
    places: list[tuple[Any, str]] = [(module, name) for module, names in prompts.items() for name in names]
    originals = [(place, name, getattr(place, name)) for place, name in places]
    for place, name in places:
        setattr(place, name, refuse)
    try:
        yield
    finally:
        for place, name, original in originals:
            setattr(place, name, original)


def _texts(value: Any, name: str = "") -> Iterator[tuple[str, str]]:
    """Yield (name, text) for every text in nested arguments."""
    if isinstance(value, str):
        yield name, value
    elif isinstance(value, Mapping):
        for key, part in value.items():
            yield from _texts(part, str(key))
    elif isinstance(value, list):
        for part in value:
            yield from _texts(part, name)


def _keys(value: Any) -> set[str]:
    """Return the keys and passwords in the environment variables of the arguments, which no row may hold.

    Other variables, such as the address of a wiki, may be part of its documents.
    """
    keys: set[str] = set()
    for argument, text in _texts(value):
        for name in VARIABLE.findall(text):
            content = secret(name) or ""
            keys.update(of_addresses(content))
            named = _SECRET_NAME.search(name) or _SECRET_NAME.search(argument)
            if len(content) >= SHORTEST and (named or looks_like_a_key(content)):
                keys.add(content)
    return keys


def _is_path(text: str) -> bool:
    return text in (".", "..") or text.startswith(("./", "../"))


def _first(metadata: Mapping[str, Any], names: tuple[str, ...]) -> str:
    """Return the first of these values that is a text or a number."""
    values = (metadata.get(name) for name in names)
    return next((str(value) for value in values if isinstance(value, str | int) and str(value).strip()), "")
