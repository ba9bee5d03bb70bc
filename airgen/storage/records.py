"""All row types: frozen dataclasses, which are all that modules exchange.

One type per arrow of the pipeline, one table per type (`KeyTerm` -> `key_term`), forward only:

    document -> passage -> sample -> character -> scenario -> query -> rewrite -> hard_negative
             -> recall -> prelabel -> judgment -> decision

A pipeline's rows begin with the same four fields: `key` (see `airgen.components.keys.row_key`), `parent` (the key of
the row it was made from), `fingerprint` (of the stage that made it) and `ordinal` (its position among siblings).
Tables are derived from the fields of the types. Those in `TABLES` are created with the work database, and the table of
a third-party stage when a job with that stage runs.
"""

import re
from dataclasses import dataclass, field

SURROGATE = re.compile("[\ud800-\udfff]")
"""A lone surrogate, which truncated JSON escapes produce and UTF-8 cannot encode."""


def flat_text(title: str | None, text: str) -> str:
    """Join title and text with a space, as for retrievers, re-rankers and BEIR's flat index."""
    return f"{title} {text}" if title else text


def prompt_text(title: str | None, text: str) -> str:
    """Join title and text with a blank line, as shown to an LLM."""
    return f"{title}\n\n{text}" if title else text


def storable(text: str) -> str:
    """Return the text as the work database stores it: lone surrogates become U+FFFD, NUL characters are removed."""
    return text if text.isascii() and "\x00" not in text else SURROGATE.sub("\ufffd", text).replace("\x00", "")


@dataclass(frozen=True, slots=True)
class Document:
    """A document as a reader yields it, before cleaning. `position` is its place in `source` (line, page, member).

    Attributes:
        outline: Level (1 is the highest) and text of each heading, in order.
        metadata: The metadata named in the corpus YAML (`airgen.corpus.readers.metadata`), as JSON; empty if none is
            named.
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
    """The unit of retrieval (a corpus document in BEIR): a document or a chunk of it (QA), or a chunk of one long
    document (Long-Doc).

    `ordinal` is its position in the corpus. `start` and `end` are character offsets in the cleaned document, both 0 if
    unknown. `tokens` is its length by the corpus's tokenizer. `metadata` is its document's metadata.
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
"""The cleaners of pieces: they remove parts of documents that stay, so they drop no documents."""


def why_dropped(cleaner: str, reason: str) -> str:
    """Return a cleaner and its reason in words; only the reason where that says what the cleaner looks for, too.

    >>> why_dropped("length", "too short"), why_dropped("exact duplicates", "exact duplicate")
    ('length: too short', 'exact duplicate')
    """
    return reason if cleaner.removesuffix("s") in reason else f"{cleaner}: {reason}"


@dataclass(frozen=True, slots=True)
class Dropped:
    """A document, passage or piece that a cleaner removed: the cleaner, the reason, and the beginning of the text."""

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
    """The four fields with which every row of the pipeline begins."""

    key: str
    parent: str
    fingerprint: str
    ordinal: int


@dataclass(frozen=True, slots=True)
class Sample(Row):
    """A passage drawn to become a positive. `parent` is the passage, and `ordinal` its position in the seeded
    permutation.

    `second` is the key of the second passage that a multi-hop query needs, or empty.
    """

    second: str = ""


@dataclass(frozen=True, slots=True)
class Character(Row):
    """A person who might look for the passage (paper 2.3, step 2). `options` are all those that the LLM named."""

    text: str
    options: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Scenario(Row):
    """A situation in which that character would look for it (step 3)."""

    text: str
    options: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Need(Row):
    """What the character must find out, in one sentence (`generation.method: needs`). `truth` is `true` or `false` for
    a claim, and otherwise empty.

    Its query is the need as most people would type it, and its rewrites are the same need in other words, each with the
    name of its wording as its style. Its table is created with a job of this method.
    """

    text: str
    truth: str = ""


@dataclass(frozen=True, slots=True)
class Query(Row):
    """The original query (step 4) and its requested attributes (appendix A.2.1)."""

    text: str
    length: str
    type: str
    information: str
    attempts: int = 1


@dataclass(frozen=True, slots=True)
class Candidate(Row):
    """One of several drafts of a query (`generation.candidates`). `parent` is the scenario, and `ordinal` counts from
    0.

    `problem` says why the draft cannot be the query, or is empty. `score` is how well it retrieves its source, from -1
    to 1.
    """

    text: str
    problem: str
    score: float


