"""What facts about one server mean."""

from __future__ import annotations

from typing import Any

import pytest

from router.doctor.advice import ADVICE
from router.doctor.ask import Answer
from router.doctor.checks import (
    answer_findings,
    connection_findings,
    engine_findings,
    keep_alive_finding,
    load_findings,
    model_findings,
    refusal_findings,
)
from router.doctor.findings import Finding, Level
from router.engines.identity import Engine, EngineIdentity
from router.fleet.model import PoolFacts
from tests.support.builders import PLAIN, pool, route_facts


def facts(**pool_keys: Any) -> PoolFacts:
    """A pool."""
    return route_facts(pool("plain", **pool_keys)).pools[PLAIN]


def engine(identity: EngineIdentity, *, closed: bool = False, **pool_keys: Any) -> list[Finding]:
    """What is found of an engine."""
    return list(engine_findings(facts(**pool_keys), identity, closed=closed))


VLLM = EngineIdentity(Engine.VLLM, "0.32.0", ("/version",))


def test_why_an_engine_is_unknown() -> None:
    """Contradiction, a closed door, or pages of another kind: none is a problem."""
    contradiction = EngineIdentity(evidence=("/v1/models: owned_by vllm", "/metrics: sglang:*"))
    cases = [(contradiction, False), (EngineIdentity(), True), (EngineIdentity(), False)]
    texts = []
    for identity, closed in cases:
        [found] = engine(identity, closed=closed)
        assert found.level is Level.NOTE
        texts.append(found.text)
    assert "contradict" in texts[0]
    assert "credential" in texts[1]
    assert "name no engine" in texts[2]


def test_a_generic_pool_is_told_what_it_could_be() -> None:
    """Where there is an adapter for that engine; for others generic is right."""
    assert [item.level for item in engine(VLLM, engine="generic")] == [Level.OK, Level.NOTE]
    tgi = EngineIdentity(Engine.TGI, evidence=("/info",))
    assert [item.level for item in engine(tgi, engine="generic")] == [Level.OK]
    wrong = engine(tgi, engine="vllm")[1]
    assert wrong.remedy is not None
    assert "`engine: generic`" in wrong.remedy


@pytest.mark.parametrize(
    ("identity", "keys", "level", "words"),
    [
        ({"speculates": True}, {}, Level.PROBLEM, "without speculation"),
        ({"speculates": False}, {"method": "ngram"}, Level.PROBLEM, "with its speculative"),
        (
            {"speculates": True, "method": "EAGLE3", "methods": frozenset(("eagle3",))},
            {"method": "ngram"},
            Level.WARNING,
            "write `method: eagle3`",
        ),
        (
            {"speculates": True, "num_speculative_tokens": 4},
            {"method": "ngram", "num_speculative_tokens": 5},
            Level.WARNING,
            "num_speculative_tokens: 4",
        ),
    ],
)
def test_a_wrong_declaration_has_its_remedy(
    identity: dict[str, Any], keys: dict[str, Any], level: Level, words: str
) -> None:
    """What measures wrongly is a problem, what only explains wrongly a warning."""
    told = EngineIdentity(Engine.VLLM, evidence=("x",), **identity)
    found = engine(told, engine="vllm", **keys)[1]
    assert found.level is level
    assert found.remedy is not None
    assert words in found.remedy


def test_a_name_that_is_not_served() -> None:
    """A problem where the engine refuses it, a warning where it answers with what it has."""
    for kind, level in ((Engine.VLLM, Level.PROBLEM), (Engine.LLAMACPP, Level.WARNING)):
        [found] = model_findings("m", "generic", EngineIdentity(kind, models=("other",)))
        assert found.level is level
    [served] = model_findings("m", "vllm", EngineIdentity(models=("other", "m")))
    assert served.level is Level.OK
    assert list(model_findings("m", "vllm", EngineIdentity())) == []


@pytest.mark.parametrize(
    ("status", "keys", "level", "words"),
    [
        (401, {}, Level.PROBLEM, "set api_key of pool plain"),
        (403, {"api_key": "sk-1"}, Level.PROBLEM, "correct api_key of pool plain"),
        (404, {}, Level.PROBLEM, "knows no such model"),
        (503, {}, Level.WARNING, "try again later"),
        (500, {}, Level.PROBLEM, "curl"),
        (None, {}, Level.PROBLEM, "own log"),
    ],
)
def test_a_refused_request_has_its_remedy(
    status: int | None, keys: dict[str, Any], level: Level, words: str
) -> None:
    """By its status."""
    [found] = answer_findings(facts(**keys), Answer(status=status, failure="it did"))
    assert found.level is level
    assert found.remedy is not None
    assert words in found.remedy


@pytest.mark.parametrize(
    ("headers", "skew_s", "expected"),
    [
        ((), None, []),
        ((("Keep-Alive", "timeout=5, max=100"),), 1.5, [(Level.OK, "keep-alive")]),
        (
            (("keep-alive", "timeout=4"),),
            -3.0,
            [(Level.WARNING, "keep-alive"), (Level.WARNING, "clock")],
        ),
        ((("Keep-Alive", "nonsense"),), 0.0, []),
    ],
)
def test_connections_and_clocks(
    headers: tuple[tuple[str, str], ...], skew_s: float | None, expected: list[tuple[Level, str]]
) -> None:
    """What is not told is not remarked upon."""
    found = connection_findings(Answer(headers=headers, skew_s=skew_s))
    assert [(item.level, item.check) for item in found] == expected


def test_a_connection_that_outlived_the_watch_is_good() -> None:
    """How long it would have lived does not matter."""
    assert keep_alive_finding(None, "watched").level is Level.OK


def test_requests_that_go_elsewhere_are_named() -> None:
    """By the adapter's own rules, and only where the pool speculates."""
    [found] = refusal_findings(facts(engine="vllm", method="ngram"))
    assert "min_p, logit_bias" in found.text
    assert list(refusal_findings(facts(engine="vllm"))) == []
    assert list(refusal_findings(facts(engine="generic", method="ngram"))) == []


def test_load_that_cannot_be_seen_is_a_note() -> None:
    """Where it is looked for."""
    closed = EngineIdentity(Engine.VLLM, metrics=False)
    [found] = load_findings(facts(engine="vllm"), closed)
    assert (found.level, found.remedy) == (Level.NOTE, ADVICE["vllm"].counters)
    assert list(load_findings(facts(engine="llamacpp"), closed)) == []
    assert list(load_findings(facts(engine="vllm"), EngineIdentity(Engine.VLLM))) == []
