"""Models on a GPU, without one: the device, the dtype, the batch, exhausted memory, and memory given back."""

import json
import shutil
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from beir_folder import write_beir
from packages import package

torch = package("torch")
sentence_transformers = package("sentence_transformers")
stand_in_gpu = package("stand_in_gpu")


from airgen.cli import main
from airgen.components import devices
from airgen.compute import computing
from airgen.errors import ModelError
from airgen.job import preflight
from airgen.job.export import _ran
from airgen.retrievers import Passages
from airgen.retrievers.combine import RerankedRetriever
from airgen.retrievers.dense.embedders import SentenceTransformersEmbedder
from airgen.retrievers.dense.retriever import Dense
from airgen.retrievers.late.maxsim import MultiVectorEncoder
from airgen.retrievers.lexical.bm25 import BM25
from airgen.retrievers.lexical.expanded import TermWeigher
from airgen.retrievers.model_setup import keep_setups
from airgen.retrievers.rerank import CrossEncoder
from airgen.retrievers.sparse import SparseEncoder, SpartaEncoder
from airgen.settings.compute import ComputeSettings
from airgen.settings.spec import build, identity_of, read_spec
from airgen.steps.loops import run_whole
from airgen.steps.step import RowBatch, WholeStep
from airgen.storage.records import Prelabel, Recall

TEXTS = [
    "The mitochondrion makes most of the cell's supply of energy.",
    "A list comprehension builds a list from an iterable in Python.",
    "Insulin lowers the level of glucose in the blood.",
    "Bread dough rises because yeast gives off carbon dioxide.",
    "",
    "Saturn's rings are mostly particles of ice.",
]
QUERIES = ["how do cells get energy", "catching errors in a program", "which hormone controls blood sugar"]
KINDS = {
    "dense": SentenceTransformersEmbedder,
    "late": MultiVectorEncoder,
    "sparse": SparseEncoder,
    "cross-encoder": CrossEncoder,
    "sparta": SpartaEncoder,
    "deepct": TermWeigher,
}


@pytest.fixture(scope="module")
def places(
    tiny_bert: Path, tiny_mlm: Path, tiny_cross_encoder: Path, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Path]:
    """The folder of a small model of each kind."""
    from sentence_transformers import MultiVectorEncoder as LibraryEncoder
    from transformers import AutoTokenizer, BertConfig, BertForTokenClassification

    late, weigher = tmp_path_factory.mktemp("late"), tmp_path_factory.mktemp("weigher")
    torch.manual_seed(0)
    LibraryEncoder(str(tiny_bert), device="cpu").save_pretrained(str(late))
    config = BertConfig.from_pretrained(tiny_bert)
    config.num_labels = 1
    BertForTokenClassification(config).save_pretrained(weigher)
    AutoTokenizer.from_pretrained(tiny_bert).save_pretrained(weigher)
    return {"dense": tiny_bert, "late": late, "sparse": tiny_mlm, "cross-encoder": tiny_cross_encoder,
            "sparta": tiny_bert, "deepct": weigher}  # fmt: skip


def made(kind: str, place: Path, **settings: Any) -> Any:
    return KINDS[kind](str(place), **({"bias": 0.0} if kind == "sparta" else {}), **settings)


def work(model: Any, texts: Sequence[str] = TEXTS) -> list[np.ndarray]:
    """What a model makes of texts, as arrays."""
    if isinstance(model, CrossEncoder):
        return [model.score([("how do cells get energy", text) for text in texts])]
    if isinstance(model, MultiVectorEncoder):
        return list(model.token_vectors(texts, "passage"))
    if isinstance(model, TermWeigher):
        return [np.array(list(row.values())) for row in model.weights(texts)]
    if isinstance(model, SparseEncoder | SpartaEncoder):
        rows = []
        for terms, weights in model.encode(texts, "passage"):
            rows.append(np.zeros(1000, np.float32))
            rows[-1][terms] = weights
        return rows
    return [model.encode(texts, "passage")]


def loaded(model: Any) -> Any:
    """The module of torch that it has loaded."""
    return model.parts[0] if isinstance(model, SpartaEncoder | TermWeigher) else model.model


