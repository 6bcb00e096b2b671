"""Changes one member of a JSON object's text and leaves every other byte as it was."""

from __future__ import annotations

import json
import re

# A long string is passed over in one run, not byte by byte: it may hold an image.
_TOKEN = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"|[{}\[\],:]', re.DOTALL)
_OPEN = (b"{", b"[")
_CLOSE = (b"}", b"]")


def set_member(body: bytes, key: str, value: bytes, *, present: bool) -> bytes:
    """Sets a top-level member of a JSON object.

    Args:
        body: Text of a JSON object that is known to be valid.
        key: Name of the member.
        value: JSON text of its new value.
        present: Whether the object has the member already. Where it has it several times the last
            one, which is the one parsers keep, is changed.

    >>> set_member(b'{"a": 1}', "b", b"[2]", present=False)
    b'{"b":[2],"a": 1}'
    >>> set_member(b'{"a": 1, "b" : {"c": "}"} }', "b", b"3", present=True)
    b'{"a": 1, "b" : 3 }'
    """
    if present:
        start, end = _value_span(body, key)
        return body[:start] + value + body[end:]
    after = body.index(b"{") + 1
    comma = b"" if body[after:].lstrip()[:1] == b"}" else b","
    return body[:after] + json.dumps(key).encode() + b":" + value + comma + body[after:]


def member_text(body: bytes, key: str) -> bytes:
    """The text of a top-level member's value; of the last one where there are several.

    >>> member_text(b'{"a": 1, "b" : {"c": "}"} }', "b")
    b'{"c": "}"}'
    """
    start, end = _value_span(body, key)
    return body[start:end]


def _value_span(body: bytes, key: str) -> tuple[int, int]:
    depth = 0
    last_string = b""
    current: str | None = None
    start = 0
    found: tuple[int, int] | None = None
    for match in _TOKEN.finditer(body):
        token = match.group()
        if token in _OPEN:
            depth += 1
        elif depth == 1 and token in (b",", b"}"):
            if current == key:
                found = (start, start + len(body[start : match.start()].rstrip()))
            current = None
        elif token in _CLOSE:
            depth -= 1
        elif depth == 1 and token == b":" and current is None:
            current = json.loads(last_string)  # orjson refuses unpaired surrogates
            start = match.end()
            start += len(body[start:]) - len(body[start:].lstrip())
        elif depth == 1:
            last_string = token
    if found is None:
        raise ValueError(f"no member {key!r}")
    return found
