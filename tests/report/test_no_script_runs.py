"""Each kind of page that airgen writes, in a browser that ignores the page's policy, of hostile data.

A page's content security policy would refuse what an attacker smuggles in, so it is turned off here: there must be
nothing to refuse. No script runs, no dialog opens, nothing is requested from outside, and payloads are text.
"""

import dataclasses
import json
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import altair as alt
import pytest
import yaml
from beir_folder import write_beir
from command_line import call
from dataset_maker import INFO, make_content
from job_maker import CORPUS, LEXICAL, make_corpus
from markdown_it import MarkdownIt
from report_reader import lives, read_report

import airgen.api
from airgen.audit.sample import KINDS, AuditItem, question_page
from airgen.dataset.content import FunnelStep, ModelUse
from airgen.dataset.write import write_dataset
from airgen.display.study import Plain, Study, Table, columns, study_of
from airgen.evaluation.charts import chart_names, colours, save_svg, titled
from airgen.llms.base import Reply, Request
from airgen.llms.scripted import ScriptedBackend
from airgen.report.live import View
from airgen.report.server import serving
from airgen.safety.escaping import md

PAYLOADS = (
    "<script>window.__xss=1</script>",
    "<img/src=x/onerror=window.__xss=2>",
    "<svg/onload=window.__xss=3>",
    "\"' autofocus onfocus=window.__xss=4 x='\"",
    "</script></style></title></textarea></template></noscript>--><script>window.__xss=5</script>",
    "<!--<script>--><iframe srcdoc='<script>parent.__xss=6</script>'></iframe>",
    "javascript:window.__xss=7//",
    "[link](javascript:window.__xss=8) ![image](http://evil.example/x.png) <http://evil.example/>",
    "{{constructor.constructor('window.__xss=9')()}} {% raw %} ${window.__xss=10} <%= 1 %> #{1}",
    "\u2028\u2029');window.__xss=11;(' \\'\\\";window.__xss=12;//",
    "</style><style>*{background:url(http://evil.example/y.png)}</style>;background:url(//evil.example/z)",
    "data:text/html,<script>window.__xss=13</script>",
    "&lt;script&gt;window.__xss=14&lt;/script&gt; &#60;img src=x onerror=window.__xss=15&#62;",
    "\u202egnp.exe\u2066 \x1b]8;;http://evil.example/\x07 " + "W" * 3000,
    "~~~\n<script>window.__xss=16</script>\n\n<div onclick=window.__xss=17>\n# title\n---",
    "__proto__",
    "constructor",
)
EVIL = " ".join(PAYLOADS)
SHORT = PAYLOADS[1]  # has no space, so it is a word of a query
ADDRESSES = ("javascript:window.__xss=20//", 'https://example.org/"onclick="window.__xss=21')

# What must not be in a page: elements that it never makes, handlers, and links that run or load something.
FOREIGN = """() => [...document.querySelectorAll('*')].filter((element) =>
  ['IFRAME', 'OBJECT', 'EMBED', 'BASE', 'FOREIGNOBJECT'].includes(element.tagName.toUpperCase())
  || [...element.attributes].some(({ name, value }) => /^on/i.test(name)
    || /^(src|href|xlink:href|action|formaction|srcset|data)$/i.test(name)
      && !/^(#|https:\\/\\/example\\.org\\/|assets\\/|data\\/d|data:image\\/svg|data:,|blob:)/.test(value))
).map((element) => element.outerHTML.slice(0, 200))"""


