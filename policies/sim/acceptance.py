"""How many drafted tokens are accepted, request by request. It knows no time and no load."""

from __future__ import annotations

import math
import zlib
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import numpy as np
from numpy.typing import NDArray

from policies.sim.spec import Cell, EngineSpec
from policies.types import FloatArray

IntArray = NDArray[np.int64]

TEMPLATE_SHARE: Final = 0.2
"""Share of the spread between requests that is their template's. Judgement: nothing published."""

REQUEST_SHARE: Final = 0.25
"""Share that is the request's, whatever the method. With the template's it gives the correlation
of tau of one request under n-gram and EAGLE-3, .36 to .60 over four data sets (Llama-3.1-8B, from
the public traces of SpecDecode-Bench)."""

_MOST_RATE = 0.985
_GRID = 161
_SHIFTS = np.linspace(-14.0, 14.0, 561)
_LOGITS = np.linspace(-16.0, 16.0, 1601)


@dataclass(frozen=True, slots=True)
class Plan:
    """How one request is decoded after its first token; one entry per step.

    Attributes:
        tokens: Emitted; their sum is the answer without its first token.
        drafted: Drafted; 0 for a step without a draft.
    """

    tokens: IntArray
    drafted: IntArray

    @property
    def steps(self) -> int:
        """Steps it takes."""
        return len(self.tokens)


@dataclass(frozen=True, slots=True)
class Likeness:
    """What a request is like, for one drafter.

    Attributes:
        quantile: Where it stands among the requests of its class, 0 to 1.
        shift: Added to the log odds of acceptance: language, temperature.
        learned: How much of what there is to learn the drafter knows, 0 to 1.
    """

    quantile: float = 0.5
    shift: float = 0.0
    learned: float = 0.0


def survival(alphas: FloatArray) -> FloatArray:
    """Probability that a draft is accepted up to each position.

    Example:
        >>> survival(np.array([0.5, 0.5]))
        array([0.5 , 0.25])
    """
    result: FloatArray = np.cumprod(alphas, axis=-1, dtype=np.float64)
    return result


def expected_tau(alphas: FloatArray) -> float:
    """Tokens per step, the verifier's own included: 1 + the sum of survivals.

    Leviathan et al. (2023), equation 1, where all alphas are equal: (1 - a^(k+1)) / (1 - a).

    Example:
        >>> expected_tau(np.full(5, 0.8)), (1 - 0.8**6) / (1 - 0.8)
        (3.68928, 3.6892799999999992)
    """
    return 1.0 + float(survival(alphas).sum())


