"""Takes a bounded look at a parsed request, whatever its size and however odd; judges nothing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

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

_LEADS: Final[Mapping[Script, bytes]] = {
    # Kana before Han: Japanese has both, Chinese only Han.
    "kana": b"",
    "han": bytes(range(0xE4, 0xEA)),
    "hangul": bytes(range(0xEA, 0xEE)),
    "arabic": bytes((0xD8, 0xD9, 0xDA, 0xDB, 0xDD)),
    "cyrillic": bytes(range(0xD0, 0xD5)),
    "devanagari": b"",
    "latin": bytes((*range(0x41, 0x5B), *range(0x61, 0x7B), *range(0xC3, 0xCA))),
}
"""First bytes of a script's letters in UTF-8; of two with as many letters the first is named."""
_SCRIPTS: Final = tuple(_LEADS)
_KANA, _HAN, _DEVANAGARI = map(_SCRIPTS.index, ("kana", "han", "devanagari"))
_SCRIPT_OF: Final = bytes(
    next((n for n, leads in enumerate(_LEADS.values()) if byte in leads), len(_LEADS))
    for byte in range(256)
)

Dialect = Literal["chat", "completion", "messages", "responses"]
"""The shape of a body, told by its fields: OpenAI chat or completion, Anthropic, Responses."""

_STEP_ROLES: Final[Mapping[object, str]] = {
    "function_call": "assistant",
    "custom_tool_call": "assistant",
    "reasoning": "assistant",
    "function_call_output": "tool",
    "custom_tool_call_output": "tool",
}
"""Items of a Responses input that have a type in place of a role."""

_MEDIA: Final[Mapping[object, Literal["image", "audio", "file"]]] = {
    "image_url": "image",
    "input_image": "image",
    "image": "image",
    "input_audio": "audio",
    "audio_url": "audio",
    "audio": "audio",
    "file": "file",
    "input_file": "file",
    "document": "file",
    "video_url": "image",
    "video": "image",
}
"""Types of content parts that are no text."""

_SYSTEM_ROLES: Final = ("system", "developer")
"""Compared one by one: a role may be anything that JSON holds."""

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

_FORM_FIELDS: Final = frozenset(
    (
        "response_format",
        "output_format",
        "text",
        "output_config",
        "structured_outputs",
        *(name for name, _ in _CONSTRAINTS),
    )
)
"""A body with none of them has no constraint."""


class Excerpt(NamedTuple):
    """The beginning and the end of a text."""

    head: str = ""
    tail: str = ""
    """Empty where `head` holds the whole text."""
    chars: int = 0
    """Length of the text; a lower bound where it came in many parts."""


class Media(NamedTuple):
    """Content parts of a turn that are no text, counted among the parts looked at."""

    images: int = 0
    audio: int = 0
    files: int = 0


_NO_TEXT: Final = Excerpt()
_NO_MEDIA: Final = Media()


