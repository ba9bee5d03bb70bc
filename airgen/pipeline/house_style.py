"""Generated passages get the typography of the corpus: a writer's habits must not tell them from the other passages.

<<<<<<< HEAD:airgen/pipeline/export_rules.py
Ids and splits are made here alone. Row keys follow from the pipeline and the corpus, which are public: with them alone
anyone could connect a query with its source. So ids and splits are made of row keys and the secret.

Generated passages get the typography of the corpus: a writer's habits must not tell them from the other passages.

    style.see(title, text)                    # every passage of the corpus
    style.text("It’s **new** — isn't it…")    # "It's new - isn't it..." in a corpus of plain characters

Queries without an answer: of a share of the accepted queries, all passages that quality control found relevant are left
out of the dataset. Such a query was written for a real document, so it looks like any other. This asks no model, so the
share can be changed on a finished job. A query is held out only if no other was written for one of these passages.

Who has the original corpus sees which passages are missing, and a query whose own document is missing would be one
that nothing answers. So with a secret, which also draws the queries, other queries lose their own document, too, where
another passage answers them: `DECOYS` of them for each held-out query, as far as there are so many.
=======
style.see(title, text)                    # every passage of the corpus
style.text("It’s **new** — isn't it…")    # "It's new - isn't it..." in a corpus of plain characters
>>>>>>> e147757e (tree: follow the paper: generation, control, steps, studies, audit):airgen/pipeline/house_style.py
"""

import re
from collections import Counter
<<<<<<< HEAD:airgen/pipeline/export_rules.py
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from airgen.dataset.content import fitting_id
from airgen.dataset.secret import Secret, opaque_document_id, split_of
from airgen.keys import row_key
from airgen.steps.stage import Lineage
from airgen.records import Decision
from airgen.settings import Pipeline

DECOYS = 2
"""Answered queries that lose their own document, for each query that nothing answers."""

_LENGTH = 15  # hex digits: 60 bits


@dataclass(frozen=True)
class PublicIds:
    """The ids and splits of one job's dataset. Without a secret (`export: {secret: false}`) anyone can compute them."""

    pipeline: Pipeline
    secret: Secret | None

    def query(self, lineage: Lineage) -> str:
        """A query's id. It depends on the key of the final text, so it stays when the target grows.

        With `ids: original` a query of the user's own has the id that its file gives.
        """
        if lineage.own is not None and lineage.own.id and self.pipeline.export.ids == "original":
            return lineage.own.id
        return "q" + self._made("query", lineage.final.key)

    def sample(self, lineage: Lineage) -> str:
        """The id of a lineage that has no query."""
        return "s" + self._made("sample", lineage.sample.key)

    def document(self, id_: str) -> str:
        """A document's id. An opaque one does not tell a generated negative from the rest; see also `fitting_id`."""
        if self.pipeline.export.ids == "original":
            return fitting_id(id_)
        return opaque_document_id(self.pipeline.name, id_, self.secret)

    def split(self, lineage: Lineage) -> str:
        """The split of a query. It does not change with prompts or with the target.

        With a secret, all queries of one passage are in one split, and with multi-hop queries all of one document: the
        labels of dev must not tell sources of test.
        """
        ratios = self.pipeline.export.splits
        if self.secret is None:
            return split_of(lineage.sample.key, ratios)
        if lineage.own is not None:
            return split_of(self._made("split", lineage.final.key), ratios)
        source = lineage.passage.document if self.pipeline.generation.multi_hop else lineage.passage.key
        return split_of(self._made("split", source), ratios)

    def place(self, key: str) -> str:
        """What decides which queries lose their answers: with a secret, nobody else can compute it."""
        if self.secret is None:
            return row_key("unanswerable", key, "")
        return self.secret.text(self.pipeline.name, "unanswerable", key)

    def _made(self, what: str, key: str) -> str:
        return key[:_LENGTH] if self.secret is None else self.secret.text(self.pipeline.name, what, key)[:_LENGTH]

=======
from collections.abc import Callable
>>>>>>> e147757e (tree: follow the paper: generation, control, steps, studies, audit):airgen/pipeline/house_style.py

_SOME = 0.05  # share of passages from which on a form counts as usual

