"""Systems that train a model or generate queries before they search, for BEIR's systems without a public checkpoint.

    {kind: trained, train: deepct, dataset: msmarco, base: bert-base-uncased}     trained once, then searched everywhere
    {kind: trained, train: encoder, dataset: [msmarco, "nli=1,teacher=none"], base: MODEL}      on several datasets
    {kind: genq, writer: MODEL, base: MODEL}             an encoder adapted to each corpus by written queries (GenQ)
    {kind: doct5query, writer: MODEL, queries: 40}       BM25 over the passages and the queries that MODEL writes

The results are saved in the cache (`AIRGEN_CACHE`/trained) under a key of everything they depend on, and a stopped
command can be continued. The cost is reported before the first system runs (`makes_first`): counts, and hours estimated
as 2 (generating) or 6 (training) times parameters times tokens.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from airgen.components.keys import content_key, text_key
from airgen.components.registry import load_extra
from airgen.dataset.beir import BeirDataset
from airgen.errors import AirgenError, UsageError
from airgen.retrievers.component import Component
from airgen.retrievers.hits import Hits
from airgen.retrievers.lexical.bm25 import BM25Settings
from airgen.retrievers.lexical.expanded import Expanded, read_expansions
from airgen.retrievers.load import load_retriever
from airgen.retrievers.model_facts import ModelFacts
from airgen.retrievers.passages import Passages, non_empty
from airgen.retrievers.protocols import Retriever
from airgen.settings.base import MODEL, SPEED, answer_settings
from airgen.settings.requirements import located
from airgen.storage.paths import cache_dir, locked, sibling
from airgen.storage.records import flat_text
from airgen.training import task_class, train
from airgen.training.data import weighted_dataset
from airgen.training.mining.expansion import Seq2Seq, expand
from airgen.training.mining.pairs import MinedPair, SourcePassage
from airgen.training.mining.sources import write_pairs
from airgen.training.recipe import TrainingData, TrainingRequest
from airgen.training.task import read_card

_PASSAGE_TOKENS, _QUERY_TOKENS = 180, 12  # for the estimate: close to the means of BEIR's datasets
_GPU_OPERATIONS, _CORE_OPERATIONS = (
    1e14,
    5e10,
)  # operations per second: a third of an A800's peak; a core's products in fp32
_SEED = 42


def _home() -> Path:
    return cache_dir("trained")


def hours(parameters: float | None, tokens: float, operations: int) -> str:
    """Describe how long this many tokens take, or return "" for a model of unknown size."""
    if parameters is None:
        return ""
    work, cores = operations * parameters * tokens, os.cpu_count() or 1
    gpu, cpu = (work / speed / 3600 for speed in (_GPU_OPERATIONS, _CORE_OPERATIONS * cores))
    return f", about {_short(gpu)} hours of a GPU or {_short(cpu)} of {cores} cores"


def _short(number: float) -> str:
    return f"{number:,.0f}" if number >= 10 else f"{number:.2g}"


def _size(model: str, folder: Path | None, millions: float | None) -> float | None:
    """Return the number of parameters of a model, from the settings or the size of its fp32 weights file."""
    if millions is not None:
        return millions * 1e6
    place = located(model, folder)
    weights = [*place.glob("*.safetensors"), *place.glob("pytorch_model*.bin")] if place.is_dir() else []
    return sum(path.stat().st_size for path in weights) / 4 or None


class _Made(Component):
    """Base class of retrievers that are built for a corpus by `make`."""

    _inner: Any = None

    def make(self, corpus: Passages) -> Retriever:
        """Build the system that searches, before indexing."""
        raise NotImplementedError

    def index(self, corpus: Passages) -> None:
        """Train or generate what is missing, and index. Raises the errors of training, generation and the system."""
        self._inner = self.make(non_empty(corpus))
        self._inner.index(corpus)

    def search(self, queries: Sequence[str], k: int) -> Hits:
        """Return the k best passages of each query. Raises UsageError if `index` has not been called."""
        hits: Hits = self.indexed(self._inner).search(queries, k)
        return hits

    def release(self) -> None:
        """Release this system and the system it built."""
        if isinstance(self._inner, Component):
            self._inner.release()

    @property
    def facts(self) -> ModelFacts:
        """Return those of the system it built."""
        facts: ModelFacts = getattr(self._inner, "facts", ModelFacts(device=None))
        return facts

    @property
    def index_bytes(self) -> int | None:
        """Return those of the system it built."""
        size: int | None = getattr(self._inner, "index_bytes", None)
        return size

    def describe(self) -> Mapping[str, object]:
        """Return the settings and, after `index`, the description of the system that was built."""
        inner = dict(self._inner.describe()) if self._inner is not None else {}
        return {"family": self.name, **answer_settings(self.settings), "made": inner}

    def key(self, *more: object) -> str:
        """Return everything on which the trained or generated files depend."""
        return content_key([self.name, answer_settings(self.settings), *more])[:16]


class TrainedSystem(_Made):
    """A system that is trained once, on one dataset or several."""

    name = "trained"

    class Settings(Component.Settings):
        """Settings of a system that is trained first.

        Attributes:
            train: The kind of `airgen train` whose model is the system.
            dataset: A dataset in BEIR format, or a fetched one, or several; each may have a weight and a teacher, as in
                `airgen train encoder --on nli=0.3,teacher=none`.
            recipe: Name or file of its recipe. Default: as for `airgen train`.
            set: Settings to override in its recipe.
            millions: Millions of parameters of the base model, to estimate the cost.
        """

        packages: ClassVar[tuple[str, ...]] = ("torch", "transformers")
        train: Literal["augment", "encoder", "cross-encoder", "splade", "deepct", "sparta", "colbert"]
        dataset: str | Annotated[list[str], Field(min_length=1)]
        base: Annotated[str, MODEL]
        split: str = "train"
        recipe: str | None = None
        set: dict[str, Any] = Field(default={})
        device: Annotated[str | None, SPEED] = None
        millions: Annotated[float | None, SPEED] = Field(default=None, gt=0)

        @property
        def recipe_file(self) -> Path | None:
            """Return the recipe's file or name."""
            return None if self.recipe is None else Path(self.recipe)

        def datasets(self, folder: Path | None) -> tuple[TrainingData, ...]:
            """Return the datasets to train on. Raises UsageError for an invalid weight."""
            names = [self.dataset] if isinstance(self.dataset, str) else self.dataset
            return tuple(weighted_dataset(name, folder) for name in names)

        def missing(self, folder: Path | None) -> list[str]:
            """Return a line for each training dataset that is missing."""
            return [
                f"{self.train} is trained on {path.name}, which is not here: airgen fetch beir --only {path.name}"
                " (or airgen show collections open-qa, or e5-data)"
                for path, _, _ in self.datasets(folder)
                if not path.is_dir()
            ]

        def makes_first(self, passages: int, folder: Path | None) -> str:
            """Describe what is trained, and how long this takes."""
            data = self.datasets(folder)
            if self.missing(folder) or read_card(_home() / _model_name(self, data)) is not None:
                return ""
            request = TrainingRequest(data, self.base, Path(), recipe=self.recipe_file, changes=_assignments(self.set))
            recipe: Any = request.recipe_of(task_class(self.train).RECIPE)
            queries = sum(
                round(weight * len({query for query, _, _ in BeirDataset.open(path).label_rows(self.split)}))
                for path, weight, _ in data
            )
            steps = max(1, queries // recipe.batch_size) * recipe.epochs
            steps = min(steps, recipe.max_steps or steps)
            texts = steps * recipe.batch_size * (1 + recipe.hard_negatives)
            tokens = texts * min(_PASSAGE_TOKENS, getattr(recipe, "max_length", _PASSAGE_TOKENS))
            time = hours(_size(self.base, folder, self.millions), tokens, 6)
            return (
                f"trains {self.train} from {self.base} on {queries:,} queries of "
                f"{' and '.join(path.name for path, _, _ in data)}, at most {steps:,} "
                f"steps of {recipe.batch_size}{time}; kept for all datasets"
            )

    settings: Settings

    def make(self, corpus: Passages) -> Retriever:
        """Train the system, unless it is already trained."""
        chosen = self.settings
        if missing := chosen.missing(self.folder):
            raise UsageError(missing[0])
        data = chosen.datasets(self.folder)
        home = _home() / _model_name(chosen, data)
        card = _train(
            chosen.train,
            data,
            chosen.base,
            home,
            recipe=chosen.recipe_file,
            changes=chosen.set,
            split=chosen.split,
            device=chosen.device,
            folder=self.folder,
        )
        return load_retriever(_spec_of(card, home))


def _model_name(settings: TrainedSystem.Settings, data: Iterable[TrainingData]) -> str:
    stamps = [
        [path.name, path.stat().st_size]
        for dataset, _, _ in data
        for path in sorted(dataset.glob("*"))
        if path.is_file()
    ]
    return f"{settings.train}-{content_key([answer_settings(settings), stamps])[:16]}"


def _spec_of(card: Mapping[str, Any], home: Path) -> dict[str, Any]:
    """Return the system for a trained folder. A re-ranker uses BM25 as its first stage."""
    spec = dict(card["system"])
    if spec.get("kind") == "rerank":
        spec["first"] = {"kind": "bm25"}
    return {name: str(home) if str(value).endswith(home.name) else value for name, value in spec.items()}


def _assignments(values: Mapping[str, Any]) -> tuple[str, ...]:
    return tuple(f"{name}={json.dumps(value)}" for name, value in values.items())


def _train(
    kind: str,
    on: Path | tuple[TrainingData, ...],
    base: str,
    home: Path,
    *,
    changes: Mapping[str, Any],
    recipe: Path | None = None,
    split: str = "train",
    device: str | None = None,
    folder: Path | None = None,
) -> dict[str, Any]:
    """Return the card of the model in `home`, training it unless it exists. Interrupted training is continued."""
    local = located(base, folder)
    start = str(local) if local.exists() else base
    with locked(sibling(home, ".lock"), wait=True):
        if (card := read_card(home)) is None:
            train(
                kind,
                TrainingRequest(
                    on,
                    start,
                    home,
                    recipe=recipe,
                    changes=_assignments(changes),
                    split=split,
                    device=device,
                    resume=True,
                    quiet=True,
                ),
            )
            card = read_card(home)
    if card is None:
        raise AirgenError(f"{home}: the training did not produce a model")
    return card


class _Writing(_Made):
    """Base class of systems that generate queries for every passage of the corpus."""

    class Settings(BM25Settings):
        """Settings of a system that generates queries first.

        Attributes:
            writer: A sequence-to-sequence model.
            queries: Number of queries per passage.
            millions: Millions of parameters of the writer, to estimate the cost.
        """

        packages: ClassVar[tuple[str, ...]] = ("torch", "transformers")
        writer: Annotated[str, MODEL]
        queries: int = Field(default=40, ge=1)
        device: Annotated[str | None, SPEED] = None
        millions: Annotated[float | None, SPEED] = Field(default=None, gt=0)

        def writing(self, passages: int, folder: Path | None) -> str:
            """Describe how many queries are generated, and how long this takes."""
            tokens = passages * (_PASSAGE_TOKENS + self.queries * _QUERY_TOKENS)
            time = hours(_size(self.writer, folder, self.millions), tokens, 2)
            return f"writes {passages * self.queries:,} queries for {passages:,} passages with {self.writer}{time}"

        def makes_first(self, passages: int, folder: Path | None) -> str:
            """Describe what is generated."""
            return self.writing(passages, folder)

    settings: Settings

    def written(self, corpus: Passages, places: Sequence[int]) -> Path:
        """Return the file of queries for these passages, generating it unless it exists."""
        name = content_key([self.settings.writer, self.settings.queries, *_texts(corpus, places)])[:16]
        out = _home() / f"queries-{name}.jsonl"
        with locked(sibling(out, ".lock"), wait=True):
            if not out.is_file():
                titles = corpus.titles or [""] * len(corpus)
                passages = (SourcePassage(corpus.ids[place], corpus.texts[place], titles[place]) for place in places)
                place = located(self.settings.writer, self.folder)
                writer = Seq2Seq(str(place) if place.exists() else self.settings.writer, device=self.settings.device)
                report = self.progress
                expand(
                    passages,
                    writer,
                    out,
                    count=self.settings.queries,
                    seed=_SEED,
                    progress=(lambda done: report(done, len(places))) if report else None,
                )
        return out


def _texts(corpus: Passages, places: Iterable[int]) -> Iterator[str]:
    return (text_key(f"{corpus.ids[place]}\x1f{corpus.full_text(place)}") for place in places)


class DocT5Query(_Writing):
    """docT5query (Nogueira and Lin, 2019; BEIR's section 4), which indexes passages with queries that they may
    answer."""

    name = "doct5query"

    def make(self, corpus: Passages) -> Retriever:
        """Build BM25 over passages and their queries."""
        chosen = self.settings
        file = self.written(corpus, range(len(corpus)))
        bm25 = {name: getattr(chosen, name) for name in BM25Settings.model_fields if name in chosen.model_fields_set}
        return Expanded(file, queries=chosen.queries, folder=self.folder, **bm25)


class GenQ(_Writing):
    """GenQ (BEIR's section 4), which fine-tunes an encoder on queries generated for the corpus."""

    name = "genq"

    class Settings(_Writing.Settings):
        """Settings of GenQ.

        Attributes:
            base: The encoder.
            passages: Number of random passages for which queries are generated (BEIR: 100,000).
            set: Settings to override in the encoder's recipe.
        """

        queries: int = Field(default=5, ge=1)
        passages: int = Field(default=100_000, ge=2)
        base: Annotated[str, MODEL]
        base_millions: Annotated[float | None, SPEED] = Field(default=None, gt=0)
        set: dict[str, Any] = Field(default={})

        def makes_first(self, passages: int, folder: Path | None) -> str:
            """Describe what is generated and trained."""
            passages = min(passages, self.passages)
            recipe: Any = TrainingRequest(Path(), "", Path(), changes=_assignments(self.set)).recipe_of(
                task_class("encoder").RECIPE
            )
            pairs = passages * self.queries * recipe.epochs
            tokens = pairs * (1 + recipe.hard_negatives) * min(_PASSAGE_TOKENS, recipe.max_length)
            time = hours(_size(self.base, folder, self.base_millions), tokens, 6)
            return f"{self.writing(passages, folder)}; then trains {self.base} on {pairs:,} pairs{time}"

    settings: Settings

    def make(self, corpus: Passages) -> Retriever:
        """Build dense search with the adapted encoder."""
        chosen, size = self.settings, len(corpus)
        numpy = load_extra("numpy", "GenQ")
        order = numpy.random.default_rng(_SEED).permutation(size)[: chosen.passages]
        places = sorted(order.tolist())
        file = self.written(corpus, places)
        home = _home() / f"genq-{self.key(text_key(file.name))}"
        pairs = sibling(home, ".pairs")
        with locked(sibling(pairs, ".lock"), wait=True):
            if read_card(home) is None and not (pairs / "manifest.json").is_file():
                about = {"info": {"name": "written queries", "language": corpus.language}}
                write_pairs(_pairs(corpus, places, file), pairs, about, {})
        card = _train("encoder", pairs, chosen.base, home, changes=chosen.set, device=chosen.device, folder=self.folder)
        return load_retriever(_spec_of(card, home))


def _pairs(corpus: Passages, places: Iterable[int], file: Path) -> Iterator[MinedPair]:
    written, titles = read_expansions(file), corpus.titles
    for place in places:
        key = corpus.ids[place]
        text = flat_text(titles[place] if titles else "", corpus.texts[place])
        for query in dict.fromkeys(" ".join(line.split()) for line in written.get(key, ())):
            if query and text.strip():
                yield MinedPair(query, text, "written", key)
