"""`airgen train KIND`: train a system on a dataset in BEIR format, explain it, and mine or generate its data."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from airgen.commands.command import command
from airgen.commands.options import (
    Budget,
    Compute,
    Dataset,
    Device,
    Language,
    PassageLimit,
    Place,
    Quiet,
    Seed,
    Split,
    arg,
    dataset_of,
    number,
    opt,
    path_or_none,
    paths,
)
from airgen.commands.outcome import Outcome
from airgen.commands.printing import echo, is_silent, progress_bar, say
from airgen.display.study import Column, Plain, Study, Table, columns
from airgen.errors import UsageError
from airgen.safety.escaping import md
from airgen.storage.json_values import read_json
from airgen.storage.paths import sibling
from airgen.training import KINDS

if TYPE_CHECKING:
    from airgen.training.ablation import Ablation
    from airgen.training.kinds.augment import LuceneExport
    from airgen.training.task import Trained


_KINDS = "; ".join(f"{name}: {about.removesuffix('.')}" for name, (about, _) in KINDS.items())


@command
def train(
    kind: Annotated[str, arg("KIND", _KINDS)],
    on: Annotated[
        Sequence[str],
        opt(
            "A dataset in BEIR format, or pairs of `airgen train pairs`. WEIGHT is how often an epoch repeats its "
            "queries (default: 1), or the share to use. T is its teacher: none, a re-ranker or a file of scores.",
            "--on",
            metavar="DATASET[=WEIGHT][,teacher=T]",
        ),
    ],
    base: Annotated[str, opt("Base model: a name from `airgen show models`, a folder, or a Hub name.")],
    out: Annotated[Place, opt("Folder for the trained model.")],
    recipe: Annotated[
        Place | None, opt("A recipe YAML (see `airgen train recipe KIND`), or the name of a built-in recipe.")
    ] = None,
    changes: Annotated[Sequence[str], opt("Override a setting of the recipe.", "--set", metavar="NAME=VALUE")] = (),
    split: Annotated[str, opt("Split to train on; test is allowed only with --fold.")] = "train",
    fold: Annotated[str | None, opt("Cross-validation: hold out part I of N of the queries.", metavar="I/N")] = None,
    resume: Annotated[bool, opt("Continue from the checkpoint in OUT.training.")] = False,
    deterministic: Annotated[bool, opt("Make training reproducible on a GPU as well (slower).")] = False,
    ablation: Annotated[bool, opt("With augment: train every setting in Table 2 of its paper.", "--ablate")] = False,
    language: Language = None,
    device: Device = None,
    quiet: Quiet = False,
) -> Outcome[Trained | Ablation]:
    """Train a retriever, a re-ranker or a model that expands queries or passages.

    Without --recipe, the defaults of the kind are used, or the built-in recipe train-augment for augment with fewer
    than 5,000 training queries.

    Example: airgen train augment --on scifact --base all-minilm-l6-v2 --out models/augment-scifact

    Returns:
        The folder of the model, its dev scores, and the steps and seconds of the training. With ablation, the table.

    Raises:
        UsageError: The kind is unknown, or the split must not be trained on.
        SettingsError: A setting of the recipe is wrong.
        TrainingError: The training cannot start or continue.
    """
    from airgen.training import train as train_system
    from airgen.training import with_usual_recipe
    from airgen.training.data import weighted_dataset
    from airgen.training.kinds.augment import below_bm25
    from airgen.training.recipe import Fold, TrainingRequest
    from airgen.training.task import rank, read_card, system_line

    request = TrainingRequest(
        on=tuple(map(weighted_dataset, on)),
        base=base,
        out=Path(out),
        recipe=None if recipe is None else Path(recipe),
        changes=(*changes, *(("deterministic=true",) if deterministic else ())),
        split=split,
        fold=Fold.parse(fold) if fold else None,
        resume=resume,
        language=language,
        device=device,
        quiet=is_silent(),
    )
    request, queries = with_usual_recipe(kind, request)
    if queries and rank() == 0:
        say(f"{queries:,} training queries: --recipe {request.recipe} (with thousands: augment-nq)")
    if ablation:
        if kind != "augment":
            raise UsageError("--ablate works only with `airgen train augment`")
        from airgen.training.ablation import ablate

        ablation_result = ablate(request, say)
        return Outcome(ablation_result, ablation_result.study().markdown())
    trained = train_system(kind, request)
    card = read_card(trained.out)
    lines = (
        []
        if trained.trained_now
        else [f"{trained.out} has been trained already, with the same recipe and data: nothing to do"]
    )
    lines += [trained_line(trained), f"model: {trained.out} (its README.md describes the training)"]
    lines += [f"in a systems YAML: {system_line(card)}"] if card and card.get("system") else []
    lines += [warning] if (warning := below_bm25(trained.figures, request.recipe)) else []
    return Outcome(trained, lines, hidden=rank() > 0)  # only one process prints


def trained_line(trained: Trained) -> str:
    """Return the results of training on one line."""
    figures = ", ".join(f"dev {name} {value:.4f}" for name, value in trained.figures.items()) or "no dev queries"
    return f"{figures}; {trained.steps:,} steps in {trained.seconds:.0f} s ({trained.stopped})"


@command
def train_recipe(
    kind: Annotated[str, arg("KIND", "Kind of training, such as augment or encoder.")],
) -> Outcome[str]:
    """Print the default recipe of a kind as YAML: all settings with their values and the sources of these values.

    Example: airgen train recipe augment > my-recipe.yaml

    Returns:
        The YAML text.

    Raises:
        UsageError: The kind is unknown.
    """
    from airgen.training import task_class
    from airgen.training.recipe import commented_yaml

    task = task_class(kind)
    text = commented_yaml(task.RECIPE())
    if (few := task.usual_recipe(0)) is not None:
        text = (
            f"# With few training queries, `airgen train {kind}` takes the recipe {few}, unless you name one.\n{text}"
        )
    return Outcome(text, text)


@command
def train_explain(
    model: Annotated[Place, arg("MODEL", "Folder of a model trained with `airgen train augment`.")],
    queries: Annotated[Sequence[str], arg("QUERY", "One or more queries.")],
    on: Annotated[Place | None, opt("Dataset whose document frequencies are used in the weights.", "--on")] = None,
    top: Annotated[int, opt("Maximum number of added terms to show.", min=1)] = 15,
) -> Outcome[list[dict[str, Any]]]:
    """Show the terms that a trained augmentation adds to a query, and those that it drops or weakens.

    Weights are relative to the mean weight of the query's own terms, as only their ratios affect the ranking.

    Example: airgen train explain models/augment-scifact "statins lower the risk of stroke"

    Returns:
        For each query, its terms with their weights, and the number of `added` terms.

    Raises:
        ModelError: The folder holds no augmentation model.
    """
    from airgen.retrievers.lexical.augment import Augmented
    from airgen.training.data import read_corpus

    system = Augmented(Path(model))
    if on is not None:
        system.index(read_corpus(dataset_of(on)))
    rows, parts = [], list[str | Table]()
    for query in queries:
        terms = system.explain(query)
        own = [term for term in terms if term.in_query]
        shown = [*own, *terms[len(own) : len(own) + top]]
        listed = [{**asdict(term), "change": term.change} for term in shown]
        rows.append({"query": query, "terms": listed, "added": len(terms) - len(own)})
        counts = [Column("passages", lambda term: term.passages)] if on else []
        parts += [f"## {md(query)}", Table(shown, [*_TERM, *counts])]
        parts += [Plain(f"and {len(terms) - len(shown)} more")] if len(shown) < len(terms) else []
    return Outcome(rows, Study("", parts))


_TERM = (
    Column("term", lambda term: term.term),
    Column("what", lambda term: term.change),
    Column("weight", lambda term: term.relative, ".2f"),
)


@command
def train_export(
    model: Annotated[Place, arg("MODEL", "Folder of a model trained with `airgen train augment`.")],
    on: Annotated[Place, opt("Dataset whose corpus and queries are exported.", "--on"), dataset_of],
    out: Annotated[Place, opt("Folder for the files; must be empty.")],
    to: Annotated[Literal["lucene"], opt("Format of the queries.", "--to")] = "lucene",
    split: Split = "test",
) -> Outcome[LuceneExport]:
    """Export a corpus and weighted queries for Lucene, Pyserini and other engines with boosted terms.

    The terms are stemmed already, so the engine's own stemmer must be turned off (Pyserini: --pretokenized).

    Example: airgen train export models/augment-scifact --on scifact --out lucene

    Returns:
        The files, the numbers of passages, queries and terms, and BM25's parameters.

    Raises:
        UsageError: The folder is not empty.
        ModelError: The model's folder holds no augmentation model.
    """
    from airgen.training.kinds.augment import export_lucene

    exported = export_lucene(Path(model), Path(on), Path(out), split)
    lines = [
        f"{exported.passages:,} passages: {exported.corpus}",
        f"{exported.asked:,} queries of {exported.terms:.1f} terms: {exported.queries}",
        f"in the engine, use BM25 with k1 {exported.k1}, b {exported.b} and split terms at spaces",
    ]
    return Outcome(exported, lines)


_PAIRS = "title,heading,question,neighbour,citation,comment,answer,entailment,pair"
Model = Annotated[str | None, opt("Sequence-to-sequence model that writes the queries, such as docT5query.")]
Pipeline = Annotated[Place | None, opt("Pipeline whose LLM writes the queries (ten per passage suffice).")]


@command
def train_pairs(
    sources: Annotated[
        Sequence[str],
        arg(
            "SOURCE",
            "Corpora (names or YAMLs), dataset directories, or dumps as FORMAT:PATH, where FORMAT is reddit, "
            "stackexchange, wikipedia, papers, common-crawl, news, nli, or pairs (your own pairs as JSONL or CSV). "
            "All sources are combined.",
        ),
    ],
    out: Annotated[Place, opt("Directory for the pairs, in BEIR format.")],
    kinds: Annotated[str, opt(f"Kinds of pairs, separated by commas: {_PAIRS.replace(',', ', ')}.")] = _PAIRS,
    limit: PassageLimit = None,
    min_words: Annotated[int, opt("Skip passages with fewer words.", min=1)] = 8,
    max_characters: Annotated[int, opt("Skip passages with more characters.", min=100)] = 4096,
    per_query: Annotated[int, opt("Maximum number of passages per query.", min=1)] = 3,
    exclude: Annotated[Sequence[Place], opt("Exclude the queries of this dataset.")] = (),
    queries: Annotated[Place | None, opt("Pair passages with queries written by `airgen train expand`.")] = None,
    language: Annotated[str, opt("Language of dumps (ISO 639-1).")] = "en",
    min_score: Annotated[int, opt("Skip comments and answers with a lower score (E5: 1).")] = 1,
    question: Annotated[Literal["full", "title"], opt("Parts of a dump's question to use.")] = "full",
    max_perplexity: Annotated[
        float | None, number("Skip web pages with a higher perplexity. Default: cc_net's tail.", min=1)
    ] = None,
    seed: Seed = 42,
    compute: Compute = None,
) -> Outcome[dict[str, Any]]:
    """Mine text pairs from corpora and dumps for training without labels (E5), or pair passages with queries.

    Example: airgen train pairs postgresql-manual reddit:RS_2019-01.zst reddit:RC_2019-01.zst --out data/pairs

    Returns:
        The summary: for each kind, the numbers of pairs and of skipped texts by reason.

    Raises:
        UsageError: A source is unknown, or the sources are in different languages.
        DatasetError: No pairs are left.
    """
    from airgen.compute import computing
    from airgen.settings.compute import compute_settings
    from airgen.training.dumps import DumpSettings
    from airgen.training.mining.pairs import MiningSettings
    from airgen.training.mining.sources import PAIRS, expansion_pairs, mine_sources

    if queries is not None and len(sources) > 1:
        raise UsageError("--queries works with a single source")
    with (
        progress_bar("mining", "{task.completed:,.0f} passages") as update,
        computing(compute_settings(compute or "local")),
    ):
        if queries is not None:
            summary = expansion_pairs(sources[0], Path(queries), Path(out), limit=limit)
        else:
            summary = mine_sources(
                sources,
                Path(out),
                MiningSettings(seed, min_words, max_characters, per_query),
                kinds=[kind.strip() for kind in kinds.split(",") if kind.strip()],
                limit=limit,
                exclude=paths(exclude),
                dumps=DumpSettings(language, min_score, question, max_perplexity),
                progress=lambda: update(advance=1),
            )
    counts = [
        (kind, count, reason)
        for kind, reasons in summary["kinds"].items()
        for reason, count in sorted(reasons.items(), key=lambda item: (item[0] not in ("pairs", "passages"), item[0]))
    ]
    table = Table(counts, columns("kind", "count", "of", form=",", left=(2,)))
    last = Plain(f"pairs: {out} (train with `airgen train pretrain --on {out}`)")
    return Outcome(read_json(Path(out) / PAIRS), Study("", [table, last]))


@command
def train_filter(
    pairs: Annotated[Place, arg("PAIRS", "A directory of pairs, or any other dataset in BEIR format.")],
    model: Annotated[str, opt("Model that ranks: a folder of a trained model, or the name of an embedder.")],
    out: Annotated[Place, opt("Directory for the pairs that are kept.")],
    top: Annotated[int, opt("Keep a pair if its passage is among the top k (E5: 2).", "--k", min=1)] = 2,
    pool: Annotated[int, opt("Number of random passages to rank (E5: one million).", min=1)] = 1_000_000,
    split: Split = "train",
    seed: Seed = 42,
    compute: Compute = None,
) -> Outcome[dict[str, Any]]:
    """Filter pairs by consistency: keep those whose passage a model ranks at the top among random passages (E5).

    Example: airgen train filter data/pairs --model models/noisy --out data/filtered

    Returns:
        The summary of the pairs, with the share that was kept.

    Raises:
        DatasetError: The pairs cannot be read, or none is left.
        ModelError: The model cannot be loaded.
    """
    from airgen.compute import computing
    from airgen.retrievers import load_embedder
    from airgen.settings.compute import compute_settings
    from airgen.training.mining.consistency import filter_pairs
    from airgen.training.mining.sources import PAIRS

    embedder = load_embedder(model)
    with (
        progress_bar("filtering", "{task.completed:,.0f} of {task.total:,.0f} pairs") as update,
        computing(compute_settings(compute or "local")),
    ):
        filtered = filter_pairs(
            Path(pairs),
            Path(out),
            embedder,
            k=top,
            pool=pool,
            split=split,
            seed=seed,
            progress=lambda done, total: update(completed=done, total=total),
        )
    kept = [(kind or "all", count, total, f"{count / total:.0%}") for kind, (count, total) in filtered.kinds.items()]
    whole = (
        f"{filtered.kept:,} of {filtered.pairs:,} pairs are within the top {top} of {filtered.pool:,} passages: {out}"
    )
    table = Table(kept, columns("kind", "kept", "pairs", "", form=","))
    return Outcome(read_json(Path(out) / PAIRS), Study("", [table, Plain(whole)]))


@command
def train_dpr(
    questions: Annotated[
        Sequence[str],
        arg("SPLIT=FILE", "Files of DPR, or folders of EntityQuestions, such as train=nq-train.json test=nq-test.csv."),
    ],
    out: Annotated[Place, opt("New folder for the dataset, in BEIR format.")],
    passages: Annotated[
        Place | None, opt("DPR's passages (psgs_w100.tsv). Default: those in the files of questions.")
    ] = None,
    negatives: Annotated[int, opt("Maximum number of hard negatives per question.", min=0)] = 30,
    depth: Annotated[int, opt("Number of BM25 hits in which to look for the answers.", min=1)] = 100,
) -> Outcome[dict[str, int]]:
    """Convert files of DPR and EntityQuestions into a dataset for training and evaluation.

    Example: airgen train dpr train=nq-train.json test=nq-test.csv --passages psgs_w100.tsv --out nq

    Returns:
        The numbers of passages, and of questions by split.

    Raises:
        UsageError: The folder is not empty, or a file is not given as SPLIT=FILE.
        DatasetError: A file cannot be read, or no question has a passage with its answer.
    """
    from airgen.training.mining.dpr import convert_dpr

    named: dict[str, Path] = {}
    for word in [questions] if isinstance(questions, str) else questions:
        split, sign, file = word.partition("=")
        if not sign or not re.fullmatch(r"[A-Za-z0-9_-]{1,40}", split):
            raise UsageError(f"{word}: give SPLIT=FILE, such as train=nq-train.json")
        named[split] = Path(file)
    counts = convert_dpr(named, Path(out), passages=path_or_none(passages), negatives=negatives, depth=depth)
    table = Table(list(counts.items()), columns("", "count", form=","))
    last = Plain(f"dataset: {out} (train with `airgen train augment --on {out}`)")
    return Outcome(counts, Study("", [table, last]))


@command
def train_expand(
    dataset: Dataset,
    out: Annotated[Place, opt("JSON Lines file for the queries.")],
    model: Model = None,
    queries_from: Annotated[str | None, opt("Use the queries of this split.", "--from")] = None,
    pipeline: Pipeline = None,
    budget: Budget = None,
    count: Annotated[int, opt("Number of queries per passage.", min=1)] = 40,
    seed: Seed = 42,
    device: Device = None,
) -> Outcome[dict[str, Any]]:
    """Write queries that each passage might answer, for systems of `kind: expanded` (docT5query).

    Give one of --model, --pipeline and --from. Run a stopped command again to continue.

    Example: airgen train expand scifact --model castorini/doc2query-t5-base-msmarco --out scifact-queries.jsonl

    Returns:
        The file as `out`, the number of `passages` with queries, and the number of `failed` passages by reason.

    Raises:
        UsageError: Not exactly one source of queries is given, or the split is for testing.
        ModelError: The model cannot be loaded.
        BudgetSpent: The budget is spent; the same call with a higher budget continues.
    """
    from airgen.dataset.beir import BeirDataset
    from airgen.training.mining.expansion import expand_from_split

    if sum(source is not None for source in (model, queries_from, pipeline)) != 1:
        raise UsageError("give exactly one of --model, --pipeline and --from")
    opened = BeirDataset.open(dataset)
    failed: dict[str, int] = {}
    if queries_from is not None:
        done = expand_from_split(opened, queries_from, Path(out), count=count)
    else:
        done, failed = _written_queries(
            opened.passages(),
            opened.info.get("language"),
            out=Path(out),
            model=model,
            pipeline=pipeline,
            count=count,
            budget=budget,
            seed=seed,
            device=device,
        )
    text = f"{done:,} passages expanded: {out} (use it with {{kind: expanded, expansions: {out}}})"
    return Outcome({"out": str(out), "passages": done, "failed": failed}, text)


@command
def train_genq(
    source: Annotated[str, arg("SOURCE", "A corpus (name or YAML), or a dataset directory.")],
    base: Annotated[str, opt("Encoder to adapt: a name from `airgen show models`, a folder, or a Hub name.")],
    out: Annotated[Place, opt("Folder for the trained model.")],
    model: Model = None,
    pipeline: Pipeline = None,
    queries: Annotated[Place | None, opt("Use the queries in this file, written by `airgen train expand`.")] = None,
    count: Annotated[int, opt("Number of queries per passage (BEIR: 5).", min=1)] = 5,
    changes: Annotated[
        Sequence[str], opt("Override a setting of the encoder's recipe.", "--set", metavar="NAME=VALUE")
    ] = (),
    limit: PassageLimit = None,
    budget: Budget = None,
    seed: Seed = 42,
    device: Device = None,
) -> Outcome[Trained]:
    """Adapt an encoder to a corpus without labels, with generated queries (GenQ; BEIR, section 4).

    Give one of --model, --pipeline and --queries. OUT.queries.jsonl and OUT.pairs are kept, so a stopped command can
    be run again to continue. The queries of a dataset are never used for training.

    Example: airgen train genq python-docs --model models/doct5query --base all-minilm-l6-v2 --out models/genq

    Returns:
        The folder of the model, its dev scores, and the steps and seconds of the training.

    Raises:
        UsageError: Not exactly one source of queries is given.
        TrainingError: The training cannot start or continue.
        BudgetSpent: The budget is spent; the same call with a higher budget continues.
    """
    from airgen.training import train
    from airgen.training.mining.sources import expansion_pairs, open_source
    from airgen.training.recipe import TrainingRequest

    if sum(source is not None for source in (model, pipeline, queries)) != 1:
        raise UsageError("give exactly one of --model, --pipeline and --queries")
    home = Path(out)
    written = Path(queries) if queries is not None else sibling(home, ".queries.jsonl")
    failed: dict[str, int] = {}
    if queries is None and not written.exists():
        opened = open_source(source, limit)
        _, failed = _written_queries(
            opened.passages,
            opened.language,
            out=written,
            model=model,
            pipeline=pipeline,
            count=count,
            budget=budget,
            seed=seed,
            device=device,
        )
    pairs = sibling(home, ".pairs")
    summary = expansion_pairs(source, written, pairs, per_passage=count, limit=limit)
    trained = train(
        "encoder",
        TrainingRequest(on=pairs, base=base, out=home, changes=tuple(changes), device=device, quiet=is_silent()),
    )
    lines = [
        f"{summary['pairs']:,} pairs of {summary['passages']:,} passages ({written})",
        trained_line(trained),
        f"model: {trained.out} (in a systems YAML: {{kind: dense, embedder: {trained.out}}})",
    ]
    about = {"pairs": summary["pairs"], "queries": written, "failed": failed}
    return Outcome(trained, lines, json={**asdict(trained), **about})


def _written_queries(
    passages: Iterable[Any],
    language: Any,
    out: Path,
    model: str | None,
    pipeline: Place | None,
    count: int,
    budget: float | None,
    seed: int,
    device: str | None,
) -> tuple[int, dict[str, int]]:
    """Write queries for every passage; return the number of passages with queries and, by reason, without."""
    from airgen.job.expand_passages import expand_with_llm
    from airgen.job.show import job_file
    from airgen.training.mining.expansion import Seq2Seq, expand

    with progress_bar("writing queries", "{task.completed:,.0f} passages") as update:
        progress: Callable[[int], None] = lambda done: update(completed=done)  # noqa: E731
        if pipeline is None:
            writer = Seq2Seq(str(model), device=device)
            return expand(passages, writer, out, count=count, seed=seed, progress=progress), {}
        done, failed = expand_with_llm(
            job_file(pipeline), passages, language, out, count=count, budget_usd=budget, progress=progress
        )
    for reason, lost in failed.items():
        echo(f"{lost} passages have no queries: {reason}", err=True)
    return done, failed
