"""The human audit: what is drawn, what the page shows and saves, and what is made of the answers."""

import csv
import io
import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airgen.errors import DatasetError
from airgen.quality.audit.page import question_page
from airgen.quality.audit.sample import (
    KINDS,
    AuditItem,
    AuditSample,
    draw,
    load_sample,
    read_answers,
    sample_csv,
    sample_json,
    score,
    wilson,
)

EVIL = '</script><script>window.hacked = 1</script><img src=x onerror="window.hacked = 2"> {{ 7 * 7 }} \u2028 & "q"'


def items(*groups: tuple[str, int | None, int]) -> list[AuditItem]:
    """So many pairs of each (kind, level)."""
    found = []
    for kind, level, count in groups:
        for number in range(count):
            name = f"{kind[:3]}{level}-{number}"
            texts = (f"query {name}", "a title", f"text of {name}")
            found.append(AuditItem(f"q-{name}", f"d-{name}", kind, level, kind in KINDS[:2], *texts))
    return found


def drawn(all_items: list[AuditItem], count: int, seed: int = 0) -> AuditSample:
    return draw(all_items, count, dataset="toy", relevant_from=2, seed=seed)


def test_every_stratum_is_drawn_from_and_small_ones_are_taken_whole() -> None:
    everything = items(
        ("positive", 3, 100), ("added positive", 2, 50), ("generated negative", None, 3), ("other", 1, 40)
    )
    sample = drawn(everything, 30)
    assert Counter(item.stratum for item in sample.items) == {
        "generated negative, not judged": 3,
        "positive, level 3": 9,
        "added positive, level 2": 9,
        "other, level 1": 9,
    }
    assert sample.populations["positive, level 3"] == 100
    again = drawn(list(reversed(everything)), 30)
    assert again == sample  # not by the order of rows
    assert drawn(everything, 30, seed=1).items != sample.items
    strata = [item.stratum for item in sample.items]
    assert strata != sorted(strata)  # the order tells nothing
    with pytest.raises(DatasetError, match="no decisions to audit"):
        drawn([], 5)


@given(st.lists(st.tuples(st.sampled_from(KINDS), st.sampled_from([None, 0, 1, 2, 3]), st.integers(1, 9)),
                min_size=1, max_size=8, unique_by=lambda group: group[:2]), st.integers(1, 40))  # fmt: skip
def test_the_sample_is_as_large_as_it_can_be(groups: list[tuple[str, int | None, int]], count: int) -> None:
    everything = items(*groups)
    sample = drawn(everything, count)
    assert len(sample.items) == min(count, len(everything))
    assert len({(item.query, item.document) for item in sample.items}) == len(sample.items)
    sizes = Counter(item.stratum for item in sample.items)
    if count >= len(groups):
        # No stratum gets more than one above another that has more to give.
        for one, other in ((a, b) for a in sizes for b in sizes):
            assert sizes[one] <= sizes[other] + 1 or sizes[other] == sample.populations[other]


def test_nothing_that_people_see_tells_the_verdict() -> None:
    sample = drawn(items(("positive", 3, 2), ("generated negative", 0, 2)), 4)
    data = json.loads(re.findall(r'id="data">(.*?)</script>', question_page("toy", sample.key, sample.items))[0])
    assert [set(item) for item in data["items"]] == [{"query", "title", "text"}] * 4
    table = list(csv.DictReader(io.StringIO(sample_csv(sample))))
    assert [row["level"] for row in table] == [""] * 4
    assert set(table[0]) == {"number", "query", "title", "text", "level"}
    hidden = json.loads(sample_json(sample))
    assert hidden["items"][0]["kind"] in KINDS
    assert "text" not in hidden["items"][0]


def test_samples_and_answers_are_read_back(tmp_path: Path) -> None:
    sample = drawn(items(("positive", 3, 3), ("other", 0, 3)), 6)
    (tmp_path / "sample.json").write_text(sample_json(sample), encoding="utf-8")
    known = load_sample(tmp_path / "sample.json")
    assert known.key == sample.key
    assert [item.stratum for item in known.items] == [item.stratum for item in sample.items]
    table = list(csv.DictReader(io.StringIO(sample_csv(sample))))
    assert [row["number"] for row in table] == ["1", "2", "3", "4", "5", "6"]
    filled = tmp_path / "people.csv"
    filled.write_text("number,query,title,text,level\n1,a,b,c,3\n2,a,b,c,\n5,a,b,c,0\n", encoding="utf-8")
    assert read_answers(filled, known) == {1: 3, 5: 0}
    saved = tmp_path / "people.json"
    saved.write_text(json.dumps({"key": sample.key, "answers": {"1": 2, "3": None}}), encoding="utf-8")
    assert read_answers(saved, known) == {1: 2, 3: None}


@pytest.mark.parametrize(
    ("text", "words"),
    [('{"key": "other", "answers": {"1": 1}}', "another sample"), ("[]", "not answers"), ("{", "not answers"),
     ('{"key": "KEY", "answers": {}}', "no answer"), ('{"key": "KEY", "answers": {"7": 1}}', "item '7'"),
     ('{"key": "KEY", "answers": {"0": 1}}', "item '0'"), ('{"key": "KEY", "answers": {"1": 4}}', "level '4'"),
     ('{"key": "KEY", "answers": {"1": "yes"}}', "level 'yes'"), ('{"key": "KEY", "answers": [1]}', "not answers")],
)  # fmt: skip
def test_answers_that_cannot_be_used(tmp_path: Path, text: str, words: str) -> None:
    sample = drawn(items(("positive", 3, 6)), 6)
    (tmp_path / "a.json").write_text(text.replace("KEY", sample.key), encoding="utf-8")
    with pytest.raises(DatasetError, match=words):
        read_answers(tmp_path / "a.json", sample)
    with pytest.raises(DatasetError, match="no sample"):
        load_sample(tmp_path / "none.json")


