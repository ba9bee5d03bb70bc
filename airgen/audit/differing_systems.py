"""Audit systems: people judge pairs on which the systems differ, which shows which system is better.

results/NAME/SPLIT/audit/          the folder of one comparison
    audit.html      for people: does not say which system found the document; saves audit-answers.json
    sample.json     every pair in drawn order, with the judge's probability; people who answer should not open it
    result.json     what the answers say, for programs and for the report
"""

import itertools
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from airgen.audit import difference
from airgen.audit.answers import Levels, key_in, read_answers
from airgen.audit.difference import BATCH, CorrectedSystem, Favour, PairDecision, Pairs, rank_weights
from airgen.audit.sample import EARLIER, AuditItem, keep_earlier, question_page
from airgen.components.keys import content_key
from airgen.components.registry import REGISTRY, closest
from airgen.dataset.beir import BeirDataset, read_qrels
from airgen.display.study import Column, P, Shown, Table
from airgen.errors import DatasetError, UsageError
from airgen.evaluation.measures import check_common
from airgen.evaluation.result import Paths
from airgen.evaluation.run import read_run
from airgen.safety.escaping import figure
from airgen.storage.json_values import DAMAGE, FORMAT, read_json, read_kept, write_json
from airgen.storage.whole_files import write_text
from airgen.studies.judge.agreement import kappa

DEPTH = 10
_LABEL = {True: 0.85, False: 0.15}  # the judge's probability if a dataset has labels without probabilities
_UNLABELLED_PROBABILITY = 0.05
_DEFAULT_MARGIN_SHARE = 0.05  # the share of the larger DCG@10 below which a difference does not matter

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class SystemSample:
    """All pairs that the systems rank differently within the top ten, in drawn order. People see the first `shown`.

    `groups` are systems that the judge might favour, by group name. `queries` is the number of queries in the means.
    `judge` is each system's mean DCG@10 by the judge. `pairs` are (query, document, probability, the systems' ranks, 0
    if below the top ten).
    """

    dataset: str
    split: str
    systems: tuple[str, ...]
    groups: Mapping[str, tuple[str, ...]]
    queries: int
    relevant_from: int
    judge: tuple[float, ...]
    pairs: tuple[tuple[str, str, float, tuple[int, ...]], ...]
    shown: int

    @cached_property
    def key(self) -> str:
        """Return an id, by which answers to another sample are refused. It does not change if more of the same pairs
        are shown."""
        return content_key([value for name, value in asdict(self).items() if name != "shown"])[:16]

    @cached_property
    def frame(self) -> Pairs:
        """Return the pairs for the estimator. The contrasts are the systems' mean DCG@10 minus the mean of all
        systems."""
        gains = np.concatenate(([0.0], rank_weights(DEPTH))) / self.queries
        weights = gains[np.array([ranks for _, _, _, ranks in self.pairs]).T]
        return Pairs(weights - weights.mean(axis=0), np.array([p for _, _, p, _ in self.pairs]))


@dataclass(frozen=True)
class SystemAudit(Shown):
    """The result of the audit. `decisions` is {(first, second): decision}.

    `answers` are the pairs that count, the first ones in drawn order. `later` are answers after an unanswered pair,
    which do not count. `unclear` are counted pairs that people could not judge. `kappa` is people's agreement on the
    `twice` pairs answered by two people, or NaN if there are none. A pair with several answers has their mean as its
    label.
    """

    dataset: str
    split: str
    queries: int
    people: int
    answers: int
    later: int
    unclear: int
    twice: int
    kappa: float
    decisions: Mapping[tuple[str, str], PairDecision]
    ranking: Sequence[CorrectedSystem]
    favours: Sequence[Favour]

    def as_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        values = {name: value for name, value in vars(self).items() if name != "decisions"}
        pairs = [
            {"first": first, "second": second, **asdict(decision)}
            for (first, second), decision in self.decisions.items()
        ]
        return {**values, "measure": f"DCG@{DEPTH}", "pairs": pairs}


