"""Decide what may be published, by lists of what is public: anything new stays private until it is listed.

If labels are private, only these fields, files, notes and figures are published. Nothing that follows from a label is
listed: how many passages of a query were judged, how many it needs, the funnel, or digests of files with labels.
Anything that identifies the author's machine (an absolute path, a private address) is never published.

    public_text("made from /home/ann/handbook by http://10.0.0.3:8000")    # "made from handbook by (a private address)"
"""

import dataclasses
import ipaddress
import math
import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

from airgen.dataset.content import ANSWERED, FILTER, DatasetInfo, ModelUse
from airgen.dataset.derive import EARLIER
from airgen.dataset.human_labels import CONFIRMED
from airgen.dataset.manifest import Manifest
from airgen.errors import DatasetError, SettingsError
from airgen.storage.whole_files import labelled_split
from airgen.storage.yaml_text import read_yaml

PAIR = "pair of parts"
PERMISSION = "permission to publish the corpus"

QUERY_FIELDS = frozenset(
    {"split", "type", "length", "information", "style", "rewritten", "count", "language", "domain", ANSWERED}
)
"""Query metadata that do not depend on the labels. `answered` is emptied if the split is withheld."""

_NOTES = frozenset({PAIR, PERMISSION, EARLIER, "passages before trimming"})
_AUDIT = frozenset({CONFIRMED, "equal levels", "people", "people agree with each other"})
_TABLES = frozenset({"corpus.jsonl", "queries.jsonl"})

# The sections of a pipeline, and in them the settings whose text may be published. Numbers of a section are public.
_SECTIONS = frozenset(
    {
        "name",
        "task",
        "corpus",
        "language",
        "domain",
        "target",
        "relevance",
        "llm",
        "queries",
        "generation",
        "control",
        "export",
    }
)
_LLM = frozenset({"backend", "model", "temperature", "max_tokens"})
_QUERIES = frozenset({"duplicates", "other_language", "draw_by", "max_length"})
_TEXTS = frozenset(
    {
        "name",
        "task",
        "corpus",
        "language",
        "domain",
        "relevance",
        "backend",
        "model",
        "kind",
        "prompt",
        "negatives",
        "query_from",
        "query_language",
        "prompts",
        "prompt_language",
        "duplicates",
        "other_language",
        "draw_by",
        "licence",
        "ids",
        "version",
        "pools",
        "rerankers",
        "embedder",
        "retriever",
        "reranker",
        "base",
        "variants",
    }
)

_URL = re.compile(r"\b[A-Za-z][A-Za-z0-9+.-]{1,20}://[^\s<>\"'`]+")
_PATH = re.compile(
    r"(?<![\w:/.~-])(?:~[\w.-]*|[A-Za-z]:|\\)?(?:[/\\](?:[^\s/\\<>\"'`|:*?]+)){2,}[/\\]?|(?<![\w/.])~[/\\]\S+"
)
_PLACES = (".local", ".internal", ".intranet", ".lan", ".corp", ".home", ".arpa", ".localhost", ".private", ".test")


def public_files(manifest: Manifest, withhold: Sequence[str]) -> list[str]:
    """Return the public data files: the corpus, the queries, and the labels and answers of splits that are not
    withheld.
    """
    public = set(manifest.statistics.splits) - set(withhold)
    return [name for name in manifest.files if name in _TABLES or labelled_split(name) in public]


def _is_public(field: str) -> bool:
    return field in QUERY_FIELDS or field.startswith(FILTER)


def public_metadata(metadata: Mapping[str, Any], withhold: Sequence[str]) -> dict[str, Any]:
    """Return the public metadata of a query if labels are private."""
    # A filter is part of the query: without it, the query cannot be searched as intended.
    public = {name: value for name, value in metadata.items() if _is_public(name)}
    if ANSWERED in public and public.get("split") in withhold:
        public[ANSWERED] = None
    return public


def public_manifest(manifest: Manifest, withhold: Sequence[str], pair: str, permission: str) -> Manifest:
    """Return the manifest of the public part without its files. `pair` is the mark shared by both parts."""
    granted = {PERMISSION: permission} if permission else {}
    public = dataclasses.replace(
        manifest,
        info=public_info(manifest.info),
        part="public",
        withheld=tuple(sorted(withhold)),
        provenance=tuple(map(_public_use, manifest.provenance)),
        pipeline_yaml=public_pipeline(manifest.pipeline_yaml),
        notes={**_without_places(manifest.notes), **granted},
    )
    if not withhold:
        return public
    splits = {
        name: dataclasses.replace(part, positives=None, hard_negatives=None) if name in withhold else part
        for name, part in public.statistics.splits.items()
    }
    audit = {name: figure for name, figure in (public.audit or {}).items() if name in _AUDIT}
    notes = {**public.notes, **({PAIR: pair} if pair else {})}
    return dataclasses.replace(
        public,
        statistics=dataclasses.replace(public.statistics, splits=splits),
        query_fields={name: kind for name, kind in public.query_fields.items() if _is_public(name)},
        funnel=(),
        audit=audit or None,
        notes={name: value for name, value in notes.items() if name in _NOTES},
    )


