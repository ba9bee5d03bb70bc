"""`airgen report --live`: who may read, what a running job looks like in a browser, and how the server ends."""

import gc
import http.client
import json
import os
import re
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from axe_rules import violations
from child import AIRGEN, Child, finish, start
from report_reader import cells

from airgen.errors import StoreError, UsageError
from airgen.report.live import View, follow
from airgen.report.server import serving


class Client:
    """Raw requests to one server."""

    def __init__(self, address: str) -> None:
        self.address, parts = address, urlsplit(address)
        self.port, self.token = parts.port, parse_qs(parts.query)["token"][0]

    def __call__(
        self, path: str, method: str = "GET", body: str | None = None, token: str | None = None, **headers: str
    ) -> tuple[int, str, dict[str, str]]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=6000)
        given = {} if token == "" else {"Authorization": f"Bearer {token or self.token}"}
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        try:
            connection.putrequest(method, path, skip_host="Host" in named)
            content = None if body is None else body.encode()
            length = {} if content is None else {"Content-Length": str(len(content))}
            for name, value in {**given, **length, **named}.items():
                connection.putheader(name, value)
            connection.endheaders(content)
            answer = connection.getresponse()
            return answer.status, answer.read().decode(), dict(answer.headers)
        finally:
            connection.close()


@pytest.fixture
def client(dataset: Path, tmp_path: Path) -> Iterator[Client]:
    """The view of a dataset without a job."""
    (tmp_path / "view").mkdir()
    with serving(View([dataset], tmp_path / "view")) as address:
        yield Client(address)


def test_only_who_has_the_token_reads(client: Client) -> None:
    assert client("/")[0] == client("/index.html")[0] == client("/data/report.js")[0] == 200
    assert json.loads(client("/live.json")[1])["jobs"] == {}
    for path in ("/", "/data/report.js", "/live.json", "/nothing"):
        for token in ("", "wrong", client.token[:-1], client.token + "x", "é\u00ff"):
            status, said, headers = client(path, token=token)
            assert (status, said.count("\n")) == (403, 1), (path, token)
            assert "data" not in said and headers["Cache-Control"] == "no-store"
    assert client("/", token="", Cookie=f"airgen-{client.port}=wrong")[0] == 403
    assert client("/", token="", Cookie=f"airgen-{client.port}={client.token}")[0] == 200
    assert client("/", token="", Cookie="=;;")[0] == 403
    assert client("/", token="", Cookie="\x07; =;;")[0] == 400
    # The token in an address is changed for a cookie; a wrong one is not.
    status, page, headers = client(f"/?token={client.token}", token="")
    assert status == 200 and client.token not in page
    assert headers["Set-Cookie"] == f"airgen-{client.port}={client.token}; HttpOnly; Path=/; SameSite=Strict"
    status, _, headers = client("/?token=wrong", token="")
    assert status == 403 and "Set-Cookie" not in headers
    assert client(f"/data/report.js?token={client.token}", token="")[0] == 403


def test_only_this_machine_by_its_own_name(client: Client) -> None:
    for host in ("127.0.0.1", f"127.0.0.1:{client.port}", "localhost:9999", "[::1]:80"):
        assert client("/", Host=host)[0] == 200, host
    for host in ("evil.example", f"evil.example:{client.port}", "127.0.0.1.evil.example", "127.0.0.1@evil.example:80",
                 "", ":80", "0.0.0.0", "127.0.0.2", "localhost."):  # fmt: skip
        status, said, _ = client("/", Host=host)
        assert status == 403 and "another name" in said, host
    # A page of another origin, be it on another port of this machine, neither reads nor frames; a link to it works.
    for site in ("cross-site", "same-site"):
        assert client("/data/report.js", Sec_Fetch_Site=site, Sec_Fetch_Dest="script")[0] == 403
        assert client("/", Sec_Fetch_Site=site, Sec_Fetch_Dest="iframe")[0] == 403
        assert client("/", Sec_Fetch_Site=site, Sec_Fetch_Dest="document")[0] == 200
    status, _, headers = client("/", Sec_Fetch_Site="same-origin", Sec_Fetch_Dest="document")
    assert status == 200 and headers["Cross-Origin-Resource-Policy"] == "same-origin"
    assert headers["Content-Security-Policy"] == "frame-ancestors 'none'"
    assert headers["X-Content-Type-Options"] == "nosniff" and headers["Referrer-Policy"] == "no-referrer"


def test_only_files_of_the_report(client: Client, tmp_path: Path) -> None:
    (tmp_path / "secret.txt").write_text("secret")
    for path in (
        "/../secret.txt", "/..%2fsecret.txt", "/%2e%2e/secret.txt", "/data/../../secret.txt", "//etc/passwd", "/.",
        "/etc/passwd", "/%2fetc%2fpasswd", "/data", "/data/", "/assets/../index.html", "/data\\..\\x", "/%00",
        "/report-1/index.html", "/" + "a" * 5000, "/%ff%fe",
    ):  # fmt: skip
        status, said, _ = client(path)
        assert status == 404 and said == "there is no such page\n", path
    for method in ("PUT", "DELETE", "OPTIONS", "HEAD", "TRACE"):
        assert client("/", method)[0] == 405


