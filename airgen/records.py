"""Every row type: frozen dataclasses, the only currency between modules.

One type per arrow of the pipeline, one table per type (`KeyTerm` -> `key_term`), forward only:

    document -> passage -> sample -> character -> scenario -> query -> rewrite -> hard_negative
             -> recall -> prelabel -> judgment -> decision

Rows of the pipeline begin with the same four fields: `key` (see `airgen.keys.row_key`), `parent` (the key of
the row that it was made from), `fingerprint` (of the stage that made it) and `ordinal` (which of several).

Tables are made from the fields of the types: those of `TABLES` with the work database, that of a stage from outside
airgen when a job with this stage runs.
"""

import re
from dataclasses import dataclass, field

SURROGATE = re.compile("[\ud800-\udfff]")
"""A lone surrogate, which truncated JSON escapes give and UTF-8 cannot hold."""


def flat_text(title: str | None, text: str) -> str:
    """Title and text joined by a space: what retrievers, re-rankers and BEIR's flat index read."""
    return f"{title} {text}" if title else text


def prompt_text(title: str | None, text: str) -> str:
    """Title and text joined by a blank line: what a prompt shows to an LLM."""
    return f"{title}\n\n{text}" if title else text


def storable(text: str) -> str:
    """Return the text as the work database stores it: lone surrogates become U+FFFD, NUL characters are removed."""
    return text if text.isascii() and "\x00" not in text else SURROGATE.sub("\ufffd", text).replace("\x00", "")


@dataclass(frozen=True, slots=True)
class Document:
    """What a reader yields, before cleaning. `position` is its place in `source` (line, page, member).

    Attributes:
        outline: Level (1 is the highest) and text of each heading in it, in order.
        metadata: What the corpus's YAML names (`airgen.corpus.readers.metadata`), as JSON; empty if it names nothing.
    """

    id: str
    text: str
    title: str = ""
    source: str = ""
    position: str = ""
    licence: str = ""
    language: str = ""
    outline: tuple[tuple[int, str], ...] = ()
    metadata: str = ""


@dataclass(frozen=True, slots=True)
class Passage:
    """The unit of retrieval (BEIR: a corpus document). QA: a whole document or a chunk of it; Long-Doc: a chunk of one.

    `ordinal` is its order in the corpus; `start` and `end` are character offsets in the cleaned document's text, both 0
    where they are not known; `tokens` is its length in the corpus's tokenizer. `metadata` is its document's.
    """

    key: str
    id: str
    ordinal: int
    text: str
    title: str = ""
    document: str = ""
    start: int = 0
    end: int = 0
    tokens: int = 0
    source: str = ""
    position: str = ""
    licence: str = ""
    metadata: str = ""


PART = "part"
MASKED = "masked"
PARTS = frozenset({PART, "apparatus", MASKED})
"""The cleaners of pieces: what they leave out was in a document that stays, so it is no document that was dropped."""


@dataclass(frozen=True, slots=True)
class Dropped:
    """A document, passage or piece that a cleaner refused: which cleaner, why, and the text's beginning."""

    key: str
    id: str
    cleaner: str
    reason: str
    detail: str = ""
    source: str = ""
    position: str = ""
    text: str = ""


@dataclass(frozen=True, slots=True)
class Row:
    """The four fields that every row of the pipeline begins with."""

    key: str
    parent: str
    fingerprint: str
    ordinal: int


@dataclass(frozen=True, slots=True)
class Sample(Row):
    """A passage drawn to become a positive; `parent` is the passage, `ordinal` its turn in the seeded permutation.

    `second` is the key of the second passage that a multi-hop query needs, or empty.
    """

    second: str = ""


@dataclass(frozen=True, slots=True)
class Character(Row):
    """Who might look for the passage (paper 2.3, step 2); `options` are all that the LLM named."""

    text: str
    options: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Scenario(Row):
    """When that character would look for it (step 3)."""

    text: str
    options: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Query(Row):
    """The original query (step 4) and the attributes that were asked for (appendix A.2.1)."""

    text: str
    length: str
    type: str
    information: str
    attempts: int = 1


@dataclass(frozen=True, slots=True)
class Candidate(Row):
    """One of several drafts of a query (`generation.candidates`); `parent` is the scenario, `ordinal` counts from 0.

    `problem` says why it cannot be the query, else it is empty. `score` is how well it finds its source, -1 to 1.
    """

    text: str
    problem: str
    score: float


@dataclass(frozen=True, slots=True)
class OwnQuery(Row):
    """A query of the user's file (`queries:` of a pipeline); `parent` is the key of its text's `Query`.

    `ordinal` is its place in the order in which queries are drawn. `id` is the file's, or empty. `count` is how often
    it was asked, `lines` how many lines of the file it stands for, `line` the first of them. `filter` is a JSON object
    of the values that its passages must have, or empty.
    """

    text: str
    id: str
    count: int
    lines: int
    line: int
    filter: str = ""


