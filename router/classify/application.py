"""Reads off a request what its application sends along each time; bounded, judges nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from router.types import Headers

MESSAGES_SEEN: Final = 8
PARTS_SEEN: Final = 8
TOOLS_SEEN: Final = 64
NAME_CHARS: Final = 64
HEADER_CHARS: Final = 1024

_CLIENTS: Final = (
    ("openai/python", "openai-python"),
    ("asyncopenai/python", "openai-python"),
    ("openai/js", "openai-node"),
    ("curl/", "curl"),
    ("mozilla/", "browser"),
)
OTHER_CLIENT: Final = "other"


def system_head(fields: Mapping[str, object], chars: int) -> str:
    """Return the first characters of the system prompt, in whichever dialect it is given.

    Args:
        fields: The body of a request; any JSON value in any field is accepted.
        chars: Most characters to return.
    """
    head = ""
    for text in _system_texts(fields):
        head = f"{head}\n{text[:chars]}" if head else text[:chars]
        if len(head) >= chars:
            return head[:chars]
    return head


def _system_texts(fields: Mapping[str, object]) -> list[str]:
    texts: list[str] = []
    for name in ("system", "instructions"):
        aside = fields.get(name)
        if aside is not None:
            texts += texts_of(aside)
    for message in messages_of(fields)[:MESSAGES_SEEN]:
        if not isinstance(message, dict) or message.get("role") not in ("system", "developer"):
            break
        texts += texts_of(message.get("content"))
    return texts


def messages_of(fields: Mapping[str, object]) -> list[object]:
    """Return the conversation, of chat or of the Responses dialect; empty where there is none."""
    for name in ("messages", "input"):
        messages = fields.get(name)
        if isinstance(messages, list):
            return messages
    return []


def texts_of(content: object) -> Sequence[str]:
    """Return the texts of a content of either form, of its first parts only."""
    if isinstance(content, str):
        return (content,)
    if not isinstance(content, list):
        return ()
    texts = (part.get("text") if isinstance(part, dict) else part for part in content[:PARTS_SEEN])
    return [text for text in texts if isinstance(text, str)]


def tool_names(fields: Mapping[str, object]) -> list[str]:
    """Return the names of the first tools offered, in their order."""
    tools = fields.get("tools") or fields.get("functions")
    names = []
    for tool in tools[:TOOLS_SEEN] if isinstance(tools, list) else ():
        function = tool.get("function", tool) if isinstance(tool, dict) else None
        name = function.get("name") if isinstance(function, dict) else None
        if isinstance(name, str):
            names.append(name[:NAME_CHARS])
    return names


def header_values(headers: Headers, name: str) -> list[str]:
    """Return the heads of all lines of a header.

    Args:
        headers: As the client sent them.
        name: In lower case.
    """
    # Most lines differ in length already; lowering costs more than looking.
    size = len(name)
    return [
        value[:HEADER_CHARS] for key, value in headers if len(key) == size and key.lower() == name
    ]


def header_value(headers: Headers, name: str) -> str:
    """Return the head of the first line of a header; empty where there is none."""
    size = len(name)
    for key, value in headers:
        if len(key) == size and key.lower() == name:
            return value[:HEADER_CHARS]
    return ""


def client_kind(headers: Headers) -> str:
    """Return the family of the program that sent a request."""
    return _kind_of(header_value(headers, "user-agent"))


@lru_cache(maxsize=128)
def _kind_of(agent: str) -> str:
    agent = agent.lower()
    for prefix, kind in _CLIENTS:
        if agent.startswith(prefix):
            return kind
    return "langchain" if "langchain" in agent else OTHER_CLIENT
