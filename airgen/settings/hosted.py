"""Hosted embedding models that airgen knows by name: their provider, limit and price."""

from collections.abc import Mapping
from typing import Any, NamedTuple


class Hosted(NamedTuple):
    """A hosted embedding model: its provider, the tokens of a text that it reads, and the price of a million tokens in
    US dollars, or None if it is not known.
    """

    provider: str
    tokens: int | None
    usd_per_million: float | None


PROVIDERS = ("openai", "cohere", "voyage", "jina", "gemini")
HOSTED: dict[str, Hosted] = {
    "text-embedding-3-small": Hosted("openai", 8191, 0.02),
    "text-embedding-3-large": Hosted("openai", 8191, 0.13),
    "text-embedding-ada-002": Hosted("openai", 8191, 0.10),
    "embed-v4.0": Hosted("cohere", 128_000, 0.12),
    "embed-english-v3.0": Hosted("cohere", 512, 0.10),
    "embed-english-light-v3.0": Hosted("cohere", 512, 0.10),
    "embed-multilingual-v3.0": Hosted("cohere", 512, 0.10),
    "embed-multilingual-light-v3.0": Hosted("cohere", 512, 0.10),
    "voyage-3-large": Hosted("voyage", 32_000, 0.18),
    "voyage-3.5": Hosted("voyage", 32_000, 0.06),
    "voyage-3.5-lite": Hosted("voyage", 32_000, 0.02),
    "voyage-4-large": Hosted("voyage", 32_000, None),
    "voyage-4": Hosted("voyage", 32_000, None),
    "voyage-4-lite": Hosted("voyage", 32_000, None),
    "voyage-code-3": Hosted("voyage", 32_000, 0.18),
    "voyage-law-2": Hosted("voyage", 16_000, 0.12),
    "voyage-finance-2": Hosted("voyage", 32_000, 0.12),
    "jina-embeddings-v3": Hosted("jina", 8192, None),
    "jina-embeddings-v4": Hosted("jina", 32_768, None),
    "gemini-embedding-001": Hosted("gemini", 2048, 0.15),
}


def hosted_embedder(written: Any) -> dict[str, Any] | None:
    """Return the settings of a hosted model for its name, or for {provider: model, ...}; None for anything else."""
    if isinstance(written, str):
        return {"kind": HOSTED[written].provider, "model": written} if written in HOSTED else None
    if not isinstance(written, Mapping) or "kind" in written:
        return None
    named = [name for name in PROVIDERS if isinstance(written.get(name), str)]
    if len(named) != 1:
        return None
    rest = {name: value for name, value in written.items() if name != named[0]}
    return {"kind": named[0], "model": written[named[0]], **rest}
