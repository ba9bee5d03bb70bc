"""Generate the character, scenario and searches in one call, for small models (the paper uses separate calls).

With `generation.one_call`, the model sees worked examples as chat turns, each with a document and its answer: who found
it, when, its most useful fact, and a search of each form. It then writes the same for the passage. One call replaces
about ten, the examples are a constant prefix, and small models are better at imitating than at following instructions.
Keywords come after the question they shorten; before it, they would name only the subject, which any passage about it
matches.

Only searches of the types in `types` are requested and shown in the examples.

The answer becomes the rows of the paper's steps. All steps use the same answer, which is paid for once. Its searches
are drafts. Those of the drawn type come first, and the others follow in an order determined by the sample's key.
Keywords are also made from the question by removing its function words. The query is the first draft that passes the
checks and, if votes are the labels, retrieves its passage. Its type and length are the draft's.
"""

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import permutations
from typing import Any

from airgen.components.keys import rng
from airgen.generation.attributes import draw, length_class, query_attributes
from airgen.generation.query_checks import first_problem, names_character, off_subject, query_problem
from airgen.llms.base import Request
from airgen.llms.prompts import PromptSet
from airgen.llms.scripted import document, keywords
from airgen.settings import Pipeline
from airgen.settings.generation import TYPES
from airgen.settings.languages import SPACELESS, language_name
from airgen.steps.ask import ask_prompt, echo_of, instructions_of
from airgen.steps.lineage import Lineage
from airgen.steps.step import ATTEMPTS, Problem, Tools, stage_prompt
from airgen.text.excerpt import excerpt
from airgen.text.near_duplicates import borrowed, folded_words
from airgen.text.query_form import answer_line, as_keywords, asks, function_words

PROMPT = "searches"
ACCOUNT = "query"  # the stage to which the calls are charged
NUMBER = re.compile(r"\d+(?:[.,]\d+)*")
_LEAST_KEYWORDS = 3  # fewer words name a subject but not what is wanted
_LEAST_SHARE = 0.5  # of a search's terms that are in its document, where the language is one that the model knows less
_LEAST_STEM = 6  # letters
_LEAST_STRAY_WORDS = 2  # words from the examples that the document does not contain; fewer may be an accident


@dataclass(frozen=True, slots=True)
class Search:
    """A search in an answer. `problem` says why it cannot be the query, or is ""."""

    kind: str
    text: str
    problem: Problem | None

    def length(self, language: str) -> str:
        """Return its length class."""
        return length_class(self.text, language)


@dataclass(frozen=True, slots=True)
class Searches:
    """A usable answer: its searches, in order of preference, at least one of which has no problem."""

    character: str
    scenario: str
    fact: str
    searches: tuple[Search, ...]
    attempts: int

    @property
    def best(self) -> Search:
        """Return the first search without a problem."""
        return next(search for search in self.searches if not search.problem)


def parts(pipeline: Pipeline) -> dict[str, Any]:
    """Return what the rows of every step depend on, since all steps use the first answer with a usable query."""
    generation = pipeline.generation
    if not generation.one_call:
        return {}
    names = ("types", "information", "max_copied_words", "max_overlap", "max_title_overlap", "rewrites")
    return {"one_call": {name: getattr(generation, name) for name in names}}


async def answer_of(lineage: Lineage, tools: Tools) -> Searches | Problem:
    """Return the answer for a sample, from disk if another step has already requested it."""
    pipeline, sample = tools.pipeline, lineage.sample
    _, _, information = query_attributes(pipeline.generation, sample.key)
    part = excerpt(lineage.document, pipeline.language, None if information == "overall" else rng(sample.key, "part"))
    values = {"language_name": language_name(pipeline.language), "document": part}
    order = _order(pipeline, sample.key)

    prompt = stage_prompt(pipeline, tools.prompts, PROMPT)
    output, prompt_text = prompt.output, instructions_of(prompt, values, pipeline.language)
    assert isinstance(output, dict)
    longest = {name: form.get("maxLength", math.inf) for name, form in output["properties"].items()}

    searches: tuple[Search, ...] = ()

    def check(value: Any) -> Problem | None:
        nonlocal searches
        character, scenario = answer_line(value["character"]), answer_line(value["scenario"])

        def problem_of(kind: str, name: str, text: str) -> Problem | None:
            if len(value[name]) >= longest[name] - 1:
                return Problem("is cut off", "use fewer words")  # cut off by the grammar
            return search_problem(
                kind, text, prompt_text, lineage=lineage, tools=tools, character=character, scenario=scenario
            ) or unanswered(kind, text, answer_line(value["fact"]), pipeline.query_language)

        drafts = drafts_of(value, order, pipeline.query_language)
        searches = tuple(Search(kind, text, problem_of(kind, name, text)) for kind, name, text in drafts)
        problems = [search.problem for search in searches]
        return None if None in problems else problems[0]

    answer = await ask_prompt(
        tools,
        PROMPT,
        account=ACCOUNT,
        values=values,
        check=check,
        first=sample.ordinal * ATTEMPTS,
        echo=False,
        left_out=set(TYPES) - set(order),
        pattern=keywords_pattern(part, pipeline.query_language),
    )
    if isinstance(answer, Problem):
        return answer
    value, attempts = answer
    character, scenario, fact = (answer_line(value[name]) for name in ("character", "scenario", "fact"))
    return Searches(character, scenario, fact, searches, attempts)  # of the answer that was checked last


