"""Convert the files of DPR and EntityQuestions to a dataset in BEIR format (Karpukhin et al. 2020; Sciavolino et al.
2021).

    summary = convert_dpr({"train": Path("nq-train.json"), "test": Path("nq-test.csv")}, Path("nq"),
                          passages=Path("psgs_w100.tsv"))

Three formats are supported: passages as TSV (id, text, title); training JSON, whose questions have positive and hard
negative passages; and questions with only answers, as TSV (question, list of answers) or JSON. EntityQuestions has a
folder of JSON files for each split, with a file for each relation. As in DPR, the positives of a question that has none
are those of BM25's top passages that contain one of its answers.

Every question with answers is kept, because accuracy at k counts all of them. If none of BM25's passages answers a
question, its best one is labelled 0, so that the question belongs to its split. Training leaves such questions out.
"""

import ast
import gzip
import json
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from airgen.components.keys import text_key
from airgen.errors import CorpusError, DatasetError, UsageError
from airgen.evaluation.breakdown import has_answer, token_line
from airgen.retrievers.lexical.bm25 import BM25
from airgen.retrievers.passages import Passages
from airgen.storage.whole_files import whole_file
from airgen.tables.open_table import open_table

_PIECE_CHARACTERS = 1 << 20  # characters of a JSON list that are read at once
_LONGEST_QUESTION = 1 << 26  # maximum characters of a question with its passages
_NAMES = ("id", "text", "title")


@dataclass(frozen=True)
class DprQuestion:
    """A question, with its contexts, {id: (title, text)}, and labels, {passage id: 1 or 0}."""

    text: str
    answers: list[str]
    labels: dict[str, int] = field(default_factory=dict)
    passages: dict[str, tuple[str, str]] = field(default_factory=dict)


def convert_dpr(
    questions: Mapping[str, Path], out: Path, *, passages: Path | None = None, negatives: int = 30, depth: int = 100
) -> dict[str, int]:
    """Write a dataset, and return the counts of what was written and left out.

    Args:
        questions: The files, or folders of JSON files, by split.
        out: A new folder.
        passages: DPR's TSV file. Without it, the corpus consists of the passages in the question files.
        negatives: Maximum number of hard negatives per question to label as 0.
        depth: Number of BM25's hits in which to look for the answers of a question without positives. This needs the
            whole corpus in memory.

    Raises UsageError if the folder is not empty, and DatasetError if a file has another format.
    """
    if out.exists() and any(out.iterdir()):
        raise UsageError(f"{out}: is not empty; name another folder")
    if not questions:
        raise UsageError("give at least one file of questions: --questions SPLIT=FILE")
    counts: Counter[str] = Counter()
    splits = {split: list(_questions(path, negatives)) for split, path in questions.items()}
    (out / "qrels").mkdir(parents=True, exist_ok=True)
    known = _write_corpus(out / "corpus.jsonl", passages, splits, counts)
    for question in (question for each in splits.values() for question in each):
        for key in question.labels.keys() - known:
            del question.labels[key]
            counts["labels of passages that are not in the corpus"] += 1
    counts["questions labelled by their answers among BM25's passages"] = _label_by_answers(
        out / "corpus.jsonl", splits, depth
    )
    positives = 0
    with whole_file(out / "queries.jsonl") as fresh, fresh.open("w", encoding="utf-8", newline="\n") as file:
        for split, each in splits.items():
            lines = ["query-id\tcorpus-id\tscore\n"]
            for number, question in enumerate(each, 1):
                if not question.labels:
                    counts["questions without answers and labels, left out"] += 1
                    continue
                counts["questions without a passage that answers them"] += not any(question.labels.values())
                key = f"{split}-{number}"
                row = {"_id": key, "text": question.text, "metadata": {"split": split, "answers": question.answers}}
                file.write(json.dumps(row, ensure_ascii=False) + "\n")
                lines += [f"{key}\t{passage}\t{label}\n" for passage, label in question.labels.items()]
                counts[f"queries of {split}"] += 1
                counts["labels"] += len(question.labels)
                positives += sum(question.labels.values())
            (out / "qrels" / f"{split}.tsv").write_text("".join(lines), encoding="utf-8", newline="\n")
    if not positives:
        raise DatasetError(f"{out}: no question has a passage that answers it: are the files of the same collection?")
    return {name: count for name, count in counts.items() if count}


def _write_corpus(
    path: Path, passages: Path | None, splits: Mapping[str, list[DprQuestion]], counts: Counter[str]
) -> set[str]:
    """Write the corpus, and return its ids."""
    known: set[str] = set()
    rows = _passages(passages) if passages is not None else _contexts(splits)
    with whole_file(path) as fresh, fresh.open("w", encoding="utf-8", newline="\n") as file:
        for key, title, text in rows:
            if key in known:
                continue
            known.add(key)
            file.write(json.dumps({"_id": key, "title": title, "text": text}, ensure_ascii=False) + "\n")
    counts["passages"] = len(known)
    if not known:
        raise DatasetError(f"{path}: there are no passages: name DPR's TSV with --passages")
    return known


def _passages(path: Path) -> Iterator[tuple[str, str, str]]:
    """Yield (id, title, text) for each row of DPR's TSV."""
    try:
        with open_table(path, delimiter="\t", header=None, known=_NAMES) as table:
            names = list(_NAMES) if set(_NAMES) <= set(table.names) else table.names[:3]
            if len(names) < 3:
                raise DatasetError(f"{path}: passages need the columns id, text and title, between tabs")
            for row in table.rows:
                key, text, title = (row.cells[name] for name in names)
                if key.strip() and text.strip():
                    yield key.strip(), title, text
    except CorpusError as error:
        raise DatasetError(str(error)) from error


