"""Compare instructions in English with instructions in the language itself: `python benchmarks/instructions.py
de=COLLECTION ... -n 10`.

For passages of a collection in BEIR format, an LLM is called as in a job, with English instructions and with
instructions in the language. An answer is usable if it passes all checks of the stage at the first attempt. Both
variants get the same passages and attributes. Answers are saved in --work, so that a stopped run can be resumed.

query: character, scenario and query of each passage. rewrite and hard_negative: of a query that people wrote for it.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

from airgen.components.keys import text_key
from airgen.dataset.beir import BeirDataset
from airgen.generation.flow import CANDIDATES
from airgen.generation.hard_negative import HARD_NEGATIVE
from airgen.llms.base import Llm
from airgen.llms.prompts import PromptSet
from airgen.settings import Pipeline
from airgen.settings.languages import SPACELESS
from airgen.steps.ask import ask_about
from airgen.steps.lineage import Lineage
from airgen.steps.step import Tools
from airgen.storage.records import Character, Passage, Query, Row, Sample, Scenario, Skip
from airgen.text.language_check import wrong_language
from airgen.text.sentences import sentences
from airgen.text.words import count_words

CHAINS = {"query": CANDIDATES[:3], "rewrite": CANDIDATES[3:4], "hard_negative": (HARD_NEGATIVE,)}
WORDS = 50
INSTRUCTIONS = ("english", "own")


class EnglishOnly(PromptSet):
    """The shipped prompts without their translations."""

    def in_language(self, name: str, language: str) -> str:
        return name


def pipeline_of(language: str, model: str, threads: int) -> Pipeline:
    """Return the settings of pipelines/quickstart.yaml for a language."""
    generation = {
        "prompts": "small", "lengths": {"lt10": 4, "10to20": 2}, "scenarios": 1,
        "rewrites": 1, "hard_negatives": [3, 3],
        "variants": {"hard_negative": "small/brief_hard_negative"},
    }  # fmt: skip
    llm = {"backend": "embedded", "model": model, "temperature": 0.7, "max_tokens": 512, "threads": threads}
    settings = {"name": "instructions", "task": "qa", "corpus": "none", "target": 1, "language": language}
    return Pipeline.model_validate({**settings, "llm": llm, "generation": generation})


def beginning(text: str, language: str) -> str:
    """Return the first sentences, up to the one with word number WORDS, as a small model on one core reads only 44
    tokens/s."""
    kept, held = list[str](), 0
    for sentence in sentences(text, language):
        if held >= WORDS:
            break
        kept.append(sentence)
        held += count_words(sentence, language)
    return ("" if language in SPACELESS else " ").join(kept)


def beginnings(collection: BeirDataset, language: str, count: int) -> list[Lineage]:
    """Beginnings of passages in an order that depends on their ids, each with a query that people wrote for it."""
    asked: dict[str, list[str]] = {}
    queries = collection.queries()
    for query, labels in collection.qrels("test").labels.items():
        for passage, label in labels.items():
            if label > 0 and 3 <= count_words(queries[query].text, language) <= 20:
                asked.setdefault(passage, []).append(queries[query].text)
    passages = [one for one in collection.passages() if one.id in asked and count_words(one.text, language) >= 30]
    found = []
    for one in sorted(passages, key=lambda one: text_key(f"instructions {one.id}"))[:count]:
        key = text_key(one.id)[:16]
        text = random.Random(one.id).choice(asked[one.id])
        length = "lt10" if count_words(text, language) < 10 else "10to20"
        query = Query(f"q{key}", f"z{key}", "", 0, text, length, "question", "overall")
        passage = Passage(key, one.id, 0, beginning(one.text, language))  # without the title: XQuAD has it in English
        found.append(Lineage(passage, Sample(f"s{key}", key, "", 0), (query,)))
    return found


def summary(row: Row) -> Any:
    """Summarise a row for the reader of the answers."""
    if isinstance(row, Skip):
        return f"[{row.reason}] {row.detail}"
    return f"{getattr(row, 'title', '')}: {row.text}" if hasattr(row, "title") else getattr(row, "text", "")


async def answers(llm: Llm, item: tuple[str, Lineage, str], pipeline: Pipeline) -> dict[str, Any]:
    """Return the rows of a chain of stages for a passage, and why it ended."""
    instructions, lineage, chain = item
    prompts = PromptSet() if instructions == "own" else EnglishOnly()
    plan = {stage.name: stage.name for stage in (*CANDIDATES, HARD_NEGATIVE)}
    tools = Tools(pipeline, prompts, plan, llm)
    if chain == "query":
        lineage = replace(lineage, rows=())
    found: dict[str, Any] = {"language": pipeline.language, "instructions": instructions, "chain": chain}
    found |= {"passage": lineage.passage.id, "text": lineage.passage.text, "problem": ""}
    if lineage.rows:
        found["from"] = lineage.one(Query).text
    for stage in CHAINS[chain]:
        rows = await stage.run(lineage, tools)
        lineage = lineage.extended(rows)
        found[stage.name] = [summary(row) for row in rows]
        skipped = next((row for row in rows if isinstance(row, Skip)), None)
        if skipped:
            found["problem"] = f"{stage.name}: {skipped.reason}" if stage.name != chain else skipped.reason
            break
    given = [*lineage.every(Character), *lineage.every(Scenario)]
    found["foreign"] = sum(bool(wrong_language(one.text, pipeline.language)) for one in given)
    return found


def table(rows: list[dict[str, Any]]) -> str:
    """Return a line for each language and chain."""
    lines = [
        "| language | answers | usable, English instructions | usable, the language's own | what was wrong |",
        "| --- | --- | ---: | ---: | --- |",
    ]
    for language, chain in dict.fromkeys((row["language"], row["chain"]) for row in rows):
        cells, wrong = [], []
        for instructions in INSTRUCTIONS:
            wanted = {"language": language, "chain": chain, "instructions": instructions}
            here = [row for row in rows if wanted.items() <= row.items()]
            cells.append(f"{sum(not row['problem'] for row in here)} of {len(here)}")
            reasons = Counter(row["problem"] for row in here if row["problem"])
            listed = ", ".join(f"{count} {why}" for why, count in reasons.most_common())
            wrong.append(f"{instructions}: {listed or '-'}")
            if foreign := sum(bool(row["foreign"]) for row in here):
                wrong[-1] += f"; character or scenario in another language: {foreign}"
        lines.append(f"| {language} | {chain} | {cells[0]} | {cells[1]} | {'; '.join(wrong)} |")
    return "\n".join(lines)


def main() -> None:
    """Ask, print the table, and write every answer to WORK/answers-LANGUAGE-CHAIN.jsonl."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("collections", nargs="+", metavar="LANGUAGE=COLLECTION")
    parser.add_argument("-n", type=int, default=10, help="passages a language")
    parser.add_argument("--chains", default="query", help="of query,rewrite,hard_negative")
    parser.add_argument("--model", default="qwen2.5-coder-1.5b")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--work", type=Path, default=Path("instructions"))
    given = parser.parse_args()
    given.work.mkdir(parents=True, exist_ok=True)
    rows: list[dict[str, Any]] = []
    for named in given.collections:
        language, _, folder = named.partition("=")
        lineages = beginnings(BeirDataset.open(folder), language, given.n)
        pipelines = {one: pipeline_of(language, one, given.model, given.threads) for one in INSTRUCTIONS}
        for chain in given.chains.split(","):
            items = [(one, lineage, chain) for lineage in lineages for one in INSTRUCTIONS]

            async def one(llm: Llm, item: tuple[str, Lineage, str], pipelines: Any = pipelines) -> dict[str, Any]:
                found = await answers(llm, item, pipelines[item[0]])
                print(json.dumps(found, ensure_ascii=False), file=sys.stderr, flush=True)
                return found

            here = ask_about(items, one, pipelines["own"], given.work / "answers.duckdb")
            text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in here)
            (given.work / f"answers-{language}-{chain}.jsonl").write_text(text, encoding="utf-8")
            rows += here
    print(table(rows))


if __name__ == "__main__":
    main()
