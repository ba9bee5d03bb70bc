"""Settings of candidate generation: attributes and their ratios, rewrites, negatives and limits."""

from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import Field, PrivateAttr, ValidationInfo, field_validator, model_validator

from airgen.settings.base import FILE, Language, Settings, refuse
from airgen.settings.languages import SUPPORTED
from airgen.settings.spec import Part, Spec

LENGTHS = ("lt5", "lt10", "10to20", "ge20")
TYPES = ("question", "problem", "claim", "keywords")  # keywords: not in the paper, which treats them as a style
INFORMATION = ("overall", "partial")
WORDINGS = ("plain", "terms", "lay", "described")  # of a need, the first is its query
STYLES = ("concise", "casual", "informal", "formal", "professional", "complicated", "academic")

EXAMPLES = (10, 10_000)  # the minimum and maximum number of real queries
_EXAMPLES_BYTES = 4 << 20

_KNOWN = {"lengths": LENGTHS, "types": TYPES, "information": INFORMATION, "styles": STYLES}

MINED_RANKS = (10, 100)
"""The first and last rank of the recall from which unjudged passages are mined."""

Ratio = Annotated[float, Field(ge=0)]


class MeaningSettings(Settings):
    """The embedding model that checks that a rewrite keeps the meaning of the original query."""

    model: Annotated[Spec, Part("embedder")]
    min_cosine: float = Field(default=0.6, ge=-1, le=1)  # a rewrite with a lower cosine is dropped


class WordingSettings(Settings):
    """Which wording of each need is exported: one drawn by a ratio, or the one nearest to an overlap.

    The overlap is the share of a query's content words that its passages have (`airgen.text.overlap`). Real queries
    (`like`) determine it.
    """

    plain: Ratio = 1  # as most people would type it
    terms: Ratio = 0  # in the terms of the field
    lay: Ratio = 0  # in everyday words
    described: Ratio = 0  # things are described instead of named
    overlap: float | None = Field(default=None, ge=0, le=1)  # the mean overlap to come near to, in place of a ratio
    like: Annotated[str | None, FILE] = None  # a file of ten or more real queries, whose mean overlap is estimated

    @property
    def ratios(self) -> dict[str, float]:
        """Return the ratio of each wording."""
        return {name: getattr(self, name) for name in WORDINGS}

    @model_validator(mode="after")
    def _one_way(self) -> Self:
        drawn = self.ratios != {name: type(self).model_fields[name].default for name in WORDINGS}
        refuse(
            (self.overlap is not None and self.like is not None, "overlap: cannot be combined with like: remove one"),
            (
                drawn and (self.overlap is not None or self.like is not None),
                "a ratio of wordings cannot be combined with overlap or like: remove one of them",
            ),
            (sum(self.ratios.values()) <= 0, "at least one wording must have a ratio above 0"),
        )
        return self


