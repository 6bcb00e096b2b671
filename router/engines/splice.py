"""Changes one member of a JSON object's text and leaves every other byte as it was.

A body may hold megabytes, nearly all of them inside one member. So a member is looked for near the
end first, where what follows it proves that it is one of the object itself; then near the
beginning; and only then in all that lies between.
"""

from __future__ import annotations

import json
import re

_NEAR = 16 * 1024
_MOST_CANDIDATES = 8

_TOKEN = re.compile(rb'"[^"]*"?|[{}\[\],:]')
"""Of a text without escapes; a string without its second quote goes on beyond the text."""
_BLANK = re.compile(rb"[ \t\r\n]*")
_OPEN = (b"{", b"[")
_CLOSE = (b"}", b"]")

_Span = tuple[int, int]


def set_member(body: bytes, key: str, value: bytes, *, present: bool) -> bytes:
    """Sets a top-level member of a JSON object.

    Args:
        body: Text of a JSON object that is known to be valid.
        key: Name of the member.
        value: JSON text of its new value.
        present: Whether the object has the member already. Where it has it several times the last
            one, which is the one parsers keep, is changed; in a long body one at the beginning is
            taken for the only one unless another comes near the end.

    >>> set_member(b'{"a": 1}', "b", b"[2]", present=False)
    b'{"b":[2],"a": 1}'
    >>> set_member(b'{"a": 1, "b" : {"c": "}"} }', "b", b"3", present=True)
    b'{"a": 1, "b" : 3 }'
    """
    if present:
        start, end = _value_span(body, key)
        return b"".join((body[:start], value, body[end:]))
    after = body.index(b"{") + 1
    comma = b"" if _past_blank(body, after) == b"}" else b","
    return b"".join((body[:after], json.dumps(key).encode(), b":", value, comma, body[after:]))


def member_text(body: bytes, key: str) -> bytes:
    """The text of a top-level member's value; of the last one where there are several.

    >>> member_text(b'{"a": 1, "b" : {"c": "}"} }', "b")
    b'{"c": "}"}'
    """
    start, end = _value_span(body, key)
    return body[start:end]


def cut_member(body: bytes, key: str) -> bytes:
    """The object's text without a top-level member, every other byte as it was.

    Of several of that name the last one goes. A name that is written with escapes stays.

    >>> cut_member(b'{"a": 1, "b" : {"c": "}"} }', "b")
    b'{"a": 1 }'
    >>> cut_member(b'{ "b":2 , "a": 1}', "b")
    b'{ "a": 1}'
    """
    token = json.dumps(key).encode()
    start, end = _value_span(body, key)
    name = body[:start].rstrip(b" \t\r\n").removesuffix(b":").rstrip(b" \t\r\n")
    if not name.endswith(token):
        return body
    before = name[: -len(token)]
    blanks = before.rstrip(b" \t\r\n")
    if blanks.endswith(b","):
        return blanks[:-1] + body[end:]
    after = body[end:].lstrip(b" \t\r\n")
    if after.startswith(b","):
        return before + after[1:].lstrip(b" \t\r\n")
    return before + body[end:]


def _value_span(body: bytes, key: str) -> _Span:
    start = body.index(b"{") + 1
    found = _near_the_end(body, key, start)
    if found is None and len(body) > _NEAR:
        found, _ = _member(body[start : start + _NEAR], key, start, first=True)
    if found is None:
        found, _ = _member(body[start:], key, start)
    if found is None:
        raise ValueError(f"no member {key!r}")
    return found


def _near_the_end(body: bytes, key: str, start: int) -> _Span | None:
    """A member from which on exactly one container is closed: the object itself."""
    token = json.dumps(key).encode()
    edge, end = max(start, len(body) - _NEAR), len(body)
    for _ in range(_MOST_CANDIDATES):
        at = body.rfind(token, edge, end)
        if at < 0:
            return None
        end = at
        # An escaped quote belongs to a string. One that is not begins a string here, because after
        # the end of another one no letter can follow.
        if body[at - 1 : at] != b"\\" and _past_blank(body, at + len(token)) == b":":
            found, closed = _member(body[at:], key, at)
            if closed is not None and not body[closed:].strip():
                return found
    return None


def _member(
    text: bytes, key: str, offset: int, *, first: bool = False
) -> tuple[_Span | None, int | None]:
    """Where a member's value stands, in a text that begins inside an object.

    Returns:
        The last one of that name, or the first one, and the end of the object if the text holds
        it; both counted from `offset` before the text.
    """
    # The same length, with no escaped quote: every quote that is left begins or ends a string.
    plain = text.replace(b"\\\\", b"__").replace(b'\\"', b"__") if b"\\" in text else text
    token = json.dumps(key).encode()
    depth = 1
    name = b""
    value_at: int | None = None
    found: _Span | None = None
    for match in _TOKEN.finditer(plain):
        kind = match.group()
        if kind in _OPEN:
            depth += 1
        elif kind in _CLOSE and depth > 1:
            depth -= 1
        elif depth > 1:
            continue
        elif kind == b":":
            value_at = match.end()
        elif kind == b"," or kind in _CLOSE:
            if value_at is not None and (name == token or (b"\\" in name and _names(name, key))):
                found = _trimmed(text, value_at, match.start(), offset)
            value_at = None
            if kind != b"," or (first and found):
                return found, offset + match.end()
        elif value_at is None:
            name = text[match.start() : match.end()]
    return found, None


def _names(token: bytes, key: str) -> bool:
    return token.endswith(b'"') and bool(json.loads(token) == key)  # orjson refuses surrogates


def _trimmed(text: bytes, start: int, end: int, offset: int) -> _Span:
    value = text[start:end]
    begins = end - len(value.lstrip())
    return offset + begins, offset + start + len(value.rstrip())


def _past_blank(body: bytes, at: int) -> bytes:
    blank = _BLANK.match(body, at)
    after = blank.end() if blank else at
    return body[after : after + 1]
