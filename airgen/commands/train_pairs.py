"""`airgen train pairs` and `airgen train filter`: training data without labels, after E5's section 3."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from airgen.commands.options import Compute, Json, PassageLimit, Seed, Split, echo, finite, new_app
from airgen.commands.progress_bar import progress_bar

app = new_app()


@app.command()
def pairs(
    sources: Annotated[
        list[str],
        typer.Argument(
            metavar="SOURCE...",
            help="Names from `airgen corpus list`, corpus YAMLs, dataset directories, or dumps as FORMAT:PATH, where "
            "FORMAT is reddit, stackexchange, wikipedia, papers, common-crawl, news or nli. All become one corpus.",
        ),
    ],
    out: Annotated[Path, typer.Option(help="Directory to write the pairs to, in BEIR format.")],
    kinds: Annotated[
        str,
        typer.Option(
            help="Kinds of pairs, separated by commas: title, heading, question, neighbour, citation, comment, answer, "
            "entailment."
        ),
    ] = "title,heading,question,neighbour,citation,comment,answer,entailment",
    limit: PassageLimit = None,
    min_words: Annotated[int, typer.Option(min=1, help="Leave out passages with fewer words.")] = 8,
    max_characters: Annotated[int, typer.Option(min=100, help="Leave out passages with more characters.")] = 4096,
    per_query: Annotated[int, typer.Option(min=1, help="Maximum number of passages for one query.")] = 3,
    exclude: Annotated[
        list[Path] | None, typer.Option(help="A dataset whose queries are excluded (repeatable).")
    ] = None,
    queries: Annotated[
        Path | None, typer.Option(help="Pair each passage with its queries in this file of `airgen train expand`.")
    ] = None,
    language: Annotated[str, typer.Option(help="Language of dumps (ISO 639-1); corpora say theirs.")] = "en",
    min_score: Annotated[int, typer.Option(help="Leave out comments and answers of a lower score (E5: 1).")] = 1,
    question: Annotated[
        Literal["full", "title"],
        typer.Option(help="What a post or question of a dump is: title and text, or its title."),
    ] = "full",
    max_perplexity: Annotated[
        float | None,
        typer.Option(min=1, help="Leave out web pages above it; without it, those of cc_net's tail.", callback=finite),
    ] = None,
    seed: Seed = 42,
    compute: Compute = None,
    as_json: Json = False,
) -> None:
    """Mine pairs of texts from corpora and dumps, to train an encoder without labels; or pair passages with queries.

    Example: airgen train pairs postgresql-manual reddit:RS_2019-01.zst reddit:RC_2019-01.zst --out data/pairs
    """
    from airgen.compute import computing
    from airgen.errors import UsageError
    from airgen.settings.compute import compute_settings
    from airgen.training.mining.dumps.dump_reader import DumpSettings
    from airgen.training.mining.pairs import MiningSettings
    from airgen.training.mining.sources import PAIRS, expansion_pairs, mine_sources

    with (
        progress_bar("mining", "{task.completed:,.0f} passages", quiet=as_json) as update,
        computing(compute_settings(compute or "local")),
    ):
        settings = MiningSettings(seed, min_words, max_characters, per_query)
        chosen = [kind.strip() for kind in kinds.split(",") if kind.strip()]
        if queries is not None:
            if len(sources) > 1:
                raise UsageError("--queries has ids of one source: give one")
            summary = expansion_pairs(sources[0], queries, out, limit=limit)
        else:
            more = exclude or ()
            dumps = DumpSettings(language, min_score, question, max_perplexity)
            summary = mine_sources(
                sources,
                out,
                settings,
                kinds=chosen,
                limit=limit,
                exclude=more,
                dumps=dumps,
                progress=lambda: update(advance=1),
            )
    if as_json:
        echo((out / PAIRS).read_text(encoding="utf-8"))
        return
    for kind, reasons in summary["kinds"].items():
        for reason, count in sorted(reasons.items(), key=lambda item: (item[0] not in ("pairs", "passages"), item[0])):
            echo(f"{kind:<10}{count:>10,}  {reason}")
    echo(f"pairs: {out} (train with `airgen train pretrain --on {out}`)")


@app.command("filter")
def filter_(
    pairs: Annotated[Path, typer.Argument(help="A directory of pairs, or any other dataset in BEIR format.")],
    model: Annotated[str, typer.Option(help="The first model: a trained folder, or the name of an embedder.")],
    out: Annotated[Path, typer.Option(help="Directory to write the pairs to that are kept.")],
    top: Annotated[int, typer.Option("--k", min=1, help="Keep a pair if its passage is in the top k (E5: 2).")] = 2,
    pool: Annotated[int, typer.Option(min=1, help="Random passages to rank against (E5: a million).")] = 1_000_000,
    split: Split = "train",
    seed: Seed = 42,
    compute: Compute = None,
    as_json: Json = False,
) -> None:
    """Keep the pairs whose passage a first model finds among random passages: E5's consistency filter.

    Example: airgen train filter data/pairs --model models/noisy --out data/filtered
    """
    from airgen.compute import computing
    from airgen.retrievers import load_embedder
    from airgen.settings.compute import compute_settings
    from airgen.training.mining.consistency import filter_pairs
    from airgen.training.mining.sources import PAIRS

    with progress_bar("filtering", "{task.completed:,.0f} of {task.total:,.0f} pairs", quiet=as_json) as update:

        def show(done: int, total: int) -> None:
            update(completed=done, total=total)

        embedder = load_embedder(model)
        with computing(compute_settings(compute or "local")):
            filtered = filter_pairs(pairs, out, embedder, k=top, pool=pool, split=split, seed=seed, progress=show)
    if as_json:
        echo((out / PAIRS).read_text(encoding="utf-8"))
        return
    for kind, (kept, total) in filtered.kinds.items():
        echo(f"{kind or 'all':<10}{kept:>10,} of {total:,} pairs are kept ({kept / total:.0%})")
    echo(f"{filtered.kept:,} of {filtered.pairs:,} pairs are within the top {top} of {filtered.pool:,} passages: {out}")
