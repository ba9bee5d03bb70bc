"""A LoRA adapter of peft is loaded onto its base model, as RepLLaMA's is onto Llama 2."""

import shutil
from pathlib import Path

import numpy as np
import pytest
from small_models import make_bert

from airgen.retrievers import load_embedder


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
