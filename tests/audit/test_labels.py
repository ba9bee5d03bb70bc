"""The human audit: what is drawn, what the page shows and saves, what is made of the answers, and the way of a job."""

import csv
import io
import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from beir_folder import label_rows
from command_line import call
from hypothesis import given
from hypothesis import strategies as st
from job_maker import WORDS, Run

from airgen.audit.answers import (
    Chosen,
    Proportion,
    add_answer,
    chosen_pairs,
    read_answers,
    saved_answers,
    score,
)
from airgen.audit.labels import audited_items, score_labels
from airgen.audit.sample import (
    GRADED,
    KINDS,
    QUESTION,
    AuditItem,
    AuditSample,
    draw,
    four_levels,
    load_sample,
    question_page,
    write_sample,
    yes_or_no,
)
from airgen.dataset.verify import verify
from airgen.errors import AirgenError, DatasetError, StoreError
from airgen.job import Job

EVIL = '</script><script>window.hacked = 1</script><img src=x onerror="window.hacked = 2"> {{ 7 * 7 }} \u2028 & "q"'


def items(*groups: tuple[str, int | None, int]) -> list[AuditItem]:
    """So many pairs of each (kind, level)."""
    found = []
    for kind, level, count in groups:
        for number in range(count):
            name = f"{kind[:3]}{level}-{number}"
            texts = (f"query {name}", EVIL, f"text of {name}")
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
        "generated negative, not judged": 3, "positive, level 3": 9, "added positive, level 2": 9, "other, level 1": 9
    }  # fmt: skip
    assert sample.populations["positive, level 3"] == 100
    assert drawn(list(reversed(everything)), 30) == sample  # not by the order of rows
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
    assert len(sample.items) == len({(one.query, one.document) for one in sample.items}) == min(count, len(everything))
    sizes = Counter(item.stratum for item in sample.items)
    if count >= len(groups):
        # No stratum gets more than one above another that has more to give.
        for one, other in ((a, b) for a in sizes for b in sizes):
            assert sizes[one] <= sizes[other] + 1 or sizes[other] == sample.populations[other]


def test_files_of_a_sample_show_people_no_verdict_and_are_read_back(tmp_path: Path) -> None:
    sample = drawn(items(("positive", 3, 3), ("generated negative", 0, 3)), 6)
    write_sample(sample, tmp_path)
    page = (tmp_path / "audit.html").read_text(encoding="utf-8")
    blocks = re.findall(r"<script[^>]*>(.*?)</script>", page, re.DOTALL)
    data = json.loads(blocks[0])
    assert [set(item) for item in data["items"]] == [{"query", "title", "text", "source"}] * 6
    # Texts are data, whatever they hold.
    assert len(blocks) == 2 and data["items"][0]["title"] == EVIL
    assert "<img" not in page and "default-src 'none'" in page
    table = list(csv.DictReader(io.StringIO((tmp_path / "audit.csv").read_text(encoding="utf-8-sig"))))
    assert [(row["number"], row["level"]) for row in table] == [(str(n), "") for n in range(1, 7)]
    assert list(table[0]) == ["number", "query", "title", "text", "level", "why", "sample"]
    assert "hacked" not in (tmp_path / "sample.json").read_text(encoding="utf-8")
    known = load_sample(tmp_path / "sample.json")
    assert known.key == sample.key
    assert [item.stratum for item in known.items] == [item.stratum for item in sample.items]
    filled = tmp_path / "people.csv"
    filled.write_text("number,query,title,text,level\n1,a,b,c,3\n2,a,b,c,\n5,a,b,c,0\n", encoding="utf-8")
    assert read_answers(filled, known.key, 6).answers == {1: 3, 5: 0}
    with pytest.raises(DatasetError, match="no sample"):
        load_sample(tmp_path / "none.json")


ITEMS = tuple(AuditItem(f"q{n}", f"d{n}", "positive", 3, True) for n in range(1, 5))
SAMPLE = AuditSample("toy", 2, ITEMS[:3], {"positive, level 3": 30})


def test_answers_one_by_one_are_those_to_the_sample_and_others_are_kept_apart(tmp_path: Path) -> None:
    path = tmp_path / "audit" / "audit-answers.json"
    add_answer(path, None, {"query": "q4", "document": "d4", "level": 0, "seen": False})  # before a sample is drawn
    assert saved_answers(path, SAMPLE).key == SAMPLE.key
    for number, level in ((1, 3), (2, None), (3, 0), (3, 2)):  # changed
        add_answer(path, SAMPLE, {"number": number, "level": level})
    for level in (0, 3):
        found = add_answer(path, SAMPLE, {"query": "q2", "document": "d2", "level": level, "seen": True})
    assert found == saved_answers(path, SAMPLE) == read_answers(path, SAMPLE.key, 3)
    assert (found.dataset, found.answers) == ("toy", {1: 3, 2: None, 3: 2})
    assert found.others == (Chosen("q4", "d4", 0, False), Chosen("q2", "d2", 3, True))
    others = [*found.others, Chosen("q9", "d9", 3, True), Chosen("q1", "d1", None, True)]
    assert chosen_pairs(ITEMS, others, 2) == {"pairs": 4, "confirmed": 1, "unknown": 1, "cannot say": 1}
    # An answer can be taken back.
    add_answer(path, SAMPLE, {"number": 1})
    found = add_answer(path, SAMPLE, {"query": "q4", "document": "d4"})
    assert found.answers == {2: None, 3: 2} and [one.query for one in found.others] == ["q2"]
    assert [one.name for one in path.parent.glob("[!.]*")] == ["audit-answers.json"]


