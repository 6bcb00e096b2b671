"""Takes a bounded look at a parsed request, whatever its size and however odd; judges nothing."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

if TYPE_CHECKING:
    from router.types import ParsedRequest

TURN_HEAD_CHARS: Final = 4096
TURN_TAIL_CHARS: Final = 2048
ASIDE_HEAD_CHARS: Final = 1024
ASIDE_TAIL_CHARS: Final = 512
MESSAGES_SEEN: Final = 32
"""Messages looked at from either end."""
PARTS_SEEN: Final = 8
"""Content parts looked at from either end of a message."""
TOOLS_SEEN: Final = 16
NAME_CHARS: Final = 64

SCRIPT_CHARS: Final = 120
"""Characters by which the script is judged."""

Script = Literal["latin", "cyrillic", "arabic", "devanagari", "kana", "hangul", "han", "other"]

_SCRIPTS: Final[tuple[tuple[Script, re.Pattern[str]], ...]] = (
    # Kana before Han: Japanese has both, Chinese only Han.
    ("kana", re.compile("[\u3040-\u30ff]")),
    ("han", re.compile("[\u3400-\u9fff]")),
    ("hangul", re.compile("[\uac00-\ud7af]")),
    ("arabic", re.compile("[\u0600-\u06ff\u0750-\u077f\ufb50-\ufdff\ufe70-\ufeff]")),
    ("cyrillic", re.compile("[\u0400-\u052f]")),
    ("devanagari", re.compile("[\u0900-\u097f]")),
    ("latin", re.compile("[A-Za-z\u00c0-\u024f\u1e00-\u1eff]")),
)

Constraint = Literal["", "json", "choice", "regex", "grammar"]

_CONSTRAINTS: Final[tuple[tuple[str, Constraint], ...]] = (
    ("guided_json", "json"),
    ("json_schema", "json"),
    ("json", "json"),
    ("json_object", "json"),
    ("structural_tag", "json"),
    ("guided_choice", "choice"),
    ("choice", "choice"),
    ("guided_regex", "regex"),
    ("regex", "regex"),
    ("guided_grammar", "grammar"),
    ("grammar", "grammar"),
)
"""Fields of a body, or of `structured_outputs`, by which engines are told a form."""


@dataclass(frozen=True, slots=True)
class Excerpt:
    """The beginning and the end of a text."""

    head: str = ""
    tail: str = ""
    """Empty where `head` holds the whole text."""
    chars: int = 0
    """Length of the text; a lower bound where it came in many parts."""


@dataclass(frozen=True, slots=True)
class RequestView:
    """What classifying may look at; its size does not depend on the request's.

    Attributes:
        turn: The last user turn, or the prompt of a completion.
        system: The system or developer messages at the beginning.
        prior: The assistant's answer before the last user turn, which "this" may refer to.
        prefill: The assistant's beginning of the answer, to be continued.
        script: The script that most of the beginning of the turn is written in.
        fences: Fences of code blocks in the turn's excerpt.
        roles: Roles of the last messages, oldest first.
        message_count: Number of messages.
        steps_after_turn: Messages after the last user turn: above 0 in a running agent loop.
        tool_names: Names of the first tools offered.
        tool_count: Number of tools that may be called.
        tool_forced: Whether a call is demanded.
        constraint: The form that the engine will enforce.
        completion: Whether it is a bare prompt to be continued.
        infill: Whether text after the gap is given.
        token_prompt: Whether the prompt came as token ids, so there is no text to read.
    """

    turn: Excerpt = Excerpt()
    system: Excerpt = Excerpt()
    prior: Excerpt = Excerpt()
    prefill: Excerpt = Excerpt()
    script: Script = "latin"
    fences: int = 0
    roles: tuple[str, ...] = ()
    message_count: int = 0
    steps_after_turn: int = 0
    tool_names: tuple[str, ...] = ()
    tool_count: int = 0
    tool_forced: bool = False
    constraint: Constraint = ""
    completion: bool = False
    infill: bool = False
    token_prompt: bool = False


def view_request(request: ParsedRequest) -> RequestView:
    """Look at a request; any JSON value in any field is accepted."""
    fields = request.fields
    messages = fields.get("messages")
    if isinstance(messages, list) and messages:
        return _view_chat(messages, fields)
    return _view_completion(fields)


def _view_chat(messages: list[object], fields: Mapping[str, object]) -> RequestView:
    last = messages[-MESSAGES_SEEN:]
    roles = tuple(map(_role, last))
    at = _last_index(roles, "user")
    if at is None:
        # A long agent loop: its task is the latest user turn near the beginning.
        first = messages[:MESSAGES_SEEN]
        early = _last_index(tuple(map(_role, first)), "user")
        turn = _content(first[early]) if early is not None else None
        steps_after = len(messages) - 1 - early if early is not None else len(messages)
        prior = None
    else:
        turn = _content(last[at])
        steps_after = len(last) - 1 - at
        before = _last_index(roles[:at], "assistant")
        prior = _content(last[before]) if before is not None else None
    final = last[-1]
    prefilled = isinstance(final, dict) and roles[-1] == "assistant" and not final.get("tool_calls")
    names, count, forced = _tools(fields)
    excerpt = _excerpt(turn, TURN_HEAD_CHARS, TURN_TAIL_CHARS)
    return RequestView(
        turn=excerpt,
        script=_script(excerpt.head),
        fences=_fences(excerpt),
        system=_system(messages),
        prior=_excerpt(prior, ASIDE_HEAD_CHARS, ASIDE_TAIL_CHARS),
        prefill=_excerpt(
            _content(final) if prefilled else None, ASIDE_HEAD_CHARS, ASIDE_TAIL_CHARS
        ),
        roles=roles,
        message_count=len(messages),
        steps_after_turn=steps_after - prefilled,
        tool_names=names,
        tool_count=count,
        tool_forced=forced,
        constraint=_constraint(fields),
    )


def _view_completion(fields: Mapping[str, object]) -> RequestView:
    prompt = fields.get("prompt")
    if isinstance(prompt, list) and prompt and isinstance(prompt[0], str):
        # A batch shares its purpose, so its first prompt stands for all.
        prompt = prompt[0]
    excerpt = _excerpt(prompt, TURN_HEAD_CHARS, TURN_TAIL_CHARS)
    return RequestView(
        turn=excerpt,
        script=_script(excerpt.head),
        fences=_fences(excerpt),
        constraint=_constraint(fields),
        completion=True,
        infill=isinstance(fields.get("suffix"), str) and bool(fields["suffix"]),
        token_prompt=isinstance(prompt, list) and bool(prompt),
    )


def _role(message: object) -> str:
    role = message.get("role") if isinstance(message, dict) else None
    return role[:NAME_CHARS] if isinstance(role, str) else ""


def _content(message: object) -> object:
    return message.get("content") if isinstance(message, dict) else None


def _last_index(roles: Sequence[str], wanted: str) -> int | None:
    for index in range(len(roles) - 1, -1, -1):
        if roles[index] == wanted:
            return index
    return None


def _system(messages: list[object]) -> Excerpt:
    """Look at the system messages before the first turn of anyone else."""
    texts: list[object] = []
    for message in messages[:PARTS_SEEN]:
        if _role(message) not in {"system", "developer"}:
            break
        content = _content(message)
        texts.extend(content[:PARTS_SEEN] if isinstance(content, list) else [content])
    if not texts:
        return Excerpt()
    return _excerpt(texts[0] if len(texts) == 1 else texts, ASIDE_HEAD_CHARS, ASIDE_TAIL_CHARS)


def _excerpt(content: object, head_chars: int, tail_chars: int) -> Excerpt:
    """Cut the head and the tail out of a content of either form."""
    if isinstance(content, list):
        return _excerpt_of_parts(content, head_chars, tail_chars)
    if not isinstance(content, str):
        return Excerpt()
    chars = len(content)
    if chars <= head_chars + tail_chars:
        return Excerpt(head=content, chars=chars)
    return Excerpt(content[:head_chars], content[-tail_chars:], chars)


def _excerpt_of_parts(parts: list[object], head_chars: int, tail_chars: int) -> Excerpt:
    """Join the text parts that can reach the head or the tail."""
    if len(parts) <= 2 * PARTS_SEEN:
        first, last = parts, []
    else:
        first, last = parts[:PARTS_SEEN], parts[-PARTS_SEEN:]
    texts = [_part_text(part) for part in (*first, *last)]
    chars = sum(map(len, texts))
    bound = head_chars + tail_chars
    if chars <= bound:
        return Excerpt(head="\n".join(filter(None, texts))[:bound], chars=chars)
    head = "\n".join(text[:head_chars] for text in texts)[:head_chars]
    tail = "\n".join(text[-tail_chars:] for text in texts)[-tail_chars:]
    return Excerpt(head, tail, chars)


def _part_text(part: object) -> str:
    text = part.get("text") if isinstance(part, dict) else part
    return text if isinstance(text, str) else ""


def _fences(excerpt: Excerpt) -> int:
    return excerpt.head.count("```") + excerpt.tail.count("```")


def _script(text: str) -> Script:
    """Find the script of most letters; a quarter of kana makes a text Japanese."""
    sample = text[:SCRIPT_CHARS]
    if sample.isascii():
        return "latin"
    counts = {script: len(letters.findall(sample)) for script, letters in _SCRIPTS}
    if 4 * counts["kana"] > counts["kana"] + counts["han"]:
        counts["kana"] += counts["han"]
    best = max(counts, key=counts.__getitem__)
    return best if counts[best] else "other"


def _tools(fields: Mapping[str, object]) -> tuple[tuple[str, ...], int, bool]:
    """Read the names and number of the tools that may be called, and whether one must be."""
    tools = fields.get("tools") or fields.get("functions")
    choice = fields.get("tool_choice", fields.get("function_call"))
    if not isinstance(tools, list) or choice == "none":
        return (), 0, False
    names = []
    for tool in tools[:TOOLS_SEEN]:
        function = tool.get("function", tool) if isinstance(tool, dict) else None
        name = function.get("name") if isinstance(function, dict) else None
        if isinstance(name, str):
            names.append(name[:NAME_CHARS])
    return tuple(names), len(tools), choice == "required" or isinstance(choice, dict)


def _constraint(fields: Mapping[str, object]) -> Constraint:
    form = fields.get("response_format")
    kind = form.get("type") if isinstance(form, dict) else None
    if kind in ("json_object", "json_schema", "structural_tag"):
        return "json"
    for name, constraint in _CONSTRAINTS:
        named_in_body = name.startswith("guided_") or name in ("json_schema", "grammar")
        if named_in_body and fields.get(name):
            return constraint
    outputs = fields.get("structured_outputs")
    if isinstance(outputs, dict):
        for name, constraint in _CONSTRAINTS:
            if outputs.get(name):
                return constraint
    return ""
