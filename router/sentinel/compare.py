"""One answer against the baseline's answers to the same request. Pure; no text comes out of it.

Greedy decoding has one answer, and speculation must give the same. Engines that batch do not: sums
in another order turn a near-tie between two tokens the other way, and from there on texts part.
So of two answers only the first difference counts, and not even that where the baseline itself had
found two tokens nearly alike, or where it does not agree with itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from itertools import takewhile
from typing import Any, TypeGuard

from policies.values import value
from router.endpoints.dialect import json_object
from router.outputs.judge import Judged
from router.outputs.said import Said

NEAR_TIE = 0.5
"""Difference of two log probabilities up to which rounding may have decided. Judgement: near 20,
where logits are, numbers of bfloat16 have a distance of 0.125, and each may be off by two."""

LENGTH_RATIO = 1.1
"""From here on an answer counts as longer, or as shorter."""


class Finding(StrEnum):
    """What the first difference is."""

    SAME = "same"
    """There is none."""
    TIE = "tie"
    """The baseline found the other token nearly as likely."""
    UNREAD = "unread"
    """Nobody knows how likely it was: the baseline tells no log probabilities, or not there."""
    ODD = "odd"
    """The baseline gave its own answer again, up to there at least."""
    CONTROL = "control"
    """Asked again, the baseline gave the other answer: this time it was the odd one itself."""
    UNSTABLE = "unstable"
    """The baseline does not agree with itself even so far."""


@value
class Token:
    """A token of the baseline's answer."""

    text: str
    other: str
    """The likeliest token beside it."""
    gap: float
    """By how much the log probabilities of the two likeliest tokens differ."""


@value
class Repeat:
    """The baseline's answer."""

    said: Said
    tokens: tuple[Token, ...] = ()
    """Empty where it told none."""


@value
class Place:
    """Where two answers part."""

    part: int
    """0 is the text, then come the calls."""
    at: int
    """Character."""


def parting(one: Said, other: Said) -> Place | None:
    """The first difference; None if they say the same.

    Arguments that are the same JSON are the same, however they are written.

    >>> parting(Said("abc"), Said("abd"))
    Place(part=0, at=2)
    """
    parts = zip(_parts(one), _parts(other), strict=False)
    for number, (mine, others) in enumerate(parts):
        if mine != others and not _same_json(mine, others):
            return Place(number, _alike(mine, others))
    if len(one.calls) != len(other.calls):
        return Place(min(len(one.calls), len(other.calls)) + 1, 0)
    return None


def _alike(one: str, other: str) -> int:
    """Characters from the beginning on that are the same."""
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))


def first_look(answer: Said, repeat: Repeat) -> Finding | None:
    """What a difference is, as far as one repeat tells; None where it takes another one."""
    place = parting(answer, repeat.said)
    if place is None:
        return Finding.SAME
    if not repeat.tokens:
        return Finding.UNREAD
    token = _token_at(repeat, place)
    if token is None:
        return Finding.UNREAD
    return Finding.TIE if _near_tie(*token, _rest(answer, place)) else None


def second_look(answer: Said, first: Said, second: Said) -> Finding:
    """What a difference is whose first look has found no tie.

    Args:
        answer: The one in question.
        first: The baseline's, which differs from it.
        second: The baseline's, asked once more.
    """
    apart = parting(first, second)
    if apart is None:
        return Finding.ODD
    if parting(answer, second) is None:
        return Finding.CONTROL
    here = parting(answer, first)
    later = here is not None and (apart.part, apart.at) > (here.part, here.at)
    return Finding.ODD if later else Finding.UNSTABLE


