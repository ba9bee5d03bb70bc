"""Remove known secrets from every external text before it is shown.

    printable(b'{"error": "bad key sk-1\\\\/2+3"}', 300, ["sk-1/2+3"])        # '{"error": "bad key [key]"}'
    error_words(error, ["sk-1/2+3"])                                       # an exception of a library, in one line

External text is first decoded (unprintable characters are removed), then masked in every encoding of the secret (plain,
URL, JSON, HTML, base64), and only then truncated: truncating first could leave an unrecognisable part of a secret. In
addition to the secrets that a caller passes, airgen always masks the proxies' user names and passwords, and every
environment variable whose name suggests a secret.
"""

import base64
import functools
import html
import math
import os
import re
import socket
import ssl
from collections.abc import Iterable, Sequence
from typing import Any
from urllib.parse import unquote
from urllib.request import getproxies

MASK = "[key]"
SHORTEST = 8  # characters: a shorter "key", such as "EMPTY" for a server of one's own, is no secret, and may be a word
_PIECE_CHARACTERS = 10  # maximum consecutive characters of a secret that a message may contain
_LONG_SECRET = 16  # a secret of this length is recognised by its parts
_WINDOW_CHARACTERS = 1 << 16  # characters of a text that are checked; a message shows far fewer
_SHORTEST_OF_PROXY = 4  # minimum characters of a user name or password that is masked everywhere
_ENCODING_LAYERS = 4  # maximum depth of nested encodings

