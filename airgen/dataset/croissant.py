"""Croissant metadata (MLCommons, version 1.0) of a dataset, with one record set for each table."""

from __future__ import annotations

from typing import Any

from airgen.dataset.manifest import Manifest
from airgen.text.display import json_text

_OWN_TERMS = (
    "citeAs column equivalentProperty extract field fileObject fileProperty fileSet format includes isLiveDataset "
    "jsonPath key md5 parentField path recordSet references regex repeated replace samplingRate separator source "
    "subField transform"
)
_CONTEXT = {
    "@language": "en",
    "@vocab": "https://schema.org/",
    "conformsTo": "dct:conformsTo",
    "cr": "http://mlcommons.org/croissant/",
    "data": {"@id": "cr:data", "@type": "@json"},
    "dataType": {"@id": "cr:dataType", "@type": "@vocab"},
    "dct": "http://purl.org/dc/terms/",
    "examples": {"@id": "cr:examples", "@type": "@json"},
    "rai": "http://mlcommons.org/croissant/RAI/",
    "sc": "https://schema.org/",
    **{term: f"cr:{term}" for term in _OWN_TERMS.split()},
}
_CONTEXT = dict(sorted(_CONTEXT.items()))

_LABEL_FIELDS = (("query-id", "sc:Text"), ("corpus-id", "sc:Text"), ("score", "sc:Integer"))


def croissant_text(manifest: Manifest) -> str:
    """The text of croissant.json: every JSONL data file with its hash, and the fields of its rows."""
    info = manifest.info
    tables = {"corpus": "corpus.jsonl", "queries": "queries.jsonl"}
    for folder in ("qrels", *(f"qrels-{variant}" for variant in manifest.variants)):
        tables |= {f"{folder}-{split}": f"{folder}/{split}.jsonl" for split in manifest.labelled_splits}
    tables |= {f"answers-{split}": f"answers/{split}.jsonl" for split in manifest.labelled_splits}
    value: dict[str, Any] = {
        "@context": _CONTEXT,
        "@type": "sc:Dataset",
        "conformsTo": "http://mlcommons.org/croissant/1.0",
        "name": info.name,
        "description": info.description or f"A retrieval benchmark: task {info.task}, domain {info.domain}.",
        "inLanguage": list(info.all_languages),
        "license": info.labels_licence,
        "version": info.version,
        "keywords": ["information retrieval", "benchmark", info.task, info.domain],
        "distribution": [_file(manifest, path) for path in tables.values() if path in manifest.files],
        "recordSet": [_record_set(name, path) for name, path in tables.items() if path in manifest.files],
    }
    if info.source_url:
        value["isBasedOn"] = info.source_url
    if info.citation:
        value["citeAs"] = info.citation
    return json_text(value, indent=1) + "\n"


def _file(manifest: Manifest, path: str) -> dict[str, Any]:
    entry = manifest.files[path]
    return {
        "@type": "cr:FileObject",
        "@id": path,
        "name": path,
        "contentUrl": path,
        "contentSize": f"{entry.bytes} B",
        "encodingFormat": "application/jsonlines",
        "sha256": entry.sha256,
    }


def _record_set(name: str, path: str) -> dict[str, Any]:
    if name == "corpus":
        fields: tuple[tuple[str, str], ...] = (("_id", "sc:Text"), ("title", "sc:Text"), ("text", "sc:Text"))
    elif name == "queries":
        fields = (("_id", "sc:Text"), ("text", "sc:Text"))
    elif path.startswith("answers/"):
        texts = (("answer", "sc:Text"), ("quote", "sc:Text"))
        fields = (*_LABEL_FIELDS[:2], *texts, ("start", "sc:Integer"), ("end", "sc:Integer"))
    else:
        fields = _LABEL_FIELDS
        if path.startswith("qrels-soft/"):
            fields = (*_LABEL_FIELDS[:2], ("score", "sc:Float"))
    return {
        "@type": "cr:RecordSet",
        "@id": name,
        "name": name,
        "field": [
            {
                "@type": "cr:Field",
                "@id": f"{name}/{field}",
                "name": field,
                "dataType": kind,
                "source": {"fileObject": {"@id": path}, "extract": {"column": field}},
            }
            for field, kind in fields
        ],
    }
