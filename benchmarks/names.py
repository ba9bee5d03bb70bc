"""Measure precision and recall of personal data detection by language.

    python benchmarks/names.py                     # after `airgen fetch rampart natasha-ner`
    python benchmarks/names.py --names titles --wrong
    python benchmarks/names.py --time              # also: seconds for a million characters of each language

The sentences are in benchmarks/names.yaml. A name is found if all of its letters are masked; a mask is right if it
touches what is marked. So `Dr. <NAME>` for `Dr. Helen Marsh` is one of one found, and one of one right.
"""

import argparse
import re
import time
import unicodedata
from collections import Counter
from pathlib import Path

import yaml

from airgen.corpus.cleaning.mask_personal_data import mask
from airgen.corpus.cleaning.name_recognisers import has_recogniser

_MARK = re.compile(r"\[(NAME|ADDRESS|BIRTH|PASSPORT|ACCOUNT):([^]]*)\]")
_MASK = re.compile(r"<([A-Z]+)>")
NUMBERS = "addresses, dates of birth, numbers"


def marked(sentence: str) -> tuple[str, list[tuple[int, int, str]]]:
    """Return the sentence without its marks, and their positions: [start, end) and the kind."""
    sentence, text, places, at = unicodedata.normalize("NFC", sentence), "", [], 0
    for match in _MARK.finditer(sentence):
        text += sentence[at : match.start()]
        places.append((len(text), len(text) + len(match[2]), match[1]))
        text += match[2]
        at = match.end()
    return text + sentence[at:], places


def masked(text: str, language: str, names: str) -> list[tuple[int, int, str]]:
    """Return the masked spans: [start, end) in the text, and the kind."""
    done = mask(text, names, language).text  # type: ignore[arg-type]
    kinds = _MASK.findall(done)
    match = re.fullmatch("(.+?)".join(map(re.escape, _MASK.split(done)[::2])), text, re.DOTALL)
    assert match is not None
    return [(*match.span(at), kind) for at, kind in enumerate(kinds, 1)]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--names", default="ner", choices=("ner", "titles", "spacy"))
    parser.add_argument("--sentences", type=Path, default=Path(__file__).with_suffix(".yaml"))
    parser.add_argument("--only", action="append", default=[], metavar="LANGUAGE")
    parser.add_argument("--wrong", action="store_true", help="show each sentence with something missed or too much")
    parser.add_argument("--time", action="store_true")
    options = parser.parse_args()
    everything = yaml.safe_load(options.sentences.read_text(encoding="utf-8"))
    print(
        "| language | sentences | names | found | masked | right | recall | precision "
        f"| {NUMBERS} | found | masked | right |"
    )
    print("| --- |" + " ---: |" * 11)
    total: Counter[str] = Counter()
    for language, sentences in everything.items():
        if options.only and language not in options.only:
            continue
        counts: Counter[str] = Counter(sentences=len(sentences))
        for sentence in sentences:
            text, places = marked(sentence)
            hidden = masked(text, language, options.names)
            before = counts.copy()
            for begin, end, kind in places:
                group = "name" if kind == "NAME" else "number"
                cover = [
                    x for x in range(begin, end) if text[x].isalnum() and not any(a <= x < b for a, b, _ in hidden)
                ]
                counts[f"{group} marked"] += 1
                counts[f"{group} found"] += not cover
            for begin, end, kind in hidden:
                group = "name" if kind == "NAME" else "number"
                same = [place for place in places if (place[2] == "NAME") == (kind == "NAME")]
                counts[f"{group} masked"] += 1
                counts[f"{group} right"] += any(a < end and begin < b for a, b, _ in same)
            step = counts - before
            wrong = any(
                step[f"{g} marked"] != step[f"{g} found"] or step[f"{g} masked"] != step[f"{g} right"]
                for g in ("name", "number")
            )
            if options.wrong and wrong:
                print(f"    {language}: {mask(text, options.names, language).text}    <- {sentence}")
        total += counts
        seconds = ""
        if options.time:
            long = " ".join(marked(one)[0] for one in sentences)
            began = time.process_time()
            for _ in range(4):
                mask(long, options.names, language)
            seconds = f" {(time.process_time() - began) / 4 / len(long) * 1e6:.1f} s"
        print(
            row(
                language if has_recogniser(language) or options.names != "ner" else f"{language} (after titles)", counts
            )
            + seconds
        )
    print(row("all", total))


def row(language: str, counts: Counter[str]) -> str:
    """Format a line of the table."""
    name = [counts[f"name {one}"] for one in ("marked", "found", "masked", "right")]
    number = [counts[f"number {one}"] for one in ("marked", "found", "masked", "right")]
    recall = f"{name[1] / name[0]:.2f}" if name[0] else "-"
    precision = f"{name[3] / name[2]:.2f}" if name[2] else "-"
    return "| " + " | ".join(map(str, [language, counts["sentences"], *name, recall, precision, *number])) + " |"


if __name__ == "__main__":
    main()