# What is counted: the share of passages that have it.
_TEXT: dict[str, re.Pattern[str]] = {
    "curly double": re.compile("[“”„‟]"),
    "plain double": re.compile('"'),
    "curly single": re.compile("[‘’‚‛]"),
    "plain single": re.compile("'"),
    " — ": re.compile(r" — "),
    "—": re.compile(r"\S—\S"),
    " – ": re.compile(r" – "),
    " - ": re.compile(r" - "),
    "…": re.compile("…"),
    "...": re.compile(r"\.\.\."),
    "line breaks": re.compile(r"\n"),
    "bold": re.compile(r"\*\*\S|__\S"),
    "headings": re.compile(r"(?m)^#{1,6} "),
    "bullets": re.compile(r"(?m)^[^\S\n]*(?:[-*•‣◦]|\d{1,2}[.)]) "),
    "backticks": re.compile("`"),
}
_DASHES = (" — ", "—", " – ", " - ")
_DASH = re.compile(r" ?— ?| – | - ")
_END = re.compile(r"[.!?。！？؟।…][\"'”’»)\]]*$")
_WORD = re.compile(r"[^\W\d_]+")


class HouseStyle:
    """How the passages of one corpus are set; counts of what was seen so far."""

    def __init__(self) -> None:
        self._texts, self._titles = 0, 0
        self._counts: Counter[str] = Counter()
        self._lengths: Counter[int] = Counter()  # of titles, in words

    def see(self, title: str, text: str) -> None:
        """Count one passage of the corpus."""
        self._texts += 1
        self._counts.update(name for name, pattern in _TEXT.items() if pattern.search(text))
        self._counts["end"] += _END.search(text) is not None
        self._counts["small"] += text[:1].islower()
        if title:
            self._titles += 1
            self._lengths[len(title.split())] += 1
            self._counts["title end"] += _END.search(title) is not None
            self._counts["title case"] += _is_title_case(title)
            self._counts["title all case"] += title.istitle()
            self._counts["title small"] += title[:1].islower()
            self._counts["title capitals"] += title != title.lower()

    def text(self, text: str) -> str:
        """A generated text as the corpus would have it."""
        for mark, clean in _MARKUP.items():
            if self._share(mark) < _SOME:
                text = clean(text)
        if self._share("line breaks") < _SOME:
            text = " ".join(text.split("\n"))
            text = re.sub(" {2,}", " ", text).strip()
        text = self._characters(text)
        if self._share("small") < _SOME:
            text = text[:1].upper() + text[1:]
        if text and self._share("end") > 1 - _SOME and not _END.search(text):
            text += "."
        return text

    def title(self, title: str, text: str) -> str:
        """A generated title as the corpus would have it; some words of the text where there is none."""
        title = self._characters(title)
        if not title:  # as many words as titles have most often: the longest of the text, in its order
            count = max(self._lengths, key=lambda length: (self._lengths[length], -length), default=3)
            words = list(dict.fromkeys(_WORD.findall(text)[1:])) or text.split()
            longest = sorted(sorted(range(len(words)), key=lambda at: -len(words[at]))[:count])
            title = " ".join(words[at] for at in longest)
        if not self._titles:
            return title

        def share(mark: str) -> float:
            return self._counts[f"title {mark}"] / self._titles

        if share("end") < _SOME:
            title = title.rstrip(".…!?。！？؟।") or title
        if share("capitals") < _SOME:
            return title.lower()
        if share("small") < _SOME:
            title = title[:1].upper() + title[1:]
        if share("case") > 0.5:
            least = 0 if share("all case") > 0.5 else 3
            return " ".join(word[:1].upper() + word[1:] if len(word) > least else word for word in title.split(" "))
        if share("case") < _SOME and _is_title_case(title):
            small = set(_WORD.findall(text))
            first, *rest = title.split(" ")
            # A word that the text has in small letters is no name.
            return " ".join([first, *(word.lower() if word.lower() in small else word for word in rest)])
        return title

    def _share(self, mark: str) -> float:
        return self._counts[mark] / max(self._texts, 1)

    def _characters(self, text: str) -> str:
        """The text with the quotes, dashes and ellipses of the corpus."""
        if self._counts["curly double"] > self._counts["plain double"]:
            text = re.sub(r'(^|[\s(\[])"', r"\1“", text).replace('"', "”")
        else:
            text = re.sub("[“”„‟]", '"', text)
        if self._counts["curly single"] > self._counts["plain single"]:
            text = re.sub(r"(^|[\s(\[])'", r"\1‘", text).replace("'", "’")
        else:
            text = re.sub("[‘’‚‛]", "'", text)
        dash = max(reversed(_DASHES), key=lambda one: self._counts[one])
        text = _DASH.sub(dash, text)
        return text.replace("...", "…") if self._counts["…"] > self._counts["..."] else text.replace("…", "...")


