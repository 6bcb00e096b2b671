"""Patterns of an operator, matched in time linear in the text whatever the pattern."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import re2

LONGEST_PATTERN: Final = 2000
_MEMORY_BYTES: Final = 1 << 20

Matcher = Callable[[str], bool]


def check_pattern(pattern: str) -> None:
    """Makes sure that a pattern can be used.

    Raises:
        ValueError: It cannot; the message does not quote it, for it may hold a secret.
    """
    _compile(pattern)


def pattern_matcher(pattern: str) -> Matcher:
    """Tells whether a text contains a match of a pattern in RE2's syntax.

    Raises:
        ValueError: As for `check_pattern`.
    """
    compiled = _compile(pattern)

    def matches(text: str) -> bool:
        # As bytes: text with an unpaired surrogate has no UTF-8 form.
        return compiled.search(text.encode("utf-8", "replace")) is not None

    return matches


def name_matcher(name: str) -> Matcher:
    """Tells whether a text is a name, in which `*` stands for any text."""
    if "*" not in name:
        return name.__eq__
    parts = name.split("*")
    return lambda text: _is_like(text, parts)


def _is_like(text: str, parts: list[str]) -> bool:
    """Tells whether text is made of the parts in their order, with anything between them."""
    first, *middle, last = parts
    if len(text) < len(first) + len(last) or not text.startswith(first):
        return False
    if not text.endswith(last):
        return False
    at, end = len(first), len(text) - len(last)
    for part in middle:
        found = text.find(part, at, end)
        if found < 0:
            return False
        at = found + len(part)
    return True


def _compile(pattern: str) -> Any:
    if not pattern or len(pattern) > LONGEST_PATTERN:
        raise ValueError(f"a pattern has 1 to {LONGEST_PATTERN} characters")
    options = re2.Options()
    options.max_mem = _MEMORY_BYTES
    options.log_errors = False
    options.never_capture = True
    try:
        return re2.compile(pattern, options)
    except re2.error as error:
        [reason] = error.args
        kind = reason.decode("utf-8", "replace").partition(":")[0]
        raise ValueError(
            f"is no pattern that RE2 can use ({kind}); its syntax is that of other engines "
            "without references back and without looking around"
        ) from None
    except UnicodeEncodeError:
        raise ValueError("is no pattern that RE2 can use (not valid Unicode)") from None
