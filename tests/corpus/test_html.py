"""Pages of HTML: what a browser shows is in the text or in a piece left out, and furniture is known by its place."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from packages import package

from airgen.corpus.readers.html import HtmlReader, html_page
from airgen.corpus.readers.html_tags import bounded
from airgen.corpus.readers.reader import Place
from airgen.storage.records import Document, Dropped
from airgen.text.character_encodings import decoded_html

package("selectolax")

WELL = "The well in the yard is cleaned each spring, and the rope is changed when it begins to fray."
PLACES = {
    "form around the page": "<form><div><p>{}</p></div></form>",
    "button in a heading": "<h2><button>{}</button></h2><p>answer</p>",
    "button in a sentence": "<p>Press <button>{}</button> twice.</p>",
    "button that opens": "<button aria-expanded=false>{}</button><div>answer</div>",
    "lone button": "<div><button>{}</button></div>",
    "button by input": "<input type=submit value='{}'>",
    "field": "<input value='{}'>", "hint of a field": "<input placeholder='{}'>",
    "long field": "<textarea>{}</textarea>", "choice": "<select><option>{}</select>",
    "label": "<label>{}</label>", "legend": "<fieldset><legend>{}</legend></fieldset>",
    "header of an article": "<article><header><h1>{}</h1></header><p>x</p></article>",
    "header of the page": "<header><p>{}</p></header>", "footer of the page": "<footer><p>{}</p></footer>",
    "note": "<aside><p>{}</p></aside>", "note in an article": "<article><aside>{}</aside></article>",
    "hidden tab": "<div role=tabpanel hidden><p>{}</p></div>",
    "tab that is not chosen": "<div role=tabpanel aria-hidden=true><p>{}</p></div>",
    "icon": "<i aria-hidden=true>{}</i>", "menu": "<nav><a href=x>{}</a></nav>",
    "term": "<dl><dt>{}</dt><dd>meaning</dd></dl>", "definition": "<dl><dt>term</dt><dd>{}</dd></dl>",
    "term that links to itself": "<dl><dt id=a><a href='#a'>{}</a></dt><dd>meaning</dd></dl>",
    "cell": "<table><tr><td>a</td><td><p>{}</p></td></tr></table>",
    "caption": "<table><caption>{}</caption><tr><td>a</table>",
    "cell of a layout": "<table><tr><td><h2>x</h2><p>{}</p></td></tr></table>",
    "list in a cell": "<table><tr><td><ul><li>{}</ul></td><td>b</td></tr></table>",
    "figure": "<figure><figcaption>{}</figcaption></figure>", "summary": "<details><summary>{}</summary>x</details>",
    "details": "<details><summary>x</summary>{}</details>", "drawing": "<svg><text>{}</text></svg>",
    "code": "<pre><code>{}</code></pre>", "quotation": "<blockquote>{}</blockquote>", "loose words": "{}",
    "reading": "<ruby>kanji<rt>{}</rt></ruby>", "no script": "<noscript>{}</noscript>",
    "equation": "<math><mi>{}</mi></math>", "frame": "<iframe>{}</iframe>", "dialog": "<dialog>{}</dialog>",
    "cookies": "<div id=cookie-banner>{}</div>", "sidebar": "<div class=sidebar><a href=x>{}</a></div>",
    "unknown element": "<my-card>{}</my-card>", "list of links": "<ul><li><a href=x>{}</a></ul>",
    "picture": "<img alt='{}' src=x>", "pictured equation": "<p>of <img class=math alt='{}' src=x></p>",
    "footnote": "<p>a<sup><a href=#f>1</a></sup></p><ol><li id=f>{}</ol>",
    "shadow tree": "<x-a><template shadowrootmode=open><p>{}</p></template></x-a>",
    "page in a frame": "<iframe srcdoc='<p>{}</p>'></iframe>",
    "label of a choice": "<select><option label='{}'></select>",
    "group of choices": "<select><optgroup label='{}'><option>a</select>",
    "pictured button": "<input type=image alt='{}'>", "part of a picture": "<map><area alt='{}'></map>",
    "hint of a long field": "<textarea placeholder='{}'></textarea>",
}  # fmt: skip
KEPT = {
    "form around the page", "button in a heading", "button in a sentence", "button that opens", "label", "legend",
    "header of an article", "header of the page", "note", "note in an article", "hidden tab", "tab that is not chosen",
    "term", "definition", "term that links to itself", "cell", "caption", "cell of a layout", "list in a cell",
    "figure", "summary", "details", "code", "quotation", "loose words", "equation", "unknown element", "footnote",
    "pictured equation", "shadow tree",
}  # fmt: skip


@pytest.mark.parametrize("extract", ["main", "page"])
@pytest.mark.parametrize("frame", ["<body>{0}<p>{1}</p>", "<body><main><p>{1}</p>{0}</main>", "<body><p>{1}</p>{0}"])
@pytest.mark.parametrize("place", PLACES)
def test_a_word_is_in_the_text_or_in_a_piece(place: str, frame: str, extract: Any) -> None:
    page = html_page(frame.format(PLACES[place].format("Zqmark"), WELL), extract=extract)
    text = "\n".join(block.text for block in page.blocks)
    pieces = "\n".join(words for _, words in page.left)
    assert WELL in text and ("Zqmark" in text) != ("Zqmark" in pieces)
    if place in KEPT:
        assert "Zqmark" in text


def pages(folder: Path, count: int, page: str) -> dict[str, tuple[list[str], list[Dropped]]]:
    """{name: (paragraphs, pieces)} of a site of this many pages."""
    for number in range(count):
        (folder / f"p{number}.html").write_text(page.replace("NUMBER", f"n{number} " * 9), encoding="utf-8")
    settings = HtmlReader.Settings(path=str(folder))
    found: dict[str, tuple[list[str], list[Dropped]]] = {}
    for row in HtmlReader(settings, Place(folder.parent, language="en")).read():
        paragraphs, pieces = found.setdefault(row.source, ([], []))
        if isinstance(row, Document):
            paragraphs += row.text.split("\n\n")
        else:
            pieces.append(row)
    return found


def test_what_pages_repeat_around_their_text_is_furniture(tmp_path: Path) -> None:
    head = "<body><div><a href=/>Yard</a></div><div>Welcome to our yard</div><header><p>We have had wells "
    page = f"{head}for two hundred years and clean them all.</p></header><h1>Well NUMBER</h1><p>NUMBER text.</p>"
    page += "<h2>Warranty</h2><p>The warranty of a well ends after two years, whoever has dug it.</p>"
    page += "<h2>Was this of help?</h2><div>Tell us <a href=x>here</a></div><div>© The yard, of old</div>"
    site = tmp_path / "site"
    site.mkdir()
    found = pages(site, 6, page)
    assert len(found) == 6
    for paragraphs, pieces in found.values():
        text = "\n".join(paragraphs)
        assert "The warranty of a well" in text and "Warranty" in paragraphs and paragraphs[0].startswith("Well n")
        for furniture in ("Welcome", "We have had wells", "© The yard", "Tell us", "Was this of help"):
            assert furniture not in text and any(furniture in piece.text for piece in pieces)
    few = tmp_path / "few"
    few.mkdir()
    for paragraphs, _ in pages(few, 2, page).values():  # two pages are no evidence
        assert {"Welcome to our yard", "© The yard, of old"} <= set(paragraphs)


@pytest.mark.parametrize(
    ("declared", "raw", "text"),
    [
        ("iso-8859-1", "“wells” cost €5".encode("cp1252"), "“wells” cost €5"),
        ("undefined", "größer".encode(), "größer"), ("utf-16", "größer".encode(), "größer"),
        ("idna", "größer".encode(), "größer"), ("punycode", b"a-b", "a-b"),
        ("x-none-such", "größer".encode(), "größer"),
        ("gb2312", "水井每年春天清洗一次镕".encode("gb18030"), "水井每年春天清洗一次镕"),
        ("shift_jis", "井戸は①番".encode("cp932"), "井戸は①番"),
        ("windows-1251", "Колодец".encode("cp1251"), "Колодец"),
        ("utf-8", "Колодец чистят каждую весну".encode("cp1251"), "Колодец чистят каждую весну"),
        ("ISO_8859-1:1987", "“wells”".encode("cp1252"), "“wells”"),
        ("x-euc-jp", "井戸の灯".encode("euc_jp"), "井戸の灯"),
        ("koi8-ru", "Колодец".encode("koi8_u"), "Колодец"), ("logical", "באר בכפר".encode("iso8859_8"), "באר בכפר"),
        ("latin1", "größer".encode(), "größer"), ("iso-8859-1", b"a\x81b\xe9", "a\ufffdbé"),
    ],
)  # fmt: skip
def test_pages_are_decoded_as_browsers_do(declared: str, raw: bytes, text: str) -> None:
    for head in (f'<meta charset="{declared}">', f"<meta http-equiv=x content='text/html; charset={declared}'>"):
        language = "ru" if "К" in text else "en"
        assert decoded_html(head.encode() + raw, "", language).text.endswith(text)
    if declared != "utf-8":
        assert decoded_html(raw, "", "en", header=declared).text == text


@pytest.mark.parametrize("extract", ["main", "page"])
@pytest.mark.parametrize(
    "html",
    [
        f"<dialog open><h1>Rules</h1><p>{WELL}</p></dialog>",
        f"<nav>menu</nav><div class=cookie-policy><h1>Cookies</h1><p>{WELL}</p></div>",
        f"<frameset><frame src=a.html><noframes><p>{WELL}</p></noframes></frameset>",
        f"<?xml version='1.0'?><html xmlns='http://www.w3.org/1999/xhtml'><body><p><![CDATA[{WELL}]]></p></body></html>",
    ],
)
def test_what_is_all_of_a_page_is_its_text(html: str, extract: Any) -> None:
    assert WELL in html_page(html, extract=extract).text


def test_a_title_that_says_more_than_the_heading_is_counted() -> None:
    page = html_page(f"<title>Wells of the north</title><h1>Care</h1><p>{WELL}</p>")
    assert page.title == "Care" and ("title of the page, which has a heading", "Wells of the north") in page.left
    assert not html_page(f"<title>care!</title><h1>Care</h1><p>{WELL}</p>").left
    assert html_page(f"<title>Care</title><p>{WELL}</p>").title == "Care"


def test_frames_inside_each_other_are_no_depth_to_fall_into() -> None:
    page = html_page("<iframe/srcdoc=" * 5000 + f"><p>{WELL}</p>")
    assert page.left == [("instead of a frame", f"<p>{WELL}</p>")]  # counted, not read


TAGS = st.lists(
    st.sampled_from(["<p ", "a=1 ", "b='>' ", 'c="<" ', ">", "x", "<!--",
                      "-->", "<script>", "</script>", "'", '"', "/"]),
    max_size=30,
).map("".join)  # fmt: skip


@given(TAGS)
def test_bounds_change_no_page_of_a_usual_size(html: str) -> None:
    assert bounded(html) == html


@pytest.mark.parametrize("start", ["<p ", '<p x=">" ', "<!-- <p --><p ", "<script>'<p \"'</script><p ", "<p a='\"' "])
def test_a_tag_of_thousands_of_attributes_loses_them_and_no_text(start: str) -> None:
    attributes = " ".join(f"a{number}=1" for number in range(40_000))
    page = html_page(f"<body><p>{WELL}</p>{start}{attributes}>after it</p>")
    assert [block.text for block in page.blocks] == [WELL, "after it"]


def test_equations_code_and_signs() -> None:
    html = (
        "<h1>Wells<a class=headerlink href=#w>¶</a></h1><p>Depth <span class=katex><span class=katex-mathml><math>"
        "<semantics><mi>d</mi><annotation encoding='application/x-tex'>d^2</annotation></semantics></math></span>"
        "<span class=katex-html aria-hidden=true>d2</span></span> counts.</p><script type='math/tex'>x_1</script>"
        "<table><tr><td class=gutter><pre>1</pre></td><td><pre>dig()</pre></td></tr></table>"
    )
    page = html_page(html, extract="main")
    assert [block.text for block in page.blocks] == ["Wells", "Depth d^2 counts.", "x_1", "dig()"]


XHTML = (
    "<?xml version='1.0'?><html xmlns='http://www.w3.org/1999/xhtml'><head>{}<link href='a.css'/></head>"
    "<body>{}<h1>A lamp</h1><p>{} <br/>Second line</p></body></html>"
)
EMPTY = (
    "script",
    "title",
    "style",
    "textarea",
    "iframe",
    "noscript",
    "select",
    "div",
    "a",
    "p",
    "span",
    "svg",
    "template",
)


@pytest.mark.parametrize("tag", EMPTY)
def test_an_empty_element_of_xhtml_does_not_take_the_page(tag: str) -> None:
    """A parser of HTML ignores the slash of `<title/>`, and takes all that follows for a title."""
    for page in (XHTML.format(f"<{tag} id='x' />", "", WELL), XHTML.format("", f"<{tag}/>", WELL)):
        shown = html_page(page)
        assert shown.title == "A lamp" and shown.text == f"A lamp\n\n{WELL}\nSecond line"


@pytest.mark.parametrize("tag", ["script", "title", "style", "textarea"])
def test_in_html_a_slash_counts_where_nothing_would_be_left(tag: str) -> None:
    assert html_page(f"<body><{tag}/><p>{WELL}").text == WELL
    if tag != "title":  # its words are shown
        assert html_page(f"<body><p>{WELL}</p><{tag}/><p>in</p></{tag}><p>after").text == f"{WELL}\n\nafter"
    assert html_page("<a href=http://a.org/>link</a> <a href=/b/>other</a>").text == "link other"


def test_marks_of_pages_in_a_book_are_no_depth() -> None:
    """Printed page numbers stand in chapters as empty elements, hundreds of them."""
    pages = "".join(f"<p>Lamp {number} <span id='p{number}'/>is lit</p>" for number in range(1200))
    shown = html_page(XHTML.format("", pages, WELL))
    assert "Lamp 1199 is lit" in shown.text and WELL in shown.text


@pytest.mark.parametrize(
    "hidden",
    [
        "<template><p>{}</p></template>", "<script type=text/template># {}</script>",
        "<script type='text/x-handlebars'>{}</script>", "<template><template>{}</template></template>",
    ],
)  # fmt: skip
def test_texts_that_scripts_fill_in_are_counted(hidden: str) -> None:
    page = html_page(f"<p>{WELL}</p>{hidden.format('the bucket')}<script>var bucket</script>")
    assert page.text == WELL
    assert [reason for reason, text in page.left if "bucket" in text] == ["template that scripts fill"]


@pytest.mark.parametrize("holder", ["script type='text/template'", "textarea data-template"])
def test_slides_in_markdown_are_text(holder: str) -> None:
    """A deck of reveal.js has the text of its slides in scripts."""
    tag = holder.split()[0]
    slides = "".join(
        f"<section data-markdown><{holder}>\n    ## Lamp {n}\n\n    {WELL}</{tag}></section>" for n in "12"
    )
    assert html_page(f"<div class=slides>{slides}</div>").text == "\n\n".join(f"## Lamp {n}\n\n{WELL}" for n in "12")
