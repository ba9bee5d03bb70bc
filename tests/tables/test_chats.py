"""Conversations as chat tools, model APIs and datasets write them: every word that was said is read."""

import json
from pathlib import Path

import pytest
from refusals import refused

from airgen.corpus.readers.reader import Place
from airgen.corpus.readers.tabular import Fields, row_document
from airgen.errors import UsageError
from airgen.job.user_query_files import read_queries
from airgen.settings import QueriesSettings
from airgen.storage.records import Document
from airgen.tables.chats import messages_of, rich_text
from airgen.tables.documents import guess_fields

ASKED = "Why does the lathe stop after an hour of turning?"
ANSWERED = "Its thermal switch opens; blow the dust out of the motor and let it cool down before you start it again."
AGAIN = "And how often should the dust be blown out?"
LAST = "Once in a week, and at once after you have turned wet wood on it."


def node(key, said, *below, role="user"):
    parts = None if said is None else {
        "id": key, "author": {"role": role}, "content": {"content_type": "text", "parts": [said]}, "weight": 1.0,
    }  # fmt: skip
    return {"id": key, "message": parts, "parent": None, "children": list(below)}


# The nodes of the tree are not in their order in the file.
TREE = {
    "e": node("e", LAST, role="assistant"),
    "b": node("b", ASKED, "c"),
    "d": node("d", AGAIN, "e"),
    "c": node("c", ANSWERED, "d", role="assistant"),
    "a": node("a", None, "b"),
}
FORMS = {
    "a tree of nodes": {"title": "Lathe", "mapping": TREE, "current_node": "e", "conversation_id": "7c"},
    "messages of an API": {
        "messages": [
            {"role": "system", "content": "You know machines."}, {"role": "user", "content": ASKED},
            {"role": "assistant", "content": ANSWERED}, {"role": "user", "content": AGAIN},
            {"role": "assistant", "content": LAST},
        ]
    },
    "parts": {
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": ASKED}, {"type": "image", "url": "d"}]},
            {"role": "assistant", "content": [{"type": "output_text", "text": ANSWERED}]},
            {"role": "user", "content": AGAIN}, {"role": "assistant", "content": LAST},
        ]
    },
    "senders": {
        "uuid": "u7", "name": "Lathe",
        "chat_messages": [
            {"uuid": "1", "sender": "human", "text": ASKED, "content": [{"type": "text", "text": ASKED}]},
            {"uuid": "2", "sender": "assistant", "text": ANSWERED, "content": [{"type": "text", "text": ANSWERED}]},
            {"uuid": "3", "sender": "human", "text": AGAIN, "content": []},
            {"uuid": "4", "sender": "assistant", "text": "", "content": [{"type": "text", "text": LAST}]},
        ],
    },
    "from and value": {
        "id": "s7",
        "conversations": [
            {"from": "human", "value": ASKED}, {"from": "gpt", "value": ANSWERED}, {"from": "human", "value": AGAIN},
            {"from": "gpt", "value": LAST},
        ],
    },
    "LangChain's classes": {
        "id": "r7", "outputs": {"generations": "an answer that is no query of anybody"},
        "inputs": {
            "messages": [[
                {"lc": 1, "id": ["langchain", "schema", f"{kind}Message"], "kwargs": {"content": said}}
                for kind, said in (("Human", ASKED), ("AI", ANSWERED), ("Human", AGAIN), ("AI", LAST))
            ]]
        },
    },
    "written in a cell": {
        "id": 7,
        "messages": json.dumps([
            {"role": role, "content": said}
            for role, said in (("user", ASKED), ("assistant", ANSWERED), ("user", AGAIN), ("assistant", LAST))
        ]),
    },
    "a trace": {
        "id": "t7", "output": "an answer that is no query of anybody",
        "input": {"messages": [{"type": "human", "content": ASKED}, {"type": "ai", "content": ANSWERED},
                               {"type": "human", "data": {"content": AGAIN}}, {"type": "ai", "content": LAST}]},
    },
}  # fmt: skip


