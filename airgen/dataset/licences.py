"""The Hub's names of licences, and whether a licence allows redistribution.

A dataset of airgen is an adaptation of its source: it holds passages of the source and generated hard negatives. So
publishing needs a licence that allows redistribution of adaptations.
"""

from __future__ import annotations

import re

from airgen.errors import DatasetError

# The Hub's identifiers, without those for models.
_HUB_NAMES = """
apache-2.0 mit afl-3.0 artistic-2.0 bsl-1.0 bsd bsd-2-clause bsd-3-clause bsd-3-clause-clear c-uda
cc cc0-1.0 cc-by-2.0 cc-by-2.5 cc-by-3.0 cc-by-4.0 cc-by-sa-3.0 cc-by-sa-4.0
cc-by-nc-2.0 cc-by-nc-3.0 cc-by-nc-4.0 cc-by-nd-4.0 cc-by-nc-nd-3.0 cc-by-nc-nd-4.0
cc-by-nc-sa-2.0 cc-by-nc-sa-3.0 cc-by-nc-sa-4.0 cdla-sharing-1.0 cdla-permissive-1.0 cdla-permissive-2.0
wtfpl ecl-2.0 epl-1.0 epl-2.0 etalab-2.0 eupl-1.1 agpl-3.0 gfdl gpl gpl-2.0 gpl-3.0 lgpl lgpl-2.1 lgpl-3.0 lgpl-lr
isc lppl-1.3c ms-pl mpl-2.0 odc-by odbl osl-3.0 postgresql ofl-1.1 ncsa unlicense zlib pddl unknown other
"""
_HUB = frozenset(_HUB_NAMES.split())
_ALIASES = {
    "public-domain": "cc0-1.0",
    "odc-by-1.0": "odc-by",
    "odbl-1.0": "odbl",
    "pddl-1.0": "pddl",
    "gpl-3.0-only": "gpl-3.0",
    "gpl-3.0-or-later": "gpl-3.0",
    "gpl-2.0-only": "gpl-2.0",
    "gpl-2.0-or-later": "gpl-2.0",
}

_FORBIDDING = (
    (re.compile(r"\bnd\b|no[- ]?derivat", re.I), "it allows no derivatives, and this dataset is one"),
    (re.compile(r"all rights reserved|proprietary|confidential|closed", re.I), "it keeps all rights"),
    (re.compile(r"no[nt]?[- ]?(re)?distribut|not be (re)?distributed|internal use", re.I), "it forbids redistribution"),
    (re.compile(r"arxiv.{0,200}?(non-?exclusive|perpetual)", re.I), "it lets only arXiv distribute the text"),
)
_UNKNOWN = re.compile(r"^\W*+(?:(?:unknown|none|n/?a|unspecified|other)\W*+)?$", re.I)


def hub_licence(licence: str) -> str:
    """The Hub's identifier of a licence, or `other`.

    >>> hub_licence("CC BY-NC-SA 4.0"), hub_licence("GPL-3.0-or-later"), hub_licence("Python-2.0")
    ('cc-by-nc-sa-4.0', 'gpl-3.0', 'other')
    """
    name = re.sub(r"[\s_]+", "-", licence.strip().lower())
    name = _ALIASES.get(name, name)
    return name if name in _HUB else "other"


def check_redistribution(licence: str, *, permission: str = "") -> None:
    """Raise DatasetError, which quotes the licence, if it forbids redistribution or is unknown.

    `permission` quotes the permission of the holder of the rights, if there is one; the card's notes keep it.
    """
    if permission.strip():
        return
    for pattern, reason in _FORBIDDING:
        if pattern.search(licence):
            raise DatasetError(
                f"the source's licence is {licence!r}: {reason}. It is not published; "
                "if the holder of the rights allows it, give their words with --permission"
            )
    if _UNKNOWN.match(licence):
        raise DatasetError(
            f"the source's licence is {licence!r}: without one, nothing can be redistributed. Name the licence in the "
            "corpus's YAML, or quote the permission of the holder of the rights with --permission"
        )
