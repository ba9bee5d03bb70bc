"""Format results as tables with notes, for one split of a dataset or for many datasets.

compare_results(results).ranks                   # intervals of the ranks
write_report(Path("results/scifact/test"), results)
"""

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

import numpy as np

from airgen.display.study import Column, P, Plain, Study, Table, columns, span, write_lines
from airgen.evaluation.result import NO_NEGATIVES, Result, as_matrix
from airgen.evaluation.returned_hits import PAGES
from airgen.evaluation.significance import Comparison, SystemPair, compare
from airgen.evaluation.user_search import FAILED, MOST_HITS
from airgen.evaluation.wordings import by_wording, nearness_line
from airgen.retrievers.model_facts import shown_name
from airgen.safety.escaping import csv_text, md, one_line
from airgen.storage.json_values import write_json

SYSTEM = Column("system", lambda result: result.name)


def shown_system(result: Result, *, kept: bool = True) -> str:
    """Return a system's name for a table, with its marks: that it helped to make the labels, and when it ran if it was
    not run again."""
    return result.name + result.mark + (f" (kept, {result.kept})" if kept and result.cached else "")


def results_csv(results: Sequence[Result]) -> str:
    """Format every mean with its interval as CSV, with one row per dataset, split, system and measure."""
    rows: list[list[object]] = []
    for result in results:
        about = (result.dataset, result.split, result.name)
        for measure, mean in result.means.items():
            numbers = [f"{value:.6f}" for value in (mean, *result.intervals[measure])]
            rows.append([*about, measure, *numbers, result.queries, result.missing])
        for measure, three in result.answers.items():
            numbers = [f"{value:.6f}" for value in three]
            rows.append([*about, measure, *numbers, result.about["queries_with_answers"], ""])
    header = ["dataset", "split", "system", "measure", "mean", "low", "high", "queries", "missing"]
    return csv_text(header, rows)


def _ranked(
    results: Sequence[Result], comparison: Comparison, measures: Sequence[Column], *, kept: bool = False
) -> Table:
    """Tabulate the systems, best first, with intervals for scores and ranks.

    `kept` marks systems that did not run again, with the time of their run.
    """
    headline = results[0].headline
    by_name = {result.name: result for result in results}
    ranks = dict(zip(comparison.names, comparison.ranks, strict=True))
    return Table(
        [by_name[name] for name in comparison.names],
        [
            Column("#", lambda result: comparison.names.index(result.name) + 1),
            Column("system", lambda result: shown_system(result, kept=kept), left=True),
            Column(headline, lambda result: result.score, ".4f", best=True),
            Column("95 %", lambda result: result.intervals[headline], ".3f"),
            Column("rank", lambda result: ranks[result.name]),
            *measures,
        ],
    )


def ranking_study(results: Sequence[Result], comparison: Comparison) -> Study:
    """Return the systems, best first, with intervals for scores and ranks, and notes on unfair advantages."""
    more = [
        Column("missing", lambda result: result.missing),
        Column("ms/query", lambda result: result.costs.batch_ms, ".2f"),
    ]
    untimed = [result.name for result in results if result.costs.batch_ms is None]
    why = f"not timed, because part of the work was done before or a run was given: {', '.join(untimed)}"
    notes = [why if untimed else "", *fairness_lines(results)]
    return Study("", [_ranked(results, comparison, more, kept=True), *map(Plain, notes)])


def needed_between(pair: SystemPair) -> str:
    """Format the interval of `queries_needed`, or "" if there is none."""
    if pair.queries_needed is None:
        return ""
    high = "no upper end" if pair.needed_high is None else f"{pair.needed_high:,}"
    return f"{pair.needed_low or 2:,} to {high}"


COSTS = (
    SYSTEM,
    Column("p50 ms", lambda result: result.costs.latency_p50_ms, ".1f"),
    Column("p95 ms", lambda result: result.costs.latency_p95_ms, ".1f"),
    Column("batched ms", lambda result: result.costs.batch_ms, ".2f"),
    Column("queries/s", lambda result: result.costs.queries_per_second, ",.0f"),
    Column("index s", lambda result: result.costs.index_seconds, ".1f"),
    Column("index MB", lambda result: result.costs.index_bytes and result.costs.index_bytes / 1e6, ".1f"),
    Column("memory MB", lambda result: result.costs.memory_bytes and result.costs.memory_bytes / 1e6, ".0f"),
    Column("parameters M", lambda result: result.costs.parameters and result.costs.parameters / 1e6, ".1f"),
    Column("device", lambda result: result.costs.device),
    Column("dtype", lambda result: result.costs.dtype),
    Column("ANN recall", lambda result: result.costs.ann_recall, ".3f"),
    Column("$ per 1,000", lambda result: result.costs.usd_per_1000, ".4f"),
)
"""The cost of each system, as in BEIR's Table 3, and in money."""

