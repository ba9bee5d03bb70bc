"""Topic-aware batches: the queries of a batch are about one topic."""

from collections import Counter
from pathlib import Path

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from packages import package
from small_training import train_quickly

package("sklearn")

from airgen.training.topic_batches import by_topic, topics_of


def test_far_clusters_are_the_topics() -> None:
    draw = np.random.default_rng(0)
    centres = np.eye(3, 8, dtype=np.float32) * 50
    true = draw.integers(0, 3, 60)
    vectors = (centres[true] + draw.normal(size=(60, 8))).astype(np.float32)
    topics = topics_of(vectors, 3, seed=7)
    assert len({*zip(true.tolist(), topics.tolist(), strict=True)}) == 3
    assert (topics == topics_of(vectors, 3, seed=7)).all()
    assert topics_of(np.ones((5, 8), np.float32), 3, seed=7).tolist() == [0] * 5  # one vector, one topic


@given(st.lists(st.integers(0, 4), min_size=4, max_size=60), st.integers(2, 9), st.integers(0, 3))
def test_an_epoch_has_the_same_queries_in_batches_of_as_many(topics: list[int], size: int, epoch: int) -> None:
    numbers = [*range(len(topics))]
    batches = [numbers[first : first + size] for first in range(0, len(numbers), size)]
    made = by_topic(batches, np.array(topics), 3, epoch)
    assert sorted(number for batch in made for number in batch) == numbers
    assert Counter(map(len, made)) == Counter(map(len, batches))
    # Sorted by topic, each topic has one end, so no more batches are mixed than there are ends between topics.
    assert sum(len({topics[number] for number in batch}) - 1 for batch in made) <= len(set(topics)) - 1
    assert made == by_topic(batches, np.array(topics), 3, epoch)


def test_an_encoder_learns_from_batches_of_one_topic(dataset: Path, bert: Path, tmp_path: Path) -> None:
    weights = []
    for name, topics in (("one", 3), ("again", 3), ("random", 0)):
        train_quickly("encoder", dataset, bert, tmp_path / name, f"topics={topics}", "batch_size=4")
        weights.append((tmp_path / name / "model.safetensors").read_bytes())
    assert weights[0] == weights[1] != weights[2]
