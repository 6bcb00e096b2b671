"""What may be the host of a server: told when a configuration is read, not by the first look-up."""

from __future__ import annotations

import re

_LONGEST = 253
_CHARACTERS = re.compile(r"[A-Za-z0-9._-]+")


def why_no_host(host: str) -> str | None:
    """Why nothing can be looked up under a name, and the remedy; None where it can.

    Args:
        host: A name, or an address without brackets.
    """
    if ":" in host:
        return None  # an address, which who took the brackets away has checked
    try:
        ascii_ = host.encode("idna").decode("ascii").removesuffix(".")
    except UnicodeError:
        return (
            "the parts of a host's name between its dots must have 1 to 63 characters; look for "
            "two dots in a row, or a variable that is empty"
        )
    if len(ascii_) > _LONGEST:
        return f"a host's name must have at most {_LONGEST} characters"
    if _CHARACTERS.fullmatch(ascii_) is None:
        return "a host's name must consist of letters, digits, hyphens, underscores and dots"
    return None
