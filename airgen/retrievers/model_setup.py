"""How each model of a system is run, and what it does not read of the texts.

    setups = model_setups(retriever, corpus, queries, hits)
    setups[0].words          # query prompt "query: "; 512 tokens; 384 dimensions, fp32, cosine; ...

A component that runs a model returns its `ModelSetup` from `setup()`, as its library reports it once the model is
loaded. Reports, tables, manifests and `airgen check` show this value.

A model that knows its tokenizer counts tokens in `token_counts`. Only texts that may be too long are tokenised, and
their counts are kept with the encodings.
"""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np

from airgen.components.keys import content_key
from airgen.retrievers.component import Component
from airgen.retrievers.encoding_cache import EncodingStore, cache_root, root_of
from airgen.retrievers.hits import Hits
from airgen.retrievers.model_facts import Cut, ModelSetup, model_identity
from airgen.retrievers.passages import Passages
from airgen.retrievers.protocols import TextKind
from airgen.settings.spec import Spec, part_fields
from airgen.storage.json_values import DAMAGE, kept_of, read_json, write_json
from airgen.storage.sequences import batched

_TEXTS_AT_ONCE = 1024  # texts tokenised at once
_SPECIAL_TOKENS = 8  # at most, that a tokenizer adds to a text


def model_setups(retriever: Any, corpus: Passages, queries: Sequence[str], hits: Hits) -> tuple[ModelSetup, ...]:
    """Return the setup of every model of a retriever that has searched, with what it cuts.

    Args:
        retriever: A retriever that has indexed the corpus and searched.
        corpus: The corpus.
        queries: The n queries.
        hits: The hits of these queries, (n, k). A re-ranker has read the first of them.
    """
    own = getattr(retriever, "finished_setups", None)
    if own is not None:
        return tuple(own)
    return tuple(_walk(retriever, corpus, queries, hits, top=True))


def _walk(component: Any, corpus: Passages, queries: Sequence[str], hits: Hits, *, top: bool) -> Iterator[ModelSetup]:
    if not isinstance(component, Component):
        return
    if (own := getattr(component, "finished_setups", None)) is not None:
        yield from own
        return
    root = cache_root(component)
    for name, part in part_fields(type(component.settings)):
        held = getattr(component, name)
        for item in held if isinstance(held, list) else [held]:
            if part.kind == "reranker":
                pairs = _pairs(corpus, queries, hits, getattr(component, "top", 0)) if top else None
                yield from _reranking(item, pairs)
            elif isinstance(item, Component) and (setup := item.setup()) is not None:
                passages = count_cut(item, corpus.full_texts, "passage", root)
                similarity = "maxsim" if part.kind == "token-embedder" else setup.similarity
                asked = count_cut(item, queries, "query", None)
                yield replace(setup, similarity=similarity, passages=passages, queries=asked)
            else:
                yield from _walk(item, corpus, queries, hits, top=False)


def _pairs(corpus: Passages, queries: Sequence[str], hits: Hits, top: int) -> list[tuple[str, str]]:
    rows = hits.positions[:, :top].tolist()
    texts = corpus.full_texts_at(place for row in rows for place in row if place >= 0)
    return [(query, texts[place]) for query, row in zip(queries, rows, strict=True) for place in row if place >= 0]


def _reranking(reranker: Any, pairs: list[tuple[str, str]] | None) -> Iterator[ModelSetup]:
    """Yield the setups of a re-ranker. A model of single texts reads each passage once."""
    if not isinstance(reranker, Component):
        return
    for model in (reranker, *reranker.components()):
        if not isinstance(model, Component) or (setup := model.setup()) is None:
            continue
        if pairs is None:
            yield setup
        elif model is reranker:
            yield replace(setup, pairs=_pairs_cut(model, pairs))
        else:
            queries, passages = (list(dict.fromkeys(pair[side] for pair in pairs)) for side in (0, 1))
            cut = count_cut(model, passages, "passage", cache_root(reranker))
            yield replace(setup, passages=cut, queries=count_cut(model, queries, "query", None))


def count_cut(model: Any, texts: Sequence[str], kind: TextKind, root: Path | None) -> Cut | None:
    """Count the texts that a model cuts, or return None if it does not know.

    Args:
        model: A component with `most_tokens` and `token_counts`.
        texts: The texts.
        kind: Whether they are queries or passages.
        root: Root folder of the model's encodings, where counts are kept.
    """
    most = model.most_tokens(kind)
    if most is None:
        return None
    prompt = getattr(model.setup(), f"{kind}_prompt") or ""
    safe = most - _SPECIAL_TOKENS - len(prompt.encode("utf-8", "replace"))  # a token has at least one byte
    long = [text for text in texts if len(text) > safe or len(text.encode("utf-8", "surrogatepass")) > safe]
    counts = _counts(model, long, kind, root)
    if counts is None:
        return None
    over = [counts[text] for text in long if counts[text] > most]
    return Cut(len(texts), len(over), sum(over), sum(over) - most * len(over))


def _counts(model: Any, texts: Sequence[str], kind: TextKind, root: Path | None) -> dict[str, int] | None:
    """Return the number of tokens of each text, kept below `root_of`."""
    folder = root_of(model, root) if kind == "passage" else None
    store = EncodingStore(folder, model_identity(model), "lengths", kind) if folder is not None and texts else None
    counts = {text: int(numbers[0]) for text, (numbers,) in store.find(texts).items()} if store else {}
    for batch in batched([text for text in dict.fromkeys(texts) if text not in counts], _TEXTS_AT_ONCE):
        new = model.token_counts(batch, kind)
        if new is None:
            return None
        counts |= dict(zip(batch, new, strict=True))
        if store:
            store.keep({text: (np.array([count], np.int32),) for text, count in zip(batch, new, strict=True)})
    return counts


def _pairs_cut(model: Any, pairs: Sequence[tuple[str, str]]) -> Cut | None:
    most = model.most_tokens("passage")
    texts = list(dict.fromkeys(text for pair in pairs for text in pair))
    if most is None or (counts := _counts(model, texts, "query", None)) is None:
        return None
    over = [size for pair in pairs if (size := counts[pair[0]] + counts[pair[1]] + model.tokens_of_pair) > most]
    return Cut(len(pairs), len(over), sum(over), sum(over) - most * len(over))


def keep_setups(root: Path, spec: Spec, component: Any) -> None:
    """Save how the models of a component that has run are run, for `kept_setups`."""
    if setups := setups_of(component):
        write_json(_file(root, spec), {"setups": [asdict(setup) for setup in setups]})


def kept_setups(root: Path, spec: Spec) -> list[ModelSetup]:
    """Return what `keep_setups` saved; nothing if it saved nothing."""
    try:
        return [kept_of(ModelSetup, setup) for setup in read_json(_file(root, spec))["setups"]]
    except DAMAGE:
        return []


def _file(root: Path, spec: Spec) -> Path:
    return root / "setups" / f"{content_key([spec.part, spec.identity()])[:16]}.json"


def _without_texts(component: Any) -> Iterator[ModelSetup]:
    if isinstance(component, Component):
        if (setup := component.setup()) is not None:
            yield setup
        for part in component.components():
            yield from _without_texts(part)


def setups_of(component: Any) -> list[ModelSetup]:
    """Return the setups of a component's models, which are loaded if necessary, without counting texts."""
    return list(_without_texts(component))