@pytest.mark.parametrize("dtype", ["fp16", "bf16"])
@pytest.mark.parametrize("kind", KINDS)
def test_weights_in_half_precision_work_in_every_kind(kind: str, dtype: str, places: dict[str, Path]) -> None:
    full, half = made(kind, places[kind]), made(kind, places[kind], dtype=dtype)
    wanted, found = work(full), work(half)
    assert {one.dtype for one in loaded(half).parameters()} == {devices.torch_dtype(dtype)}
    for one, other in zip(wanted, found, strict=True):
        assert one.shape == other.shape and np.isfinite(other).all()
        scale = max(1.0, float(np.abs(one).max(initial=0)))
        assert np.abs(one - other).max(initial=0) < (0.1 if dtype == "bf16" else 0.02) * scale
    assert half.facts.dtype == dtype and full.facts.dtype == "fp32"
    assert half.describe()["dtype"] == dtype and "dtype" not in full.describe()
    # Settings about the dtype are part of what identifies a result; the device is not.
    identities = [identity_of(model.settings) for model in (full, half, made(kind, places[kind], device="cpu"))]
    assert identities[0] != identities[1] and identities[0] == identities[2]


@pytest.mark.parametrize("kind", KINDS)
def test_files_in_half_precision_keep_it(kind: str, places: dict[str, Path], tmp_path: Path) -> None:
    folder = tmp_path / "half"
    made(kind, places[kind]).describe()
    shutil.copytree(places[kind], folder)
    model = made(kind, folder, dtype="bf16")
    work(model)
    inner = next(one for one in loaded(model).modules() if hasattr(one, "save_pretrained") and hasattr(one, "dtype"))
    inner.save_pretrained(str(folder))
    again = made(kind, folder)
    assert all(np.isfinite(one).all() for one in work(again))
    assert again.facts.dtype == "bf16"


def test_the_dtype_of_the_files() -> None:
    assert devices.own_dtype({"model_type": "bert"}) == "fp32"  # older files do not name it
    assert devices.own_dtype({"torch_dtype": "float16"}) == "fp16"
    assert devices.own_dtype({"dtype": "bfloat16", "torch_dtype": "float32"}) == "bf16"
    assert devices.own_dtype({"text_config": {"dtype": "bfloat16"}}) == "bf16"
    assert devices.own_dtype({"dtype": "bfloat16", "quantization_config": {"bits": 4}}) == ""
    assert devices.own_dtype({}) == ""


@pytest.mark.parametrize("kind", KINDS)
def test_a_model_goes_to_the_gpu_in_the_dtype_of_its_files(kind: str, places: dict[str, Path]) -> None:
    with stand_in_gpu.stand_in_gpus() as gpus:
        model = made(kind, places[kind])
        before = identity_of(model.settings)
        found = work(model)
        assert gpus.asked and set(gpus.asked) == {"cuda:0"}
        assert {one.dtype for one in loaded(model).parameters()} == {torch.float32}
        gpus.asked.clear()
        work(made(kind, places[kind], device="cuda:1", dtype="fp32"))
        assert set(gpus.asked) == {"cuda:1"}
        with pytest.raises(ModelError, match=r"device cuda:7: CUDA error: invalid device ordinal"):
            work(made(kind, places[kind], device="cuda:7"))
    on_cpu = made(kind, places[kind])
    assert identity_of(on_cpu.settings) == before
    assert all(one.shape == other.shape for one, other in zip(work(on_cpu), found, strict=True))


def test_a_gpu_that_is_not_there_is_one_line(tiny_bert: Path) -> None:
    if torch.cuda.is_available():
        pytest.skip("there is one")
    with pytest.raises(ModelError, match=r"device cuda: Torch not compiled|device cuda: Found no NVIDIA"):
        work(SentenceTransformersEmbedder(str(tiny_bert), device="cuda"))


@pytest.mark.parametrize("kind", KINDS)
def test_where_memory_is_exhausted_the_batch_is_halved(kind: str, places: dict[str, Path]) -> None:
    texts = [f"{text} {number}" for number, text in enumerate(TEXTS * 4)]
    wanted = work(made(kind, places[kind], dtype="fp32"), texts)
    with stand_in_gpu.stand_in_gpus(allocation=1 << 30) as gpus:
        model = made(kind, places[kind], dtype="fp32", batch_size=32)
        work(model, texts[:1])  # weights are loaded with room enough
    states = 32 * 32 * 4  # bytes of the states of a token of each text of a batch
    with stand_in_gpu.stand_in_gpus(allocation=max(9 * states, _largest(model))) as gpus:
        found = work(model, texts)
        assert gpus.refused and gpus.emptied
        again = gpus.refused
        work(model, texts)
        assert gpus.refused == again  # the batch that fitted is remembered
    for one, other in zip(wanted, found, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-5)


def _largest(model: Any) -> int:
    return max(one.nbytes for one in loaded(model).parameters())


@pytest.mark.parametrize("kind", KINDS)
def test_memory_that_is_too_small_for_one_text_is_one_line(kind: str, places: dict[str, Path]) -> None:
    model = made(kind, places[kind])
    work(model)
    with stand_in_gpu.stand_in_gpus(allocation=64), pytest.raises(ModelError, match=r"out of memory .*lower"):
        work(model)


