"""Workers that are tasks of a Ray cluster.

Ray retries a task whose worker or node dies, or that runs out of memory; `airgen.compute.processes` handles
the tasks that Ray gives up. A worker must have this version of airgen. Items are sent as arguments, and few are in
flight, so the object store stays small.
"""

import math
import os
import platform
import socket
import time
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any

from airgen import __version__
from airgen.components.registry import load_extra
from airgen.compute import thread_limits
from airgen.compute.processes import Returned, WorkerLost, WorkerPool
from airgen.errors import AirgenError
from airgen.safety.mask_secrets import error_words, printable
from airgen.settings.compute import ComputeSettings

_REASON_CHARACTERS = 300  # maximum characters of Ray's error messages
_HEAD_POLL_SECONDS = 5.0  # seconds between two checks of the head
_CONNECT_SECONDS = 5.0  # seconds to reach an address
_HEAD_LOST_SECONDS = 30.0  # seconds without a head after which a run ends; Ray itself ends the process after 60
_START_SECONDS = 300.0  # seconds until the first task has a worker


class RayWorkers(WorkerPool):
    """`workers` tasks at a time on the cluster at an address; without a number, as many as it has room for."""

    def __init__(self, settings: ComputeSettings) -> None:
        super().__init__()
        self._settings = settings
        self.workers = settings.workers or 1
        self.gives_gpus = settings.gpus_per_worker > 0
        self._ray: Any = None
        self._own = False  # whether the connection is this pool's
        self._task: Any = None
        self._nodes: set[str] = set()
        self._head = ""  # HOST:PORT of the cluster's head, if this process connects to it directly
        self._next_look = 0.0
        self._away_since: float | None = None

    @property
    def room(self) -> int:
        """As many as workers: Ray itself sends the arguments of a task that waits."""
        return self.workers

    def start(self) -> None:
        """Connect, and try one task. Raises AirgenError without a cluster, or without room for a worker."""
        if self._task is not None:
            return
        self._connect()
        settings, ray = self._settings, self._ray
        room = self._room()
        if room < 1:
            raise AirgenError(
                f"compute: one worker needs {self._needs()}, and no node of the cluster at {settings.address} has that "
                f"much ({self._cluster()}): lower gpus_per_worker or cpus_per_worker, or add a node"
            )
        self.workers = settings.workers or room
        task = ray.remote(
            num_cpus=settings.cpus_per_worker or 1,
            num_gpus=settings.gpus_per_worker,
            max_calls=0,  # Ray's default ends a worker with a GPU, and the model in it, after one task
        )(_task(thread_limits(settings.cpus_per_worker or 1)))
        try:
            self._checked(ray.get(task.remote(b"", None), timeout=_START_SECONDS))
        except ray.exceptions.GetTimeoutError:
            raise AirgenError(
                f"compute: no worker was ready after {_START_SECONDS:.0f} s: the cluster may be full; add nodes"
            ) from None
        except ray.exceptions.RayError as error:
            raise AirgenError(f"compute: a worker failed: {_line(error)}") from error
        self._task = task

    def send(self, make: bytes, item: Any) -> Future[Returned]:
        """Submit an item to the cluster."""
        result: Future[Returned] = Future()

        def pass_on(future: Future[Any]) -> None:
            if not result.set_running_or_notify_cancel():
                return
            try:
                result.set_result(self._checked(future.result()))
            except BaseException as error:  # noqa: BLE001  # passed on to who waits
                result.set_exception(self._translated(error))

        try:
            self._task.remote(make, item).future().add_done_callback(pass_on)
        except self._ray.exceptions.RayError as error:  # it cannot be sent
            result.set_exception(self._translated(error))
        return result

    def _checked(self, answered: tuple[str, str, str, str, Any]) -> Any:
        """Return the result of a task. Raises AirgenError if its node has another airgen, or another Python."""
        node, host, python, version, value = answered
        if version != __version__:
            has = f"has {version}" if version.startswith("no ") else f"has airgen {version}"
            raise AirgenError(
                f"compute: the node {host} {has}, but this is airgen {__version__}: install the same version there"
            )
        if python.split(".")[:2] != platform.python_version().split(".")[:2]:
            raise AirgenError(
                f"compute: the node {host} has Python {python}, but this is {platform.python_version()}: use the "
                f"same version"
            )
        self._nodes.add(node)
        return value

    def _translated(self, error: BaseException) -> BaseException:
        translation = translated(self._ray, error)
        self._counts["workers_lost"] += isinstance(translation, WorkerLost)
        return translation

    def check_workers(self) -> float | None:
        """Check that the head is back: workers may go on without it for a while only."""
        if not self._head:
            return None
        now = time.monotonic()
        if now >= self._next_look:
            self._next_look = now + _HEAD_POLL_SECONDS
            if not unreachable(self._head):
                self._away_since = None
                return _HEAD_POLL_SECONDS
            self._away_since = self._away_since or now
            if now - self._away_since >= _HEAD_LOST_SECONDS:
                raise AirgenError(
                    f"compute: the head of the Ray cluster at {self._head} has not answered for "
                    f"{_HEAD_LOST_SECONDS:.0f} s: finished work is kept; restart the cluster, then run the same "
                    f"command again"
                )
        return _HEAD_POLL_SECONDS

    def _connect(self) -> None:
        self._ray = ray = load_extra("ray", "compute: ray")
        address = self._settings.address
        if not ray.is_initialized():
            if address.startswith("ray://"):
                load_extra("grpc", f"compute: the address {address}")
            # Without an address, Ray looks for a head on this machine; with an address, it would try for two minutes.
            place = _head() if address == "auto" else address.removeprefix("ray://")
            if place and (reason := unreachable(place)):
                raise no_cluster(address, f" ({place}: {reason})")
            try:
                ray.init(address=address, log_to_driver=False, logging_level="ERROR")
            except (ConnectionError, RuntimeError, ValueError, TimeoutError) as error:
                reason = "" if isinstance(error, ConnectionError) else f" ({_line(error)})"
                raise no_cluster(address, reason) from error
            self._own = True
        if not ray.util.client.ray.is_connected():  # the client's connection is watched by Ray
            self._head = str(ray.get_runtime_context().gcs_address)

    def _needs(self) -> str:
        settings = self._settings
        parts = [f"{settings.gpus_per_worker:g} GPUs"] if settings.gpus_per_worker else []
        parts.append(f"{settings.cpus_per_worker or 1} CPUs")
        return " and ".join(parts)

    def _alive(self) -> list[dict[str, Any]]:
        return [node for node in self._ray.nodes() if node["Alive"]]

    def _room(self) -> int:
        """Return how many workers fit into the cluster when it is empty."""
        settings = self._settings
        wanted = {"CPU": float(settings.cpus_per_worker or 1), "GPU": settings.gpus_per_worker}
        wanted = {name: amount for name, amount in wanted.items() if amount}
        return sum(
            min(math.floor(node["Resources"].get(name, 0) / amount + 1e-9) for name, amount in wanted.items())
            for node in self._alive()
        )

    def _cluster(self) -> str:
        """Describe the nodes, the first ones by name."""
        nodes = self._alive()
        words = [
            f"{node['NodeManagerAddress']}: {node['Resources'].get('GPU', 0):g} GPUs, "
            f"{node['Resources'].get('CPU', 0):g} CPUs, {node['Resources'].get('memory', 0) / 1e9:.0f} GB"
            for node in nodes[:4]
        ]
        return "; ".join(words) + (f"; and {len(nodes) - 4} more" if len(nodes) > 4 else "")

    def describe(self) -> dict[str, Any]:
        """Describe the setting and the work done, for the status of a job."""
        kind = {"kind": "ray", "address": self._settings.address, "nodes": len(self._nodes)}
        return {**super().describe(), **kind}

    def close(self) -> None:
        """End the connection if it is this pool's."""
        self._task = None
        if self._own:
            self._ray.shutdown()
            self._own = False