@pytest.fixture
def look(browse: Any) -> Callable[..., str]:
    """Visit the routes of a page, and return all texts on it; fails if anything of a payload was taken for code."""

    def visit(where: Path | str, *routes: str) -> str:
        page = browse("about:blank", bypass_csp=True)
        page.on("dialog", lambda dialog: browse.problems.append(f"dialog: {dialog.message}"))
        page.goto(where if isinstance(where, str) else where.as_uri())
        if "token=" in page.url:
            page.wait_for_url("**/#/live")
        texts = []
        for route in ("", *routes):
            if route:
                page.goto(f"{page.url.partition('#')[0]}#{route}")
                page.wait_for_function(
                    "place => airgen.at === place && !document.querySelector('main[aria-busy]')", arg=f"#{route}"
                )
                assert "This page cannot be shown" not in page.inner_text("main"), route
            page.evaluate("for (const one of document.querySelectorAll('details')) one.open = true")
            texts.append(page.evaluate("document.documentElement.textContent"))
            assert (page.evaluate("window.__xss"), page.evaluate(FOREIGN)) == (None, []), (where, route)
        page.close()
        return "\n".join(texts)

    return visit


def spoiled(value: Any, bad: str) -> Any:
    """Return a model's answer with a payload at the end of each of its texts."""
    if isinstance(value, dict):
        return {name: spoiled(item, bad) for name, item in value.items()}
    if isinstance(value, list):
        return [spoiled(item, bad) for item in value]
    if isinstance(value, str):
        return f"{value} {bad}" if bad != SHORT else f"{value.rpartition(' ')[0]} {bad}"
    return value


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A finished and evaluated job, hostile wherever a document, a model, a reader or a result of others has words."""
    folder = tmp_path_factory.mktemp("<img src=x onerror=window.__xss=40>")
    make_corpus(folder / "small.jsonl", 60)
    rows = [json.loads(line) for line in (folder / "small.jsonl").read_text("utf-8").splitlines()]
    with (folder / "small.jsonl").open("w", encoding="utf-8") as out:
        for number, row in enumerate(rows):
            bad = PAYLOADS[number % len(PAYLOADS)]
            row |= {"title": f"{bad} {row['title']}", "text": f"{row['text']} {bad}", "url": ADDRESSES[number % 2]}
            row["id"] = bad if number < len(PAYLOADS) and bad.isprintable() else f"{row['id']}{bad[:200]}"
            out.write(json.dumps(row) + "\n")
    corpus = {**yaml.safe_load(CORPUS), "domain": PAYLOADS[0], "licence": PAYLOADS[1], "source": PAYLOADS[2]}
    (folder / "small.yaml").write_text(yaml.safe_dump(corpus), "utf-8")
    systems = [{"name": f"s{at}", "kind": "bm25", "k1": 0.2 + at} for at in range(3)]
    (folder / "systems.yaml").write_text(json.dumps({"systems": systems}), "utf-8")
    pipeline = yaml.safe_load(LEXICAL)
    pipeline["llm"]["model"] = PAYLOADS[4]
    pipeline |= {"target": 6, "evaluate": {"systems": "systems.yaml", "split": "test"}}
    (folder / "job.yaml").write_text(yaml.safe_dump(pipeline), "utf-8")
    send = ScriptedBackend.send

    async def spoiling(self: ScriptedBackend, request: Request) -> Reply:
        reply = await send(self, request)
        try:
            value = json.loads(reply.text)
        except ValueError:
            return reply
        written = request.stage in ("character", "scenario", "hard_negative")
        bad = PAYLOADS[len(reply.text) % len(PAYLOADS)] if written else SHORT
        return dataclasses.replace(reply, text=json.dumps(spoiled(value, bad)))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ScriptedBackend, "send", spoiling)
        call("run", folder / "job.yaml", "--runs", folder / "runs")
    results = folder / "runs" / "job" / "evaluation" / "job" / "test"
    for name in ("s0.json", "s1.json", "s2.json", "comparison.json"):  # as another's results may be
        text = (results / name).read_text("utf-8")
        for at, bad in enumerate((PAYLOADS[0], PAYLOADS[5], PAYLOADS[8])):
            text = text.replace(f'"s{at}"', json.dumps(bad))
        (results / name).write_text(text.replace('"bm25-lucene"', json.dumps(PAYLOADS[10])), "utf-8")
    yield folder / "job.yaml"


def routes_of(index: Path) -> list[str]:
    """Return every kind of page of a report."""
    data = read_report(index)
    boards = data["d0/systems"]["boards"] if "d0/systems" in data else []
    names = [quote(system["name"], safe="") for board in boards for system in board["systems"]]
    systems = [
        "/d0/systems",
        *(f"/d0/system/{name}" for name in names),
        *(f"/d0/compare/{name}/{names[0]}" for name in names[1:]),
    ]
    queries = [f"/d0/query/{quote(query, safe='')}" for query in list(lives(data))[:5]]
    return ["/d0/queries", *queries, *(systems if names else [])]


def test_reports(job: Path, tmp_path: Path, look: Any) -> None:
    runs = job.parent / "runs"
    call("audit", "sample", job, 5, "--runs", runs)
    call("report", job, "--runs", runs, "--out", tmp_path / "whole")
    call("report", job, "--runs", runs, "--out", tmp_path / "file.html", "--single-file")
    call("report", job, "--runs", runs, "--out", tmp_path / "public", "--public")
    whole, public = tmp_path / "whole" / "index.html", tmp_path / "public" / "index.html"
    text = look(whole, *routes_of(whole), "/d0/audit")
    assert sum(bad in text for bad in PAYLOADS) > 6  # those of the documents and systems on these pages
    look(tmp_path / "file.html", "/d0/queries", "/d0/systems")
    look(public, *routes_of(public))
    look(runs / "job" / "audit" / "audit.html")


def test_names_that_javascript_has_itself(tmp_path: Path, look: Any) -> None:
    """Ids, attributes and labels of the same names as what every object of JavaScript has."""
    names = ["constructor", "toString", "__proto__", "hasOwnProperty", "valueOf"]
    folder = write_beir(
        tmp_path / "data",
        [{"_id": name, "title": "", "text": f"words of {name}"} for name in names[:2]],
        [{"_id": name, "text": f"query {name}", "metadata": {"type": name, name: names[0]}} for name in names],
        {"test": [(query, document, 1) for query in names for document in names]},
        name="toString", language="en",
    )  # fmt: skip
    call("evaluate", folder, "--systems", "systems-quickstart", "--only", "bm25", "--out", tmp_path / "results")
    call("report", folder, tmp_path / "results", "--out", tmp_path / "r")
    index = tmp_path / "r" / "index.html"
    text = look(index, *routes_of(index))
    assert "native code" not in text and "[object" not in text and "NaN" not in text


def test_the_live_report(job: Path, tmp_path: Path, look: Any, browse: Any) -> None:
    """A running job's file of status, which another process writes."""
    runs, names = job.parent / "runs", dict.fromkeys(PAYLOADS)
    status = runs / "job" / "status.json"
    usage = {name: {"calls": 1, "failures": {name: 2}, "retries": {name: 1}} for name in names}
    counts = {name: {"seen": 3, "dropped": 1, "reasons": {name: 1}} for name in names}
    value = {
        **json.loads(status.read_text("utf-8")), "usage": usage, "counts": {"candidates": counts, "judgments": counts},
        "stages": {name: {"done": 1, "total": 3, "rate": 1.0, "note": name} for name in names},
        "recent": [{"text": name, "problem": name} for name in names],
    }  # fmt: skip
    (tmp_path / "view").mkdir()
    view = View([job], tmp_path / "view", runs)
    for ended in ({"how": "failed", "why": EVIL[:2000]}, None):
        status.write_text(json.dumps({**value, "ended": ended, "pid": os.getpid(), "updated": time.time()}), "utf-8")
        with serving(view) as address:
            browse.open_to(address)
            text = look(address, "/d0/audit", "/live")
        assert PAYLOADS[0] in text and PAYLOADS[8] in text


