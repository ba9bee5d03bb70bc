"""Files of expansions: one row a passage, {"_id": ..., "queries": [...]}; made by `airgen train expand`."""

from __future__ import annotations

import json
from pathlib import Path

from airgen.errors import DatasetError


def read_expansions(path: Path) -> dict[str, list[str]]:
    """{passage id: queries}. Raises DatasetError for a file that is missing, or a line of another form."""
    found: dict[str, list[str]] = {}
    try:
        with path.open(encoding="utf-8") as lines:
            for number, line in enumerate(lines, 1):
                if not line.strip():
                    continue
                row = json.loads(line)
                queries = row.get("queries") if isinstance(row, dict) else None
                if (
                    not isinstance(queries, list)
                    or not all(isinstance(one, str) for one in queries)
                    or "_id" not in row
                ):
                    raise DatasetError(
                        f"{path}:{number}: an object is needed with _id and with queries, a list of texts"
                    )
                found[str(row["_id"])] = queries
    except OSError as error:
        raise DatasetError(f"{path}: cannot be read ({error.strerror}): `airgen train expand` makes it") from error
    except ValueError as error:
        raise DatasetError(f"{path}: not JSON lines in UTF-8 ({error})") from error
    return found