@pytest.mark.parametrize(
    ("value", "words"),
    [({"number": 0, "level": 1}, "items 1 to 3"), ({"number": 4, "level": 1}, "items 1 to 3"),
     ({"number": 1, "level": 4}, "answers.1"), ({"number": 1, "level": True}, "answers.1"),
     ({"number": 1, "level": "3"}, "answers.1"), ({"number": [], "level": 1}, "not an answer"),
     ({"level": 1}, "query: Field required"), ({"query": "q", "document": 3, "level": 1}, "document"),
     ({"query": "q" * 2000, "document": "d", "level": 1}, "query")],
)  # fmt: skip
def test_an_answer_that_is_refused(tmp_path: Path, value: dict[str, Any], words: str) -> None:
    with pytest.raises(DatasetError, match=words):
        add_answer(tmp_path / "a.json", SAMPLE, value)
    assert list(tmp_path.glob("[!.]*")) == []
    (tmp_path / "audit").write_text("a file stands where the folder should be")
    with pytest.raises(AirgenError, match="audit"):
        add_answer(tmp_path / "audit" / "audit-answers.json", SAMPLE, {"number": 1, "level": 3})


@pytest.mark.parametrize(
    ("text", "words"),
    [('{"key": "other", "answers": {"1": 1}}', "another sample"), ("[]", "not answers"), ("{", "not answers"),
     ('{"key": "KEY", "answers": {"1": 4}}', "not answers"), ('{"key": "KEY", "answers": {"1": "yes"}}', "not answers"),
     ('{"key": "KEY", "answers": [1]}', "not answers"), ('{"key": "KEY", "others": [3]}', "not answers"),
     ('{"key": "KEY", "answers": {}}', "no answer"), ('{"key": "KEY", "answers": {"7": 1}}', "item 7"),
     ('{"key": "KEY", "answers": {"0": 1}}', "item 0")],
)  # fmt: skip
def test_a_file_of_answers_that_cannot_be_used_is_left_alone(tmp_path: Path, text: str, words: str) -> None:
    path, text = tmp_path / "a.json", text.replace("KEY", SAMPLE.key)
    path.write_text(text)
    with pytest.raises(DatasetError, match=words):
        read_answers(path, SAMPLE.key, 3)
    if words in ("another sample", "not answers"):
        with pytest.raises(DatasetError, match=f"{words}.*move the file away"):
            add_answer(path, SAMPLE, {"number": 1, "level": 3})
    assert path.read_text() == text
    with pytest.raises(DatasetError, match=r"b\.json: no such file; the audit's page saves it"):
        read_answers(tmp_path / "b.json", SAMPLE.key, 3)


def test_wilsons_interval() -> None:
    # Wilson's score interval for 9 of 10: (.9 + z²/20 ± z sqrt(.09/10 + z²/400)) / (1 + z²/10), z = 1.96.
    found = Proportion.of([(number > 0, 2.0) for number in range(10)])
    assert (found.agreed, found.count, found.share) == (9, 10, 0.9)
    assert (round(found.low, 4), round(found.high, 4), f"{found:.2f}") == (0.5958, 0.9821, "0.90 (0.60–0.98)")
    whole = Proportion.of([(True, 1.0)] * 10)
    assert (round(whole.high, 9), round(whole.low, 4)) == (1.0, 0.7225)
    assert Proportion.of([(False, 1.0)] * 10).low == 0.0


