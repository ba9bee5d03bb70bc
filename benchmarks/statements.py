"""Measure by language how well the form check distinguishes claims from headings, keywords and questions.

    python benchmarks/statements.py                          # the sentences of benchmarks/statements.yaml
    python benchmarks/statements.py --wrong
    python benchmarks/statements.py --collection de=xquad-de # also: whole sentences of people's passages, that state

Precision and recall refer to rejection: the share of rejected texts that are not claims, and the share of non-claims
that are rejected. `--before` omits the predicate check, as in an earlier version.
"""

import argparse
import random
import re
from collections import Counter
from pathlib import Path

import yaml

from airgen.dataset.beir import BeirDataset
from airgen.generation.query_checks import wrong_type
from airgen.text.query_form import asks, in_first_person, without_function_words
from airgen.text.statements import states

_WHOLE = re.compile(r"[^\W\d_][^\d()\[\].:;\"«»“”]{10,200}[.。।]")
_SENTENCE = re.compile(r"(?<=[.!?。！？।؟])\s*")


def refused(text: str, language: str, before: bool) -> bool:
    """Return whether the check rejects a text as a claim."""
    if before:
        return bool(asks(text, language) or without_function_words(text, language) or in_first_person(text, language))
    return wrong_type(text, "claim", language) is not None


def sentences(folder: Path, count: int, seed: int) -> list[str]:
    """Sentences of passages with a full stop and 40 to 200 letters (15 without spaces), but without a digit, bracket or
    point inside, where a text may be split wrongly."""
    texts = [text for passage in BeirDataset.open(folder).passages() for text in _SENTENCE.split(passage.text)]
    whole = [text for text in texts if _WHOLE.fullmatch(text) and len(text) >= (15 if text.endswith("。") else 40)]
    return random.Random(seed).sample(whole, min(count, len(whole)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--before", action="store_true", help="without the predicate")
    parser.add_argument("--wrong", action="store_true", help="also print what is judged wrongly")
    parser.add_argument("--collection", action="append", default=[], metavar="LANGUAGE=FOLDER")
    parser.add_argument("--count", type=int, default=300, help="sentences of a collection")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    held = yaml.safe_load((Path(__file__).parent / "statements.yaml").read_text("utf-8"))
    names = ("headings", "keywords", "questions")
    print(f"| language | claims refused | {' refused | '.join(names)} refused | precision | recall |")
    print("|---|" + "---:|" * 6)
    total: Counter[str] = Counter()
    for language, kinds in held.items():
        counts = {
            kind: sum(refused(text, language, arguments.before) for text in texts) for kind, texts in kinds.items()
        }
        right, wrong = sum(counts[name] for name in names), counts["claims"]
        others = sum(len(kinds[name]) for name in names)
        total.update(right=right, wrong=wrong, others=others, claims=len(kinds["claims"]))
        cells = [f"{counts[kind]} of {len(kinds[kind])}" for kind in ("claims", *names)]
        print(f"| {language} | {' | '.join(cells)} | {right / max(1, right + wrong):.2f} | {right / others:.2f} |")
        for kind, texts in kinds.items() if arguments.wrong else ():
            for text in texts:
                if refused(text, language, arguments.before) != (kind != "claims"):
                    print(f"    {kind}: {text}")
    right, wrong = total["right"], total["wrong"]
    share = f"{right / (right + wrong):.2f} | {right / total['others']:.2f}"
    print(f"| all | {wrong} of {total['claims']} | | | | {share} |")
    for pair in arguments.collection:
        language, _, folder = pair.partition("=")
        texts = sentences(Path(folder), arguments.count, arguments.seed)
        found = [text for text in texts if states(text, language) is False]
        print(f"{folder}: {len(found)} of {len(texts)} sentences have no predicate by the rules")
        for text in found if arguments.wrong else ():
            print(f"    {text}")


if __name__ == "__main__":
    main()
