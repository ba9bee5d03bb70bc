"""Is it easier for a small judge to look for a known answer than to say whether a passage is relevant?

    python benchmarks/answer_judge.py WORK COLLECTION... [--pairs 60] [--words 150] [--ignore cranfield=0]

A generated query comes with its source, so the generator's LLM can write down what the source answers before anybody
judges another passage. Here a passage that people call relevant plays the source: the LLM answers the query from it
(`prompts/small/answer.j2`), and the other pairs of that query, half of them relevant, are judged in several ways:

alone               `prompts/small/judge_yes_no.j2`: the document, the query, P(Yes)
answer, same words  the same prompt; a right answer stands below the query
answer              "does the document give this answer, or another one that is right?", the document first
answer, last        the same, the document last
both orders         the mean logit of the last two
answer, examples    the last one with four examples
overlap             no LLM: the share of the answer's stems that the document has

Prints the area under the ROC curve with 95 % intervals over queries, alone and in a logistic regression with the scores
and votes of `pipelines/agree.yaml`, which is fitted on the other collections. A query with no second relevant passage
has no source and is left out. Answers are kept in WORK, so a stopped run goes on.
"""

from __future__ import annotations

import argparse
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from rich.console import Console

from airgen.dataset.beir import BeirDataset
from airgen.keys import rng
from airgen.llms.base import Llm, Request
from airgen.pipeline.ask import ask_until, parsed
from airgen.pipeline.ask_each import ask_about
from airgen.pipeline.control.combined_judge import BY_RERANKERS, features
from airgen.pipeline.control.judge import judge_pair
from airgen.pipeline.control.judge_kinds import Verdict
from airgen.pipeline.progress import Display
from airgen.pipeline.stage import Refusal, Tools
from airgen.prompts import PromptSet
from airgen.quality.judge.agreement_figures import auc, interval
from airgen.quality.judge.evidence import Evidence, Selection, gather
from airgen.quality.judge.labelled_pairs import CalibrationPair
from airgen.quality.judge.logistic import fit, predict
from airgen.records import prompt_text
from airgen.settings import Pipeline, load_pipeline
from airgen.settings.control import JudgeSettings
from airgen.settings.yaml_file import find_yaml
from airgen.store import Store
from airgen.text.display import markdown_table
from airgen.text.overlap import borrowed

HEAD = """---
version: 1
about: Does the document give a known answer?
inputs: [query, document]
output: yes_no
---
=== system ===
{% include "small/_task.j2" %}
"""
DOCUMENT, QUERY = '{{ document | fenced("document") }}', '{{ query | fenced("query") }}'
ASKED = "Does the document give this answer, or another right answer to the same query? Answer only Yes or No."
SHOTS = (
    ("how long do hard boiled eggs keep in the fridge", "About a week.",
     "Cooked eggs spoil faster than raw ones. Chilled within two hours, they can be eaten for seven days.", "Yes"),
    ("how long do hard boiled eggs keep in the fridge", "About a week.",
     "For a firm yolk, lower eggs from the fridge into boiling water and cook them for eleven minutes.", "No"),
    ("effect of rent control on the number of new flats", "Fewer flats are built.",
     "In cities with strict ceilings, tenants moved less often and paid less. Old buildings declined.", "No"),
    ("effect of rent control on the number of new flats", "Fewer flats are built.",
     "After the ceiling was introduced, building permits fell by a fifth, while elsewhere they grew.", "Yes"),
)  # fmt: skip
ANSWER = "A right answer: "


def turn(document: str, query: str) -> str:
    """One question of the prompt with the document last."""
    return f"=== user ===\n{query}\n\n{document}\n\n{ASKED}\n"


