"""`specroute explain REQUEST_ID`: why a request went where it went, and what came of it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from router.experiments.placing import SETTLED

UNKNOWN = "–"


def explanation(decision: dict[str, Any]) -> str:
    """A decision, as `/api/decisions/ID` gives it, in lines of text."""
    rows = [*_why(decision), ("", ""), *_candidates(decision), ("", ""), *_outcome(decision)]
    wide = max(len(term) for term, _ in rows)
    lines = (f"{term:<{wide}}  {text}".rstrip() for term, text in rows)
    return f"request {decision['request_id']}\n" + "\n".join(lines)


def _why(of: dict[str, Any]) -> Iterator[tuple[str, str]]:
    streamed = ", streamed" if of["stream"] else ""
    yield "asked for", f"{of['model']}, {of['endpoint']}{streamed}"
    yield "class", f"{of['class']}, {of['confidence']:.0%} sure, by {of['class_reason']}"
    yield "segment", of["segment"] or "none told apart"
    if of.get("experiment"):
        yield "experiment", of["experiment"]
    yield "policy", f"{of['policy']}, by snapshot {of['snapshot']}"


def _candidates(of: dict[str, Any]) -> Iterator[tuple[str, str]]:
    for pool in dict.fromkeys((*of["probabilities"], *of["excluded"])):
        said = [f"{of['probabilities'].get(pool, 0.0):.1%}"]
        if pool in of["excluded"]:
            said.append(f"out: {of['excluded'][pool].replace('_', ' ')}")
        if pool == of["arm"]:
            said.append(_how(of))
        yield pool, "; ".join(said)


def _how(of: dict[str, Any]) -> str:
    if of["policy"] in SETTLED:
        return f"settled before any draw: {of['policy']}"
    if not of.get("drawn", True):
        return "preferred by the policy; its tenant is not explored with"
    return f"drawn, with probability {of['propensity']:.1%}"


def _outcome(of: dict[str, Any]) -> Iterator[tuple[str, str]]:
    error = f": {of['error']}" if of["error"] else ""
    yield "status", f"{of['status']}, {of['http_status'] or UNKNOWN}{error}"
    stepped_in = "" if of["served_by"] in (None, of["arm"]) else ", which stepped in"
    yield "served by", f"{of['served_by'] or 'nobody'}{stepped_in}"
    yield "tries", ", then ".join(f"{server} {end}" for server, end in of["attempts"]) or UNKNOWN
    yield "load met", f"{_count(of['load'])} at the server, {_count(of['waiting'])} waiting there"
    waits = (("queue_s", "for a place"), ("overhead_s", "added by the proxy"))
    yield "waits", ", ".join(f"{_seconds(of[key])} {text}" for key, text in waits)
    held = ", held up by its client" if of["held"] else ""
    yield (
        "times",
        (
            f"{_seconds(of['ttft_s'])} to the first token, {_seconds(of['tpot_s'])} a token, "
            f"{_seconds(of['e2e_s'])} in all{held}"
        ),
    )
    if of.get("truncated") or of.get("valid") is not None:
        yield "structure", _structure(of)
    yield "tokens", f"{_count(of['tokens'])} of answer, {_count(of['prompt_tokens'])} of prompt"
    if of["steps"] is not None:
        yield (
            "speculation",
            (
                f"{_count(of['steps'])} steps, {_count(of['drafted'])} drafted, "
                f"{_count(of['accepted'])} accepted, by {of['acceptance_source']}"
            ),
        )


def _structure(of: dict[str, Any]) -> str:
    """Of the answer, where it had to have one."""
    if of.get("truncated"):
        return "cut at the limit of length"
    return "as demanded" if of["valid"] else "not as demanded: no JSON, or no call that was offered"


def _count(value: int | None) -> str:
    return UNKNOWN if value is None else f"{value:,}"


def _seconds(value: float | None) -> str:
    if value is None:
        return UNKNOWN
    return f"{value * 1000:.1f} ms" if value < 1.0 else f"{value:.2f} s"