def test_agreement_by_hand() -> None:
    # 2 positives of 90 and 2 others of 10 in the sample; the judge's levels are 3 and 1.
    sample = AuditSample(
        "toy", 2, tuple(items(("positive", 3, 2), ("other", 1, 2))), {"positive, level 3": 90, "other, level 1": 10}
    )
    result = score(sample, [{1: 3, 2: 1, 3: 1, 4: 0}])
    # One of the positives is confirmed, and both of the others: .9 * .5 + .1 * 1.
    assert result.overall.share == pytest.approx(0.55)
    assert (result.overall.agreed, result.overall.count) == (3, 4)
    groups = {name: (one.agreed, one.count) for name, one in {**result.by_kind, **result.by_level}.items()}
    assert groups == {"positive": (1, 2), "other": (2, 2), "level 1": (2, 2), "level 3": (1, 2)}
    assert (result.same_level.agreed, result.same_level.count) == (2, 4)
    assert (result.people, result.agree, result.unanswered) == (1, None, 0)
    # Kish: 1 / (.9² / 2 + .1² / 2) = 2.439 pairs of equal weight: the interval is wider than that of 4.
    four = Proportion.of([(number % 2 == 0, 1.0) for number in range(4)])
    assert result.overall.high - result.overall.low > four.high - four.low


def test_two_people_and_unanswered_pairs() -> None:
    result = score(SAMPLE, [{1: 3, 2: 2, 3: None}, {1: 3, 2: 1}])
    assert result.agree is not None
    assert (result.agree.agreed, result.agree.count) == (1, 2)
    # Pair 2 was seen as 2 and 1: the lower median says 1, so it is not confirmed.
    assert (result.overall.agreed, result.overall.count, result.unanswered) == (1, 2, 1)
    assert "people agree with each other" in result.as_card()
    with pytest.raises(DatasetError, match="no answer"):
        score(SAMPLE, [{1: None}])


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
    assert read_answers(tmp_path / "answers.json", sample.key, 3).answers == {1: 3, 2: 0}
    # A reload continues at the first pair without an answer.
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
    other.keyboard.press("ArrowRight")
    other.keyboard.press("x")
    other.keyboard.press("x")
    assert "You are finished: save the answers" in str(other.text_content("#progress"))


@pytest.mark.parametrize(("question", "words"), [(QUESTION, "Yes: somebody who asks this"), (GRADED, "Somewhat")])
def test_a_phone_shows_the_save_button_and_what_the_answers_mean(
    browse: Any, tmp_path: Path, question: str, words: str
) -> None:
    item = AuditItem("q", "d", "positive", 3, True, "a query", "a title", "a long text " * 900)
    levels = four_levels() if question == GRADED else yes_or_no(2)
    text = question_page("toy", "k", (item,), question=question, levels=levels)
    (tmp_path / "audit.html").write_text(text, encoding="utf-8")
    page = browse(tmp_path / "audit.html")
    page.set_viewport_size({"width": 390, "height": 780})
    for place in (0, 2000, 10**6):
        page.evaluate(f"scrollTo(0, {place})")
        box = page.locator("#save").bounding_box()
        assert box["y"] >= 0 and box["y"] + box["height"] <= 780 and box["x"] + box["width"] <= 390
    assert words in page.inner_text(".meaning")


def test_a_job_from_the_sample_to_the_card(run: Run, done: Run, folder: Path) -> None:
    path, runs = folder / "job.yaml", folder / "runs"
    with pytest.raises(StoreError, match="airgen run"):
        audited_items(Job(path, runs))
    dataset, audit = done("runs", WORDS).directory / "dataset", runs / "job" / "audit"
    said = json.loads(call("audit", "sample", path, 20, "--runs", runs, "--json"))
    assert said["folder"] == str(audit) and said["pairs"] == 20
    sample = load_sample(audit / "sample.json")
    # Items name documents and queries as the dataset does.
    labels = {(row["query-id"], row["corpus-id"]): row["score"] for row in label_rows(dataset)}
    for item in sample.items:
        if item.kind in ("positive", "added positive", "generated negative"):
            assert labels[item.query, item.document] == int(item.relevant)
        else:
            assert (item.query, item.document) not in labels
    assert sum(count for name, count in sample.populations.items() if name.startswith("positive")) == 4
    given = {str(number): 3 if item.relevant else 0 for number, item in enumerate(sample.items, 1)}
    answers = folder / "answers.json"
    answers.write_text(json.dumps({"key": sample.key, "answers": given}), encoding="utf-8")
    before = {one.name: one.read_bytes() for one in dataset.glob("*.jsonl")}
    result = json.loads(call("audit", "score", path, answers, "--runs", runs, "--json"))
    assert result["overall"]["share"] == pytest.approx(1.0)
    assert verify(dataset) == []
    card = (dataset / "README.md").read_text(encoding="utf-8")
    assert "## Audit by people" in card and "No person has checked" not in card
    assert {one.name: one.read_bytes() for one in dataset.glob("*.jsonl")} == before
    assert "labels that people confirm" in call("audit", "score", path, answers, "--runs", runs)
    run("runs", {**WORDS, "pools: [bm25]": "pools: [bm25]\n  judge: {relevant_from: 1}"})
    # An answer is to a pair: what was decided otherwise since then is compared with what is decided now.
    again = score_labels(Job(path, runs), [answers], audit)
    assert again.gone + again.overall.count == 20 and 0 < again.gone < 20  # other queries have other pairs