def test_wilsons_interval() -> None:
    # Wilson's score interval for 9 of 10: (.9 + z²/20 ± z sqrt(.09/10 + z²/400)) / (1 + z²/10), z = 1.96.
    found = wilson(9, 10)
    assert (found.share, round(found.low, 4), round(found.high, 4)) == (0.9, 0.5958, 0.9821)
    assert (round(wilson(10, 10).high, 9), round(wilson(10, 10).low, 4)) == (1.0, 0.7225)
    assert wilson(0, 10).low == 0.0


def test_agreement_by_hand() -> None:
    # 2 positives of 90 and 2 others of 10 in the sample; the judge's levels are 3 and 1.
    sample = AuditSample(
        "toy", 2, tuple(items(("positive", 3, 2), ("other", 1, 2))), {"positive, level 3": 90, "other, level 1": 10}
    )
    result = score(sample, [{1: 3, 2: 1, 3: 1, 4: 0}])
    # Of the positives one is confirmed, of the others both: .9 * .5 + .1 * 1.
    assert result.overall.share == pytest.approx(0.55)
    assert (result.overall.agreed, result.overall.count) == (3, 4)
    assert {kind: (one.agreed, one.count) for kind, one in result.by_kind.items()} == {
        "positive": (1, 2),
        "other": (2, 2),
    }
    assert {name: (one.agreed, one.count) for name, one in result.by_level.items()} == {
        "level 1": (2, 2),
        "level 3": (1, 2),
    }
    assert (result.same_level.agreed, result.same_level.count) == (2, 4)
    assert (result.people, result.agree, result.unanswered) == (1, None, 0)
    # Kish: 1 / (.9² / 2 + .1² / 2) = 2.439 pairs of equal weight: the interval is wider than that of 4.
    assert result.overall.high - result.overall.low > wilson(2, 4).high - wilson(2, 4).low


def test_two_people_and_unanswered_pairs() -> None:
    sample = AuditSample("toy", 2, tuple(items(("positive", 3, 3))), {"positive, level 3": 3})
    result = score(sample, [{1: 3, 2: 2, 3: None}, {1: 3, 2: 1}])
    assert result.agree is not None
    assert (result.agree.agreed, result.agree.count) == (1, 2)
    # Pair 2 was seen as 2 and 1: the lower median says 1, so it is not confirmed.
    assert (result.overall.agreed, result.overall.count, result.unanswered) == (1, 2, 1)
    assert "people agree with each other" in result.as_card()
    with pytest.raises(DatasetError, match="no answer"):
        score(sample, [{1: None}])


def test_the_page_holds_its_texts_as_data() -> None:
    evil = AuditItem("q", "d", "positive", 3, True, EVIL, EVIL, EVIL)
    page = question_page(f"toy {EVIL}", "key", [evil])
    blocks = re.findall(r"<script[^>]*>(.*?)</script>", page, re.DOTALL)
    assert len(blocks) == 2
    assert json.loads(blocks[0])["items"][0]["text"] == EVIL
    assert "<img" not in page and "default-src 'none'" in page


def test_the_page_works_in_a_real_browser(browse: Any, tmp_path: Path) -> None:
    texts = [("first query", "a", "one"), (EVIL, EVIL, EVIL), ("third query", "c", "three")]
    three = tuple(AuditItem(f"q{n}", f"d{n}", "positive", 3, True, *words) for n, words in enumerate(texts))
    sample = AuditSample("toy", 2, three, {"positive, level 3": 3})
    (tmp_path / "audit.html").write_text(question_page("toy", sample.key, three), encoding="utf-8")
    page = browse(tmp_path / "audit.html")
    assert page.text_content("#query") == "first query"
    page.keyboard.press("3")
    # The second item's texts are code to anybody but this page.
    assert page.text_content("#text") == EVIL
    assert page.evaluate("[typeof window.hacked, document.images.length]") == ["undefined", 0]
    page.keyboard.press("x")
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("0")  # changed his mind
    assert page.text_content("#query") == "third query"
    with page.expect_download() as saved:
        page.keyboard.press("s")
    saved.value.save_as(tmp_path / "answers.json")
    assert read_answers(tmp_path / "answers.json", sample) == {1: 3, 2: 0}
    # A reload goes on where it was, at the first pair without an answer.
    page.reload()
    assert page.text_content("#progress") == "3 of 3, 2 answered"
    # On another computer the saved file is opened; answers to another sample are not taken.
    other = browse(tmp_path / "audit.html")
    assert other.text_content("#progress") == "1 of 3, 0 answered"
    (tmp_path / "foreign.json").write_text('{"key": "another", "answers": {"1": 3}}')
    other.set_input_files("#open", tmp_path / "foreign.json")
    other.get_by_text("Not opened: these are answers to another sample").wait_for()
    other.set_input_files("#open", tmp_path / "answers.json")
    other.get_by_text("1 of 3, 2 answered").wait_for()
    assert other.get_by_role("button", name="3 relevant", exact=True).get_attribute("aria-pressed") == "true"
