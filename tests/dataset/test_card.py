"""Card and Croissant: read back by the Hub's own reader and by mlcroissant; nothing breaks out of its place."""

import dataclasses
import json
from pathlib import Path

import pytest
from dataset_maker import INFO, make_content

from airgen.dataset.card import front_matter, render_card
from airgen.dataset.content import FunnelStep, ModelUse, check_redistribution, hub_licence
from airgen.dataset.manifest import load_manifest
from airgen.dataset.write import write_dataset
from airgen.errors import DatasetError


def test_front_matter_as_the_hub_reads_it(dataset: Path) -> None:
    hub = pytest.importorskip("huggingface_hub")
    data = hub.DatasetCard.load(dataset / "README.md").data.to_dict()
    assert data["license"] == "cc-by-nc-sa-4.0"
    assert data["language"] == ["en"]
    assert data["size_categories"] == ["n<1K"]
    assert "mteb" in data["tags"]
    configs = {config["config_name"]: config["data_files"] for config in data["configs"]}
    assert (
        configs["default"]
        == configs["qrels"]
        == [{"split": "dev", "path": "qrels/dev.jsonl"}, {"split": "test", "path": "qrels/test.jsonl"}]
    )
    assert configs["corpus"] == [{"split": "corpus", "path": "corpus.jsonl"}]
    assert all(
        file["path"].endswith(".jsonl") and (dataset / file["path"]).exists() for c in configs.values() for file in c
    )


def test_card_says_levels_models_funnel_and_pipeline(dataset: Path) -> None:
    card = (dataset / "README.md").read_text()
    assert "| 2 | the document is somewhat relevant | 1 |" in card
    assert "| judge | gpt\\|4o | judge | 1 |" in card
    assert "| query | 10 | 8 | too long: 2 |" in card
    assert "| 12 | 17.7 | dev | 2 |" in card
    assert card.endswith("`````yaml\nname: weather-notes\ntask: qa\n# ```` a fence that would close a block\n`````\n")
    assert "No person has checked" in card


def test_a_card_says_who_checked_the_labels_and_whether_documents_were_written(dataset: Path) -> None:
    manifest = load_manifest(dataset)
    asked = tuple(use for use in manifest.provenance if "judge" not in use.role and "negative" not in use.role)
    votes = render_card(dataclasses.replace(manifest, provenance=(*asked, ModelUse("query", "m"))))
    assert "checked by re-rankers, after" in votes and "written by a language model to look" not in votes
    both = (*asked, ModelUse("judge", "m"), ModelUse("hard negative", "m"))
    card = render_card(dataclasses.replace(manifest, provenance=both))
    assert "checked by re-rankers and a language model, after" in card
    assert "Documents marked 0 may have been written by a language model" in card


def test_a_card_of_other_facts(tmp_path: Path) -> None:
    levels = {0: "the judge says no", 3: "the judge says <yes>"}
    info = dataclasses.replace(INFO, labels_licence="House Rules: v2, see below", levels=levels, relevant_from=3)
    figures = {"precision": 0.93, "pairs": 100, "people": 2}
    manifest = write_dataset(tmp_path / "d", make_content(info=info, audit=figures))
    block, card = front_matter(manifest), render_card(manifest)
    assert (block["license"], block["license_name"]) == ("other", "house-rules-v2-see-below")
    assert "| 0 | the judge says no | 0 |\n| 3 | the judge says &lt;yes&gt; | 1 |" in card
    assert "| precision | 0.93 |" in card and "| people | 2 |" in card
    assert "somewhat relevant" not in card and "No person has checked" not in card
    assert load_manifest(tmp_path / "d").info == info


def test_hostile_words_stay_in_their_cells(tmp_path: Path) -> None:
    evil = "<script>alert(1)</script>\n---\n# head | [x](javascript:alert(1)) `code`"
    info = dataclasses.replace(
        INFO, source=evil, source_url="javascript:alert(1)", description=evil, source_licence=evil
    )
    content = make_content(info=info, provenance=[ModelUse(evil, evil)], funnel=[FunnelStep(evil, 1, 0, {evil: 1})])
    card = render_card(write_dataset(tmp_path / "d", content))
    assert "<script" not in card
    assert "\n# head" not in card
    assert "](javascript" not in card.replace("\\]", "")
    assert card.count("\n---\n") == 1


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of mlcroissant's own dependencies
def test_croissant_is_valid_and_yields_the_rows(dataset: Path) -> None:
    mlc = pytest.importorskip("mlcroissant")
    metadata = mlc.Dataset(jsonld=str(dataset / "croissant.json"))
    assert not metadata.metadata.issues.errors
    rows = list(metadata.records("qrels-dev"))
    first = {
        key.partition("/")[2]: value.decode() if isinstance(value, bytes) else value for key, value in rows[0].items()
    }
    assert len(rows) == 6
    assert first == {"query-id": "q-02", "corpus-id": "doc002", "score": 1}
    assert len(list(metadata.records("corpus"))) == 12
    described = json.loads((dataset / "croissant.json").read_text())
    assert {file["@id"] for file in described["distribution"]} >= {"corpus.jsonl", "qrels/test.jsonl"}


@pytest.mark.parametrize(
    ("licence", "identifier"),
    [("CC BY-NC-SA 4.0", "cc-by-nc-sa-4.0"), ("PSF-2.0", "other"), ("GPL-3.0-only", "gpl-3.0"),
     ("Crown copyright", "other"), ("Public domain", "cc0-1.0"), ("ODC-BY", "odc-by")],
)  # fmt: skip
def test_licence_names(licence: str, identifier: str) -> None:
    assert hub_licence(licence) == identifier
    check_redistribution(licence)


@pytest.mark.parametrize(
    "licence",
    ["CC-BY-ND-4.0", "cc-by-nc-nd-4.0", "All rights reserved", "proprietary", "Unknown", "", "no redistribution",
     "arXiv.org perpetual, non-exclusive license 1.0", "for internal use only", "may not be redistributed"],
)  # fmt: skip
def test_licences_that_forbid_it_are_quoted(licence: str) -> None:
    with pytest.raises(DatasetError) as caught:
        check_redistribution(licence)
    assert repr(licence) in str(caught.value)
    check_redistribution(licence, permission="Jane Doe of Example Press, 2 May 2026: you may")
