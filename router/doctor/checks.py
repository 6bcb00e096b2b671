"""What the facts about one server mean: pure functions from values to findings."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import get_args

from router.config.base import EngineName
from router.doctor.advice import REFUSES_OTHER_MODELS, advice_for
from router.doctor.ask import Answer, question
from router.doctor.findings import Finding, Level
from router.engines.identity import Engine, EngineIdentity
from router.fleet.identify import Mismatch, mismatches
from router.fleet.model import PoolFacts
from router.fleet.scrape import interval_s
from router.relay.headers import header
from router.relay.wire.pool import KEEP_S

_UNAUTHORIZED = frozenset((401, 403))
_NOT_FOUND = 404
_BUSY = frozenset((429, 503))
_TOLERATED_SKEW_S = 2.0
_KEEP_ALIVE = re.compile(r"timeout\s*=\s*(\d{1,9})", re.IGNORECASE)

_LEVELS = {
    "engine": Level.PROBLEM,
    "speculation": Level.PROBLEM,
    "method": Level.WARNING,
    "draft_length": Level.WARNING,
}


def engine_findings(
    pool: PoolFacts, identity: EngineIdentity, *, closed: bool
) -> Iterator[Finding]:
    """Which engine it is, and whether that is the one declared.

    Args:
        pool: What is declared.
        identity: What its pages said.
        closed: Whether its pages asked for a credential.
    """
    if identity.engine is Engine.UNKNOWN:
        if identity.evidence:
            why = f"its pages contradict each other ({'; '.join(identity.evidence)})"
        elif closed:
            why = "its pages ask for a credential"
        else:
            why = "its pages name no engine that is known"
        yield Finding(
            Level.NOTE,
            "engine",
            f"unknown: {why}",
            "nothing to do where another kind of server is meant; its engine is taken to be "
            f"{pool.adapter.name}, as declared",
        )
        return
    told = identity.speculation
    yield Finding(
        Level.OK,
        "engine",
        identity.label + (f", {told}" if told else "") + f" (by {identity.evidence[0]})",
    )
    for mismatch in mismatches(pool, identity):
        yield Finding(
            _LEVELS[mismatch.what], "declaration", mismatch.why, _remedy(pool, identity, mismatch)
        )
    name = identity.engine.value
    if pool.adapter.name == "generic" and name in get_args(EngineName):
        yield Finding(
            Level.NOTE,
            "declaration",
            f"engine generic is declared; of {name}, more could be read",
            f"write `engine: {name}` for pool {pool.settings.name}",
        )


def _remedy(pool: PoolFacts, identity: EngineIdentity, mismatch: Mismatch) -> str:
    name = pool.settings.name
    match mismatch.what:
        case "engine":
            supported = identity.engine.value in get_args(EngineName)
            engine = identity.engine.value if supported else "generic"
            return f"write `engine: {engine}` for pool {name}, or correct the url"
        case "speculation" if pool.arm.baseline and not pool.speculative:
            return (
                "start this server without speculation: gains are measured against it, or name "
                "another baseline"
            )
        case "speculation" if identity.speculates:
            return f"write {_method(identity)} for pool {name}, or correct the url"
        case "speculation":
            return "start the server with its speculative settings, or correct the url"
        case "method":
            return f"write {_method(identity)} for pool {name}, or correct the url"
        case "draft_length":
            k = identity.num_speculative_tokens
            return f"write `num_speculative_tokens: {k}` for pool {name}"


def _method(identity: EngineIdentity) -> str:
    if not identity.methods:
        return "the method that it runs"
    return " or ".join(f"`method: {name}`" for name in sorted(identity.methods))


def model_findings(model: str, engine: str, identity: EngineIdentity) -> Iterator[Finding]:
    """Whether it serves the name that it will be asked for."""
    if not identity.models:
        return
    names = ", ".join(identity.models[:5])
    if model in identity.models:
        size = f", context {identity.context_tokens}" if identity.context_tokens else ""
        yield Finding(Level.OK, "model", f"serves {model}{size}")
        return
    known = engine if identity.engine is Engine.UNKNOWN else identity.engine.value
    refuses = known in REFUSES_OTHER_MODELS
    yield Finding(
        Level.PROBLEM if refuses else Level.WARNING,
        "model",
        f"serves {names}, not {model}"
        + ("" if refuses else "; it answers other names with what it has loaded"),
        f"have it serve the name {model}, or let the route's `model` be the engine's name and "
        f"`aliases` hold {model}",
    )


def answer_findings(pool: PoolFacts, answer: Answer) -> Iterator[Finding]:
    """Whether it answers requests, and counts tokens."""
    if answer.failure is not None:
        yield Finding(
            Level.WARNING if answer.status in _BUSY else Level.PROBLEM,
            "request",
            answer.failure,
            _request_remedy(pool, answer.status),
        )
        return
    ttft = "" if answer.ttft_s is None else f", first content after {answer.ttft_s * 1000:.0f} ms"
    yield Finding(Level.OK, "request", f"answered in {answer.e2e_s * 1000:.0f} ms{ttft}")
    if answer.reading.tokens is None:
        yield Finding(
            Level.WARNING,
            "usage",
            "the stream brought no token count, so neither time per token nor acceptance is known",
            "have the server send `usage` at the end of streams, or declare its engine",
        )
    else:
        yield Finding(Level.OK, "usage", f"{answer.reading.tokens} tokens counted by the engine")


def _request_remedy(pool: PoolFacts, status: int | None) -> str:
    name = pool.settings.name
    if status in _UNAUTHORIZED:
        if pool.has_key:
            return f"correct api_key of pool {name}"
        return (
            f"set api_key of pool {name}; where clients bring keys of their own, give "
            "`specroute doctor --api-key` one"
        )
    if status == _NOT_FOUND:
        return "the engine knows no such model or path: compare `model` and the url with its own"
    if status in _BUSY:
        return "it is full or still loading: try again later"
    if status is None:
        return "look into the server's own log"
    return "try the same request with curl, and look into the server's own log"


def load_findings(pool: PoolFacts, identity: EngineIdentity) -> Iterator[Finding]:
    """Whether its load can be seen where it is looked for."""
    if identity.metrics is False and interval_s(pool) > 0:
        yield Finding(
            Level.NOTE,
            "load",
            "its metrics are closed or absent, so only requests of ours count as its load",
            advice_for(identity.engine.value).counters,
        )


def connection_findings(answer: Answer) -> Iterator[Finding]:
    """How long it keeps connections, and whether its clock is ours."""
    found = _KEEP_ALIVE.search(header(answer.headers, "keep-alive") or "")
    if found is not None:
        yield keep_alive_finding(float(found[1]), "by its Keep-Alive header")
    if answer.skew_s is not None and abs(answer.skew_s) > _TOLERATED_SKEW_S:
        side = "ahead of" if answer.skew_s > 0 else "behind"
        yield Finding(
            Level.WARNING,
            "clock",
            f"its clock is {abs(answer.skew_s):.0f} s {side} this machine's",
            "set both by NTP: logs cannot be laid side by side otherwise",
        )


def keep_alive_finding(kept_s: float | None, how: str) -> Finding:
    """Whether idle connections live longer at the server than here; None for longer than seen."""
    if kept_s is not None and kept_s <= KEEP_S:
        return Finding(
            Level.WARNING,
            "keep-alive",
            f"it closes idle connections after {kept_s:.1f} s ({how}), sooner than we do "
            f"({KEEP_S:g} s): requests may find theirs closed and cost a second try",
            "raise the server's keep-alive time (vLLM: VLLM_HTTP_TIMEOUT_KEEP_ALIVE)",
        )
    shown = "longer" if kept_s is None else f"for {kept_s:.1f} s"
    return Finding(
        Level.OK, "keep-alive", f"keeps idle connections {shown} ({how}; we keep them {KEEP_S:g} s)"
    )


_UNUSUAL: dict[str, dict[str, object]] = {
    "min_p": {"min_p": 0.05},
    "logit_bias": {"logit_bias": {"1": 1}},
    "logprobs": {"logprobs": True},
    "n > 1": {"n": 2},
    "tools": {"tools": [{"type": "function", "function": {"name": "f"}}]},
    "response_format": {"response_format": {"type": "json_object"}},
}


def refusal_findings(pool: PoolFacts) -> Iterator[Finding]:
    """Which requests never go to a pool, since its engine would refuse or falsify them."""
    kept_off = [
        name
        for name, fields in _UNUSUAL.items()
        if pool.adapter.refusal(question("m", **fields), speculative=pool.speculative)
    ]
    if kept_off:
        yield Finding(
            Level.NOTE,
            "routing",
            f"requests with {', '.join(kept_off)} go to other pools: {pool.adapter.name} refuses "
            "or falsifies them while it speculates",
        )
