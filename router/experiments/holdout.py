"""What the whole has saved each tenant in a month, against those that were held out by chance."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from policies.cost import LOG_COST_RANGE
from policies.estimators.clusters import Estimate, mean_of
from policies.estimators.increments import FIXED_POINT
from policies.estimators.verdict import MIN_N, anytime_reach
from router.estimates.layout import RouteKeys
from router.experiments.cells import by_bucket
from router.stores.base import CounterStore
from router.types import TenantId

_OUT, _REST = "out", "rest"
_SHARE = "="
_SLACK = 1e-3
_LEAST_VARIANCE = 1e-4


@dataclass(frozen=True, slots=True)
class _Group:
    """Requests of a stratum on one side.

    Attributes:
        n: How many.
        mean: Of their log cost.
        noise: Variance of one of them.
    """

    n: int
    mean: Estimate
    noise: float

    @classmethod
    def of(cls, counts: Mapping[str, int]) -> _Group | None:
        whole, parts = by_bucket(counts)
        n = whole.get("y.s.n", 0)
        if n < MIN_N:
            return None
        low, high = LOG_COST_RANGE
        mean = whole.get("y.s.s", 0) / FIXED_POINT / n
        square = whole.get("y.s.q", 0) / FIXED_POINT / n
        if not low - _SLACK <= mean <= high + _SLACK or square < mean**2 - _SLACK:
            return None  # no sums of ours
        noise = max(square - mean**2, _LEAST_VARIANCE) * n / (n - 1)
        if not parts:  # of months in which no bucket was kept
            return cls(n, Estimate(mean, noise / n, n - 1.0), noise)
        by = parts.get("y.s.n"), parts.get("y.s.s")
        if by[0] is None or by[1] is None:
            return None
        found = mean_of(by[0].astype(float), by[1] / FIXED_POINT)
        if found is None or not low - _SLACK <= found.value <= high + _SLACK:
            return None
        # By chance buckets may differ less than requests that are independent would.
        variance = max(found.variance, noise / float(by[0].sum()))
        return cls(n, Estimate(found.value, variance, found.df), noise)


@dataclass(frozen=True, slots=True)
class _Stratum:
    """A tenant's requests of a month while one share of them was held out."""

    held_out: int
    others: int
    out: _Group | None
    rest: _Group | None

    @property
    def n(self) -> int:
        return self.held_out + self.others


def held_out_gain(counts: Mapping[str, int]) -> dict[str, Any]:
    """A tenant's month: requests on both sides and the gain, None where too little is known.

    Streams alone: their cost is that of the class's typical answer, so lengths do not matter, and
    who is held out is chance, so neither do classes nor hours. The interval holds at any look, and
    its noise is that between sessions, as far as they were told apart.

    Example:
        >>> held_out_gain({"out.y.s.n": 3})["gain"] is None
        True
    """
    return _gain(list(_strata(counts)))


def of_everybody(tenants: Mapping[TenantId, Mapping[str, int]]) -> dict[str, Any]:
    """The gain over all tenants of a month, by their sums, each against its own held out.

    Tenants may have shares of their own: if their requests were added up, whoever has a larger one
    would be more of those held out than of the others, and what it differs by from other tenants
    would be taken for a gain.

    Example:
        >>> of_everybody({TenantId("a"): {"out.y.s.n": 3}, TenantId("b"): {"out.y.s.n": 4}})
        {'held_out': 7, 'others': 0, 'gain': None, 'compared': 0.0}
    """
    return _gain([stratum for counts in tenants.values() for stratum in _strata(counts)])


def _strata(counts: Mapping[str, int]) -> Iterator[_Stratum]:
    """A month by share: what was added up before shares were told apart is a stratum too."""
    sides: dict[str, dict[str, dict[str, int]]] = {}
    for name, value in counts.items():
        head, _, of = name.partition(".")
        stem, _, share = head.partition(_SHARE)
        if stem in (_OUT, _REST):
            sides.setdefault(share, {_OUT: {}, _REST: {}})[stem][of] = value
    for pair in sides.values():
        out, rest = pair[_OUT], pair[_REST]
        n, others = (max(of.get("y.s.n", 0), 0) for of in (out, rest))
        yield _Stratum(n, others, _Group.of(out), _Group.of(rest))


def _gain(strata: Sequence[_Stratum]) -> dict[str, Any]:
    """The gain over strata, each of which counts by its requests.

    With `n_s` the requests and `d_s` the contrast of stratum s::

        d    = sum_s w_s d_s            w_s = n_s / sum_s n_s
        V(d) = sum_s w_s^2 V(d_s)

    with the degrees of freedom of Satterthwaite (1946). Weights move with the traffic, so that the
    interval holds at any look as far as they move slowly.
    """
    told: dict[str, Any] = {
        "held_out": sum(of.held_out for of in strata),
        "others": sum(of.others for of in strata),
        "gain": None,
        "compared": 0.0,
    }
    known = [(of.n, of.out, of.rest) for of in strata if of.out and of.rest]
    compared = sum(n for n, _, _ in known)
    if not compared:
        return told
    told["compared"] = compared / sum(of.n for of in strata)
    delta = variance = unit = freedom = 0.0
    for n, out, rest in known:
        weight = n / compared
        delta += weight * (rest.mean.value - out.mean.value)
        unit += weight * (out.noise + rest.noise)
        for mean in (out.mean, rest.mean):
            part = weight**2 * mean.variance
            variance += part
            freedom += part**2 / mean.df
    reach = anytime_reach(variance, variance**2 / freedom, unit)
    if reach is None:
        return told
    bounds = (delta, delta + reach, delta - reach)
    told["gain"] = dict(
        zip(("value", "low", "high"), (-math.expm1(at) for at in bounds), strict=True)
    )
    return told


async def month_of_all(
    store: CounterStore, prefix: str, models: Sequence[str], month: str
) -> dict[str, dict[str, Any]]:
    """All tenants of a month, by model.

    Raises:
        StoreError: The store did not answer.
    """
    found = {}
    for model in models:
        [fields] = await store.read([RouteKeys(prefix, model).month(month)])
        tenants: dict[str, dict[str, int]] = {}
        for name, value in fields.items():
            tenant, _, of = name.partition("|")
            tenants.setdefault(tenant, {})[of] = value
        found[model] = {tenant: held_out_gain(of) for tenant, of in sorted(tenants.items())}
    return found
