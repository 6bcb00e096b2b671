"""What goes wrong when YAML is read."""

from __future__ import annotations

import yaml

NO_YAML = (
    yaml.YAMLError,
    ValueError,
    TypeError,
    AttributeError,
    LookupError,
    RecursionError,
)
"""All that PyYAML raises. Beyond its own errors it lets through whatever Python says of a value:
`2024-13-45` is taken for a date, and no such day is a `ValueError`."""


def in_words(error: Exception) -> str | None:
    """What is wrong, unless PyYAML says so itself; nothing is quoted that may be a key."""
    if isinstance(error, yaml.YAMLError):
        return None
    if isinstance(error, RecursionError):
        return "nested too deeply"
    return "a value looks like a date or a number and is none; put quotes around it"
