"""`airgen train pairs` and `airgen train filter`: training data without labels, after E5's section 3."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from airgen.corpus.settings import CorpusSettings
    from airgen.dataset.beir import BeirDataset
    from airgen.training.mining.pairs import Unit

__all__ = ["app"]

app = typer.Typer(add_completion=False)


@app.command()
def pairs(
    sources: Annotated[
        list[str],
        typer.Argument(
            metavar="CORPUS_OR_DATASET...",
            help="Of `airgen corpus list`, a corpus YAML, a BEIR directory; several are one.",
        ),
    ],
    out: Annotated[Path, typer.Option(help="The directory of pairs, in BEIR's layout.")],
    kinds: Annotated[
        str, typer.Option(help="Which: title, heading, question, neighbour, citation; separated by commas.")
    ] = "title,heading,question,neighbour,citation",
    limit: Annotated[int | None, typer.Option(min=1, help="Read no more passages than this.")] = None,
    min_words: Annotated[int, typer.Option(min=1, help="Of a passage.")] = 8,
    max_characters: Annotated[int, typer.Option(min=100, help="Of a passage; longer ones are left out.")] = 4096,
    per_query: Annotated[int, typer.Option(min=1, help="Passages that one query may have.")] = 3,
    exclude: Annotated[
        list[Path] | None, typer.Option(help="A dataset whose queries no pair may have (repeatable).")
    ] = None,
    seed: Annotated[int, typer.Option(help="Decides which side of a neighbour or citation is the query.")] = 42,
    as_json: Annotated[bool, typer.Option("--json", help="Print the counts as JSON.")] = False,
) -> None:
    """Mine text pairs from a corpus, to train an encoder on without labels.

    Example: airgen train pairs postgresql-manual --out data/pairs
    """
    import json

    from airgen.dataset.beir import BeirDataset
    from airgen.errors import UsageError
    from airgen.training.mining.pair_files import PAIRS, write_pairs
    from airgen.training.mining.pairs import PairMiner

    opened = [_opened(source, limit) for source in sources]
    languages = sorted({language for _, language, _ in opened})
    if len(languages) > 1:
        raise UsageError(f"sources in {' and '.join(languages)}: mine each language apart")
    # A dataset's own queries are for testing.
    tests = [*(exclude or ()), *(Path(source) for source in sources if Path(source).is_dir())]
    miner = PairMiner(
        [kind.strip() for kind in kinds.split(",") if kind.strip()],
        language=languages[0],
        min_words=min_words,
        max_characters=max_characters,
        per_query=per_query,
        seed=seed,
        exclude=[query.text for path in tests for query in BeirDataset.open(path).queries().values()],
    )
    name = "+".join(name for name, _, _ in opened)
    about = {"info": {"name": name, "language": languages[0]}, "seed": seed, "min_words": min_words,
             "max_characters": max_characters, "per_query": per_query}  # fmt: skip
    with _bar(f"mining {name}", "{task.completed:,.0f} passages", quiet=as_json) as update:

        def units() -> Iterator[Unit]:
            for name, _, passages in opened:
                for unit in passages:
                    update(advance=1)
                    # Ids of several sources could be the same.
                    yield unit if len(opened) == 1 else replace(unit, id=f"{name}/{unit.id}")

        write_pairs(miner.mine(units()), out, about, miner.counts)
    if as_json:
        typer.echo((out / PAIRS).read_text(encoding="utf-8"))
        return
    for kind, reasons in json.loads((out / PAIRS).read_text(encoding="utf-8"))["kinds"].items():
        for reason, count in sorted(reasons.items(), key=lambda item: (item[0] not in ("pairs", "passages"), item[0])):
            typer.echo(f"{kind:<10}{count:>10,}  {reason}")
    typer.echo(f"pairs: {out} (train with `airgen train pretrain --on {out}`)")


@app.command("filter")
def filter_(
    pairs: Annotated[Path, typer.Argument(help="A directory of pairs, or any dataset in BEIR's layout.")],
    model: Annotated[str, typer.Option(help="The first model: a trained folder, or any embedder's name.")],
    out: Annotated[Path, typer.Option(help="The directory of the pairs that stay.")],
    top: Annotated[int, typer.Option("--k", min=1, help="A pair stays within the top k (E5: 2).")] = 2,
    pool: Annotated[int, typer.Option(min=1, help="Random passages to rank against (E5: a million).")] = 1_000_000,
    split: Annotated[str, typer.Option(help="Which qrels.")] = "train",
    seed: Annotated[int, typer.Option(help="Another seed, another pool.")] = 42,
    as_json: Annotated[bool, typer.Option("--json", help="Print the counts as JSON.")] = False,
) -> None:
    """Keep the pairs that a first model agrees with: E5's consistency filter.

    Example: airgen train filter data/pairs --model models/noisy --out data/filtered
    """
    from airgen.retrievers import load_embedder
    from airgen.training.mining.consistency import filter_pairs
    from airgen.training.mining.pair_files import PAIRS

    with _bar("filtering", "{task.completed:,.0f} of {task.total:,.0f} pairs", quiet=as_json) as update:
        found = filter_pairs(
            pairs,
            out,
            load_embedder(model),
            k=top,
            pool=pool,
            split=split,
            seed=seed,
            progress=lambda done, total: update(completed=done, total=total),
        )
    if as_json:
        typer.echo((out / PAIRS).read_text(encoding="utf-8"))
        return
    for kind, (kept, of) in found.kinds.items():
        typer.echo(f"{kind or 'all':<10}{kept:>10,} of {of:,} pairs stay ({kept / of:.0%})")
    typer.echo(f"{found.kept:,} of {found.pairs:,} pairs are within the top {top} of {found.pool:,}: {out}")


def _opened(source: str, limit: int | None) -> tuple[str, str, Iterator[Unit]]:
    """Name, language and passages of a source."""
    from airgen.corpus import load_corpus_settings
    from airgen.dataset.beir import BeirDataset

    if Path(source).is_dir():
        dataset = BeirDataset.open(source)
        return dataset.name, str(dataset.info.get("language") or "en"), _of_dataset(dataset, limit)
    settings = load_corpus_settings(source)
    return settings.name, settings.language, _of_corpus(settings, limit)


def _of_dataset(dataset: BeirDataset, limit: int | None) -> Iterator[Unit]:
    from airgen.training.mining.pairs import Unit

    for passage in islice(dataset.passages(), limit):
        yield Unit(passage.id, passage.text, passage.title)


def _of_corpus(settings: CorpusSettings, limit: int | None) -> Iterator[Unit]:
    from airgen.corpus import prepare
    from airgen.records import Passage
    from airgen.training.mining.pairs import Unit

    for row in prepare(settings, settings.task, limit=limit):
        if not isinstance(row, Passage):
            continue  # counted by `airgen corpus stats`
        if row.document != row.id:  # a chunk of a long document
            yield Unit(row.id, row.text, row.title, row.document, row.start, row.end)
        else:  # a section of a file has the id FILE#ANCHOR
            file, sign, _ = row.id.rpartition("#")
            yield Unit(row.id, row.text, row.title, file if sign else "")


@contextmanager
def _bar(what: str, *columns: str, quiet: bool) -> Iterator[Callable[..., None]]:
    """A line on the terminal; yields a function that updates it."""
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    shown = (SpinnerColumn(), TextColumn("{task.description}"), *map(TextColumn, columns), TimeElapsedColumn())
    console = Console(stderr=True, highlight=False, markup=False)
    with Progress(*shown, transient=True, console=console, disable=quiet) as bar:
        yield partial(bar.update, bar.add_task(what, total=None))
