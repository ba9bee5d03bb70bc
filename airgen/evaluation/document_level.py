"""The pages of a corpus: its passages are whole pages, or parts of them (sections, or chunks).

    pages = PageLookup(corpus, parents={}, labels={"q1": {"reset#router": 1}})
    page = pages.find("https://docs.example.org/reset.html#top")      # "reset"
    pages.best(page, "q1", "how to reset the router")                 # "reset#router"

Search services and people name pages, where a dataset has passages of pages. With `level: document`, the hits of a
system are pages, and a page counts as the best of its passages: the one with the highest label for the query or, if
none is labelled as relevant, the one with the most words of the query. With `level: auto`, this is decided by the ids.
"""

from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from functools import cached_property, lru_cache
from pathlib import PurePosixPath
from typing import Literal
from urllib.parse import unquote, urlsplit

from airgen.dataset.content import fitting_id
from airgen.retrievers.passages import Passages
from airgen.text.near_duplicates import folded_words

Level = Literal["auto", "passage", "document"]
"""What the ids of hits or labels name. With `auto`, they name pages if most of them are those of pages, and not of
passages."""

_ENDINGS = {".html", ".htm", ".xhtml", ".php", ".aspx", ".md", ".mdx", ".rst", ".txt", ".pdf", ".docx", ".ipynb"}
_CACHED = 100_000  # passages, of which the words are kept, ids, of which the page is, and pages with their best passage


class Pages:
    """The passages of each page.

    Args:
        ids: Ids of the passages in order.
        parents: {passage id: page id}. The page of `handbook/reset#router` is also `handbook/reset`.
        renamed: Function that returns the dataset's id for an id of the original corpus, or None.
    """

    def __init__(
        self,
        ids: Iterable[str],
        parents: Mapping[str, str],
        renamed: Callable[[str], str | None] = lambda id_: None,
    ) -> None:
        self._renamed = renamed
        self._kept = lru_cache(_CACHED)(self._page_of)  # most queries of a system find the same pages
        self._places: dict[str, list[int]] = {}
        for place, key in enumerate(ids):
            for page in _pages_of(key, parents.get(key)):
                self._places.setdefault(page, []).append(place)
        self.have_parts = any(len(places) > 1 for places in self._places.values())
        """Whether any page has several passages."""
        self._tails: dict[str, str | None] = {}  # the last part of a page's path -> the page; None for several
        for page in self._places:
            tail = page.rpartition("/")[2]
            self._tails[tail] = None if tail in self._tails else page

    def __contains__(self, page: object) -> bool:
        return page in self._places

    def places(self, page: str) -> Sequence[int]:
        """Return the positions of a page's passages."""
        return self._places[page]

    def find(self, id_: str) -> str | None:
        """Return the page for an id: the id without fragment and extension, or the path of a URL."""
        return self._kept(id_)

    def _page_of(self, id_: str) -> str | None:
        for form in dict.fromkeys((id_, fitting_id(id_), id_.partition("#")[0], *_forms(id_))):
            for name in (form, self._renamed(form)):
                if name in self._places:
                    return name
        for form in _forms(id_):  # one of the two addresses may lack a folder of the site
            tail = form.rpartition("/")[2]
            page = None if tail.isdigit() else self._tails.get(tail)  # a number counts rows, or hits
            if page is not None and (f"/{form}".endswith(f"/{page}") or f"/{page}".endswith(f"/{form}")):
                return page
        return None

    def has_parts(self, page: str) -> bool:
        """Return whether a page has several passages."""
        return len(self._places[page]) > 1

    def named(self, ids: Iterable[str], passage: Callable[[str], str | None]) -> bool:
        """Return whether more ids name pages than passages.

        Args:
            ids: Ids of hits or labels.
            passage: Function that returns the passage with an id, or None.
        """
        of_pages = of_passages = 0
        for id_ in ids:
            known = passage(id_)
            of_passages += known is not None and known not in self._places
            of_pages += known is None and self.find(id_) is not None
        return of_pages > of_passages

    @property
    def advice(self) -> str:
        """Return what a page's id looks like."""
        example = min(self._places, default="")[:100]
        needs = "" if self.have_parts else " (no page has several passages; sections need `ids: original`)"
        return f"the ids of its pages look like {example!r}{needs}"


class NamedDocuments(Container[str]):
    """Whatever names a passage or a page: its id, a file name or an address.

    Args:
        ids: Function that returns the ids of the passages. It is called once, if a name must be looked up.
    """

    def __init__(self, ids: Callable[[], Iterable[str]]) -> None:
        self._ids = ids

    @cached_property
    def _known(self) -> tuple[frozenset[str], Pages]:
        ids = list(self._ids())
        return frozenset(ids), Pages(ids, {})

    def __contains__(self, name: object) -> bool:
        ids, pages = self._known
        return isinstance(name, str) and (name in ids or pages.find(name) is not None)


class PageLookup(Pages):
    """The pages of a corpus, with the best passage of each for a query.

    Args:
        parents, renamed: As for `Pages`.
        labels: {query id: {passage id: label}}.
    """

    def __init__(
        self,
        corpus: Passages,
        parents: Mapping[str, str],
        labels: Mapping[str, Mapping[str, float]],
        renamed: Callable[[str], str | None] = lambda id_: None,
    ) -> None:
        super().__init__(corpus.ids, parents, renamed)
        self._corpus, self._labels = corpus, labels
        self._words = lru_cache(_CACHED)(self._words_at)
        self._best = lru_cache(_CACHED)(self._best_place)

    def best(self, page: str, query: str, text: str) -> str:
        """Return the id of the page's best passage for a query, given by id and text."""
        return self._corpus.ids[self._best(page, query, text)]

    def _best_place(self, page: str, query: str, text: str) -> int:
        places, labels = self._places[page], self._labels.get(query, {})
        if len(places) == 1:
            return places[0]
        ids = self._corpus.ids
        if any(labels.get(ids[place], 0) > 0 for place in places):
            return max(places, key=lambda place: (labels.get(ids[place], 0), -place))
        wanted = set(folded_words(text, self._corpus.language))
        return max(places, key=lambda place: (len(wanted & self._words(place)), -place))

    def _words_at(self, place: int) -> frozenset[str]:
        return frozenset(folded_words(self._corpus.full_text(place), self._corpus.language))


def _pages_of(key: str, parent: str | None) -> Iterator[str]:
    """Yield the names of the pages of a passage, from its document to the whole page."""
    name, mark = (parent, "#") if parent else key.rpartition("#")[:2]
    if not mark:
        yield key
    while name:
        yield name
        name = name.rpartition("#")[0]


def _forms(id_: str) -> list[str]:
    """Yield shorter forms of an id that is a URL or a file name."""
    path = unquote(urlsplit(id_).path if "://" in id_ else id_.partition("#")[0].partition("?")[0]).strip("/")
    indexes = [ending for ending in ("/index.html", "/index.htm", "/index") if path.endswith(ending)]
    forms = [path, *(path.removesuffix(ending) for ending in indexes)]
    if PurePosixPath(path).suffix.lower() in _ENDINGS:
        forms.append(path[: -len(PurePosixPath(path).suffix)])
    return [form for form in forms if form]
