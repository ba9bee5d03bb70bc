"""HTTP servers in a thread of the test, which stop with it."""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass(frozen=True)
class Asked:
    """A request: its method, path with query, headers, and body."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)


class Quiet(BaseHTTPRequestHandler):
    """Writes no log."""

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def serving(handler: type[BaseHTTPRequestHandler]) -> Iterator[ThreadingHTTPServer]:
    """Run a server with this handler during the block."""
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@contextmanager
def answering(answer: Callable[[Asked], tuple[Any, ...] | None]) -> Iterator[str]:
    """Run a server during the block, and yield its address. `answer` returns (status, body) or (status, body, headers).

    If it returns None, the connection is dropped. A body that is neither bytes nor text is sent as JSON.
    """

    class Handler(Quiet):
        def do_GET(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            found = answer(Asked(self.command, self.path, dict(self.headers), body))
            if found is None:
                self.connection.shutdown(2)
                return
            status, content, *more = found
            content = content if isinstance(content, bytes | str) else json.dumps(content)
            data = content.encode() if isinstance(content, str) else content
            self.send_response(status)
            for name, value in {"Content-Length": str(len(data)), **(more[0] if more else {})}.items():
                self.send_header(name, value)
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(data)

        do_POST = do_PUT = do_HEAD = do_GET

    with serving(Handler) as server:
        yield f"http://127.0.0.1:{server.server_port}"
