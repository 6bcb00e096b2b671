"""What a finished request adds to its cell, as integers by field. It keeps and reads no sums.

A figure nobody reported has no field: missing never becomes 0.

=====================  ===========================================================================
field                  sum of
=====================  ===========================================================================
`n`, `status.<s>`      requests, and requests by how they ended
`tokens`, `.n`         completion tokens, and requests that reported them
`steps`, `.n`          decode steps by the engine's record of each request, and requests that had
                       one; `.tokens`: tokens of those; `.tt` `.ts` `.ss`: sums over them of tokens
                       squared, tokens times steps, steps squared
`stream`, `.n`, ...    the same for steps that were counted in the stream
`accepted`, `.n`       accepted tokens, and requests that reported them
`drafted`, `.n`        drafted tokens, and requests that counted them and accepted ones;
                       `drafted.accepted`: accepted tokens of those. Nominal counts stay out
`alpha.accepted`       tokens accepted in drafts of full length k
`alpha.early`          such drafts that stopped before k
`hist.<j>`             drafts of which j tokens were accepted
`source.<s>`           requests with a record of speculation, by where it came from
`bad`                  requests whose record of speculation contradicted itself
`checked`, `invalid`   answers whose demanded structure could be judged, and those that lack it
`drawn`, `drawn.bad`   of `checked` and `invalid`, those of requests that chance alone sent there
`finished`             answers that had to have a structure and told how they ended
`truncated`            of these, those that were cut at the limit of length
`repeat.n`             answers that were compared with the baseline's to the same request
`repeat.<finding>`     of these, by what their first difference is (`router.sentinel.compare`)
`repeat.worse`         those without the structure, or cut, where the baseline's was not
`repeat.better`        the other way round
`repeat.longer`        those longer than the baseline's by more than a tenth
`repeat.shorter`       the other way round
`sent`                 requests that could have gone to no other arm: in no log cost; `.failed` and
                       `.abandoned`: those of them that ended so
`abandoned`            of `status.aborted`, those that somebody had waited for
`held`                 requests whose durations are censored because the client held them up
`ttft.<i>` `tpot.<i>`  requests by log bucket; TPOT of streams of at least 16 tokens
`e2e.<i>`              the same, of streamed answers
`e2ew<band>.<i>`       the same, of whole answers of 2^band tokens and more, less than twice as
                       many; band `x`: of unknown length
`queue.<i>` `over.<i>` the same, of the wait for a place and of what the router added
`spent`, `.n`          whole durations in millionths, and answers that had one; `.tokens`: tokens of
                       those; `.silent`: those that told no tokens
`y.<kind>.n/.s/.q`     log costs: number, sum and sum of squares in millionths; of requests that
                       might have gone to another arm
`m.<kind>…`            the same by moment: the kind, and where the policy leaned
=====================  ===========================================================================

Everything but `n`, `status` and `abandoned` comes from requests that ended well.
"""

from __future__ import annotations

import math
import re
from functools import lru_cache
from itertools import chain
from typing import TYPE_CHECKING

from policies.cost import (
    KINDS,
    LENGTH_BANDS,
    MAX_TOKENS,
    MIN_STREAM_TOKENS,
    known_duration,
    known_tokens,
    length_band,
    log_cost,
)
from policies.estimators import histogram
from policies.types import OK, Source, Status

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from policies.types import Counts, SpecUsage, Trial

FIXED_POINT = 1_000_000
"""Log costs are stored in millionths; the rounding is far below their noise."""

MOMENT = "m"
"""Family of the fields of log costs by moment."""
_MOMENTS = f"{MOMENT}."
_BY_MOMENT = re.compile(rf"{MOMENT}\.(?P<kind>s|w\d+)[^.]*\.(?P<sum>[nsq])", re.ASCII)

MAX_HISTOGRAM = 64
"""Longest draft whose histogram is stored."""

LONGEST_DRAFT = 256
"""No step drafts more, whatever the engine."""

LATENCIES = ("ttft", "tpot", "e2e", "queue", "over")
"""Families of histograms, beside those of whole answers."""