class RequestView(NamedTuple):
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
        media: Images, sound and files in the turn.
        dialect: The shape of the body.
        output_limit: Most tokens that may be answered; 0 where nothing is said.
    """

    turn: Excerpt = _NO_TEXT
    system: Excerpt = _NO_TEXT
    prior: Excerpt = _NO_TEXT
    prefill: Excerpt = _NO_TEXT
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
    media: Media = _NO_MEDIA
    dialect: Dialect = "chat"
    output_limit: int = 0


def view_request(request: ParsedRequest) -> RequestView:
    """Look at a request; any JSON value in any field is accepted."""
    fields = request.fields
    messages = fields.get("messages")
    if isinstance(messages, list) and messages:
        aside = fields.get("system")
        return _view_chat(messages, fields, aside, "chat" if aside is None else "messages")
    items = fields.get("input")
    if isinstance(items, str):
        items = [{"role": "user", "content": items}]
    if isinstance(items, list) and items:
        return _view_chat(items, fields, fields.get("instructions"), "responses")
    return _view_completion(fields)


def _view_chat(
    messages: list[object], fields: Mapping[str, object], aside: object, dialect: Dialect
) -> RequestView:
    count = len(messages)
    last = messages if count <= MESSAGES_SEEN else messages[-MESSAGES_SEEN:]
    roles = tuple([_role(message) for message in last])
    at = _last_index(roles, "user")
    prior = _NO_TEXT
    if at is None:
        # A long agent loop: its task is the latest user turn near the beginning.
        first = messages[:MESSAGES_SEEN]
        early = _last_index(tuple(map(_role, first)), "user")
        turn = _content(first[early]) if early is not None else None
        steps_after = count - 1 - early if early is not None else count
    else:
        turn = _content(last[at])
        steps_after = len(last) - 1 - at
        before = _last_index(roles[:at], "assistant") if at else None
        if before is not None:
            prior = _excerpt(_content(last[before]), ASIDE_HEAD_CHARS, ASIDE_TAIL_CHARS)
    final = last[-1]
    prefill = _NO_TEXT
    if roles[-1] == "assistant" and isinstance(final, dict) and not _calls(final):
        prefill = _excerpt(_content(final), ASIDE_HEAD_CHARS, ASIDE_TAIL_CHARS)
        steps_after -= 1
    names, tool_count, forced = _tools(fields)
    excerpt = _excerpt(turn, TURN_HEAD_CHARS, TURN_TAIL_CHARS)
    # In the order of the fields: naming each takes a microsecond more.
    return RequestView(
        excerpt,
        _system(messages, aside),
        prior,
        prefill,
        _script(excerpt.head),
        _fences(excerpt),
        roles,
        count,
        steps_after,
        names,
        tool_count,
        forced,
        _constraint(fields),
        completion=False,
        media=_media(turn) if isinstance(turn, list) else _NO_MEDIA,
        dialect=dialect,
        output_limit=_output_limit(fields),
    )


def _view_completion(fields: Mapping[str, object]) -> RequestView:
    # llama.cpp's infill has the text around the gap apart, and may have a prompt between.
    prompt = fields.get("prompt") or fields.get("input_prefix")
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
        infill=any(
            isinstance(fields.get(name), str) and bool(fields[name])
            for name in ("suffix", "input_suffix")
        ),
        token_prompt=isinstance(prompt, list) and bool(prompt),
        dialect="completion",
        output_limit=_output_limit(fields),
    )


def _role(message: object) -> str:
    if not isinstance(message, dict):
        return ""
    role = message.get("role")
    if not isinstance(role, str):
        kind = message.get("type")
        return _STEP_ROLES.get(kind, "") if isinstance(kind, str) else ""
    if role == "user":
        content = message.get("content")
        # Anthropic hands the results of tools over in the user's name.
        if isinstance(content, list) and content and _kind(content[0]) == "tool_result":
            seen = (*content[:PARTS_SEEN], content[-1])
            return "tool" if all(_kind(part) == "tool_result" for part in seen) else role
    return role[:NAME_CHARS]


def _kind(part: object) -> object:
    """Return the type of a content part, or None where it has no usable one."""
    kind = part.get("type") if isinstance(part, dict) else None
    return kind if isinstance(kind, str) else None


def _content(message: object) -> object:
    return message.get("content") if isinstance(message, dict) else None


def _calls(message: Mapping[str, object]) -> bool:
    """Tell whether a message of the assistant calls tools, so that it is no answer begun."""
    content = message.get("content")
    return (
        bool(message.get("tool_calls"))
        or _kind(message) in _STEP_ROLES
        or (
            isinstance(content, list)
            and any(_kind(part) == "tool_use" for part in content[-PARTS_SEEN:])
        )
    )


def _media(parts: list[object]) -> Media:
    first, last = _ends(parts)
    kinds = [_MEDIA.get(_kind(part)) for part in (*first, *last)]
    return Media(kinds.count("image"), kinds.count("audio"), kinds.count("file"))


def _output_limit(fields: Mapping[str, object]) -> int:
    limit = (
        fields.get("max_completion_tokens")
        or fields.get("max_tokens")
        or fields.get("max_output_tokens")
        or fields.get("n_predict")
    )
    return limit if isinstance(limit, int) and limit > 0 else 0


def _last_index(roles: Sequence[str], wanted: str) -> int | None:
    for index in range(len(roles) - 1, -1, -1):
        if roles[index] == wanted:
            return index
    return None


def _system(messages: list[object], aside: object) -> Excerpt:
    """Look at the system messages before the first turn of anyone else.

    Args:
        messages: The conversation.
        aside: A system prompt that is a field of its own.
    """
    texts: list[object] = []
    if aside is not None:
        texts.extend(aside[:PARTS_SEEN] if isinstance(aside, list) else [aside])
    for message in messages[:PARTS_SEEN]:
        if not isinstance(message, dict) or message.get("role") not in _SYSTEM_ROLES:
            break
        content = _content(message)
        texts.extend(content[:PARTS_SEEN] if isinstance(content, list) else [content])
    if not texts:
        return _NO_TEXT
    whole = texts[0] if len(texts) == 1 and isinstance(texts[0], str) else texts
    return _excerpt(whole, ASIDE_HEAD_CHARS, ASIDE_TAIL_CHARS)


def _excerpt(content: object, head_chars: int, tail_chars: int) -> Excerpt:
    """Cut the head and the tail out of a content of either form."""
    if isinstance(content, str):
        chars = len(content)
        if chars <= head_chars + tail_chars:
            return Excerpt(content, "", chars)
        return Excerpt(content[:head_chars], content[-tail_chars:], chars)
    if isinstance(content, list):
        return _excerpt_of_parts(content, head_chars, tail_chars)
    return _NO_TEXT


def _excerpt_of_parts(parts: list[object], head_chars: int, tail_chars: int) -> Excerpt:
    """Join the text parts that can reach the head or the tail."""
    first, last = _ends(parts)
    texts = [_part_text(part) for part in (*first, *last)]
    chars = sum(map(len, texts))
    bound = head_chars + tail_chars
    if chars <= bound:
        return Excerpt(head="\n".join(filter(None, texts))[:bound], chars=chars)
    head = "\n".join(text[:head_chars] for text in texts)[:head_chars]
    tail = "\n".join(text[-tail_chars:] for text in texts)[-tail_chars:]
    return Excerpt(head, tail, chars)


def _ends(parts: list[object]) -> tuple[list[object], list[object]]:
    if len(parts) <= 2 * PARTS_SEEN:
        return parts, []
    return parts[:PARTS_SEEN], parts[-PARTS_SEEN:]


def _part_text(part: object) -> str:
    text = part
    if isinstance(part, dict):
        text = part.get("text")
        source = part.get("source") if text is None else None
        if isinstance(source, dict) and source.get("type") == "text":
            # A document of Anthropic's shape that was handed over as plain text.
            text = source.get("data")
    return text if isinstance(text, str) else ""


def _fences(excerpt: Excerpt) -> int:
    # Looking for one letter is many times as quick as counting three.
    if "`" not in excerpt.head and "`" not in excerpt.tail:
        return 0
    return excerpt.head.count("```") + excerpt.tail.count("```")


def _script(text: str) -> Script:
    """Find the script of most letters; a quarter of kana makes a text Japanese."""
    sample = text[:SCRIPT_CHARS]
    if sample.isascii():
        return "latin"
    written = sample.encode("utf-8", "replace")
    counts = list(map(written.translate(_SCRIPT_OF).count, range(len(_SCRIPTS))))
    # These share their first byte with others.
    kana = written.count(b"\xe3\x81") + written.count(b"\xe3\x82") + written.count(b"\xe3\x83")
    han = counts[_HAN]
    counts[_KANA] = kana + han if 4 * kana > kana + han else kana
    counts[_DEVANAGARI] = written.count(b"\xe0\xa4") + written.count(b"\xe0\xa5")
    most = max(counts)
    return _SCRIPTS[counts.index(most)] if most else "other"


def _tools(fields: Mapping[str, object]) -> tuple[tuple[str, ...], int, bool]:
    """Read the names and number of the tools that may be called, and whether one must be."""
    tools = fields.get("tools") or fields.get("functions")
    if not tools or not isinstance(tools, list):
        return (), 0, False
    choice = fields.get("tool_choice", fields.get("function_call"))
    if choice == "none" or _kind(choice) == "none":
        return (), 0, False
    names = []
    for tool in tools[:TOOLS_SEEN]:
        function = tool.get("function", tool) if isinstance(tool, dict) else None
        name = function.get("name") if isinstance(function, dict) else None
        if isinstance(name, str):
            names.append(name[:NAME_CHARS])
    return tuple(names), len(tools), choice == "required" or _names_a_tool(choice)


def _names_a_tool(choice: object) -> bool:
    """Tell whether a choice in the form of an object demands a call."""
    if not isinstance(choice, dict):
        return False
    kind = choice.get("type")
    return kind not in ("auto", "none") and choice.get("mode") != "auto"


def _constraint(fields: Mapping[str, object]) -> Constraint:
    if _FORM_FIELDS.isdisjoint(fields):
        return ""
    for form in _forms(fields):
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


def _forms(fields: Mapping[str, object]) -> Iterator[object]:
    """Yield where the dialects keep the form of the answer."""
    yield fields.get("response_format")
    yield fields.get("output_format")
    for holder in (fields.get("text"), fields.get("output_config")):
        if isinstance(holder, dict):
            yield holder.get("format")