class GenerationSettings(Settings):
    """Settings of candidate generation (paper 2.3 and appendix A.2)."""

    lengths: dict[str, Ratio] = {"lt5": 1, "lt10": 4, "10to20": 2, "ge20": 1}  # ratios of the length classes, in words
    types: dict[str, Ratio] = {"question": 3, "problem": 1, "claim": 1}  # ratios of the types of queries
    information: dict[str, Ratio] = {"overall": 1, "partial": 1}  # ratios of queries about the whole document or a part
    styles: dict[str, Ratio] = {  # ratios of the styles of rewrites
        "concise": 5,
        "casual": 3,
        "informal": 3,
        "formal": 1,
        "professional": 1,
        "complicated": 1,
        "academic": 1,
    }
    characters: int = Field(default=3, ge=1, le=10)  # characters per answer, of which one is drawn
    scenarios: int = Field(default=3, ge=1, le=10)  # scenarios per answer, of which one is drawn
    rewrites: int = Field(default=2, ge=0, le=5)  # rounds of rewriting, each with fewer of the document's words
    hard_negatives: tuple[int, int] = (3, 7)  # the minimum and maximum number per query
    negatives: Literal["generated", "mined", "both"] = "generated"  # both: generated negatives, and as many mined ones
    # all: also of candidates whose document was judged not to answer them, which `--without control` exports (4.1)
    negatives_of: Literal["accepted", "all"] = "accepted"
    max_copied_words: int = Field(default=6, ge=2)  # maximum number of consecutive words copied from the document
    max_overlap: float | None = Field(default=None, gt=0, le=1)  # maximum share of the query's stems in its document
    max_title_overlap: float | None = Field(default=None, gt=0, le=1)  # maximum share of the title's stems in the query
    meaning: MeaningSettings | None = None  # without it, only the judge checks the meaning of a rewrite
    # needs: one need per passage in several wordings, of which `wording` chooses; paper: the steps of AIR-Bench
    method: Literal["needs", "paper"] = "paper"
    wording: WordingSettings = Field(default_factory=WordingSettings)  # which wording of a need is exported
    prompts: Literal["default", "small"] = "default"  # small: prompts for models of a few billion parameters
    variants: dict[str, str] = {}  # prompts that replace those of the family: {hard_negative: mine/negatives}
    one_call: bool = False  # one answer for all steps up to the query: small prompts with worked examples, or needs
    unasked: Literal["skip", "keep"] = "skip"  # whether fragments, captions, references and front matter get queries
    queries_per_passage: int = Field(default=1, ge=1, le=20)  # the maximum number of queries per passage
    candidates: int = Field(default=1, ge=1, le=20)  # drafts per query; the draft that finds its document best is kept
    answers: bool = False  # also generate a short reference answer to each accepted query
    multi_hop: Annotated[float, Field(ge=0, le=1)] = 0.0  # the share of queries that need two passages
    # 10 or more real queries, one per line: whose style is imitated or, with method: needs, whose wording is matched
    examples: Annotated[str | None, FILE] = None
    stratify: str | None = None  # a field of the corpus's metadata, over whose values documents are drawn evenly
    filters: list[str] = []  # fields of the corpus's metadata; each query gets a filter with its document's values
    query_language: Language | None = None  # the language of queries that differs from the corpus's (cross-lingual)
    unanswerable: Annotated[float, Field(ge=0, le=0.5)] = 0.0  # the share of queries whose answers leave the corpus
    mistyped: Annotated[float, Field(ge=0, le=1)] = 0.0  # share of queries with a typo, or a missing or cut word
    stages: list[Annotated[str, Field(pattern=r"^[\w.]+:\w+$")]] = []  # further stages, as module:STAGE

    _example_texts: tuple[str, ...] = PrivateAttr(default=())

    @property
    def example_texts(self) -> tuple[str, ...]:
        """Return the distinct lines of `examples`."""
        return self._example_texts

    @model_validator(mode="after")
    def _read_examples(self, info: ValidationInfo) -> Self:
        if self.examples is None:
            return self
        if self.method == "paper" and (self.rewrites or self.multi_hop):
            raise ValueError("examples needs rewrites: 0 and multi_hop: 0, which do not keep the style")
        path = ((info.context or {}).get("folder") or Path()) / Path(self.examples).expanduser()
        try:
            with path.open("rb") as file:
                text = file.read(_EXAMPLES_BYTES + 1).decode("utf-8-sig")
        except (OSError, UnicodeDecodeError) as error:
            raise ValueError(f"examples: {path} cannot be read: {getattr(error, 'strerror', None) or error}") from None
        queries = tuple(dict.fromkeys(line for raw in text.splitlines() if (line := " ".join(raw.split())[:500])))
        if not EXAMPLES[0] <= len(queries) <= EXAMPLES[1] or len(text) > _EXAMPLES_BYTES:
            raise ValueError(
                f"examples: {path} has {len(queries):,} queries, but {EXAMPLES[0]} to {EXAMPLES[1]:,} are needed"
            )
        self._example_texts = queries
        return self

    @field_validator("lengths", "types", "information", "styles")
    @classmethod
    def _known(cls, value: dict[str, float], info: ValidationInfo) -> dict[str, float]:
        known = _KNOWN[str(info.field_name)]
        unknown = sorted(set(value) - set(known))
        refuse(
            (unknown, f"unknown {', '.join(unknown)} (known: {', '.join(known)})"),
            (sum(value.values()) <= 0, "at least one ratio must be above 0"),
        )
        return value

    @field_validator("query_language")
    @classmethod
    def _supported(cls, value: str | None) -> str | None:
        if value is not None and value not in SUPPORTED:
            raise ValueError(f"must be one of {', '.join(sorted(SUPPORTED))}")
        return value

    @field_validator("hard_negatives")
    @classmethod
    def _range(cls, value: tuple[int, int]) -> tuple[int, int]:
        if not 0 <= value[0] <= value[1] <= 20:
            raise ValueError("must be [minimum, maximum] with 0 <= minimum <= maximum <= 20")
        return value

    @property
    def free_rewrites(self) -> bool:
        """Return whether a rewrite may have any length, since only the original query has a length class (A.2.1).

        With the small prompts, which constrain the length of the answer, a rewrite stays in its original's class.
        """
        return self.prompts == "default"

    @property
    def generated_negatives(self) -> tuple[int, int]:
        """Return the minimum and maximum number of hard negatives to request from the LLM."""
        return (0, 0) if self.negatives == "mined" else self.hard_negatives

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        long = self.method == "needs" or self.lengths.get("10to20") or self.lengths.get("ge20")
        needs, fields = self.method == "needs", type(self).model_fields
        papers = [
            name
            for name in ("lengths", "styles", "rewrites", "meaning")
            if getattr(self, name) != fields[name].get_default(call_default_factory=True)
            and (self.prompts != "small" or getattr(self, name))  # small prompts set no rewrites
        ]
        refuse(
            (
                self.types.get("claim") and not long,
                "types.claim needs lengths.10to20 or lengths.ge20 above 0: a short claim is ambiguous (A.2.1)",
            ),
            (self.one_call and self.prompts != "small" and not needs, "one_call needs prompts: small or method: needs"),
            (
                needs and (self.multi_hop or self.candidates > 1),
                "method: needs has one passage and one draft per query: remove multi_hop and candidates, or set "
                "method: paper",
            ),
            (
                needs and self.prompts == "small" and not self.one_call,
                "method: needs with prompts: small needs one_call: true, or set method: paper",
            ),
            (
                needs and bool(papers),
                f"{', '.join(papers)}: belongs to method: paper; method: needs has no lengths or styles: remove it",
            ),
            (
                not needs and self.wording != WordingSettings(),
                "wording needs method: needs, which words each need several times",
            ),
            (
                self.one_call
                and self.prompts == "small"
                and (self.multi_hop or self.query_language or (self.examples and not needs)),
                "one_call cannot write queries in the style of examples, over two passages or in another "
                "language: remove examples, multi_hop and query_language, or one_call",
            ),
            (
                self.types.get("keywords") and self.prompts == "small" and not self.one_call,
                "types.keywords needs one_call with the small prompts",
            ),
            (
                self.negatives_of == "all" and self.generated_negatives[1] == 0,
                "negatives_of: all needs generated negatives, but these settings request none",
            ),
        )
        return self