_RARE = {"ANN recall": "ann_recall", "$ per 1,000": "usd_per_1000"}


def cost_columns(results: Sequence[Result]) -> list[Column]:
    """Return the cost columns for which these results have values."""
    known = {title: any(getattr(result.costs, name) is not None for result in results) for title, name in _RARE.items()}
    return [column for column in COSTS if known.get(column.title, True)]


PAIRS = (
    Column("pair", lambda pair: f"{pair.first} – {pair.second}"),
    Column("difference", lambda pair: pair.difference, "+.4f"),
    Column("p Fisher", lambda pair: pair.fisher, P),
    Column("Fisher, Holm", lambda pair: pair.fisher_holm, P),
    Column("p t-test", lambda pair: pair.t, P),
    Column("t-test, Holm", lambda pair: pair.t_holm, P),
    Column("effect d", lambda pair: pair.effect, ".2f"),
    Column("queries for power .8", lambda pair: pair.queries_needed, ","),
    Column("95 %", lambda pair: needed_between(pair)),
)
"""Every pair of systems: difference, p-values, and the number of queries needed to detect the difference."""

REFUSALS = (
    SYSTEM,
    Column("AUROC", lambda result: result.refusal["auroc"], ".3f"),
    Column("95 %", lambda result: (result.refusal["auroc_low"], result.refusal["auroc_high"]), ".3f"),
    Column("threshold", lambda result: result.refusal["threshold"], ".4g"),
    Column("false refusals", lambda result: result.refusal["false_refusals"], ".1%"),
    Column("false hits", lambda result: result.refusal["false_hits"], ".1%"),
)
"""How well a threshold on the best score separates unanswerable queries from the others."""

BIASES = (
    SYSTEM,
    Column("Hole@10", lambda result: result.means.get("Hole@10"), ".3f"),
    Column("top 10 characters", lambda result: result.biases["top_characters"], ".0f"),
    Column("relevant characters", lambda result: result.biases["relevant_characters"], ".0f"),
    Column("corpus characters", lambda result: result.biases["corpus_characters"], ".0f"),
    Column("top 10 word overlap", lambda result: result.biases["top_overlap"], ".2f"),
    Column("relevant word overlap", lambda result: result.biases["relevant_overlap"], ".2f"),
    Column("queries with a negative above the best positive", lambda result: _above(result.negatives_above)),
    Column("rank of the negatives", lambda result: _rank(result.negative_ranks)),
    Column("of them in the first ten", lambda result: result.negative_ranks.get("first_ten"), ".0%"),
)
"""Length and word overlap of each system's top hits, compared with relevant passages and the corpus."""


def _rank(ranks: Mapping[str, float]) -> str:
    """Format the median rank of passages judged not relevant, or a dash if it is missing."""
    if not ranks.get("pairs"):
        return "–"
    return f"{ranks['median']:g}" if "median" in ranks else "not found"


def _above(counts: Mapping[str, float]) -> str:
    return f"{counts['share']:.2f} of {counts['queries']:.0f}" if counts["queries"] else "–"


def overview(results: Sequence[Result]) -> Study:
    """Tabulate many datasets by task: each system's main score, its mean, and its means by domain and language.

    Tasks have different main measures, so no mean is over two of them (the paper's Tables 22 and 23). A system has a
    mean only if it was evaluated on all datasets of the mean.
    """
    by_task: dict[str, list[Result]] = {}
    for result in results:
        by_task.setdefault(str(result.about.get("task") or "qa"), []).append(result)
    headlines = {task: each[0].headline for task, each in sorted(by_task.items(), reverse=True)}
    parts: list[str | Table] = []
    for task, headline in headlines.items():
        parts += [f"## {_TASKS.get(task, task)}, {headline}"] if len(headlines) > 1 else []
        parts.append(_overview_table(by_task[task]))
    if any(result.answers for result in results):
        parts += ["## Answers, ranking and latency", _answers_table(results)]
    return Study(f"Results ({', '.join(dict.fromkeys(headlines.values()))})", parts)