def public_info(info: DatasetInfo) -> DatasetInfo:
    """Return the facts about a dataset without its seed and without paths of the author's machine."""
    return dataclasses.replace(
        info,
        seed=None,
        source=public_text(info.source),
        source_licence=public_text(info.source_licence),
        source_url="" if info.source_url and _is_private(info.source_url) else info.source_url,
        description=public_text(info.description),
        citation=public_text(info.citation),
    )


def _public_use(use: ModelUse) -> ModelUse:
    return ModelUse(use.role, public_text(use.model), public_text(use.prompt), public_text(use.version))


def public_pipeline(text: str) -> str:
    """Return a pipeline's YAML for publication: the settings that determine the dataset, without comments.

    The seed, files other than the corpus's name, addresses, names of variables, and settings that affect only speed or
    cost are left out. Raises DatasetError if the text is not YAML, because it might contain anything.
    """
    import yaml

    try:
        value, _ = read_yaml(text, "the pipeline in the manifest")
    except SettingsError as error:
        raise DatasetError(f"{error}: its seed cannot be taken out, so nothing is published") from error
    if not isinstance(value, dict):
        return ""
    public = {name: _public_setting(name, value[name]) for name in value if name in _SECTIONS}
    known = {name: setting for name, setting in public.items() if setting not in (None, {}, [])}
    return yaml.safe_dump(known, allow_unicode=True, sort_keys=False, width=1000) if known else ""


def _public_setting(name: str, value: Any) -> Any:
    """Return the public part of a setting; None if there is none."""
    if isinstance(value, Mapping):
        listed = {"llm": _LLM, "queries": _QUERIES}.get(name)
        below = {
            str(key): _public_setting(name if name == "variants" else str(key), setting)
            for key, setting in value.items()
            if listed is None or key in listed
        }
        return {key: setting for key, setting in below.items() if setting not in (None, {}, [])}
    if isinstance(value, list):
        return [setting for item in value if (setting := _public_setting(name, item)) not in (None, {}, [])]
    if not isinstance(value, str):
        return value
    if name not in _TEXTS or _URL.search(value) or "@" in value:
        return None
    is_path = re.match(r"[/\\~.]|[A-Za-z]:[/\\]", value) is not None or ".." in re.split(r"[/\\]", value)
    return re.split(r"[/\\]", value.rstrip("/\\"))[-1] if is_path or name == "corpus" else value


def public_text(text: str) -> str:
    """Remove paths and private addresses of the author's machine from a text, keeping the last part of each path."""

    def address(match: re.Match[str]) -> str:
        return "(a private address)" if _is_private(match[0]) else match[0]

    def path(match: re.Match[str]) -> str:
        return re.split(r"[/\\]", match[0].rstrip("/\\"))[-1]

    pieces, last = [], 0
    for match in _URL.finditer(text):
        pieces += [_PATH.sub(path, text[last : match.start()]), address(match)]
        last = match.end()
    return "".join([*pieces, _PATH.sub(path, text[last:])])


def _without_places(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _without_places(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_without_places(item) for item in value]
    return public_text(value) if isinstance(value, str) else value


def _is_private(url: str) -> bool:
    """Return whether a URL contains a file path, a secret, or a host that only the author can reach."""
    try:
        parts = urlsplit(url)
        host = (parts.hostname or "").rstrip(".").lower()
        if parts.scheme not in ("http", "https", "ftp", "hf", "s3", "gs") or parts.username or parts.password:
            return True
        port = parts.port
    except ValueError:
        return True
    try:
        return not ipaddress.ip_address(host).is_global
    except ValueError:
        return "." not in host or host.endswith(_PLACES) or port not in (None, 80, 443)


def same_ids(labels: Mapping[str, Iterable[str]], documents: Iterable[str]) -> list[str]:
    """Return the withheld queries whose id is that of a passage or, with additional words, of a relevant passage.

    `labels` contains the relevant documents of each withheld query. Case and punctuation are ignored: `FAQ 17` equals
    `faq-17`, and `faq-17-question` reveals that the passage `faq-17` answers it.
    """
    known = {"-".join(_words(document)) for document in documents}
    return sorted(
        query
        for query, relevant in labels.items()
        if "-".join(_words(query)) in known or any(_is_part(query, document) for document in relevant)
    )


def same_numbers(labels: Mapping[str, Collection[str]], documents: Iterable[str]) -> list[str]:
    """Return the withheld queries whose ids contain the number of a relevant passage, if there are more than expected
    by chance.
    """
    numbers = Counter(map(_number, documents))
    total, chance, same = numbers.total(), 0.0, []
    for query, relevant in labels.items():
        if number := _number(query):
            chance += min(1.0, len(relevant) * numbers[number] / max(total, 1))
            same += [query] if number in map(_number, relevant) else []
    return sorted(same) if len(same) > chance + 4 * math.sqrt(max(chance, 1.0)) else []


def _words(identifier: str) -> list[str]:
    return re.findall(r"[^\W_]+", identifier.casefold())


def _is_part(left: str, right: str) -> bool:
    """Return whether the words of one id begin or end with the words, including a number, of the other."""
    short, long = sorted((_words(left), _words(right)), key=len)
    size = len(short)
    numbered = any(char.isdigit() for word in short for char in word)
    return numbered and short in (long[:size], long[-size:])


def _number(identifier: str) -> str:
    return "-".join(number.lstrip("0") or "0" for number in re.findall(r"\d+", identifier))
