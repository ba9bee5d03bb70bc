"""The combined judge: one probability of relevance from the LLM's "Yes", the recall and the re-rankers.

    judge = load_combination("small")                          # or a JSON file of `airgen calibrate combined --save`
    judge.probability(id_, recall, prelabels, llm)             # in (0, 1); None where a feature is missing

The judge is a logistic regression over a few features, fitted on human labels. No feature but the LLM's has the scale
of a single system: they are votes and scores standardised within the query, averaged over systems. So few labels are
enough, and other re-rankers may take part. The LLM's weight belongs to one prompt and model; others are refused.
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

from airgen.errors import SettingsError
from airgen.keys import fingerprint
from airgen.pipeline.control.judge_kinds import level_of_probability
from airgen.records import Judgment, Prelabel, Recall
from airgen.registry import closest

__all__ = ["FEATURES", "Combination", "features", "load_combination", "shipped"]

FORMAT = 1
FEATURES = ("llm", "scores", "votes")
REFERENCE = 100  # passages, the first recalled, that scores are standardised on and ranks counted in
VOTE = 10  # a system votes for the documents that it ranks before this place (the paper's threshold, A.3)
_MARGIN = 1e-4  # probabilities are kept this far from 0 and 1, so that one certain judge cannot outweigh the rest


@dataclass(frozen=True)
class Combination:
    """Weights by feature, an intercept, and the probability from which a pair is relevant.

    `judge` identifies the LLM judge behind the feature `llm`: model, prompt, fingerprint of the prompt. It is empty
    where that feature has no weight. `notes` tell people what the weights were fitted on. `profiles` are other
    thresholds, by what the labels are for.
    """

    name: str
    weights: Mapping[str, float]
    intercept: float
    threshold: float
    judge: Mapping[str, str] = field(default_factory=dict)
    notes: Mapping[str, str] = field(default_factory=dict)
    profiles: Mapping[str, float] = field(default_factory=dict)

    def for_profile(self, name: str) -> Combination:
        """The same judge with the threshold of one of its profiles. Raises SettingsError for an unknown one."""
        if name not in self.profiles:
            advice = closest(name, list(self.profiles))
            raise SettingsError([f"control.judge.profile: the calibration {self.name} has no profile {name!r}{advice}"])
        return replace(self, threshold=self.profiles[name])

    @property
    def fingerprint(self) -> str:
        """A hash of everything that changes a probability or a decision: not of name, notes and profiles."""
        return fingerprint(
            weights=dict(self.weights), intercept=self.intercept, threshold=self.threshold, judge=dict(self.judge)
        )

    def probability(self, id_: str, recall: Recall, prelabels: Sequence[Prelabel], llm: float | None) -> float | None:
        """P(relevant) of one document, in (0, 1); None where it was not recalled, or the LLM's probability is missing.

        `llm` is the LLM's probability of Yes.
        """
        values = features(id_, recall, prelabels, llm)
        if any(name not in values for name in self.weights):
            return None
        total = self.intercept + math.fsum(weight * values[name] for name, weight in self.weights.items())
        return 1 / (1 + math.exp(-max(-700.0, min(700.0, total))))

    def judged(self, found: Judgment, recall: Recall | None, prelabels: Sequence[Prelabel]) -> Judgment:
        """The LLM's judgment with this judge's probability and level; unchanged where a feature is missing."""
        if recall is None:
            return found
        probability = self.probability(found.id, recall, prelabels, found.probability)
        if probability is None:
            return found
        level = level_of_probability(probability, self.threshold)
        return replace(found, level=level, probability=round(probability, 6))

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
            "weights": dict(self.weights),
            "intercept": self.intercept,
            "threshold": self.threshold,
            "profiles": dict(self.profiles),
            "judge": dict(self.judge),
            "notes": dict(self.notes),
        }


def features(id_: str, recall: Recall, prelabels: Sequence[Prelabel], llm: float | None) -> dict[str, float]:
    """The features of one document that are known, by name.

    llm: the logit of the LLM's probability of Yes. scores: its score, standardised on the first recalled passages,
    averaged over the recall model and the re-rankers. votes: the share of them that rank it within the first ten.
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
            standard.append((mine - float(reference.mean())) / (float(reference.std()) or 1.0))
            votes.append(float((reference > mine).sum() < VOTE))
        found |= {"scores": math.fsum(standard) / len(lists), "votes": math.fsum(votes) / len(lists)}
    return found


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
        weights = {str(key): float(weight) for key, weight in value["weights"].items()}
        if unknown := sorted(set(weights) - set(FEATURES)):
            raise SettingsError([f"{where}: unknown feature {unknown[0]!r}{closest(unknown[0], list(FEATURES))}"])
        profiles = {str(key): float(cut) for key, cut in value.get("profiles", {}).items()}
        intercept, threshold = float(value["intercept"]), float(value["threshold"])
        sound = all(map(math.isfinite, [*weights.values(), intercept]))
        if not sound or not all(0 < cut < 1 for cut in (threshold, *profiles.values())):
            raise SettingsError([f"{where}: wants finite weights, and thresholds between 0 and 1"])
        judge, notes = dict(value["judge"]), dict(value.get("notes", {}))
    except OSError as error:
        raise SettingsError([f"{where}: {error.strerror}{closest(name, shipped())}"]) from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise SettingsError([f"{where}: not a calibration of airgen ({error})"]) from error
    return Combination(name, weights, intercept, threshold, judge, notes, profiles)