def test_pages_of_questions(tmp_path: Path, look: Any) -> None:
    """What people are asked: the audits of labels and of relevance, of systems and of holes."""
    for at in range(3):
        bad = " ".join(PAYLOADS[at::3])
        items = [AuditItem(bad, bad, KINDS[0], 1, True, bad, bad, bad, address) for address in (*ADDRESSES, bad)]
        page = question_page(bad, bad, items, note=bad, batch=1, question=bad, levels={0: bad, 1: bad})
        (tmp_path / f"{at}.html").write_text(page, "utf-8")
        text = look(tmp_path / f"{at}.html")
        assert all(each in text for each in PAYLOADS[at::3] if each.isprintable())


def notebook(page: Path, value: Any) -> Path:
    """Write what a notebook shows of a value."""
    page.write_text(f"<!doctype html><meta charset=utf-8>{value._repr_html_()}", "utf-8")
    return page


def test_studies_and_notebooks(tmp_path: Path, look: Any) -> None:
    cells = Table([(bad, bad) for bad in PAYLOADS], columns(*PAYLOADS[:2], left=(0, 1)))
    parts = [part for bad in PAYLOADS for part in (f"## {md(bad)}", md(bad), f"- {md(bad)}", Plain(bad), cells)]
    for at, study in enumerate([Study(EVIL, parts), study_of(EVIL, {bad: [{bad: bad}] for bad in PAYLOADS})]):
        look(study.save(tmp_path / f"{at}.html"))
        text = look(notebook(tmp_path / f"notebook-{at}.html", study))
        assert all(bad in text for bad in PAYLOADS if bad.isprintable())