def _answers_table(results: Sequence[Result]) -> Table:
    """Tabulate accuracy by answer strings beside ranking measures and latency (the BM25 augmentation paper's Table
    1)."""
    accuracies = dict.fromkeys(name for result in results for name in result.answers)
    measures = [name for name in ("nDCG@10", "Recall@100", "AP@1000") if any(name in each.means for each in results)]
    return Table(
        results,
        [
            Column("dataset", lambda result: result.dataset),
            Column("system", lambda result: result.name, left=True),
            *(Column(name, partial(_accuracy_of, name), ".3f") for name in accuracies),
            *(Column(name, partial(_mean_or_none, name), ".4f") for name in measures),
            Column("p50 ms", lambda result: result.costs.latency_p50_ms, ".1f"),
        ],
    )


def _accuracy_of(measure: str, result: Result) -> float | None:
    return result.answers[measure][0] if measure in result.answers else None


def _mean_or_none(measure: str, result: Result) -> float | None:
    return result.means.get(measure)


_TASKS = {"qa": "QA", "long-doc": "Long-Doc"}


def _overview_table(results: Sequence[Result]) -> Table:
    """Tabulate the datasets of one task."""
    sets = list(dict.fromkeys((result.dataset, result.split) for result in results))
    score_of = {(result.name, result.dataset, result.split): result.score for result in results}
    groups: list[tuple[str, list[tuple[str, str]]]] = [("mean", sets)] if len(sets) > 1 else []
    for attribute in ("domain", "language"):
        members: dict[str, list[tuple[str, str]]] = {}
        for result in results:
            value = str(result.about.get(attribute) or "")
            if value and (result.dataset, result.split) not in members.setdefault(value, []):
                members[value].append((result.dataset, result.split))
        if len(members) > 1:
            groups += [(f"{attribute} {value}", each) for value, each in sorted(members.items())]
    groups += [(name if split == "test" else f"{name} ({split})", [(name, split)]) for name, split in sets]

    def scores(members: list[tuple[str, str]], system: str) -> list[float]:
        return [score_of[system, *member] for member in members if (system, *member) in score_of]

    def mean(members: list[tuple[str, str]], system: str) -> float | None:
        known = scores(members, system)
        return float(np.mean(known)) if len(known) == len(members) else None

    def order(system: str) -> tuple[int, float]:
        known = scores(sets, system)
        return -len(known), -float(np.mean(known))

    names = sorted(dict.fromkeys(result.name for result in results), key=order)
    means = [Column(title, partial(mean, members), ".4f", best=True) for title, members in groups]
    return Table(names, [Column("system", str), *means])


_NOTES = {"unknown_passages": "hits outside the dataset (dropped by its cleaning, or never in its corpus)"}


_DEEPEST = 100  # hits that the measures of a table count, as Recall@100 does

_DOUBTS = {
    PAGES: "hits are pages, each of which counts for the best of its sections by the labels: compare with systems of "
    "pages (with `level: document`, the hits of any system are pages)",
    "scores_taken_as_distances": "scores rise from the first hit to the last, so the smallest is taken as the best (if "
    "that is wrong, set `best` to largest)",
    "queries_with_equal_scores": "all hits of all queries have the same score, so their order is meaningless",
}
"""The caveats about a figure, by the note of a run."""


def note_lines(results: Sequence[Result]) -> str:
    """Return a line for each system with irregularities, such as queries without results."""
    lines = [f"- {md(sentence)}" for sentence in fairness_lines(results)]
    for result in results:
        counts = {"queries without a result": result.missing, "queries not judged": result.unjudged}
        notes = {name: count for name, count in result.notes.items() if not name.startswith(FAILED)}
        counts |= {_NOTES.get(name, name.replace("_", " ")): count for name, count in notes.items()}
        if text := ", ".join(f"{count} {md(name)}" for name, count in counts.items() if count):
            lines.append(f"- {md(result.name)}: {text}")
    return "\n".join(lines)


def rank_text(comparison: Comparison) -> dict[str, str]:
    """Return the confidence interval of each system's rank, such as `3–9`, or `3` if it is certain."""
    return {name: span(*ranks) for name, ranks in zip(comparison.names, comparison.ranks, strict=True)}


def places_text(comparison: Comparison) -> dict[str, str]:
    """Return, for each system, the ranks of the systems that do not differ from it significantly: `1, 3–7`."""
    place = {name: at for at, name in enumerate(comparison.names, 1)}
    texts = {}
    for name, others in zip(comparison.names, comparison.together, strict=True):
        runs: list[list[int]] = []
        for at in sorted(place[other] for other in others):
            if runs and runs[-1][1] == at - 1:
                runs[-1][1] = at
            else:
                runs.append([at, at])
        texts[name] = ", ".join(span(low, high) for low, high in runs) or "–"
    return texts