def test_a_model_that_does_not_fit_is_one_line(tiny_bert: Path) -> None:
    with (
        stand_in_gpu.stand_in_gpus(allocation=64),
        pytest.raises(ModelError, match=r"out of memory .*Tried to allocate.*lower"),
    ):
        work(SentenceTransformersEmbedder(str(tiny_bert)))


@pytest.mark.parametrize("kind", KINDS)
def test_release_gives_the_memory_back_and_the_next_use_loads_again(kind: str, places: dict[str, Path]) -> None:
    model = made(kind, places[kind])
    before = work(model)
    alive = weakref.ref(loaded(model))
    with stand_in_gpu.stand_in_gpus() as gpus:
        model.release()
        assert alive() is None and gpus.emptied == 1
        model.release()  # there is nothing left to give back
        assert gpus.emptied == 1
    for one, other in zip(before, work(model), strict=True):
        np.testing.assert_array_equal(one, other)


def test_what_is_made_of_models_releases_them(tiny_bert: Path, tiny_cross_encoder: Path) -> None:
    first = Dense(SentenceTransformersEmbedder(str(tiny_bert)))
    system = RerankedRetriever(first, CrossEncoder(str(tiny_cross_encoder)), top=3)
    corpus = Passages([str(place) for place in range(len(TEXTS))], TEXTS)
    system.index(corpus)
    hits = system.search(QUERIES, 5)
    models = [weakref.ref(first.embedder.model), weakref.ref(system.reranker.model)]  # type: ignore[attr-defined]
    system.release()
    assert [one() for one in models] == [None, None]
    again = system.search(QUERIES, 5)  # the index is there, the models are loaded again
    np.testing.assert_array_equal(hits.positions, again.positions)


@pytest.mark.nightly
@pytest.mark.parametrize("kind", ["dense", "late", "sparse", "cross-encoder"])
def test_several_devices_share_the_work_by_the_librarys_pool(kind: str, places: dict[str, Path]) -> None:
    texts = TEXTS * 3
    alone, both = made(kind, places[kind], device="cpu"), made(kind, places[kind], device=["cpu", "cpu"])
    for one, other in zip(work(alone, texts), work(both, texts), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-5)
    processes = next(iter(both._pools.values()))[1]["processes"]
    assert len(processes) == 2
    both.release()
    assert all(one._closed for one in processes)


