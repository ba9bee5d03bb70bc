"""A cross-encoder's last layer for the first token alone: the classifier reads no other.

Of the last layer only keys and values need every token; queries, output, and the feed-forward part (five sixths of
its work) are computed for one. With six layers that saves a seventh of the whole, and changes no score by more than
rounding. It is tried on a first batch against the model's own forward pass, and left out where that differs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from airgen.registry import load_extra

_TYPES = ("bert", "roberta", "xlm-roberta", "camembert", "electra")
_TOLERANCE = 1e-4  # of a logit


def shorten(model: Any, inputs: Mapping[str, Any]) -> bool:
    """Shorten the last layer of a sequence classifier of transformers in place; whether it could be done.

    `inputs` are a few tokenised pairs of unequal length to try it on.
    """
    torch = load_extra("torch", "a cross-encoder")
    config = model.config
    encoder = getattr(getattr(model, model.base_model_prefix, None), "encoder", None)
    layers = getattr(encoder, "layer", None)
    if config.model_type not in _TYPES or not layers or getattr(config, "_attn_implementation", "") != "sdpa":
        return False
    last = layers[-1]
    wanted = model(**inputs).logits
    for wrap in (lambda states: states, lambda states: (states,)):  # transformers 5, and before
        last.forward = _first_token(torch, last, wrap)
        try:
            if torch.allclose(model(**inputs).logits, wanted, rtol=0, atol=_TOLERANCE):
                return True
        except (AttributeError, TypeError, RuntimeError, IndexError, ValueError):
            pass  # another version of transformers: its own forward pass is right in any case
        del last.forward
    return False


def _first_token(torch: Any, layer: Any, wrap: Callable[[Any], Any]) -> Callable[..., Any]:
    attention = layer.attention.self

    def heads(states: Any) -> Any:  # (texts, heads, tokens, size)
        return states.view(*states.shape[:2], -1, attention.attention_head_size).transpose(1, 2)

    def forward(hidden_states: Any, attention_mask: Any = None, *_: Any, **__: Any) -> Any:
        first = hidden_states[:, :1]
        mixed = torch.nn.functional.scaled_dot_product_attention(
            heads(attention.query(first)),
            heads(attention.key(hidden_states)),
            heads(attention.value(hidden_states)),
            attn_mask=None if attention_mask is None else attention_mask[..., :1, :],
        )
        mixed = mixed.transpose(1, 2).reshape(len(first), 1, -1)
        return wrap(layer.feed_forward_chunk(layer.attention.output(mixed, first)))

    return forward