WHOLE = {band: f"e2ew{band}" for band in LENGTH_BANDS}
"""Families of histograms of whole answers, by band of their length."""

STEP_FIELDS: Mapping[Source, tuple[str, str, str, str, str, str]] = {
    source: (stem, f"{stem}.n", f"{stem}.tokens", f"{stem}.tt", f"{stem}.ts", f"{stem}.ss")
    for source, stem in ((Source.REQUEST, "steps"), (Source.STREAM, "stream"))
}
"""Fields of steps by where they were learned: steps, requests, tokens, sums of products."""

# Names are put together once: a request has twenty of them.
_STATUS = {status: f"status.{status}" for status in Status}
_SOURCE = {source: f"source.{source}" for source in Source}
_HISTOGRAM = tuple(f"hist.{j}" for j in range(MAX_HISTOGRAM + 1))
_TTFT, _TPOT, _E2E, _QUEUE, _OVER = (
    tuple(f"{name}.{index}" for index in range(histogram.MAX_INDEX + 1)) for name in LATENCIES
)
_COST = {kind: (f"y.{kind}.n", f"y.{kind}.s", f"y.{kind}.q") for kind in KINDS}
STRUCTURE = ("checked", "invalid", "finished", "truncated", "drawn", "drawn.bad")
"""Fields of answers that had to have a structure."""

SPENT = ("spent", "spent.n", "spent.tokens", "spent.silent")
"""Fields of how long answers took."""

REPEATS = (
    *("repeat.n", "repeat.same", "repeat.tie", "repeat.unread"),
    *("repeat.odd", "repeat.control", "repeat.unstable"),
    *("repeat.worse", "repeat.better", "repeat.longer", "repeat.shorter"),
)
"""Fields of answers that were compared with the baseline's to the same request."""

SENT = ("sent", "sent.failed", "sent.abandoned")
"""Fields of requests that could have gone to no other arm."""

_EFFECTS = frozenset(
    (
        *SENT,
        *("drawn", "drawn.bad", "abandoned", *SPENT),
        *("n", *_STATUS.values(), *chain.from_iterable(_COST.values())),
        *(name for fields in STEP_FIELDS.values() for name in (fields[0], fields[2])),
    )
)


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
    return with_totals(with_effects(trial, typical_tokens)[0])


def with_effects(trial: Trial, typical_tokens: int) -> tuple[dict[str, int], dict[str, int]]:
    """The same, and of it what bears on effects, both without log costs by kind alone.

    `with_totals` tells these, for many requests at a time.

    Example:
        >>> from policies.types import ArmId, ClassId, Trial
        >>> trial = Trial(ClassId("chat"), ArmId("fast"), Status.OK, True, 0.5, tokens=9)
        >>> with_effects(trial, 53)
        ({'n': 1, 'status.ok': 1, 'tokens': 9, 'tokens.n': 1}, {'n': 1, 'status.ok': 1})
    """
    effects = {"n": 1, _STATUS[trial.status]: 1}
    if not trial.compared:
        _add_sent(effects, trial)
    if trial.status is not OK:
        if trial.abandoned:
            effects["abandoned"] = 1
        return dict(effects), effects
    others: dict[str, int] = {}
    tokens = known_tokens(trial)
    if tokens is not None:
        others["tokens"] = tokens
        others["tokens.n"] = 1
    if trial.spec is not None:
        _add_speculation(others, effects, trial.spec, tokens)
    if trial.held:
        others["held"] = 1
    if trial.truncated is not None or trial.valid is not None:
        _add_structure(others, effects, trial)
    _add_latencies(others, trial, tokens)
    _add_spent(effects, trial, tokens)
    if trial.compared:
        _add_cost(effects, trial, typical_tokens)
    return {**effects, **others}, effects


def _add_sent(effects: dict[str, int], trial: Trial) -> None:
    ends = (trial.status is OK, trial.status is Status.FAILED, trial.abandoned)
    for name, ended in zip(SENT, ends, strict=True):
        if ended:
            effects[name] = 1