def test_a_pool_is_started_once_for_the_named_devices_and_ended(
    tiny_bert: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[object] = []
    with stand_in_gpu.stand_in_gpus():
        model = SentenceTransformersEmbedder(str(tiny_bert), device=["cuda:0", "cuda:1"])
        kind = type(model.model)
        monkeypatch.setattr(kind, "start_multi_process_pool", lambda self, named: calls.append(named) or {"of": named})
        monkeypatch.setattr(kind, "stop_multi_process_pool", staticmethod(lambda pool: calls.append(pool)))
        library, pools = model.model.encode, []
        monkeypatch.setattr(
            model.model, "encode", lambda inputs, pool, **more: pools.append(pool) or library(inputs, **more)
        )
        model.encode(TEXTS, "passage")
        model.encode(QUERIES, "query")
        assert model.facts.device == "cuda:0 + cuda:1" and model.texts_at_once == 2 * 4096
        model.release()
    assert calls == [["cuda:0", "cuda:1"], {"of": ["cuda:0", "cuda:1"]}]
    assert pools == [{"of": ["cuda:0", "cuda:1"]}] * 2


def test_a_gpu_is_given_many_texts_at_once(tiny_bert: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch that is set above what a CPU is given counts, too."""
    assert SentenceTransformersEmbedder(str(tiny_bert)).texts_at_once is None
    assert SentenceTransformersEmbedder(str(tiny_bert), batch_size=512).texts_at_once == 512
    texts = [f"text {number}" for number in range(700)]
    corpus = Passages([str(place) for place in range(700)], texts)
    given: list[tuple[int, int]] = []
    with stand_in_gpu.stand_in_gpus():
        embedder = SentenceTransformersEmbedder(str(tiny_bert))
        library = embedder.model.encode
        monkeypatch.setattr(embedder.model, "encode", lambda inputs, batch_size, **more: given.append(
            (len(inputs), batch_size)) or library(inputs, batch_size=batch_size, **more))  # fmt: skip
        Dense(embedder).index(corpus)
    (count, batch), *others = given
    assert count == 700 and not others and batch > 256
    set_by_hand = SentenceTransformersEmbedder(str(tiny_bert), batch_size=512)
    monkeypatch.setattr(set_by_hand.model, "encode", lambda inputs, batch_size, **more: given.append(
        (len(inputs), batch_size)) or np.ones((len(inputs), 32), np.float32))  # fmt: skip
    Dense(set_by_hand).index(corpus)
    assert given[1:] == [(512, 512), (188, 512)]


def test_a_batch_is_what_memory_holds(tiny_bert: Path) -> None:
    sizes = []
    for memory in (1 << 22, 1 << 26, 1 << 30):
        with stand_in_gpu.stand_in_gpus(memory=memory):
            embedder = SentenceTransformersEmbedder(str(tiny_bert), max_length=128)
            model = embedder.model
            sizes.append(embedder.batch_for(["x" * 2000] * 100, model))
            assert embedder.batch_for(["x" * 8] * 100, model) >= sizes[-1]
    assert sizes == sorted(sizes) and sizes[0] < sizes[1] <= sizes[2] <= 1024


def test_workers_of_this_machine_do_not_load_copies_into_one_gpu(tiny_bert: Path) -> None:
    from airgen.retrievers.encoding_cache import _needs_this_gpu

    dense = Dense(SentenceTransformersEmbedder(str(tiny_bert)))
    with stand_in_gpu.stand_in_gpus():
        assert not _needs_this_gpu(dense)
        with computing(ComputeSettings(kind="local", workers=2)):
            assert _needs_this_gpu(dense) and not _needs_this_gpu(BM25())
    with computing(ComputeSettings(kind="local", workers=2)):
        assert not _needs_this_gpu(dense)


def test_model_kwargs_reach_the_library(tiny_bert: Path) -> None:
    model = SentenceTransformersEmbedder(str(tiny_bert), model_kwargs={"attn_implementation": "eager"})
    assert model.model[0].auto_model.config._attn_implementation == "eager"
    assert model.describe()["model_kwargs"] == {"attn_implementation": "eager"}
    assert identity_of(model.settings)["model_kwargs"] == {"attn_implementation": "eager"}
    with pytest.raises(ModelError, match="cannot be loaded"):
        work(SentenceTransformersEmbedder(str(tiny_bert), model_kwargs={"attn_implementation": "no such"}))


def test_no_bars_of_the_library_between_the_lines(tiny_bert: Path, capfd: pytest.CaptureFixture[str]) -> None:
    work(SentenceTransformersEmbedder(str(tiny_bert)))
    shown = capfd.readouterr()
    assert not shown.out and "%" not in shown.err


@pytest.mark.parametrize("spec", [{"dtype": "fp64"}, {"device": [1]}, {"batch_size": 0}])
def test_wrong_settings_are_told(spec: dict[str, Any], tiny_bert: Path) -> None:
    with pytest.raises(Exception, match=r"dtype|device|batch_size"):
        build("embedder", {"kind": "sentence-transformers", "model": str(tiny_bert), **spec})


def test_halving_stops_at_one_and_at_other_errors() -> None:
    sizes: list[int] = []

    def work(size: int) -> int:
        sizes.append(size)
        if size > 3:
            raise torch.OutOfMemoryError("CUDA out of memory.")
        return size

    assert devices.halving(work, 50) == (3, 3) and sizes == [50, 25, 12, 6, 3]
    tried: Callable[[int], int] = lambda size: 1 // 0  # noqa: E731
    with pytest.raises(ZeroDivisionError):
        devices.halving(tried, 8)


@contextmanager
def no_stage(*_: Any) -> Iterator[Any]:
    """A stage of the display that shows nothing."""
    yield SimpleNamespace(advance=lambda *_, **__: None, encoding=lambda *_: None, partly=lambda *_, **__: None)


def test_one_system_out_of_memory_does_not_end_the_evaluation(
    tiny_bert: Path,
    tiny_cross_encoder: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rows = [{"_id": f"d{place}", "title": "", "text": text or "empty"} for place, text in enumerate(TEXTS)]
    queries = [{"_id": f"q{place}", "text": text} for place, text in enumerate(QUERIES)]
    write_beir(tmp_path / "ds", rows, queries, {"test": [("q0", "d0", 1), ("q1", "d1", 1), ("q2", "d2", 1)]})
    systems = [
        {"name": "bm25", "kind": "bm25"},
        {"name": "too-large", "kind": "dense", "embedder": {"kind": "sentence-transformers", "model": str(tiny_bert)}},
        {"name": "no-gpu", "kind": "dense",
         "embedder": {"kind": "sentence-transformers", "model": str(tiny_bert), "device": "cuda:8"}},
        {"name": "reranked", "kind": "rerank", "first": "bm25",
         "reranker": {"kind": "cross-encoder", "model": str(tiny_cross_encoder), "device": "cpu", "dtype": "fp16"}},
    ]  # fmt: skip
    (tmp_path / "systems.yaml").write_text(json.dumps({"systems": systems}), "utf-8")
    tried: list[int] = []

    def exhausted(self: Any, inputs: Sequence[str], batch_size: int, **_: Any) -> None:
        tried.append(batch_size)
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 MiB. GPU 0 has a total capacity of")

    monkeypatch.setattr(sentence_transformers.SentenceTransformer, "encode", exhausted)
    command = ["evaluate", str(tmp_path / "ds"), "--systems", str(tmp_path / "systems.yaml")]
    with stand_in_gpu.stand_in_gpus(), pytest.raises(SystemExit) as end:
        main([*command, "--out", str(tmp_path / "out")])
    shown = capsys.readouterr()
    assert end.value.code == 1 and tried[-1] == 1 and len(tried) > 4 and "Traceback" not in shown.err
    said = [line for line in shown.err.splitlines() if line.startswith("airgen: ")]
    assert len(said) == 2 and "system too-large: " in said[0] and "out of memory" in said[0] and "lower" in said[0]
    assert "system no-gpu: " in said[1] and "device cuda:8" in said[1]
    table = shown.out[shown.out.index("nDCG@10") :]
    assert "bm25" in table and "reranked" in table
    result = json.loads((tmp_path / "out" / "ds" / "test" / "reranked.json").read_text("utf-8"))
    assert result["costs"]["dtype"] == "fp16" and result["description"]["reranker"]["dtype"] == "fp16"
    assert "fp16" in (tmp_path / "out" / "ds" / "test" / "report.md").read_text("utf-8")


def test_a_step_of_control_gives_its_models_memory_back(tiny_cross_encoder: Path) -> None:
    reranker = CrossEncoder(str(tiny_cross_encoder))
    alive: list[weakref.ref[Any]] = []

    def score(work: Any, model: Any) -> Iterator[RowBatch]:
        model.score([("a", "b")])
        alive.append(weakref.ref(model.model))
        yield RowBatch([])
        if work.fails:
            raise ModelError("no")

    step = WholeStep("prelabel:0", (Recall,), Prelabel, 2, label="", work=score, model=lambda work: reranker)

    @dataclass(frozen=True)
    class Work:
        fails: bool
        parents: Any = ("q",)
        fingerprint: str = ""
        pending: Any = ()
        plan: Any = field(default_factory=dict)
        encoding: Any = None
        partly: Any = None
        store: Any = field(
            default_factory=lambda: SimpleNamespace(pending=lambda *args: args[-1], put=lambda rows: None)
        )
        display: Any = field(default_factory=lambda: SimpleNamespace(stage=no_stage))
        stopping: Any = field(default_factory=lambda: SimpleNamespace(is_set=lambda: False))

    run_whole(step, Work(False))  # type: ignore[type-var]
    with pytest.raises(ModelError, match="no"):
        run_whole(step, Work(True))  # type: ignore[type-var]
    assert len(alive) == 2 and [one() for one in alive] == [None, None]


def test_the_rehearsal_gives_memory_back(tiny_cross_encoder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    alive: list[weakref.ref[Any]] = []
    score = CrossEncoder.score
    monkeypatch.setattr(
        CrossEncoder, "score", lambda self, pairs: (score(self, pairs), alive.append(weakref.ref(self.model)))[0]
    )
    spec = {"kind": "cross-encoder", "model": str(tiny_cross_encoder)}
    monkeypatch.setattr(preflight, "_models", lambda *_: [("control.rerankers.0", read_spec("reranker", spec))])
    job: Any = SimpleNamespace(pipeline=SimpleNamespace(language="en"))
    display: Any = SimpleNamespace(stage=no_stage)
    preflight.rehearse(job, display)
    assert len(alive) == 1 and alive[0]() is None


def test_the_card_of_a_dataset_names_the_dtype(tiny_cross_encoder: Path, tmp_path: Path) -> None:
    spec = read_spec("reranker", {"kind": "cross-encoder", "model": str(tiny_cross_encoder), "dtype": "bf16"})
    assert _ran("re-ranker (pre-label)", spec, tmp_path).version == ""  # it has not run
    keep_setups(tmp_path, spec, spec.make())
    assert _ran("re-ranker (pre-label)", spec, tmp_path).version == "no prompts; at most 128 tokens; bf16"
    assert _ran("recall", read_spec("retriever", "bm25"), tmp_path).version == ""
