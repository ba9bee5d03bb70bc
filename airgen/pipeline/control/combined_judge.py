"""The combined judge: one probability of relevance from the LLM's "Yes", the recall and the re-rankers.

    judge = load_combination("small")                          # or a JSON file of `airgen calibrate combined --save`
    judge.probability(id_, recall, prelabels, llm)             # in (0, 1); None where a feature is missing

The judge is a logistic regression over a few features, fitted on human labels. No feature but the LLM's has the scale
of a single system: they are votes and scores standardised within the query, averaged over systems. So few labels are
enough, and other re-rankers may take part. The LLM's weight belongs to one prompt and model; others are refused.

A judge may also weigh how similar a document is to the source of the query. The source itself cannot be judged so, nor
can the passages of a user's own query, which has no source: for these it has weights without that feature
(`sourceless`).
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from airgen.errors import SettingsError
from airgen.keys import fingerprint
from airgen.pipeline.control.judge_kinds import level_of_probability
from airgen.records import Judgment, Prelabel, Recall, SourceLikeness
from airgen.registry import closest

__all__ = ["BY_RERANKERS", "FEATURES", "SOURCE", "Combination", "features", "load_combination", "shipped"]

FORMAT = 1
FEATURES = ("llm", "scores", "votes", "source")
SOURCE = FEATURES[-1]
BY_RERANKERS = ("scores", "votes")  # the features that need neither an LLM nor a source
REFERENCE = 100  # passages, the first recalled, that scores are standardised on and ranks counted in
VOTE = 10  # a system votes for the documents that it ranks before this place (the paper's threshold, A.3)
_MARGIN = 1e-4  # probabilities are kept this far from 0 and 1, so that one certain judge cannot outweigh the rest


@dataclass(frozen=True)
class Combination:
    """Weights by feature, an intercept, and the probability from which a pair is relevant.

    `judge` identifies the LLM judge behind the feature `llm`: model, prompt, fingerprint of the prompt. It is empty
    where that feature has no weight. `notes` tell people what the weights were fitted on. `profiles` are other
    thresholds, by what the labels are for. `sourceless` decides about documents whose likeness to a source is unknown.
    """

    name: str
    weights: Mapping[str, float]
    intercept: float
    threshold: float
    judge: Mapping[str, str] = field(default_factory=dict)
    notes: Mapping[str, str] = field(default_factory=dict)
    profiles: Mapping[str, float] = field(default_factory=dict)
    sourceless: Combination | None = None

    @property
    def weighs_source(self) -> bool:
        """Whether it needs to know how similar documents are to the source of their query."""
        return SOURCE in self.weights

    def without_source(self) -> Combination:
        """The judge that decides where nothing is known of likeness to a source: itself, if it does not weigh it."""
        rest = self.sourceless
        return self if rest is None else replace(rest, judge=self.judge, notes=self.notes)

    def with_threshold(self, threshold: float) -> Combination:
        """The same judge with another threshold, for all documents."""
        rest = None if self.sourceless is None else self.sourceless.with_threshold(threshold)
        return replace(self, threshold=threshold, sourceless=rest)

    def for_profile(self, name: str) -> Combination:
        """The same judge with the threshold of one of its profiles. Raises SettingsError for an unknown one."""
        if name not in self.profiles:
            advice = closest(name, list(self.profiles))
            raise SettingsError([f"control.judge.profile: the calibration {self.name} has no profile {name!r}{advice}"])
        rest = None if self.sourceless is None else self.sourceless.for_profile(name)
        return replace(self, threshold=self.profiles[name], sourceless=rest)

    @property
    def fingerprint(self) -> str:
        """A hash of everything that changes a probability or a decision: not of name, notes and profiles."""
        rest = {} if self.sourceless is None else {"sourceless": self.sourceless.fingerprint}
        return fingerprint(
            weights=dict(self.weights), intercept=self.intercept, threshold=self.threshold, judge=dict(self.judge),
            **rest,
        )  # fmt: skip

    def probability(
        self,
        id_: str,
        recall: Recall,
        prelabels: Sequence[Prelabel],
        llm: float | None,
        likeness: SourceLikeness | None = None,
    ) -> float | None:
        """P(relevant) of one document, in (0, 1); None where it was not recalled, or the LLM's probability is missing.

        `llm` is the LLM's probability of Yes.
        """
        found = self._weighed(features(id_, recall, prelabels, llm, likeness))
        return None if found is None else found[0]

    def judged(
        self,
        found: Judgment,
        recall: Recall | None,
        prelabels: Sequence[Prelabel],
        likeness: SourceLikeness | None = None,
    ) -> Judgment:
        """The LLM's judgment with this judge's probability and level; unchanged where a feature is missing."""
        if recall is None:
            return found
        weighed = self._weighed(features(found.id, recall, prelabels, found.probability, likeness))
        if weighed is None:
            return found
        probability, threshold = weighed
        return replace(found, level=level_of_probability(probability, threshold), probability=round(probability, 6))

    def _weighed(self, values: Mapping[str, float]) -> tuple[float, float] | None:
        """The probability and the threshold that it is cut at; None where a feature is missing."""
        if any(name not in values for name in self.weights):
            return None if self.sourceless is None else self.sourceless._weighed(values)
        total = self.intercept + math.fsum(weight * values[name] for name, weight in self.weights.items())
        return 1 / (1 + math.exp(-max(-700.0, min(700.0, total)))), self.threshold

    def check(self, judge: Mapping[str, str]) -> None:
        """Raises SettingsError unless the pipeline's judge is the one that the weights were fitted with."""
        if self.judge and dict(judge) != dict(self.judge):
            mine, theirs = (", ".join(f"{key} {value}" for key, value in one.items()) for one in (self.judge, judge))
            raise SettingsError(
                [
                    f"control.judge.calibration: {self.name} was fitted for the judge of {mine}, "
                    f"not of {theirs or 'another kind'}: fit one with `airgen calibrate combined ... --save FILE`"
                ]
            )

    def as_dict(self) -> dict[str, Any]:
        """What `load_combination` reads."""
        return {
            "format": FORMAT,
            **self.cut,
            **({} if self.sourceless is None else {"sourceless": self.sourceless.cut}),
            "judge": dict(self.judge),
            "notes": dict(self.notes),
        }

    @property
    def cut(self) -> dict[str, Any]:
        """What turns features into a decision."""
        numbers = {"weights": dict(self.weights), "intercept": self.intercept, "threshold": self.threshold}
        return {**numbers, "profiles": dict(self.profiles)}


