"""Providers' embedding models on a loopback server that speaks each provider's own protocol."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from beir_folder import write_beir
from http_double import Asked, answering

import airgen
from airgen.errors import AirgenError, BudgetSpent, ModelError, SettingsError
from airgen.net import http
from airgen.retrievers import load_embedder
from airgen.retrievers.model_facts import Cut
from airgen.retrievers.model_setup import count_cut
from airgen.settings.hosted import HOSTED, PROVIDERS

KEYS = {"openai": "OPENAI_API_KEY", "cohere": "COHERE_API_KEY", "voyage": "VOYAGE_API_KEY", "jina": "JINA_API_KEY",
        "gemini": "GEMINI_API_KEY"}  # fmt: skip
MODELS = {"openai": "text-embedding-3-small", "cohere": "embed-v4.0", "voyage": "voyage-3.5",
          "jina": "jina-embeddings-v3", "gemini": "gemini-embedding-001"}  # fmt: skip
TYPES = {"openai": (None, None), "cohere": ("search_query", "search_document"), "voyage": ("query", "document"),
         "jina": ("retrieval.query", "retrieval.passage"),
         "gemini": ("RETRIEVAL_QUERY", "RETRIEVAL_DOCUMENT")}  # fmt: skip


def vector(text: str) -> list[float]:
    return [float(text.count(letter)) + 0.1 for letter in "aeiou"]


class Provider:
    """Answers as the provider whose path is asked does, and bills ten tokens for each text."""

    def __init__(self) -> None:
        self.url, self.asked = "", list[tuple[str, dict[str, Any], dict[str, str]]]()

    def answer(self, asked: Asked) -> tuple[int, Any]:
        body = asked.json()
        self.asked.append((asked.path, body, {name.lower(): value for name, value in asked.headers.items()}))
        if asked.path.endswith(":batchEmbedContents"):
            texts = [item["content"]["parts"][0]["text"] for item in body["requests"]]
            return 200, {"embeddings": [{"values": vector(text)} for text in texts]}
        if asked.path.endswith("/embed"):
            rows = [vector(text) for text in body["texts"]]
            return 200, {"embeddings": {"float": rows}, "meta": {"billed_units": {"input_tokens": 10 * len(rows)}}}
        rows = [{"index": place, "embedding": vector(text)} for place, text in enumerate(body["input"])]
        return 200, {"data": rows[::-1], "usage": {"total_tokens": 10 * len(rows)}}


@pytest.fixture
def provider(monkeypatch: pytest.MonkeyPatch) -> Iterator[Provider]:
    monkeypatch.setattr(http, "_LONGEST_WAIT_SECONDS", 0.0)
    for name in KEYS.values():
        monkeypatch.setenv(name, f"secret-of-{name}")
    made = Provider()
    with answering(made.answer) as url:
        made.url = f"{url}/v1"
        yield made


@pytest.mark.parametrize("name", PROVIDERS)
def test_each_provider_is_asked_in_its_own_way(name: str, provider: Provider) -> None:
    embedder = load_embedder({name: MODELS[name], "base_url": provider.url})
    for place, (kind, text) in enumerate((("query", "an aria"), ("passage", "a tuba"))):
        (found,) = embedder.encode([text], kind)  # type: ignore[arg-type]
        assert found == pytest.approx(np.array(vector(text)) / np.linalg.norm(vector(text)), abs=1e-6)
        path, body, headers = provider.asked[-1]
        sent = body["requests"][0] if name == "gemini" else body
        said = [sent.get(field) for field in ("input_type", "task", "taskType") if sent.get(field)]
        assert said == [one for one in (TYPES[name][place],) if one]
        secret = f"secret-of-{KEYS[name]}"
        assert headers.get("x-goog-api-key" if name == "gemini" else "authorization", "").endswith(secret)
        assert MODELS[name] in (path if name == "gemini" else body["model"])
    assert "secret" not in repr(dict(embedder.describe())) and embedder.describe()["family"] == name


@pytest.mark.parametrize("model", HOSTED)
def test_known_names_need_no_provider(model: str) -> None:
    assert load_embedder(model).describe()["family"] == HOSTED[model].provider


def test_the_price_is_that_of_the_billed_tokens_and_the_budget_holds(provider: Provider) -> None:
    embedder = load_embedder({"openai": "text-embedding-3-large", "base_url": provider.url, "batch_size": 2})
    embedder.encode(["a", "b", "c"], "query")
    embedder.encode(["a", "b"], "passage")
    assert embedder.usd_per_query == pytest.approx(10 * 0.13 / 1e6)
    assert embedder.spent == pytest.approx(50 * 0.13 / 1e6)
    tight = load_embedder(
        {"openai": "text-embedding-3-large", "base_url": provider.url, "budget_usd": 5e-6, "concurrency": 1}
    )
    before = len(provider.asked)
    for _ in range(3):
        tight.encode(["one text"], "passage")
    with pytest.raises(BudgetSpent, match=r"text-embedding-3-large: the budget of \$0.00 is spent .*raise budget_usd"):
        for _ in range(3):
            tight.encode(["one text"], "passage")
    assert len(provider.asked) - before <= 4 and tight.spent <= 5e-6 + 10 * 0.13 / 1e6
    with pytest.raises(AirgenError, match="its price is unknown, so no budget can be kept: set usd_per_million"):
        load_embedder({"openai": "text-embedding-9", "budget_usd": 1})
    assert load_embedder({"openai": "text-embedding-9", "budget_usd": 1, "usd_per_million": 0.5}).spent == 0


def test_systems_by_name_in_python(provider: Provider, tmp_path: Path) -> None:
    rows = [{"_id": f"d{place}", "title": "", "text": text} for place, text in enumerate(("aaa aa", "eee", "ooo"))]
    write_beir(tmp_path / "ds", rows, [{"_id": "q", "text": "aaaa"}], {"test": [("q", "d0", 1)]})
    bench = airgen.load(tmp_path / "ds")
    base = {"base_url": provider.url}
    systems = {
        "small": {"openai": "text-embedding-3-small", **base},
        "yaml": {"kind": "dense", "embedder": {"cohere": "embed-v4.0", **base}},
        "bare": lambda texts: [vector(text) for text in texts],
        "search": lambda queries: [["d0"] for _ in queries],
    }
    results = airgen.evaluate(bench, systems, out=tmp_path / "out", quiet=True)
    assert [result.score for result in results] == [1.0] * 4
    assert results["small"].costs.usd_per_1000 == pytest.approx(1000 * 10 * 0.02 / 1e6)
    assert (
        results["yaml"]
        .models[0]
        .words.startswith(
            "query prompt 'input type search_query', passage prompt 'input type search_document' (from cohere)"
        )
    )
    again = airgen.evaluate(bench, systems, out=tmp_path / "out", quiet=True)
    assert again["small"].cached and again["small"].costs.usd_per_1000 == results["small"].costs.usd_per_1000


@pytest.mark.parametrize("given", [{"openai": "text-embedding-3-small"}, "text-embedding-3-small"])
def test_a_missing_key_is_one_line(given: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    write_beir(tmp_path, [{"_id": "d", "text": "a"}], [{"_id": "q", "text": "a"}], {"test": [("q", "d", 1)]})
    with pytest.raises(SettingsError, match="the environment variable OPENAI_API_KEY is not set"):
        airgen.evaluate(airgen.load(tmp_path), given, out=tmp_path / "out", quiet=True)


def test_a_bare_function_is_taken_for_what_it_returns() -> None:
    from airgen.retrievers.user_models import is_embedding

    assert is_embedding(lambda texts: [[1.0, 2.0]] * len(texts))
    assert is_embedding(lambda anything: np.ones((len(anything), 3)))
    assert not is_embedding(lambda queries: [["d1"], ["d2"]]) and not is_embedding(lambda queries: [["1"], ["2"]])
    assert not is_embedding(lambda queries: [[1, 2], [3, 4]])  # ids
    assert not is_embedding(lambda queries: [[("d1", 0.5)], [("d2", 0.5)]])
    assert not is_embedding(lambda query: [1.0, 2.0]) and not is_embedding(lambda queries, k=10: [[1.0, 2.0]] * 2)
    assert not is_embedding(lambda texts: 1 / 0)


def test_texts_beyond_the_limit_are_counted() -> None:
    embedder = load_embedder({"cohere": "embed-english-v3.0"})
    cut = count_cut(embedder, ["word " * 600, "short"], "passage", None)
    assert cut is not None and (cut.texts, cut.cut) == (2, 1) and 550 <= cut.tokens <= 650
    plain = load_embedder({"kind": "http", "model": "m", "max_chars": 20})
    assert count_cut(plain, ["x" * 30, "x"], "passage", None) == Cut(2, 1, 30, 10)
    with pytest.raises(ModelError):
        load_embedder({"kind": "http", "model": "m", "base_url": "http://127.0.0.1:9/v1", "timeout": 1}).encode(
            ["a"], "query"
        )
