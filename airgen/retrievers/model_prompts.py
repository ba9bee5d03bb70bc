"""Prompts of models that give them only in their model card, by the model's name.

    known_prompts("intfloat/e5-small-v2")         # Prompts("query: ", "passage: ")
    known_prompts("all-MiniLM-L6-v2")             # Prompts("", ""): it was trained without
    known_prompts("acme/our-model")               # None: nothing is known

A model's own configuration comes first, so an entry is used only for a model that has no prompts of its own. The
entries state what the model cards and MTEB's registry (mteb 2.26) say for retrieval. This is the only place where they
are written.
"""

import re
from functools import cache
from typing import NamedTuple


class Prompts(NamedTuple):
    """What is put before a query and before a passage."""

    query: str
    passage: str = ""


_TASK = "Given a web search query, retrieve relevant passages that answer the query"
_SEARCHING = Prompts("Represent this sentence for searching relevant passages: ")
_E5 = Prompts("query: ", "passage: ")
_NOMIC = Prompts("search_query: ", "search_document: ")
_INSTRUCT = Prompts(f"Instruct: {_TASK}\nQuery: ")
_NONE = Prompts("")

# Patterns of names in lower case without the owner; the first that matches counts. An owner is part of a pattern where
# others use the same name.
_TABLE: tuple[tuple[str, Prompts], ...] = (
    (r"(multilingual-)?e5-large-instruct|e5-mistral-7b-instruct", _INSTRUCT),
    (r"e5-(small|base|large)-(unsupervised|v2|ko(-v2)?|trm-nl)|e5-(small|base|large)|e5-base-4k", _E5),
    (r"multilingual-e5-(small|base|large)(-ko(-v2)?|-q4)?|koe5|user-base", _E5),
    (r"bge-(small|base|large)-en(-v1\.5)?(-int8)?", _SEARCHING),
    (r"bge-(small|base|large)-zh(-v1\.5)?", Prompts("为这个句子生成表示以用于检索相关文章：")),
    (r"bge-(multilingual-gemma2|en-icl)", Prompts(f"<instruct>{_TASK}.\n<query>")),
    (r"mxbai-embed-large-v1|uae-large-v1|mdbr-leaf-(ir|mt)", _SEARCHING),
    (r"snowflake-arctic-embed-(xs|s|m|l|m-long|m-v1\.5)", _SEARCHING),
    (r"snowflake-arctic-embed-[ml]-v2\.0", Prompts("query: ")),
    (r"nomic-embed-(text-v\d.*|code)|modernbert-embed-(base|large)|cde-small-v[12]", _NOMIC),
    (r"user2-(small|base)|frida|ru-en-rosberta", _NOMIC),
    (r"gte-qwen(1\.5|2)-[\d.]+b-instruct|sfr-embedding-(2_r|mistral)|linq-embed-mistral", _INSTRUCT),
    (r"qwen3-embedding-[\d.]+b", Prompts(f"Instruct: {_TASK}\nQuery:")),
    (r"inf-retriever-v1(-1\.5b)?", _INSTRUCT),
    (r"stella_en_(400m|1\.5b)_v5", Prompts(f"Instruct: {_TASK}.\nQuery: ")),
    (r"kalm-embedding-multilingual-mini-instruct-v[\d.]+", Prompts(f"Instruct: {_TASK} \n Query: ")),
    (r"embeddinggemma-300m", Prompts("task: search result | query: ", "title: none | text: ")),
    (
        r"instructor-(base|large|xl)",
        Prompts(
            "Represent the question for retrieving supporting documents: ", "Represent the document for retrieval: "
        ),
    ),
    (r"ruri-(small|base|large)(-v2)?", Prompts("クエリ: ", "文章: ")),
    (r"ruri-v3-\d+m", Prompts("検索クエリ: ", "検索文書: ")),
    # Models that need none, which is known as well.
    (r"all-(minilm|mpnet|distilroberta|roberta)-.*|multi-qa-.*|msmarco-.*|paraphrase-.*|distiluse-.*", _NONE),
    (r"gtr-t5-.*|sentence-t5-.*|labse.*|contriever.*|dpr-.*|nli-.*|stsb-.*|average_word_embeddings_.*", _NONE),
    (r"gte-(tiny|small|base|large)(-zh|-en-v1\.5)?|gte-modernbert-base|gte-multilingual-base|mini-gte", _NONE),
    (r"bge-m3.*|granite-embedding-.*|jina-embedding(s-v2)?-.*|gist-.*|noinstruct-.*|medembed-.*", _NONE),
    (r"bce-embedding-.*|mcontriever.*|(un)?sup-simcse-.*|laprador", _NONE),
    (r"potion-.*|m2v_.*|wordllama-.*|static-(retrieval|similarity)-.*|m3e-.*|text2vec-.*", _NONE),
    (r"splade.*|.*colbert.*|.*cross-encoder.*|tas-b|distilbert-dot-tas_b-.*|ance-.*|rubert-tiny.*", _NONE),
)


@cache
def known_prompts(name: str) -> Prompts | None:
    """Return the prompts of a model by its name, or None if it is not in the table.

    Args:
        name: A name on the Hub or in the catalogue, or a folder, whose last part or place in the Hub's cache counts.
    """
    parts = [part for part in re.split(r"[/\\]", name.lower()) if part]
    cached = next((part.rpartition("--")[2] for part in parts if part.startswith("models--")), "")
    last = cached or (parts[-1] if parts else "")
    return next((prompts for pattern, prompts in _TABLE if re.fullmatch(pattern, last)), None)
