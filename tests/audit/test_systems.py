"""`airgen audit systems`: what is drawn, what people see, which answers count, and what is said of them."""

import gzip
import json
import re
from pathlib import Path
from typing import Any

import pytest
from beir_folder import write_beir, write_rows
from command_line import call

from airgen.audit.differing_systems import (
    SystemSample,
    audit_text,
    draw_systems,
    find_runs,
    groups_of,
    load_system_sample,
    score_systems,
)
from airgen.errors import DatasetError, UsageError

QUERIES, DOCUMENTS = 30, 12
"""Documents d0 to d3 of a query are relevant. `good` ranks them first, `bad` last, `same` as `good`."""


@pytest.fixture
def world(tmp_path: Path) -> Path:
    corpus = [{"_id": f"q{q}d{d}", "title": "", "text": f"text {d} of {q} <b>"} for q in range(QUERIES)
              for d in range(DOCUMENTS)]  # fmt: skip
    queries = [{"_id": f"q{q}", "text": f"query {q}"} for q in range(QUERIES)]
    # The judge is right about two of the four, and says nothing of the rest.
    labels = [(f"q{q}", f"q{q}d{d}", int(d < 2)) for q in range(QUERIES) for d in (0, 1, 6)]
    write_beir(tmp_path / "little", corpus, queries, {"test": labels})
    results = tmp_path / "results" / "little" / "test"
    results.mkdir(parents=True)
    for name, order in {"good": range(DOCUMENTS), "bad": reversed(range(DOCUMENTS)), "same": range(DOCUMENTS)}.items():
        order = list(order)
        text = "".join(
            f"q{q} Q0 q{q}d{d} {rank + 1} {100 - rank} x\n" for q in range(QUERIES) for rank, d in enumerate(order)
        )
        with gzip.open(results / f"{name}.run.gz", "wt") as stream:
            stream.write(text)
        kind = {"good": "dense", "bad": "bm25", "same": "fuse"}[name]
        makers = [] if name == "bad" else ["minilm"]
        (results / f"{name}.json").write_text(json.dumps({"kind": kind, "made_labels": makers}))
    return tmp_path


def runs(world: Path, *names: str) -> dict[str, Path]:
    return find_runs(world / "results" / "little" / "test", names)


def drawn(world: Path, count: int, *names: str, **options: Any) -> SystemSample:
    """The sample of a comparison, by default of `good` and `bad`, in the folder `audit`."""
    names = names or ("good", "bad")
    return draw_systems(world / "little", "test", runs(world, *names), count, world / "audit", **options)


def person(folder: Path, count: int, *, change: dict[int, int | None] | None = None, name: str = "answers") -> Path:
    """The answers of a person who knows which documents are relevant."""
    sample = json.loads((folder / "sample.json").read_text())
    levels: dict[str, int | None] = {}
    for number, (_, document, _, _) in enumerate(sample["pairs"][:count], 1):
        levels[str(number)] = 3 if int(document.split("d")[1]) < 4 else 0
    for number, level in (change or {}).items():
        levels[str(number)] = level
    path = folder / f"{name}.json"
    path.write_text(json.dumps({"key": sample["key"], "answers": {k: v for k, v in levels.items() if v != -1}}))
    return path


def test_the_page_says_what_is_compared_but_not_who_found_the_document(world: Path) -> None:
    sample = drawn(world, 40)
    page = (world / "audit" / "audit.html").read_text()
    data = json.loads(re.findall(r'id="data">(.*?)</script>', page)[0])
    assert [set(item) for item in data["items"]] == [{"query", "title", "text", "source"}] * 40
    assert data["batch"] == 25 and "good, bad" in page and "0.85" not in page
    assert "<b>" not in page.replace("<body>", "")
    # The order tells nothing: both kinds of documents come early.
    first = [sample.pairs[at][3] for at in range(25)]
    assert {ranks[0] < ranks[1] for ranks in first} == {True, False}
    assert all(one != other for _, _, _, (one, other) in sample.pairs)
    assert load_system_sample(world / "audit" / "sample.json") == sample


def test_a_clear_difference_is_decided_and_all_labels_give_it_exactly(world: Path) -> None:
    out, total = world / "audit", len(drawn(world, 10**6).pairs)
    (decision,) = score_systems(out, [person(out, 50)]).decisions.values()
    assert decision.verdict == "first" and decision.decided_at in (25, 50) and decision.answers == 50
    (decision,) = score_systems(out, [person(out, total)]).decisions.values()
    # Ranks 1 to 4 against 9 and 10; the two at ranks 11 and 12 are below the top ten.
    gains = [1.0, 0.6309297535714575, 0.5, 0.43067655807339306, 0.30102999566398114, 0.2890648263178879]
    assert decision.value == pytest.approx(sum(gains[:4]) - sum(gains[4:]), abs=1e-9)
    assert decision.low == decision.high == decision.value
    value = json.loads((out / "result.json").read_text())
    assert value["pairs"][0]["verdict"] == "first" and value["kappa"] is None


def test_more_pairs_go_on_with_the_same_order(world: Path) -> None:
    out = world / "audit"
    drawn(world, 30)
    answers, page = person(out, 25), (out / "audit.html").read_text()
    drawn(world, 60)
    assert len((out / "audit.html").read_text()) > len(page)
    assert score_systems(out, [answers]).answers == 25
    drawn(world, 60, seed=1)
    with pytest.raises(DatasetError, match="an earlier sample"):
        score_systems(out, [answers])