_SECRET_NAME = re.compile(
    r"(?:^|_)(?:API_?KEY|(?:SECRET_|ACCESS_|PRIVATE_)?KEY|TOKEN|SECRET|PASSWORD|PASSWD|PASSPHRASE|PAT)$", re.IGNORECASE
)
_USER_INFO = re.compile(r"(?<=://)[^/\s@'\"]{1,500}@")
_UNSEEN = re.compile("[\x00-\x08\x0e-\x1f\x7f-\x9f\u00ad\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]")
_ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|x([0-9a-fA-F]{2})|([\"'/\\]))")
_BASE64 = re.compile("[^A-Za-z0-9+/_=-]")  # ends a run of it


def printable(text: str | bytes, longest: int = 500, secrets: Iterable[str] = ()) -> str:
    """Prepare an external text for a message, a log or a row, on one line.

    Args:
        text: The text as received.
        longest: The maximum number of characters of the result.
        secrets: What to mask, besides the secrets in the environment.

    Returns:
        The decoded, masked and truncated text.
    """
    text = text[: 4 * _WINDOW_CHARACTERS].decode("utf-8", "replace") if isinstance(text, bytes) else text
    whole, text = len(text) <= _WINDOW_CHARACTERS, _UNSEEN.sub("", text[:_WINDOW_CHARACTERS])
    known = [*dict.fromkeys(filter(None, (*secrets, *_of_environment())))]
    text = masked(text, known)
    for secret in known:
        if len(secret) >= _LONG_SECRET:
            text = _without_pieces(text, secret)
    text = _USER_INFO.sub(f"{MASK}@", text)
    if not whole:  # the end may be the beginning of a secret
        text = text[: max(longest, _WINDOW_CHARACTERS // 2)]
    return " ".join(text.split())[:longest]


def masked(text: str, secrets: Sequence[str]) -> str:
    """Return the text with all secrets masked, in any encoding; a text without secrets is unchanged."""
    if not secrets:
        return text
    while True:
        plain = text
        for _ in range(_ENCODING_LAYERS):
            if (clean := _replaced(plain, secrets)) != plain:
                break
            if (plain := _decoded(plain)) == clean:
                return text
        else:
            return text
        text = clean


def masked_value(value: Any, secrets: Sequence[str]) -> Any:
    """Mask the texts in a JSON value."""
    if isinstance(value, str):
        return masked(value, secrets)
    if isinstance(value, list):
        return [masked_value(item, secrets) for item in value]
    if isinstance(value, dict):
        return {masked(name, secrets): masked_value(item, secrets) for name, item in value.items()}
    return value


def holds_secret(content: bytes, secrets: Sequence[str]) -> bool:
    """Return whether a response contains a secret in any encoding, so that its texts must be masked individually."""
    if not secrets:
        return False
    text = content.decode("utf-8", "replace")
    if _replaced(text, secrets) != text:
        return True
    encoded = not text.isascii() or any(mark in text for mark in "\\%&")
    return encoded and masked(text, secrets) != text


def error_words(error: BaseException, secrets: Iterable[str] = (), longest: int = 300) -> str:
    """Describe a library's error on one line, preferring the operating system's words to the library's."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the certificate is not trusted: {printable(getattr(error, 'verify_message', ''), 200, secrets)}"
    if isinstance(error, ssl.SSLError):
        reason = str(getattr(error, "reason", None) or "the handshake failed")
        return f"TLS: {printable(reason.replace('_', ' ').lower(), 200, secrets)}"
    if isinstance(error, socket.gaierror):
        return printable(error.strerror or "the host name cannot be resolved", 100, secrets)
    if isinstance(error, OSError) and error.errno and error.errno > 0 and (words := os.strerror(error.errno)):
        return words
    return printable(str(error), longest, secrets) or type(error).__name__


def of_addresses(*addresses: str | None) -> list[str]:
    """Return the user name and password in URLs such as `http://user:password@proxy:8080`, in every form in which they
    are sent."""
    forms: list[str] = []
    for address in addresses:
        # A proxy's address may come without a scheme.
        named = address if address and "://" in address else f"http://{address or ''}"
        user_info, _, _ = named.partition("://")[2].partition("/")[0].rpartition("@")
        if not user_info:
            continue
        user, _, password = user_info.partition(":")
        pair = base64.b64encode(f"{unquote(user)}:{unquote(password)}".encode()).decode()
        forms += [user_info, pair, unquote(password), password, unquote(user), user]
    return [*dict.fromkeys(form for form in forms if len(form) >= _SHORTEST_OF_PROXY)]


def _of_environment() -> list[str]:
    """Return the secrets in the environment, longest first, so that a secret that contains another is masked as a
    whole."""
    named = [value.strip() for name, value in os.environ.items() if _SECRET_NAME.search(name)]
    secrets = [*(value for value in named if len(value) >= SHORTEST), *of_addresses(*getproxies().values())]
    return sorted(secrets, key=len, reverse=True)


def _replaced(text: str, secrets: Sequence[str]) -> str:
    for secret in secrets:
        if secret in MASK:
            continue
        text = text.replace(secret, MASK)
        if len(secret) >= SHORTEST:
            for core in _base64_cores(secret):
                if core in text:
                    text = _without_runs(text, core)
    return text


def _without_runs(text: str, core: str) -> str:
    """Remove the runs of base64 that contain `core` from the text."""
    pieces, done = [], 0
    while (place := text.find(core, done)) >= 0:
        before = _BASE64.search(text[done:place][::-1])
        after = _BASE64.search(text, place + len(core))
        pieces += [text[done : place - (before.start() if before else place - done)], MASK]
        done = after.start() if after else len(text)
    return "".join([*pieces, text[done:]])


def _decoded(text: str) -> str:
    """Remove one layer of JSON, URL and HTML encoding from the text."""
    text = _UNSEEN.sub("", text)
    if "\\" in text:
        text = _ESCAPE.sub(lambda match: match[3] or _character(match[1] or match[2]), text)
    if "%" in text:
        text = unquote(text)
    if "&" in text:
        text = html.unescape(text)
    return text


def _character(number: str) -> str:
    letter = chr(int(number, 16))
    return letter if not "\ud800" <= letter <= "\udfff" else "\ufffd"


@functools.lru_cache(maxsize=256)
def _base64_cores(secret: str) -> tuple[str, ...]:
    """Return the strings that occur in the base64 of any text with the secret, for each alignment and both
    alphabets."""
    raw, cores = secret.encode("utf-8", "replace"), []
    for before in range(3):
        encoded = base64.b64encode(bytes(before) + raw).decode()
        core = encoded[math.ceil(8 * before / 6) : 8 * (before + len(raw)) // 6]
        cores += [core, core.replace("+", "-").replace("/", "_")]
    return tuple(dict.fromkeys(core for core in cores if len(core) >= SHORTEST))


def _without_pieces(text: str, secret: str) -> str:
    """Remove runs of ten or more characters of a secret that was truncated elsewhere."""
    start = 0
    while start + _PIECE_CHARACTERS <= len(secret):
        place = text.find(secret[start : start + _PIECE_CHARACTERS])
        if place < 0:
            start += 1
            continue
        length = _PIECE_CHARACTERS
        while start + length < len(secret) and text[place : place + length + 1] == secret[start : start + length + 1]:
            length += 1
        text = f"{text[:place]}{MASK}{text[place + length :]}"
    return text
