"""Finds one field of a multipart form in its bytes. Nothing is decoded or written anew."""

from __future__ import annotations

import re

MOST_PARTS = 64
"""Parts looked at; a form of an endpoint has about ten."""

_LONGEST_HEAD = 4096
_LONGEST_NAME = 4096
_BOUNDARY = re.compile(
    r';\s*boundary=(?:"((?:[^"\\]|\\.){1,200})"|([^;\s"]{1,200}))', re.IGNORECASE
)
_NAME = re.compile(
    rb'^content-disposition:\s*form-data\s*;(?:[^\r\n]*?;)?\s*name=(?:"([^"\r\n]*)"|([^;\s"]+))',
    re.IGNORECASE | re.MULTILINE,
)


def field_span(body: bytes, content_type: str, name: str) -> tuple[int, int] | None:
    r"""Where the value of a field stands; of the last one where there are several.

    Args:
        body: The whole form.
        content_type: The header, which names the boundary.
        name: Of the field.

    >>> form = b'--B\r\nContent-Disposition: form-data; name="model"\r\n\r\nm\r\n--B--\r\n'
    >>> field_span(form, "multipart/form-data; boundary=B", "model")
    (53, 54)
    """
    found = _BOUNDARY.search(content_type)
    if found is None:
        return None
    quoted = found.group(1)
    text = found.group(2) if quoted is None else re.sub(r"\\(.)", r"\1", quoted)
    dash = b"--" + text.encode("latin-1", "replace")
    wanted = name.encode()
    at = 0 if body.startswith(dash) else _next(body, dash, 0)
    span: tuple[int, int] | None = None
    for _ in range(MOST_PARTS):
        if at < 0:
            break
        start = at + len(dash)
        head_end = body.find(b"\r\n\r\n", start, start + _LONGEST_HEAD)
        following = _next(body, dash, start)
        if head_end < 0 or (0 <= following < head_end):
            at = following
            continue
        named = _NAME.search(body, start, head_end)
        if named is not None and (named.group(1) or named.group(2) or b"") == wanted:
            end = following - 2 if following >= 0 else len(body)
            span = (head_end + 4, max(end, head_end + 4))
        at = following
    return span


def field_text(body: bytes, content_type: str, name: str) -> str | None:
    """The value of a field; None where it is missing or no short text."""
    span = field_span(body, content_type, name)
    if span is None or span[1] - span[0] > _LONGEST_NAME:
        return None
    try:
        return body[span[0] : span[1]].decode()
    except UnicodeDecodeError:
        return None


def _next(body: bytes, dash: bytes, start: int) -> int:
    at = body.find(b"\r\n" + dash, start)
    return at + 2 if at >= 0 else -1