def test_answers_after_a_gap_do_not_count_and_two_people_are_combined(world: Path) -> None:
    out, sample = world / "audit", drawn(world, 60)
    one = person(out, 60, change={31: -1, 5: None}, name="one")
    found = score_systems(out, [one])
    assert (found.answers, found.later, found.unclear, found.people) == (30, 29, 1, 1)
    # The second person answers some again, fills the gap, and disagrees about the first two.
    wrong = {n: 0 if int(sample.pairs[n - 1][1].split("d")[1]) < 4 else 3 for n in (1, 2)}
    other = person(out, 10, change={31: 0, **wrong}, name="other")
    found = score_systems(out, [one, other])
    assert (found.answers, found.later, found.unclear, found.people) == (60, 0, 0, 2)
    assert found.twice == 9  # item 5 has one answer, the first person could not say
    assert 0 < found.kappa < 1


def test_a_table_of_systems_is_corrected_and_a_favoured_family_is_named(world: Path) -> None:
    names = [*runs(world)]
    groups = groups_of(world / "results" / "little" / "test", [*names, "a run file"])
    assert groups == {
        "lexical": ("bad",), "dense": ("good",), "hybrid": ("same",), "systems that share its models": ("good", "same")
    }  # fmt: skip
    judge = world / "judge.tsv"  # a judge that finds everything at the end relevant, which `bad` ranks first
    judge.write_text("".join(f"q{q}\tq{q}d{d}\t{0.9 if d > 7 else 0.1}\n" for q in range(QUERIES)
                             for d in range(DOCUMENTS)))  # fmt: skip
    drawn(world, 100, *names, groups=groups, judge=judge)
    found = score_systems(world / "audit", [person(world / "audit", 100)])
    assert found.decisions["bad", "good"].verdict == "second" and found.decisions["bad", "good"].judge > 1
    assert found.decisions["good", "same"].verdict == "equal"
    assert "good and same do not differ" in audit_text(found)
    assert [row.name for row in found.ranking] == ["good", "same", "bad"]
    assert [(row.low, row.high) for row in found.ranking] == [(1, 2), (1, 2), (3, 3)]
    lexical = next(row for row in found.favours if row.group == "lexical")
    assert lexical.low > 0 and lexical.p < 0.01 and lexical.systems == ("bad",)


def test_soft_labels_are_the_judge(world: Path) -> None:
    soft = world / "little" / "qrels-soft"
    soft.mkdir()
    rows = [{"query-id": "q0", "corpus-id": f"q0d{d}", "score": 0.25} for d in range(DOCUMENTS)]
    write_rows(soft / "test.jsonl", rows)
    sample = drawn(world, 25)
    assert sample.queries == 1 and {p for _, _, p, _ in sample.pairs} == {0.25}
    write_rows(soft / "test.jsonl", [{**rows[0], "score": 2}])
    with pytest.raises(DatasetError, match="not a probability"):
        drawn(world, 25)


def test_what_cannot_be_compared(world: Path, tmp_path: Path) -> None:
    for names, error, words in (
        (("god", "bad"), UsageError, r"'god' is neither.*did you mean 'good'"),
        (("good", "same"), DatasetError, "same top ten"),
        (("good",), UsageError, "a single system"),
    ):
        with pytest.raises(error, match=words):
            drawn(world, 25, *names)
    with pytest.raises(UsageError, match="at least two systems are needed, but there are only 0"):
        find_runs(tmp_path, [])
    with pytest.raises(UsageError, match="dev: there are no results: run `airgen evaluate DATASET --split dev` with"):
        find_runs(tmp_path / "dev", ["good", "bad"])
    with pytest.raises(DatasetError, match="no sample"):
        score_systems(world / "nowhere", [])
    drawn(world, 25)
    path = world / "audit" / "sample.json"
    value = json.loads(path.read_text())
    value["pairs"][0][3] = [99, 1]
    for damage in (json.dumps(value), '{"format": 1}', "[]", "{", '{"format": 7, "key": "x"}'):
        path.write_text(damage)
        with pytest.raises(DatasetError, match=r"sample.json: not a sample"):
            load_system_sample(path)


def test_the_command(world: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(world)

    text = call("audit", "systems", "little", "good", "bad")
    assert "of 360 pairs" in text and "--answers audit-answers.json" in text
    folder = world / "results" / "little" / "test" / "audit-good-bad"
    path = person(folder, 100)
    text = call("audit", "systems", "little", "good", "bad", "--answers", str(path))
    assert re.search(r"good is better than bad by 1\.\d{3}, known after (25|50) answers", text)
    value = json.loads(call("audit", "systems", "little", "good", "bad", "--answers", str(path), "--json"))
    assert value["pairs"][0]["verdict"] == "first" and value["measure"] == "DCG@10"
    text = call("audit", "systems", "little", "good", "bad", "--answers", str(person(folder, 10)))
    assert "15 more answers are needed" in text
    (world / "results" / "little" / "test").rename(world / "results" / "little" / "all")
    (world / "results").rename(world / "evaluation")  # where the run of a job leaves them, beside its dataset
    assert "of 360 pairs" in call("audit", "systems", "little", "good", "bad")
    with pytest.raises(UsageError, match=r"--split test: no results of it in evaluation; there are results of: all$"):
        call("audit", "systems", "little", "good", "bad", "--split", "test")
