"""What pools of a route should have in common."""

from __future__ import annotations

from typing import Any

from policies.types import ArmId
from router.doctor.ask import Answer
from router.doctor.compare import Examined, compare
from router.doctor.findings import Level
from router.engines.identity import Engine, EngineIdentity
from router.types import ReplicaId
from tests.support.builders import pool, route_facts

FACTS = route_facts(
    pool("plain"), pool("fast", method="ngram"), pool("odd", method="ngram", lossless=False)
)


def server(name: str, text: str | None = None, **identity: Any) -> Examined:
    """One server of a pool; `text` is its answer."""
    answer = None if text is None else Answer(text=text)
    told = EngineIdentity(**{"engine": Engine.SGLANG, **identity})
    return Examined(FACTS.pools[ArmId(name)], ReplicaId(f"{name}/0"), told, answer)


def found(*servers: Examined) -> list[tuple[Level, str, str]]:
    """What differs."""
    return [(item.level, item.check, item.text) for item in compare(FACTS, servers)]


def test_servers_that_are_alike_are_not_remarked_upon() -> None:
    """Nor those that tell nothing."""
    alike: dict[str, Any] = {
        "version": "0.5.23",
        "models": ("m",),
        "context_tokens": 4096,
        "most_running": 48,
    }
    assert found(server("plain", **alike), server("fast", **alike)) == []
    assert found(server("plain", **alike), server("fast", engine=Engine.UNKNOWN)) == []


def test_versions_that_differ_are_a_note() -> None:
    """A gain would be the version's, too."""
    [(level, check, text)] = found(server("plain", version="1.0"), server("fast", version="1.1"))
    assert (level, check) == (Level.NOTE, "versions")
    assert "plain/0: sglang 1.0; fast/0: sglang 1.1" in text


def test_models_and_contexts_that_differ_are_warnings() -> None:
    """Answers would depend on the pool."""
    one = server("plain", models=("a", "b"), context_tokens=4096)
    other = server("fast", models=("b",), context_tokens=2048)
    assert [item[:2] for item in found(one, other)] == [
        (Level.WARNING, "models"),
        (Level.WARNING, "context"),
    ]


def test_the_silent_limit_of_sglang_is_named() -> None:
    """Only where it is that."""
    plain = server("plain", most_running=256)
    [(level, check, text)] = found(plain, server("fast", most_running=48, speculates=True))
    assert (level, check) == (Level.WARNING, "admission")
    assert "SGLang lowers the limit to 48 by itself" in text
    [(_, _, text)] = found(plain, server("fast", most_running=2, engine=Engine.SGLANG))
    assert "by itself" not in text


def test_greedy_answers_are_compared_with_the_baselines() -> None:
    """Of pools that promise the same text; where the texts part is told, not what they say."""
    plain = server("plain", "one two three")
    assert found(plain, server("fast", "one two three"), server("odd", "x")) == [
        (Level.OK, "greedy", "fast/0: the same answer to a greedy request as plain/0")
    ]
    [(level, _, text)] = found(plain, server("fast", "one two six"))
    assert level is Level.NOTE
    assert "after 8 of 13 characters" in text
    assert "six" not in text


def test_nothing_is_compared_with_an_empty_or_failed_answer() -> None:
    """Two silences are no agreement."""
    assert found(server("plain", ""), server("fast", "")) == []
    assert found(server("plain"), server("fast", "x")) == []
