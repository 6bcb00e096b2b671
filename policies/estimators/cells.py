"""Sums of integers read back as estimates, and laid out for policies. It stores nothing.

Addition is the only operation on stored data, so any number of processes may add in any order and a
replay is exact. `policies.estimators.increments` lists the fields.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from policies.cost import LOG_COST_RANGE
from policies.estimators import acceptance, histogram
from policies.estimators.increments import (
    FIXED_POINT,
    LATENCIES,
    MAX_HISTOGRAM,
    MOMENT,
    REPEATS,
    SENT,
    SPENT,
    STEP_FIELDS,
    STRUCTURE,
    WHOLE,
    increments,
)
from policies.estimators.tau import StepSums
from policies.types import Arm, ArmId, ArmView, ClassId, Counts, Source, Status

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["CellSums", "LogCostSums", "add", "add_counts", "arm_view", "increments"]

_PLAIN = frozenset(
    (
        *("n", "tokens", "tokens.n", "accepted", "accepted.n", "held", "bad", "abandoned"),
        *SENT,
        *STRUCTURE,
        *SPENT,
        *REPEATS,
        *("drafted", "drafted.n", "drafted.accepted", "alpha.accepted", "alpha.early"),
        *(name for fields in STEP_FIELDS.values() for name in fields),
        *(f"status.{status}" for status in Status),
        *(f"source.{source}" for source in Source),
    )
)
_HISTOGRAMS = frozenset((*LATENCIES, *WHOLE.values()))
_LARGEST = 2**62
_LOGS = ("y.", "t.", f"{MOMENT}.")
"""Begin the names of families of log costs, of log times, and of log costs by moment."""


@dataclass(frozen=True, slots=True)
class LogCostSums:
    """Log costs of one kind of stratum; `s` and `q` in millionths."""

    n: int
    s: int
    q: int


@dataclass(frozen=True, slots=True)
class CellSums:
    """Sums of one cell (class, arm, stretch of time), read back and checked.

    Attributes:
        plain: Sums by field name, for fields without a family.
        accepted_per_step: Drafts by number of accepted tokens.
        latency: Family (`increments.LATENCIES`, `increments.WHOLE`) to histogram.
        log_cost: Kind of stratum to its sums.
        log_time: The same of single times (`policies.estimators.times`), where they were asked for.
        ignored: Fields that were unknown or could not be true.
        moment_cost: Log costs by kind and moment: what gains are shown from.
    """

    plain: Mapping[str, int] = field(default_factory=dict)
    accepted_per_step: Mapping[int, int] = field(default_factory=dict)
    latency: Mapping[str, Mapping[int, int]] = field(default_factory=dict)
    log_cost: Mapping[str, LogCostSums] = field(default_factory=dict)
    log_time: Mapping[str, LogCostSums] = field(default_factory=dict)
    ignored: int = 0
    moment_cost: Mapping[str, LogCostSums] = field(default_factory=dict)

    @classmethod
    def of(cls, counts: Counts) -> CellSums:
        """Read sums back; what is unknown, negative or absurd is ignored and counted.

        Example:
            >>> cell = CellSums.of({"n": 3, "status.ok": 2, "tokens": -5, "nonsense": 1})
            >>> cell.n, cell.count(Status.OK), cell.ignored
            (3, 2, 2)
        """
        families: dict[str, dict[str | int, int]] = {}
        ignored = 0
        for name, value in counts.items():
            place = _place(name)
            if place is None or not _sound(name, value):
                ignored += 1
            elif value or place[0].startswith(_LOGS):
                families.setdefault(place[0], {})[place[1]] = value
        logs: dict[str, dict[str, LogCostSums]] = {"y": {}, "t": {}, MOMENT: {}}
        for family in [name for name in families if name.startswith(_LOGS)]:
            sums = families.pop(family)
            cost = LogCostSums(*(int(sums.get(part, -_LARGEST)) for part in ("n", "s", "q")))
            if _consistent(cost):
                logs[family[0]][family[2:]] = cost
            elif any(sums.values()):
                ignored += len(sums)
        plain = {str(key): value for key, value in families.pop("", {}).items()}
        buckets = {
            name: {int(key): value for key, value in family.items()}
            for name, family in families.items()
        }
        return cls(
            plain, buckets.pop("hist", {}), buckets, logs["y"], logs["t"], ignored, logs[MOMENT]
        )

    @property
    def finest_cost(self) -> Mapping[str, LogCostSums]:
        """Log costs by moment; by kind alone where the cell is from before these were kept."""
        return self.moment_cost or self.log_cost

    @property
    def n(self) -> int:
        """Requests, however they ended."""
        return self.plain.get("n", 0)

    def count(self, status: Status) -> int:
        """Requests that ended so."""
        return self.plain.get(f"status.{status}", 0)

    @property
    def tokens_per_request(self) -> float | None:
        """Mean completion tokens of the requests that reported them."""
        reported = self.plain.get("tokens.n", 0)
        return self.plain.get("tokens", 0) / reported if reported else None

    def steps(self, source: Source) -> StepSums:
        """Steps that were learned in one way; empty where none were."""
        fields = STEP_FIELDS.get(source)
        if fields is None:
            return StepSums()
        steps, n, tokens, tt, ts, ss = (self.plain.get(name, 0) for name in fields)
        return StepSums(n, tokens, steps, tt, ts, ss)

    @property
    def best_source(self) -> Source | None:
        """The best way in which steps of this cell were learned; None where they were not."""
        return next((source for source in STEP_FIELDS if self.steps(source).steps), None)

    @property
    def acceptance_length(self) -> float | None:
        """Tokens per decode step (tau), by the best source, over requests that reported both."""
        source = self.best_source
        if source is None:
            return None
        sums = self.steps(source)
        return acceptance.acceptance_length(sums.tokens, sums.steps)

    @property
    def acceptance_rate(self) -> float | None:
        """Conditional acceptance (alpha), over drafts of full length."""
        accepted, early = self.plain.get("alpha.accepted", 0), self.plain.get("alpha.early", 0)
        return accepted / (accepted + early) if accepted + early else None

    @property
    def draft_acceptance_rate(self) -> float | None:
        """Accepted / drafted as engines print it; never ranks arms."""
        return acceptance.draft_acceptance_rate(
            self.plain.get("drafted.accepted", 0), self.plain.get("drafted", 0)
        )

    def equal_acceptance_rate(self, k: int) -> float | None:
        """The alpha that would give the acceptance length with drafts of k tokens."""
        tau = self.acceptance_length
        return None if tau is None else acceptance.alpha_from_tau(tau, k)

    def position_rates(self, k: int) -> tuple[float | None, ...]:
        """Conditional acceptance by position of the draft."""
        length = max((k, *self.accepted_per_step)) + 1
        counts = [self.accepted_per_step.get(j, 0) for j in range(length)]
        return acceptance.position_rates(counts, k)

    def full_position_rates(self, k: int | None) -> tuple[float | None, ...]:
        """Conditional acceptance by position where every draft had k tokens; else empty.

        A short draft that was accepted whole looks like one that stopped, so one such draft would
        bend every figure behind it.
        """
        drafts = self.accepted_per_step
        accepted = sum(j * count for j, count in drafts.items())
        early = sum(count for j, count in drafts.items() if k is not None and j < k)
        full = (self.plain.get("alpha.accepted", 0), self.plain.get("alpha.early", 0))
        if k is None or not drafts or (accepted, early) != full:
            return ()
        return self.position_rates(k)

    def histogram(self, name: str) -> Mapping[int, int]:
        """Histogram of a latency, by family."""
        return self.latency.get(name, {})

    def quantile(self, name: str, q: float) -> float | None:
        """Quantile of a latency in seconds."""
        return histogram.quantile(self.histogram(name), q)

    def quantile_interval(
        self, name: str, q: float, level: float = 0.95
    ) -> tuple[float | None, float | None] | None:
        """Confidence interval of a quantile of a latency, in seconds."""
        return histogram.quantile_interval(self.histogram(name), q, level)


def add_counts(a: Counts, b: Counts) -> dict[str, int]:
    """Add sums in their stored form.

    Example:
        >>> add_counts({"n": 1, "tokens": 5}, {"n": 2})
        {'n': 3, 'tokens': 5}
    """
    merged = dict(a)
    for name, value in b.items():
        merged[name] = merged.get(name, 0) + value
    return merged


def add(a: CellSums, b: CellSums) -> CellSums:
    """Add two cells.

    Example:
        >>> add(CellSums.of({"n": 1}), CellSums.of({"n": 2, "odd": 1})).n
        3
    """
    families = {*a.latency, *b.latency}
    return CellSums(
        dict(Counter(a.plain) + Counter(b.plain)),
        histogram.merge(a.accepted_per_step, b.accepted_per_step),
        {name: histogram.merge(a.histogram(name), b.histogram(name)) for name in families},
        _added(a.log_cost, b.log_cost),
        _added(a.log_time, b.log_time),
        a.ignored + b.ignored,
        _added(a.moment_cost, b.moment_cost),
    )


def _added(a: Mapping[str, LogCostSums], b: Mapping[str, LogCostSums]) -> Mapping[str, LogCostSums]:
    if not b:
        return a
    logs = dict(a)
    for kind, more in b.items():
        mine = logs.get(kind, LogCostSums(0, 0, 0))
        logs[kind] = LogCostSums(mine.n + more.n, mine.s + more.s, mine.q + more.q)
    return logs


@lru_cache(maxsize=16_384)
def _place(name: str) -> tuple[str, str | int] | None:
    """Family and key of a field; plain fields are the family of no name."""
    if name in _PLAIN:
        return "", name
    family, _, rest = name.partition(".")
    most = MAX_HISTOGRAM if family == "hist" else histogram.MAX_INDEX
    if family == "hist" or family in _HISTOGRAMS:
        digits = rest.isascii() and rest.isdecimal() and str(int(rest)) == rest
        return (family, int(rest)) if digits and int(rest) <= most else None
    kind, _, part = rest.partition(".")
    good = (
        family in ("y", "t", MOMENT)
        and kind.isascii()
        and kind.isalnum()
        and part in ("n", "s", "q")
    )
    return (f"{family}.{kind}", part) if good else None


def _sound(name: str, value: object) -> bool:
    lowest = -_LARGEST if name.startswith(_LOGS) and name.endswith(".s") else 0
    return type(value) is int and lowest <= value <= _LARGEST


def _consistent(cost: LogCostSums) -> bool:
    """Whether the sums can come from log costs within their range (with what rounding adds)."""
    if cost.n <= 0 or cost.q < 0:
        return False
    low, high = LOG_COST_RANGE
    mean, square = cost.s / FIXED_POINT / cost.n, cost.q / FIXED_POINT / cost.n
    slack = 5e-5
    return (
        low - slack <= mean <= high + slack
        and square <= max(low**2, high**2) + slack
        and mean**2 <= square + slack
    )


def arm_view(
    class_id: ClassId,
    arms: Sequence[Arm],
    blocks: Sequence[tuple[float, Mapping[ArmId, CellSums]]],
    *,
    by_moment: bool = False,
) -> ArmView:
    """Lay the cells of a class out by stratum and arm.

    Args:
        class_id: The class.
        arms: The route's arms.
        blocks: Stretches of time, each with its weight (`policies.estimators.window`) and the sums
            of its arms. A block of weight 0 is left out. Each block and kind of log cost becomes a
            stratum.
        by_moment: Whether each moment of a kind is one too, as for gains that people are shown.

    Returns:
        The view; `served` counts requests that ended well, `failed` those that failed. Rejected and
        aborted ones are in neither.

    Example:
        >>> arms = [Arm(ArmId("plain"), "none", baseline=True), Arm(ArmId("fast"), "mtp")]
        >>> cell = CellSums.of({"status.ok": 1, "y.s.n": 1, "y.s.s": 215111, "y.s.q": 46273})
        >>> view = arm_view(ClassId("chat"), arms, [(0.5, {ArmId("fast"): cell})])
        >>> view.n, view.served
        (array([[0. , 0.5]]), array([0. , 0.5]))
    """
    columns = {arm.arm_id: index for index, arm in enumerate(arms)}
    outcome = np.zeros((2, len(arms)))
    rows: list[np.ndarray[tuple[int, int], np.dtype[np.float64]]] = []
    for weight, cells in blocks:
        if not 0.0 < weight < math.inf:
            continue
        strata: dict[str, np.ndarray[tuple[int, int], np.dtype[np.float64]]] = {}
        for arm_id, cell in cells.items():
            column = columns.get(arm_id)
            if column is None:
                continue
            outcome[0, column] += weight * cell.count(Status.OK)
            outcome[1, column] += weight * cell.count(Status.FAILED)
            for kind, cost in (cell.finest_cost if by_moment else cell.log_cost).items():
                row = strata.setdefault(kind, np.zeros((3, len(arms))))
                row[:, column] = (cost.n, cost.s / FIXED_POINT, cost.q / FIXED_POINT)
        rows.extend(weight * strata[kind] for kind in sorted(strata))
    sums = np.stack(rows) if rows else np.zeros((0, 3, len(arms)))
    return ArmView(
        class_id, tuple(arms), sums[:, 0], sums[:, 1], sums[:, 2], outcome[0], outcome[1]
    )
