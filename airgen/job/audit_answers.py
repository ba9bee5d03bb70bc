"""People's answers about a job's labels: the valid answers, and how many labels they confirm.

    runs/NAME/people.jsonl     people's labels, which are used in every later export
    runs/NAME/checked.json     the figures of the last audit and the fingerprint of its labels

An answer belongs to the texts of a query and a passage. It becomes invalid if one of them changes, and remains valid if
only the model's label changes.
"""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from airgen.components.keys import file_sha256
from airgen.dataset.human_labels import PersonsLabel, newer, pair_mark, read_labels
from airgen.steps.accepted import Accepted
from airgen.steps.public_ids import PublicIds
from airgen.steps.step import Plan
from airgen.storage.json_values import DAMAGE, read_json, write_json
from airgen.storage.records import Decision
from airgen.storage.store import Store

LABELS, CHECKED = "people.jsonl", "checked.json"


def labels_digest(directory: Path) -> str | None:
    """Return a digest of the valid answers, or None if there are none."""
    path = directory / LABELS
    return file_sha256(path) if path.is_file() else None


def labels_in_force(
    directory: Path, store: Store, plan: Plan, accepted: Accepted, ids: PublicIds
) -> tuple[list[PersonsLabel], int]:
    """Return people's labels whose texts are unchanged, and the number of the others.

    The texts identify a label whose ids have changed. A label whose query or passage no longer exists is one of the
    others. Raises DatasetError if the file is damaged.
    """
    labels = read_labels(directory / LABELS)
    if not labels:
        return [], 0
    queries = {ids.query(lineage): lineage.final.text for lineage in accepted.lineages}
    texts = document_texts(store, plan, accepted=accepted, ids=ids, wanted={label.document for label in labels})
    valid, unknown = list[PersonsLabel](), dict[str, PersonsLabel]()
    for label in labels:
        if label.query not in queries or label.document not in texts:
            unknown[label.mark] = label
        elif label.mark in ("", pair_mark(queries[label.query], *texts[label.document])):
            valid.append(label)
    unknown.pop("", None)
    renamed = _renamed(unknown, store, plan, accepted=accepted, ids=ids) if unknown else []
    valid = newer(renamed, valid)
    return valid, len(labels) - len(valid)


def _renamed(
    labels: Mapping[str, PersonsLabel], store: Store, plan: Plan, accepted: Accepted, ids: PublicIds
) -> list[PersonsLabel]:
    """Return labels by the mark of their texts with the present ids of these texts, if the pair was judged."""
    judged = dict[str, list[Decision]]()
    for row in store.rows_of(Decision, plan.get("decision", ""), accepted.keys):
        judged.setdefault(row.parent, []).append(row)
    wanted = {row.id for rows in judged.values() for row in rows}
    texts = store.passages_named(plan["corpus"], wanted, "t.title, t.text") | {
        row.id: (row.title, row.text) for lineage in accepted.lineages for row in lineage.hard_negatives
    }
    pairs = {
        pair_mark(lineage.final.text, *texts[row.id]): (ids.query(lineage), ids.document(row.id))
        for lineage in accepted.lineages
        for row in judged.get(lineage.final.key, ())
        if row.id in texts
    }
    return [
        replace(label, query=pairs[mark][0], document=pairs[mark][1]) for mark, label in labels.items() if mark in pairs
    ]


def document_texts(
    store: Store, plan: Plan, accepted: Accepted, ids: PublicIds, wanted: set[str]
) -> dict[str, tuple[str, str]]:
    """Return the title and text of documents by public id."""
    texts = {}
    for passage in store.passages(plan["corpus"]):
        if (name := ids.document(passage.id)) in wanted:
            texts[name] = (passage.title, passage.text)
    for lineage in accepted.lineages:
        for row in lineage.hard_negatives:
            if (name := ids.document(row.id)) in wanted:
                texts[name] = (row.title, row.text)
    return texts


def keep_checked(directory: Path, decisions: str, figures: dict[str, Any]) -> None:
    """Save the figures of an audit with the fingerprint of its labels."""
    write_json(directory / CHECKED, {"decisions": decisions, "figures": figures})


def checked(directory: Path, decisions: str) -> dict[str, Any] | None:
    """Return the figures of the last audit, or None if there was none or its labels were different."""
    try:
        value = read_json(directory / CHECKED)
        return dict(value["figures"]) if value["decisions"] == decisions else None
    except DAMAGE:
        return None  # it is missing or damaged; `airgen audit score` writes it again


def last_checked(directory: Path) -> dict[str, Any] | None:
    """Return the figures of the last audit, also if its labels have changed since, or None if there was none."""
    try:
        return dict(read_json(directory / CHECKED)["figures"])
    except DAMAGE:
        return None


def has_answers(directory: Path) -> bool:
    """Return whether people have answered questions about this job, including answers that are no longer valid."""
    return (directory / CHECKED).is_file() or bool(labels_digest(directory))
