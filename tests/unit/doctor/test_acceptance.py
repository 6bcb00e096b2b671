"""From where acceptance will be known, case by case."""

from __future__ import annotations

from typing import Any

import pytest

from policies.types import Source, SpecUsage
from router.doctor.acceptance import acceptance
from router.doctor.advice import ADVICE
from router.doctor.ask import Answer
from router.doctor.findings import Level
from router.engines.base import Reading
from router.engines.identity import Engine, EngineIdentity
from tests.support.builders import PLAIN, pool, route_facts


def found(
    identity: EngineIdentity, answer: Answer | None, **pool_keys: Any
) -> tuple[str | None, Level | None, str | None]:
    """Source, level and remedy, for a pool of n-grams on vLLM unless told otherwise."""
    keys = {"method": "ngram", "engine": "vllm", **pool_keys}
    facts = route_facts(pool("plain", **keys)).pools[PLAIN]
    source, finding = acceptance(facts, identity, answer)
    if finding is None:
        return source, None, None
    return source, finding.level, finding.remedy


def told(source: Source) -> Answer:
    """An answer whose acceptance is known."""
    return Answer(reading=Reading(tokens=8, spec=SpecUsage(steps=4, source=source)))


SILENT = Answer(reading=Reading(tokens=8))
VLLM = EngineIdentity(Engine.VLLM, spec_counters=True)
FLAG = ADVICE["vllm"].requests


def test_what_rides_on_the_request_comes_first() -> None:
    """Whatever the pages say; steps counted in streams are good, a record is better."""
    assert found(VLLM, told(Source.REQUEST)) == ("request", Level.OK, None)
    assert found(VLLM, told(Source.STREAM)) == ("stream", Level.NOTE, FLAG)


def test_counters_where_they_are_read() -> None:
    """By an adapter that knows them, and only if it reads them at all."""
    assert found(VLLM, SILENT) == ("counters", Level.NOTE, FLAG)
    for keys in ({"balance": {"scrape_s": 0}}, {"engine": "generic"}):
        source, level, _ = found(VLLM, SILENT, **keys)
        assert (source, level) == ("none", Level.WARNING)


def test_plain_decoding_needs_none() -> None:
    """One token a step; vLLM without speculation would not even start with its flag."""
    for answer, source in ((SILENT, "none"), (told(Source.STREAM), "stream")):
        assert found(EngineIdentity(), answer, method="none") == (source, Level.OK, None)


def test_without_a_request_only_the_version_tells() -> None:
    """Or nothing does, which is left open."""
    sure = EngineIdentity(Engine.LLAMACPP, per_request=True)
    assert found(sure, None, engine="llamacpp") == ("request", Level.OK, None)
    assert found(VLLM, None) == (None, Level.NOTE, FLAG)
    old = EngineIdentity(Engine.VLLM, per_request=False)
    assert found(old, None)[:2] == ("none", Level.WARNING)


def test_an_answer_that_failed_leaves_it_open() -> None:
    """That it failed is told elsewhere."""
    assert found(EngineIdentity(Engine.VLLM), Answer(failure="it answered 500")) == (
        None,
        None,
        None,
    )


def test_what_was_not_understood_is_named() -> None:
    """A field that was renamed must not look like no acceptance."""
    answer = Answer(reading=Reading(tokens=8, unread=("metrics.speculative_decoding",)))
    facts = route_facts(pool("plain", method="ngram", engine="vllm")).pools[PLAIN]
    _, finding = acceptance(facts, EngineIdentity(Engine.VLLM), answer)
    assert finding is not None
    assert "metrics.speculative_decoding" in finding.text


@pytest.mark.parametrize("engine", [engine for engine in Engine if engine is not Engine.UNKNOWN])
def test_every_engine_has_advice(engine: Engine) -> None:
    """Also those for which there is no adapter; for others, to declare them."""
    _, level, remedy = found(EngineIdentity(engine), SILENT, engine="generic")
    assert level is Level.WARNING
    assert remedy
