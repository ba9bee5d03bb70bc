"""A Hub on the loopback interface: the part of its API that publishing uses, with faults on demand.

    with FakeHub() as hub:
        hub.faults.append(Fault("commit", status=503))
        ... HfApi(endpoint=hub.url, token=GOOD_TOKEN) ...
        hub.repositories["org/name"].files        # the files at main

It keeps all bytes sent to each repository, so that tests can search them.
"""

import base64
import hashlib
import json
import re
import shutil
import threading
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from http_double import Asked, answering

GOOD_TOKEN = "hf_" + "g" * 34
READ_TOKEN = "hf_" + "r" * 34
LARGE = 4_000  # bytes from which files go the way of large files


@dataclass
class Fault:
    """Answer `times` requests named `where` with `status`, or drop the connection before or after the action."""

    where: str
    status: int = 0
    drop: str = ""
    times: int = 1
    skip: int = 0
    retry_after: int = 1


@dataclass
class Commit:
    oid: str
    files: dict[str, bytes]


@dataclass
class Repository:
    private: bool
    commits: list[Commit] = field(default_factory=list)
    tags: dict[str, str] = field(default_factory=dict)
    arrived: list[bytes] = field(default_factory=list)
    large: dict[str, bytes] = field(default_factory=dict)

    @property
    def files(self) -> dict[str, bytes]:
        return self.commits[-1].files

    def at(self, revision: str) -> Commit:
        """Return a commit by its id, a tag or `main`. Raises _Answer for an unknown revision."""
        oid = self.commits[-1].oid if revision == "main" else self.tags.get(revision, revision)
        for commit in self.commits:
            if commit.oid == oid:
                return commit
        raise _Answer(404, "no such revision", {"X-Error-Code": "RevisionNotFound"})

    def add(self, files: dict[str, bytes]) -> Commit:
        self.commits.append(Commit(hashlib.sha1(b"%d" % len(self.commits)).hexdigest(), files))
        return self.commits[-1]


