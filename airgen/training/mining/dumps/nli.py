"""SimCSE's NLI, on which E5 is fine-tuned (its section 5.1): `nli:nli_for_simcse.csv`.

Rows have sent0, sent1, which it entails, and hard_neg, which contradicts it. The pair is (sent0, sent1); hard_neg is a
passage that is judged 0. Sentences may be short.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator

from airgen.corpus.readers.files import opened
from airgen.errors import CorpusError
from airgen.training.mining.dumps.dump_reader import DumpReader, DumpRow, passage_id, plain_line
from airgen.training.mining.pairs import MinedPair, RefusedRow, SourcePassage

_COLUMNS = ("sent0", "sent1", "hard_neg")


class NliDump(DumpReader):
    """The rows of each file."""

    def read(self) -> Iterator[DumpRow]:
        """A MinedPair for each row with two sentences, and its hard negative."""
        for path in self.files:
            with opened(path) as stream:
                text = io.TextIOWrapper(stream, "utf-8-sig", errors="replace", newline="")
                try:
                    for row in csv.DictReader(text):
                        one, other, negative = (plain_line(row.get(name) or "") for name in _COLUMNS)
                        if one and other:
                            against = SourcePassage(passage_id("nli", negative), negative) if negative else None
                            yield MinedPair(one, other, "entailment", passage_id("nli", other), negative=against)
                        else:
                            yield RefusedRow("row", "without sent0 and sent1")
                except csv.Error as error:
                    raise CorpusError(f"{path}: is damaged: {error}") from error
