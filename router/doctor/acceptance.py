"""From where the acceptance of a server's answers will be known, and what would tell more."""

from __future__ import annotations

from policies.types import Source
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
    good = answer is not None and answer.good
    spec = answer.reading.spec if answer is not None and good else None
    if spec is not None:
        return spec.source.value, _told(spec.source, advice)
    if not pool.speculative:
        return _NONE, Finding(
            Level.OK, _CHECK, "none needed: one token a step, as no method is declared"
        )
    source = "counters" if identity.spec_counters and interval_s(pool) > 0 else _NONE
    if answer is not None and answer.reading.unread:
        return source, _unread(answer.reading.unread)
    if source == "counters":
        return source, _told(Source.COUNTERS, advice)
    if not good:
        return None, None
    ways = [way for way in (advice.requests, advice.counters) if way]
    return _NONE, Finding(
        Level.WARNING,
        _CHECK,
        "nothing tells of it: gains are measured all the same, by time, but not explained",
        "; or ".join(ways) or "declare the pool's engine, if it is one of those that tell",
    )


def _told(source: Source, advice: Advice) -> Finding:
    match source:
        case Source.REQUEST:
            return Finding(Level.OK, _CHECK, "told in each answer")
        case Source.STREAM:
            return Finding(Level.NOTE, _CHECK, "steps are counted in streams", advice.requests)
        case Source.COUNTERS:
            return Finding(
                Level.NOTE,
                _CHECK,
                "only the server's totals tell of it, so classes are told apart by estimation",
                advice.requests,
            )


def _unread(fields: tuple[str, ...]) -> Finding:
    return Finding(
        Level.WARNING,
        _CHECK,
        f"told, but not understood: {', '.join(fields)}",
        "watch specroute_unread_fields_total; the engine may be newer than this program",
    )
