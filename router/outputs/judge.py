"""Whether an answer is what was demanded: JSON that can be read, calls of tools offered. Pure."""

from __future__ import annotations

import json
from typing import Any

import orjson

from policies.values import value
from router.outputs.demand import Demand
from router.outputs.said import NATURAL, Call, Said

_UNREADABLE = object()


@value
class Judged:
    """What was found; None is not known."""

    valid: bool | None = None
    """It is what was demanded, as far as that is looked at."""
    truncated: bool | None = None
    """It was cut at the limit of length, so that nobody knows what it would have become."""


UNKNOWN = Judged()


def judged(demand: Demand, said: Said) -> Judged:
    """Judges an answer.

    An answer that was cut, or that ended in a way that is not its model's, is neither valid nor
    invalid. Of one that may call a tool and does not, nothing is said: it is plain text.

    >>> judged(Demand(json=True), Said('{"a":', finish="stop"))
    Judged(valid=False, truncated=False)
    >>> judged(Demand(json=True), Said('{"a":', finish="length"))
    Judged(valid=None, truncated=True)
    """
    if demand.optional and not said.calls:
        return UNKNOWN
    valid = _valid(demand, said) if said.finish in NATURAL else None
    return Judged(valid, said.truncated)


def _valid(demand: Demand, said: Said) -> bool | None:
    if said.calls and (demand.tools is not None or demand.others):
        return all(_good(demand, call) for call in said.calls)
    if demand.must_call:
        return False
    if demand.json:
        return _has(readable(said.text), demand.required, object_only=demand.object_only)
    if demand.choices:
        return said.text.strip() in demand.choices
    return None


def _good(demand: Demand, call: Call) -> bool:
    if demand.only is not None and call.name != demand.only:
        return False
    if call.arguments is None:
        return True
    required = (demand.tools or {}).get(call.name)
    if required is None:
        if not demand.others:
            return False  # a tool that nobody offered
        required = ()
    return _has(readable(call.arguments or "{}"), required, object_only=True)


def _has(read: Any, required: tuple[str, ...], *, object_only: bool) -> bool:
    if read is _UNREADABLE:
        return False
    if not isinstance(read, dict):
        return not (object_only or required)
    return all(name in read for name in required)


def readable(text: str) -> Any:
    """The JSON value that a text is; a value of its own for what is none."""
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        pass
    try:
        # It takes escaped surrogates without their other half, as most readers do.
        return json.loads(text, parse_constant=_refuse)
    except (ValueError, RecursionError):
        return _UNREADABLE


def _refuse(word: str) -> None:
    raise ValueError(f"{word} is no JSON")