@pytest.mark.parametrize("form", FORMS)
def test_every_word_of_a_conversation_is_text_and_what_people_asked_are_queries(form: str, tmp_path: Path) -> None:
    row = FORMS[form]
    fields = Fields(**guess_fields([row, row, row]))
    documents = list(row_document(row, fields, Place(tmp_path), source="chats.json", position="row 0"))
    assert isinstance(documents[0], Document)
    places = [documents[0].text.index(said) for said in (ASKED, ANSWERED, AGAIN, LAST)]
    assert places == sorted(places)
    for name, text in {"log.json": json.dumps([row]), "log.jsonl": json.dumps(row) + "\n"}.items():
        (tmp_path / name).write_text(text)
        own = read_queries(QueriesSettings(file=name), tmp_path / name, "en")
        assert [line.text for line in own.lines] == [ASKED, AGAIN]
        assert "1 of 2 follow an earlier message" in own.about


def test_a_message_keeps_its_attachments_and_counts_reasoning(tmp_path: Path) -> None:
    thought = "They may have a worn belt in mind."
    messages = [
        {"sender": "human", "text": ASKED, "attachments": [{"name": "m", "extracted_content": "The manual's page."}]},
        {"sender": "assistant", "content": [{"thinking": thought}, {"type": "text", "text": ANSWERED}]},
    ]  # fmt: skip
    fields = Fields(id=None, title=None, text="said")
    document, left = row_document({"said": messages}, fields, Place(tmp_path), source="a", position="row 0")
    assert document.text == f"{ASKED}\n\nThe manual's page.\n\n{ANSWERED}"
    assert (left.text, left.reason) == (thought, left.reason) and "not text" in left.reason


def test_other_lists_are_no_conversations() -> None:
    for value in (
        [{"text": "a review of a lathe", "author": "Ann"}, {"text": "another", "author": "Bob"}],
        [{"id": 1}], [], {}, ["user"], {"a": 1}, {"a": {"children": []}}, None, "user: hi", [[]],
    ):  # fmt: skip
        assert messages_of(value) is None


def test_a_tree_with_a_circle_or_lost_nodes_is_read_once() -> None:
    tree = {
        "a": node("a", "first of all", "b"), "b": node("b", "then this", "a", "gone"),
        "c": node("c", "and this one, too", "c"),
    }  # fmt: skip
    messages = messages_of(tree)
    assert messages is not None
    assert sorted(message.text for message in messages) == ["and this one, too", "first of all", "then this"]


def test_rich_text_is_one_text() -> None:
    assert rich_text(["See ", {"type": "link", "text": "page 2"}, "."]) == "See page 2."
    assert rich_text([{"text": "one"}, {"text": "two"}]) == "one\ntwo"
    assert rich_text(["only", "texts"]) is rich_text([{"text": 1}]) is rich_text([]) is None


def test_a_row_with_a_question_of_its_own_is_no_conversation(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    path.write_text(
        json.dumps({"question": "how is a lathe cleaned", "messages": [{"role": "user", "content": ASKED}]})
    )
    assert [line.text for line in read_queries(QueriesSettings(file="log.jsonl"), path, "en").lines] == [
        "how is a lathe cleaned"
    ]


def test_answers_and_ids_are_no_queries(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    path.write_text(json.dumps({"prompt_id": "ab", "outputs": {"text_out": "It is the thermal switch."}}) + "\n")
    with refused(UsageError, "unclear_column", where="log.jsonl"):
        read_queries(QueriesSettings(file="log.jsonl"), path, "en")
    tree = {"message_tree_id": "x", "prompt": {"text": ASKED, "role": "prompter", "replies": [
        {"text": ANSWERED, "role": "assistant"}]}}  # fmt: skip
    path.write_text(json.dumps(tree) + "\n")
    assert [line.text for line in read_queries(QueriesSettings(file="log.jsonl"), path, "en").lines] == [ASKED]
