"""Defaults that depend on the size of the model: prompts, lengths, drafts and the judge.

    size_of({"backend": "embedded", "model": "qwen2.5-coder-1.5b"})        # ("small", "1.5B")
    size_of({"model": "gpt-4o-mini"})                                      # ("large", "")

If a pipeline sets `generation.prompts`, no default of `generation` is derived. If it sets the kind, prompt, panel or
model of its judge, it keeps that judge.
"""

import re
from collections.abc import Mapping
from typing import Any, Literal

from airgen.components.registry import resolve
from airgen.errors import AirgenError
from airgen.settings.control import VOTES
from airgen.settings.languages import language_name

Size = Literal["small", "large"]

SMALL_BILLIONS = 5.0  # a model with fewer parameters is small
_PARAMETERS = re.compile(r"(?<![\w.])(\d{1,4}(?:\.\d+)?)([bm])(?![a-z0-9])")
_WORDS = frozenset({"bm25", "rm3", "query-likelihood", "lsa"})  # re-rankers that compare words; their votes say little

LONG_DOC: Mapping[str, Any] = {"types": {"question": 3, "claim": 1}, "hard_negatives": [0, 0]}
"""Defaults for the Long-Doc task: questions and claims (A.2.1), no generated hard negatives (A.2.2)."""

# As in pipelines/quickstart.yaml, which gives the reasons.
ONE_CALL: Mapping[str, Any] = {
    "prompts": "small",
    "one_call": True,
    "rewrites": 0,
    "hard_negatives": [3, 3],
    "negatives": "mined",
    "variants": {"hard_negative": "small/brief_hard_negative"},
}
_QUESTIONS_TOO: Mapping[str, int] = {"question": 5, "keywords": 3}  # of its problems and claims, 3 of 10 were good
_KEYWORDS: Mapping[str, int] = {"keywords": 1}  # of its questions in German, 9 of 9 had a wrong verb or case
ONE_CALL_TYPES: Mapping[str, Mapping[str, int]] = {
    **dict.fromkeys(("en", "zh"), _QUESTIONS_TOO),
    **dict.fromkeys(("de", "es", "fr", "id", "ru"), _KEYWORDS),
}
"""Query types for the languages that have their own examples in prompts/small/LANGUAGE/searches.j2."""
ONE_CALL_LANGUAGES = frozenset(ONE_CALL_TYPES)

READ: Mapping[str, int] = {"de": 50, "en": 77, "zh": 75}
"""Percentage of a 1.5B model's queries that a reader rated as good, by language (docs/notes/generation.md)."""
_GOOD = 75  # percent

# Step by step: in other languages, in the style of real queries, over two passages, and across languages.
SMALL: Mapping[str, Any] = {
    "prompts": "small",
    "lengths": {"lt10": 4, "10to20": 2},
    "scenarios": 1,
    "candidates": 3,
    "rewrites": 1,
    "hard_negatives": [3, 3],
    "negatives": "mined",
    "variants": {"hard_negative": "small/brief_hard_negative"},
}


_OF_NEEDS = ("method", "one_call", "types", "wording")
"""The settings of `method: needs`, whose prompts small models cannot follow: they keep their own prompts."""


def size_of(llm: Any) -> tuple[Size, str]:
    """Return the size of a model, and the number of parameters in its name ("" if there is none).

    Args:
        llm: The settings of an LLM, validated or as written. The size follows from its `size`, otherwise from the
            number of parameters in its name, otherwise from whether its backend is for small models. A model of unknown
            size counts as large.
    """
    names = ("backend", "model", "size")
    values = llm if isinstance(llm, Mapping) else {name: getattr(llm, name, None) for name in names}
    match = _PARAMETERS.search(str(values.get("model") or "").lower())
    if match and match[2] == "m" and float(match[1]) < 10:  # "1m" is the length of a context
        match = None
    billions = float(match[1]) * (1.0 if match[2] == "b" else 1e-3) if match else None
    words = f"{match[1]}{match[2].upper()}" if match else ""
    if values.get("size") in ("small", "large"):
        return "small" if values["size"] == "small" else "large", words
    if billions is not None:
        return "small" if billions < SMALL_BILLIONS else "large", words
    try:
        backend = resolve("backend", str(values.get("backend") or "openai"))
    except AirgenError:  # `LlmSettings` reports what is wrong
        return "large", ""
    return "small" if getattr(backend, "SMALL", False) else "large", ""


