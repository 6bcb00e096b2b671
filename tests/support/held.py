"""What an object holds, whether its class is Python's or machine code, which has no `__dict__`."""

from __future__ import annotations


def held_by(thing: object) -> dict[str, object]:
    """Return the attributes of `thing` that are no methods."""
    names = [name for name in dir(thing) if not name.startswith("__")]
    held = {name: getattr(thing, name) for name in names}
    return {name: value for name, value in held.items() if not callable(value)}
