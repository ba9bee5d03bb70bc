"""Train BM25 query augmentation end to end (BM25 Query Augmentation Learned End-to-End, arXiv 2305.14087, section 2).

    score(q, d) = (w(q) * v * (bow(q) + a(q)))^T f(d)        a(q) = ReLU(W enc(q)_0)    w(q)_i = ReLU(u^T enc(q)_i)
    loss = -log softmax of the positive's score among hard and in-batch negatives  +  l1 * sqrt(h)^T a(q)

Documents are not encoded: v * f(d) are BM25's weights for the passage's terms, so a step costs only a forward and a
backward pass over short queries. `airgen.retrievers.lexical.augment` implements the same formula in numpy, for one
query.

Augmented queries can be exported for engines that accept weighted terms (Lucene, Pyserini, tantivy):

    out/corpus/corpus.jsonl      {"id", "contents"}: each passage as the model's terms, separated by spaces
    out/queries.tsv              id, and the query in Lucene's syntax: "statin"^1.83 "stroke"^0.94

The engine must use the terms unchanged (a whitespace analyser; Pyserini's `--pretokenized`).
"""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

import numpy as np
from pydantic import Field
from scipy.sparse import csc_array

from airgen.components.registry import load_extra
from airgen.dataset.beir import BeirDataset
from airgen.display.study import Shown
from airgen.errors import UsageError
from airgen.retrievers.lexical.augment import SETTINGS, Augmented, QueryReader
from airgen.retrievers.lexical.bm25 import BM25
from airgen.retrievers.lexical.index import LexicalRetriever
from airgen.retrievers.passages import Passages
from airgen.text.analysis import Analyser, WordPieces
from airgen.training.base_models import load_base
from airgen.training.data import TrainingSet, draw, read_corpus
from airgen.training.kinds.augment_model import AugmentModel, EncodedQuery
from airgen.training.kinds.transformer import first_three, info_nce
from airgen.training.recipe import Recipe
from airgen.training.task import WATCHED, TrainingTask, shared

_WORD_TOKENS = 16  # maximum number of tokens per word, including special tokens


ENOUGH = 5000
"""Minimum number of training queries for the paper's `start`: it has 58,880, and with hundreds nDCG@10 is 0."""

BASELINE = "BM25's"
"""Prefix for BM25's figures on the same dev queries."""


FEW_QUERIES = "train-augment"
"""The recipe for fewer training queries than `ENOUGH`."""


def below_bm25(figures: Mapping[str, float], recipe: Path | None = None) -> str:
    """Return a warning if the system that was trained with a recipe is below BM25 on its dev queries, or ""."""
    trained, baseline = figures.get(WATCHED), figures.get(f"{BASELINE} {WATCHED}")
    if trained is None or baseline is None or trained >= baseline:
        return ""
    other = "" if recipe is not None and recipe.stem == FEW_QUERIES else f"--recipe {FEW_QUERIES}, or "
    return (
        f"! below BM25, which has dev {WATCHED} {baseline:.4f}: do not use it; try {other}more training queries "
        "(airgen train expand, airgen train pairs)"
    )