def reading_words(llm: Any, language: str) -> str:
    """Return how good readers found a small model's queries in a language, and what to do otherwise: one line.

    It is empty for a large model.
    """
    if size_of(llm)[0] == "large":
        return ""
    name, good = language_name(language), READ.get(language)
    if good is None:
        return (
            f"the quality of small models' queries in {name} has not been checked: read 20 queries before "
            f"trusting their scores, or set a larger model in `llm`"
        )
    words = f"queries in {name}: a reader rated {good}% of a 1.5B model's queries as good"
    return words if good >= _GOOD else f"{words}, which is too few: set a larger model in `llm`"


def derived(pipeline: dict[str, Any]) -> dict[str, Any]:
    """Return a pipeline's values with the defaults that depend on the size of its model."""
    llm = pipeline.get("llm")
    if not llm or size_of(llm)[0] == "large":
        return pipeline
    generation, control = pipeline.get("generation") or {}, pipeline.get("control") or {}
    if isinstance(generation, dict) and "prompts" not in generation and not pipeline.get("queries"):
        if generation.get("method") == "needs":  # as `airgen init` writes it for large models
            generation = {name: value for name, value in generation.items() if name not in _OF_NEEDS}
        alone = not any(generation.get(name) for name in ("examples", "multi_hop", "query_language"))
        at_once = generation.get("one_call", alone and pipeline.get("language") in ONE_CALL_LANGUAGES)
        types = dict(ONE_CALL_TYPES.get(str(pipeline.get("language")), ONE_CALL_TYPES["en"]))
        own = {**ONE_CALL, "types": types} if at_once else dict(SMALL)
        if pipeline.get("task") == "long-doc":
            own |= {**LONG_DOC, **({"types": types} if at_once else {})}
        recall = control.get("recall") if isinstance(control, dict) else None
        if isinstance(recall, dict) and recall.get("pools_only"):
            own.pop("candidates", None)  # the recall's model chooses a draft
        pipeline = {**pipeline, "generation": {**own, **_styled(generation)}}
    if isinstance(control, dict) and isinstance(judge := control.get("judge") or {}, dict):
        judging = judge.get("llm") or llm
        if not {"kind", "prompt", "panel"} & judge.keys() and size_of(judging)[0] == "small":
            pipeline = {**pipeline, "control": {**control, "judge": {**_judge(pipeline, control, judge), **judge}}}
    return pipeline


def _styled(generation: dict[str, Any]) -> dict[str, Any]:
    """Return the settings with defaults for `examples`: queries in the style of real ones are not rewritten."""
    return {"rewrites": 0, **generation} if generation.get("examples") else generation


def _judge(pipeline: Mapping[str, Any], control: Mapping[str, Any], judge: Mapping[str, Any]) -> dict[str, Any]:
    """Return the default judge: votes if possible, because re-rankers vote better than a small model judges. Votes need
    a passage that is known to be relevant."""
    queries = pipeline.get("queries")
    unlabelled = bool(queries) and not (isinstance(queries, dict) and queries.get("labels"))
    rerankers = control.get("rerankers") or ()
    written = [reranker for reranker in rerankers if isinstance(reranker, str | dict)]
    kinds = {reranker.get("kind") if isinstance(reranker, dict) else reranker for reranker in written}
    if unlabelled or kinds & _WORDS or judge:
        return {"kind": "yes-no"}
    return {"kind": VOTES}
