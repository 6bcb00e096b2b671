"""What the whole has saved each tenant in a month, against those that were held out by chance."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from policies.cost import LOG_COST_RANGE
from policies.estimators.increments import FIXED_POINT
from policies.estimators.verdict import MIN_N, anytime_reach
from router.estimates.layout import RouteKeys
from router.stores.base import CounterStore
from router.types import TenantId

_OUT, _REST = "out", "rest"
_SLACK = 1e-3


@dataclass(frozen=True, slots=True)
class _Group:
    n: int
    mean: float
    variance: float

    @classmethod
    def of(cls, counts: Mapping[str, int], stem: str) -> _Group | None:
        n = counts.get(f"{stem}.y.s.n", 0)
        if n < MIN_N:
            return None
        low, high = LOG_COST_RANGE
        mean = counts.get(f"{stem}.y.s.s", 0) / FIXED_POINT / n
        square = counts.get(f"{stem}.y.s.q", 0) / FIXED_POINT / n
        if not low - _SLACK <= mean <= high + _SLACK or square < mean**2 - _SLACK:
            return None  # no sums of ours
        return cls(n, mean, max(square - mean**2, 1e-4) * n / (n - 1))


def held_out_gain(counts: Mapping[str, int]) -> dict[str, Any]:
    """A tenant's month: requests on both sides and the gain, None where too little is known.

    Streams alone: their cost is that of the class's typical answer, so lengths do not matter, and
    who is held out is chance, so neither do classes nor hours. The interval holds at any look.

    Example:
        >>> held_out_gain({"out.y.s.n": 3})["gain"] is None
        True
    """
    out, rest = _Group.of(counts, _OUT), _Group.of(counts, _REST)
    told: dict[str, Any] = {
        "held_out": counts.get(f"{_OUT}.y.s.n", 0),
        "others": counts.get(f"{_REST}.y.s.n", 0),
        "gain": None,
    }
    if out is None or rest is None:
        return told
    variance = out.variance / out.n + rest.variance / rest.n
    df = variance**2 / (
        (out.variance / out.n) ** 2 / (out.n - 1) + (rest.variance / rest.n) ** 2 / (rest.n - 1)
    )
    reach = anytime_reach(variance, df, out.variance + rest.variance)
    if reach is None:
        return told
    delta = rest.mean - out.mean
    bounds = (delta, delta + reach, delta - reach)
    told["gain"] = dict(
        zip(("value", "low", "high"), (-math.expm1(at) for at in bounds), strict=True)
    )
    return told


def of_everybody(tenants: Mapping[TenantId, Mapping[str, int]]) -> dict[str, Any]:
    """The gain over all tenants of a month, by their sums.

    Example:
        >>> of_everybody({TenantId("a"): {"out.y.s.n": 3}, TenantId("b"): {"out.y.s.n": 4}})
        {'held_out': 7, 'others': 0, 'gain': None}
    """
    together: Counter[str] = Counter()
    for counts in tenants.values():
        together.update({name: n for name, n in counts.items() if ".y.s." in name})
    return held_out_gain(together)


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
