"""Read the messages of conversations in the forms that chat tools, model APIs and datasets use.

    messages_of([{"role": "user", "content": "How do I ..."}])        # [ChatMessage("user", "How do I ...")]
    messages_of({"a1": {"message": {"author": {"role": "user"}, "content": {"parts": ["How ..."]}}, "children": []}})
    conversation({"id": 7, "input": {"messages": [..]}})             # ("input.messages", [ChatMessage(..), ..])
    rich_text(["See ", {"type": "link", "text": "page 2"}])          # "See page 2"

A message has a role or a sender that chat tools use, and its text in one of several members: a text, a list of parts,
or an object. Its other texts, such as a model's reasoning, are in `rest`.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

PEOPLE = frozenset({"user", "human", "prompter", "humanmessage"})
_ROLES = PEOPLE | {
    "assistant", "system", "developer", "gpt", "chatgpt", "bot", "ai", "model", "tool", "function", "observation",
    "aimessage", "systemmessage", "toolmessage", "bing", "bard", "claude",
}  # fmt: skip
_ROLE_MEMBERS = ("role", "from", "sender", "author", "speaker", "id", "type")
_TEXT_MEMBERS = ("content", "text", "value", "parts", "body", "data", "kwargs", "message", "result", "input_text")
_CHILDREN = ("children", "childrenIds")
_ATTACHED = "extracted_content"
_MAX_DEPTH = 6  # of parts inside parts
_MIN_WORDS = 3  # of a text beside the messages: shorter ones are names and states
_MAX_CELL_CHARACTERS = 1 << 20  # of a conversation in one cell
_LEVELS = 3  # of objects around a conversation


class ChatMessage(NamedTuple):
    """A message: its role in lower case, its text, and other texts in it."""

    role: str
    text: str
    rest: tuple[str, ...] = ()

    @property
    def is_by_person(self) -> bool:
        """Return whether a person wrote it."""
        return self.role in PEOPLE


def messages_of(value: Any) -> list[ChatMessage] | None:
    """Return the messages of a list of messages, or of a tree of nodes by id, in its order; None for anything else."""
    if isinstance(value, str):
        value = _written(value)
    if isinstance(value, list):
        items = value[0] if len(value) == 1 and isinstance(value[0], list) else value  # a batch of one
    elif isinstance(value, Mapping) and len(value) > 0 and all(map(_is_node, value.values())):
        items = _in_order(value)
    else:
        return None
    items = [item["message"] if _has_message(item) else item for item in items]
    items = [item for item in items if item is not None]
    if not items or not all(
        isinstance(item, Mapping) and any(name in item for name in _TEXT_MEMBERS) for item in items
    ):
        return None
    roles = [_role(item) for item in items]
    if not any(role in _ROLES for role in roles):
        return None
    return [_message(item, role) for item, role in zip(items, roles, strict=True)]


def conversation(row: Mapping[str, Any], levels: int = _LEVELS) -> tuple[str, list[ChatMessage]] | None:
    """Return (dotted path, messages) of the first conversation in a row; None if there is none."""
    for name, value in row.items():
        if (messages := messages_of(value)) is not None:
            return name, messages
    for name, value in row.items() if levels else ():
        if isinstance(value, Mapping) and (inner := conversation(value, levels - 1)) is not None:
            return f"{name}.{inner[0]}", inner[1]
    return None


def rich_text(value: Any) -> str | None:
    """Return the text of a list of texts and of objects with a text, as editors store it; None for anything else.

    Objects between texts are parts of a line. A list of objects alone has a part on each line.
    """
    if not isinstance(value, list) or not value:
        return None
    texts = [
        item if isinstance(item, str) else item.get("text") if isinstance(item, Mapping) else None for item in value
    ]
    if not any(isinstance(item, Mapping) for item in value) or any(not isinstance(text, str) for text in texts):
        return None
    return ("" if any(isinstance(item, str) for item in value) else "\n").join(texts)  # type: ignore[arg-type]


def as_text(value: Any) -> str | None:
    """Return the text of a cell: a text, a list of texts, rich text, or the messages of a conversation; None for
    anything else."""
    if isinstance(value, str):
        return value
    if (messages := messages_of(value)) is not None:
        return "\n\n".join(message.text for message in messages if message.text)
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        return "\n".join(value)
    return rich_text(value)


def _written(text: str) -> Any:
    """Return the list that a cell holds as JSON; None for another text."""
    if not (text.startswith("[{") and text.endswith("}]")) or len(text) > _MAX_CELL_CHARACTERS:
        return None
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _has_message(item: Any) -> bool:
    return isinstance(item, Mapping) and "message" in item and isinstance(item["message"], Mapping | None)


def _is_node(item: Any) -> bool:
    """Return whether an object is a node of a tree of messages."""
    return isinstance(item, Mapping) and (_has_message(item) or any(name in item for name in _CHILDREN))


def _in_order(nodes: Mapping[str, Any]) -> list[Any]:
    """Return the nodes of a tree, each before its children; those that no root leads to come last."""
    children = {key: _children(node) for key, node in nodes.items()}
    below = {child for names in children.values() for child in names}
    order: dict[str, None] = {}
    stack = [key for key in reversed(list(nodes)) if key not in below]
    while stack:
        key = stack.pop()
        if key in nodes and key not in order:
            order[key] = None
            stack += reversed(children[key])
    return [nodes[key] for key in [*order, *(key for key in nodes if key not in order)]]


def _children(node: Mapping[str, Any]) -> list[str]:
    names: Sequence[Any] = next((node[name] for name in _CHILDREN if isinstance(node.get(name), list)), [])
    return [name for name in names if isinstance(name, str)]


def _role(item: Mapping[str, Any]) -> str:
    for name in _ROLE_MEMBERS:
        value = item.get(name)
        if name == "id" and isinstance(value, list) and value:  # LangChain's: the path of a class
            value = value[-1]
        if isinstance(value, Mapping):
            value = value.get("role") or value.get("name")
        if isinstance(value, str) and (value.lower() in _ROLES or name not in ("type", "id")):
            return value.lower()
    return ""


def _message(item: Mapping[str, Any], role: str) -> ChatMessage:
    texts, rest = list[str](), list[str]()
    for name in _TEXT_MEMBERS:
        if name in item:
            said, others = list[str](), list[str]()
            _collect(item[name], said, others, _MAX_DEPTH)
            rest += others
            if not texts:
                texts = said
    for attached in item.get("attachments") or ():
        if isinstance(attached, Mapping) and isinstance(attached.get(_ATTACHED), str):
            texts.append(attached[_ATTACHED])
    known = "\n\n".join(texts)
    return ChatMessage(role, known, tuple(dict.fromkeys(text for text in rest if text not in known)))


def _collect(value: Any, texts: list[str], rest: list[str], depth: int) -> None:
    """Add the texts of a content to `texts`, and other texts of some words in it to `rest`."""
    if isinstance(value, str):
        if value.strip():
            texts.append(value)
    elif not depth:
        return
    elif (rich := rich_text(value)) is not None:
        texts += [rich] if rich.strip() else []
    elif isinstance(value, list):
        for item in value:
            _collect(item, texts, rest, depth - 1)
    elif isinstance(value, Mapping):
        for name, member in value.items():
            if name in _TEXT_MEMBERS:
                _collect(member, texts, rest, depth - 1)
            else:
                rest += [text for text in _strings(member, depth) if len(text.split()) >= _MIN_WORDS]


def _strings(value: Any, depth: int) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif depth and isinstance(value, Mapping | list):
        for member in value.values() if isinstance(value, Mapping) else value:
            yield from _strings(member, depth - 1)
