"""What is public: lists of fields and settings; places of the author's machine; ids that tell a label."""

import dataclasses
import re
from pathlib import Path

import pytest
import yaml
from command_line import call
from dataset_maker import make_content
from hypothesis import given
from hypothesis import strategies as st
from job_maker import run_quietly

from airgen.dataset.content import ModelUse
from airgen.dataset.manifest import load_manifest
from airgen.dataset.write import write_dataset
from airgen.errors import DatasetError
from airgen.job import Job
from airgen.publishing.public import public_pipeline, public_text, same_ids, same_numbers
from airgen.publishing.withhold import public_part, warnings_of

# -- places of the author's machine ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "public"),
    [
        ("Weather notes", "Weather notes"),
        ("CC BY 4.0 and/or MIT", "CC BY 4.0 and/or MIT"),
        ("BAAI/bge-m3", "BAAI/bge-m3"),
        ("my/query (1a2b)", "my/query (1a2b)"),
        ("a 1/2 share, 24/7", "a 1/2 share, 24/7"),
        ("/home/ann/models/my-encoder", "my-encoder"),
        ("dense /srv/models/e5", "dense e5"),
        ("~/models/e5", "e5"),
        ("C:\\Users\\ann\\e5", "e5"),
        ("\\\\server\\share\\e5", "e5"),
        ("from (/data/in/faq.csv), cleaned", "from (faq.csv), cleaned"),
        ("https://example.org/notes/one", "https://example.org/notes/one"),
        ("at http://10.1.2.3:8000/v1", "at (a private address)"),
        ("http://localhost/v1 x", "(a private address) x"),
        ("http://[::1]:9/v1", "(a private address)"),
        ("http://search.acme.internal/q", "(a private address)"),
        ("https://user:pw@example.org/", "(a private address)"),
        ("https://gpu.example.org:8443/v1", "(a private address)"),
        ("file:///home/ann/x", "(a private address)"),
        ("postgres://db.example.org/x", "(a private address)"),
    ],
)
def test_places_of_the_machine_are_not_public(text: str, public: str) -> None:
    assert public_text(text) == public


NAMES = st.text("abcdefgh0123-_", min_size=2, max_size=8)


@given(
    st.lists(NAMES, min_size=2, max_size=5), st.sampled_from(["/", "~/", "C:\\", "\\\\"]), st.text(" ,()", max_size=3)
)
def test_of_an_absolute_path_only_the_name_is_left(parts: list[str], root: str, around: str) -> None:
    mark = "\\" if "\\" in root else "/"
    shown = public_text(f"made {around} {root}{mark.join(parts)} now")
    assert shown == f"made {around} {parts[-1]} now"


def test_a_pipeline_is_published_without_what_names_files_servers_and_people() -> None:
    text = """
# written by ann for acme
name: notes
task: qa
corpus: ../acme/secret-project/notes.yaml
language: en
seed: 7
llm: {model: gpt-4o-mini, base_url: "http://10.0.0.7/v1", api_key_env: ACME_KEY, temperature: 0.5, query: {v: "1"}}
queries: {file: /home/ann/log.csv, column: frage, duplicates: near, labels: [{file: /home/ann/labels.csv}]}
generation: {rewrites: 1, examples: real.txt, variants: {query: mine/query}, types: {question: 1}, stages: ["acme:S"]}
control:
  recall: {model: {kind: http, url: "https://embed.acme.com/v1", api_key_env: K, model: /srv/models/e5}, top_k: 20}
  rerankers: [BAAI/bge-reranker-large, /srv/models/mine, {kind: http, url: "http://rerank:80", headers: {X: "${K}"}}]
  systems: /home/ann/systems.yaml
  judge: {kind: yes-no, prompt: judge_yes_no, llm: {model: m, base_url: "http://10.0.0.8"}}
export: {licence: CC-BY-4.0, splits: {dev: 1, test: 4}}
evaluate: {systems: /home/ann/systems.yaml}
compute: {kind: ray, address: "ray://10.0.0.9:10001"}
unheard_of: 1
"""
    public = public_pipeline(text)
    assert yaml.safe_load(public) == {
        "name": "notes", "task": "qa", "corpus": "notes.yaml", "language": "en",
        "llm": {"model": "gpt-4o-mini", "temperature": 0.5}, "queries": {"duplicates": "near"},
        "generation": {"rewrites": 1, "variants": {"query": "mine/query"}, "types": {"question": 1}},
        "control": {
            "recall": {"model": {"kind": "http", "model": "e5"}, "top_k": 20},
            "rerankers": ["BAAI/bge-reranker-large", "mine", {"kind": "http"}],
            "judge": {"kind": "yes-no", "prompt": "judge_yes_no", "llm": {"model": "m"}},
        },
        "export": {"licence": "CC-BY-4.0", "splits": {"dev": 1, "test": 4}},
    }  # fmt: skip
    assert public_pipeline(public) == public and not re.search(r"ann|acme|10\.0|/srv|ray", public)


