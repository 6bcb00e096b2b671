"""What a finished request adds to its cell, as integers by field. It keeps and reads no sums.

A figure nobody reported has no field: missing never becomes 0.

=====================  ===========================================================================
field                  sum of
=====================  ===========================================================================
`n`, `status.<s>`      requests, and requests by how they ended
`tokens`, `.n`         completion tokens, and requests that reported them
`steps`, `.n`          decode steps, and requests that reported them; `.tokens`: tokens of those
`accepted`, `.n`       accepted tokens, and requests that reported them
`drafted`, `.n`        drafted tokens, and requests that reported them and accepted ones;
                       `drafted.accepted`: accepted tokens of those
`alpha.accepted`       tokens accepted in drafts of full length k
`alpha.early`          such drafts that stopped before k
`hist.<j>`             drafts of which j tokens were accepted
`source.<s>`           requests with a record of speculation, by where it came from
`bad`                  requests whose record of speculation contradicted itself
`ttft.<i>` `tpot.<i>`  requests by log bucket; TPOT of streams of at least 16 tokens
`e2e.<i>` `e2ew.<i>`   the same, of streamed and of whole answers
`y.<kind>.n/.s/.q`     log costs: number, sum and sum of squares in millionths
=====================  ===========================================================================

Everything but `n` and `status` comes from requests that ended well.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from policies.cost import (
    MAX_TOKENS,
    MIN_STREAM_TOKENS,
    known_duration,
    known_tokens,
    log_cost,
)
from policies.estimators import acceptance, histogram
from policies.types import Status

if TYPE_CHECKING:
    from policies.types import Counts, SpecUsage, Trial

FIXED_POINT = 1_000_000
"""Log costs are stored in millionths; the rounding is far below their noise."""

MAX_HISTOGRAM = 64
"""Longest draft whose histogram is stored."""

LATENCIES = ("ttft", "tpot", "e2e", "e2ew")


def increments(trial: Trial, typical_tokens: int) -> dict[str, int]:
    """Turn a finished request into what it adds to its cell.

    Args:
        trial: The request.
        typical_tokens: Typical completion tokens of its class (`policies.cost.typical_tokens`).

    Returns:
        Field to integer; a figure nobody reported has no field.

    Example:
        >>> from policies.types import ArmId, ClassId, SpecUsage, Trial
        >>> spec = SpecUsage(43, 129, 10, (39, 1, 0, 3), num_speculative_tokens=3)
        >>> trial = Trial(ClassId("chat"), ArmId("fast"), Status.OK, True, 0.5, ttft_s=0.2,
        ...               tpot_s=0.02, e2e_s=1.24, tokens=53, spec=spec)
        >>> sums = increments(trial, 53)
        >>> sums["steps"], sums["steps.tokens"], sums["hist.0"], sums["y.s.n"]
        (43, 53, 39, 1)
    """
    sums = {"n": 1, f"status.{trial.status}": 1}
    if trial.status is not Status.OK:
        return sums
    tokens = known_tokens(trial)
    if tokens is not None:
        sums |= {"tokens": tokens, "tokens.n": 1}
    if trial.spec is not None:
        sums |= _speculation(trial.spec, tokens)
    sums |= _latencies(trial, tokens)
    cost = log_cost(trial, typical_tokens)
    if cost is not None:
        kind, y = cost
        sums[f"y.{kind}.n"] = 1
        sums[f"y.{kind}.s"] = round(y * FIXED_POINT)
        sums[f"y.{kind}.q"] = round(y * y * FIXED_POINT)
    return sums


def effect_fields(sums: Counts) -> dict[str, int]:
    """The part of a request's increments that bears on the effects of arms.

    Example:
        >>> effect_fields({"n": 1, "status.ok": 1, "tokens": 9, "y.s.n": 1, "ttft.7": 1})
        {'n': 1, 'status.ok': 1, 'y.s.n': 1}
    """
    return {
        name: value
        for name, value in sums.items()
        if name == "n" or name.startswith(("y.", "status."))
    }


def _latencies(trial: Trial, tokens: int | None) -> dict[str, int]:
    e2e = "e2e" if trial.streamed else "e2ew"
    durations = {e2e: known_duration(trial.e2e_s)}
    if trial.streamed:
        durations["ttft"] = known_duration(trial.ttft_s)
        if tokens is not None and tokens >= MIN_STREAM_TOKENS:
            durations["tpot"] = known_duration(trial.tpot_s)
    return {
        f"{name}.{histogram.bucket(seconds)}": 1
        for name, seconds in durations.items()
        if seconds is not None
    }


def _speculation(spec: SpecUsage, tokens: int | None) -> dict[str, int]:
    if not _believable(spec, tokens):
        return {"bad": 1}
    sums = {f"source.{spec.source}": 1}
    steps, accepted, drafted = spec.steps, spec.accepted, spec.drafted
    if steps is None and tokens is not None and accepted is not None:
        steps = max(tokens - accepted, 0)
    if steps and tokens is not None:
        sums |= {"steps": steps, "steps.n": 1, "steps.tokens": tokens}
    if accepted is not None:
        sums |= {"accepted": accepted, "accepted.n": 1}
        if drafted is not None:
            sums |= {"drafted": drafted, "drafted.n": 1, "drafted.accepted": accepted}
    return sums | _accepted_per_step(spec)


def _accepted_per_step(spec: SpecUsage) -> dict[str, int]:
    counts, k = spec.accepted_per_step, spec.num_speculative_tokens
    if counts is None:
        return {}
    sums = {f"hist.{j}": count for j, count in enumerate(counts) if count}
    if k is None or (spec.drafted is not None and spec.drafted != k * sum(counts)):
        return sums  # drafts of other lengths: a short one accepted whole is not one that stopped
    full = acceptance.stopped_early(counts, k)
    if full is not None:
        sums |= {"alpha.accepted": full[0], "alpha.early": full[1]}
    return sums


def _believable(spec: SpecUsage, tokens: int | None) -> bool:
    """Whether the engine's figures agree with each other as far as they are known."""
    counts = spec.accepted_per_step or ()
    given = [*counts, spec.steps, spec.drafted, spec.accepted, spec.num_speculative_tokens]
    if any(value is not None and not 0 <= value <= MAX_TOKENS for value in given):
        return False
    accepted, drafted, steps = spec.accepted, spec.drafted, spec.steps
    # An answer cut in the middle of a step leaves out tokens that were accepted.
    most = None if tokens is None else tokens + MAX_HISTOGRAM
    pairs = [(accepted, drafted), (steps, tokens), (accepted, most)]
    if any(low is not None and high is not None and low > high for low, high in pairs):
        return False
    return len(counts) <= MAX_HISTOGRAM + 1