class AugmentRecipe(Recipe):
    """The settings of query augmentation. "Table 2" marks the switches of the paper's ablation."""

    epochs: int = Field(10, ge=1, description="paper: 45 (NQ), 10 (EntityQuestions), 2 (MS MARCO)")
    batch_size: int = Field(
        32, ge=2, description="paper: 144, for 58,880 queries or more; with a few hundred an epoch would have one step"
    )
    learning_rate: float = Field(3e-5, gt=0, description="of the encoder; paper: 3e-4 (NQ), 3e-5 (MS MARCO)")
    head_learning_rate: float = Field(3e-4, gt=0, description="of W and u; the paper has one rate for all weights (NQ)")
    hard_negatives: int = Field(1, ge=0, description="paper: 1 (NQ), 4 (MS MARCO), mined by BM25")
    l1: float = Field(0.1, ge=0, description="lambda; paper: 0.1 (NQ), 0.025 (MS MARCO)")
    weighted_l1: bool = Field(
        True, description="Table 2: weighted by sqrt of document frequency, or equal for all terms"
    )
    weights: bool = Field(True, description="Table 2: learn w, or leave it at 1")
    scoring: Literal["bm25", "bow"] = Field("bm25", description="Table 2: BM25 weights of passages, or bags of words")
    augmentation: bool = Field(True, description="learn a, or leave it at 0 (not in the paper's table)")
    terms: Literal["wordpiece", "words"] = Field(
        "wordpiece", description="the terms that are indexed, weighted and added; words: stems without stop words"
    )
    k1: float = Field(0.9, ge=0, description="the default of Pyserini, which BEIR uses")
    b: float = Field(0.4, ge=0, le=1, description="the default of Pyserini, which BEIR uses")
    pooling: Literal["cls", "mean"] = Field(
        "cls", description="enc(q)_0, or the normalised mean of the tokens, for which sentence encoders were trained"
    )
    start: Literal["random", "terms"] = Field(
        "random", description="of W: random (paper), or the base's encoding of each term, for little data"
    )
    start_scale: float = Field(1.0, gt=0, description="for start: terms; a of a term whose cosine with the query is 1")
    start_added: int = Field(
        20, ge=0, description="for start: terms; mean number of terms that a training query gains at first"
    )
    train_encoder: bool = Field(
        True, description="false: train only W and u, which is many times faster, for little data"
    )
    max_query_tokens: int = Field(64, ge=3, le=512, description="the encoder reads at most this many tokens of a query")