def fairness_lines(results: Sequence[Result]) -> list[str]:
    """Return a sentence for each reason why some systems have an unfair advantage."""
    lines = []
    if marked := [f"{result.name} ({', '.join(result.made_labels)})" for result in results if result.made_labels]:
        lines.append(f"† helped to make the labels, so its score may be too high: {', '.join(marked)}")
    if lacking := [result for result in results if result.notes.get(NO_NEGATIVES)]:
        names = ", ".join(result.name for result in lacking)
        lines.append(
            f"{names}: none of the {lacking[0].notes[NO_NEGATIVES]} generated hard negatives was found: if the index "
            "does not have them, add them from corpus.jsonl, or leave them out for all systems: --without-negatives"
        )
    for note, words in _DOUBTS.items():
        doubtful = [result.name for result in results if result.notes.get(note)]
        if note == PAGES and len(doubtful) == len(results):
            words = words.partition(":")[0]  # there is nothing else to compare with
        lines += [f"{', '.join(doubtful)}: {words}"] if doubtful else []
    for result in results:
        lines += [f"{result.name}: {n} {name}" for name, n in result.notes.items() if name.startswith(FAILED)]
        if (most := result.notes.get(MOST_HITS, 0)) and most < _DEEPEST:
            lines.append(f"{result.name}: {most:,} hits at most for a query, so measures of more hits are too low")
        if count := result.notes.get("unknown_passages"):
            lines.append(
                f"{result.name}: {count:,} hits are not in the dataset, and count as not relevant or are left out"
            )
    lines += model_warnings(results)
    for result in results:
        if result.reads:
            reads = ", ".join(result.reads)
            lines.append(
                f"{result.name}: kept, but it reads {reads}, whose content airgen cannot identify: if that has "
                "changed, evaluate with fresh=True, or name a version (airgen.Function(..., version='2'))"
            )
    if any(result.rules.get("generated_negatives") == "left out" for result in results):
        lines.append("the generated hard negatives are left out for all systems")
    if (worded := by_wording(results)) is not None:
        lines.append(worded.sentence)
    elif results and (near := nearness_line(results[0])):
        lines.append(near)
    return [one_line(line) for line in lines]


_CUT_SHARE = 0.01  # of the passages; above this, a warning says so


def model_warnings(results: Sequence[Result]) -> list[str]:
    """Return a line for each model that cuts more than 1 % of the passages, or for which no prompt is known."""
    lines = []
    for result in results:
        for model in result.models:
            cut = next((cut for cut in (model.passages, model.pairs) if cut and cut.cut > _CUT_SHARE * cut.texts), None)
            if cut is not None:
                noun = "passages" if cut is model.passages else "pairs"
                limit, words = f"{model.max_length:,} {model.unit}", cut.words(noun, model.unit)
                lines.append(f"{result.name}: {shown_name(model.model)} reads {limit}, which cuts {words}")
            if model.hint:
                lines.append(f"{result.name}: {model.hint}")
    return lines


def model_lines(results: Sequence[Result]) -> list[str]:
    """Return a line for each model of each system, which says how it was run."""
    return [
        one_line(f"{result.name}: {shown_name(model.model)}: {model.words}", 1000)
        for result in results
        for model in result.models
    ]


def pair_text(pair: SystemPair, measure: str) -> str:
    """Format one comparison of two systems for a terminal."""
    needed = ""
    if pair.queries_needed is not None:
        needed = f"; {pair.queries_needed:,} queries ({needed_between(pair)}) would show it (power .8)"
    return (
        f"{measure}: {pair.first} - {pair.second} = {pair.difference:+.4f}  p {pair.fisher:.4f} (Fisher), "
        f"{pair.t:.4f} (t), after Holm {pair.fisher_holm:.4f}, {pair.t_holm:.4f}; d {pair.effect:.2f}{needed}"
    )


def write_report(folder: Path, results: Sequence[Result]) -> None:
    """Write `report.md`, `results.csv` and `comparison.json` of one split.

    Raises DatasetError if per-query scores cannot be read.
    """
    comparison = compare_results(results)
    write_json(folder / "comparison.json", comparison)
    write_lines(folder / "results.csv", results_csv(results))
    dataset_study(results, comparison).write(folder / "report.md")
    if (worded := by_wording(results)) is not None:
        write_lines(folder / OVERLAP_CHART, worded.svg() + "\n")


OVERLAP_CHART = "overlap.svg"
"""The chart of scores by overlap, beside the tables of a split."""


