"""Messages and pages whose structure is broken or unusual: what a mail program or a browser shows is read."""

import base64
from pathlib import Path

import pytest
from corpus_maker import corpus

from airgen.corpus import prepare
from airgen.errors import CorpusError
from airgen.storage.records import Dropped, Passage

SAID = "The nightly backup of the ledger ran well, and two files that were open were copied in a second run."
PAGE = f"<html><body><p>{SAID}</p></body></html>"


def read(folder: Path, name: str, raw: bytes, kind: str) -> tuple[str, dict[str, str]]:
    (folder / name).write_bytes(raw)
    rows = list(prepare(corpus(folder, {"kind": kind, "path": name}), "qa"))
    text = "\n".join(row.text for row in rows if isinstance(row, Passage))
    return text, {row.reason: row.text for row in rows if isinstance(row, Dropped)}


def message(*headers: str, body: str) -> bytes:
    return ("\n".join(["Subject: Backup", *headers]) + "\n\n" + body).encode()


MESSAGES = {
    "base64 without a header": message("MIME-Version: 1.0", body=base64.encodebytes(SAID.encode()).decode()),
    "UTF-7": message("Content-Type: text/plain; charset=UTF-7", body=SAID.encode("utf-7").decode()),
    "two boundaries": message(
        'Content-Type: multipart/alternative; boundary="--a"', 'Content-Type: multipart/alternative; boundary="--b"',
        body=f"----b\nContent-Type: text/plain\n\n{SAID}\n----b\nContent-Type: text/html\n\n<b>{SAID}</b>\n----b--\n",
    ),
    "flowed": message("Content-Type: text/plain; format=flowed", body=SAID),
}  # fmt: skip


@pytest.mark.parametrize("form", MESSAGES)
def test_the_text_of_a_message_is_read_once(form: str, tmp_path: Path) -> None:
    text, _ = read(tmp_path, "m.eml", MESSAGES[form], "email")
    assert text.strip() == SAID


@pytest.mark.parametrize("body", ["aGVsbG8=", "dGhlcmUgaXMgbm8gbGV0dGVyIGhlcmU", "a" * 76 + "\n" + "b" * 75, SAID])
def test_words_are_not_taken_for_base64(body: str, tmp_path: Path) -> None:
    assert read(tmp_path, "m.eml", message("MIME-Version: 1.0", body=body), "email")[0].split() == body.split()


def test_what_follows_the_last_part_is_counted(tmp_path: Path) -> None:
    parts = "This is a multi-part message in MIME format.\n--x\n\nThe backup ran.\n--x--\nScanned by the gateway.\n"
    text, left = read(tmp_path, "m.eml", message("Content-Type: multipart/mixed; boundary=x", body=parts), "email")
    assert text == "The backup ran."
    assert left["around the parts of the message"] == "Scanned by the gateway."


def test_a_line_of_hyphens_is_no_boundary(tmp_path: Path) -> None:
    body = f"{SAID}\n------\n\nMore of it.\n"
    text, _ = read(tmp_path, "m.eml", message("Content-Type: multipart/mixed; boundary=gone", body=body), "email")
    assert SAID in text and "More of it." in text


def test_frames_replace_a_page_without_a_body_only(tmp_path: Path) -> None:
    late = PAGE.replace("</p>", "</p><frameset><noframes>Get another browser.</noframes></frameset>")
    text, left = read(tmp_path, "a.html", late.encode(), "html")
    assert text == SAID and left["shown without frames only"] == "Get another browser."
    frames = f"<html><frameset cols=2><frame src=x><noframes>{PAGE}</noframes></frameset></html>"
    assert read(tmp_path, "b.html", frames.encode(), "html")[0] == SAID


def test_what_a_page_of_scripts_shows_without_them_is_its_text_if_it_is_more_than_a_request(tmp_path: Path) -> None:
    for name, words in {"a.html": SAID * 3, "b.html": "You need to enable JavaScript to run this app."}.items():
        page = f"<body><div id=root></div><noscript><h1>Backup</h1><p>{words}</p></noscript><script>x()</script></body>"
        if name == "a.html":
            assert SAID in read(tmp_path, name, page.encode(), "html")[0]
        else:
            with pytest.raises(CorpusError, match="no text in the page"):
                read(tmp_path, name, page.encode(), "html")