class AugmentTask(TrainingTask):
    """Trains query augmentation. `names` are the terms by column, in the order of the index (see `augment_model`)."""

    SYSTEM = ("augment", "path")
    RECIPE = AugmentRecipe

    @classmethod
    def usual_recipe(cls, queries: int) -> str | None:
        """Choose the recipe, since with few queries, a random W adds thousands of terms to each query and never
        converges."""
        return FEW_QUERIES if queries < ENOUGH else None

    def __init__(self, recipe: AugmentRecipe, data: TrainingSet, base: str, device: str) -> None:
        self.torch = load_extra("torch", "training")
        self.recipe, self.data, self.device = recipe, data, device
        loaded = load_base(base)
        self.tokenizer_json = loaded.tokenizer.backend_tokenizer.to_str()
        with TemporaryDirectory() as folder:
            (Path(folder) / "tokenizer.json").write_text(self.tokenizer_json, encoding="utf-8")
            self.read = QueryReader(Path(folder), recipe.max_query_tokens, recipe.terms, data.corpus.language)
            bm25, analyser = recipe.scoring == "bm25", self.read.analyser
            self.retriever = (
                BM25(recipe.k1, recipe.b, analyser=analyser) if bm25 else LexicalRetriever(analyser=analyser)
            )
            self.retriever.index(data.corpus)
        self.names = list(self.retriever.vocabulary)
        # The paper's f(d) has the factor k + 1. It scales the loss but does not change any ranking, so our index omits
        # it.
        index = self.retriever.postings  # in the paper by term, in this code by passage
        impacts = index.impacts * np.float32(recipe.k1 + 1 if bm25 else 1)
        shape = index.size, len(self.names)
        self.documents = csc_array((impacts, index.positions, index.starts), shape).tocsr()
        frequencies = np.diff(self.retriever.postings.starts).astype(np.float32)
        penalty = np.sqrt(frequencies / len(data.corpus)) if recipe.weighted_l1 else np.ones_like(frequencies)
        self.penalty = self.torch.tensor(penalty, device=device)
        self.queries = self.encode([example.query for example in data.examples])
        self.dev = self.encode(list(data.dev.queries.values()))
        self.augment = AugmentModel(loaded, self.names, recipe, device)
        if recipe.start == "random":
            for head in ("added", "weight"):  # as torch initialises them, without biases, as in the paper's formula
                self.augment.module[head].bias.requires_grad_(False)
        else:
            token_ids = spelling(self.read.analyser, data.corpus, self.names, loaded.tokenizer)
            self.augment.start_from_terms(token_ids, self.queries, recipe.start_scale, recipe.start_added)
        if not recipe.train_encoder:
            self.augment.remember([query.ids for query in (*self.queries, *self.dev)])
        if (Path(base) / SETTINGS).is_file():
            self.augment.load_heads(Path(base))
        self.model = self.augment.module

    def encode(self, texts: Sequence[str]) -> list[EncodedQuery]:
        """Encode queries for the model."""
        known = self.retriever.vocabulary
        encoded = []
        for query in self.read(texts):
            columns = [-1 if term is None else known.get(term, -2) for term in query.terms]
            all_columns = dict.fromkeys(column for column in columns if column >= 0)
            all_columns |= dict.fromkeys(known[term] for term in query.rest if term in known)
            encoded.append(EncodedQuery(query.ids, columns, list(all_columns)))
        return encoded

    def batches(self, epoch: int) -> Sequence[tuple[int, list[int]]]:
        """Yield (epoch, places of the examples) for each batch."""
        recipe = self.recipe
        batches = self.data.batches(recipe.batch_size, recipe.seed, epoch)
        return [(epoch, batch) for batch in batches]

    def part_of(self, batch: tuple[int, list[int]]) -> tuple[int, list[int]]:
        """Return this process's part of a batch."""
        epoch, places = batch
        return epoch, list(shared(places))

    def loss(self, batch: tuple[int, list[int]]) -> Mapping[str, Any]:
        """Compute the contrastive loss and the penalty. `added` is the mean number of terms added to a query."""
        epoch, places = batch
        examples = [self.data.examples[place] for place in places]
        samples = [draw(example, self.recipe.hard_negatives, self.recipe.seed, epoch) for example in examples]
        passages = [positive for positive, _ in samples] + [place for _, negatives in samples for place in negatives]
        weighted, added = self.augment.weights([self.queries[place] for place in places])
        rows = self.documents[passages]
        columns = np.unique(rows.indices).astype(np.int64)  # a few entries of a large vocabulary; all others are 0
        vectors, used = (
            self.torch.tensor(array, device=self.device) for array in (rows[:, columns].toarray(), columns)
        )
        positives = [frozenset(example.positives) for example in examples]
        masked = [
            [place != row and p in positives[row] for place, p in enumerate(passages)] for row in range(len(samples))
        ]
        with self.torch.autocast(self.torch.device(self.device).type, enabled=False):  # BM25's sums need fp32
            scores = weighted.float().index_select(1, used) @ vectors.T
        rank = info_nce(
            scores,
            self.torch.arange(len(samples), device=self.device),
            self.torch.tensor(masked, device=self.device),
        )
        penalty = (added * self.penalty).sum(-1).mean()
        count = (added > 0).float().sum(-1).mean()
        return {"loss": rank + self.recipe.l1 * penalty, "rank": rank, "penalty": penalty, "added": count}

    def learning_rates(self, recipe: Recipe) -> list[tuple[Any, float]]:
        """Return separate learning rates for the encoder and the heads."""
        rates = {"encoder": self.recipe.learning_rate}
        return [(part, rates.get(name, self.recipe.head_learning_rate)) for name, part in self.model.items()]

    def evaluate(self) -> Mapping[str, float]:
        """Search with the learned weights, like the retriever."""
        queries: list[dict[str, float]] = []
        added = 0.0
        for first in range(0, len(self.dev), 64):
            weighted, extra = self.augment.weights(self.dev[first : first + 64])
            added += float((extra > 0).sum())
            for row in weighted.cpu().numpy():
                columns = np.flatnonzero(row)
                queries.append({self.names[column]: float(row[column]) for column in columns})
        if not queries:
            return {}
        figures = self.data.dev.figures(self.retriever.search_weighted(queries, 100), self.data.corpus)
        return {**figures, "added": round(added / len(queries), 3), **self._bm25}

    @cached_property
    def _bm25(self) -> Mapping[str, float]:
        """Return the same figures for the unchanged queries, as the baseline."""
        hits = self.retriever.search(list(self.data.dev.queries.values()), 100)
        return {f"{BASELINE} {WATCHED}": self.data.dev.figures(hits, self.data.corpus)[WATCHED]}

    def save(self, folder: Path) -> None:
        """Write the folder that `airgen.retrievers.lexical.augment` loads."""
        settings = self.recipe.model_dump(
            include={"terms", "k1", "b", "scoring", "weights", "augmentation", "pooling", "max_query_tokens"}
        )
        language = self.data.corpus.language
        self.augment.save(folder, self.tokenizer_json, {**settings, "language": language})

    def describe_batch(self, batch: tuple[int, list[int]]) -> str:
        return f"queries {first_three([self.data.examples[place].id for place in batch[1]])}"