def repeat_counts(
    answer: Said, mine: Judged, first: Said, others: Judged, finding: Finding
) -> dict[str, int]:
    """What a repeat adds to the cell of the answer; see `policies.estimators.increments`.

    Args:
        answer: The one in question.
        mine: Whether it has the structure that was demanded.
        first: The baseline's.
        others: The same of that.
        finding: What their first difference is.
    """
    counts = {"repeat.n": 1, f"repeat.{finding}": 1}
    worse, better = _worse(mine, answer, others, first), _worse(others, first, mine, answer)
    if worse is not better:
        counts["repeat.worse" if worse else "repeat.better"] = 1
    long, short = (len(text) for text in ("".join(_parts(answer)), "".join(_parts(first))))
    if long > LENGTH_RATIO * short:
        counts["repeat.longer"] = 1
    elif short > LENGTH_RATIO * long:
        counts["repeat.shorter"] = 1
    return counts


def tokens_of(choice: Mapping[str, Any]) -> list[Token]:
    """Tokens with their log probabilities, of the choice of an event or of a whole answer."""
    logprobs = choice.get("logprobs")
    if not isinstance(logprobs, Mapping):
        return []
    content = logprobs.get("content")
    if isinstance(content, list):
        return [_chat_token(item) for item in content if isinstance(item, Mapping)]
    tokens, tops = logprobs.get("tokens"), logprobs.get("top_logprobs")
    if not isinstance(tokens, list) or not isinstance(tops, list):
        return []
    return [
        _token(text, list(top.items()) if isinstance(top, Mapping) else [])
        for text, top in zip(tokens, tops, strict=False)
    ]


_UNKNOWN_GAP = float("inf")


def _chat_token(item: Mapping[str, Any]) -> Token:
    top = item.get("top_logprobs")
    pairs = [
        (entry.get("token"), entry.get("logprob"))
        for entry in (top if isinstance(top, list) else ())
        if isinstance(entry, Mapping)
    ]
    return _token(item.get("token"), pairs)


def _token(text: object, top: Sequence[tuple[object, object]]) -> Token:
    chosen = text if isinstance(text, str) else ""
    known = sorted(
        ((p, name) for name, p in top if isinstance(name, str) and _is_number(p)),
        reverse=True,
    )
    if len(known) < 2:  # noqa: PLR2004 - it takes two
        return Token(chosen, "", _UNKNOWN_GAP)
    other = next((name for _, name in known if name != chosen), "")
    return Token(chosen, other, known[0][0] - known[1][0])


def _is_number(value: object) -> TypeGuard[float]:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _parts(said: Said) -> list[str]:
    return [said.text, *(f"{call.name}\0{call.arguments or ''}" for call in said.calls)]


def _same_json(one: str, other: str) -> bool:
    name, _, mine = one.partition("\0")
    others_name, called, others = other.partition("\0")
    if not called or name != others_name:
        return False
    read = json_object(mine.encode("utf-8", "replace"))
    return read is not None and read == json_object(others.encode("utf-8", "replace"))


def _token_at(repeat: Repeat, place: Place) -> tuple[Token, int] | None:
    """The baseline's token in which a difference lies, and how far into it."""
    if place.part >= len(_parts(repeat.said)):
        return None
    name, called, arguments = _parts(repeat.said)[place.part].partition("\0")
    wanted, at = (arguments, place.at - len(name) - 1) if called else (name, place.at)
    # What parsers take out, such as thoughts and marks of calls, stands among the tokens too.
    begins = "".join(token.text for token in repeat.tokens).rfind(wanted)
    if begins < 0 or at < 0:
        return None
    at += begins
    for token in repeat.tokens:
        if at < len(token.text):
            return token, at
        at -= len(token.text)
    return None


def _rest(said: Said, place: Place) -> str:
    parts = _parts(said)
    return parts[place.part][place.at :] if place.part < len(parts) else ""


def _near_tie(token: Token, into: int, rest: str) -> bool:
    """Whether the answer goes on with the token that was nearly as likely, or ends with it."""
    if token.gap > NEAR_TIE:
        return False
    goes_on = token.text[:into] + rest
    return not rest or goes_on.startswith(token.other) or token.other.startswith(goes_on)


def _worse(mine: Judged, answer: Said, others: Judged, other: Said) -> bool:
    invalid = mine.valid is False and others.valid is True
    return invalid or (answer.truncated is True and other.truncated is False)
