"""Whether the pools of a route are alike in all but their speculation. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import takewhile

from router.doctor.ask import Answer
from router.doctor.findings import Finding, Level
from router.engines.identity import Engine, EngineIdentity
from router.fleet.model import PoolFacts, RouteFacts
from router.types import ReplicaId

_SGLANG_LIMIT = 48
"""Running requests that SGLang allows under speculation where nobody says otherwise."""


@dataclass(frozen=True, slots=True)
class Examined:
    """One server, as far as it is compared with others."""

    pool: PoolFacts
    replica_id: ReplicaId
    identity: EngineIdentity
    answer: Answer | None = None


def compare(route: RouteFacts, servers: Sequence[Examined]) -> Iterator[Finding]:
    """How the servers of a route differ where they should not."""
    yield from _versions(servers)
    yield from _models(servers)
    yield from _places(servers)
    yield from _answers(route, servers)


def _shown(groups: dict[str, list[str]]) -> str:
    return "; ".join(f"{', '.join(ids)}: {what}" for what, ids in groups.items())


def _groups(
    servers: Sequence[Examined], by: Callable[[EngineIdentity], object]
) -> dict[str, list[str]]:
    """Servers by something that they tell; those that do not are left out."""
    groups: dict[str, list[str]] = {}
    for server in servers:
        told = by(server.identity)
        if told is not None:
            groups.setdefault(str(told), []).append(server.replica_id)
    return groups


def _versions(servers: Sequence[Examined]) -> Iterator[Finding]:
    versions = _groups(servers, lambda told: None if told.engine is Engine.UNKNOWN else told.label)
    if len(versions) > 1:
        yield Finding(
            Level.NOTE,
            "versions",
            f"servers run different engines or versions ({_shown(versions)}), so a gain is partly "
            "theirs and not only the method's",
            "run the same version in all pools of a route",
        )


def _models(servers: Sequence[Examined]) -> Iterator[Finding]:
    names = _groups(servers, lambda told: ", ".join(sorted(told.models)[:5]) or None)
    if len(names) > 1:
        yield Finding(
            Level.WARNING,
            "models",
            f"servers serve different models by name ({_shown(names)})",
            "pools of a route must serve one model: an answer must not depend on the pool",
        )
    contexts = _groups(servers, lambda told: told.context_tokens)
    if len(contexts) > 1:
        yield Finding(
            Level.WARNING,
            "context",
            f"servers take prompts of different length ({_shown(contexts)} tokens): a long one "
            "fails on some pools only",
            "start all servers of a route with the same context length",
        )


def _places(servers: Sequence[Examined]) -> Iterator[Finding]:
    places = _groups(servers, lambda told: told.most_running)
    if len(places) < 2:  # noqa: PLR2004 - two that differ
        return
    silent = any(
        server.identity.engine is Engine.SGLANG
        and server.identity.speculates
        and server.identity.most_running == _SGLANG_LIMIT
        for server in servers
    )
    why = (
        f"; SGLang lowers the limit to {_SGLANG_LIMIT} by itself when it speculates"
        if silent
        else ""
    )
    yield Finding(
        Level.WARNING,
        "admission",
        f"servers work on different numbers of requests at a time ({_shown(places)}){why}: under "
        "load, differences would be those of the queues",
        "start all with the same limit (SGLang: --max-running-requests, llama.cpp: -np, vLLM: "
        "--max-num-seqs)",
    )


def _answers(route: RouteFacts, servers: Sequence[Examined]) -> Iterator[Finding]:
    """Whether lossless pools say at temperature 0 what the baseline says."""
    told = [
        (server, server.answer)
        for server in servers
        if server.answer is not None and server.answer.good and server.pool.lossless
    ]
    control = [pair for pair in told if pair[0].pool.arm.arm_id == route.baseline]
    others = [pair for pair in told if pair not in control]
    if not control or not others:
        return
    first, expected = control[0]
    if not expected.text:
        return  # it said nothing that could be compared
    same = []
    for server, answer in [*control[1:], *others]:
        if answer.text == expected.text:
            same.append(server.replica_id)
            continue
        shared = _alike(answer.text, expected.text)
        yield Finding(
            Level.NOTE,
            "greedy",
            f"{server.replica_id} answers a greedy request otherwise than {first.replica_id}, "
            f"after {shared} of {len(expected.text)} characters",
            "rounding can do that late in an answer; early on, compare model, quantization and "
            "chat template, and mark a pool that changes texts `lossless: false`",
        )
    if same:
        yield Finding(
            Level.OK,
            "greedy",
            f"{', '.join(same)}: the same answer to a greedy request as {first.replica_id}",
        )


def _alike(one: str, other: str) -> int:
    """Characters that two texts begin with together."""
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))
