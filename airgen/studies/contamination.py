"""Find queries and passages of a dataset that occur in other collections, verbatim or almost verbatim.

    rows = contamination(Path("runs/notes/dataset"), [Path("scifact")])
    rows[0].passages.near                        # how many passages have a near duplicate there

Texts are compared by their case-folded words in NFKC. Equal words are an exact match. Near duplicates are queries whose
sets of words, or passages whose sets of word 5-grams, have a Jaccard similarity of at least .8. Passages are matched
with a DuckDB query: candidates come from MinHash with banding, as for near duplicates in a corpus
(`airgen.corpus.cleaning.duplicates`), and are confirmed by the exact similarity.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from airgen.components.keys import text_key
from airgen.corpus.cleaning.duplicates import band_keys, grams, signatures
from airgen.corpus.settings import NearDuplicateSettings
from airgen.dataset.air_bench import air_bench_files
from airgen.dataset.beir import BeirDataset
from airgen.display.study import Table, columns
from airgen.errors import DatasetError
from airgen.publishing.suites import dataset_folders
from airgen.storage.records import flat_text
from airgen.storage.sequences import batched
from airgen.storage.sql_connections import connect, explain
from airgen.text.near_duplicates import THRESHOLD, NearDuplicateIndex, folded_words, word_counts

_BATCH_PASSAGES = 2000
_EXAMPLES_PER_KIND = 3
_SETTINGS = NearDuplicateSettings(threshold=THRESHOLD, bands=32, rows=6)  # misses 1 of 10,000 pairs of .8

Text = tuple[str, str]  # id, text


@dataclass(frozen=True, slots=True)
class Match:
    """A text in the dataset and the most similar text in a collection. The similarity of an exact match is 1."""

    id: str
    other: str
    similarity: float
    exact: bool


@dataclass(frozen=True, slots=True)
class TextMatches:
    """The matches for one kind of text: `texts` in the dataset against `others` in the collection."""

    texts: int
    others: int
    matches: tuple[Match, ...] = field(repr=False)

    @property
    def exact(self) -> int:
        """Return the number of texts that occur verbatim in the collection."""
        return sum(match.exact for match in self.matches)

    @property
    def near(self) -> int:
        """Return the number of texts that have only a near duplicate."""
        return len(self.matches) - self.exact


@dataclass(frozen=True, slots=True)
class Contamination:
    """The matches of one dataset in one collection."""

    dataset: str
    collection: str
    queries: TextMatches
    passages: TextMatches


def contamination(home: Path, against: Sequence[Path], *, language: str | None = None) -> list[Contamination]:
    """Compare every dataset in `home` with every collection.

    A collection is a dataset, a suite, a folder in AIR-Bench's layout, or a folder of these. It needs no labels, and
    its corpus or queries may be missing.

    Args:
        home: A dataset or a suite.
        against: The collections.
        language: The language of the words. Default: the dataset's.

    Raises:
        DatasetError: A folder contains no texts.
    """
    theirs = [dataset for path in against for dataset in _datasets(path).values()]
    rows = []
    for name, ours in _datasets(home).items():
        words_language = language or str(ours.info.get("language") or "en")
        own_queries = list(_queries(ours))
        with ExitStack() as stack:
            folder = Path(stack.enter_context(TemporaryDirectory(prefix="airgen-contamination-")))
            own_passages = stack.enter_context(_PassageIndex(_passages(ours), folder))
            for other in theirs:
                queries = match_queries(own_queries, _queries(other), words_language)
                rows.append(Contamination(name, other.name, queries, own_passages.match(_passages(other))))
    return rows


def _datasets(path: Path) -> dict[str, BeirDataset]:
    """Return the datasets at a path, by key if they are in a suite. Raises DatasetError if there are none."""
    if not path.is_dir():
        raise DatasetError(f"{path}: not a directory; a collection has corpus.jsonl, queries.jsonl or both")
    datasets = {key: dataset for key, folder in dataset_folders(path).items() if (dataset := _open(folder)) is not None}
    if not datasets:
        children = [_open(child) for child in sorted(path.iterdir()) if child.is_dir()]
        datasets = {str(child.path): child for child in children if child is not None}
    if not datasets:
        raise DatasetError(f"{path}: neither it nor its folders have corpus.jsonl or queries.jsonl")
    return datasets if len(datasets) > 1 else {dataset.name: dataset for dataset in datasets.values()}


def _open(folder: Path) -> BeirDataset | None:
    """Open a dataset, or return None if the folder contains no texts."""
    beir = (folder / "qrels").is_dir() or (folder / "manifest.json").exists()
    dataset = BeirDataset(folder, None if beir else air_bench_files(folder))
    return dataset if _has(dataset, "corpus") or _has(dataset, "queries") else None


def _has(dataset: BeirDataset, name: str) -> bool:
    files = (dataset.path / f"{name}.jsonl", dataset.path / f"{name}.jsonl.gz")
    return dataset.air_bench is not None or any(file.is_file() for file in files)


def _queries(dataset: BeirDataset) -> Iterator[Text]:
    if _has(dataset, "queries"):
        yield from ((query.id, query.text) for query in dataset.queries().values())


def _passages(dataset: BeirDataset) -> Iterator[Text]:
    if _has(dataset, "corpus"):
        yield from ((row.id, flat_text(row.title, row.text)) for row in dataset.passages())


def match_queries(ours: Sequence[Text], theirs: Iterable[Text], language: str) -> TextMatches:
    """Return the queries that occur among others, verbatim or almost verbatim. Texts are (id, text)."""
    words = [folded_words(text, language) for _, text in ours]
    index = NearDuplicateIndex(language, counts=word_counts((text for _, text in ours), language))
    for _, text in ours:
        index.add(text)
    best: dict[int, Match] = {}
    others = 0
    for other, text in theirs:
        others += 1
        for place in index.places(text):
            theirs_words = folded_words(text, language)
            left, right = set(words[place]), set(theirs_words)
            similarity, exact = len(left & right) / len(left | right), words[place] == theirs_words
            _keep(best, place, Match(ours[place][0], other, similarity, exact))
    return TextMatches(len(ours), others, tuple(best[place] for place in sorted(best)))


def _keep(best: dict[int, Match], place: int, match: Match) -> None:
    """Keep the more similar match, or the first if they are equal."""
    known = best.get(place)
    if known is None or (match.exact, match.similarity) > (known.exact, known.similarity):
        best[place] = match


def words_key(text: str) -> str:
    """Return a hash of the words of a passage, for exact matches. Scripts without spaces need no word segmentation for
    this.
    """
    return text_key(" ".join(folded_words(text, "xx")))


_SCHEMA = """
CREATE TABLE ours (place BIGINT, words VARCHAR, grams UINTEGER[]);
CREATE TABLE theirs (place BIGINT, words VARCHAR, grams UINTEGER[]);
CREATE TABLE ours_band (key UBIGINT, place BIGINT);
CREATE TABLE theirs_band (key UBIGINT, place BIGINT);
"""
# Candidates have all words or a band of their signatures in common; the exact similarity decides.
_MATCHES = """
WITH candidate AS (
    SELECT o.place, t.place AS other FROM ours o JOIN theirs t USING (words)
    UNION
    SELECT o.place, t.place AS other FROM ours_band o JOIN theirs_band t USING (key)
), scored AS (
    SELECT c.place, c.other, o.words = t.words AS exact, len(list_intersect(o.grams, t.grams)) AS common,
           CASE WHEN exact THEN 1.0 ELSE common / (len(o.grams) + len(t.grams) - common) END AS similarity
    FROM candidate c JOIN ours o ON o.place = c.place JOIN theirs t ON t.place = c.other
)
SELECT place, other, similarity, exact FROM scored WHERE similarity >= ?
QUALIFY row_number() OVER (PARTITION BY place ORDER BY exact DESC, similarity DESC, other) = 1 ORDER BY place
"""


class _PassageIndex:
    """The passages of a dataset in a temporary database, with hashes of their words, n-grams and bands, but no
    texts."""

    def __init__(self, passages: Iterable[Text], folder: Path) -> None:
        self._path = folder / "passages.duckdb"
        self._base = connect(self._path)
        self._base.execute(_SCHEMA)
        self._ids = self._load("ours", passages)

    def __enter__(self) -> "_PassageIndex":
        return self

    def __exit__(self, *error: object) -> None:
        self._base.close()

    def match(self, theirs: Iterable[Text]) -> TextMatches:
        """Return the passages that occur among `theirs`. Raises StoreError, for example if the disk is full."""
        import duckdb

        try:
            self._base.execute("DELETE FROM theirs; DELETE FROM theirs_band")
            others = self._load("theirs", theirs)
            rows = self._base.execute(_MATCHES, [THRESHOLD]).fetchall()
        except duckdb.Error as error:
            raise explain(self._path, error) from error
        matches = (
            Match(self._ids[place], others[other], similarity, exact) for place, other, similarity, exact in rows
        )
        return TextMatches(len(self._ids), len(others), tuple(matches))

    def _load(self, table: str, passages: Iterable[Text]) -> list[str]:
        """Read passages into a table and its bands, and return their ids in order."""
        ids: list[str] = []
        for batch in batched(passages, _BATCH_PASSAGES):
            ngrams = grams([text for _, text in batch], _SETTINGS.ngram)
            places = range(len(ids), len(ids) + len(batch))
            words, sets = [words_key(text) for _, text in batch], [np.unique(row).tolist() for row in ngrams]
            self._base.execute(
                f"INSERT INTO {table} SELECT unnest(?), unnest(?), unnest(?)", [list(places), words, sets]
            )
            keys = band_keys(signatures(ngrams, _SETTINGS.bands * _SETTINGS.rows), _SETTINGS.bands)
            owners = np.repeat(np.arange(places.start, places.stop), _SETTINGS.bands)
            values = [keys.ravel().tolist(), owners.tolist()]
            self._base.execute(f"INSERT INTO {table}_band SELECT unnest(?::UBIGINT[]), unnest(?)", values)
            ids += [id_ for id_, _ in batch]
        return ids


def contamination_text(contaminations: Sequence[Contamination]) -> str:
    """Return the counts for each collection, and the first matches."""
    rows, examples = [], []
    for contamination in contaminations:
        counts = [(part.texts, part.exact, part.near) for part in (contamination.queries, contamination.passages)]
        rows.append([contamination.dataset, contamination.collection, *(count for part in counts for count in part)])
        for kind, part in (("query", contamination.queries), ("passage", contamination.passages)):
            for match in part.matches[:_EXAMPLES_PER_KIND]:
                likeness = "verbatim" if match.exact else f"similarity {match.similarity:.2f}"
                examples.append(
                    f"{contamination.dataset}: {kind} {match.id} is {match.other} of {contamination.collection}, "
                    f"{likeness}"
                )
    titles = ("dataset", "collection", "queries", "exact", "near", "passages", "exact", "near")
    return "\n".join([Table(rows, columns(*titles, form=",")).text(), *examples])