_MARKUP: dict[str, Callable[[str], str]] = {
    "bold": lambda text: re.sub(r"\*\*(\S[^*\n]*)\*\*|__(\S[^_\n]*)__", r"\1\2", text),
    "headings": lambda text: re.sub(r"(?m)^#{1,6} +", "", text),
    "bullets": lambda text: re.sub(r"(?m)^[^\S\n]*(?:[-*•‣◦]|\d{1,2}[.)]) +", "", text),
    "backticks": lambda text: re.sub("`+", "", text),
}


def _is_title_case(title: str) -> bool:
    words = [word for word in _WORD.findall(title) if len(word) > 3]
    return " " in title and bool(words) and all(word[0].isupper() for word in words)
<<<<<<< HEAD:airgen/pipeline/export_rules.py


_RELEVANT = ("keep_query", "add_positive")


@dataclass(frozen=True)
class HeldOut:
    """queries: keys of final queries that nothing answers. passages: ids of what is left out of the corpus, `decoys` of
    them of queries that something else answers."""

    queries: frozenset[str] = frozenset()
    passages: frozenset[str] = frozenset()
    decoys: int = 0


def hold_out(
    lineages: Sequence[Lineage],
    decisions: Mapping[str, Sequence[Decision]],
    share: float,
    others: Sequence[Lineage] = (),
    place: Callable[[str], str] = lambda key: row_key("unanswerable", key, ""),
    decoys: int = 0,
) -> HeldOut:
    """Choose `share` of the queries, fewer where too many share their passages, in the order of `place` of their keys.

    Args:
        lineages: The queries of the dataset.
        decisions: Their labels by the key of the final query.
        share: Which part of them nothing shall answer.
        others: Queries of the job that are not in the dataset; an ablation can bring them back, so their documents
            stay.
        place: Of the key of a query; one that depends on a secret cannot be computed from the public part.
        decoys: For each chosen query, so many answered ones lose their own document and all relevant ones but one.
            Without these, who has the original corpus sees by a missing document that its query has no answer.
    """
    wanted = int(share * len(lineages))
    sources = Counter(one.id for lineage in (*lineages, *others) for one in lineage.sources)
    relevant_of = {
        lineage.final.key: {one.id for one in lineage.sources}
        | {row.id for row in decisions.get(lineage.final.key, ()) if row.action in _RELEVANT}
        for lineage in lineages
    }
    ordered = sorted(lineages, key=lambda one: place(one.final.key))
    queries: set[str] = set()
    passages: set[str] = set()
    for lineage in ordered:
        if len(queries) == wanted:
            break
        own, relevant = {one.id for one in lineage.sources}, relevant_of[lineage.final.key]
        if all(sources[one] - (one in own) == 0 for one in relevant):
            queries.add(lineage.final.key)
            passages |= relevant
            sources.subtract(own)
    left = {key: relevant - passages for key, relevant in relevant_of.items() if key not in queries}
    candidates = [one for one in reversed(ordered) if one.final.key in left and len(one.sources) == 1]
    more = _decoys(candidates, left, sources, place, decoys * len(queries))
    return HeldOut(frozenset(queries), frozenset(passages | more), len(more))


def _decoys(
    candidates: Iterable[Lineage],
    left: dict[str, set[str]],
    sources: Counter[str],
    place: Callable[[str], str],
    wanted: int,
) -> set[str]:
    """Passages of answered queries that go, too: of each query its own and all relevant ones but one.

    `left` are the relevant passages by query, of which every query keeps one. No query loses its own document for
    another's sake.
    """
    askers: dict[str, set[str]] = {}
    for key, relevant in left.items():
        for id_ in relevant:
            askers.setdefault(id_, set()).add(key)
    gone: set[str] = set()
    for lineage in candidates:
        if wanted == 0:
            break
        key, own = lineage.final.key, lineage.passage.id
        further = sorted(left[key] - {own}, key=lambda id_, key=key: place(f"{key} {id_}"))  # type: ignore[misc]
        if own not in left[key] or not further or sources[own] > 1:
            continue
        if any(left[other] == {own} for other in askers[own] - {key}):
            continue
        for id_ in (own, *further[1:]):
            if id_ != own and (sources[id_] or any(len(left[other]) == 1 for other in askers[id_])):
                continue  # another query's own document, or the last that answers one
            for other in askers[id_]:
                left[other].discard(id_)
            gone.add(id_)
        wanted -= 1
    return gone
=======
>>>>>>> e147757e (tree: follow the paper: generation, control, steps, studies, audit):airgen/pipeline/house_style.py