def blob_id(data: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()


class _Answer(Exception):
    """An answer other than 200."""

    def __init__(self, status: int, error: str, headers: dict[str, str] | None = None, **more: str) -> None:
        self.status, self.value, self.headers = status, {"error": error, **more}, headers or {}


_REPO = r"(?P<repo>[^/]+/[^/]+)"
_API = rf"/api/datasets/{_REPO}"
_REVISION = r"(?P<revision>[^/]+)"
ROUTES = [
    ("POST", r"/api/repos/create", "create"),
    ("POST", r"/api/validate-yaml", "validate"),
    ("GET", _API, "info"),
    ("GET", rf"{_API}/revision/{_REVISION}", "info"),
    ("GET", rf"{_API}/refs", "refs"),
    ("GET", rf"{_API}/tree/{_REVISION}", "tree"),
    *(("POST", rf"{_API}/{name}/{_REVISION}", name) for name in ("preupload", "commit", "tag")),
    ("POST", rf"/datasets/{_REPO}\.git/info/lfs/objects/batch", "batch"),
    ("GET", rf"/datasets/{_REPO}/resolve/{_REVISION}/(?P<path>.+)", "resolve"),
    ("PUT", rf"/large/{_REPO}/(?P<oid>[0-9a-f]{{64}})", "large"),
]


class FakeHub:
    """The server; a context manager. `requests` counts requests by name."""

    def __init__(self) -> None:
        self.repositories: dict[str, Repository] = {}
        self.faults: list[Fault] = []
        self.requests: Counter[str] = Counter()
        self.arrived: list[bytes] = []
        self.lock = threading.Lock()
        self.url = ""

    def __enter__(self) -> "FakeHub":
        self._running = answering(self._serve)
        self.url = self._running.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self._running.__exit__(*error)

    def create(self, repo: str, private: bool = False, files: dict[str, bytes] | None = None) -> None:
        self.repositories[repo] = Repository(private)
        self.repositories[repo].add({".gitattributes": b"", **(files or {})})

    def download(self, repo: str, out: Path, token: str = READ_TOKEN) -> Path:
        """Download the repository as a user does."""
        from huggingface_hub import snapshot_download

        snapshot_download(
            repo, repo_type="dataset", endpoint=self.url, token=token, local_dir=out, cache_dir=out.parent / "cache",
            ignore_patterns=[".gitattributes"],
        )  # fmt: skip
        shutil.rmtree(out / ".cache", ignore_errors=True)
        return out

    def public_bytes(self) -> bytes:
        """Return everything that was ever sent to a public repository."""
        return b"\n".join(body for repo in self.repositories.values() if not repo.private for body in repo.arrived)

    # -- the API -----------------------------------------------------------------------------------------------------

    def _serve(self, asked: Asked) -> tuple[Any, ...] | None:
        """Return the status, body and headers of a response, or None to drop the connection."""
        path, method = unquote(urlsplit(asked.path).path), asked.method.replace("HEAD", "GET")
        routes = ((name, re.fullmatch(pattern, path)) for of, pattern, name in ROUTES if method == of)
        name, match = next(((name, match) for name, match in routes if match), ("", None))
        if match is None:
            return 404, {"error": f"not served: {method} {path}"}
        with self.lock:
            self.requests[name] += 1
            self.arrived.append(asked.body)
            fault = self._fault(name)
            if fault and fault.drop == "before":
                return None
            if fault and fault.status:
                return fault.status, {"error": "a fault on demand"}, {"Retry-After": str(fault.retry_after)}
            try:
                self._authorise(name, method, {key.lower(): value for key, value in asked.headers.items()})
                value = getattr(self, f"_{name}")(asked.body, **match.groupdict())
            except _Answer as answer:
                return answer.status, answer.value, answer.headers
            if fault and fault.drop == "after":
                return None
            return (200, *value) if name == "resolve" else (200, value, {"Content-Type": "application/json"})

    def _fault(self, name: str) -> Fault | None:
        for fault in self.faults:
            if fault.where == name and fault.skip:
                fault.skip -= 1
            elif fault.where == name and fault.times:
                fault.times -= 1
                return fault
        return None

    def _resolve(self, body: bytes, repo: str, revision: str, path: str) -> tuple[bytes, dict[str, str]]:
        commit = self._repository(repo).at(revision)
        if path not in commit.files:
            raise _Answer(404, "Entry not found", {"X-Error-Code": "EntryNotFound"})
        data = commit.files[path]
        return data, {"ETag": f'"{blob_id(data)}"', "X-Repo-Commit": commit.oid}

    def _authorise(self, name: str, method: str, headers: dict[str, str]) -> None:
        if name in ("validate", "large"):
            return
        token = headers.get("authorization", "").removeprefix("Bearer ")
        if token == READ_TOKEN and method != "GET":
            raise _Answer(403, "Forbidden")
        if token not in (GOOD_TOKEN, READ_TOKEN):
            raise _Answer(401, "Unauthorized", {"X-Error-Message": "Invalid credentials in Authorization header"})

    def _repository(self, repo: str) -> Repository:
        if repo not in self.repositories:
            raise _Answer(404, "Repository not found", {"X-Error-Code": "RepoNotFound"})
        return self.repositories[repo]

    def _create(self, body: bytes) -> Any:
        value = json.loads(body)
        repo = f"{value['organization']}/{value['name']}"
        if repo in self.repositories:
            raise _Answer(409, "You already created this dataset repo", url=f"{self.url}/datasets/{repo}")
        self.create(repo, private=value.get("visibility") == "private" or bool(value.get("private")))
        return {"url": f"{self.url}/datasets/{repo}"}

    def _validate(self, body: bytes) -> Any:
        return {"warnings": [], "errors": []}

    def _info(self, body: bytes, repo: str, revision: str = "main") -> Any:
        repository = self._repository(repo)
        sha = repository.at(revision).oid
        siblings = [{"rfilename": name} for name in repository.at(revision).files]
        return {"id": repo, "sha": sha, "private": repository.private, "siblings": siblings, "tags": []}

    def _refs(self, body: bytes, repo: str) -> Any:
        repository = self._repository(repo)
        tags = [{"name": n, "ref": f"refs/tags/{n}", "targetCommit": c} for n, c in repository.tags.items()]
        main = {"name": "main", "ref": "refs/heads/main", "targetCommit": repository.commits[-1].oid}
        return {"branches": [main], "converts": [], "tags": tags}

    def _tree(self, body: bytes, repo: str, revision: str) -> Any:
        rows: list[dict[str, Any]] = []
        for path, data in sorted(self._repository(repo).at(revision).files.items()):
            row: dict[str, Any] = {"type": "file", "path": path, "size": len(data), "oid": blob_id(data)}
            if len(data) >= LARGE:
                row["lfs"] = {"oid": hashlib.sha256(data).hexdigest(), "size": len(data), "pointerSize": 130}
            rows.append(row)
        return rows

    def _preupload(self, body: bytes, repo: str, revision: str) -> Any:
        repository = self._repository(repo)
        repository.arrived.append(body)
        answer = []
        for file in json.loads(body)["files"]:
            repository.arrived.append(base64.b64decode(file["sample"]))
            mode = "lfs" if file["size"] >= LARGE else "regular"
            known = repository.files.get(file["path"]) if mode == "regular" else None
            oid = None if known is None else blob_id(known)
            answer.append({"path": file["path"], "uploadMode": mode, "shouldIgnore": False, "oid": oid})
        return {"files": answer}

    def _batch(self, body: bytes, repo: str) -> Any:
        repository = self._repository(repo)
        objects = []
        for item in json.loads(body)["objects"]:
            row: dict[str, Any] = {"oid": item["oid"], "size": item["size"]}
            if item["oid"] not in repository.large:
                row["actions"] = {"upload": {"href": f"{self.url}/large/{repo}/{item['oid']}"}}
            objects.append(row)
        return {"transfer": "basic", "objects": objects}

    def _large(self, body: bytes, repo: str, oid: str) -> Any:
        repository = self._repository(repo)
        repository.arrived.append(body)
        if hashlib.sha256(body).hexdigest() != oid:
            raise _Answer(400, "wrong hash")
        repository.large[oid] = body
        return {}

    def _commit(self, body: bytes, repo: str, revision: str) -> Any:
        repository = self._repository(repo)
        header, *lines = [json.loads(line) for line in body.splitlines()]
        if header["value"].get("parentCommit", repository.commits[-1].oid) != repository.commits[-1].oid:
            raise _Answer(412, "The expected parent commit differs")
        files = dict(repository.files)
        for line in lines:
            value = line["value"]
            if line["key"] == "file":
                files[value["path"]] = base64.b64decode(value["content"])
                repository.arrived.append(files[value["path"]])
            elif line["key"] == "lfsFile":
                files[value["path"]] = repository.large[value["oid"]]
            elif line["key"] == "deletedFile":
                del files[value["path"]]
        repository.arrived.append(body)
        commit = repository.add(files)
        return {"commitUrl": f"{self.url}/datasets/{repo}/commit/{commit.oid}", "commitOid": commit.oid}

    def _tag(self, body: bytes, repo: str, revision: str) -> Any:
        repository = self._repository(repo)
        name = json.loads(body)["tag"]
        if name in repository.tags:
            raise _Answer(409, "the tag exists")
        repository.tags[name] = repository.at(revision).oid
        return {}