def _task(environment: dict[str, str]) -> Callable[[bytes, Any], tuple[str, str, str, str, Any]]:
    """Return the function of a task. It is sent by value, because airgen may be missing where it runs."""

    def run(make: bytes, item: Any) -> tuple[str, str, str, str, Any]:
        import os
        import platform
        import socket

        import ray

        os.environ.update(environment)
        place = ray.get_runtime_context().get_node_id(), socket.gethostname(), platform.python_version()
        try:
            import airgen
            from airgen.compute.processes import answer
        except ImportError as error:
            return *place, f"no airgen ({error})", None
        return *place, airgen.__version__, answer(make, item) if make else None

    return run


def translated(ray: Any, error: BaseException) -> BaseException:
    """Return WorkerLost for Ray's own failures."""
    if isinstance(error, AirgenError):
        return error
    kinds = ray.exceptions
    full = (kinds.OutOfDiskError, kinds.ObjectStoreFullError)
    if isinstance(error, full) or isinstance(getattr(error, "cause", None), full):
        return AirgenError(
            "compute: Ray's object store is full, and so is the disk that it writes to: free some of the disk that "
            "holds /tmp/ray on each node (or `ray start --temp-dir`), or give nodes more (`ray start "
            "--object-store-memory`)"
        )
    if isinstance(error, kinds.RayTaskError):
        return AirgenError(f"compute: a worker failed: {_line(error)}")
    return WorkerLost(_line(error))


def _line(error: BaseException) -> str:
    return printable(str(error), _REASON_CHARACTERS) or type(error).__name__


def unreachable(place: str) -> str:
    """Say why HOST:PORT cannot be reached, or return ""."""
    host, _, port = place.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), _CONNECT_SECONDS).close()
    except (OSError, ValueError, OverflowError) as error:
        return error_words(error)
    return ""


def _head() -> str:
    """Return HOST:PORT of the cluster that `auto` means, by the environment or the file of `ray start`, or ""."""
    if chosen := os.environ.get("RAY_ADDRESS", ""):
        return chosen.removeprefix("ray://")
    folder = os.environ.get("RAY_TMPDIR") or os.environ.get("TMPDIR") or "/tmp"
    try:
        return (Path(folder) / "ray" / "ray_current_cluster").read_text(encoding="utf-8")[:300].strip()
    except (OSError, UnicodeDecodeError):
        return ""


def no_cluster(address: str, reason: str) -> AirgenError:
    """Return the error for an address without a cluster, with the reason in brackets."""
    if address == "auto":
        return AirgenError(
            f"compute: no Ray cluster on this machine{reason}: start one with `ray start --head`, join one with `ray "
            "start --address HEAD:6379`, or use --compute local:WORKERS"
        )
    return AirgenError(
        f"compute: no Ray cluster responds at {address}{reason}: check the address (the client's port is 10001), and "
        "that the head runs"
    )
