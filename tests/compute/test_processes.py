"""Work on processes of this machine: the same results as here, in spite of workers that die, hang or lack memory."""

import os
import pickle
import select
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from compute_work import ODD_ERRORS, doubling, dying, failing, raising_odd, where

from airgen.compute import Compute, cores, thread_limits
from airgen.compute.processes import Processes, answer
from airgen.errors import AirgenError, MissingExtra, ModelError, UsageError
from airgen.settings.compute import ComputeSettings, compute_settings

ITEMS = [(f"item {number}", number) for number in range(40)]
WANTED = [(key, 2 * number) for key, number in ITEMS]


@pytest.fixture(scope="module")
def two() -> Iterator[Processes]:
    with Processes(ComputeSettings(workers=2)) as compute:
        yield compute


def processes(compute: Processes) -> set[tuple[int, str]]:
    """Process and threads of each worker."""
    found: set[tuple[int, str]] = set()
    while len(found) < 2:  # one may still be starting
        found |= {place for _, place in compute.map(where(), ITEMS)}
    return found


def test_results_come_in_order_with_their_keys(two: Processes) -> None:
    assert list(two.map(doubling(), ITEMS)) == WANTED == list(Compute().map(doubling(), ITEMS))
    assert sorted(two.map(doubling(), ITEMS, ordered=False)) == sorted(WANTED)
    assert list(two.map(doubling(), [])) == []


def test_all_workers_work_elsewhere_within_their_threads(two: Processes) -> None:
    found = processes(two)
    assert len({pid for pid, _ in found}) == 2 and os.getpid() not in {pid for pid, _ in found}
    assert {threads for _, threads in found} == {str(max(1, cores() // 2))}


def test_items_are_taken_only_when_there_is_room(two: Processes) -> None:
    taken = 0

    def items() -> Iterator[tuple[int, int]]:
        nonlocal taken
        for number in range(1000):
            taken += 1
            yield number, number

    results = two.map(doubling(), items())
    assert next(results) == (0, 0)
    assert taken <= 2 * (2 * 2 + 2 * 4 + 1)
    assert len(list(results)) == 999


def test_a_worker_that_dies_is_replaced_and_its_items_are_done(two: Processes, tmp_path: Path) -> None:
    before = two.describe()
    assert list(two.map(dying(tmp_path, 11), ITEMS)) == WANTED
    after = two.describe()
    assert after["workers_lost"] == before["workers_lost"] + 1 and after["sent_again"] > before["sent_again"]
    assert len(processes(two)) == 2


def test_an_item_that_always_kills_its_worker_is_named(two: Processes, tmp_path: Path) -> None:
    with pytest.raises(
        AirgenError, match=r"dying: two workers were lost on item 5; the last one: .*signal 9"
    ) as caught:
        list(two.map(dying(tmp_path, 5, times=99), ITEMS))
    assert "\n" not in str(caught.value)
    assert list(two.map(doubling(), ITEMS)) == WANTED


def test_an_error_that_cannot_be_sent_or_ends_a_process_is_one_of_the_work() -> None:
    for item, error in enumerate(ODD_ERRORS):
        sent = pickle.loads(pickle.dumps(answer(pickle.dumps(raising_odd), item)))
        with pytest.raises(RuntimeError, match=f"^{type(error).__name__}"):
            sent.value()


def test_an_error_of_the_work_is_raised_as_it_is_and_not_tried_again(two: Processes) -> None:
    before = two.describe()["sent_again"]
    with pytest.raises(ModelError) as caught:
        list(two.map(failing("model"), ITEMS))
    assert str(caught.value) == "item 7 is NaN" and "compute_work.py" in caught.value.__notes__[0]
    with pytest.raises(MissingExtra, match=r"pip install 'airgen-bench\[fast\]'"):
        list(two.map(failing("extra"), ITEMS))
    assert two.describe()["sent_again"] == before
    assert list(two.map(doubling(), ITEMS)) == WANTED  # what was in flight is no result of the next one


def test_workers_end_with_the_pool() -> None:
    with Processes(ComputeSettings(workers=1)) as one:
        pid = next(one.map(where(), ITEMS))[1][0]
        os.kill(pid, 0)
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


@pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="pidfd_open is of Linux")
def test_workers_end_with_a_driver_that_is_killed() -> None:
    driver = """
import os, sys
from compute_work import where
from airgen.compute.processes import Processes, answer
from airgen.settings.compute import ComputeSettings
print(next(Processes(ComputeSettings(workers=1)).map(where(), [(0, 0)]))[1][0], flush=True)
sys.stdin.read()
"""
    path = os.pathsep.join(place for place in sys.path if place)
    with subprocess.Popen(
        [sys.executable, "-c", driver], env={**os.environ, "PYTHONPATH": path},
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    ) as process:  # fmt: skip
        assert process.stdout is not None
        worker = os.pidfd_open(int(process.stdout.readline()))
        process.kill()
    try:
        assert select.select([worker], [], [], 30)[0]  # readable when the worker has ended
    finally:
        os.close(worker)


def test_what_the_option_says() -> None:
    assert compute_settings("local") == ComputeSettings()
    assert compute_settings("local:8") == ComputeSettings(workers=8)
    assert compute_settings("ray://head:10001") == ComputeSettings(kind="ray", address="ray://head:10001")
    own = ComputeSettings(kind="ray", gpus_per_worker=1, workers=4)
    assert compute_settings("ray", own) == own
    assert compute_settings("ray:2", own).workers == 2 and compute_settings("ray:2", own).gpus_per_worker == 1
    assert compute_settings("local", own) == ComputeSettings()
    assert compute_settings("local", ComputeSettings(workers=4)).workers is None
    wrong = ("", "rai", "local:0", "local:99999", "ray:x", "local:-1", "ray:://", "ray://x", "ray://x:y", "local://x:1")
    for words in wrong:
        with pytest.raises(UsageError, match="--compute"):
            compute_settings(words)
    with pytest.raises(ValueError, match="address"):
        ComputeSettings(kind="ray", address="10.0.0.1:6379")
    with pytest.raises(ValueError, match="allowed only with kind: ray"):
        ComputeSettings(gpus_per_worker=1)


def test_threads_are_bounded_by_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    every = cores()
    for name, value in thread_limits(1).items():
        monkeypatch.setenv(name, value)
    assert cores() == 1
    for odd in ("", "x", "0", "9999", "-3"):
        monkeypatch.setenv("OMP_NUM_THREADS", odd)
        assert cores() in (1, every)
