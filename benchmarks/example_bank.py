"""Make drafts with fixed examples and with examples from a similar domain, for blind reading.

    airgen study agree COLLECTION --pipeline P.yaml --from any   # P.yaml: an embedded model, small prompts, questions
    python benchmarks/example_bank.py COLLECTION --pipeline P.yaml --runs runs --out bank --target 28

For samples of the finished job, the query prompt is answered again for the same character and scenario. Its examples
are three questions of the requested length from the domains of `BANK` that are most similar to the document, by static
vectors. Prints a JSON line per pair: the document's id, the job's first usable draft, and the draft with similar
examples.
"""

from __future__ import annotations

import argparse
import json
import shutil
from collections.abc import Awaitable
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from airgen.errors import Stopped
from airgen.generation import query
from airgen.job.job import Job
from airgen.job.run_job import run_job
from airgen.retrievers import load_embedder
from airgen.steps.progress import Display
from airgen.storage.paths import data_dir
from airgen.storage.records import Candidate, Character, Passage, Query, Sample, Scenario
from airgen.studies.agree.study import agree_job

# A domain, a question of six or seven words, and a question of about twelve words. Written for airgen.
BANK = [
    (
        "medicine: treatment of patients with a disease, drugs, doses, side effects",
        "how soon does ibuprofen lower a fever",
        "can a patient with weak kidneys take the usual dose of metformin",
    ),
    (
        "surgery and clinical outcomes, operations, complications, recovery",
        "when can stitches on a knee come out",
        "how often does a hernia come back after a repair with mesh",
    ),
    (
        "cell biology and genetics: genes, proteins, cells, mutations, pathways",
        "which gene repairs damaged dna in yeast",
        "does a lack of p21 let damaged cells divide earlier",
    ),
    (
        "physiology of animals, hormones, experiments on rats and dogs",
        "does fasting raise cortisol in rats",
        "what happens to blood flow in the kidney of a dog during shock",
    ),
    (
        "infectious disease, bacteria, viruses, vaccines, immunity",
        "how long does measles immunity last",
        "do children with asthma get whooping cough more often after early vaccination",
    ),
    (
        "mental health and psychology, behaviour, therapy, memory",
        "does lack of sleep weaken memory",
        "is talking therapy better than tablets for mild depression in teenagers",
    ),
    (
        "nutrition and public health, diet, risk factors, populations",
        "does salt raise blood pressure in children",
        "how many extra calories a day make an adult gain a kilogram a year",
    ),
    (
        "rare inherited syndromes and their symptoms, chromosomes",
        "is Marfan syndrome passed on by one parent",
        "which organs does Fabry disease damage first in women",
    ),
    (
        "aerodynamics: flow over wings, lift, drag, Mach number, boundary layer",
        "when does a swept wing stall",
        "how does wing sweep change the lift of a thin wing near the speed of sound",
    ),
    (
        "heat transfer and thermodynamics, temperature, combustion",
        "how fast does a hot plate cool in air",
        "how much does roughness raise heat transfer in a pipe with turbulent water",
    ),
    (
        "structures: shells, plates, buckling, vibration, stress",
        "at what load does a thin column buckle",
        "does an initial dent lower the buckling pressure of a thin steel cylinder",
    ),
    (
        "materials and chemistry, alloys, reactions, polymers",
        "why does brass lose zinc in seawater",
        "what temperature makes nylon brittle when it holds no water",
    ),
    (
        "electronics and signals, circuits, antennas, sensors",
        "how much noise does an op amp add",
        "which filter keeps the phase of a pulse while it removes mains hum",
    ),
    (
        "physics: particles, waves, optics, quantum",
        "why does a prism split light",
        "how is the mass of a neutrino measured from the decay of tritium",
    ),
    (
        "astronomy, spacecraft, orbits, planets",
        "how long does a comet keep its tail",
        "how much fuel does a probe need to leave an orbit around Mars",
    ),
    (
        "geology, climate, weather, oceans",
        "what makes a glacier move faster",
        "how deep does summer warmth reach into permafrost below a gravel road",
    ),
    (
        "agriculture, plants, soil, crops, pests",
        "when should winter wheat be sown",
        "does clover between maize rows lower the need for nitrogen fertiliser",
    ),
    (
        "ecology, wildlife, conservation",
        "why do wolves avoid roads",
        "do nest boxes help owls where old oaks were cut down",
    ),
    (
        "law, contracts, courts, rights",
        "who pays for a broken window",
        "who gives a tenant the deposit back when the flat was sold",
    ),
    (
        "government, policy, elections, administration",
        "can a mayor dissolve the council",
        "what share of signatures must a city check before it holds a referendum",
    ),
    (
        "economics and trade, inflation, taxes, labour",
        "does a higher minimum wage cost jobs",
        "how did the price of bread follow the price of grain after the tariff",
    ),
    (
        "finance, banking, insurance, accounting",
        "is interest on a car loan deductible",
        "what happens to a fixed deposit when the bank is taken over",
    ),
    (
        "software documentation, programming, functions, errors",
        "how do I sort a dict by value",
        "why does my loop close the file before the last line is read",
    ),
    (
        "computer networks, security, servers, configuration",
        "which port does ldap use",
        "how can a server refuse old tls versions without a restart",
    ),
    (
        "libraries, information retrieval, indexing, catalogues",
        "does stemming help in a law library",
        "how many subject headings does a cataloguer give a novel on average",
    ),
    (
        "mathematics and statistics, methods, proofs, algorithms",
        "when does Newton's method diverge",
        "how many samples does a bootstrap need for a stable interval of the median",
    ),
    (
        "history, wars, rulers, ancient times",
        "who rebuilt Lisbon after the earthquake",
        "why did the guilds of Ghent rise against the count twice",
    ),
    (
        "arts, music, literature, film",
        "who taught Clara Schumann the piano",
        "why did the director shoot the last scene of the film in one take",
    ),
    (
        "sport and games, rules, competitions",
        "can a goalkeeper score from a kick-off",
        "how many substitutes may a handball team use in the second half",
    ),
    (
        "travel, transport, cities, everyday consumer advice",
        "is the night train cheaper in autumn",
        "which documents does a child need to fly with only one parent",
    ),
]
SHOWN = 3


