"""Work on a real Ray cluster of several raylets on this machine: as here, whatever dies meanwhile."""

import importlib.util
import os
import select
import signal
import subprocess
import sys
from collections import deque
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from compute_work import ODD_ERRORS, HashEmbedder, doubling, dying, failing, raising_odd, staying, where

from airgen.compute import Work, computing
from airgen.compute import ray as ray_workers
from airgen.compute.ray import RayWorkers, translated
from airgen.errors import AirgenError, ModelError
from airgen.retrievers.dense.retriever import Dense
from airgen.retrievers.encoding_cache import EncodingStore
from airgen.retrievers.model_facts import model_identity
from airgen.retrievers.passages import Passages
from airgen.settings.compute import ComputeSettings

pytestmark = [
    pytest.mark.nightly,
    pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="Ray is not installed: pip install '.[ray]'"),
    pytest.mark.filterwarnings("ignore"),  # Ray's own, about files of its processes that it leaves open
]
ITEMS = [(f"item {number}", number) for number in range(30)]
WANTED = [(key, 2 * number) for key, number in ITEMS]
STORE = 80_000_000  # bytes of a node's object store; Ray takes no less than 75 MiB


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A head and a second node, with one CPU each."""
    import ray
    from ray.cluster_utils import Cluster

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        patch.setenv("RAY_worker_niceness", "0")  # otherwise, other tests would take all of its time
        patch.setenv("PYTHONPATH", os.pathsep.join(path for path in sys.path if path))
        try:
            found = Cluster(
                initialize_head=True,
                head_node_args={"num_cpus": 1, "object_store_memory": STORE, "include_dashboard": False},
            )
            found.add_node(num_cpus=1, object_store_memory=STORE)
            ray.init(address=found.address, log_to_driver=False, logging_level="ERROR")
        except Exception as error:  # noqa: BLE001  # Ray's own errors of a start are of many classes, gRPC's among them
            reason = f"Ray cannot start on this machine ({type(error).__name__}: {' '.join(str(error).split())[:300]})"
            print(f"\nNO TEST OF A RAY CLUSTER RUNS: {reason}", file=sys.__stderr__, flush=True)
            pytest.skip(f"{reason}: run `pytest -m nightly tests/compute/test_ray.py` when it is less busy")
        yield found
        ray.shutdown()
        found.shutdown()


@pytest.fixture(scope="module")
def two(cluster: Any) -> Iterator[RayWorkers]:
    with RayWorkers(ComputeSettings(kind="ray")) as compute:
        yield compute


def head_of(cluster: Any) -> int:
    """The process that keeps the books of the cluster."""
    return int(cluster.head_node.all_processes["gcs_server"][0].process.pid)


def test_no_cluster_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "ray").mkdir()
    (tmp_path / "ray" / "ray_current_cluster").write_text("127.0.0.1:1")  # of a head that was killed
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path))
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    for address, words in (
        ("auto", r"no Ray cluster on this machine \(127.0.0.1:1: Connection refused\): start one with `ray start"),
        ("ray://127.0.0.1:1", r"no Ray cluster responds at ray://127.0.0.1:1 \(127.0.0.1:1: Connection refused\)"),
    ):
        with pytest.raises(AirgenError, match=words) as caught:
            list(RayWorkers(ComputeSettings(kind="ray", address=address)).map(doubling(), ITEMS))
        assert "\n" not in str(caught.value)


def test_needs_that_no_node_has_are_named(cluster: Any) -> None:
    with (
        RayWorkers(ComputeSettings(kind="ray", gpus_per_worker=1)) as compute,
        pytest.raises(AirgenError, match=r"one worker needs 1 GPUs and 1 CPUs.*0 GPUs, 1 CPUs"),
    ):
        list(compute.map(doubling(), ITEMS))


def test_a_worker_with_another_airgen_is_refused(cluster: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("airgen.compute.ray.__version__", "9.9")
    with (
        RayWorkers(ComputeSettings(kind="ray", workers=1)) as compute,
        pytest.raises(AirgenError, match=r"the node .* has airgen .*, but this is airgen 9\.9: install the same"),
    ):
        list(compute.map(doubling(), ITEMS))


def test_a_driver_that_is_killed_goes_on(cluster: Any, tmp_path: Path) -> None:
    """The embeddings that it made are kept, and the file is in the end that of one process."""
    driver = f"""