class Acceptance:
    """The acceptance of one cell: draws plans, and knows what they are on average.

    A request's rate, accepted tokens per step over k, is a quantile of a Beta distribution whose
    mean is the cell's and whose spread is what is left of the measured one without chance.
    """

    def __init__(self, cell: Cell) -> None:
        self._cell = cell
        self._means: dict[tuple[float, float], float] = {}
        self._k = len(cell.alphas)
        alphas = np.clip(np.array(cell.alphas), 1e-6, 1.0 - 1e-6)
        self._matching = cell.lag1 is not None
        if self._matching:
            # In a match the first position is as good as the others; that a match is not
            # always there is what makes the first one rare on average.
            alphas[0] = alphas[1:].mean() if self._k > 1 else 0.9
        self._logits = np.log(alphas / (1.0 - alphas))
        self._in_match = survival(alphas)
        shifted = survival(_sigmoid(self._logits + _SHIFTS[:, None])).sum(axis=1) / self._k
        self._rate_of_shift = shifted
        self._stay = self._state_memory(cell.lag1 or 0.0)
        self._cold = self._quantiles(cell.tau)
        self._warm = self._quantiles(cell.learned_tau) if cell.learned_tau else self._cold

    def _quantiles(self, tau: float) -> FloatArray:
        """Rates at equally spaced quantiles."""
        mean = min(max((tau - 1.0) / self._k, 1e-5), _MOST_RATE)
        base = max(self._cell.tau - 1.0, 1e-6)
        sd = self._cell.tau_sd * (tau - 1.0) / base / self._k
        chance = self._variance_of_step(mean) * tau / self._cell.tau_tokens / self._k**2
        variance = sd**2 - chance
        if variance <= (0.02 * mean) ** 2:
            return np.full(_GRID, mean)
        weight = max(mean * (1.0 - mean) / variance - 1.0, 0.2)
        return _beta_quantiles(mean * weight, (1.0 - mean) * weight)

    def _state_memory(self, lag1: float) -> float:
        """Correlation of neighbouring states that gives counts theirs: counts vary in a match."""
        if not self._matching:
            return 0.0
        positions, in_match = np.arange(1, self._k + 1), float(self._in_match.sum())
        q = self._match_ratio((self._cell.tau - 1.0) / self._k)
        second = float(((2 * positions - 1) * self._in_match).sum())
        between = q * (1.0 - q) * in_match**2
        return min(max(lag1, 0.0) * (1.0 + q * (second - in_match**2) / between), 0.95)

    def _variance_of_step(self, rate: float) -> float:
        """Variance of the mean accepted count of a request, times its steps."""
        positions = np.arange(1, self._k + 1)
        if not self._matching:
            s = survival(_sigmoid(self._logits + self._shift(rate)))
            return float(((2 * positions - 1) * s).sum() - s.sum() ** 2)
        in_match, q = float(self._in_match.sum()), self._match_ratio(rate)
        second = float(((2 * positions - 1) * self._in_match).sum())
        between = q * (1.0 - q) * in_match**2
        within = q * (second - in_match**2)
        return within + between * (1.0 + self._stay) / (1.0 - self._stay)

    def _shift(self, rate: float) -> float:
        return float(np.interp(rate, self._rate_of_shift, _SHIFTS))

    def _match_ratio(self, rate: float) -> float:
        return min(max(rate * self._k / float(self._in_match.sum()), 1e-4), _MOST_RATE)

    def rate(self, like: Likeness) -> float:
        """Accepted tokens per step over k, of such a request."""
        place = min(max(like.quantile, 0.0), 1.0) * (_GRID - 1)
        low = min(int(place), _GRID - 2)
        part = place - low
        cold = float(self._cold[low] + (self._cold[low + 1] - self._cold[low]) * part)
        warm = float(self._warm[low] + (self._warm[low + 1] - self._warm[low]) * part)
        rate = cold + (warm - cold) * like.learned
        if like.shift == 0.0:
            return rate
        if self._matching:
            q = self._match_ratio(rate)
            moved = _logistic(math.log(q / (1.0 - q)) + like.shift)
            return moved * float(self._in_match.sum()) / self._k
        return float(np.interp(self._shift(rate) + like.shift, _SHIFTS, self._rate_of_shift))

    def tau(self, like: Likeness) -> float:
        """Tokens per step of such a request."""
        return 1.0 + self._k * self.rate(like)

    def mean_tau(self, shift: float = 0.0, learned: float = 0.0) -> float:
        """Tokens per step of a stream of requests alike but for their rates.

        Harmonic over requests, since time adds up and answers are equally long.
        """
        key = (round(shift, 3), round(learned, 2))
        if key not in self._means:
            quantiles = ((np.arange(40) + 0.5) / 40).tolist()
            taus = [self.tau(Likeness(quantile, *key)) for quantile in quantiles]
            self._means[key] = 1.0 / float(np.mean(1.0 / np.array(taus)))
        return self._means[key]

    def drafted_per_step(self, rate: float) -> float:
        """Tokens drafted in a step, on average."""
        if not self._matching:
            return float(self._k)
        q = self._match_ratio(rate)
        return self._k * (q + (1.0 - q) * self._cell.blind_ratio)

    def plan(self, tokens: int, like: Likeness, rng: np.random.Generator) -> Plan:
        """Draw how so many tokens are decoded."""
        if tokens <= 0:
            return Plan(_NOTHING, _NOTHING)
        rate = self.rate(like)
        count = int(tokens / (1.0 + self._k * rate) * 1.25) + 16
        accepted, drafted = self._draw(count, rate, rng)
        emitted = accepted + 1
        total = emitted.cumsum()
        while total[-1] < tokens:
            more, more_drafted = self._draw(count, rate, rng)
            emitted = np.concatenate([emitted, more + 1])
            drafted = np.concatenate([drafted, more_drafted])
            total = emitted.cumsum()
        last = int(np.searchsorted(total, tokens))
        emitted = emitted[: last + 1].copy()
        emitted[last] -= int(total[last]) - tokens
        return Plan(emitted, drafted[: last + 1])

    def _draw(self, count: int, rate: float, rng: np.random.Generator) -> tuple[IntArray, IntArray]:
        u = rng.random(count)
        if not self._matching:
            s = survival(_sigmoid(self._logits + self._shift(rate)))
            accepted = self._k - np.searchsorted(s[::-1], u, side="right")
            return accepted.astype(np.int64), np.full(count, self._k)
        matched = self._matches(count, self._match_ratio(rate), rng)
        accepted = self._k - np.searchsorted(self._in_match[::-1], u, side="right")
        blind = rng.random(count) < self._cell.blind_ratio
        drafts = matched | blind
        return np.where(matched, accepted, 0).astype(np.int64), np.where(drafts, self._k, 0)

    def _matches(self, count: int, q: float, rng: np.random.Generator) -> NDArray[np.bool_]:
        """Two states whose stays are geometric; q is the share of steps with a match."""
        leave_match = (1.0 - self._stay) * (1.0 - q)
        leave_other = (1.0 - self._stay) * q
        matched = bool(rng.random() < q)
        pairs = int(count / (1.0 / leave_match + 1.0 / leave_other)) + 8
        states: list[NDArray[np.bool_]] = []
        have = 0
        while have < count:
            first, second = (leave_match, leave_other) if matched else (leave_other, leave_match)
            stays = np.empty((pairs, 2), dtype=np.int64)
            stays[:, 0] = np.minimum(rng.geometric(first, pairs), count)
            stays[:, 1] = np.minimum(rng.geometric(second, pairs), count)
            states.append(np.repeat(np.tile([matched, not matched], pairs), stays.ravel()))
            have += len(states[-1])
        return np.concatenate(states)[:count]


