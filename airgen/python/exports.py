"""Convert a benchmark for other tools: ranx, mteb, ragas, deepeval and promptfoo. Each is imported on first use."""

import importlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from airgen.errors import AirgenError, UsageError
from airgen.storage.whole_files import write_text

Labelled = Any
"""A `Benchmark`, whose module imports this one."""


def package(name: str, what: str, distribution: str = "") -> Any:
    """Import another tool.

    Args:
        name: The module to import.
        what: The feature that needs it, for the message.
        distribution: Name of the package, if it differs from the module name.

    Raises:
        UsageError: The package is not installed. The message includes the command that installs it.
    """
    try:
        return importlib.import_module(name)
    except ImportError as error:
        top = name.partition(".")[0]
        if getattr(error, "name", "").partition(".")[0] not in (top, ""):
            raise AirgenError(f"{what}: {top} is installed but cannot be imported: {error}") from error
        raise UsageError(f"{what} needs the package {top}: pip install {distribution or top}") from error


def ranx_qrels(bench: Labelled) -> Any:
    """Return a `ranx.Qrels`. Labels of 0 are left out, because ranx treats every label as relevant."""
    labels = {query: {key: int(label) for key, label in row.items() if label > 0} for query, row in bench.qrels.items()}
    return package("ranx", "to_ranx()").Qrels({query: row for query, row in labels.items() if row}, name=bench.name)


def mteb_task(bench: Labelled, name: str) -> Any:
    """Return a task of mteb 2 with its data in memory, so that nothing is downloaded."""
    abstasks = package("mteb.abstasks.retrieval", "to_mteb()", "mteb")
    metadata_of = package("mteb.abstasks.task_metadata", "to_mteb()", "mteb").TaskMetadata
    datasets = package("datasets", "to_mteb()")
    from airgen.evaluation.result import MTEB_LANGUAGES

    info = bench.dataset.info
    language = str(info.get("language") or "en")
    metadata = metadata_of(
        name=name or bench.name,
        description=f"{bench.name}: made by airgen from a corpus of documents.",
        dataset={"path": bench.name, "revision": bench.dataset.digest("all" if not bench.only else bench.only)[:16]},
        type="Retrieval",
        category="t2t",
        modalities=["text"],
        eval_splits=bench.splits,
        eval_langs=[MTEB_LANGUAGES.get(language, "eng-Latn")],
        main_score="ndcg_at_10",
        is_public=False,
    )
    corpus = datasets.Dataset.from_list(
        [{"id": key, "title": passage["title"], "text": passage["text"]} for key, passage in bench.corpus.items()]
    )
    data = {}
    for split in bench.splits:
        part = bench if bench.only else bench.split(split)
        queries = datasets.Dataset.from_list([{"id": key, "text": text} for key, text in part.queries.items()])
        qrels = {query: {key: int(label) for key, label in row.items()} for query, row in part.qrels.items()}
        data[split] = {"corpus": corpus, "queries": queries, "relevant_docs": qrels, "top_ranked": None}
    kind = type("AirgenRetrieval", (abstasks.AbsTaskRetrieval,), {"metadata": metadata, "__module__": __name__})
    task = kind()
    task.dataset, task.data_loaded = {"default": data}, True
    return task


def _samples(bench: Labelled) -> Iterator[tuple[str, str, list[str], list[str], str]]:
    """Yield (query id, query, ids of its relevant passages, their texts, reference answer or "")."""
    for key, text in bench.queries.items():
        ids = bench.relevant(key)
        passages = [bench.corpus[id_] for id_ in ids if id_ in bench.corpus]
        texts = ["\n\n".join(filter(None, (passage["title"], passage["text"]))) for passage in passages]
        yield key, text, ids, texts, bench.answers.get(key, "")


def ragas_dataset(bench: Labelled) -> Any:
    """Return a `ragas.EvaluationDataset` of single-turn samples, without responses and retrieved contexts."""
    ragas = package("ragas", "to_ragas()")
    return ragas.EvaluationDataset(
        samples=[
            ragas.SingleTurnSample(
                user_input=text,
                reference_contexts=texts,
                reference_context_ids=ids,
                **({"reference": answer} if answer else {}),
            )
            for _, text, ids, texts, answer in _samples(bench)
        ],
        name=bench.name,
    )


def deepeval_dataset(bench: Labelled) -> Any:
    """Return a `deepeval.dataset.EvaluationDataset` of goldens, without actual outputs."""
    deepeval = package("deepeval.dataset", "to_deepeval()", "deepeval")
    goldens = [
        deepeval.Golden(
            input=text,
            context=texts,
            expected_output=answer or None,
            source_file=", ".join(ids) or None,
            additional_metadata={"query_id": key, "relevant": ids},
        )
        for key, text, ids, texts, answer in _samples(bench)
    ]
    return deepeval.EvaluationDataset(goldens=goldens)


def promptfoo_tests(bench: Labelled, path: str | Path | None) -> list[dict[str, Any]]:
    """Return test cases for promptfoo with the variables `query` and `context`.

    Args:
        bench: The benchmark.
        path: A .yaml or .json file to write them to as well.

    Raises:
        UsageError: The file name has another ending.
    """
    tests: list[dict[str, Any]] = []
    for key, text, ids, texts, answer in _samples(bench):
        test: dict[str, Any] = {
            "description": f"{bench.name} {key}",
            "vars": {"query": text, "context": "\n\n".join(texts)},
            "metadata": {"query_id": key, "relevant": ids},
        }
        if answer:
            test["vars"]["reference"] = answer
            test["assert"] = [{"type": "factuality", "value": answer}]
        tests.append(test)
    if path is not None:
        if Path(path).suffix.lower() not in (".yaml", ".yml", ".json"):
            raise UsageError(f"{path}: promptfoo reads tests from .yaml or .json")
        as_json = Path(path).suffix.lower() == ".json"
        text = (
            json.dumps(tests, indent=1, ensure_ascii=False)
            if as_json
            else yaml.safe_dump(tests, sort_keys=False, allow_unicode=True, width=120)
        )
        write_text(Path(path), text)
    return tests