def prompts_in(folder: Path) -> PromptSet:
    """The prompts that are tried, beside the shipped ones."""
    folder.mkdir(parents=True, exist_ok=True)
    shots = "".join(
        turn(f"<document>\n{text}\n</document>", f"<query>\n{query}\n\n{ANSWER}{answer}\n</query>")
        + f"=== assistant ===\n{said}\n"
        for query, answer, text, said in SHOTS
    )
    for name, body in {
        "answer_first": f"=== user ===\n{DOCUMENT}\n\n{QUERY}\n\n{ASKED}\n",
        "answer_last": turn(DOCUMENT, QUERY),
        "answer_shots": shots + turn(DOCUMENT, QUERY),
    }.items():
        (folder / f"{name}.j2").write_text(HEAD + body, encoding="utf-8")
    return PromptSet([folder])


WAYS = {  # name: (prompt, with the answer?)
    "alone": ("small/judge_yes_no", False),
    "answer, same words": ("small/judge_yes_no", True),
    "answer": ("answer_first", True),
    "answer, last": ("answer_last", True),
    "answer, examples": ("answer_shots", True),
}


def sources_of(one: Evidence, folder: Path, selection: Selection) -> dict[str, str]:
    """{query: the text of a relevant passage that is in none of the query's pairs}"""
    dataset, found = BeirDataset.open(folder), {}
    labels = dataset.qrels(selection.split).labels
    judged: dict[str, set[str]] = {}
    for pair in one.pairs:
        judged.setdefault(pair.query, set()).add(pair.id)
    for query, asked in judged.items():
        relevant = sorted(
            id_ for id_, label in labels[query].items()
            if label >= selection.label_from and label not in selection.ignore and id_ not in asked
        )  # fmt: skip
        if relevant:
            found[query] = rng("source", query).choice(relevant)
    texts = {row.id: prompt_text(row.title, row.text) for row in dataset.passages() if row.id in set(found.values())}
    return {query: texts[id_] for query, id_ in found.items()}


def cut(text: str, words: int) -> str:
    return " ".join(text.split(" ")[:words])


def judged(pipeline: Pipeline, prompt: str) -> Pipeline:
    judge = JudgeSettings(kind="yes-no", prompt=prompt)
    return pipeline.model_copy(update={"control": pipeline.control.model_copy(update={"judge": judge})})


def logit(probability: float) -> float:
    held = min(max(probability, 1e-6), 1 - 1e-6)
    return math.log(held / (1 - held))


class Trial:
    """One collection: its pairs whose query has a source, what was said of them, and their other features."""

    def __init__(self, one: Evidence, folder: Path, selection: Selection, words: int) -> None:
        self.name, self.words = one.name, words
        self.evidence, self.sources = one, sources_of(one, folder, selection)
        self.pairs = [pair for pair in one.pairs if pair.query in self.sources]
        self.relevant = np.array([pair.relevant for pair in self.pairs])
        self.said: dict[str, NDArray[np.float64]] = {}
        self.answers: dict[str, str] = {}
        rows = [features(pair.id, one.recalls[pair.query], one.prelabels[pair.query], None) for pair in self.pairs]
        self.others = np.array([[row[name] for name in BY_RERANKERS] for row in rows])

    def ask(self, pipeline: Pipeline, prompts: PromptSet, store: Store, ways: list[str]) -> None:
        """The answer to each query from its source, then each pair in every way; the pairs of a document together."""
        prompt = prompts.get("small/answer")

        async def answer(engine: Llm, query: str) -> str:
            values = {"language_name": "English", "query": self.evidence.queries[query]}
            messages = prompt.render(**values, document=cut(self.sources[query], self.words))
            params = {"temperature": 0.0, "max_tokens": 200}
            request = Request(pipeline.llm.model, messages, params, prompt.schema, 0, pipeline.llm.endpoint, "answer")
            found = await ask_until(
                engine, request, parsed(request.schema or {}),
                lambda first, last, problem, attempt: replace(first, sample=attempt), attempts=2,
            )  # fmt: skip
            return "" if isinstance(found, Refusal) else " ".join(found[0]["answer"].split())

        queries = sorted(self.sources)
        self.answers = dict(zip(queries, ask_about(queries, answer, pipeline, store), strict=True))
        plans = {way: judged(pipeline, WAYS[way][0]) for way in ways}
        # All that begins with one document stands together, so that a prefix cache serves it.
        order = [(pair, way) for pair in sorted(self.pairs, key=lambda pair: (pair.id, pair.query)) for way in ways]

        async def one(engine: Llm, item: tuple[CalibrationPair, str]) -> float:
            pair, way = item
            query, known = self.evidence.queries[pair.query], self.answers[pair.query]
            query = f"{query}\n\n{ANSWER}{known}" if WAYS[way][1] and known else query
            document = cut(self.evidence.documents[pair.id], self.words)
            found = await judge_pair(Tools(plans[way], prompts, {}, engine), query, document)
            return logit(found.probability or 0.0) if isinstance(found, Verdict) else math.nan

        scores = dict(zip(order, ask_about(order, one, judged(pipeline, "answer_first"), store), strict=True))
        self.said = {way: np.array([scores[pair, way] for pair in self.pairs]) for way in ways}
        if {"answer", "answer, last"} <= set(ways):
            self.said["both orders"] = (self.said["answer"] + self.said["answer, last"]) / 2
        self.said["overlap"] = np.array(
            [borrowed(self.answers[pair.query], self.evidence.documents[pair.id], "en")[0] for pair in self.pairs]
        )

    def area(self, scores: NDArray[np.float64]) -> str:
        queries = [pair.query for pair in self.pairs]
        found = interval(lambda at: auc(scores[at], self.relevant[at]), queries)
        return f"{found.value:.2f} [{found.low:.2f}, {found.high:.2f}]"

    def matrix(self, way: str | None) -> NDArray[np.float64]:
        return self.others if way is None else np.column_stack([self.said[way], self.others])