_NOTHING: Final = np.zeros(0, dtype=np.int64)


@lru_cache(maxsize=1024)
def acceptance_of(cell: Cell) -> Acceptance:
    """The acceptance of a cell, made once."""
    return Acceptance(cell)


def language_of(template: str) -> str:
    """Language of a template: what follows `@` in its name.

    Example:
        >>> language_of("chat-3@fr"), language_of("chat-3")
        ('fr', '')
    """
    return template.rpartition("@")[2] if "@" in template else ""


def likeness(
    spec: EngineSpec, *, seed: int, template: str, greedy: bool, learned: float = 0.0
) -> Likeness:
    """What a request is like for the method of an engine: the same at each of its servers."""
    method = zlib.crc32(spec.method.encode())
    own = _normal(seed, method)
    shared = _normal(seed, 1)
    of_template = _template_normal(template.partition("@")[0]) if template else shared
    z = (
        math.sqrt(TEMPLATE_SHARE) * of_template
        + math.sqrt(REQUEST_SHARE) * shared
        + math.sqrt(1.0 - TEMPLATE_SHARE - REQUEST_SHARE) * own
    )
    if not template:
        z /= math.sqrt(1.0 + 2.0 * math.sqrt(TEMPLATE_SHARE * REQUEST_SHARE))
    shift = shift_of(spec, template=template, greedy=greedy)
    return Likeness(0.5 * (1.0 + math.erf(z / math.sqrt(2.0))), shift, learned)


def shift_of(spec: EngineSpec, *, template: str, greedy: bool) -> float:
    """What language and temperature add to the log odds of acceptance."""
    return spec.languages.get(language_of(template), 0.0) + (0.0 if greedy else spec.hot_shift)


def _normal(*seeds: int) -> float:
    return float(np.random.default_rng(seeds).standard_normal())


@lru_cache(maxsize=4096)
def _template_normal(name: str) -> float:
    return _normal(zlib.crc32(name.encode()), 2)


def _sigmoid(x: FloatArray) -> FloatArray:
    result: FloatArray = 1.0 / (1.0 + np.exp(-x))
    return result


def _logistic(x: float) -> float:
    return 1.0 / (1.0 + math.exp(-x))


def _beta_quantiles(a: float, b: float) -> FloatArray:
    """Quantiles of Beta(a, b) at equally spaced probabilities; the ends are the outermost half.

    The density is summed over log odds, where it has no poles.
    """
    x = _sigmoid(_LOGITS)
    log_density = a * np.log(x) + b * np.log1p(-x)
    density = np.exp(log_density - log_density.max())
    total = density.cumsum() - density / 2.0
    total /= density.sum()
    wanted = np.linspace(0.0, 1.0, _GRID)
    wanted[0], wanted[-1] = 0.5 / _GRID, 1.0 - 0.5 / _GRID
    return np.minimum(np.interp(wanted, total, x), _MOST_RATE)
