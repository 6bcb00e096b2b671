"""Time to first token by prompt, cache and queue: what a request adds, and the model of the sums.

`TTFT = fixed + band + b * uncached + d * cached + c * waiting`, where `band` is what the load band
of the server adds: a prompt is worked on in between the steps of those who are there. As everywhere
TTFT is seconds from arrival, less the wait for a place of ours.

TTFT has a heavy tail, and its spread grows with its mean. Each request is therefore divided by `g =
0.25 s + 1 ms * uncached + 0.125 ms * cached + 0.25 s * waiting`, which depends on what is known
before and so biases nothing, and TTFT is cut at 40 g. The cut is the declared bias: what is
modelled is the mean of TTFT cut at ten seconds for a short prompt on an idle server, and
correspondingly more for a long one; an engine that takes above 40 ms for a token of the prompt
looks faster than it is. Divided figures are bounded, so their sums need no care.

Engines that do not tell what was cached, or do not tell of their queue, have sums of another kind:
an unknown figure is never 0. `<kind>` is `cw`, `c`, `w` or `p`, for what is known beside the
prompt.

==================  ===================================================================
field               sum over requests of a load band
==================  ===================================================================
`pf.<kind>.n`       requests
`pf.<kind>.<ab>`    products of two figures, each divided by g, in 1e-8:
                    `1` one, `u` uncached prompt (or all of it) in thousands of tokens,
                    `k` cached in thousands, `w` waiting, `t` u^2 / 16, `y` TTFT in s
==================  ===================================================================
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from policies.estimators.load import BANDS, HIGHEST, load_band
from policies.estimators.regression import Fit, Interval, fit
from policies.estimators.step_time import Prediction
from policies.types import OK

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from policies.types import Counts, FloatArray, Trial

_FIGURES = {"cw": "1ukw", "c": "1uk", "w": "1uw", "p": "1u"}
"""Columns of the model, by kind."""

_PAIRS = (
    *("11", "1u", "1y", "uu", "ut", "uy", "tt", "ty", "yy"),
    *("1k", "uk", "kk", "kt", "ky"),
    *("1w", "uw", "ww", "wt", "wy", "kw"),
)
"""The product of 1 and t is a sixteenth of that of u and u."""

_NAMES = {kind: tuple(f"pf.{kind}.{pair}" for pair in ("n", *_PAIRS)) for kind in _FIGURES}

FIELDS = frozenset(
    f"pf.{kind}.{pair}"
    for kind, figures in _FIGURES.items()
    for pair in ("n", *_PAIRS)
    if pair == "n" or set(pair) <= {*figures, "t", "y"}
)
"""All fields."""

_BOTH, _CACHED, _QUEUE, _PLAIN = _NAMES.values()

FIXED_POINT = 10_000
"""Figures are rounded to so many parts of one, and their products added up."""

MOST_TOKENS = 1_000_000
"""A longer prompt is left out. Judgement: no server of today takes one."""

MOST_SLOW = 40.0
"""TTFT is cut at so many times g. Judgement: beyond it something else than this prompt took
time."""

_MOST_Y = FIXED_POINT * MOST_SLOW

_LARGER = 5.0
"""And where a figure of it is so many times what large ones were on average. Judgement."""

_FAR = 25.0
"""A request is an extrapolation from this mean square on, against those seen: several times what
the requests themselves have on average."""

_LEAST_NOISE = 1e-6

_LEAST_WEIGHT = 1e-100
"""Blocks that weigh less are left out: squares of sums would be beyond what floats hold."""


def increments(trial: Trial) -> dict[str, int]:
    """What a finished request adds to the part of its load band; nothing where it cannot tell.

    Args:
        trial: The request.

    Returns:
        Field to integer, for the cell (arm, `*`, `load.load_part(trial.load)`).

    Example:
        >>> from policies.types import ArmId, ClassId, Trial
        >>> trial = Trial(ClassId("chat"), ArmId("fast"), OK, True, 0.5, ttft_s=0.5,
        ...               load=4, prompt_tokens=750)
        >>> sums = increments(trial)
        >>> sums["pf.p.n"], sums["pf.p.1u"], sums["pf.p.uy"]
        (1, 75000000, 37500000)
    """
    ttft_s, prompt = trial.ttft_s, trial.prompt_tokens
    cached, waiting = trial.cached_tokens, trial.waiting
    if trial.status is not OK or not trial.streamed or trial.load is None:
        return {}
    if ttft_s is None or not 0.0 < ttft_s < math.inf or prompt is None:
        return {}
    if not 0 <= (cached or 0) <= prompt <= MOST_TOKENS or (waiting or 0) < 0 or not prompt:
        return {}
    # Written out, since each request passes here.
    u = prompt * 1e-3
    g = 0.25 + u
    k = w = 0
    if cached:
        u -= cached * 1e-3
        g -= cached * 0.875e-3
    if waiting:
        w = min(waiting, HIGHEST)
        g += w * 0.25
    unit = FIXED_POINT / g
    one, y = int(unit + 0.5), int(min(ttft_s * unit, _MOST_Y) + 0.5)
    t, u = int(u * u * unit * 0.0625 + 0.5), int(u * unit + 0.5)
    (
        n, n11, n1u, n1y, nuu, nut, nuy, ntt, nty, nyy, n1k, nuk, nkk, nkt, nky,
        n1w, nuw, nww, nwt, nwy, nkw,
    ) = (
        (_PLAIN if waiting is None else _QUEUE)
        if cached is None
        else (_CACHED if waiting is None else _BOTH)
    )  # fmt: skip
    sums = {
        n: 1,
        n11: one * one,
        n1u: one * u,
        n1y: one * y,
        nuu: u * u,
        nut: u * t,
        nuy: u * y,
        ntt: t * t,
        nty: t * y,
        nyy: y * y,
    }
    if cached:
        k = int(cached * 1e-3 * unit + 0.5)
        sums[n1k] = one * k
        sums[nuk] = u * k
        sums[nkk] = k * k
        sums[nkt] = k * t
        sums[nky] = k * y
    if w:
        w = int(w * unit + 0.5)
        sums[n1w] = one * w
        sums[nuw] = u * w
        sums[nww] = w * w
        sums[nwt] = w * t
        sums[nwy] = w * y
        if k:
            sums[nkw] = k * w
    return sums


def _scale(uncached: float, cached: float, waiting: float) -> float:
    """The g of a request whose tokens are told in thousands."""
    return 0.25 + uncached + cached / 8.0 + waiting / 4.0


@dataclass(frozen=True, slots=True)
class PrefillModel:
    """Time to first token of an arm.

    Attributes:
        kind: What its engine tells beside the prompt's length: `c` cached tokens, `w` the queue.
        n: Requests behind it, weighted.
        misfit: Probability of a curvature in the prompt's length as large as this if there were
            none; small is a misfit. None where that cannot be tested.
        usual: Means of thousands of uncached and cached tokens, and of those waiting, where short
            prompts count most.
        large: The same where the largest count most.
        bands: Weight of each load band.
        fit: The coefficients.
    """

    kind: str
    n: float
    misfit: float | None
    usual: Mapping[str, float]
    large: Mapping[str, float]
    bands: FloatArray = field(repr=False)
    fit: Fit = field(repr=False)

    @property
    def tells_cached(self) -> bool:
        """Whether cached tokens are told; without, `per_token` is of all tokens, cached or not."""
        return "c" in self.kind

    @property
    def tells_waiting(self) -> bool:
        """Whether the queue is told."""
        return "w" in self.kind

    def per_token(self, level: float = 0.95) -> Interval:
        """Seconds for each uncached token of the prompt; of any where cached ones are not told."""
        return self._slope("u", 1e3, level)

    def per_cached_token(self, level: float = 0.95) -> Interval | None:
        """Seconds for each cached token; None where they are not told."""
        return self._slope("k", 1e3, level) if self.tells_cached else None

    def per_waiting(self, level: float = 0.95) -> Interval | None:
        """Seconds for each request that waits; None where they are not told."""
        return self._slope("w", 1.0, level) if self.tells_waiting else None

    def fixed(self, load: int | None = None, level: float = 0.95) -> Interval:
        """Seconds before any token, at a load, or over loads as they are."""
        return self.fit.at(self._intercept(load), level)

    def predict(
        self,
        prompt_tokens: int,
        cached_tokens: int | None = None,
        waiting: int | None = None,
        load: int | None = None,
        *,
        level: float = 0.95,
    ) -> Prediction:
        """Mean time to first token, in seconds.

        What is not given is taken as it was on average: the share of cached tokens, the queue, the
        load. What the engine does not tell is not used.
        """
        cached = 0.0
        if self.tells_cached:
            u, k = self.usual["u"], self.usual["k"]
            usual = prompt_tokens * k / max(u + k, 1e-300)
            cached = usual if cached_tokens is None else min(cached_tokens, prompt_tokens)
        row = self._intercept(load)
        row[self._column("u")] = (prompt_tokens - cached) / 1e3
        if self.tells_cached:
            row[self._column("k")] = cached / 1e3
        if self.tells_waiting:
            row[self._column("w")] = self.usual["w"] if waiting is None else min(waiting, HIGHEST)
        waits = float(row[self._column("w")]) if self.tells_waiting else 0.0
        g = _scale((prompt_tokens - cached) / 1e3, cached / 1e3, waits)
        found = self.fit.at(row, level)
        beyond = any(
            row[self._column(letter)] > _LARGER * self.large[letter]
            for letter in _FIGURES[self.kind][1:]
        )
        far = beyond or self.fit.distance(row / g, self.n) > _FAR
        if found.low is None or found.high is None:
            return Prediction(max(found.value, 0.0), None, None, far)
        return Prediction(max(found.value, 0.0), max(found.low, 0.0), max(found.high, 0.0), far)

    def _column(self, letter: str) -> int:
        return BANDS + _FIGURES[self.kind].index(letter)

    def _intercept(self, load: int | None) -> FloatArray:
        row = np.zeros(BANDS + len(_FIGURES[self.kind]))
        row[BANDS] = 1.0
        if load is None:
            row[:BANDS] = self.bands
        else:
            row[load_band(load)] = 1.0
        return row

    def _slope(self, letter: str, per: float, level: float) -> Interval:
        row = np.zeros(len(self.fit.free))
        row[self._column(letter)] = 1.0 / per
        return self.fit.at(row, level)

    @classmethod
    def of(cls, blocks: Sequence[tuple[float, Mapping[int, Counts]]]) -> PrefillModel | None:
        """Fit the model.

        Args:
            blocks: Stretches of time in their order, the oldest first, each with its weight and the
                sums of its load bands (`load.by_band`). The interval needs several.

        Returns:
            The model of the kind that most requests are of; None where no sums are sound.
        """
        found = {kind: _read(blocks, kind) for kind in _FIGURES}
        kind = max(found, key=lambda name: float(found[name][0].sum()))
        n, products = found[kind]
        return _model(kind, n, products) if n.any() else None


def _read(
    blocks: Sequence[tuple[float, Mapping[int, Counts]]], kind: str
) -> tuple[FloatArray, FloatArray]:
    """Requests by block and band, and sums of products, shape (blocks, bands, 6, 6).

    Figures are in the order `1ukwty`.
    """
    names = _NAMES[kind]
    rows = np.zeros((len(blocks), BANDS, len(names)))
    for block, (weight, bands) in enumerate(blocks):
        if not _LEAST_WEIGHT < weight < math.inf:
            continue
        for band, sums in bands.items():
            if names[0] in sums and 0 <= band < BANDS:
                rows[block, band] = [weight * sums.get(name, 0) for name in names]
    n = rows[:, :, 0].copy()
    products = np.zeros((len(blocks), BANDS, len(_ALL), len(_ALL)))
    for index, (a, b) in enumerate(_PLACES):
        products[:, :, a, b] = products[:, :, b, a] = rows[:, :, 1 + index] / FIXED_POINT**2
    t = _ALL.index("t")
    products[:, :, t, 0] = products[:, :, 0, t] = products[:, :, 1, 1] / 16.0
    # Sums of products keep to Cauchy's inequality, but for roundings.
    squares = products.diagonal(axis1=-2, axis2=-1)
    most = np.sqrt((squares[..., :, None] + n[..., None, None] / FIXED_POINT).clip(0.0))
    most = most * most.swapaxes(-1, -2) * 1.05
    sound = (n >= 0.0) & (products >= 0.0).all(axis=(-2, -1)) & (n < _MOST_N)
    sound &= (products <= most).all(axis=(-2, -1))
    return np.where(sound, n, 0.0), np.where(sound[..., None, None], products, 0.0)


_ALL = "1ukwty"
_PLACES = tuple((_ALL.index(pair[0]), _ALL.index(pair[1])) for pair in _PAIRS)
_MOST_N = 1e12


def _model(kind: str, n: FloatArray, products: FloatArray) -> PrefillModel:
    """Adds a column for each band in front, and fits.

    The bands' own levels have a weak prior around the common one: the mean TTFT is one standard
    deviation, so a few requests outweigh it. Slopes have one of ten such for a thousand tokens or
    a request that waits, for figures that do not vary.
    """
    kept = [_ALL.index(letter) for letter in _FIGURES[kind]]
    rows, y = [*kept, _ALL.index("t")], _ALL.index("y")
    columns = BANDS + len(kept)
    bands = np.arange(BANDS)
    xx = np.zeros((len(n), columns + 1, columns))
    xx[:, BANDS:, BANDS:] = products[:, :, rows][..., kept].sum(axis=1)
    xx[:, bands, bands] = products[:, :, 0, 0]
    xx[:, :BANDS, BANDS:] = products[:, :, 0][..., kept]
    xx[:, BANDS:, :BANDS] = products[:, :, 0][..., rows].swapaxes(1, 2)
    xy = np.concatenate([products[:, :, 0, y], products[:, :, rows, y].sum(axis=1)], axis=1)
    total = products.sum(axis=(0, 1))
    one = max(float(total[0, 0]), 1e-300)
    size = float(total[0, y]) / one or 1.0
    unit = np.diag(
        np.array([*[size] * BANDS, 1e3 * size, *[10.0 * size] * (len(kept) - 1)]) ** -2.0
    )
    requests = float(n.sum())
    noise = _noise(xx, xy, float(total[y, y]), requests, unit)
    found = fit(
        xx,
        xy,
        n.sum(axis=1),
        squares=products[:, :, rows[-1:], rows[-1]].sum(axis=1),
        penalty=noise * unit,
        non_negative=range(BANDS + 1, columns),
        noise=noise,
    )
    return PrefillModel(
        kind,
        requests,
        found.misfit,
        {letter: float(total[0, _ALL.index(letter)]) / one for letter in "ukw"},
        _large(total),
        products[:, :, 0, 0].sum(axis=0) / one,
        found,
    )


def _large(total: FloatArray) -> dict[str, float]:
    """Means in which each request counts by the figure itself, uncached tokens by their square."""
    _, u, k, w, t, _ = range(len(_ALL))
    above = {"u": 16.0 * total[u, t], "k": total[k, k], "w": total[w, w]}
    below = {"u": total[u, u], "k": total[0, k], "w": total[0, w]}
    return {name: float(above[name] / max(float(below[name]), 1e-300)) for name in above}


def _noise(xx: FloatArray, xy: FloatArray, y_sq: float, n: float, unit: FloatArray) -> float:
    """Variance of a request around the model, in units of g."""
    p = len(unit)
    total, target = xx.sum(axis=0)[:p, :p], xy.sum(axis=0)[:p]
    # The first look takes a noise of 1, which is about g itself.
    beta = np.linalg.pinv(total + unit, hermitian=True) @ target
    around = y_sq - 2.0 * float(beta @ target) + float(beta @ total @ beta)
    return max(around / n, _LEAST_NOISE)
