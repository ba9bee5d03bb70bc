"""Defaults that depend on the size of the model: prompts, lengths, drafts and the judge.

    size_of({"backend": "embedded", "model": "qwen2.5-coder-1.5b"})        # ("small", "1.5B")
    size_of({"model": "gpt-4o-mini"})                                      # ("large", "")

If a pipeline sets `generation.prompts`, no default of `generation` is derived. If it sets the kind, prompt, panel or
model of its judge, it keeps that judge.
"""

import re
from collections.abc import Mapping
from typing import Any, Literal

from airgen.errors import AirgenError
from airgen.registry import resolve
from airgen.settings.control import VOTES

Size = Literal["small", "large"]

SMALL_BILLIONS = 5.0  # a model with fewer parameters is small
_PARAMETERS = re.compile(r"(?<![\w.])(\d{1,4}(?:\.\d+)?)([bm])(?![a-z0-9])")
_WORDS = frozenset({"bm25", "rm3", "query-likelihood", "lsa"})  # re-rankers that compare words; their votes say little

LONG_DOC: Mapping[str, Any] = {"types": {"question": 3, "claim": 1}, "hard_negatives": [0, 0]}
"""What the Long-Doc task has by default: questions and claims (A.2.1), no generated hard negatives (A.2.2)."""

# As in pipelines/quickstart.yaml, which gives the reasons.
ONE_CALL: Mapping[str, Any] = {
    "prompts": "small",
    "one_call": True,
    "types": {"question": 5, "keywords": 3},  # only 3 of 10 of its problems and claims were good
    "rewrites": 0,
    "hard_negatives": [3, 3],
    "negatives": "mined",
    "variants": {"hard_negative": "small/brief_hard_negative"},
}
ONE_CALL_LANGUAGES = frozenset({"de", "en", "zh"})
"""Those with worked examples of their own: prompts/small/LANGUAGE/searches.j2."""

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


def derived(pipeline: dict[str, Any]) -> dict[str, Any]:
    """Return a pipeline's values with the defaults that depend on the size of its model."""
    llm = pipeline.get("llm")
    if not llm or size_of(llm)[0] == "large":
        return pipeline
    generation, control = pipeline.get("generation") or {}, pipeline.get("control") or {}
    if isinstance(generation, dict) and "prompts" not in generation and not pipeline.get("queries"):
        alone = not any(generation.get(name) for name in ("examples", "multi_hop", "query_language"))
        at_once = generation.get("one_call", alone and pipeline.get("language") in ONE_CALL_LANGUAGES)
        own = dict(ONE_CALL if at_once else SMALL)
        if pipeline.get("task") == "long-doc":
            own |= {**LONG_DOC, **({"types": dict(ONE_CALL["types"])} if at_once else {})}
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