import os, ray
from test_ray import embed
ray.init(address={cluster.address!r}, log_to_driver=False, logging_level="ERROR")
embed({str(tmp_path / "there")!r}, "ray", lambda done, total: done < 256 or os.kill(os.getpid(), 9))
"""
    path = os.pathsep.join([str(Path(__file__).parent), os.environ["PYTHONPATH"]])
    killed = subprocess.run([sys.executable, "-c", driver], env={**os.environ, "PYTHONPATH": path}, check=False)
    assert killed.returncode == -9
    assert store(tmp_path / "there").with_name("keys.bin").stat().st_size == 256 * 36
    assert embed(str(tmp_path / "there"), "ray") == embed(str(tmp_path / "here"), "local")


def embed(folder: str, where: Any, progress: Any = None) -> bytes:
    """Embed 600 texts into a cache; its bytes."""
    dense = Dense(HashEmbedder(), cache=folder)
    dense.progress = progress
    texts = [f"bees of the valley {number} and their clover" for number in range(600)]
    with computing(ComputeSettings(kind=where)):
        dense.index(Passages(texts, texts))
    return store(Path(folder)).read_bytes() + store(Path(folder)).with_name("keys.bin").read_bytes()


def store(folder: Path) -> Path:
    return EncodingStore(folder, model_identity(HashEmbedder()), "vectors", "passage").data


def test_results_and_workers(two: RayWorkers) -> None:
    assert list(two.map(doubling(), ITEMS)) == WANTED
    places: set[tuple[int, str]] = set()
    while len(places) < 2:
        places |= {place for _, place in two.map(where(), ITEMS)}
    assert {threads for _, threads in places} == {"1"}
    found = two.describe()
    assert (found["kind"], found["workers"], found["nodes"]) == ("ray", 2, 2)


def test_a_worker_that_dies_and_an_error_of_the_work(two: RayWorkers, tmp_path: Path) -> None:
    assert list(two.map(dying(tmp_path, 11), ITEMS)) == WANTED  # Ray tries it again
    with pytest.raises(ModelError) as caught:
        list(two.map(failing("model"), ITEMS))
    assert str(caught.value) == "item 7 is NaN"


def test_an_error_that_would_end_a_worker_is_one_of_the_work(two: RayWorkers) -> None:
    for item, error in enumerate(ODD_ERRORS):
        work = Work("odd", raising_odd(), raising_odd)
        with pytest.raises(RuntimeError, match=f"^{type(error).__name__}"):
            list(two.map(work, [("first", item), ("second", item)]))
    assert list(two.map(doubling(), ITEMS)) == WANTED


def test_an_item_that_always_kills_its_worker_is_named(two: RayWorkers, tmp_path: Path) -> None:
    with pytest.raises(AirgenError, match="dying: two workers were lost on item 5") as caught:
        list(two.map(dying(tmp_path, 5, times=99), ITEMS))
    assert "\n" not in str(caught.value)


def test_a_head_that_is_away_for_a_moment(cluster: Any, two: RayWorkers) -> None:
    assert list(two.map(doubling(), ITEMS)) == WANTED
    before, head = two.describe(), head_of(cluster)
    os.kill(head, signal.SIGSTOP)
    try:
        assert list(two.map(doubling(), ITEMS)) == WANTED
    finally:
        os.kill(head, signal.SIGCONT)
    assert list(two.map(doubling(), ITEMS)) == WANTED
    after = two.describe()
    assert (after["workers_lost"], after["sent_again"]) == (before["workers_lost"], before["sent_again"])


def test_a_full_object_store(two: RayWorkers) -> None:
    """Results that are kept, and items on their way, take three times the room of a node: Ray uses its disk."""
    items = [(number, np.full(2_000_000, number, np.float64)) for number in range(6)]
    assert sum(rows.nbytes for _, rows in items) > STORE
    found = list(two.map(doubling(), items))
    assert [(key, rows[0], rows[-1], rows.shape) for key, rows in found] == [
        (number, 2 * number, 2 * number, (2_000_000,)) for number in range(6)
    ]


def test_a_full_object_store_and_a_full_disk_are_one_line() -> None:
    """As Ray says it of a result that a worker cannot keep, and of a batch that cannot be sent."""
    import ray

    full = ray.exceptions.OutOfDiskError("Local disk is full\nThe object cannot be created")
    for error in (full, ray.exceptions.RayTaskError("run", "a trace\nof lines", full).as_instanceof_cause()):
        found = translated(ray, error)
        assert type(found) is AirgenError and "\n" not in str(found)
        assert str(found).startswith("compute: Ray's object store is full, and so is the disk")


def test_a_node_that_dies_takes_nothing_with_it(cluster: Any, two: RayWorkers, tmp_path: Path) -> None:
    node = cluster.list_all_nodes()[-1]
    os.mkfifo(tmp_path / "door")
    door = os.open(tmp_path / "door", os.O_RDONLY | os.O_NONBLOCK)
    held = False

    def items() -> Iterator[tuple[int, int]]:
        """Without an end until the worker of the node has one: that of the head may have done many before."""
        for number in count():
            if held:
                return
            yield number, number

    try:
        results = two.map(staying(tmp_path / "door", node.node_id), items(), ordered=False)
        found = [next(results)]
        while not select.select([door], [], [], 0)[0]:
            found.append(next(results))
        held = True
    finally:
        os.close(door)
    cluster.remove_node(node, allow_graceful=False)
    found += results
    assert sorted(found) == [(number, 2 * number) for number in range(len(found))]
    assert list(two.map(doubling(), ITEMS)) == WANTED  # by the worker that is left


def test_a_head_that_is_gone_ends_the_run_in_one_line(
    cluster: Any, two: RayWorkers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last test of this cluster: without its head, Ray ends this process after a minute."""
    monkeypatch.setattr(ray_workers, "_HEAD_POLL_SECONDS", 0.0)
    results = two.map(doubling(), ((number, number) for number in count()))
    assert next(results) == (0, 0)
    os.kill(head_of(cluster), signal.SIGKILL)
    cluster.head_node.all_processes["gcs_server"][0].process.wait()
    monkeypatch.setattr(ray_workers, "_HEAD_LOST_SECONDS", 0.0)
    with pytest.raises(AirgenError, match=r"the head of the Ray cluster at .* run the same command again") as caught:
        deque(results, 0)
    assert "\n" not in str(caught.value)
