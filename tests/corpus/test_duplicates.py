"""Duplicates: against brute force; MinHash against Jaccard."""

import random
import re

import numpy as np
import pytest
from corpus_maker import prose
from hypothesis import given, settings
from hypothesis import strategies as st

from airgen.corpus.cleaning.duplicates import (
    CorpusWide,
    NearDuplicates,
    band_keys,
    duplicate_ids,
    earlier_documents,
    exact_duplicates,
    grams,
    signatures,
)
from airgen.corpus.cleaning.filters import CleanResult, Item
from airgen.corpus.settings import NearDuplicateSettings
from airgen.storage.records import Document


def items(texts: list[str]) -> list[Item]:
    return [Item(Document(f"d{number}", text)) for number, text in enumerate(texts)]


def judged(step: CorpusWide, rows: list[Item]) -> list[CleanResult]:
    with earlier_documents() as earlier:
        seen = step.digests(rows)
        return [step.compare(row.document.id, one, earlier) for row, one in zip(rows, seen, strict=True)]


def signature(text: str, n: int, permutations: int) -> np.ndarray:
    return signatures(grams([text], n), permutations)[0]


def keys_of(row: np.ndarray, bands: int) -> np.ndarray:
    return band_keys(row[None], bands)[0]


def judge(step: CorpusWide, texts: list[str]) -> list[bool]:
    return [verdict.keep for verdict in judged(step, items(texts))]


@settings(deadline=None)
@given(st.lists(st.text("ab c今ก.\n\u0301", max_size=12) | st.text(max_size=6)), st.integers(1, 4))
def test_a_text_has_the_same_hashes_alone_and_among_others(texts: list[str], n: int) -> None:
    alone = [grams([text], n)[0].tolist() for text in texts]
    assert [hashes.tolist() for hashes in grams(texts, n)] == alone


def jaccard(first: str, second: str, n: int) -> float:
    def runs(text: str) -> set[tuple[str, ...]]:
        words = re.findall(r"\w+", text.lower())
        return {tuple(words[at : at + n]) for at in range(max(len(words) - n + 1, 1))}

    one, two = runs(first), runs(second)
    return len(one & two) / len(one | two)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 3)), max_size=60))
def test_decisions_are_those_of_a_list_of_all_documents(rows: list[tuple[int, int]]) -> None:
    """Texts that nearly repeat each other: compared are the first four that were kept of each band."""
    own, kept = NearDuplicateSettings(rows=2), dict[int, tuple[str, np.ndarray]]()
    held: dict[int, list[int]] = {}
    texts = [" ".join([*prose(number % 6, 12).split(), *["more"] * change, str(number % 2)]) for number, change in rows]
    wanted = []
    for place, text in enumerate(texts):
        row = signature(text, own.ngram, 2 * own.bands)
        keys = keys_of(row, own.bands).tolist()
        rivals = sorted({other for key in keys for other in held.get(key, ())[:4]})
        shares = [((row % 256 == kept[other][1] % 256).mean() - 1 / 256) / (1 - 1 / 256) for other in rivals]
        if rivals and max(shares) >= own.threshold:
            first = kept[rivals[int(np.argmax(shares))]][0]
            wanted.append(f"of {first!r}, similarity {max(shares):.2f}")
        else:
            wanted.append("")
            kept[place] = (f"d{place}", row)
            for key in keys:
                held.setdefault(key, []).append(place)
    assert [verdict.detail for verdict in judged(NearDuplicates(own), items(texts))] == wanted


def test_signatures_estimate_jaccard_without_bias() -> None:
    draw = random.Random(5)
    errors, variances = [], []
    for _ in range(400):
        words = prose(draw.randrange(10**6), 120).split()
        other = list(words)
        for _ in range(draw.randrange(1, 12)):
            other[draw.randrange(len(other))] = f"new{draw.random()}"
        first, second = " ".join(words), " ".join(other)
        rows = [signature(text, 5, 112) for text in (first, second)]
        true = jaccard(first, second, 5)
        errors.append(float((rows[0] == rows[1]).mean()) - true)
        variances.append(true * (1 - true) / 112)
    assert abs(np.mean(errors)) < 4 * np.sqrt(np.mean(variances) / 400)
    assert 0.85 < np.std(errors) / np.sqrt(np.mean(variances)) < 1.15


@pytest.mark.parametrize(
    "one, two, same",
    [
        ("The cat, sat on the mat!", "the CAT sat -- on the mat", True),  # case and punctuation
        ("the cat sat on the mat", "the cat sat on a mat", False),
        ("今天天气很好，我们去公园。", "今天天气很好 我们去公园", True),
        ("今天天气很好我们去公园", "今天天气很好我们去学校", False),
        ("", "...", True),  # nothing to compare
    ],
)
def test_what_counts_as_the_same_words(one: str, two: str, same: bool) -> None:
    rows = [signature(text, 3, 64) for text in (one, two)]
    assert np.array_equal(*rows) is same
    assert np.array_equal(*(keys_of(row, 8) for row in rows)) is same


def test_signatures_of_a_corpus_that_was_prepared_before_are_the_same() -> None:
    """Another hash would keep other documents."""
    text = "The cat, sat on the mat! 今天天气 \ud800 İs"
    assert signature(text, 5, 3).tolist() == [743862532, 498865185, 213896152]
    assert signature("", 5, 2).tolist() == [120766021, 1480511517]
    keys = [12209194573869253237, 11437353440876089781, 7206773757844606358]
    assert keys_of(signature(text, 5, 6), 3).tolist() == keys


def test_recall_and_precision_of_near_duplicates_at_the_threshold() -> None:
    """Pairs well above the threshold are nearly all found, pairs well below never."""
    draw = random.Random(2)
    found = {True: 0, False: 0}
    for high in (True, False):
        texts = []
        for number in range(200):
            words = prose(number + 500 * high, 200).split()
            texts.append(" ".join(words))
            for _ in range(2 if high else 16):  # similarity about 0.90 and about 0.50
                words[draw.randrange(200)] = f"n{draw.random()}"
            texts.append(" ".join(words))
        found[high] = judge(NearDuplicates(NearDuplicateSettings(threshold=0.8)), texts)[1::2].count(False)
    assert found[True] >= 190
    assert found[False] <= 1


@settings(max_examples=30, deadline=None)
@given(st.lists(st.sampled_from("abcdefgh"), max_size=60))
def test_the_first_of_equal_texts_stays(texts: list[str]) -> None:
    assert judge(exact_duplicates(["text"]), texts) == [text not in texts[:place] for place, text in enumerate(texts)]


def test_a_repeated_id_is_named() -> None:
    names = ["x", "\ud800", "x", "\ud800"]
    verdicts = judged(duplicate_ids(), [Item(Document(name, str(place))) for place, name in enumerate(names)])
    assert [verdict.detail for verdict in verdicts] == ["", "", "'x' came before", "'\\ud800' came before"]