def _add_spent(effects: dict[str, int], trial: Trial, tokens: int | None) -> None:
    e2e_s = known_duration(trial.e2e_s)
    if e2e_s is None:
        return
    effects["spent"] = round(min(e2e_s, histogram.HIGHEST_S) * FIXED_POINT)
    effects["spent.n"] = 1
    if tokens is None:
        effects["spent.silent"] = 1
    else:
        effects["spent.tokens"] = tokens


def _add_cost(effects: dict[str, int], trial: Trial, typical_tokens: int) -> None:
    cost = log_cost(trial, typical_tokens)
    if cost is not None:
        kind, y = cost
        number, total, total_sq = _moment_fields(kind, trial.lean)
        effects[number] = 1
        effects[total] = round(y * FIXED_POINT)
        effects[total_sq] = round(y * y * FIXED_POINT)


@lru_cache(maxsize=1024)
def _moment_fields(kind: str, lean: str) -> tuple[str, str, str]:
    stem = f"{MOMENT}.{kind}{lean}"
    return f"{stem}.n", f"{stem}.s", f"{stem}.q"


@lru_cache(maxsize=4096)
def _total_of(field: str) -> str | None:
    """The log cost by kind alone that one by moment is a part of; None of any other field."""
    found = _BY_MOMENT.fullmatch(field)
    return f"y.{found['kind']}.{found['sum']}" if found else None


def with_totals(sums: Counts) -> dict[str, int]:
    """Adds log costs by kind to sums that have them by moment, as `with_effects` gives them.

    Example:
        >>> with_totals({"n": 2, "m.sx12ab2.n": 1, "m.s.n": 1})
        {'n': 2, 'm.sx12ab2.n': 1, 'm.s.n': 1, 'y.s.n': 2}
    """
    return {**sums, **costs_by_kind(sums)}


def by_kind(sums: Counts) -> dict[str, int]:
    """The same for whom it does not matter where a policy leaned: log costs by kind alone.

    Example:
        >>> by_kind({"n": 2, "m.sx12ab2.n": 1, "m.s.n": 1})
        {'n': 2, 'y.s.n': 2}
    """
    others = {name: value for name, value in sums.items() if not name.startswith(_MOMENTS)}
    return {**others, **costs_by_kind(sums)}


def costs_by_kind(sums: Counts) -> dict[str, int]:
    """These log costs alone.

    Example:
        >>> costs_by_kind({"n": 2, "m.sx12ab2.n": 1, "m.s.n": 1})
        {'y.s.n': 2}
    """
    totals: dict[str, int] = {}
    for field in [name for name in sums if name.startswith(_MOMENTS)]:
        total = _total_of(field)
        if total is not None:
            totals[total] = totals.get(total, 0) + sums[field]
    return totals


def effect_fields(sums: Counts) -> dict[str, int]:
    """The part of a request's increments that bears on the effects of arms, its steps and time.

    Example:
        >>> effect_fields({"n": 1, "status.ok": 1, "tokens": 9, "y.s.n": 1, "ttft.7": 1})
        {'n': 1, 'status.ok': 1, 'y.s.n': 1}
    """
    return {
        name: value for name, value in sums.items() if name in _EFFECTS or name.startswith(_MOMENTS)
    }


def _add_structure(others: dict[str, int], effects: dict[str, int], trial: Trial) -> None:
    """Shares of answers, so what none of them did has no field, and the number of them has one."""
    drawn = trial.valid if trial.by_chance else None
    for into, value, bad, of, fault in (
        (others, trial.valid, False, "checked", "invalid"),
        (effects, drawn, False, "drawn", "drawn.bad"),
        (others, trial.truncated, True, "finished", "truncated"),
    ):
        if value is not None:
            into[of] = 1
            if value is bad:
                into[fault] = 1


