"""Queries with more relevant passages than a person expects are named, the one with the most first."""

from pathlib import Path

from beir_folder import write_beir

from airgen.dataset.beir import BeirDataset
from airgen.studies.broad_queries import broad_queries


def test_queries_with_many_relevant_passages(tmp_path: Path) -> None:
    corpus = [{"_id": f"p{n}", "title": "", "text": f"page {n}"} for n in range(13)]
    queries = [{"_id": name, "text": name} for name in ("ten", "thirteen", "eleven", "none")]
    sizes = {"ten": 10, "thirteen": 13, "eleven": 11}
    labels = [(query, f"p{n}", int(n < size)) for query, size in sizes.items() for n in range(13)]
    labels.append(("none", "p0", 0))
    dataset = BeirDataset.open(write_beir(tmp_path / "data", corpus, queries, {"test": labels}, name="data"))
    said = broad_queries(dataset, "test")
    assert said.startswith("2 of 4 queries have more than 10 relevant passages, thirteen the most (13): votes label")
    few = write_beir(tmp_path / "few", corpus, queries[:1], {"test": labels[:13]}, name="few")
    assert broad_queries(BeirDataset.open(few), "test") == ""