def dataset_study(results: Sequence[Result], comparison: Comparison) -> Study:
    """Build the report on one split."""
    first = results[0]
    # Hole and Judged show how far the other measures can be trusted, so they have no best value.
    measures = [
        # Hole and Judged show how far the other measures can be trusted, so they have no best value.
        Column(name, partial(_mean_of, name), ".4f", best=not name.startswith(("Hole", "Judged")))
        for name in first.means
        if name != first.headline
    ]
    parts: list[str | Table] = [
        f"{first.queries} queries, {first.about['passages']} passages, content hash "
        f"`{first.about['digest'][:16]}`. Intervals are 95 % bootstrap intervals over queries. `rank` is the "
        "confidence interval of the rank, from the pairs that differ significantly (Fisher's "
        f"randomisation test, Holm's correction over all pairs, alpha {comparison.alpha}). The best value of a "
        "column is bold, the second is underlined.",
        _ranked(results, comparison, measures),
        note_lines(results),
    ]
    parts += ["## By document", *_by_document(results)]
    if (worded := by_wording(results)) is not None:
        parts += ["## By wording", *worded.parts, f"Chart: [score by overlap]({OVERLAP_CHART})."]
    parts += ["## Costs", Table(results, cost_columns(results))]
    parts += ["## Pairs", Table(comparison.pairs, PAIRS)]
    parts += ["## By kind of query", _by_kind(results)]
    parts += ["## Answers in the best passages", *_by_answers(results)]
    parts += ["## Queries without an answer", *_by_refusal(results)]
    parts += ["## Bias", Table(results, BIASES)]
    parts += ["## Rules", "\n".join(f"- {name.replace('_', ' ')}: {value}" for name, value in first.rules.items())]
    return Study(f"{first.dataset}, {first.split}", parts)


def _mean_of(measure: str, result: Result) -> float:
    return result.means[measure]


def _by_document(results: Sequence[Result]) -> list[str | Table]:
    """Tabulate scores by document, where a document counts as its best chunk."""
    headline = results[0].headline
    ranked = sorted(
        (result for result in results if result.by_document),
        key=lambda result: -result.by_document[headline][0],
    )
    if not ranked:
        return []

    def mean(measure: str, result: Result) -> float:
        return result.by_document[measure][0]

    first, *others = [Column(name, partial(mean, name), ".4f") for name in ranked[0].by_document]
    interval = Column("95 %", lambda result: result.by_document[headline][1:], ".3f")
    return [
        "Passages are chunks. Here, each document has the best score and the highest label of its chunks.",
        Table(ranked, [SYSTEM, first, interval, *others]),
    ]


def _by_kind(results: Sequence[Result]) -> Table:
    means = {(result.name, group.attribute, group.value): group.mean for result in results for group in result.groups}
    rows = [
        [
            group.attribute,
            group.value,
            str(group.queries),
            *(means.get((result.name, group.attribute, group.value)) for result in results),
        ]
        for group in results[0].groups
    ]
    systems = (result.name for result in results)
    return Table(rows, columns("attribute", "value", "queries", *systems, form=".4f"))


def _by_answers(results: Sequence[Result]) -> list[str | Table]:
    answered = [result for result in results if result.answers]

    def accuracy(measure: str, result: Result) -> str:
        return "{:.3f} ({:.3f}–{:.3f})".format(*result.answers[measure])

    accuracies = [Column(name, partial(accuracy, name)) for name in (answered[0].answers if answered else ())]
    parts: list[str | Table] = []
    if count := results[0].about.get("queries_with_answers"):
        parts.append(
            f"Share of the {count} queries with known answers for which an answer occurs in the text of the top k "
            "passages, labelled or not (DPR's accuracy)."
        )
    return [*parts, Table(answered, [SYSTEM, *accuracies])]


def _by_refusal(results: Sequence[Result]) -> list[str | Table]:
    parts: list[str | Table] = []
    if count := results[0].refusal.get("queries", 0):
        parts.append(
            f"{count:.0f} queries that no passage answers. AUROC: the probability that a query with an answer "
            "has a higher best score than one without. Threshold: the highest that refuses at most 5 % of the "
            "queries with an answer (false refusals); false hits are the queries without an answer that reach it."
        )
    return [*parts, Table([result for result in results if result.refusal], REFUSALS)]


def compare_results(results: Sequence[Result]) -> Comparison:
    """Compare all pairs of a dataset's systems by the main measure."""
    return compare([result.name for result in results], as_matrix(results, results[0].headline)[1])


def write_overview(out: Path, results: Sequence[Result]) -> None:
    """Write `results.md` and `results.csv` for many datasets."""
    study = overview(results)
    Study(study.title, ["Best bold, second underlined.", *study.parts]).write(out / "results.md")
    write_lines(out / "results.csv", results_csv(results))
