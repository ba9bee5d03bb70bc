"""A benchmark that is made of rows once, and an empty working directory."""

from pathlib import Path

import pytest
from rows_maker import LEXICAL, corpus

import airgen


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> airgen.Benchmark:
    """A benchmark of twelve queries with passages' metadata, filters and documents drawn evenly by product."""
    work = tmp_path_factory.mktemp("work") / "handbook"
    generation = {"stratify": "product", "filters": ["version"]}
    source = corpus(metadata=["product", "version"])
    return airgen.generate(source, n=12, work=work, generation=generation, **LEXICAL)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working directory."""
    monkeypatch.chdir(tmp_path)
    return tmp_path
