"""Generated passages cannot be told apart by anything but their words: a classifier over all marks stays at chance."""

import dataclasses
import json
import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from dataset_maker import make_content
from job_maker import TOPICS, make_corpus

from airgen.components.keys import rng, text_key
from airgen.corpus.cleaning.filters import normalise, normalise_line
from airgen.dataset.content import CorpusRow, QrelRow, QueryRow
from airgen.dataset.secret import Secret
from airgen.dataset.write import write_dataset
from airgen.job.export import _generated
from airgen.job.typography import HouseStyle
from airgen.publishing.withhold import MARKS, secrecy_problems
from airgen.storage.records import HardNegative, Passage

EACH = 400  # passages of each kind
SECRET = Secret(bytes(range(32)))
Text = tuple[str, str]  # title and text

CURLY = str.maketrans({'"': "“", "'": "’"})


def plain(title: str, text: str, number: int) -> Text:
    """A corpus in plain characters, with some quotes, dashes, apostrophes and abbreviations."""
    random = rng("house", number)
    words = text.split(" ")
    for share, change in (
        (0.4, lambda word: f'"{word}"'), (0.3, lambda word: f"{word} - so they say -"), (0.3, lambda word: f"{word}'s"),
        (0.1, lambda word: f"{word} ..."),
    ):  # fmt: skip
        if random.random() < share:
            place = random.randrange(3, len(words) - 3)
            words[place] = change(words[place].strip(".,"))
    return title, " ".join(words)


def typographic(title: str, text: str, number: int) -> Text:
    """A corpus in typographic characters, in paragraphs, with titles in small letters."""
    _, text = plain(title, text, number)
    text = re.sub(r'"(\w+)"', r"“\1”", text).replace("'", "’").replace(" - ", " — ").replace("...", "…")
    return title.lower(), text.replace(". ", ".\n", 1)


def untitled(title: str, text: str, number: int) -> Text:
    """A corpus without titles."""
    return "", plain(title, text, number)[1]


def habits(title: str, text: str, number: int) -> Text:
    """What a language model makes of it: typographic characters, Markdown, odd spaces, titles with a full stop."""
    random = rng("writer", number)
    words = text.split(" ")
    bold = random.randrange(len(words))
    words[bold] = f"**{words[bold]}**"
    text = " ".join(words).replace(" - ", "—").replace("'", "’").replace("...", "…").replace(" — ", "—")
    text = re.sub(r'["“](\w+)["”]', r"“\1”" if random.random() < 0.5 else r'"\1"', text)
    text = ("- " if random.random() < 0.3 else "") + text.replace(". ", random.choice((".  ", ".\u00a0", ".\u200b ")))
    title = "" if random.random() < 0.2 else f"{title.title()}{random.choice((chr(46), chr(33), ''))}"
    return title, text.rstrip(".") if random.random() < 0.5 else text


HOUSES: dict[str, Callable[[str, str, int], Text]] = {"plain": plain, "typographic": typographic, "untitled": untitled}


def published(house: str, out: Path, *, mended: bool = True) -> tuple[list[str], set[str]]:
    """The lines of a published corpus, half of it generated, and the ids of generated passages."""
    make_corpus(out.with_suffix(".jsonl"), 2 * EACH)
    every = [json.loads(line) for line in out.with_suffix(".jsonl").read_text(encoding="utf-8").splitlines()]
    every.sort(key=lambda row: text_key(row["id"]))  # topics and numbers of specimens are words, so they reveal nothing
    texts = [HOUSES[house](row["title"], row["text"], place) for place, row in enumerate(every)]
    passages = [Passage(f"p{at}", f"one-{at}", at, text, title) for at, (title, text) in enumerate(texts[:EACH])]
    style, name = HouseStyle(), lambda id_: "d" + SECRET.text("document", id_)[:15]
    for passage in passages:
        style.see(passage.title, passage.text)
    pairs = []
    for place, (title, text) in enumerate(texts[EACH:]):
        title, text = habits(title, text, place)
        pairs.append((passages[place], HardNegative(f"n{place}", "", "", 1, f"neg-{text_key(text)}", text, title)))
    rows = [CorpusRow(name(one.id), one.title, one.text) for one in passages]
    if mended:
        rows += _generated(pairs, name, style)
    else:
        rows += [CorpusRow(name(one.id), normalise_line(one.title), normalise(one.text)) for _, one in pairs]
    generated = [name(one.id) for _, one in pairs]
    queries = [QueryRow(f"q{at}", f"query about {TOPICS[at]}", "test", {}) for at in range(5)]
    labels = [QrelRow(f"q{at}", rows[at].id, 1) for at in range(5)]
    lineage = [{"query": "q0", "negatives": generated}]
    write_dataset(out, dataclasses.replace(make_content(), corpus=rows, queries=queries, qrels=labels, lineage=lineage))
    return (out / "corpus.jsonl").read_text(encoding="utf-8").split("\n")[:-1], set(generated)


