"""Who is on which side: a hash of the unit, the same everywhere and always. No I/O, no state."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from hashlib import blake2b

from policies.estimators.clusters import BUCKETS
from policies.types import ClassId
from policies.values import value
from router.experiments.model import Experiment, ExperimentName, Unit, Variant
from router.types import TenantId

_SCALE = 2.0**-64
_LONGEST_SALT = 64


@value
class Asker:
    """What of a request decides about its side.

    Attributes:
        model: The route.
        tenant: Whose it is.
        group: Group of the tenant; empty for none.
        class_id: Its class.
        units: The key of each kind of unit; kinds the request has no key for are missing.
    """

    model: str
    tenant: TenantId
    group: str
    class_id: ClassId
    units: Mapping[Unit, str]


@value
class Assignment:
    """The side a request is on."""

    experiment: ExperimentName
    variant: Variant
    bucket: int | None
    """Bucket of the unit; None where each request is a unit."""


@value
class Unassigned:
    """A request that belongs to an experiment but names no unit of the kind."""

    experiment: ExperimentName


@lru_cache(maxsize=256)
def _key(salt: str) -> bytes:
    return blake2b(salt.encode(), digest_size=_LONGEST_SALT).digest()


def point(salt: str, unit: str) -> float:
    """Where a unit lies in [0, 1): uniform over units, independent from salt to salt.

    >>> point("a", "user-1") == point("a", "user-1")
    True
    >>> 0.0 <= point("a", "user-1") < 1.0
    True
    """
    return point_and_bucket(salt, unit)[0]


def point_and_bucket(salt: str, unit: str) -> tuple[float, int]:
    """Where a unit lies, and its bucket, which has nothing to do with that.

    The point is settled by the hash's first bits, the bucket by its last.

    >>> at, bucket = point_and_bucket("a", "user-1")
    >>> at == point("a", "user-1"), 0 <= bucket < BUCKETS
    (True, True)
    """
    key = _key(salt)
    data = unit.encode("utf-8", "surrogatepass")
    drawn = int.from_bytes(blake2b(data, key=key, digest_size=8).digest())
    return drawn * _SCALE, drawn % BUCKETS


def assign(experiments: Iterable[Experiment], asker: Asker) -> Assignment | Unassigned | None:
    """The side of the first experiment that a request belongs to; None if to none.

    A unit is treated if its point lies below the stage's share, so a share that grows keeps
    everybody who was in. Experiments of one layer are told apart by a point of the layer, which
    has nothing to do with any experiment's own.
    """
    for experiment in experiments:
        plan = experiment.plan
        if not experiment.assigns or plan.model != asker.model or not _concerned(experiment, asker):
            continue
        unit = asker.units.get(plan.unit)
        if unit is None:
            return Unassigned(plan.name)
        if plan.layer:
            low, high = plan.layer_range
            if not low <= point(f"layer:{plan.layer}", unit) < high:
                continue
        at, bucket = point_and_bucket(f"experiment:{plan.name}:{plan.salt}", unit)
        variant = Variant.TREATMENT if at < experiment.share else Variant.CONTROL
        return Assignment(plan.name, variant, bucket if plan.clustered else None)
    return None


def _concerned(experiment: Experiment, asker: Asker) -> bool:
    plan = experiment.plan
    if plan.classes and asker.class_id not in plan.classes:
        return False
    if not plan.tenants and not plan.groups:
        return True
    return asker.tenant in plan.tenants or (bool(asker.group) and asker.group in plan.groups)