def _contexts(splits: Mapping[str, list[DprQuestion]]) -> Iterator[tuple[str, str, str]]:
    for each in splits.values():
        for question in each:
            for key, (title, text) in question.passages.items():
                yield key, title, text


def _questions(path: Path, negatives: int) -> Iterator[DprQuestion]:
    """Yield the questions of a file in any of the formats, or of each file in a folder, in the order of their names."""
    if path.is_dir():
        files = sorted(file for file in path.iterdir() if ".json" in file.suffixes)
        if not files:
            raise DatasetError(f"{path}: has no JSON file of questions")
        for file in files:
            yield from _questions(file, negatives)
        return
    if ".json" in path.suffixes:
        for number, item in enumerate(_items(path), 1):
            yield _question(item, f"{path}: question {number}", negatives)
        return
    try:
        with open_table(path, delimiter="\t", header=False) as table:
            if len(table.names) != 2:
                raise DatasetError(f"{path}: a line needs a question, a tab and a list of answers")
            for row in table.rows:
                text, answers = row.cells.values()
                yield DprQuestion(text.strip(), _answers(answers, f"{path}:{row.line}"))
    except CorpusError as error:
        raise DatasetError(str(error)) from error


def _answers(text: str, where: str) -> list[str]:
    """Parse a list of answers in Python or JSON syntax."""
    try:
        value = ast.literal_eval(text.strip())
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        value = None
    if not isinstance(value, list) or not all(isinstance(answer, str) for answer in value):
        raise DatasetError(f"{where}: {text[:60]!r} is not a list of answers, such as ['Paris']")
    return value


def _question(item: Any, where: str, negatives: int) -> DprQuestion:
    if not isinstance(item, dict) or not isinstance(item.get("question"), str):
        raise DatasetError(f"{where}: needs a text `question`")
    answers = item.get("answers", item.get("answer", []))
    answers = [str(element) for element in (answers if isinstance(answers, list) else [answers])]
    question = DprQuestion(item["question"].strip(), answers)
    for name, label, most in (("positive_ctxs", 1, None), ("hard_negative_ctxs", 0, negatives)):
        contexts = item.get(name) or []
        if not isinstance(contexts, list) or not all(isinstance(element, dict) for element in contexts):
            raise DatasetError(f"{where}: {name} is not a list of passages")
        for context in contexts[:most]:
            title, text = str(context.get("title") or ""), str(context.get("text") or "")
            key = str(context.get("passage_id") or context.get("psg_id") or text_key(f"{title}\x1f{text}")[:16])
            question.labels.setdefault(key, label)
            question.passages.setdefault(key, (title, text))
    return question


def _items(path: Path) -> Iterator[Any]:
    """Yield the items of a JSON list of any size, one by one. Raises DatasetError."""
    decoder = json.JSONDecoder()
    try:
        with _opened(path) as file:
            held = file.read(_PIECE_CHARACTERS).lstrip("\ufeff \t\r\n")
            if not held.startswith("["):
                raise DatasetError(f"{path}: contains no JSON list of questions")
            place, piece = 1, _PIECE_CHARACTERS
            while True:
                while place < len(held) and held[place] in " \t\r\n,":
                    place += 1
                if held.startswith("]", place):
                    return
                try:
                    value, end = decoder.raw_decode(held, place)
                    if end == len(held):  # a number may continue
                        raise ValueError("cut")
                except ValueError as error:
                    more = file.read(piece)
                    if not more or len(held) - place > _LONGEST_QUESTION:
                        raise DatasetError(f"{path}: not JSON near {held[place : place + 40]!r}") from error
                    held, place, piece = held[place:] + more, 0, 2 * piece
                    continue
                yield value
                place, piece = end, _PIECE_CHARACTERS
    except (OSError, EOFError, UnicodeDecodeError, RecursionError) as error:
        raise DatasetError(f"{path}: cannot be read ({error})") from error


def _opened(path: Path) -> IO[str]:
    return gzip.open(path, "rt", encoding="utf-8") if path.suffix == ".gz" else path.open(encoding="utf-8")


def _label_by_answers(path: Path, splits: Mapping[str, list[DprQuestion]], depth: int) -> int:
    """Label BM25's top passages for the questions without positives, and return the number of these questions."""
    unlabelled = [
        question
        for questions in splits.values()
        for question in questions
        if question.answers and not any(question.labels.values())
    ]
    if not unlabelled:
        return 0
    ids, titles, texts = [], [], []
    with path.open(encoding="utf-8") as file:
        for line in file:
            row = json.loads(line)
            ids.append(row["_id"])
            titles.append(row["title"])
            texts.append(row["text"])
    system = BM25()
    system.index(Passages(ids, texts, titles if any(titles) else ()))
    lines: dict[int, str] = {}
    hits = system.search([question.text for question in unlabelled], min(depth, len(ids)))
    for question, positions in zip(unlabelled, hits.positions.tolist(), strict=True):
        wanted = [*filter(None, map(token_line, question.answers))]
        found = [place for place in positions if place >= 0] or [0]
        for place in found:
            if place not in lines:
                lines[place] = token_line(texts[place])
            if has_answer(lines[place], wanted):
                question.labels[ids[place]] = 1
        if not question.labels:
            question.labels[ids[found[0]]] = 0
    return len(unlabelled)
