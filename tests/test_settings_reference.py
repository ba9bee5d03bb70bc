"""docs/settings.md is what the models say."""

from __future__ import annotations

from command_line import call

from airgen.corpus.settings import CleanSettings
from airgen.paths import data_dir
from airgen.pipeline.settings_reference import reference
from airgen.registry import REGISTRY
from airgen.settings import Pipeline


def test_the_file_is_what_the_models_say() -> None:
    written = (data_dir("docs") / "settings.md").read_text(encoding="utf-8")
    assert written == reference(), "run: airgen show settings > docs/settings.md"


def test_every_key_and_kind_is_there() -> None:
    text = reference()
    for model in (Pipeline, CleanSettings):
        for name in model.model_fields:
            assert f"| `{name}` |" in text or name == "llm"
    for part in ("backend", "reader", "retriever", "reranker", "embedder"):
        for name in REGISTRY[part]:
            assert f": {name}" in text
    assert "| `target` | whole number from 1 | required |" in text
    assert "| `temperature` | number from 0, to 2 | `1.0` | secondary source on the paper's generation |" in text


def test_one_word_finds_its_lines() -> None:
    assert "| `top_k` |" in call("show", "settings", "top_k") and "| `seed` |" not in call("show", "settings", "top_k")
    assert "no setting mentions 'blub'" in call("show", "settings", "blub")
