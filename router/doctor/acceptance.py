"""From where the acceptance of a server's answers will be known, and what would tell more."""

from __future__ import annotations

from typing import get_args

from policies.types import Source
from router.config.base import EngineName
from router.doctor.advice import Advice, advice_for
from router.doctor.ask import Answer
from router.doctor.findings import Finding, Level
from router.engines.identity import Engine, EngineIdentity
from router.fleet.model import PoolFacts
from router.fleet.scrape import interval_s

_CHECK = "acceptance"
_NONE = "none"


def acceptance(
    pool: PoolFacts, identity: EngineIdentity, answer: Answer | None
) -> tuple[str | None, Finding | None]:
    """Which source will be used: request, stream, counters or none; None where it is not known.

    Args:
        pool: What is declared.
        identity: What the server's pages said.
        answer: Of a real request; None where none was sent.
    """
    known = identity.engine is not Engine.UNKNOWN
    advice = advice_for(identity.engine.value if known else pool.adapter.name)
    # Each adapter reads its own engine only.
    readable = pool.adapter.name == identity.engine.value
    if not readable and identity.engine.value in get_args(EngineName):
        advice = Advice(f"write `engine: {identity.engine.value}` for pool {pool.settings.name}")
    spec = answer.reading.spec if answer is not None and answer.good else None
    if not pool.speculative:
        source = _NONE if spec is None else spec.source.value
        return source, Finding(
            Level.OK, _CHECK, f"{source}: one token a step is declared, so none is needed"
        )
    if spec is not None:
        return spec.source.value, _told(spec.source, advice)
    if answer is None and readable and identity.per_request is not False:
        return _untried(identity, advice)
    counters = bool(readable and identity.spec_counters and interval_s(pool) > 0)
    return _without_record(answer, advice, counters=counters)


def _untried(identity: EngineIdentity, advice: Advice) -> tuple[str | None, Finding]:
    if identity.per_request:
        return Source.REQUEST.value, _told(Source.REQUEST, advice, ", by this version; not tried")
    return None, Finding(
        Level.NOTE, _CHECK, "only a request could show from where it is known", advice.requests
    )


def _without_record(
    answer: Answer | None, advice: Advice, *, counters: bool
) -> tuple[str | None, Finding | None]:
    """What is left where no answer told; an answer that failed leaves it open."""
    if answer is not None and answer.reading.unread:
        return (Source.COUNTERS.value if counters else _NONE), _unread(answer.reading.unread)
    if counters:
        return Source.COUNTERS.value, _told(Source.COUNTERS, advice)
    if answer is not None and not answer.good:
        return None, None
    ways = [way for way in (advice.requests, advice.counters) if way]
    uncounted = None if answer is None else answer.reading.uncounted
    why = f" (steps of streams are not counted: {uncounted})" if uncounted else ""
    return _NONE, Finding(
        Level.WARNING,
        _CHECK,
        f"none: gains are measured all the same, by time, but not explained{why}",
        "; or ".join(ways) or "declare the pool's engine, if it is one of those that tell",
    )


def _told(source: Source, advice: Advice, how: str = "") -> Finding:
    match source:
        case Source.REQUEST:
            return Finding(Level.OK, _CHECK, f"from the engine's record of each request{how}")
        case Source.STREAM:
            return Finding(
                Level.NOTE, _CHECK, "from the steps counted in each stream", advice.requests
            )
        case Source.COUNTERS:
            return Finding(
                Level.NOTE,
                _CHECK,
                "from the server's counters, by which classes are told apart by estimation only",
                advice.requests,
            )


def _unread(fields: tuple[str, ...]) -> Finding:
    return Finding(
        Level.WARNING,
        _CHECK,
        f"told in the answer, but not understood: {', '.join(fields)}",
        "watch specroute_unread_fields_total; the engine may be newer than this program",
    )
