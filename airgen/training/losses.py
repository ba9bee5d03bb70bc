"""E5's loss (section 4): InfoNCE over in-batch and other negatives, and distillation from a teacher.

sentence-transformers encodes a large batch in parts and caches the gradients of the vectors (Gao and others, 2021),
which E5 needs for 32,768 pairs.
"""

import copy
from collections.abc import Callable
from typing import Any

import numpy as np

from airgen.components.registry import load_extra
from airgen.training.kinds.transformer import info_nce
from airgen.training.task import processes, rank

_torch = load_extra("torch", "training")
_library = load_extra("sentence_transformers.sentence_transformer.losses", "training an encoder")
_util = load_extra("sentence_transformers.util", "training an encoder")


def distillation(student: Any, teacher: Any, masked: Any = None) -> Any:
    """Compute KL(p_teacher, p_student) for each row (E5, section 4.2) from scores of the same candidates."""
    functional = _torch.nn.functional
    if masked is not None:
        student, teacher = student.masked_fill(masked, -_torch.inf), teacher.masked_fill(masked, -_torch.inf)
    wanted = functional.log_softmax(teacher, -1)
    gap = wanted - functional.log_softmax(student, -1)
    if masked is not None:  # probability 0 on both sides: 0 times (-inf - -inf) would be nan, its limit is 0
        gap = gap.masked_fill(masked, 0.0)
    return (wanted.exp() * gap).sum(-1)


def margin_error(student: Any, teacher: Any, masked: Any) -> Any:
    """Compute the mean squared error of each row's margins between the first candidate and each other one (TAS-B).

    The first candidate of a row, and at least one other, must not be masked.
    """
    margins = [scores[:, :1] - scores[:, 1:] for scores in (student, teacher)]
    left_out = masked[:, 1:]
    errors = (margins[0] - margins[1]).masked_fill(left_out, 0.0) ** 2
    return errors.sum(-1) / (~left_out).sum(-1)


class TrainedEncoder(_torch.nn.Module):  # type: ignore[misc, name-defined]
    """The state saved in an encoder's checkpoints: the encoder and the queue of `E5Loss`, in bf16 or fp32."""

    def __init__(self, encoder: Any, precision: str) -> None:
        super().__init__()
        self.encoder, self._low = encoder, precision == "bf16"

    def forward(self, features: dict[str, Any], encoder: Any = None) -> dict[str, Any]:
        """Return {"sentence_embedding": (texts, dim)} in fp32."""
        with _torch.autocast(self.encoder.device.type, _torch.bfloat16, enabled=self._low):
            vectors = (encoder or self.encoder)(features)["sentence_embedding"]
        return {"sentence_embedding": vectors.float() if self._low else vectors}


class E5Loss(_library.CachedMultipleNegativesRankingLoss):  # type: ignore[misc, name-defined]
    """InfoNCE over all passages in a batch, in all processes and in the queue and, with a teacher, distillation.

        extra_negatives="pre-batch"   the vectors of earlier batches, computed with older weights (Lee and others, 2021)
        extra_negatives="moco"        the same, but passages are encoded by a running mean of the encoder
                                      (He and others, 2020)

    E5 found both worse than a large batch (table 8). The queue and the second encoder are part of the module `owner`,
    so that checkpoints contain them.
    """

    def __init__(self, owner: Any, recipe: Any) -> None:
        encoder = owner.encoder
        super().__init__(encoder, scale=recipe.scale, mini_batch_size=recipe.chunk)
        self.owner, self.recipe = [owner], recipe  # in a list, so that it is not part of this module
        self.queued, self.moco = recipe.extra_negatives != "none", recipe.extra_negatives == "moco"
        self.numbers: dict[str, Any] = {}
        if self.queued:
            owner.register_buffer("queue", _torch.zeros(recipe.queue_size, encoder.get_embedding_dimension()))
            owner.register_buffer("queue_texts", _torch.full((recipe.queue_size,), -1, dtype=_torch.long))
        if self.moco:
            owner.twin = copy.deepcopy(encoder).requires_grad_(False)

    def follow(self) -> Any:
        """Set each weight of the second encoder to momentum * weight + (1 - momentum) * encoder's weight, and return
        this encoder."""
        (owner,) = self.owner
        with _torch.no_grad():
            for averaged, current in zip(owner.twin.parameters(), owner.encoder.parameters(), strict=True):
                averaged.lerp_(current.detach(), 1 - self.recipe.momentum)
        return owner.twin

    def calculate_loss(self, reps: Any, labels: Any = None, *, with_backward: bool = False) -> Any:
        """Compute the loss. `labels` is a function of the vectors of the queries and of the passages."""
        loss = labels(*(_torch.cat(parts) for parts in reps))
        if with_backward:
            loss.backward()
        return loss.detach() if with_backward else loss

    def of_vectors(
        self, queries: Any, passages: Any, texts: Any, masks: Callable[[Any, Any], Any], teacher: Any = None
    ) -> Any:
        """Compute the loss from vectors.

        Args:
            queries: Vectors of the queries, (n, dim).
            passages: Vectors of their positives, then of all first negatives, and so on.
            texts: Ids of the passages' texts.
            masks: Function that returns the false negatives, given the ids of all candidates and the columns of the
                positives.
            teacher: Scores of each query's own passages, (n, 1 + negatives), NaN if missing. A query needs teacher
                scores for its positive and a negative; otherwise, only the contrastive loss is used.
        """
        (owner,) = self.owner
        own_columns = (
            _torch.arange(len(passages), device=passages.device).view(-1, len(queries)).T + len(passages) * rank()
        )
        if processes() > 1:
            passages, texts = _util.all_gather(passages, with_grad=True), _util.all_gather(texts)
        candidates, ids = passages, texts
        if self.queued:
            older = owner.queue_texts >= 0
            candidates, ids = _torch.cat([passages, owner.queue[older]]), _torch.cat([texts, owner.queue_texts[older]])
        scores, masked = queries @ candidates.T * self.scale, masks(ids, own_columns[:, 0])
        again = _torch.ones(len(ids), dtype=_torch.bool)
        again[np.unique(ids.cpu().numpy(), return_index=True)[1]] = False  # each text counts once
        others = (masked | again.to(masked.device)).scatter(1, own_columns[:, :1], value=False)
        contrastive = info_nce(scores, own_columns[:, 0], others, reduction="none")
        self.numbers = {}
        if self.queued and _torch.is_grad_enabled():  # the latest first
            size = len(owner.queue)
            owner.queue[:] = _torch.cat([passages.detach(), owner.queue])[:size]
            owner.queue_texts[:] = _torch.cat([texts, owner.queue_texts])[:size]
        if teacher is None:
            return contrastive.mean()
        hidden = masked.gather(1, own_columns) | teacher.isnan()
        taught = ~hidden[:, 0] & ~hidden[:, 1:].all(dim=1)
        student, wanted, hidden = scores.gather(1, own_columns)[taught], teacher[taught], hidden[taught]
        if self.recipe.distil == "kl":
            soft = distillation(student, wanted, hidden)
        else:  # products of the vectors themselves
            soft = margin_error(student / self.scale, wanted.masked_fill(hidden, 0.0), hidden)
        count = max(1, len(soft))
        self.numbers = {"distillation": soft.sum() / count, "contrastive": contrastive.mean()}
        hard = _torch.where(taught, self.recipe.alpha * contrastive, contrastive)
        return (hard.sum() + soft.sum()) / len(queries)
