"""Is an answer to the question in one of the best k passages? The accuracy of open-domain question answering.

    answer_accuracy(run, {"q1": ["Honey bees", "bees"]}, corpus)
    # {"Answer@5": (0.62, 0.55, 0.69), "Answer@20": ..., "Answer@100": ...}

By the definition of DPR (Karpukhin et al. 2020, `has_answer` of its code): text and answer are normalised to NFD, split
into runs of letters, digits and marks and into single other characters, and lowercased; a passage has the answer if the
answer's tokens follow each other in its text. The title does not count. No label is needed, and a passage that is not
labelled can count; a short answer can also stand in a passage that does not answer the question.

One thing is added: where a script has no spaces (Chinese, Japanese, Thai, ...), each character is a token, because a
run of letters would be a whole clause.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import regex

from airgen.evaluation.run import Run
from airgen.evaluation.significance import bootstrap_interval
from airgen.retrievers.base import Corpus

CUTOFFS = (5, 20, 100)
_WITHOUT_SPACES = r"[\p{Han}\p{Hiragana}\p{Katakana}\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}]"
_TOKEN = regex.compile(rf"{_WITHOUT_SPACES}|[[\p{{L}}\p{{N}}\p{{M}}]--{_WITHOUT_SPACES}]+|[^\p{{Z}}\p{{C}}]", regex.V1)


def token_line(text: str) -> str:
    """The tokens of a text, each between two blanks (no token holds one); empty for a text without any.

    >>> token_line("It's  Café No. 5")
    " it ' s cafe\u0301 no . 5 "
    """
    tokens = [token.lower() for token in _TOKEN.findall(unicodedata.normalize("NFD", text))]
    return f" {' '.join(tokens)} " if tokens else ""


def has_answer(passage: str, answers: Sequence[str]) -> bool:
    """Whether the tokens of an answer follow each other in the passage. Both are lines of `token_line`."""
    return any(answer and answer in passage for answer in answers)


def answers_of(metadata: Mapping[str, Any]) -> list[str]:
    """The answers that a query's metadata has: `answers` as a text, a list of texts, or SQuAD's `{"text": [...]}`."""
    found = metadata.get("answers")
    if isinstance(found, Mapping):
        found = found.get("text")
    every = found if isinstance(found, list) else [found]
    return [answer for answer in every if isinstance(answer, str)]


def answer_accuracy(
    run: Run,
    answers: Mapping[str, Sequence[str]],
    corpus: Corpus,
    *,
    depth: int = CUTOFFS[-1],
    lines: dict[int, str] | None = None,
) -> dict[str, tuple[float, float, float]]:
    """{measure: (mean over the queries with answers, low, high)}, 95 % bootstrap; empty where no query has an answer.

    A query without a result scores 0. depth: how many hits of a query were asked for; a cutoff beyond it is left out.
    `lines` caches the tokens of passages, by their position in the corpus, from one system to the next.
    """
    cutoffs = [cutoff for cutoff in CUTOFFS if cutoff <= depth]
    wanted = {key: [*filter(None, map(token_line, each))] for key, each in answers.items()}
    wanted = {key: each for key, each in wanted.items() if each}
    if not cutoffs or not wanted:
        return {}
    lines = {} if lines is None else lines
    places = {key: place for place, key in enumerate(corpus.ids)}
    first = dict.fromkeys(wanted, np.inf)  # the rank of the first passage with an answer
    ranked = run.ranked()
    for row, key in enumerate(ranked.query_ids):
        if key not in wanted:
            continue
        start, end = (int(ranked.offsets[place]) for place in (row, row + 1))
        for rank, passage in enumerate(ranked.passages[start : min(end, start + cutoffs[-1])].tolist(), 1):
            place = places.get(ranked.passage_ids[passage])
            if place is None:
                continue
            if place not in lines:
                lines[place] = token_line(corpus.texts[place])
            if has_answer(lines[place], wanted[key]):
                first[key] = rank
                break
    ranks = np.array(list(first.values()))
    values = np.array([ranks <= cutoff for cutoff in cutoffs], np.float64)
    means, intervals = values.mean(axis=1).tolist(), bootstrap_interval(values).tolist()
    return {
        f"Answer@{cutoff}": (mean, low, high)
        for cutoff, mean, (low, high) in zip(cutoffs, means, intervals, strict=True)
    }
