"""How models are run is said as they are run, and what they cut is counted."""

from pathlib import Path
from typing import Any

import pytest
from beir_folder import write_beir
from packages import package
from published_models import make_published, put_in_hub_cache

import airgen
from airgen.cli import main
from airgen.evaluation.result_tables import model_lines, model_warnings
from airgen.retrievers import Hits, Passages, load_embedder, load_retriever
from airgen.retrievers.dense.retriever import Dense
from airgen.retrievers.model_facts import Cut, ModelSetup
from airgen.retrievers.model_setup import count_cut, keep_setups, kept_setups, model_setups
from airgen.settings.spec import read_spec

library = package("sentence_transformers")
pytestmark = pytest.mark.filterwarnings("ignore")  # of the libraries
TEXTS = [
    "amber bridge",  # 4 tokens with [CLS] and [SEP]
    "amber bridge candle desert engine falcon",  # 8
    "amber bridge candle desert engine falcon garden harbour island jungle",  # 12
    "amber " * 14,  # 16
]


@pytest.fixture(scope="module")
def short(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that reads 8 tokens."""
    return make_published("length 8", tmp_path_factory.mktemp("short"))


@pytest.fixture(scope="module")
def prompted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_published("prompts", tmp_path_factory.mktemp("prompted"))


@pytest.fixture
def bench(tmp_path: Path) -> Any:
    rows = [{"_id": f"d{place}", "title": "", "text": text} for place, text in enumerate(TEXTS)]
    write_beir(tmp_path / "ds", rows, [{"_id": "q", "text": "amber"}], {"test": [("q", "d0", 1)]})
    return airgen.load(tmp_path / "ds")


def test_what_is_cut_is_counted_by_hand(short: Path) -> None:
    embedder = load_embedder(str(short))
    assert count_cut(embedder, TEXTS, "passage", None) == Cut(4, 2, 12 + 16, 4 + 8)
    assert count_cut(embedder, TEXTS[:2], "query", None) == Cut(2)
    longer = load_embedder({"kind": "sentence-transformers", "model": str(short), "passage_prefix": "kettle "})
    assert count_cut(longer, TEXTS, "passage", None) == Cut(4, 3, 9 + 13 + 17, 1 + 5 + 9)
    assert Cut(4, 2, 28, 12).words("passages") == "2 of 4 passages (43% of their tokens)"
    assert Cut(4).words("passages") == ""


def test_counts_are_kept_with_the_encodings(short: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def counted() -> Cut | None:
        dense = Dense(str(short), cache=tmp_path)
        corpus = Passages([str(place) for place in range(len(TEXTS))], TEXTS)
        dense.index(corpus)
        (setup,) = model_setups(dense, corpus, ["amber"], dense.search(["amber"], 2))
        return setup.passages

    first = counted()
    kind = type(load_embedder(str(short)))
    asked: list[str] = []
    usual = kind.token_counts
    monkeypatch.setattr(kind, "token_counts", lambda self, texts, side: asked.append(side) or usual(self, texts, side))
    assert counted() == first == Cut(4, 2, 28, 12) and asked == ["query"]


def test_a_cross_encoder_cuts_pairs(tiny_cross_encoder: Path, tmp_path: Path) -> None:
    model = library.CrossEncoder(str(tiny_cross_encoder), max_length=9)
    model.save_pretrained(str(tmp_path / "short"))
    texts = ["energy", "the energy of the cell makes most of the energy"]  # 1 and 10 tokens
    system = load_retriever(
        {"kind": "rerank", "first": "bm25", "reranker": {"kind": "cross-encoder", "model": str(tmp_path / "short")}}
    )
    corpus = Passages(["a", "b"], texts)
    system.index(corpus)
    hits = system.search(["energy", "cell"], 2)
    (setup,) = model_setups(system, corpus, ["energy", "cell"], hits)
    assert setup.pairs == Cut(3, 2, 2 * 14, 2 * 5)  # [CLS] query [SEP] passage [SEP]; "cell" finds b alone
    assert setup.max_length == 9 and setup.passages is None


def test_every_figure_of_a_setup(prompted: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    setup = load_embedder(str(prompted)).setup()
    assert setup == ModelSetup(
        str(prompted), "amber bridge query: ", "kettle passage: ", "the model", 64, dim=32, dtype="fp32",
        similarity="cosine",
    )  # fmt: skip
    assert setup.words == (
        "query prompt 'amber bridge query: ', passage prompt 'kettle passage: ' (from the model); at most 64 tokens; "
        "32 dimensions, fp32, cosine"
    )
    constants = pytest.importorskip("huggingface_hub.constants")
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    assert load_embedder(put_in_hub_cache(prompted, tmp_path, "acme/tiny")).setup().revision == "b" * 40
    spec = read_spec("embedder", str(prompted))
    keep_setups(tmp_path, spec, spec.make())
    assert kept_setups(tmp_path, spec) == [setup]
    assert kept_setups(tmp_path, read_spec("embedder", "acme/other")) == []


def test_evaluate_says_what_was_used(bench: Any, short: Path, tmp_path: Path) -> None:
    systems = {
        "short": str(short),
        "object": library.SentenceTransformer(str(short)),
        "both": {"kind": "rerank", "first": "short", "reranker": {"kind": "dense", "embedder": str(short)}},
        "bm25": "bm25",
    }
    results = airgen.evaluate(bench, systems, out=tmp_path / "out", quiet=True)
    frame = results.to_pandas().set_index("system")
    assert frame.loc["short", ["max_length", "dim", "dtype", "similarity"]].tolist() == [8, 32, "fp32", "cosine"]
    assert frame.loc["short", "cut_share"] == frame.loc["object", "cut_share"] == 0.5
    assert frame.loc["both", "dim"] == "32 + 32" and frame["models"].isna()["bm25"]
    assert results["object"].models[0].passages == results["short"].models[0].passages == Cut(4, 2, 28, 12)
    warned = model_warnings([results["short"]])
    assert warned == [
        f"short: {short.name} reads 8 tokens, which cuts 2 of 4 passages (43% of their tokens)",
        f"short: no query prompt is known for {short.name}",
    ]
    assert warned[0] in results.study().text() and warned[0] in repr(results)
    again = airgen.evaluate(bench, systems | {"short": str(short)}, out=tmp_path / "out", quiet=True)
    assert again["short"].cached and again["short"].models == results["short"].models
    assert len(model_lines(results)) == 4 and "at most 8 tokens; 32 dimensions" in model_lines(results)[0]


def test_verbose_shows_a_line_for_each_model(
    bench: Any, short: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "systems.yaml").write_text(f"systems: [{{name: s, kind: dense, embedder: '{short}'}}]")
    command = ["evaluate", str(bench.path), "--systems", str(tmp_path / "systems.yaml"), "--out", str(tmp_path / "out")]
    for more in ([], ["--verbose"]):
        with pytest.raises(SystemExit):
            main([*command, *more])
        assert (f"s: {short.name}: no prompts; at most 8 tokens" in capsys.readouterr().out) == bool(more)


def test_a_system_that_was_searched_without_hits(short: Path) -> None:
    corpus = Passages(["a"], ["amber"])
    dense = Dense(str(short))
    dense.index(corpus)
    (setup,) = model_setups(dense, corpus, [], Hits.none(0, 1))
    assert setup.queries == Cut(0)
