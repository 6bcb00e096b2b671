"""Makes a failing dialogue small: whatever can be left out while it still fails is left out."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from dataclasses import MISSING, fields, is_dataclass, replace
from typing import Any

from bench.fuzz.model import Answer, Chunking, Dialogue, Exchange, Request

Fails = Callable[[Dialogue], Awaitable[bool]]

_PLAIN_REQUEST = Request("POST", "/")
_PLAIN_ANSWER = Answer()
_KEPT = frozenset(
    (
        *("method", "target", "body", "forwarded", "strips", "record", "announces"),
        *("ended", "status"),
    )
)
"""Members whose values depend on each other, or without which it is another case."""


async def smallest(dialogue: Dialogue, fails: Fails, *, tries: int) -> Dialogue:
    """The smallest dialogue found that still fails.

    Args:
        dialogue: That fails.
        fails: Plays one and says whether it fails.
        tries: Plays at most.
    """
    going = True
    while going:
        going = False
        for candidate in _smaller(dialogue):
            if tries <= 0:
                return dialogue
            tries -= 1
            if await fails(candidate):
                dialogue, going = candidate, True
                break
    return dialogue


def _smaller(dialogue: Dialogue) -> Iterator[Dialogue]:
    exchanges = dialogue.exchanges
    for index in range(len(exchanges)):
        rest = exchanges[:index] + exchanges[index + 1 :]
        if rest:
            yield replace(dialogue, exchanges=rest)
    if dialogue.pipelined:
        yield replace(dialogue, pipelined=False)
    for index, exchange in enumerate(exchanges):
        for smaller in _smaller_exchanges(exchange):
            yield replace(
                dialogue, exchanges=(*exchanges[:index], smaller, *exchanges[index + 1 :])
            )


def _smaller_exchanges(exchange: Exchange) -> Iterator[Exchange]:
    if exchange.leave is not None and exchange.answer.holds_at is None:
        yield replace(exchange, leave=None)
    if exchange.slow:
        yield replace(exchange, slow=0)
    for name in ("request_damage", "answer_damage"):
        damages = getattr(exchange, name)
        for index in range(len(damages) if len(damages) > 1 else 0):
            yield replace(exchange, **{name: damages[:index] + damages[index + 1 :]})
    for request in _plainer(exchange.request, _PLAIN_REQUEST):
        yield replace(exchange, request=request)
    for answer in (*_shorter(exchange.answer), *_plainer(exchange.answer, _PLAIN_ANSWER)):
        if answer.holds_at is not None or exchange.answer.holds_at is None:
            yield replace(exchange, answer=answer)


def _shorter(answer: Answer) -> Iterator[Answer]:
    """Without a part of the body, and broken as far from its end as before."""
    parts, at = answer.parts, answer.breaks_at
    if at is None or len(parts) == 1:
        return
    for index, part in enumerate(parts):
        rest = parts[:index] + parts[index + 1 :]
        yield replace(answer, parts=rest, breaks_at=max(0, at - len(part.sent)))


def _plainer(value: Any, plain: Any) -> Iterator[Any]:
    """The same with one member as it is at its plainest, or with a part of one left out."""
    for member in fields(value):
        name, now = member.name, getattr(value, member.name)
        least = getattr(plain, name)
        if name in _KEPT or now == least:
            continue
        yield replace(value, **{name: least})
        if isinstance(now, tuple) and len(now) > 1 and name in {"lines", "parts", "cuts"}:
            half = len(now) // 2
            if half > 1:
                yield replace(value, **{name: now[:half]})
                yield replace(value, **{name: now[half:]})
            for index in range(min(len(now), 30)):
                yield replace(value, **{name: now[:index] + now[index + 1 :]})
        if isinstance(now, Chunking):
            yield replace(value, **{name: Chunking()})


def written(value: Any, indent: str = "") -> str:
    """A case as an expression, members at their defaults left out."""
    deeper = indent + "    "
    if is_dataclass(value) and not isinstance(value, type):
        told = [
            f"{deeper}{member.name}={written(now, deeper)},\n"
            for member in fields(value)
            for now in (getattr(value, member.name),)
            if member.default is MISSING or now != member.default
        ]
        return f"{type(value).__name__}(\n{''.join(told)}{indent})"
    if isinstance(value, tuple) and any(map(is_dataclass, value)):
        items = "".join(f"{deeper}{written(item, deeper)},\n" for item in value)
        return f"(\n{items}{indent})"
    return repr(value)