def test_only_a_page_of_the_report_writes(client: Client) -> None:
    right = {"Origin": f"http://127.0.0.1:{client.port}", "Content_Type": "application/json"}
    assert client("/rebuild", "POST", "{}", **right)[:2] == (200, '{"building": true}')
    assert client("/rebuild", "POST", "{}", token="wrong", **right)[0] == 403
    for wrong in ({"Origin": "http://evil.example"}, {"Origin": "null"}, {"Content_Type": "text/plain"},
                  {"Content_Type": "application/x-www-form-urlencoded"}, {"Sec_Fetch_Site": "cross-site"},
                  {"Host": "evil.example"}):  # fmt: skip
        assert client("/rebuild", "POST", "{}", **(right | wrong))[0] == 403, wrong
    assert client("/rebuild", "POST", "{}", Content_Type="application/json")[0] == 403
    assert client("/nothing", "POST", "{}", **right)[0] == 404
    for body in ("", "[]", "{", "[" * 60_000, '"x"', "\ud7ff"):
        assert client("/rebuild", "POST", body, **right)[0] == 400, body[:9]
    for length, status in (("65537", 413), ("999999999999", 413), ("-1", 400), ("x", 400), ("²", 400)):
        assert client("/rebuild", "POST", "{}", **right, Content_Length=length)[0] == status, length


def test_the_end_waits_for_no_request(dataset: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "view").mkdir()
    with serving(View([dataset], tmp_path / "view")) as address:
        half = http.client.HTTPConnection("127.0.0.1", urlsplit(address).port)
        half.putrequest("POST", "/answer")
        half.putheader("Authorization", f"Bearer {Client(address).token}")
        half.putheader("Origin", address.partition("/?")[0])
        half.putheader("Content-Type", "application/json")
        half.putheader("Content-Length", "60")
        half.endheaders(b"{")
        assert Client(address)("/live.json")[0] == 200
    half.close()
    gc.collect()
    assert not [record.getMessage() for record in caplog.records if record.name == "asyncio"]


def test_a_port_that_is_taken(client: Client, tmp_path: Path, dataset: Path) -> None:
    view = View([dataset], tmp_path / "other")
    with pytest.raises(UsageError, match=f"--port {client.port}: cannot be used"), serving(view, client.port):
        pass
    with pytest.raises(StoreError, match="has not been run yet"):
        View(["quickstart"], tmp_path / "third", tmp_path / "runs")


# --- what the status file says -----------------------------------------------------------------------------------


def status(folder: Path, **values: Any) -> Path:
    value = {"stages": {}, "pid": os.getpid(), "updated": 1000.0, "began": 900.0, "ended": None, "finished": ""}
    (folder / "status.json").write_text(json.dumps({**value, **values}))
    return folder


@pytest.fixture(scope="module")
def gone() -> int:
    """The id of a process that has ended."""
    return int(finish("import os; print(os.getpid())").stdout)


def test_states(tmp_path: Path, gone: int) -> None:
    def state(now: float = 1001.0, **values: Any) -> tuple[str, str]:
        found = follow(status(tmp_path, **values), clock=lambda: now)
        return found["state"], found["why"]

    assert follow(tmp_path)["state"] == "unknown"
    assert state() == ("running", "")
    assert state(1061.0) == ("silent", f"process {os.getpid()} has not reported anything for 61 s")
    assert state(pid=gone) == (
        "died", f"process {gone} ended without giving a reason: run the same command again to continue"
    )  # fmt: skip
    assert state(pid=None)[0] == "died"
    assert state(ended={"how": "stopped", "why": "budget: $1 is spent"}, pid=gone) == ("stopped", "budget: $1 is spent")
    assert state(ended={"how": "failed", "why": "w" * 9999}) == ("failed", "w" * 500)
    assert state(ended={"how": "done"}, finished="abc") == ("finished", "")
    assert state(ended={"how": "done"})[0] == "ended"


def test_what_is_followed(tmp_path: Path) -> None:
    usage = {"query": {"calls": 5, "usd": 0.5, "prompt_tokens": 7, "failures": {"timeout": 2}, "retries": {}}}
    counts = {
        "candidates": {
            "query": {"seen": 9, "dropped": 2, "reasons": {"too near": 2}},
            "queries": {"seen": 7, "dropped": 0},
        },
        "judgments": {"judgment": {"seen": 3, "dropped": 1, "reasons": {"malformed": 1}}},
    }  # fmt: skip
    stages = {"queries": {"done": 20, "total": 100, "rate": 4.0, "note": "last: \x1b"}, "corpus": {"done": 5}}
    found = follow(
        status(tmp_path, usage=usage, counts=counts, stages=stages, spent_usd=0.5, budget_usd=2,
               recent=[{"text": "why bees?", "problem": ""}]),
        {"query": "a query was written"}, clock=lambda: 1001.0,
    )  # fmt: skip
    assert (found["spent_usd"], found["budget_usd"]) == (0.5, 2)
    assert found["stages"][0]["left_s"] == 20 and found["stages"][1]["left_s"] is None
    assert found["usage"][0]["stage"] == "query" and found["usage"][0]["failures"] == {"timeout": 2}
    assert cells(found["tables"]["Funnel so far"]) == [
        ("a query was written", "9", "7", "2 × too near"),
        ("accepted queries", "7", "7", "–"),
        ("judgments", "3", "2", "1 × malformed"),
    ]
    assert cells(found["tables"]["Failures"]) == [("2", "failed", "timeout", "query")]
    assert cells(found["tables"]["Calls"]) == [("query", "5", "7", "0", "$0.50")]
    assert found["recent"] == [{"text": "why bees?", "problem": ""}]