class Near:
    """The examples of the domains most similar to a document."""

    def __init__(self) -> None:
        self.embedder = load_embedder("wordllama-256")
        self.domains = self._unit([domain for domain, _, _ in BANK])

    def _unit(self, texts: list[str]) -> Any:
        rows = self.embedder.encode(texts, "passage")
        return rows / np.linalg.norm(rows, axis=1, keepdims=True)

    def examples(self, document: str, length: str) -> str:
        order = np.argsort(-(self.domains @ self._unit([document])[0]), kind="stable")[:SHOWN]
        return " ".join(json.dumps({"query": BANK[at][2 if length in ("10to20", "ge20") else 1]}) for at in order)


def prepared(job: Job, pipeline: Path, out: Path) -> Path:
    """The job's folder and pipeline again in `out`, with one draft a sample, and the prompt without its examples."""
    folder = out / "runs" / job.directory.name
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("work.duckdb", "work.duckdb.wal"):
        if (job.directory / name).exists() and not (folder / name).exists():
            shutil.copy(job.directory / name, folder / name)
    settings = yaml.safe_load(pipeline.read_text(encoding="utf-8"))
    settings["generation"]["candidates"] = 1
    (out / pipeline.name).write_text(yaml.safe_dump(settings, sort_keys=False), encoding="utf-8")
    text = (data_dir("prompts") / "small" / "query.j2").read_text(encoding="utf-8")
    begin = text[: text.index('{% if type_class == "question" and length_class == "lt5" %}')]
    begin = begin.replace("information_class]", "information_class, bank]")
    (out / "prompts" / "small").mkdir(parents=True, exist_ok=True)
    shown = "Examples of this kind and length from other texts: {{ bank }}\n"
    (out / "prompts" / "small" / "query.j2").write_text(begin + shown, encoding="utf-8")
    return out / pipeline.name


def first_drafts(job: Job) -> dict[str, tuple[str, str]]:
    """By scenario: the id of the document, and the first usable draft (or the query, where there are no drafts)."""
    found: dict[str, tuple[str, str]] = {}
    with job.open_store(read_only=True) as store:
        passages = {row.key: row.id for row in store.rows(Passage)}
        parents = {row.key: row.parent for kind in (Sample, Character, Scenario) for row in store.rows(kind)}
        drafts = sorted(store.rows(Candidate), key=lambda row: (row.parent, row.ordinal))
        made = store.rows_of(Query, job.fingerprints["query"])
        usable = [row for row in drafts if not row.problem] if job.pipeline.generation.candidates > 1 else made
        for row in usable:
            key = row.parent
            while key not in passages:
                key = parents[key]
            found.setdefault(row.parent, (passages[key], row.text))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("collection", type=Path)
    parser.add_argument("--pipeline", type=Path, required=True)
    parser.add_argument("--runs", type=Path, default=Path("runs"))
    parser.add_argument("--out", type=Path, default=Path("runs/example-bank"))
    parser.add_argument("--target", type=int, default=28)
    asked = parser.parse_args()
    before = agree_job(asked.collection, Job(asked.pipeline, asked.runs), sources="any")
    pipeline = prepared(before, asked.pipeline, asked.out)
    job = agree_job(asked.collection, Job(pipeline, asked.out / "runs"), sources="any", target=asked.target)
    near, ask = Near(), query.ask

    def with_bank(tools: Any, stage: Any, values: dict[str, Any], *rest: Any) -> Awaitable[Any]:
        bank = near.examples(values["document"], values["length_class"])
        return ask(tools, stage, {**values, "bank": bank}, *rest)

    query.ask = with_bank  # type: ignore[assignment]
    try:
        run_job(job, Display(job.directory / "status.json"), until="candidates")
    except Stopped as stopped:
        raise SystemExit(str(stopped)) from stopped
    old, new = first_drafts(before), first_drafts(job)
    for key in sorted(old.keys() & new.keys()):
        print(json.dumps({"document": new[key][0], "fixed": old[key][1], "near": new[key][1]}, ensure_ascii=False))


if __name__ == "__main__":
    main()
