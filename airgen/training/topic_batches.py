"""Topic-aware batches (TAS-B; Hofstätter and others, 2021): all queries of a batch are about one topic.

The other passages in such a batch are closer to a query than random ones, so in-batch negatives are harder. A topic is
a cluster of the queries' vectors before training.
"""

from collections.abc import Sequence
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from airgen.components.keys import rng
from airgen.components.registry import load_extra


def topics_of(vectors: NDArray[np.float32], count: int, seed: int) -> NDArray[np.int64]:
    """Cluster vectors by k-means.

    Args:
        vectors: Vectors of the queries, (queries, dimensions).
        count: Number of clusters. There are fewer if there are fewer distinct vectors.
        seed: Seed for the initial centres and the samples.

    Returns:
        The cluster of each vector, (queries,).
    """
    cluster = load_extra("sklearn.cluster", "topic-aware batches")
    count = min(count, len(np.unique(vectors, axis=0)))
    means = cluster.MiniBatchKMeans(count, random_state=seed, n_init=1, batch_size=max(1024, 3 * count))
    return np.asarray(means.fit_predict(vectors), np.int64)


def by_topic(batches: Sequence[Sequence[int]], topics: NDArray[np.int64], seed: int, epoch: int) -> list[list[int]]:
    """Sort the queries of an epoch into batches with one topic each, keeping the number and sizes of the batches.

    The remainder of a topic shares a batch with the next topic of the epoch.

    Args:
        batches: The query numbers of each batch, in the epoch's random order.
        topics: The topic of each query.
        seed: Seed for the order of topics and batches.
        epoch: Number of the epoch, each of which has a different order.
    """
    order = np.random.default_rng(rng("topics", seed, epoch).getrandbits(64))
    numbers = np.fromiter(chain.from_iterable(batches), np.int64)
    rank = order.permutation(int(topics.max(initial=0)) + 1)
    numbers = numbers[np.argsort(rank[topics[numbers]], kind="stable")]
    cuts = np.cumsum([len(batch) for batch in batches])[:-1]
    parts = [part.tolist() for part in np.split(numbers, cuts)]
    return [parts[place] for place in order.permutation(len(parts))]
