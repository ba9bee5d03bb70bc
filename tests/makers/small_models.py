"""Make random models with a few thousand weights: a BERT, a cross-encoder and a T5 with one small vocabulary."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

_LINE = (
    "amber bridge candle desert engine falcon garden harbour island jungle kettle lantern mirror needle orchard pepper "
    "quarry ribbon saddle temple urchin valley window yonder zephyr anchor basket copper dragon ember"
)
WORDS = _LINE.split()


def make_tokenizer(folder: Path, words: Iterable[str] = WORDS) -> int:
    """Write a WordPiece tokenizer over these words and letters, and return the size of its vocabulary."""
    import transformers
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

    letters = [chr(code) for code in range(ord("a"), ord("z") + 1)]
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    pieces = [*special, *letters, *(f"##{letter}" for letter in letters), ":", *words, "query", "passage"]
    vocabulary = {piece: number for number, piece in enumerate(dict.fromkeys(pieces))}
    tokenizer = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, unk_token="[UNK]", pad_token="[PAD]", cls_token="[CLS]", sep_token="[SEP]",
        mask_token="[MASK]", model_max_length=64, model_input_names=["input_ids", "token_type_ids", "attention_mask"],
    ).save_pretrained(folder)  # fmt: skip
    return len(vocabulary)


def make_bert(folder: Path, *, masked_lm: bool = True, ranks: bool = False, hidden: int = 32, seed: int = 0) -> Path:
    """Write a folder with a random BERT and its tokenizer.

    Args:
        folder: The folder to write.
        masked_lm: Whether to include the masked-language-model head.
        ranks: With the head of a cross-encoder instead, and for texts of 512 tokens, as FlagEmbedding gives it.
        hidden: The dimension of its vectors.
        seed: The seed of its weights.
    """
    import torch
    import transformers

    settings: dict[str, Any] = {"num_labels": 1} if ranks else {}
    positions = 512 if ranks else 64
    vocabulary = make_tokenizer(folder)
    torch.manual_seed(seed)
    config = transformers.BertConfig(
        vocab_size=vocabulary, hidden_size=hidden, num_hidden_layers=2, num_attention_heads=2,
        intermediate_size=2 * hidden, max_position_embeddings=positions, pad_token_id=0, **settings,
    )  # fmt: skip
    kind = transformers.BertForMaskedLM if masked_lm else transformers.BertModel
    (transformers.BertForSequenceClassification if ranks else kind)(config).save_pretrained(folder)
    return folder


def make_t5(folder: Path) -> Path:
    """Write a folder with a random T5 and its tokenizer."""
    import torch
    import transformers

    config = transformers.T5Config(
        vocab_size=make_tokenizer(folder), d_model=16, d_kv=8, d_ff=32, num_layers=1, num_heads=2, pad_token_id=0,
        eos_token_id=3, decoder_start_token_id=0,
    )  # fmt: skip
    torch.manual_seed(0)
    transformers.T5ForConditionalGeneration(config).save_pretrained(folder)
    return folder
