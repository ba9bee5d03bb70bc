"""A web server on this machine only, for a single person with the right URL.

    with serving(view) as address:        # http://127.0.0.1:41873/?token=...
        ...

The URL contains a token, which is exchanged for a cookie at once, so that it does not stay in the address bar or other
requests. A request is refused if it comes if it comes
- without the token (compared in constant time);
- under another host name, so that no web page can reach the server by DNS rebinding;
- from a page with another origin, whether it reads or writes. Only files in a list of names can be read, so a path
  cannot lead anywhere else.
"""

import asyncio
import json
import logging
import secrets
import threading
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from aiohttp import web

from airgen.errors import AirgenError, UsageError
from airgen.report.live import View
from airgen.safety.escaping import one_line

HOST = "127.0.0.1"
NAMES = (HOST, "localhost", "[::1]")
"""Host names that refer only to this machine. The port is not compared, as a tunnel may change it."""
_T = TypeVar("_T")
_END_SECONDS = 0.1  # for requests in progress when the server ends; aiohttp takes 0 for no limit
_MOST_BODY_BYTES = 1 << 16
_KINDS = {".html": "text/html", ".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}
_GO_ON = (
    '<!doctype html><meta charset="utf-8"><meta http-equiv="refresh" content="0; url=/#/live">'
    '<link rel="icon" href="data:,"><title>airgen</title>'
)
_HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "frame-ancestors 'none'",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}
_QUIET = logging.getLogger("airgen.report.server")  # a path may hold a token
_QUIET.addHandler(logging.NullHandler())
_QUIET.propagate = False


class _Refused(Exception):
    """A refused request, with a status and a line for the client."""


@contextmanager
def serving(served: View, port: int = 0) -> Iterator[str]:
    """Yield the URL to open, including the token. Raises UsageError if the port is in use; 0 chooses a free port."""
    loop, server = asyncio.new_event_loop(), _Server(served)
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()

    def wait(work: Coroutine[Any, Any, _T]) -> _T:
        return asyncio.run_coroutine_threadsafe(work, loop).result()

    try:
        try:
            wait(server.listen(port))
        except (OSError, OverflowError) as error:
            raise UsageError(
                f"--port {port}: cannot be used ({error}); without --port, a free port is chosen"
            ) from error
        yield f"http://{HOST}:{server.port}/?token={server.token}"
    finally:
        wait(server.close())
        wait(loop.shutdown_default_executor())
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


class _Server:
    def __init__(self, served: View) -> None:
        self.served, self.token, self.port = served, secrets.token_urlsafe(32), 0
        app = web.Application(middlewares=[self._answer])
        app.router.add_route("GET", "/{name:.*}", self._get)
        app.router.add_route("POST", "/{name:.*}", self._post)
        self.runner = web.AppRunner(app, access_log=None, logger=_QUIET, shutdown_timeout=_END_SECONDS)

    async def listen(self, port: int) -> None:
        """Bind the port, or a free port for 0."""
        await self.runner.setup()
        await web.TCPSite(self.runner, HOST, port).start()
        self.port = self.runner.addresses[0][1]

    async def close(self) -> None:
        """End all connections, including those that wait for the rest of a request."""
        await self.runner.cleanup()
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=_END_SECONDS)

    @web.middleware
    async def _answer(
        self, request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        """Return the handler's response, or why the request is refused, with the common headers."""
        try:
            self._is_from_here(request)
            response = await handler(request)
        except _Refused as refused:
            status, why = refused.args
            response = _text(f"{why}\n", "text/plain", status)
            response.force_close()  # the rest of the request is not read
        except AirgenError as error:
            response = _text(f"{one_line(error, 500)}\n", "text/plain", 400)
        response.headers.update(_HEADERS)
        return response

    def _is_from_here(self, request: web.Request) -> None:
        """Return whether the request uses this machine's own name and does not come from another site, except by a link
        to the page."""
        hosts = request.headers.getall("Host", [""])
        name = hosts[0].rpartition(":")[0] if hosts[0].rpartition(":")[2].isdigit() else hosts[0]
        if len(hosts) != 1 or name not in NAMES:
            raise _Refused(403, f"open http://{HOST}:{self.port}/, not another name of this machine")
        is_page = request.method == "GET" and request.path == "/"
        linked = is_page and request.headers.get("Sec-Fetch-Dest") == "document"
        if request.headers.get("Sec-Fetch-Site", "none") not in ("same-origin", "none") and not linked:
            raise _Refused(403, "a page of another origin may not read this report")

    def _knows(self, token: str) -> bool:
        return secrets.compare_digest(token.encode("utf-8", "replace"), self.token.encode())

    def _allow(self, request: web.Request) -> None:
        scheme, _, bearer = request.headers.get("Authorization", "").partition(" ")
        # Browsers send a cookie to every port of a host, so its name has the port.
        token = bearer.strip() if scheme.lower() == "bearer" else request.cookies.get(f"airgen-{self.port}", "")
        if not self._knows(token):
            raise _Refused(403, "open the address that `airgen report --live` printed: it holds a token")

    async def _get(self, request: web.Request) -> web.Response:
        """Return a file, or a value for polling."""
        if request.path == "/" and (given := request.query.get("token")):
            if not self._knows(given):
                raise _Refused(403, "this token is not the one that `airgen report --live` printed")
            # After a redirect from another site, a strict cookie would be missing, but not after a page that continues.
            page = _text(_GO_ON, "text/html")
            page.set_cookie(f"airgen-{self.port}", self.token, httponly=True, samesite="Strict")
            return page
        self._allow(request)
        name = request.match_info["name"] or "index.html"
        value = await asyncio.to_thread(self.served.read, name)
        if value is not None:
            return web.json_response(value)
        if (path := self.served.file(name)) is None:
            raise _Refused(404, "there is no such page")
        try:
            content = await asyncio.to_thread(path.read_text, "utf-8")
        except OSError:
            raise _Refused(404, "this page was replaced: reload the report") from None
        return _text(content, _KINDS.get(path.suffix, "application/octet-stream"))

    async def _post(self, request: web.Request) -> web.Response:
        """Handle a JSON request from a page, which must come from this server."""
        self._allow(request)
        origin = f"http://{request.headers['Host']}"
        if request.headers.get("Origin") != origin or request.content_type != "application/json":
            raise _Refused(403, "only a page of this report may do that")
        if request.content_length is None or request.content_length > _MOST_BODY_BYTES:
            raise _Refused(413, f"the request needs a length of at most {_MOST_BODY_BYTES} bytes")
        try:
            value = json.loads(await request.read())
        except (ValueError, RecursionError):
            value = None
        if not isinstance(value, dict):
            raise _Refused(400, "the request is not a JSON object")
        answer = await asyncio.to_thread(self.served.write, request.match_info["name"], value)
        if answer is None:
            raise _Refused(404, "there is no such address")
        return web.json_response(answer)


def _text(content: str, kind: str, status: int = 200) -> web.Response:
    return web.Response(text=content, content_type=kind, charset="utf-8", status=status)