def test_what_commands_say_as_pages(job: Path, tmp_path: Path, look: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    runs, dataset = job.parent / "runs", job.parent / "runs" / "job" / "dataset"
    query = json.loads((dataset / "queries.jsonl").read_text("utf-8").splitlines()[0])["_id"]
    values = [
        airgen.api.show(job, query, runs=runs), airgen.api.show(job, queries=True, runs=runs),
        airgen.api.show_corpus(str(job.parent / "small.yaml")), airgen.api.check(job, runs=runs, stages=True),
        airgen.api.study_diversity([str(dataset)]), airgen.api.study_stats(dataset),
        airgen.api.publish_verify([dataset]),
        airgen.api.study_inspect(dataset, systems=job.parent / "systems.yaml", out=tmp_path / "inspect"),
        airgen.api.show_prompts(),
    ]  # fmt: skip
    for at, value in enumerate(values):
        look(notebook(tmp_path / f"{at}.html", value))
    look(tmp_path / "inspect" / "inspect.html")


def test_charts(tmp_path: Path, look: Any) -> None:
    """An SVG file that is opened on its own may run scripts."""
    names = chart_names(PAYLOADS)
    bars = alt.Chart({"values": [{"name": name, "share": 1} for name in names]}).mark_bar()
    save_svg(titled(bars.encode(x="share:Q", y="name:N", color=colours("name", names)), EVIL), tmp_path / "c.svg")
    assert PAYLOADS[0] in look(tmp_path / "c.svg")


def test_the_card(tmp_path: Path, look: Any) -> None:
    """A Hub renders a card as Markdown with HTML in it."""
    for at in range(3):
        bad = " ".join(PAYLOADS[at::3])
        texts = dict.fromkeys(("description", "citation", "source", "source_url", "labels_licence"), bad)
        content = make_content(
            info=dataclasses.replace(INFO, **texts),
            provenance=[ModelUse(bad, bad, bad, bad)], funnel=[FunnelStep(bad, 10, 8, {bad: 2})],
            pipeline_yaml=f"name: x\n# {bad}\n# ````\n",
        )  # fmt: skip
        write_dataset(tmp_path / f"{at}", content)
        text = (tmp_path / f"{at}" / "README.md").read_text("utf-8").partition("\n---\n")[2]
        page = tmp_path / f"{at}.html"
        rendered = MarkdownIt("commonmark", {"html": True}).enable("table").render(text)
        page.write_text(f"<!doctype html><meta charset=utf-8>{rendered}", "utf-8")
        look(page)