def _add_latencies(others: dict[str, int], trial: Trial, tokens: int | None) -> None:
    if trial.streamed:
        known = tokens is not None and tokens >= MIN_STREAM_TOKENS
        for names, seconds in (
            (_E2E, trial.e2e_s),
            (_TTFT, trial.ttft_s),
            (_TPOT, trial.tpot_s if known else None),
        ):
            if seconds is not None and 0.0 < seconds < math.inf:
                others[names[histogram.bucket(seconds)]] = 1
    else:
        e2e_s = known_duration(trial.e2e_s)
        if e2e_s is not None:
            others[f"{WHOLE[length_band(tokens)]}.{histogram.bucket(e2e_s)}"] = 1
    for names, seconds in ((_QUEUE, trial.queue_s), (_OVER, trial.overhead_s)):
        # A wait may be 0; it then lies in the lowest bucket.
        if seconds is not None and 0.0 <= seconds < math.inf:
            others[names[histogram.bucket(seconds)]] = 1


def _add_speculation(
    others: dict[str, int], effects: dict[str, int], spec: SpecUsage, tokens: int | None
) -> None:
    if not _believable(spec, tokens):
        others["bad"] = 1
        return
    others[_SOURCE[spec.source]] = 1
    steps, accepted, drafted = spec.steps, spec.accepted, spec.drafted
    if steps is None and tokens is not None and accepted is not None:
        steps = max(tokens - accepted, 0)
    if steps and tokens is not None and spec.source in STEP_FIELDS:
        count, number, of, tt, ts, ss = STEP_FIELDS[spec.source]
        effects[count] = steps
        effects[of] = tokens
        others[number] = 1
        others[tt] = tokens * tokens
        others[ts] = tokens * steps
        others[ss] = steps * steps
    if accepted is not None:
        others["accepted"] = accepted
        others["accepted.n"] = 1
        if drafted is not None and spec.exact_drafted:
            others["drafted"] = drafted
            others["drafted.n"] = 1
            others["drafted.accepted"] = accepted
    if spec.accepted_per_step is not None:
        _add_accepted_per_step(others, spec, spec.accepted_per_step)


def _add_accepted_per_step(others: dict[str, int], spec: SpecUsage, counts: Sequence[int]) -> None:
    accepted = longest = 0
    for j, drafts in enumerate(counts):
        if drafts:
            others[_HISTOGRAM[j]] = drafts
            accepted += j * drafts
            longest = j
    k = spec.num_speculative_tokens
    if not k or not counts or longest > k or not spec.exact_drafted:
        return
    # With drafts of other lengths a short one accepted whole is not one that stopped.
    drafts = sum(counts)
    if spec.drafted is None or spec.drafted == k * drafts:
        # What `acceptance.stopped_early` tells, which would go over them twice more.
        others["alpha.accepted"] = accepted
        others["alpha.early"] = drafts - counts[k] if longest == k else drafts


def _believable(spec: SpecUsage, tokens: int | None) -> bool:
    """Whether the engine's figures agree with each other as far as they are known."""
    accepted, steps, k = spec.accepted, spec.steps, spec.num_speculative_tokens
    drafted = spec.drafted if spec.exact_drafted else None
    if not (
        (accepted is None or 0 <= accepted <= MAX_TOKENS)
        and (steps is None or 0 <= steps <= MAX_TOKENS)
        and (drafted is None or 0 <= drafted <= MAX_TOKENS)
        and (k is None or 0 <= k <= MAX_TOKENS)
    ):
        return False
    counts = spec.accepted_per_step
    if counts and (len(counts) > MAX_HISTOGRAM + 1 or min(counts) < 0 or max(counts) > MAX_TOKENS):
        return False
    if accepted is not None and (
        (drafted is not None and accepted > drafted)
        # An answer cut in the middle of a step leaves out tokens that were accepted.
        or (tokens is not None and accepted > tokens + MAX_HISTOGRAM)
    ):
        return False
    if tokens is None:
        return True
    if steps is not None and steps > tokens:
        return False
    # And steps of that many drafted tokens must be able to give that many.
    taken = tokens - accepted if steps is None and accepted is not None else steps or 0
    longest = (k if spec.exact_drafted else None) or LONGEST_DRAFT
    return taken <= 0 or tokens <= taken * (longest + 1)