def drafts_of(value: Mapping[str, str], order: Sequence[str], language: str) -> list[tuple[str, str, str]]:
    """Return the searches of an answer in order of preference, each with its type and the property it comes from.

    The model's keywords come before those made from its question.
    """
    drafts = list[tuple[str, str, str]]()
    for kind in order:
        drafts.append((kind, kind, answer_line(value[kind])))
        if kind == "keywords" and "question" in value:
            drafts.append((kind, "question", as_keywords(answer_line(value["question"]), language)))
    first: dict[str, tuple[str, str, str]] = {}
    for draft in drafts:
        if draft[2]:
            first.setdefault(draft[2].casefold(), draft)
    return list(first.values())


def _order(pipeline: Pipeline, key: str) -> list[str]:
    """Return the pipeline's query types: the drawn type first, the others drawn in turn by their ratios."""
    left, order = dict(pipeline.generation.types), [query_attributes(pipeline.generation, key)[1]]
    while True:
        left.pop(order[-1], None)
        if not any(left.values()):
            return order
        order.append(draw(left, key, "type", len(order)))


_KEYWORDS = (3, 6)  # least and most words
_GROUPS = (2, 4)  # of ideographs, which people type with spaces between them
_GROUP = r"(?:[0-9A-Za-z.][0-9A-Za-z.+#_\-]{1,19}|[0-9A-Za-z.\-]{0,6}[\u3400-\u9fff\u00b7]{2,8})"


def keywords_pattern(document: str, language: str) -> str | None:
    """Return a regular expression for keywords that a prompt may hold a model to (`constrain` of its front matter).

    They are words of the document, as a small model invents some in a language that it knows less well. In Chinese and
    Japanese they are groups of a few letters. Returns None for a document with too few words, and for other languages
    without spaces.
    """
    if language in ("ja", "zh"):
        return rf"^{_GROUP}(?: {_GROUP}){{{_GROUPS[0] - 1},{_GROUPS[1] - 1}}}$"
    small = function_words(language)
    stripped = dict.fromkeys(word.strip(_EDGES).removesuffix(".") for word in _ELIDED.sub(" ", document).split())
    known = [word for word in stripped if _KEYWORD.fullmatch(word) and word.casefold() not in small][:_MOST_KNOWN_WORDS]
    if language in SPACELESS or len(known) < _KEYWORDS[1]:
        return None
    word = "|".join(map(re.escape, sorted({*known, *map(str.lower, known)})))  # people type no capitals, or all
    return rf"^(?:{word})(?: (?:{word})){{{_KEYWORDS[0] - 1},{_KEYWORDS[1] - 1}}}$"


_MOST_KNOWN_WORDS = 2000  # the first ones of a longer document; a grammar of more takes seconds to compile
_EDGES = "\"'“”‘’«»‹›„‚,;:!?()[]{}<>…–—*|"
_ELIDED = re.compile(r"\b(?:[cdjlmnst]|qu)['’](?=\w)", re.IGNORECASE)  # French: l'ingénieur
_KEYWORD = re.compile(r"(?=[.+#@/\-]{0,29}\w)[\w.+#@/\-]{2,30}")


def search_problem(
    kind: str, text: str, prompt_text: str, lineage: Lineage, tools: Tools, character: str, scenario: str
) -> Problem | None:
    """Return the problem of a search, or None."""
    pipeline, language, source = tools.pipeline, tools.pipeline.query_language, lineage.document
    prompt = stage_prompt(pipeline, tools.prompts, PROMPT)
    instructions, examples = _own_words(tools.prompts, prompt.name, language)
    words, known = folded_words(text, language), set(folded_words(f"{source} {scenario}", language))
    small = function_words(language)
    own = [word for word in words if word not in small]
    new = [word for word in own if word not in known]
    instruction = next((word for word in new if word in instructions), None)
    strays = [word for word in new if word in examples]
    numbers = [number for number in NUMBER.findall(text) if number not in source]
    role = set(folded_words(character, language)) - known - small
    return first_problem(
        Problem("has a word of the instructions", repr(instruction)) if instruction else None,
        Problem("has words of the examples", ", ".join(strays))
        if len(strays) >= _LEAST_STRAY_WORDS and len(strays) * 2 >= len(own)
        else None,
        _poor_keywords(words, own, held=bool(prompt.constrain)) if kind == "keywords" else None,
        _little_of(text, source, language) if prompt.constrain else None,
        Problem("has a number that is not in its document", ", ".join(numbers)) if numbers else None,
        Problem("copies the title", "with its marks") if " > " in text else None,
        names_character(text, character),
        Problem("mentions its character", "it names the searcher's role") if role & set(new) else None,
        off_subject(text, source, scenario=scenario, character=character, language=language),
        query_problem(
            text,
            source,
            pipeline,
            echo_of(prompt_text, text, pipeline.language),
            kind=kind,
            title=None if pipeline.generation.rewrites else lineage.passage.title,
        ),
    )


