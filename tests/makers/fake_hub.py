"""A Hub on the loopback interface: the part of its API that publishing uses, with faults on demand.

    with FakeHub() as hub:
        hub.faults.append(Fault("commit", status=503))
        ... HfApi(endpoint=hub.url, token=GOOD_TOKEN) ...
        hub.repositories["org/name"].files        # what is at main

It keeps every byte that arrived, per repository, so that a test can search all of it.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import threading
from collections import Counter
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

GOOD_TOKEN = "hf_" + "g" * 34
READ_TOKEN = "hf_" + "r" * 34
LARGE = 4_000  # bytes from which files go the way of large files


@dataclass
class Fault:
    """Answer `times` requests whose name is `where` with `status`; or drop the connection before or after the deed."""

    where: str
    status: int = 0
    drop: str = ""
    times: int = 1
    skip: int = 0
    retry_after: int = 1


@dataclass
class Commit:
    oid: str
    message: str
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

    def at(self, revision: str) -> Commit | None:
        revision = self.tags.get(revision, revision)
        if revision == "main":
            return self.commits[-1]
        return next((commit for commit in self.commits if commit.oid == revision), None)

    def add(self, message: str, files: dict[str, bytes]) -> Commit:
        oid = hashlib.sha1(f"{len(self.commits)}{message}".encode()).hexdigest()
        self.commits.append(Commit(oid, message, files))
        return self.commits[-1]


class FakeHub:
    """The server; a context manager. `requests` counts what was asked, by name."""

    def __init__(self) -> None:
        self.repositories: dict[str, Repository] = {}
        self.faults: list[Fault] = []
        self.requests: Counter[str] = Counter()
        self.arrived: list[bytes] = []
        self.lock = threading.Lock()
        handler = type("Handler", (_Handler,), {"hub": self})
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_port}"

    def __enter__(self) -> FakeHub:
        threading.Thread(target=self.server.serve_forever, args=(0.01,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.server.shutdown()
        self.server.server_close()

    def create(self, repo: str, private: bool = False, files: dict[str, bytes] | None = None) -> Repository:
        repository = self.repositories[repo] = Repository(private)
        repository.add("initial commit", {".gitattributes": b"", **(files or {})})
        return repository

    def public_bytes(self) -> bytes:
        """Everything that ever arrived for a public repository."""
        return b"\n".join(body for repo in self.repositories.values() if not repo.private for body in repo.arrived)


def blob_id(data: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()


class _Answer(Exception):
    def __init__(self, status: int, value: Any = None, headers: dict[str, str] | None = None) -> None:
        self.status, self.value, self.headers = status, value, headers or {}


ROUTES = [
    ("POST", r"/api/repos/create", "create"),
    ("POST", r"/api/validate-yaml", "validate"),
    ("GET", r"/api/datasets/(?P<repo>[^/]+/[^/]+)", "info"),
    ("GET", r"/api/datasets/(?P<repo>[^/]+/[^/]+)/revision/(?P<revision>[^/]+)", "info"),
    ("GET", r"/api/datasets/(?P<repo>[^/]+/[^/]+)/refs", "refs"),
    ("GET", r"/api/datasets/(?P<repo>[^/]+/[^/]+)/tree/(?P<revision>[^/]+)", "tree"),
    ("POST", r"/api/datasets/(?P<repo>[^/]+/[^/]+)/preupload/(?P<revision>[^/]+)", "preupload"),
    ("POST", r"/api/datasets/(?P<repo>[^/]+/[^/]+)/commit/(?P<revision>[^/]+)", "commit"),
    ("POST", r"/api/datasets/(?P<repo>[^/]+/[^/]+)/tag/(?P<revision>[^/]+)", "tag"),
    ("POST", r"/datasets/(?P<repo>[^/]+/[^/]+)\.git/info/lfs/objects/batch", "batch"),
    ("PUT", r"/large/(?P<repo>[^/]+/[^/]+)/(?P<oid>[0-9a-f]{64})", "large"),
]


class _Handler(BaseHTTPRequestHandler):
    hub: FakeHub
    protocol_version = "HTTP/1.1"
    wbufsize = -1  # one packet an answer

    def log_message(self, *_: object) -> None:
        pass

    def do_GET(self) -> None:
        self._serve()

    do_POST = do_PUT = do_GET

    def _serve(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        body = self.rfile.read(length)
        path = unquote(urlsplit(self.path).path)
        self.query = parse_qs(urlsplit(self.path).query)
        routes = ((name, re.fullmatch(pattern, path)) for method, pattern, name in ROUTES if method == self.command)
        name, match = next(((name, match) for name, match in routes if match), ("", None))
        if match is None:
            return self._send(404, {"error": f"not served: {self.command} {path}"})
        with self.hub.lock:
            self.hub.requests[name] += 1
            self.hub.arrived.append(body)
            fault = self._fault(name)
            if fault and fault.drop == "before":
                return self._drop()
            if fault and fault.status:
                return self._send(fault.status, {"error": "a fault on demand"}, {"Retry-After": str(fault.retry_after)})
            try:
                self._authorise(name)
                value = getattr(self, f"_{name}")(body, **match.groupdict())
            except _Answer as answer:
                return self._send(answer.status, answer.value, answer.headers)
            if fault and fault.drop == "after":
                return self._drop()
            return self._send(200, value)

    def _fault(self, name: str) -> Fault | None:
        for fault in self.hub.faults:
            if fault.where == name and fault.times:
                if fault.skip:
                    fault.skip -= 1
                    continue
                fault.times -= 1
                return fault
        return None

    def _drop(self) -> None:
        self.close_connection = True
        self.connection.shutdown(2)

    def _send(self, status: int, value: Any, headers: dict[str, str] | None = None) -> None:
        data = json.dumps(value).encode()
        self.send_response(status)
        for key, text in {
            **(headers or {}),
            "Content-Length": str(len(data)),
            "Content-Type": "application/json",
        }.items():
            self.send_header(key, text)
        self.end_headers()
        self.wfile.write(data)
        self.wfile.flush()

    def _authorise(self, name: str) -> None:
        if name in ("validate", "large"):
            return
        token = (self.headers.get("Authorization") or "").removeprefix("Bearer ")
        if token == READ_TOKEN and self.command != "GET":
            raise _Answer(403, {"error": "Forbidden"})
        if token not in (GOOD_TOKEN, READ_TOKEN):
            raise _Answer(
                401, {"error": "Unauthorized"}, {"X-Error-Message": "Invalid credentials in Authorization header"}
            )

    def _repository(self, repo: str) -> Repository:
        if repo not in self.hub.repositories:
            raise _Answer(404, {"error": "Repository not found"}, {"X-Error-Code": "RepoNotFound"})
        return self.hub.repositories[repo]

    def _create(self, body: bytes) -> Any:
        value = json.loads(body)
        repo = f"{value['organization']}/{value['name']}"
        if repo in self.hub.repositories:
            raise _Answer(
                409, {"error": "You already created this dataset repo", "url": f"{self.hub.url}/datasets/{repo}"}
            )
        self.hub.create(repo, private=value.get("visibility") == "private" or bool(value.get("private")))
        return {"url": f"{self.hub.url}/datasets/{repo}"}

    def _validate(self, body: bytes) -> Any:
        return {"warnings": [], "errors": []}

    def _info(self, body: bytes, repo: str, revision: str = "main") -> Any:
        repository = self._repository(repo)
        commit = repository.at(revision)
        assert commit is not None
        return {"id": repo, "sha": commit.oid, "private": repository.private, "siblings": [], "tags": []}

    def _refs(self, body: bytes, repo: str) -> Any:
        repository = self._repository(repo)
        tags = [{"name": n, "ref": f"refs/tags/{n}", "targetCommit": c} for n, c in repository.tags.items()]
        main = {"name": "main", "ref": "refs/heads/main", "targetCommit": repository.commits[-1].oid}
        return {"branches": [main], "converts": [], "tags": tags}

    def _tree(self, body: bytes, repo: str, revision: str) -> Any:
        commit = self._repository(repo).at(revision)
        if commit is None:
            raise _Answer(404, {"error": "no such revision"}, {"X-Error-Code": "RevisionNotFound"})
        rows: list[dict[str, Any]] = []
        for path, data in sorted(commit.files.items()):
            row: dict[str, Any] = {"type": "file", "path": path, "size": len(data), "oid": blob_id(data)}
            if len(data) >= LARGE:
                row["lfs"] = {"oid": hashlib.sha256(data).hexdigest(), "size": len(data), "pointerSize": 130}
            rows.append(row)
        return rows

    def _preupload(self, body: bytes, repo: str, revision: str) -> Any:
        files = self._repository(repo).files
        self._repository(repo).arrived.append(body)
        answer = []
        for file in json.loads(body)["files"]:
            self._repository(repo).arrived.append(base64.b64decode(file["sample"]))
            mode = "lfs" if file["size"] >= LARGE else "regular"
            oid = blob_id(files[file["path"]]) if mode == "regular" and file["path"] in files else None
            answer.append({"path": file["path"], "uploadMode": mode, "shouldIgnore": False, "oid": oid})
        return {"files": answer}

    def _batch(self, body: bytes, repo: str) -> Any:
        repository = self._repository(repo)
        objects = []
        for item in json.loads(body)["objects"]:
            row: dict[str, Any] = {"oid": item["oid"], "size": item["size"]}
            if item["oid"] not in repository.large:
                row["actions"] = {"upload": {"href": f"{self.hub.url}/large/{repo}/{item['oid']}"}}
            objects.append(row)
        return {"transfer": "basic", "objects": objects}

    def _large(self, body: bytes, repo: str, oid: str) -> Any:
        repository = self._repository(repo)
        repository.arrived.append(body)
        if hashlib.sha256(body).hexdigest() != oid:
            raise _Answer(400, {"error": "wrong hash"})
        repository.large[oid] = body
        return {}

    def _commit(self, body: bytes, repo: str, revision: str) -> Any:
        repository = self._repository(repo)
        lines = [json.loads(line) for line in body.splitlines()]
        header = lines[0]["value"]
        if header.get("parentCommit", repository.commits[-1].oid) != repository.commits[-1].oid:
            raise _Answer(412, {"error": "The expected parent commit differs"})
        files = dict(repository.files)
        for line in lines[1:]:
            value = line["value"]
            if line["key"] == "file":
                files[value["path"]] = base64.b64decode(value["content"])
                repository.arrived.append(files[value["path"]])
            elif line["key"] == "lfsFile":
                files[value["path"]] = repository.large[value["oid"]]
            elif line["key"] == "deletedFile":
                del files[value["path"]]
        repository.arrived.append(body)
        commit = repository.add(header["summary"], files)
        return {"commitUrl": f"{self.hub.url}/datasets/{repo}/commit/{commit.oid}", "commitOid": commit.oid}

    def _tag(self, body: bytes, repo: str, revision: str) -> Any:
        repository = self._repository(repo)
        name = json.loads(body)["tag"]
        if name in repository.tags:
            raise _Answer(409, {"error": "the tag exists"})
        commit = repository.at(revision)
        assert commit is not None
        repository.tags[name] = commit.oid
        return {}