def spelling(terms: Analyser, corpus: Passages, names: Sequence[str], tokenizer: Any) -> list[list[int]]:
    """Return the token ids, with special tokens, of the corpus's most frequent word for each term.

    The word of a WordPiece term is the term itself.
    """
    if isinstance(terms, WordPieces):
        known = tokenizer.get_vocab()
        return [[tokenizer.cls_token_id, known[name], tokenizer.sep_token_id] for name in names]
    counts: dict[str, Counter[str]] = {name: Counter() for name in names}
    for position in range(len(corpus)):
        words = terms.split(terms.prepare(corpus.full_text(position)))
        for word, term in zip(words, terms.terms(words), strict=True):
            if term is not None:
                counts[term][word.lower()] += 1
    chosen = [min(spellings, key=lambda word: (-spellings[word], word)) for spellings in counts.values()]
    return [tokenizer.encode(word, truncation=True, max_length=_WORD_TOKENS) for word in chosen]


_BOOST_DIGITS = 4


@dataclass(frozen=True, repr=False)
class LuceneExport(Shown):
    """The result of an export: the files, the mean number of terms per query, and k1 and b for the engine's BM25."""

    corpus: Path
    queries: Path
    passages: int
    asked: int
    terms: float
    k1: float
    b: float


def lucene_query(weights: Mapping[str, float]) -> str:
    """Format a query in the syntax of Lucene's classic parser, with each term quoted and boosted, heaviest first.

    Within quotes, only quotes and backslashes are special, so no term can be read as an operator. Weights are divided
    by the greatest weight, which does not change the ranking. A term whose boost rounds to 0 is left out.
    """
    most = max(weights.values(), default=1.0)
    parts = []
    for term, weight in sorted(weights.items(), key=lambda item: (-item[1], item[0])):
        boost = f"{weight / most:.{_BOOST_DIGITS}f}".rstrip("0").rstrip(".")
        if boost != "0":
            quoted = term.replace("\\", "\\\\").replace('"', '\\"')
            parts.append(f'"{quoted}"^{boost}')
    return " ".join(parts)


def export_lucene(model: Path, dataset: Path, out: Path, split: str = "test") -> LuceneExport:
    """Write the corpus and the queries of a split. Raises UsageError if the folder is not empty, ModelError or
    DatasetError.

    A query contains only terms in the corpus, since others match nothing.
    """
    if out.exists() and any(out.iterdir()):
        raise UsageError(f"{out}: is not empty; name another folder")
    system = Augmented(model)
    weighting = system.model.settings
    if weighting["scoring"] != "bm25":
        raise UsageError(f"{model}: it was trained with scoring {weighting['scoring']!r}, not for an engine's BM25")
    opened = BeirDataset.open(dataset)
    labels, texts = opened.qrels(split).labels, opened.queries()
    corpus = read_corpus(dataset)
    system.index(corpus)
    (out / "corpus").mkdir(parents=True, exist_ok=True)
    with (out / "corpus" / "corpus.jsonl").open("w", encoding="utf-8") as file:
        for place, id_ in enumerate(corpus.ids):
            terms = system.model.analyser(corpus.full_text(place))
            file.write(json.dumps({"id": id_, "contents": " ".join(terms)}, ensure_ascii=False) + "\n")
    count = 0
    with (out / "queries.tsv").open("w", encoding="utf-8", newline="\n") as file:
        for id_ in labels:
            weights = {
                term: weight for term, weight in system.weights(texts[id_].text).items() if term in system.vocabulary
            }
            count += len(weights)
            file.write(f"{id_}\t{lucene_query(weights)}\n")
    return LuceneExport(
        corpus=out / "corpus",
        queries=out / "queries.tsv",
        passages=len(corpus.ids),
        asked=len(labels),
        terms=count / max(1, len(labels)),
        k1=weighting["k1"],
        b=weighting["b"],
    )
