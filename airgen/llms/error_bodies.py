"""Find what a server says in the parsed body of an error, which every service writes in its own form.

error_in({"error": {"message": "no such model", "code": 404}})       # ("no such model", "404")
error_in({"base_resp": {"status_code": 1008, "status_msg": "insufficient balance"}})
error_in([{"error": {"message": "quota exceeded", "code": 429}}])
"""

import json
from typing import Any

LONGEST_ERROR = 10_000  # characters of a body that are searched for an error message
_MESSAGES = ("message", "detail", "msg", "status_msg", "error_msg", "reason")
_CODES = ("code", "type", "status_code", "error_code")


def error_in(payload: Any) -> tuple[str, str]:
    """Return the message and the code in a parsed error body; a body in an unknown form is its own message."""
    try:
        error = _error(payload)
        if isinstance(error, dict):
            said = next((error[name] for name in _MESSAGES if error.get(name)), None)
            words = json.dumps(error) if said is None or isinstance(said, dict) else str(said)
            code = next((str(error[name]) for name in _CODES if error.get(name)), "")
            metadata = error.get("metadata")  # of a router, whose own message only says that there was an error
            raw = metadata.get("raw") if isinstance(metadata, dict) else None
            words += f": {raw}" if isinstance(raw, str) and raw.strip() else ""
            return words[:LONGEST_ERROR], code[:100]
        return "" if error is None else str(error)[:LONGEST_ERROR], ""
    except RecursionError:
        return "", ""


def stated_error(payload: Any) -> str:
    """Return the message of a body that names an error; "" for a body in another form."""
    error = _error(payload)
    if isinstance(payload, dict) and error is payload and not any(isinstance(payload.get(n), str) for n in _MESSAGES):
        return ""
    return error_in(payload)[0] if isinstance(error, dict | str) else ""


def _error(payload: Any) -> Any:
    if isinstance(payload, list) and len(payload) == 1:
        payload = payload[0]
    if not isinstance(payload, dict):
        return payload
    return next((payload[name] for name in ("error", "base_resp") if payload.get(name)), payload)