def test_no_public_file_names_a_place(tmp_path: Path) -> None:
    """In card, manifest, Croissant and pipeline, whether or not labels are withheld."""
    content = make_content(
        provenance=[ModelUse("recall", "dense /srv/acme/e5"), ModelUse("judge", "m", "/home/acme/judge", "1 (ab)")],
        pipeline_yaml="name: a\nllm: {model: /srv/acme/llm, base_url: 'http://acme:8000/v1'}\n",
        notes={"passages taken out": "of /srv/acme/x"},
    )
    places = {"source": "/home/acme/notes", "source_url": "http://acme.internal/x", "description": "by http://acme:1/"}
    info = dataclasses.replace(content.info, **places)
    write_dataset(tmp_path / "d", dataclasses.replace(content, info=info))
    for name, withhold in (("all", []), ("part", ["test"])):
        public_part(tmp_path / "d", tmp_path / name, withhold)
        for path in (tmp_path / name).rglob("*"):
            assert path.is_dir() or "acme" not in path.read_text(encoding="utf-8"), path
        assert load_manifest(tmp_path / name).provenance[0].model == "dense e5"


# -- ids ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("query", "relevant", "told"),
    [
        ("faq-7", (), True),  # the id of some passage, whatever its label
        ("FAQ 7".replace(" ", "_"), (), True),
        ("faq-7-question", ("faq-7",), True),
        ("q:faq-7", ("faq-7",), True),
        ("faq-7-question", ("faq-8",), False),
        ("faq-70", ("faq-7",), False),
        ("faq", ("faq-7",), False),  # no number, so it is a word that all share
        ("q3", (), False),
    ],
)
def test_an_id_that_is_a_passages(query: str, relevant: tuple[str, ...], told: bool) -> None:
    assert same_ids({query: relevant}, [f"faq-{i}" for i in range(9)]) == [query] * told


def test_numbers_tell_a_label_if_they_agree_more_often_than_chance() -> None:
    corpus = [f"d{i}" for i in range(500)]
    assert len(same_numbers({f"q{i}": {f"d{i}"} for i in range(20)}, corpus)) == 20
    assert same_numbers({f"q{i}": {f"d{(i * 7 + 3) % 500}"} for i in range(20)}, corpus) == []
    assert same_numbers({f"q{i}": {f"d{i}"} for i in range(3)}, corpus) == []  # too few to say


FAQ = "id,question,answer\n" + "".join(
    f'faq-{i},How does thing number {i} work with word{i}x{i}?,"The answer {i}: thing number {i} does word{i}x{i}, and '
    f'this is said in a sentence of some length, so that it is a passage of its own number {i}."\n'
    for i in range(30)
)


def test_a_faq_whose_ids_tell_the_labels_is_not_published(folder: Path) -> None:
    """A query of a FAQ has the id of the passage that answers it: `check` says so before, and publishing refuses."""
    (folder / "faq.csv").write_text(FAQ, encoding="utf-8")
    (folder / "faq.yaml").write_text(
        "name: faq\nlanguage: en\ndomain: test\nlicence: CC0-1.0\nsource: made by the tests\n"
        "reader: {kind: csv, path: faq.csv, fields: {id: id, title: null, text: answer}}\n"
        "clean: {min_tokens: 5, language: 'off', boilerplate: 'off', personal_data: 'off', near_duplicates: null}\n",
        encoding="utf-8",
    )
    for ids, told in (("original", True), ("opaque", False)):
        pipeline = folder / f"job-{ids}.yaml"
        pipeline.write_text(
            f"name: job-{ids}\ntask: qa\ncorpus: faq.yaml\n"
            "queries: {file: faq.csv, column: question, labels: [{file: faq.csv}]}\nllm: {backend: scripted}\n"
            "control: {recall: {pools_only: true, top_k: 10}, pools: [bm25], rerankers: [bm25]}\n"
            f"export: {{ids: {ids}, splits: {{dev: 1, test: 4}}}}\n",
            encoding="utf-8",
        )
        said = call("check", pipeline)
        assert ("of 30 queries have the id of a passage, such as 'faq-0'" in said) is told, said
        job = Job(pipeline, folder / "runs")
        run_quietly(job)
        if told:
            with pytest.raises(DatasetError, match=r"have the id of a passage.*write `export: \{ids: opaque\}`"):
                public_part(job.dataset, folder / "public", ["test"])
            public_part(job.dataset, folder / "public-all", [])  # if no label is withheld, nothing is revealed
        else:
            public_part(job.dataset, folder / "public", ["test"])
            assert warnings_of(job.dataset, ["test"]) == []