def _poor_keywords(said: list[str], own: list[str], *, held: bool = False) -> Problem | None:
    """Return a problem if there are too few keywords or if they repeat a word.

    If a pattern limits them (`held`), no word may contain another ("Sicherung Datensicherung") either, because a model
    then goes round in circles.
    """
    if len(said) < _LEAST_KEYWORDS:
        return Problem("is vague", "one or two words")
    if len(set(own)) < len(own):
        return Problem("repeats itself", "it repeats a word")
    if held and any(_is_about(left, right) for left, right in permutations(own, 2)):
        return Problem("repeats itself", "one word is in another")
    return None


def _is_about(word: str, other: str) -> bool:
    """Return whether another word contains this one or begins with most of it (Meldungen, Meldungsfeld)."""
    stem = word[: max(_LEAST_STEM, len(word) * 2 // 3)]
    return (len(word) > 1 and word in other) or (len(word) >= _LEAST_STEM and other.startswith(stem))


def _little_of(text: str, source: str, language: str) -> Problem | None:
    """Return a problem if a search is about other things than its document, as a model invents in a weaker language.

    At least half of its words are in the document. In Chinese and Japanese, so are each name in Latin letters and a
    part of each keyword.
    """
    share, _ = borrowed(text, source, language)
    if share < _LEAST_SHARE:
        return Problem("has words that are not in its document", f"only {share:.0%} are")
    if language in ("ja", "zh"):
        names = [name for name in _LATIN_NAME.findall(text) if name.casefold() not in source.casefold()]
        groups = text.split() if " " in text and not asks(text, language) else []
        new = names + [group for group in groups if not borrowed(group, source, language)[0]]
        return Problem("has words that are not in its document", ", ".join(new)) if new else None
    return None


_LATIN_NAME = re.compile(r"[A-Za-z]{2,}")


# Questions for a number or a date, in languages where a small model often asks for one that is not given.
_FOR_A_NUMBER = {"de": r"^(?:wann|wie ?viele?)\b", "zh": "何时|什么时候|哪一?[年天月]|多少|多久|几[个年月天次]"}
_GIVEN = {"de": r"\d", "zh": r"\d|[一二三四五六七八九十百千万两半]"}


def unanswered(kind: str, text: str, fact: str, language: str) -> Problem | None:
    """Return whether a question asks for a number or a date, and the fact that it should ask for has none."""
    asked = _FOR_A_NUMBER.get(language) if kind == "question" else None
    if asked is None or not re.search(asked, text, re.IGNORECASE) or re.search(_GIVEN[language], fact):
        return None
    return Problem("asks for a number", "its fact has none")


@lru_cache(maxsize=16)
def _own_words(prompts: PromptSet, name: str, language: str) -> tuple[frozenset[str], frozenset[str]]:
    """Return the content words of a prompt's instructions, and of its examples."""
    first, *shown, last = prompts.get(name).render(document="", language_name="")
    small = function_words(language)

    def content(texts: list[str]) -> frozenset[str]:
        said = frozenset(word for text in texts for word in folded_words(text, language)) - small
        return frozenset(word for word in said if not (language in SPACELESS and asks(word, language)))

    instructions = content([first.content, last.content])
    return instructions, content([message.content for message in shown]) - instructions


def scripted(request: Request) -> str | None:
    """Return the scripted model's answer to this prompt as a value, or None for another prompt."""
    properties = (request.schema or {}).get("properties") or {}
    if "fact" not in properties:
        return None
    random = rng("searches", request.key)
    text = document(Request(request.model, request.messages[-1:]))
    first, *_ = words = keywords(text, 4, random)
    subject = " ".join(words)
    value = {
        "character": "a regular reader",
        "scenario": f"Work stands still because of {subject}, and help is needed.",
        "fact": f"It is about {subject}.",
        "keywords": subject,
        "question": f"how does {subject} work",
        "problem": f"my {first} fails with {subject}",
        "claim": f"It is certain that {subject} is of use to everybody.",
    }
    return json.dumps({name: value[name] for name in properties}, ensure_ascii=False)