def test_a_status_file_of_another_hand(tmp_path: Path) -> None:
    for wrong in (None, 3, "x", [], [3], [None], {"a": 3}, {"a": {"b": {"c": []}}}, {"a": []}):
        for name in ("usage", "counts", "recent", "stages", "ended", "spent_usd", "pid", "updated", "began"):
            assert len(json.dumps(follow(status(tmp_path, **{name: wrong})))) < 5000, (name, wrong)
    many = {str(number): {"seen": 1, "reasons": {"x" * 999: 1}, "failures": {"y" * 999: 1}} for number in range(400)}
    recent = [{"text": "z" * 999, "problem": "z" * 999}] * 400
    counts = {"candidates": many, "judgments": many}
    found = follow(status(tmp_path, usage=many, counts=counts, stages=many, recent=recent))
    assert len(found["usage"]) == len(found["recent"]) == len(found["stages"]) == 64
    assert len(json.dumps(found)) < 64 * 5 * 700
    assert follow(status(tmp_path, recent="x" * (4 << 20)))["state"] == "unknown"


# --- in a browser ------------------------------------------------------------------------------------------------


def begin(folder: Path, latency: float) -> Child:
    """A real run of the folder's job in a process of its own."""
    path = folder / "job.yaml"
    path.write_text(re.sub("scripted.*?, concurrency", f"scripted, latency: {latency}, concurrency", path.read_text()))
    return start(AIRGEN, "run", path, "--runs", folder / "runs", "--quiet")


@pytest.mark.nightly
def test_a_running_job_is_followed(folder: Path, tmp_path: Path, browse: Any) -> None:
    job = begin(folder, 0.4)
    page = browse("about:blank")
    browse.until(page, lambda: follow(folder / "runs" / "job")["state"] == "running")
    (tmp_path / "view").mkdir()
    stop = threading.Event()
    view = View([folder / "job.yaml"], tmp_path / "view", folder / "runs")
    watching = threading.Thread(target=view.watch, args=(stop,))
    watching.start()
    try:
        with serving(view) as address:
            browse.open_to(address)
            page.goto(address)
            page.wait_for_url("**/#/live")  # the token has left the address
            page.get_by_text("Jobs running: 1 of 1.").wait_for()
            page.locator("ul.recent li").first.wait_for()
            bar = page.get_by_role("progressbar", name="queries")
            assert bar.get_attribute("max") == "12"
            assert violations(page) == []
            before = page.locator("dl.facts").inner_text()
            browse.until(page, lambda: page.locator("dl.facts").inner_text() != before)
            job.kill()
            page.get_by_text(f"process {job.pid} ended without giving a reason").wait_for()
            assert violations(page) == []
            page.get_by_role("button", name="Reload").wait_for()
            # The same command goes on; at its end there is a whole report.
            job = begin(folder, 0.0)
            page.locator("h2 .tag", has_text="runs").wait_for()
            page.locator("h2 .tag", has_text="finished").wait_for(timeout=120_000)
            assert job.wait() == 0
            browse.until(page, lambda: view.read("live.json")["report"] == 3)
            page.reload()
            page.get_by_role("link", name="Queries").click()
            page.get_by_role("searchbox").wait_for()
            assert page.get_by_role("status").inner_text() != "0"
            page.get_by_role("link", name="Live").click()
            page.get_by_text("Jobs running: 0 of 1.").wait_for()
        page.get_by_text("airgen report --live has stopped").wait_for()
        browse.problems = [one for one in browse.problems if "ERR_CONNECTION_REFUSED" not in one]
    finally:
        stop.set()
        watching.join()
        job.kill()


def test_the_command(dataset: Path, tmp_path: Path) -> None:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    with start(AIRGEN, "report", dataset, "--live", "--json", TMPDIR=str(temporary)) as child:
        client = Client(json.loads(child.stdout.readline())["address"])
        assert client("/")[0] == 200 and len(client.token) >= 43
        assert len(list(temporary.iterdir())) == 1
        child.send_signal(signal.SIGINT)
        assert (child.stdout.read(), child.stderr.read()) == ("", "\nstopped\n")
    assert child.returncode == 0
    assert list(temporary.iterdir()) == []