def features(line: str, place: int) -> list[float]:
    """Everything about one line but its words: the marks that `verify` knows, and how characters are used."""
    row: dict[str, Any] = json.loads(line)
    text, size = row["text"], max(len(row["text"]), 1)
    kinds = [sum(map(is_kind, text)) / size for is_kind in (str.isupper, str.isdigit, str.isspace)]
    return [
        *(float(has(row)) for has in MARKS.values()),
        *(text.count(mark) / size for mark in ".,;:!?\"'-()“”‘’—–…\n\u00a0*_`#"),
        *kinds, float(not text.isascii()),
        float(len(line) - len(text) - len(row["title"])),  # what JSON adds: escapes, spaces, fields
        line.count("\\"), len(text) % 2, len(text) % 10, len(row["title"].split()),
        int(row["_id"][1:], 16) / 2**60, place,
    ]  # fmt: skip


def areas(lines: list[str], generated: set[str]) -> list[float]:
    """The area under the curve of two classifiers, each on passages that it has not seen."""
    from sklearn.ensemble import HistGradientBoostingClassifier
    from sklearn.linear_model import LogisticRegression
    from sklearn.metrics import roc_auc_score
    from sklearn.model_selection import StratifiedKFold, cross_val_predict
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    wanted = np.array([json.loads(line)["_id"] in generated for line in lines])
    seen = np.array([features(line, place) for place, line in enumerate(lines)])
    folds = StratifiedKFold(5, shuffle=True, random_state=0)
    found = []
    for model in (
        make_pipeline(StandardScaler(), LogisticRegression(C=0.1)),
        HistGradientBoostingClassifier(max_iter=40, random_state=0),
    ):
        guess = cross_val_predict(model, seen, wanted, cv=folds, method="predict_proba")[:, 1]
        found.append(float(roc_auc_score(wanted, guess)))
    return found


@pytest.mark.parametrize(
    "house", ["plain", *(pytest.param(name, marks=pytest.mark.nightly) for name in ("typographic", "untitled"))]
)
def test_a_classifier_over_all_marks_stays_at_chance(house: str, tmp_path: Path) -> None:
    lines, generated = published(house, tmp_path / "mended")
    assert len(lines) == 2 * EACH == 2 * len(generated)
    error = math.sqrt((2 * EACH + 1) / (12 * EACH * EACH))
    found = areas(lines, generated)
    assert max(found) < 0.5 + 3 * error, found
    assert secrecy_problems(tmp_path / "mended") == []


def test_without_the_house_style_the_classifier_knows_and_verify_says_by_what(tmp_path: Path) -> None:
    lines, generated = published("plain", tmp_path / "raw", mended=False)
    assert min(areas(lines, generated)) > 0.95
    said = [problem.message for problem in secrecy_problems(tmp_path / "raw")]
    assert {problem.kind for problem in secrecy_problems(tmp_path / "raw")} == {"habits"}
    for words in ("of 400 have Markdown, 0 of 400 other passages do", "have no title", "end without a sentence mark"):
        assert sum(words in one for one in said) == 1, words


def test_a_generated_passage_in_the_style_of_the_corpus_by_hand() -> None:
    passage = Passage("p", "one", 0, "The text of the passage.")
    written = "A  generated\u00a0text.\r\nSecond line. \u200b Cafe\u0301."
    negative = HardNegative("n", "q", "", 1, "neg-1", written, "A title")
    for title, expected in (("", ""), ("Its title", "A title")):
        style = HouseStyle()
        style.see(title, passage.text)
        (row,) = _generated([(dataclasses.replace(passage, title=title), negative)], str, style)
        assert row.title == expected and row.text == " ".join(normalise(written).split()) != written
    style, text = HouseStyle(), "**New**: it’s “here” — isn't it…\n- One\n- Two"
    for _ in range(20):
        style.see("A plain title", 'It\'s "said" - and done ... so.')
    assert style.text(text) == "New: it's \"here\" - isn't it... One Two."
    assert style.title("The Great Book.", "a great book of names") == "The great book"
    assert style.title("", "Some words of a text about bridges, and more of them.") == "Words about bridges"
    rich = HouseStyle()
    for _ in range(20):
        rich.see("A Title With Capitals", "It’s “said” — and **done** …\n- so")
    assert rich.text(text) == "**New**: it’s “here” — isn’t it…\n- One\n- Two"
    assert rich.title("the great book", "") == "The Great Book"
