"""Log times of one request, each by itself: TPOT, TTFT and e2e, as integers by field.

They stand beside the log cost of `policies.estimators.increments`, in the same form, where somebody
asks for an effect on one of them; it keeps and reads no sums.

======================  ==========================================================================
field                   log times: number, sum and sum of squares in millionths
======================  ==========================================================================
`t.tpot.n/.s/.q`        `ln tpot`, of streams of at least 16 tokens
`t.ttft.n/.s/.q`        `ln ttft`, of streams
`t.e<band>.n/.s/.q`     `ln(e2e / tokens)` of streams of 2^band tokens and more, less than twice as
                        many; band `x`: `ln e2e` of answers of unknown length
======================  ==========================================================================

Whole answers have `ln(e2e / tokens)` for a cost already (`policies.cost`), so it is not kept twice.
Inside a band a difference of `ln(e2e / tokens)` is one of `ln e2e` at like length.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from policies.cost import (
    LENGTH_BANDS,
    LOG_COST_RANGE,
    MIN_STREAM_TOKENS,
    STREAM_KIND,
    UNKNOWN_LENGTH,
    known_duration,
    known_tokens,
    length_band,
)
from policies.estimators.increments import FIXED_POINT
from policies.types import OK

if TYPE_CHECKING:
    from collections.abc import Mapping

    from policies.estimators.cells import CellSums, LogCostSums
    from policies.types import Counts, Trial

TPOT, TTFT = "tpot", "ttft"
_E2E = {band: f"e{band}" for band in LENGTH_BANDS}
_NAMES = {
    kind: (f"t.{kind}.n", f"t.{kind}.s", f"t.{kind}.q") for kind in (TPOT, TTFT, *_E2E.values())
}
_E2E_KINDS = frozenset(_E2E.values())
_OF_STREAM = f"y.{STREAM_KIND}.n"


def log_times(trial: Trial, sums: Counts) -> dict[str, int]:
    """What a request adds besides to sums that are asked for its times.

    Args:
        trial: The request.
        sums: What it adds anyway (`policies.estimators.increments.increments`).

    Example:
        >>> from policies.types import ArmId, ClassId, Status, Trial
        >>> trial = Trial(ClassId("chat"), ArmId("a"), Status.OK, True, 1.0,
        ...               ttft_s=1.0, tpot_s=1.0, e2e_s=32.0, tokens=32)
        >>> log_times(trial, {"y.s.n": 1})  # doctest: +NORMALIZE_WHITESPACE
        {'t.ttft.n': 1, 't.ttft.s': 0, 't.ttft.q': 0, 't.tpot.n': 1, 't.tpot.s': 0, 't.tpot.q': 0,
         't.e5.n': 1, 't.e5.s': 0, 't.e5.q': 0}
    """
    made: dict[str, int] = {}
    if trial.status is not OK:
        return made
    tokens = known_tokens(trial)
    if trial.streamed:
        _add(made, TTFT, trial.ttft_s)
        if tokens is not None and tokens >= MIN_STREAM_TOKENS:
            _add(made, TPOT, trial.tpot_s)
    if tokens is None:
        _add(made, _E2E[UNKNOWN_LENGTH], trial.e2e_s)
    elif _OF_STREAM in sums:
        _add(made, _E2E[length_band(tokens)], trial.e2e_s, tokens)
    return made


def _add(made: dict[str, int], kind: str, seconds: float | None, by: int = 1) -> None:
    known = known_duration(seconds)
    if known is None:
        return
    low, high = LOG_COST_RANGE
    y = min(max(math.log(known / by), low), high)
    number, total, total_sq = _NAMES[kind]
    made[number] = 1
    made[total] = round(y * FIXED_POINT)
    made[total_sq] = round(y * y * FIXED_POINT)


def sums_of_time(cell: CellSums, kind: str) -> Mapping[str, LogCostSums]:
    """Log times of a cell by stratum, each of them compared only with its like.

    Args:
        cell: Sums that were asked for times.
        kind: `tpot`, `ttft` or `e2e`; of e2e each band of length is a stratum.

    Example:
        >>> from policies.estimators.cells import CellSums
        >>> cell = CellSums.of({"t.e5.n": 1, "t.e5.s": 0, "t.e5.q": 0,
        ...                     "y.w3.n": 1, "y.w3.s": 0, "y.w3.q": 0})
        >>> sorted(sums_of_time(cell, "e2e")), sums_of_time(cell, "tpot")
        (['e5', 'w3'], {})
    """
    if kind != "e2e":
        return {kind: cell.log_time[kind]} if kind in cell.log_time else {}
    streams = {of: sums for of, sums in cell.log_time.items() if of in _E2E_KINDS}
    return streams | {of: sums for of, sums in cell.log_cost.items() if of != STREAM_KIND}
