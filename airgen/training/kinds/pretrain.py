"""E5's contrastive pre-training (section 4.1) on pairs without labels: `encoder.py` with the recipe of section 5.1.

airgen train pairs postgresql-manual --out data/pairs
airgen train pretrain --on data/pairs --base splade-bert-tiny --out models/noisy
airgen train filter data/pairs --model models/noisy --out data/filtered
airgen train pretrain --on data/filtered --base splade-bert-tiny --out models/pretrained
"""

from __future__ import annotations

from pydantic import Field

from airgen.training.kinds.encoder import EncoderRecipe, EncoderTask


class PretrainRecipe(EncoderRecipe):
    """Pre-training, E5's section 5.1 and table 11."""

    epochs: int = Field(3, ge=1, description="E5: 20,000 steps, about 2.5 epochs")
    batch_size: int = Field(
        1024,
        ge=1,
        description="E5: 32,768; 1,024 is the smallest of its table 5, for the few pairs of a small corpus",
    )
    learning_rate: float = Field(3e-4, gt=0, description="E5 small; base 2e-4, large 1e-4 (section 5.1)")
    warmup: float = Field(0.05, ge=0, le=1, description="E5, section 5.1: 1,000 of 20,000 steps")
    max_length: int = Field(128, ge=8, description="E5, table 11")
    hard_negatives: int = Field(0, ge=0, description="E5, section 4.1: in-batch negatives alone")
    dev_share: float = Field(0.01, ge=0, lt=1, description="there are many pairs, and a few hundred are enough for dev")


class PretrainTask(EncoderTask):
    """The task of `encoder.py` with another recipe."""

    RECIPE = PretrainRecipe