def draw_systems(
    home: Path,
    split: str,
    runs: Mapping[str, Path],
    count: int,
    out: Path,
    *,
    groups: Mapping[str, Collection[str]] | None = None,
    judge: Path | None = None,
    seed: int = 0,
) -> SystemSample:
    """Draw the pairs, and write the page and the sample to `out`. An older sample is moved to `out/earlier/KEY`.

    `runs` is {system: run file} for at least two systems, and `groups` is from `groups_of`. `judge` is a file of
    (query, document, probability); the default is the dataset's soft labels, or else its labels. Raises UsageError if
    there are fewer than two systems, and DatasetError if they do not differ.
    """
    if len(runs) < 2:
        raise UsageError("a single system cannot be compared: name two, or none to compare all systems in the results")
    dataset = BeirDataset.open(home)
    queries = dataset.queries(split)
    known = _probabilities(dataset, split, judge)
    asked = [query for query in (known or queries) if query in queries]
    ranks: dict[tuple[str, str], list[int]] = {}
    for at, path in enumerate(runs.values()):
        ranked = read_run(path).ranked()
        check_common(str(path), ranked, asked)
        for query, hits in ranked.items():
            for rank, (document, _) in enumerate(hits[:DEPTH], 1):
                ranks.setdefault((query, document), [0] * len(runs))[at] = rank
    wanted, chosen = {document for _, document in ranks}, set(asked)
    texts = {row.id: (row.title, row.text) for row in dataset.passages() if row.id in wanted}
    gains = np.concatenate(([0.0], rank_weights(DEPTH))) / max(1, len(asked))
    scores, pairs = np.zeros(len(runs)), []
    for (query, document), places in sorted(ranks.items()):
        if query not in chosen or document not in texts:  # a passage outside the corpus is not relevant to any query
            continue
        p = known.get(query, {}).get(document, _UNLABELLED_PROBABILITY)
        scores += gains[places] * p
        if len(set(places)) > 1:
            pairs.append((query, document, round(p, 6), tuple(places)))
    if not pairs:
        raise DatasetError(f"{home}: the systems have the same top ten for every query of {split}: nothing to compare")
    relevant_from = int(str(dataset.info.get("relevant_from") or 2))
    sample = SystemSample(
        dataset=dataset.name,
        split=split,
        systems=tuple(runs),
        groups={name: tuple(of) for name, of in (groups or {}).items()},
        queries=len(asked),
        relevant_from=relevant_from,
        judge=tuple(scores.tolist()),
        pairs=tuple(pairs),
        shown=min(count, len(pairs)),
    )
    order = difference.draw_order(sample.frame, seed=seed)
    sample = replace(sample, pairs=tuple(pairs[at] for at in order.tolist()))
    items = [
        AuditItem(
            query=query,
            document=document,
            kind="",
            level=None,
            relevant=False,
            query_text=queries[query].text,
            title=texts[document][0],
            text=texts[document][1],
        )
        for query, document, _, _ in sample.pairs[:count]
    ]
    note = (
        f"{len(sample.systems)} systems are compared ({', '.join(sample.systems)}). You see documents that they rank "
        f"differently, but not which system found them. Please answer in this order; you may stop after any "
        f"{BATCH} pairs."
    )
    out.mkdir(parents=True, exist_ok=True)
    keep_earlier(out, sample.key)
    title = f"{sample.dataset} {split}: {' or '.join(sample.systems) if len(sample.systems) == 2 else 'systems'}"
    write_text(out / "audit.html", question_page(title, sample.key, items, note=note, batch=BATCH))
    write_json(out / "sample.json", {"format": FORMAT, "key": sample.key, **asdict(sample)}, indent=None)
    return sample


def _probabilities(dataset: BeirDataset, split: str, judge: Path | None) -> dict[str, dict[str, float]]:
    """Return {query: {document: the judge's probability}} for all known pairs."""
    soft = dataset.path / "qrels-soft" / f"{split}.jsonl"
    path = judge or (soft if soft.is_file() else None)
    if path is None:
        labels = dataset.qrels(split).labels
        return {query: {id_: _LABEL[label > 0] for id_, label in row.items()} for query, row in labels.items()}
    probabilities = {query: dict(row) for query, row in read_qrels(path).labels.items()}
    for query, row in probabilities.items():
        for document, p in row.items():
            if not 0 <= p <= 1:
                raise DatasetError(f"{path}: {query!r}, {document!r}: {p:g} is not a probability between 0 and 1")
    return probabilities


def load_system_sample(path: Path) -> SystemSample:
    """Load the sample. Raises DatasetError if the file is missing or not a sample of systems."""
    advice = "draw one with `airgen audit systems` without --answers"
    sample = read_kept(SystemSample, path, "sample of airgen audit systems", advice)
    if read_json(path).get("key") != sample.key:
        raise DatasetError(f"{path}: not a sample of airgen audit systems, or it was changed: {advice}")
    return sample


