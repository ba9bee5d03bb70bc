"""The combined judge: its features by hand, its file, and whom it refuses."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest

from airgen.errors import SettingsError
from airgen.pipeline.control.combined_judge import Combination, features, load_combination, shipped
from airgen.pipeline.control.judge import judge_identity
from airgen.prompts import PromptSet
from airgen.quality.judge.calibrate import default_pipeline
from airgen.quality.judge.fit import precise_cut
from airgen.records import Judgment, Prelabel, Recall, SourceLikeness


def recalled(scores: dict[str, float]) -> Recall:
    return Recall("r", "q", "f", 0, "m", list(scores), list(scores.values()))


def prelabelled(scores: dict[str, float], place: int = 0) -> Prelabel:
    return Prelabel(f"p{place}", "q", "f", place, f"m{place}", list(scores), list(scores.values()))


RECALL = recalled({"a": 3.0, "b": 2.0, "c": 1.0})
PRELABEL = prelabelled({"a": 0.0, "b": 4.0, "c": 2.0})


def test_features_by_hand() -> None:
    found = features("b", RECALL, [PRELABEL], 0.8)
    # Means 2 and 2, deviations sqrt(2/3) and sqrt(8/3): z is 0 and 2 / 1.63299.
    assert found["scores"] == pytest.approx((0 + 2 / math.sqrt(8 / 3)) / 2)
    assert found["votes"] == 1.0
    assert found["llm"] == pytest.approx(math.log(4))
    assert features("b", RECALL, [PRELABEL], 1.0)["llm"] == pytest.approx(math.log(9999))
    assert set(features("elsewhere", RECALL, [PRELABEL], 0.5)) == {"llm"}
    assert set(features("a", RECALL, [], None)) == {"scores", "votes"}
    # All scores equal: nothing stands out, and nobody is ranked above.
    assert features("x", recalled({"x": 1.0, "y": 1.0}), [], None) == {"scores": 0.0, "votes": 1.0}


def test_votes_are_of_the_first_ten() -> None:
    scores = {f"d{place:02}": float(-place) for place in range(30)}
    upside = dict(zip(scores, reversed(scores.values()), strict=True))
    votes = {id_: features(id_, recalled(scores), [prelabelled(upside)], None)["votes"] for id_ in scores}
    assert (votes["d09"], votes["d10"], votes["d19"], votes["d20"]) == (0.5, 0.0, 0.0, 0.5)


def test_only_the_first_hundred_are_the_measure() -> None:
    """A longer recall list does not change what a score means."""
    short = {f"d{place:04}": float(-place) for place in range(100)}
    long = {f"d{place:04}": float(-place) for place in range(1000)}
    assert features("d0007", recalled(short), [], None) == features("d0007", recalled(long), [], None)


def test_probability_and_judgment() -> None:
    one = Combination("t", {"llm": 1.0, "votes": 2.0}, -1.0, 0.6)
    # log(4) + 2 - 1 = 2.386: 1 / (1 + e^-2.386)
    assert one.probability("b", RECALL, [PRELABEL], 0.8) == pytest.approx(1 / (1 + math.exp(-(math.log(4) + 1))))
    judged = Judgment("k", "q", "f", 0, "b", 0, 0.8, "judge", "")
    assert one.judged(judged, RECALL, [PRELABEL]).level == 3  # .916 is past half way from .6 to 1
    assert one.judged(judged, RECALL, [PRELABEL]).probability == pytest.approx(0.915777, abs=1e-6)
    # Nothing to weigh: the LLM's word stands.
    assert one.judged(judged, None, []) is judged
    assert one.judged(Judgment("k", "q", "f", 0, "z", 2, 0.8), RECALL, [PRELABEL]).level == 2
    assert one.probability("b", RECALL, [PRELABEL], None) is None


def test_the_fingerprint_is_of_what_decides() -> None:
    one = Combination("a", {"llm": 1.0}, 0.0, 0.5, {"model": "m"}, {"on": "x"})
    assert one.fingerprint == Combination("b", {"llm": 1.0}, 0.0, 0.5, {"model": "m"}).fingerprint
    for other in (
        Combination("a", {"llm": 1.1}, 0.0, 0.5, {"model": "m"}),
        Combination("a", {"llm": 1.0}, 0.1, 0.5, {"model": "m"}),
        Combination("a", {"llm": 1.0}, 0.0, 0.6, {"model": "m"}),
        Combination("a", {"llm": 1.0}, 0.0, 0.5, {"model": "n"}),
    ):
        assert other.fingerprint != one.fingerprint


def test_another_judge_is_refused() -> None:
    one = Combination("mine", {"llm": 1.0}, 0.0, 0.5, {"model": "m", "prompt": "p", "fingerprint": "f"})
    one.check({"model": "m", "prompt": "p", "fingerprint": "f"})
    with pytest.raises(SettingsError, match=r"mine was fitted for the judge of model m, .*not of model other"):
        one.check({"model": "other", "prompt": "p", "fingerprint": "f"})
    with pytest.raises(SettingsError, match="not of another kind"):
        one.check({})
    Combination("free", {"votes": 1.0}, 0.0, 0.5).check({})


def test_files_are_read_back_and_bad_ones_say_why(tmp_path: Path) -> None:
    one = Combination(
        "own.json",
        {"llm": 1.0, "scores": 0.5},
        -0.25,
        0.4,
        {"model": "m"},
        {"fitted on": "x"},
        {"rank": 0.4, "train": 0.7},
    )
    (tmp_path / "own.json").write_text(json.dumps(one.as_dict()), encoding="utf-8")
    assert load_combination("own.json", tmp_path) == one
    for change, words in [
        ({"format": 2}, "format 2"), ({"weights": {"luck": 1}}, "unknown feature 'luck'"),
        ({"threshold": 1}, "thresholds between 0 and 1"),
        ({"profiles": {"rank": 0}}, "thresholds between 0 and 1"), ({"intercept": float("inf")}, "finite"),
        ({"weights": {"llm": "much"}}, "not a calibration"), ({"judge": 3}, "not a calibration"),
    ]:  # fmt: skip
        (tmp_path / "bad.json").write_text(json.dumps({**one.as_dict(), **change}), encoding="utf-8")
        with pytest.raises(SettingsError, match=words):
            load_combination("bad.json", tmp_path)
    (tmp_path / "bad.json").write_text("{", encoding="utf-8")
    with pytest.raises(SettingsError, match="not a calibration"):
        load_combination("bad.json", tmp_path)
    with pytest.raises(SettingsError, match="No such file"):
        load_combination("none.json", tmp_path)


def test_what_is_shipped_fits_the_prompts_that_are_shipped() -> None:
    """A changed prompt needs a new fit: this fails until there is one."""
    for name in shipped():
        found = load_combination(name)
        assert found.for_profile("rank").threshold < found.for_profile("train").threshold
        if found.judge:
            values = {"kind": "yes-no", "prompt": found.judge["prompt"]}
            base = default_pipeline()
            judge = base.control.judge.model_validate(values)
            pipeline = base.model_copy(update={"control": base.control.model_copy(update={"judge": judge})})
            found.check(judge_identity(pipeline, PromptSet()))


def test_a_profile_changes_the_threshold_alone_and_an_unknown_one_is_named() -> None:
    one = Combination("own", {"votes": 1.0}, 0.0, 0.4, profiles={"rank": 0.4, "train": 0.7})
    assert one.for_profile("rank").fingerprint == one.fingerprint
    assert one.for_profile("train").fingerprint == Combination("x", {"votes": 1.0}, 0.0, 0.7).fingerprint
    with pytest.raises(SettingsError, match=r"own has no profile 'tain' \(did you mean 'train'\?\)"):
        one.for_profile("tain")


def test_the_cut_for_training_has_nine_of_ten_right_by_weight_and_enough_pairs() -> None:
    stated = np.arange(100) / 100
    # From .57 on there are 43 pairs, 39 of them relevant; from .56 on 39 of 44, which is .886.
    assert precise_cut(stated, stated > 0.6, np.ones(100)) == 0.57
    heavy = np.where(stated > 0.6, 2.0, 1.0)  # relevant pairs count twice: 78 of 78 + 8 is .907, and of 78 + 9 .897
    assert precise_cut(stated, stated > 0.6, heavy) == 0.53
    assert precise_cut(stated, stated > 0.95, np.ones(100)) == 0.99  # of 20 pairs only four are relevant


SOURCE_LIKENESS = SourceLikeness("l", "q", "f", 0, "m", ["a"], ["a", "b", "c", "d"], [1.0, 0.5, 0.3, 0.1])


def test_likeness_to_the_source_by_hand() -> None:
    recall = recalled({"a": 3.0, "b": 2.0, "c": 1.0, "d": 0.0})
    found = features("b", recall, [], None, SOURCE_LIKENESS)
    # Without the source, the mean is .3 and the deviation sqrt((.04 + 0 + .04) / 3).
    assert found["source"] == pytest.approx(0.2 / math.sqrt(0.08 / 3))
    assert features("c", recall, [], None, SOURCE_LIKENESS)["source"] == pytest.approx(0.0)
    assert "source" not in features(
        "a", recall, [], None, SOURCE_LIKENESS
    )  # the source is like itself, which says nothing
    assert "source" not in features("b", recall, [], None)


def test_the_source_itself_is_decided_without_likeness() -> None:
    recall = recalled({"a": 3.0, "b": 2.0, "c": 1.0, "d": 0.0})
    sourceless = Combination("own", {"scores": 1.0}, 0.0, 0.3)
    judge = Combination("own", {"source": 2.0}, -1.0, 0.7, sourceless=sourceless)
    own = judge.judged(Judgment("j", "q", "f", 0, "a", 0, None, "", ""), recall, [], SOURCE_LIKENESS)
    z = 1.5 / math.sqrt(1.25)  # of the score 3 among 3, 2, 1, 0
    assert own.probability == pytest.approx(1 / (1 + math.exp(-z)), abs=1e-6) and own.level == 3
    other = judge.judged(Judgment("j", "q", "f", 0, "b", 0, None, "", ""), recall, [], SOURCE_LIKENESS)
    assert other.probability == pytest.approx(1 / (1 + math.exp(1 - 2 * 0.2 / math.sqrt(0.08 / 3))), abs=1e-6)
    assert other.level == 2  # .81 is between .7 and the middle of .7 and 1
    # A query of the user's own has no source, and nothing is like it.
    assert judge.probability("b", recall, [], None) == sourceless.probability("b", recall, [], None)
    stricter = judge.with_threshold(0.9)
    assert (stricter.threshold, stricter.sourceless) == (0.9, sourceless.with_threshold(0.9))
    assert judge.fingerprint != Combination("own", {"source": 2.0}, -1.0, 0.7).fingerprint


def test_a_calibration_with_likeness_is_read_as_it_was_written(tmp_path: Path) -> None:
    sourceless = Combination("own.json", {"scores": 1.0}, 0.0, 0.3, profiles={"rank": 0.3, "train": 0.8})
    profiles = {"rank": 0.6, "train": 0.9}
    judge = Combination("own.json", {"source": 2.0}, -1.0, 0.6, profiles=profiles, sourceless=sourceless)
    (tmp_path / "own.json").write_text(json.dumps(judge.as_dict()), encoding="utf-8")
    found = load_combination("own.json", tmp_path)
    assert found == judge and found.weighs_source
    train = found.for_profile("train")
    assert train.sourceless is not None and (train.threshold, train.sourceless.threshold) == (0.9, 0.8)
    value = judge.as_dict()
    for change, problem in (
        ({"sourceless": None}, "weighs 'source', so it needs `sourceless`"),
        ({"sourceless": {**value["sourceless"], "weights": {"source": 1.0}}}, "unknown feature 'source'"),
        ({"sourceless": []}, "not a calibration"),
    ):
        (tmp_path / "own.json").write_text(json.dumps({**value, **change}), encoding="utf-8")
        with pytest.raises(SettingsError, match=problem):
            load_combination("own.json", tmp_path)
