"""Evaluate systems that return pages on a dataset whose passages are sections of pages (`level: document`).

    pages = PageLookup(corpus, parents={}, labels={"q1": {"reset#router": 1}})
    page = pages.find("https://docs.example.org/reset.html#top")      # "reset"
    pages.best(page, "q1", "how to reset the router")                 # "reset#router"

A page counts as the best of its sections: the one with the highest label for the query or, if none is labelled as
relevant, the one with the most words of the query.
"""

from collections.abc import Mapping
from pathlib import PurePosixPath
from urllib.parse import unquote, urlsplit

from airgen.dataset.content import fitting_id
from airgen.errors import DatasetError
from airgen.retrievers.indexed_corpus import Corpus
from airgen.text.near_duplicates import folded_words

_ENDINGS = {".html", ".htm", ".xhtml", ".php", ".aspx", ".md", ".mdx", ".rst", ".txt", ".pdf", ".docx", ".ipynb"}


class PageLookup:
    """The sections of each page of a corpus.

    Args:
        parents: {passage id: page id}. If it is empty, the page of `handbook/reset#router` is `handbook/reset`.
        labels: {query id: {passage id: label}}.
    """

    def __init__(self, corpus: Corpus, parents: Mapping[str, str], labels: Mapping[str, Mapping[str, float]]) -> None:
        self._corpus, self._labels = corpus, labels
        self._sections: dict[str, list[int]] = {}
        for place, key in enumerate(corpus.ids):
            page = parents.get(key) or (key if parents else key.partition("#")[0])
            self._sections.setdefault(page, []).append(place)
        if len(self._sections) == len(corpus):
            raise DatasetError(
                "level: document: no two passages of this dataset belong to the same page: its ids contain no `#`, and "
                "it has no private/parents.jsonl; export it with `ids: original`, or leave `level` out"
            )
        self._tails: dict[str, str | None] = {}  # the last part of a page's path -> the page; None for several
        for page in self._sections:
            tail = page.rpartition("/")[2]
            self._tails[tail] = None if tail in self._tails else page

    def find(self, id_: str) -> str | None:
        """Return the page for a system's id: the id without fragment and extension, or the path of a URL."""
        for form in dict.fromkeys((id_, fitting_id(id_), id_.partition("#")[0], *_forms(id_))):
            if form in self._sections:
                return form
        for form in _forms(id_):  # one of the two addresses may lack a folder of the site
            page = self._tails.get(form.rpartition("/")[2])
            if page is not None and (f"/{form}".endswith(f"/{page}") or f"/{page}".endswith(f"/{form}")):
                return page
        return None

    def best(self, page: str, query: str, text: str) -> str:
        """Return the id of the page's best section for a query, given by id and text."""
        sections, labels = self._sections[page], self._labels.get(query, {})
        ids, corpus = self._corpus.ids, self._corpus
        if len(sections) == 1:
            return ids[sections[0]]
        if any(labels.get(ids[place], 0) > 0 for place in sections):
            return ids[max(sections, key=lambda place: (labels.get(ids[place], 0), -place))]
        wanted = set(folded_words(text, corpus.language))
        shared = {
            place: len(wanted & set(folded_words(corpus.full_text(place), corpus.language))) for place in sections
        }
        return ids[max(sections, key=lambda place: (shared[place], -place))]

    @property
    def advice(self) -> str:
        """Return what a page's id looks like."""
        return f"the ids of its pages look like {min(self._sections)[:100]!r}; id_pattern takes them out of longer ones"


def _forms(id_: str) -> list[str]:
    """Yield shorter forms of an id that is a URL or a file name."""
    path = unquote(urlsplit(id_).path if "://" in id_ else id_.partition("#")[0].partition("?")[0]).strip("/")
    indexes = [ending for ending in ("/index.html", "/index.htm", "/index") if path.endswith(ending)]
    forms = [path, *(path.removesuffix(ending) for ending in indexes)]
    if PurePosixPath(path).suffix.lower() in _ENDINGS:
        forms.append(path[: -len(PurePosixPath(path).suffix)])
    return [form for form in forms if form]
