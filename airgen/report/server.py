"""A web server on this machine alone, for one person with the right address.

    with serving(view) as address:        # http://127.0.0.1:41873/?token=...
        ...

The address holds a token. It is changed for a cookie at once, so that it stands in no address bar and no other request.
A request is refused
- without the token (compared in constant time);
- under a foreign name of this host, so that no web page reaches the server by changing its own name's address (DNS
  rebinding);
- by a page of another origin, whether it reads or writes.
The files that may be read are a list of names, so a path cannot lead anywhere else.
"""

import json
import secrets
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.cookies import CookieError, SimpleCookie
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from socket import SHUT_RDWR, socket
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit
from weakref import WeakSet

from airgen.errors import AirgenError, UsageError
from airgen.report.view import View
from airgen.text.display import one_line

HOST = "127.0.0.1"
NAMES = (HOST, "localhost", "[::1]")
"""Names of this machine that only this machine answers to. The port is not compared: a tunnel may have changed it."""
_LARGEST_BODY = 1 << 16
_SECONDS = 30.0  # for a request to be sent
_KINDS = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
}
_GO_ON = (
    b'<!doctype html><meta charset="utf-8"><meta http-equiv="refresh" content="0; url=/">'
    b'<link rel="icon" href="data:,"><title>airgen</title>'
)
_HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "frame-ancestors 'none'",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, served: View, port: int) -> None:
        self.served, self.token = served, secrets.token_urlsafe(32)
        self._open: WeakSet[socket] = WeakSet()
        super().__init__((HOST, port), _Handler)

    def get_request(self) -> tuple[socket, Any]:
        """A new connection, which may bring many requests."""
        connection, address = super().get_request()
        self._open.add(connection)
        return connection, address

    def server_close(self) -> None:
        """Nothing is answered any more, on open connections either."""
        super().server_close()
        for connection in list(self._open):
            with suppress(OSError):
                connection.shutdown(SHUT_RDWR)

    @property
    def cookie(self) -> str:
        """Browsers send a cookie to every port of a host, so its name has the port."""
        return f"airgen-{self.server_port}"

    def knows(self, token: str) -> bool:
        return secrets.compare_digest(token.encode("utf-8", "replace"), self.token.encode())


@contextmanager
def serving(served: View, port: int = 0) -> Iterator[str]:
    """Yields the address to open, token included. Raises UsageError if the port is taken; 0 takes a free one."""
    try:
        server = _Server(served, port)
    except (OSError, OverflowError) as error:
        raise UsageError(f"--port {port}: cannot be used ({error}); without --port a free one is taken") from error
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.1}, daemon=True)
    thread.start()
    try:
        yield f"http://{HOST}:{server.server_port}/?token={server.token}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    protocol_version = "HTTP/1.1"
    server_version, sys_version = "airgen", ""
    timeout = _SECONDS

    def do_GET(self) -> None:
        """A file, or a value that is asked again and again."""
        parts = urlsplit(self.path)
        if not self._from_here(page=parts.path == "/"):
            return
        if parts.path == "/" and (given := parse_qs(parts.query).get("token")):
            self._take_token(given[0])
        elif self._allowed():
            name = unquote(parts.path).removeprefix("/") or "index.html"
            try:
                value = self.server.served.read(name)
            except AirgenError as error:
                self._refuse(400, one_line(error, 500))
                return
            if value is not None:
                self._send_json(value)
            elif (path := self.server.served.file(name)) is not None:
                self._send_file(path)
            else:
                self._refuse(404, "there is no such page")

    def do_POST(self) -> None:
        """What a page asks for: JSON to JSON. The page must be of this server."""
        if not (self._from_here(page=False) and self._allowed()):
            return
        origin, kind = self.headers.get("Origin"), self.headers.get_content_type()
        if origin != f"http://{self.headers['Host']}" or kind != "application/json":
            self._refuse(403, "only a page of this report may do that")
            return
        value = self._body()
        if value is None:
            return
        try:
            answer = self.server.served.write(unquote(urlsplit(self.path).path).removeprefix("/"), value)
        except AirgenError as error:
            self._refuse(400, one_line(error, 500))
            return
        if answer is None:
            self._refuse(404, "there is no such address")
        else:
            self._send_json(answer)

    def _from_here(self, *, page: bool) -> bool:
        """Whether the request is to this machine by its own name, and from no other site, but for links to the page."""
        hosts = self.headers.get_all("Host") or [""]
        name = hosts[0].rpartition(":")[0] if hosts[0].rpartition(":")[2].isdigit() else hosts[0]
        if len(hosts) != 1 or name not in NAMES:
            self._refuse(403, f"open http://{HOST}:{self.server.server_port}/, not another name of this machine")
            return False
        site = self.headers.get("Sec-Fetch-Site", "none")
        if site in ("same-origin", "none") or (page and self.headers.get("Sec-Fetch-Dest") == "document"):
            return True
        self._refuse(403, "a page of another origin may not read this report")
        return False

    def _allowed(self) -> bool:
        try:
            known = SimpleCookie(self.headers.get("Cookie", "")).get(self.server.cookie)
        except CookieError:
            known = None
        scheme, _, bearer = self.headers.get("Authorization", "").partition(" ")
        token = bearer.strip() if scheme.lower() == "bearer" else known.value if known else ""
        if self.server.knows(token):
            return True
        self._refuse(403, "open the address that `airgen report --live` printed: it holds a token")
        return False

    def _take_token(self, token: str) -> None:
        if not self.server.knows(token):
            self._refuse(403, "this token is not the one that `airgen report --live` printed")
            return
        cookie = f"{self.server.cookie}={self.server.token}; Path=/; HttpOnly; SameSite=Strict"
        # A redirect that another site began would come without a strict cookie; a page that goes on by itself does not.
        self._send(200, _GO_ON, _KINDS[".html"], {"Set-Cookie": cookie})

    def _body(self) -> dict[str, Any] | None:
        length = self.headers.get("Content-Length", "")
        if not (length.isascii() and length.isdigit() and len(length) < 10 and int(length) <= _LARGEST_BODY):
            self._refuse(413, f"the request needs a length of at most {_LARGEST_BODY} bytes")
            return None
        try:
            value = json.loads(self.rfile.read(int(length)))
        except (ValueError, RecursionError):
            value = None
        if not isinstance(value, dict):
            self._refuse(400, "the request is not a JSON object")
            return None
        return value

    def _send_json(self, value: Any) -> None:
        self._send(200, json.dumps(value).encode(), "application/json")

    def _send_file(self, path: Path) -> None:
        try:
            content = path.read_bytes()
        except OSError:
            self._refuse(404, "this page was replaced: reload the report")
            return
        self._send(200, content, _KINDS.get(path.suffix, "application/octet-stream"))

    def _refuse(self, status: int, why: str) -> None:
        # What was sent with the request stays unread, so nothing else can come on this connection.
        self.close_connection = True
        self._send(status, f"{why}\n".encode(), "text/plain; charset=utf-8", {"Connection": "close"})

    def _send(self, status: int, content: bytes, kind: str, more: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in {**_HEADERS, "Content-Type": kind, **(more or {})}.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def handle(self) -> None:
        """A browser that goes away in the middle is no error."""
        try:
            super().handle()
        except (ConnectionError, TimeoutError):
            self.close_connection = True

    def log_message(self, *_: Any) -> None:
        """Nothing: the path may hold a token."""
