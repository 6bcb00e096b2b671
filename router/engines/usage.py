"""Asks a stream for its usage event, which OpenAI's older dialects send on demand only."""

from __future__ import annotations

from collections.abc import Mapping

from router.engines.base import member
from router.engines.splice import member_text, set_member
from router.types import Endpoint, ParsedRequest

USAGE_IS_ASKED_FOR = frozenset((Endpoint.CHAT, Endpoint.COMPLETIONS))
"""In the other dialects it comes with every answer."""


def with_usage(request: ParsedRequest, body: bytes) -> bytes | None:
    """The body that asks for usage too; None where the client did, or where it must not be asked.

    Args:
        request: What the client asked.
        body: Its body, in which `stream_options` still stands as the client wrote it.
    """
    if not request.stream or request.endpoint not in USAGE_IS_ASKED_FOR:
        return None
    options = request.fields.get("stream_options")
    if options is not None and not isinstance(options, Mapping):
        return None  # for the engine to refuse
    if member(options, "include_usage") not in (None, False):
        return None
    if member(options, "continuous_usage_stats"):
        # Without include_usage it is ignored; together, every event would carry usage.
        return None
    asked = b'{"include_usage":true}'
    if options is not None:
        asked = set_member(
            member_text(body, "stream_options"),
            "include_usage",
            b"true",
            present="include_usage" in options,
        )
    return set_member(body, "stream_options", asked, present="stream_options" in request.fields)
