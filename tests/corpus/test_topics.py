"""The quickstart's corpus: whatever Python runs this, its reference becomes self-contained passages."""

from pathlib import Path

from airgen.corpus.readers.python_topics import TopicsReader, blocks
from airgen.corpus.readers.reader import Place
from airgen.storage.records import Document


def test_definitions_headings_code_and_prose() -> None:
    text = (
        'Title\n*****\n\nSome *prose* that is\nwrapped.\n\nobject.__len__(self)\n\n   Called by\n   "len()".\n\n'
        "   >>> len([])\n   0\n\nBack at the margin.\n\nSub\n===\n\nx ::= y\n    | z\n"
    )
    found = [(block.level, block.text) for block in blocks(text)]
    assert found == [
        (1, "Title"), (0, "Some prose that is wrapped."), (5, "object.__len__(self)"), (0, 'Called by "len()".'),
        (0, ">>> len([])\n0"), (5, ""), (0, "Back at the margin."), (2, "Sub"), (0, "x ::= y\n    | z"),
    ]  # fmt: skip


def test_the_reference_of_this_python() -> None:
    settings = TopicsReader.Settings()
    rows = [row for row in TopicsReader(settings, Place(Path(), licence="PSF-2.0")).read() if isinstance(row, Document)]
    assert len(rows) > 300
    assert len({row.id for row in rows}) == len(rows)
    assert [row.id for row in rows] == [row.id for row in TopicsReader(settings, Place(Path())).read()]
    words = sorted(len(row.text.split()) for row in rows)
    assert words[len(words) // 2] > 60 and words[int(0.95 * len(words))] < 250
    assert all(row.title and row.licence == "PSF-2.0" for row in rows)
    (with_statement,) = [row for row in rows if row.id == "with/the-with-statement"]
    assert '"with" statement' in with_statement.text