def score_systems(folder: Path, answers: Sequence[Path], *, margin: float | None = None) -> SystemAudit:
    """Score the answers to the sample in `folder`; the result is also in its `result.json`.

    `margin` is a difference in mean DCG@10 that is too small to matter, by default 5% of the best system's according to
    the judge. Raises DatasetError if the answers are to another sample.
    """
    sample = load_system_sample(folder / "sample.json")
    for path in answers:
        key = key_in(path)
        if key != sample.key and (place := folder / EARLIER / key / "sample.json").is_file():
            raise DatasetError(f"{path}: answers to an earlier sample: score them with --out {place.parent}")
    people = [read_answers(path, sample.key, sample.shown).answers for path in answers]
    labels, later = _labels(sample, people)
    frame, order, names = sample.frame, np.arange(len(sample.pairs)), sample.systems
    judge = np.array(sample.judge)
    smallest = _DEFAULT_MARGIN_SHARE * float(judge.max()) if margin is None else margin
    couples = list(itertools.combinations(range(len(names)), 2))
    contrasts = np.zeros((len(couples), len(names)))
    for row, (first, second) in enumerate(couples):
        contrasts[row, [first, second]] = 1, -1
    decided = difference.decide(frame, order, labels, contrasts, margin=smallest)
    decisions = {
        (names[first], names[second]): decision for (first, second), decision in zip(couples, decided, strict=True)
    }
    steps = difference.looks(len(labels), len(sample.pairs))
    ranking: list[CorrectedSystem] = []
    favoured: list[Favour] = []
    if steps:
        counted = labels[: steps[-1]]
        known = np.where(np.isnan(counted), frame.probability[: len(counted)], counted)
        estimate = difference.estimate(frame, order, known)
        ranking = difference.corrected(names, estimate, judge)
        favoured = difference.favours(names, sample.groups, estimate)
    same = [
        (level >= sample.relevant_from, other_level >= sample.relevant_from)
        for person, other in itertools.combinations(people, 2)
        for at, level in sorted(person.items())
        if level is not None and (other_level := other.get(at)) is not None
    ]
    twice = np.array(same, dtype=bool).reshape(-1, 2).T
    result = SystemAudit(
        dataset=sample.dataset,
        split=sample.split,
        queries=sample.queries,
        people=len(people),
        answers=len(labels),
        later=later,
        unclear=int(np.isnan(labels).sum()),
        twice=len(same),
        kappa=kappa(*twice) if same else math.nan,
        decisions=decisions,
        ranking=ranking,
        favours=favoured,
    )
    write_json(folder / "result.json", result)
    return result


def _labels(sample: SystemSample, people: Sequence[Levels]) -> tuple[Floats, int]:
    """Return the labels of the pairs before the first unanswered one, with NaN for unclear ones, and the number of
    later ones."""
    labels: list[float] = []
    answered = set().union(*people)
    for number in range(1, sample.shown + 1):
        if number not in answered:
            break
        levels = [level for person in people if (level := person.get(number)) is not None]
        labels.append(float(np.mean([level >= sample.relevant_from for level in levels])) if levels else math.nan)
    return np.array(labels), len(answered) - len(labels)


_RUN = ".run.gz"


def find_runs(results: Path, wanted: Sequence[str]) -> dict[str, Path]:
    """Return {system: run file}.

    `wanted` lists system names or run files; if it is empty, all systems in the results are returned.

    Raises UsageError for an unknown system.
    """
    known = {path.name.removesuffix(_RUN): path for path in sorted(results.glob(f"*{_RUN}"))}
    if not wanted:
        if len(known) < 2:
            raise UsageError(
                f"{results}: at least two systems are needed, but there are only {len(known)}: evaluate more with "
                f"`airgen evaluate`, or name run files"
            )
        return known
    runs: dict[str, Path] = {}
    if not known and not any(Path(name).is_file() for name in wanted):
        raise UsageError(
            f"{results}: there are no results: run `airgen evaluate DATASET --split {results.name}` with these systems "
            "first, or name run files"
        )
    for name in wanted:
        path = Path(name)
        if name not in known and not path.is_file():
            raise UsageError(f"{name!r} is neither a system of {results} nor a run file{closest(name, list(known))}")
        key = name if name in known else path.name.removesuffix(".gz").removesuffix(".run").removesuffix(".trec")
        if key in runs:
            raise UsageError(f"two systems are named {key!r}: rename a run file")
        runs[key] = known.get(name, path)
    return runs


