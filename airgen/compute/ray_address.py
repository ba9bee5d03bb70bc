"""Where a Ray cluster is, and what is said where none is there."""

from __future__ import annotations

import os
import socket
from pathlib import Path

from airgen.errors import AirgenError

__all__ = ["answers", "no_cluster", "reach", "wrong_address"]

_REACH = 5.0  # seconds to reach an address


def reach(address: str) -> None:
    """Raises AirgenError where nobody listens at an address. Ray itself would try for two minutes."""
    place = _head() if address == "auto" else address.removeprefix("ray://")
    if not place:
        return  # Ray looks for processes of a head on this machine
    host, _, port = place.rpartition(":")
    if not (host and port.isdecimal() and int(port) < 1 << 16):
        raise wrong_address(address)
    try:
        socket.create_connection((host, int(port)), _REACH).close()
    except OSError as error:
        raise no_cluster(address, f" ({place}: {error.strerror or error})") from error


def answers(place: str) -> bool:
    """Whether somebody listens at HOST:PORT."""
    host, _, port = place.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), _REACH).close()
    except OSError:
        return False
    return True


def _head() -> str:
    """HOST:PORT of the cluster that `auto` means, by the environment or by the file that `ray start` wrote, or ""."""
    if chosen := os.environ.get("RAY_ADDRESS", ""):
        return chosen.removeprefix("ray://")
    folder = os.environ.get("RAY_TMPDIR") or os.environ.get("TMPDIR") or "/tmp"
    try:
        return (Path(folder) / "ray" / "ray_current_cluster").read_text(encoding="utf-8")[:300].strip()
    except (OSError, UnicodeDecodeError):
        return ""


def wrong_address(address: str) -> AirgenError:
    """The error for an address of no known form."""
    return AirgenError(f"compute.address: {address[:200]}: must be auto or ray://HOST:PORT")


def no_cluster(address: str, reason: str) -> AirgenError:
    """The error for an address where no cluster is, with the reason in brackets."""
    if address == "auto":
        return AirgenError(
            f"compute: no Ray cluster on this machine{reason}: start one with `ray start --head`, join one with `ray "
            "start --address HEAD:6379`, or use --compute local:WORKERS"
        )
    return AirgenError(
        f"compute: no Ray cluster answers at {address}{reason}: check the address (the client's port is 10001), and "
        "that the head runs"
    )
