"""What another policy would have cost, from logged choices. It refuses what a log cannot tell.

With `x_i` the request, `a_i` the arm that was drawn, `p_i = pi_log(a_i | x_i)` the logged
probability, `y_i` the log cost and `w_i = pi_new(a_i | x_i) / p_i`:

* IPS, `V = (1/n) sum w_i y_i` (Horvitz and Thompson 1952);
* SNIPS, `V = sum w_i y_i / sum w_i` (Swaminathan and Joachims 2015, equation 9);
* doubly robust, `V = (1/n) sum [ sum_a pi_new(a | x_i) q(x_i, a) + w_i (y_i - q(x_i, a_i)) ]`
  (Dudik, Langford and Li 2011, equation 6), with `q` fitted to other requests than those it is used
  on (cross-fitting, Chernozhukov et al. 2018, definition 3.1).

`p_i` is what the arm was really drawn by, however the logging policy learned meanwhile; so IPS has
no bias, and the others one that vanishes faster than their error. The effective sample is
`(sum w)^2 / sum w^2` (Kish 1965).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Final

import numpy as np
from numpy.typing import NDArray

from policies.estimators.distributions import student_t_quantile
from policies.types import ArmId, FloatArray

IntArray = NDArray[np.int64]

LEAST_PROPENSITY: Final = 0.005
"""Below it a request stands for more than two hundred others."""

LEAST_N: Final = 50
LEAST_ESS: Final = 40.0
"""Judgement: with fewer, weights as uneven as logs have them leave intervals that are not at their
level; `bench.verify_replay` measures what is."""

MOST_UNSUPPORTED: Final = 0.01
"""Share of its choices that a policy may make where the log has none. Judgement: of a difference of
half a log unit there it moves the mean by half a per cent."""

MOST_FAULTY: Final = 0.01
"""Share of lines whose probabilities may be missing or contradict each other."""

FOLDS: Final = 5
MIN_CLUSTERS: Final = 20
"""Stretches of time from which intervals allow for what requests of one time have in common."""

MOST_BATCHES: Final = 60
"""Stretches are joined to so many."""

MOST_ALIKE: Final = 0.6
"""Correlation of neighbours that is allowed for, at most."""

_ROUNDING: Final = 1e-6
_SHRINK: Final = 10.0
"""Requests of its own at which a class's effect of an arm counts half. Judgement; it moves the
width of intervals, not their truth."""


@dataclass(frozen=True, slots=True)
class Logged:
    """Logged choices, and what came of them.

    Attributes:
        arms: All arms of the route.
        arm: Index of the arm that was drawn, shape (n,).
        propensity: Its logged probability; NaN where it is missing.
        probabilities: Of all arms, shape (n, arms); 0 for an arm that was excluded.
        cost: Log cost; NaN where none was measured.
        group: What `q` tells apart, numbered from 0: a class and kind of cost.
        cluster: Number of the stretch of time.
    """

    arms: tuple[ArmId, ...]
    arm: IntArray
    propensity: FloatArray
    probabilities: FloatArray
    cost: FloatArray
    group: IntArray
    cluster: IntArray

    def of(self, rows: NDArray[np.bool_]) -> Logged:
        """Some of it."""
        return Logged(
            self.arms,
            self.arm[rows],
            self.propensity[rows],
            self.probabilities[rows],
            self.cost[rows],
            self.group[rows],
            self.cluster[rows],
        )

    @property
    def faulty(self) -> NDArray[np.bool_]:
        """Requests whose probabilities are missing or contradict each other."""
        p = self.probabilities
        with np.errstate(invalid="ignore"):
            sound = np.isfinite(self.propensity) & (self.propensity > 0.0)
            sound &= self.propensity <= 1.0 + _ROUNDING
            sound &= np.isfinite(p).all(axis=1) & (p >= 0.0).all(axis=1)
            sound &= np.abs(p.sum(axis=1) - 1.0) <= _ROUNDING
            there = p[np.arange(len(p)), self.arm]
            sound &= np.abs(there - self.propensity) <= _ROUNDING
        return ~sound


@dataclass(frozen=True, slots=True)
class Estimate:
    """A mean, with its 95 % interval."""

    value: float
    low: float
    high: float
    se: float


@dataclass(frozen=True, slots=True)
class Answer:
    """What a log says about a policy.

    Attributes:
        n: Requests with a measured cost.
        unmeasured: Requests without.
        ess: Effective sample.
        ips: Mean log cost, by weights alone; None where refused.
        snips: The same, weights made to add up.
        dr: Doubly robust.
        logged: Mean log cost of what was logged.
        against_logged: Doubly robust minus logged, on the same requests.
        against_baseline: Minus plain decoding; None where the log cannot tell that.
        clipped: Share of requests whose weight was cut.
        unsupported: Share of the policy's choices where the log has none.
        refused: Why there is no estimate, in words; empty where there is one.
        notes: What to bear in mind.
    """

    n: int
    unmeasured: int
    ess: float = 0.0
    ips: Estimate | None = None
    snips: Estimate | None = None
    dr: Estimate | None = None
    logged: Estimate | None = None
    against_logged: Estimate | None = None
    against_baseline: Estimate | None = None
    clipped: float = 0.0
    unsupported: float = 0.0
    refused: tuple[str, ...] = ()
    notes: tuple[str, ...] = field(default=())


def evaluate(
    logged: Logged,
    wanted: FloatArray,
    *,
    baseline: int | None = None,
    clip: float | None = None,
    level: float = 0.95,
) -> Answer:
    """Estimate what a policy would have cost.

    Args:
        logged: The log.
        wanted: Probabilities of the policy after the same mask, shape (n, arms).
        baseline: Index of plain decoding.
        clip: Largest weight; None cuts none. What is cut leans on `q` in the doubly robust
            estimate, and is plainly lost in the others.
        level: Confidence in (0, 1).

    Example:
        >>> rng = np.random.default_rng(1)
        >>> n = 4000
        >>> arm = (rng.random(n) < 0.3).astype(np.int64)
        >>> p = np.tile([0.7, 0.3], (n, 1))
        >>> y = -0.5 * arm + rng.normal(0.0, 0.3, n)
        >>> log = Logged((ArmId("plain"), ArmId("fast")), arm, p[np.arange(n), arm], p, y,
        ...              np.zeros(n, np.int64), np.arange(n) // 40)
        >>> answer = evaluate(log, np.tile([0.0, 1.0], (n, 1)), baseline=0)
        >>> found = answer.against_baseline
        >>> found.low < -0.5 < found.high, round(answer.ess)
        (True, 1218)
    """
    measured = np.isfinite(logged.cost)
    n, unmeasured = int(measured.sum()), int((~measured).sum())
    faulty = logged.faulty
    refused = _faults(logged, faulty)
    rows = measured & ~faulty
    log, want = logged.of(rows), wanted[rows]
    if len(log.arm) < LEAST_N and not refused:
        refused = (f"{len(log.arm)} requests with a measured cost; {LEAST_N} are the least",)
    if refused:
        return Answer(n, unmeasured, refused=refused)
    unsupported, lacking = _support(log, want)
    if lacking:
        return Answer(n, unmeasured, unsupported=unsupported, refused=lacking)
    scores = _Scores(log, clip)
    w, cut = scores.weights(want)
    total_sq = float((w * w).sum())
    ess = float(w.sum()) ** 2 / total_sq if total_sq > 0.0 else 0.0
    if ess < LEAST_ESS:
        why = (
            f"the log holds {ess:.0f} requests' worth of what the policy would do; "
            f"{LEAST_ESS:.0f} are the least"
        )
        return Answer(n, unmeasured, ess, unsupported=unsupported, refused=(why,))
    dr = scores.doubly_robust(want, w)
    snips = float((w * log.cost).sum() / w.sum())
    against = None
    if baseline is not None:
        plain = np.zeros_like(want)
        plain[:, baseline] = 1.0
        against = _against(scores, log, dr, plain, level)
    notes = _notes(log, unmeasured, cut, unsupported, int(faulty.sum()))
    if baseline is not None and against is None:
        notes = (*notes, "the log has too little plain decoding to compare with it")
    return Answer(
        n,
        unmeasured,
        ess,
        ips=_mean(w * log.cost, log.cluster, level, ess),
        # Of a ratio of means, by its linear form (Owen 2013, section 9.2).
        snips=_around(snips, w * (log.cost - snips) / w.mean(), log.cluster, level, ess),
        dr=_mean(dr, log.cluster, level, ess),
        logged=_mean(log.cost, log.cluster, level, None),
        against_logged=_mean(dr - log.cost, log.cluster, level, ess),
        against_baseline=against,
        clipped=float(np.mean(cut)),
        unsupported=unsupported,
        notes=notes,
    )


def _faults(logged: Logged, faulty: NDArray[np.bool_]) -> tuple[str, ...]:
    if not len(faulty):
        return ("the log holds no request",)
    missing = int((~np.isfinite(logged.propensity)).sum())
    share = float(faulty.mean())
    if share <= MOST_FAULTY:
        return ()
    wrong = int(faulty.sum()) - missing
    reasons = []
    if missing:
        reasons.append(f"{missing} of {len(faulty)} requests have no propensity")
    if wrong:
        reasons.append(
            f"{wrong} of {len(faulty)} have a propensity that is not the probability of their arm, "
            "or probabilities that do not add up to 1"
        )
    return tuple(reasons)


def _support(log: Logged, want: FloatArray) -> tuple[float, tuple[str, ...]]:
    """Share of the policy's choices where the log has none, and the arms if that is too much."""
    thin = want * (log.probabilities < LEAST_PROPENSITY)
    share = float(thin.sum(axis=1).mean())
    taken = np.bincount(log.arm, minlength=len(log.arms))
    reasons = []
    for index, arm_id in enumerate(log.arms):
        wants = float(want[:, index].mean())
        lost = float(thin[:, index].mean())
        if wants > MOST_UNSUPPORTED and not taken[index]:
            reasons.append(f"{arm_id} never appears in the log; the policy wants {wants:.0%} there")
        elif lost > MOST_UNSUPPORTED:
            reasons.append(
                f"{arm_id}: {lost:.0%} of all requests would go there where the log drew it with "
                f"less than {LEAST_PROPENSITY:.1%}"
            )
    if share > MOST_UNSUPPORTED and not reasons:
        reasons.append(f"{share:.1%} of the policy's choices have nothing like them in the log")
    return share, tuple(reasons)


def _notes(
    log: Logged, unmeasured: int, cut: NDArray[np.bool_], unsupported: float, faulty: int
) -> tuple[str, ...]:
    notes = []
    if unmeasured:
        notes.append(
            f"{unmeasured} requests have no cost (failed, left by the client, or no figures) and "
            "are left out"
        )
    if faulty:
        notes.append(f"{faulty} requests with contradictory probabilities are left out")
    if cut.any():
        notes.append(f"the weight of {int(cut.sum())} requests was cut, which may bias")
    if unsupported > 0.0:
        notes.append(
            f"{unsupported:.2%} of the policy's choices have next to nothing like them in the log"
        )
    if len(np.unique(log.cluster)) < MIN_CLUSTERS:
        notes.append("a short log: intervals take requests for independent of each other")
    return tuple(notes)


class _Scores:
    """Weights and cross-fitted expectations of one log."""

    def __init__(self, log: Logged, clip: float | None) -> None:
        self._log = log
        self._clip = math.inf if clip is None else clip
        self._rows = np.arange(len(log.arm))
        self._q: FloatArray | None = None

    def weights(self, want: FloatArray) -> tuple[FloatArray, NDArray[np.bool_]]:
        """Of each request, and which were cut."""
        w = want[self._rows, self._log.arm] / self._log.propensity
        return np.minimum(w, self._clip), w > self._clip

    def doubly_robust(self, want: FloatArray, w: FloatArray) -> FloatArray:
        """The terms whose mean is the estimate."""
        if self._q is None:
            self._q = cross_fitted(self._log)
        q, taken = self._q, self._q[self._rows, self._log.arm]
        scores: FloatArray = (want * q).sum(axis=1) + w * (self._log.cost - taken)
        return scores


def _against(
    scores: _Scores, log: Logged, dr: FloatArray, plain: FloatArray, level: float
) -> Estimate | None:
    _, lacking = _support(log, plain)
    w, _ = scores.weights(plain)
    total_sq = float((w * w).sum())
    ess = float(w.sum()) ** 2 / total_sq if total_sq > 0.0 else 0.0
    if lacking or ess < LEAST_ESS:
        return None
    return _mean(dr - scores.doubly_robust(plain, w), log.cluster, level, ess)


def cross_fitted(log: Logged) -> FloatArray:
    """Expected log cost of every request on every arm, from other stretches of time than its own.

    The level of a group, the effects of arms over all groups, and what a group adds to them,
    shrunk by its number.

    Returns:
        Shape (n, arms).
    """
    order = np.unique(log.cluster, return_inverse=True)[1]
    parts = order if int(order.max()) + 1 >= FOLDS else np.arange(len(order))
    fold = parts % FOLDS
    groups = int(log.group.max()) + 1
    found = np.empty((len(log.arm), len(log.arms)))
    for number in range(FOLDS):
        own = fold == number
        if not own.any():
            continue
        rest = ~own if (~own).any() else own
        found[own] = _expected(log.of(rest), groups)[log.group[own]]
    return found


def _expected(log: Logged, groups: int) -> FloatArray:
    """Expected log cost by group and arm, shape (groups, arms)."""
    arms = len(log.arms)
    at = log.group * arms + log.arm
    n = np.bincount(at, minlength=groups * arms).reshape(groups, arms).astype(np.float64)
    total = np.bincount(at, weights=log.cost, minlength=groups * arms).reshape(groups, arms)
    mean = float(log.cost.mean())
    level = np.full(groups, mean)
    effect = np.zeros(arms)
    for _ in range(8):  # alternating least squares: two additive factors
        rest = (total - n * effect).sum(axis=1) + _SHRINK * mean
        level = rest / (n.sum(axis=1) + _SHRINK)
        effect = (total - n * level[:, None]).sum(axis=0) / (n.sum(axis=0) + 1.0)
    base = level[:, None] + effect
    found: FloatArray = base + (total - n * base) / (n + _SHRINK)
    return found


def _mean(scores: FloatArray, cluster: IntArray, level: float, ess: float | None) -> Estimate:
    value = float(scores.mean())
    return _around(value, scores - value, cluster, level, ess)


def _around(
    value: float, errors: FloatArray, cluster: IntArray, level: float, ess: float | None
) -> Estimate:
    """Interval of a mean, from stretches of time.

    Requests of one time share its load, and times next to each other are alike: the variance of
    stretches is multiplied by (1 + r) / (1 - r), with r the correlation of neighbours (Andrews and
    Monahan 1992, their recolouring with one lag).
    """
    n = len(errors)
    number = np.unique(cluster, return_inverse=True)[1]
    stretches = int(number.max()) + 1
    batches = min(stretches, MOST_BATCHES)
    sums: FloatArray = errors
    if stretches >= MIN_CLUSTERS:
        batch = number * batches // stretches
        sums = np.bincount(batch, weights=errors, minlength=batches).astype(np.float64)
    many = len(sums)
    alike = _alike(sums) if sums is not errors else 0.0
    total_sq = float((sums * sums).sum()) * (1.0 + alike) / (1.0 - alike)
    se = math.sqrt(total_sq * many / max(many - 1, 1)) / n
    df = float(many - 1) if ess is None else min(float(many - 1), max(ess - 1.0, 1.0))
    half = student_t_quantile(0.5 + level / 2.0, df) * se
    return Estimate(value, value - half, value + half, se)


def _alike(sums: FloatArray) -> float:
    """Correlation of neighbours, its bias of -(1 + 3 r) / n put right (Kendall 1954)."""
    total_sq = float((sums * sums).sum())
    if not total_sq > 0.0:
        return 0.0
    r = float((sums[1:] * sums[:-1]).sum()) / total_sq
    return min(r + (1.0 + 3.0 * r) / len(sums), MOST_ALIKE) if r > 0.0 else 0.0