@dataclass(frozen=True, slots=True)
class Rewrite(Row):
    """One round of rewriting (step 5); `ordinal` is the round, from 1. `parent` is the query."""

    text: str
    style: str
    attempts: int = 1


@dataclass(frozen=True, slots=True)
class HardNegative(Row):
    """A document that looks relevant and is not (step 6); `parent` is the query; `origin` is generated or mined.

    `id` is its id in the corpus of the finished dataset. A mined negative is a passage of the corpus, so its row has
    no text.
    """

    id: str
    text: str
    title: str = ""
    origin: str = "generated"


@dataclass(frozen=True, slots=True)
class ReferenceAnswer(Row):
    """A short answer to a query, and the words of its document that give it; `parent` is the query.

    `quote` occurs in the document's text exactly as here.
    """

    text: str
    quote: str


@dataclass(frozen=True, slots=True)
class Recall(Row):
    """The embedding model's top k for a query, best first: ids and scores of equal length (paper 2.4, step 1)."""

    model: str
    ids: list[str] = field(default_factory=list)
    scores: list[float] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Prelabel(Row):
    """One re-ranker's scores of a query's recalled documents, in the recall's order (step 2).

    `scorer` is a hash of all that a score of one pair depends on, `texts` a 64-bit hash of each document's text:
    a later row takes over the scores of the pairs that stayed as they are.
    """

    model: str
    ids: list[str] = field(default_factory=list)
    scores: list[float] = field(default_factory=list)
    scorer: str = ""
    texts: list[int] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Judgment(Row):
    """What the LLM says of one (query, document) pair (step 3). `parent` is the query, `id` the document.

    `level` is 0 to 3 as in Table 8; `probability` of relevance if the judge gives one. `judge` is the name of its
    prompt, or that of the file of a label that the user brought.
    """

    id: str
    level: int
    probability: float | None = None
    judge: str = ""
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Decision(Row):
    """What Table 2 makes of a judgment.

    Attributes:
        action: One of keep_query, drop_query, keep_negative, drop_negative, add_positive, ignore; add_negative for a
            passage that does not answer the user's own query.
        level, probability: Those of the judgment behind the decision, if there was one.
    """

    id: str
    action: str
    reason: str
    level: int | None = None
    probability: float | None = None


@dataclass(frozen=True, slots=True)
class Skip(Row):
    """Work that ended without a row: nothing is silently dropped.

    `reason` is the same for all such cases and is counted, `detail` belongs to this one. `cause` says what ended it:
    llm (a failed call), malformed (an unreadable answer), check, settings (none was asked for), control.
    """

    stage: str
    reason: str
    detail: str = ""
    cause: str = "check"


@dataclass(frozen=True, slots=True)
class Answer:
    """The raw answer of one LLM call, or its failure, kept before it is parsed.

    `key` is the key of the complete outgoing request. `error` is empty for an answer; else a short reason
    (refusal, timeout, http_500, ...). `logprobs` is JSON: for each generated token, its top alternatives
    [[token, logprob], ...], or empty. `cost_usd` is what all attempts at it cost, by the prices known when they were
    sent. `counted_here`: the server gave no usable count of tokens, so they are counted here, and the cost is the most
    that the call can have cost.
    """

    key: str
    stage: str
    model: str
    endpoint: str
    text: str
    error: str = ""
    finish_reason: str = ""
    prompt_tokens: int = 0
    cached_tokens: int = 0
    completion_tokens: int = 0
    cost_usd: float = 0.0
    seconds: float = 0.0
    logprobs: str = ""
    counted_here: bool = False


@dataclass(frozen=True, slots=True)
class Reservation:
    """The most that one attempt at a call can cost, on the disk before the call is sent. `answer` is the answer's key.

    It is settled by the payment of the same key. Without one, a kill or a crash lost the outcome: it counts as spent.
    """

    key: str
    answer: str
    stage: str
    model: str
    endpoint: str
    usd: float


@dataclass(frozen=True, slots=True)
class Payment:
    """What one attempt at a call cost in US dollars. `key` is that of its reservation."""

    key: str
    stage: str
    usd: float


TABLES: tuple[type, ...] = (
    Passage,
    Dropped,
    Sample,
    Character,
    Scenario,
    Query,
    Candidate,
    OwnQuery,
    Rewrite,
    HardNegative,
    ReferenceAnswer,
    Recall,
    Prelabel,
    Judgment,
    Decision,
    Skip,
    Answer,
    Reservation,
    Payment,
)
"""The types that have a table in every work database."""


def table_of(kind: type) -> str:
    """Return the table of a row type: `KeyTerm` -> `key_term`."""
    return re.sub(r"(?<!^)(?=[A-Z])", "_", kind.__name__).lower()