def combined(trials: list[Trial], left_out: Trial, way: str | None) -> NDArray[np.float64]:
    """What a regression that was fitted on the other collections says of this one's pairs."""
    others = [one for one in trials if one is not left_out]
    values = np.vstack([one.matrix(way) for one in others])
    weights = fit(values, np.concatenate([one.relevant for one in others]), ridge=1.0)
    return np.asarray(predict(weights, left_out.matrix(way)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("work", type=Path)
    parser.add_argument("collections", type=Path, nargs="+")
    parser.add_argument("--pairs", type=int, default=60)
    parser.add_argument("--words", type=int, default=150, help="of a document, for the LLM")
    parser.add_argument("--ways", nargs="+", choices=list(WAYS), default=list(WAYS), metavar="WAY")
    parser.add_argument("--ignore", nargs="*", default=[], metavar="NAME=LABEL")
    parser.add_argument("--threads", type=int, default=1)
    given = parser.parse_args()
    pipeline = load_pipeline(find_yaml("pipelines", Path("agree.yaml")))
    llm = pipeline.llm.model_copy(update={"threads": given.threads})
    pipeline = pipeline.model_copy(update={"llm": llm})
    prompts = prompts_in(given.work / "prompts")
    display = Display(given.work / "status.json", Console(stderr=True, quiet=True))
    trials = []
    with Store.open(given.work / "work.duckdb") as store:
        for folder in given.collections:
            ignored = tuple(float(word.split("=")[1]) for word in given.ignore if word.split("=")[0] == folder.name)
            selection = Selection(count=given.pairs, ignore=ignored)
            one = gather(store, folder, selection, pipeline.control, display, given.work / "embeddings")
            trials.append(Trial(one, folder, selection, given.words))
            trials[-1].ask(pipeline, prompts, store, given.ways)
    for one in trials:
        print(f"\n## {one.name}\n")
        for query in sorted(one.sources)[:6]:
            print(f"- {one.evidence.queries[query]}\n  -> {one.answers[query]}")
    ways = list(trials[0].said)
    heads = ["", *(f"{one.name} ({int(one.relevant.sum())} of {len(one.pairs)})" for one in trials)]
    rows = [[way, *(one.area(one.said[way]) for one in trials)] for way in ways]
    rows.append(["scores and votes", *(one.area(combined(trials, one, None)) for one in trials)])
    rows += [[f"... and {way}", *(one.area(combined(trials, one, way)) for one in trials)] for way in ways]
    print("\n" + markdown_table(heads, rows))


if __name__ == "__main__":
    main()