def features(
    id_: str, recall: Recall, prelabels: Sequence[Prelabel], llm: float | None, likeness: SourceLikeness | None = None
) -> dict[str, float]:
    """The features of one document that are known, by name.

    llm: the logit of the LLM's probability of Yes. scores: its score, standardised on the first recalled passages,
    averaged over the recall model and the re-rankers. votes: the share of them that rank it within the first ten.
    source: its likeness to the query's source, standardised on the first recalled passages that are no source.
    """
    found: dict[str, float] = {}
    if llm is not None:
        kept = min(max(llm, _MARGIN), 1 - _MARGIN)
        found["llm"] = math.log(kept / (1 - kept))
    lists = [(recall.ids, recall.scores), *((row.ids, row.scores) for row in prelabels)]
    if id_ in recall.ids and all(id_ in ids for ids, _ in lists):
        standard, votes = [], []
        for ids, scores in lists:
            mine, reference = scores[ids.index(id_)], np.asarray(scores[:REFERENCE], np.float64)
            standard.append(_standard(mine, reference))
            votes.append(float((reference > mine).sum() < VOTE))
        found |= {"scores": math.fsum(standard) / len(lists), "votes": math.fsum(votes) / len(lists)}
    if likeness is not None and id_ in likeness.ids and id_ not in likeness.sources:
        like = dict(zip(likeness.ids, likeness.scores, strict=True))
        others = [score for one, score in like.items() if one not in likeness.sources]
        found["source"] = _standard(like[id_], np.asarray(others[:REFERENCE], np.float64))
    return found


def _standard(mine: float, reference: NDArray[np.float64]) -> float:
    return (mine - float(reference.mean())) / (float(reference.std()) or 1.0)


def shipped() -> list[str]:
    """The names of the combinations that come with airgen."""
    folder = resources.files("airgen.pipeline.control") / "calibrations"
    return sorted(file.name.removesuffix(".json") for file in folder.iterdir() if file.name.endswith(".json"))


def load_combination(name: str, beside: Path = Path()) -> Combination:
    """A shipped combination, or a JSON file (its path starts at `beside`). Raises SettingsError."""
    where = f"control.judge.calibration: {name}"
    try:
        if name in shipped():
            text = (resources.files("airgen.pipeline.control") / "calibrations" / f"{name}.json").read_text(
                encoding="utf-8"
            )
        else:
            text = (beside / name).read_text(encoding="utf-8")
        value = json.loads(text)
        if value["format"] != FORMAT:
            raise SettingsError([f"{where}: has format {value['format']!r}, this airgen reads {FORMAT}"])
        rest = value.get("sourceless")
        sourceless = None if rest is None else _read(name, rest, where, FEATURES[:-1])
        found = replace(
            _read(name, value, where, FEATURES),
            judge=dict(value["judge"]), notes=dict(value.get("notes", {})), sourceless=sourceless,
        )  # fmt: skip
        if found.weighs_source and sourceless is None:
            raise SettingsError([f"{where}: weighs {SOURCE!r}, so it needs `sourceless`: fit it with --source"])
    except OSError as error:
        raise SettingsError([f"{where}: {error.strerror}{closest(name, shipped())}"]) from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise SettingsError([f"{where}: not a calibration of airgen ({error})"]) from error
    return found


def _read(name: str, value: Mapping[str, Any], where: str, known: Sequence[str]) -> Combination:
    weights = {str(key): float(weight) for key, weight in value["weights"].items()}
    if unknown := sorted(set(weights) - set(known)):
        raise SettingsError([f"{where}: unknown feature {unknown[0]!r}{closest(unknown[0], list(known))}"])
    profiles = {str(key): float(cut) for key, cut in value.get("profiles", {}).items()}
    intercept, threshold = float(value["intercept"]), float(value["threshold"])
    sound = all(map(math.isfinite, [*weights.values(), intercept]))
    if not sound or not all(0 < cut < 1 for cut in (threshold, *profiles.values())):
        raise SettingsError([f"{where}: wants finite weights, and thresholds between 0 and 1"])
    return Combination(name, weights, intercept, threshold, profiles=profiles)
