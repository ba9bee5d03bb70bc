"""Advice on files that no reader supports: `advice("talk.odp")` is "" for files that are not documents."""

from pathlib import PurePath

_CONVERTED = "convert it with pandoc (pandoc FILE -o FILE.md)"
_ADVICE = {
    ".doc .rtf .wpd .pages .fodt .abw .hwp .sxw": "save it as .docx (soffice --headless --convert-to docx FILE)",
    ".ppt .odp .key .pps": "save it as .pptx or PDF (soffice --headless --convert-to pptx FILE)",
    ".xls .xlsx .xlsm .xlsb .ods .numbers": "export each sheet as CSV (soffice --headless --convert-to csv FILE)",
    ".tex .ltx .textile .wiki .mediawiki .dokuwiki .opml .fb2 .muse .t2t .typ .pod .rdoc .man .texi": _CONVERTED,
    ".xml .dita .ditamap .docbook .dbk .xliff": "convert it to HTML or Markdown (pandoc -f docbook, dita, xsltproc)",
    ".mobi .azw .azw3 .lit .djvu .xps .chm .prc": "convert it to EPUB or PDF (ebook-convert FILE FILE.epub)",
    ".ps .eps .dvi": "convert it to PDF (ps2pdf)",
    ".msg .pst .ost": "save the messages as .eml, or use `kind: llama-index` with an Outlook reader",
    ".zip .tar .tgz .tbz2 .txz .7z .rar .jar .dmg": "unpack it",
    ".db .sqlite .sqlite3 .mdb .accdb .dump": "export it as CSV, or use `kind: llama-index` with a reader of databases",
    ".arrow .feather .orc .avro .pkl .pickle .h5 .npz .sav .dta .rds": "convert it to Parquet or CSV",
    ".warc .wacz .har .one .onetoc2 .enex .vsd .vsdx .drawio .webarchive": "export it as HTML or PDF",
    ".mp3 .mp4 .wav .m4a .ogg .webm .mov .mkv": "add a transcript (.txt, .srt or .vtt)",
    ".tif .tiff .heic": "recognise its text (ocrmypdf) and save it as PDF",
}
_BY_ENDING = {ending: words for endings, words in _ADVICE.items() for ending in endings.split()}
# Files without text: pictures, fonts, styles, programs.
WITHOUT_TEXT = frozenset((
    ".png", ".jpg", ".jpeg", ".gif", ".svg", ".svgz", ".webp", ".ico", ".bmp", ".avif", ".xcf", ".psd", ".ai", ".icns",
    ".woff", ".woff2", ".ttf", ".otf", ".eot", ".css", ".scss", ".less", ".js", ".mjs", ".map", ".ts", ".wasm",
    ".pyc", ".so", ".dll", ".exe", ".o", ".a", ".class", ".lock", ".sha256", ".md5", ".asc", ".sig",
))  # fmt: skip
_PACKINGS = (".gz", ".bz2", ".xz", ".zst", ".lz4", ".br", ".z")


def ending(name: str) -> str:
    """Return the extension of a file name, including that of a compressed file (".csv.xz"), or ""."""
    path = PurePath(name.lower())
    inner = PurePath(path.stem).suffix
    return inner + path.suffix if path.suffix in _PACKINGS and inner in (*_BY_ENDING, *_TEXT) else path.suffix


def advice(name: str) -> str:
    """Return what to do with a file of this name, which no reader supports."""
    known = ending(name)
    return "unpack it" if known.count(".") > 1 else _BY_ENDING.get(known, "")


def no_reader(name: str) -> str:
    """Return the reason for dropping such a file."""
    return f"no reader for {ending(name)} files"


_TEXT = (
    ".tar", ".txt", ".md", ".html", ".json", ".jsonl", ".csv", ".tsv", ".pdf", ".docx", ".epub", ".rst", ".parquet",
    ".ipynb", ".pptx", ".odt", ".eml", ".mbox", ".xhtml", ".ndjson",
)  # fmt: skip
