"""A LoRA adapter of peft is loaded onto its base model, as RepLLaMA's is onto Llama 2."""

import shutil
from pathlib import Path

import numpy as np
import pytest
from paper_models import make_paper_model
from small_models import make_bert

from airgen.evaluation import load_systems
from airgen.retrievers import load_embedder
from airgen.settings.base import find_yaml


@pytest.mark.filterwarnings("ignore::FutureWarning")  # of peft, about transformers
def test_an_adapter_gives_the_vectors_of_the_merged_model(tmp_path: Path) -> None:
    peft, transformers = pytest.importorskip("peft"), pytest.importorskip("transformers")
    torch = pytest.importorskip("torch")
    base = make_bert(tmp_path / "base", masked_lm=False)
    shutil.copytree(base, tmp_path / "merged")
    config = peft.LoraConfig(r=2, target_modules=["query", "value"], task_type="FEATURE_EXTRACTION")
    adapted = peft.get_peft_model(transformers.AutoModel.from_pretrained(base), config)
    torch.manual_seed(0)
    for name, weights in adapted.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(weights)
    adapted.save_pretrained(tmp_path / "adapter")
    adapted.merge_and_unload().save_pretrained(tmp_path / "merged")
    settings = {"kind": "sentence-transformers", "pooling": "mean"}

    def vectors(**more: str) -> np.ndarray:
        return load_embedder({**settings, **more}).encode(["the ferry leaves at nine", "bread"], "passage")

    plain, merged = vectors(model=str(base)), vectors(model=str(tmp_path / "merged"))
    assert np.allclose(vectors(model=str(base), adapter=str(tmp_path / "adapter")), merged, atol=1e-5)
    assert not np.allclose(plain, merged, atol=1e-3)


@pytest.mark.filterwarnings("ignore::FutureWarning")
@pytest.mark.parametrize("systems", ["systems-airbench", "systems-airbench-17"])
def test_repllama_encodes_as_its_model_card_does(systems: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Random weights, with a tokenizer that has no token for padding and adds no </s>, as Llama 2's."""
    peft, transformers = pytest.importorskip("peft"), pytest.importorskip("transformers")
    torch = pytest.importorskip("torch")
    monkeypatch.chdir(tmp_path)
    base, adapter = (
        make_paper_model(name) for name in ("meta-llama/Llama-2-7b-hf", "castorini/repllama-v1-7b-lora-passage")
    )
    (spec,) = (
        spec
        for system in load_systems(find_yaml("pipelines", systems))
        if system.name.startswith("repllama")
        for role, spec in system.parts()
        if role == "embedder"
    )
    assert (spec.settings.model, spec.settings.adapter) == (str(base), str(adapter))  # type: ignore[attr-defined]
    texts = ["amber bridge", "amber bridge candle desert engine falcon garden", "kettle"]
    vectors = spec.make().encode(texts, "query")

    tokenizer = transformers.AutoTokenizer.from_pretrained(base)
    assert tokenizer.pad_token is None
    model = peft.PeftModel.from_pretrained(transformers.AutoModel.from_pretrained(base), adapter).merge_and_unload()
    for text, vector in zip(texts, vectors, strict=True):
        inputs = tokenizer(f"query: {text}</s>", return_tensors="pt")
        with torch.no_grad():
            last = model.eval()(**inputs).last_hidden_state[0][-1]
        assert np.allclose(vector, torch.nn.functional.normalize(last, dim=0), atol=1e-5)