@dataclass(frozen=True, slots=True)
class OwnQuery(Row):
    """A query in the user's file (`queries` in a pipeline). `parent` is the key of the `Query` with its text.

    `ordinal` is its position in the order in which queries are drawn. `id` is the id in the file, or empty. `count` is
    how often it was asked, `lines` is how many lines of the file have this text, and `line` is the first of them.
    `filter` is a JSON object of the values that its passages must have, or empty, and `metadata` one of kept columns.
    """

    text: str
    id: str
    count: int
    lines: int
    line: int
    filter: str = ""
    metadata: str = ""


@dataclass(frozen=True, slots=True)
class Rewrite(Row):
    """One round of rewriting (step 5), or another wording of a need. `ordinal` is the round or the place of the
    wording, from 1, and `parent` is the query.
    """

    text: str
    style: str
    attempts: int = 1


@dataclass(frozen=True, slots=True)
class HardNegative(Row):
    """A document that looks relevant but is not (step 6). `parent` is the query, and `origin` is generated or mined.

    `id` is its id in the corpus of the finished dataset. A mined negative is a passage of the corpus, so its row has
    no text.
    """

    id: str
    text: str
    title: str = ""
    origin: str = "generated"


@dataclass(frozen=True, slots=True)
class ReferenceAnswer(Row):
    """A short answer to a query, and the words in its document that support it. `parent` is the query.

    `quote` occurs in the document's text verbatim.
    """

    text: str
    quote: str


@dataclass(frozen=True, slots=True)
class Recall(Row):
    """The embedding model's top k for a query, best first: ids and scores (paper 2.4, step 1)."""

    model: str
    ids: list[str] = field(default_factory=list)
    scores: list[float] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Prelabel(Row):
    """One re-ranker's scores for a query's recalled documents, in the order of recall (step 2).

    `scorer` is a hash of everything that the score of a pair depends on, and `texts` has a 64-bit hash of each
    document's text, so that a later row can reuse the scores of unchanged pairs.
    """

    model: str
    ids: list[str] = field(default_factory=list)
    scores: list[float] = field(default_factory=list)
    scorer: str = ""
    texts: list[int] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Judgment(Row):
    """The LLM's judgment of a (query, document) pair (step 3). `parent` is the query, and `id` the document.

    `level` is 0 to 3, as in Table 8. `probability` is the probability of relevance, if the judge gives one. `judge` is
    the name of its prompt, or of the file that holds the user's label.
    """

    id: str
    level: int
    probability: float | None = None
    judge: str = ""
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Decision(Row):
    """A decision about a judgment by the rules of Table 2.

    Attributes:
        action: One of keep_query, drop_query, keep_negative, drop_negative, add_positive, ignore; or or or add_negative
            for a passage that does not answer the user's own query.
        level, probability: The level and probability of the judgment behind the decision, if there was one.
    """

    id: str
    action: str
    reason: str
    level: int | None = None
    probability: float | None = None


@dataclass(frozen=True, slots=True)
class Skip(Row):
    """Work that ended without a row, so that nothing is dropped silently.

    `reason` is the same for all such cases and is counted; `detail` is about this case. `cause` says what ended the
    work: llm (a failed call), malformed (an unreadable answer), check, settings (nothing was requested) or control.
    """

    stage: str
    reason: str
    detail: str = ""
    cause: str = "check"


@dataclass(frozen=True, slots=True)
class Answer:
    """The raw answer to one LLM call, or its failure, saved before it is parsed.

    `key` is the key of the complete outgoing request. `error` is empty for an answer, and otherwise a short reason
    (refusal, timeout, http_500, ...). `logprobs` is empty, or JSON with the top alternatives [[token, logprob], ...]
    for each generated token. `cost_usd` is the cost of all attempts, at the prices known when they were sent.
    `counted_here` means that the server reported no usable token counts, so airgen counted the tokens, and the cost is
    the maximum that the call can have cost.
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
    """The maximum cost of one attempt at a call, saved before the call is sent. `answer` is the answer's key.

    The payment with the same key settles it. If there is no payment, the outcome was lost in a crash, and the amount
    counts as spent.
    """

    key: str
    answer: str
    stage: str
    model: str
    endpoint: str
    usd: float


@dataclass(frozen=True, slots=True)
class Payment:
    """The cost of one attempt at a call in US dollars. `key` is the key of its reservation."""

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