def groups_of(results: Path, names: Collection[str]) -> dict[str, tuple[str, ...]]:
    """Return the systems that a judge might favour, by group, from their results. A run file is not in any group.

    Groups are families (lexical, dense, sparse, late, or hybrid for a system that builds on others), and systems that
    share a model, or a kind such as bm25, with the models that made the dataset's labels.
    """
    groups: dict[str, tuple[str, ...]] = {}
    sharing: tuple[str, ...] = ()
    for name in names:
        try:
            result = read_json(Paths.of(results, name).json)
        except DAMAGE:
            continue
        kind = str(result.get("kind") or "")
        module = REGISTRY["retriever"].get(kind, "").partition("airgen.retrievers.")[2]
        family = "hybrid" if kind in ("fuse", "rerank") else module.split(".")[0]
        if family and family != "http":
            groups[family] = (*groups.get(family, ()), name)
        sharing += (name,) if result.get("made_labels") else ()
    return {**groups, "systems that share its models": sharing} if sharing else groups


_MOST_PRINTED_DECISIONS = 20  # decisions that are printed individually
_RANKING = (
    Column("#", lambda row: row[0]),
    Column("system", lambda row: row[1].name, left=True),
    Column("DCG@10", lambda row: row[1].score, ".3f"),
    Column("rank", lambda row: (row[1].low, row[1].high)),
    Column("by the judge", lambda row: row[1].judge, ".3f"),
    Column("by people", lambda row: row[1].people, ".3f"),
    Column("±", lambda row: 1.96 * row[1].error, ".3f"),
)
_FAVOURS = (
    Column("does the judge favour", lambda row: row.group),
    Column("DCG@10", lambda row: row.value, "+.3f"),
    Column("95 %", lambda row: (row.low, row.high), "+.3f"),
    Column("p, Holm", lambda row: row.p, P),
)


def audit_text(audit: SystemAudit) -> str:
    """Return the text for a terminal: the verdicts, the corrected ranking, and whether the judge favours a family."""
    people = "1 person" if audit.people == 1 else f"{audit.people} people"
    lines = [f"{audit.dataset} {audit.split}: {audit.answers} pairs answered by {people}, {audit.queries} queries"]
    if audit.later:
        lines.append(
            f"{audit.later} answers are not counted, as an earlier pair has no answer: answer it and run this again."
        )
    if audit.unclear:
        lines.append(f"{audit.unclear} pairs could not be judged: the intervals allow for either answer.")
    if audit.twice:
        lines.append(
            f"kappa of two people {figure(audit.kappa, '.2f', 'undefined')} on {audit.twice} pairs; a pair with "
            "several answers has their mean"
        )
    decided = {pair: decision for pair, decision in audit.decisions.items() if decision.verdict != "open"}
    if len(audit.decisions) > _MOST_PRINTED_DECISIONS:
        lines.append(f"{len(decided)} of {len(audit.decisions)} pairs of systems are decided:")
    shown = audit.decisions if len(audit.decisions) <= _MOST_PRINTED_DECISIONS else decided
    lines += [decision_text(first, second, decision) for (first, second), decision in shown.items()]
    if any(decision.answers for decision in audit.decisions.values()):
        lines.append(
            f"(mean DCG@10 over these {audit.queries} queries, 95 % at all looks together; `airgen evaluate compare` "
            "says what other queries would change)"
        )
    if len(audit.ranking) > 2:
        rows = list(enumerate(audit.ranking, 1))
        lines += [
            "",
            "corrected by people's answers, shrunk towards the judge:",
            Table(rows, _RANKING).text(),
        ]
    if audit.favours:
        lines += ["", Table(audit.favours, _FAVOURS).text()]
    return "\n".join(lines)


def decision_text(first: str, second: str, decision: PairDecision) -> str:
    """Return a comparison on one line."""
    if not decision.answers:
        return f"{first}, {second}: no batch is complete: {decision.more} more answers are needed"
    if decision.low == decision.high == 0:
        return f"{first} and {second} do not differ: people's answers change nothing"
    interval, judge = f"{decision.low:+.3f} to {decision.high:+.3f}", f"the judge alone says {decision.judge:+.3f}"
    if decision.verdict == "equal":
        return (
            f"{first} and {second} differ by less than {decision.bound:.3f} ({interval}; margin "
            f"{decision.margin:.3f}; {judge})"
        )
    if decision.verdict == "open":
        far = "" if math.isinf(decision.bound) else f" They differ by less than {decision.bound:.3f}."
        return (
            f"{first}, {second}: your {decision.answers} labels cannot decide this yet; about {decision.more} "
            f"more are needed.{far} ({interval}; {judge})"
        )
    better, worse = (first, second) if decision.verdict == "first" else (second, first)
    return (
        f"{better} is better than {worse} by {abs(decision.value):.3f}, known after {decision.decided_at} answers "
        f"({first} less {second}: {interval}; {judge})"
    )
