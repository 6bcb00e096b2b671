"""What is settled about a request before its arm is chosen: by kill switch, holdout, experiment.

Pure and without waiting: it reads what others swap whole.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache

from policies.types import ArmId, ClassId
from policies.values import value
from router.classify.sessions import SessionName, session_key
from router.experiments.assign import Asker, Assignment, Unassigned, assign, point_and_bucket
from router.experiments.cells import HOLDOUT, at_bucket, side_arm
from router.experiments.model import Experiment, ExperimentName, Treatment, Unit, Variant
from router.selection.scope import EVERYTHING, Scope
from router.tenants.book import plan_key, wish
from router.tenants.model import ALL, Tenant
from router.types import ANONYMOUS, Classification, Headers, ParsedRequest

OFF, HELD_OUT, PINNED, WISHED, TRIED = "off", "holdout", "pinned", "wish", "experiment"
"""What stands in the place of a policy where none was asked."""
SETTLED = frozenset((OFF, HELD_OUT, PINNED, WISHED, TRIED))

_HOLDOUT_SALT = "holdout"


@lru_cache(maxsize=4096)
def _holdout_sides(variant: Variant, bucket: int, share: float) -> tuple[ArmId, ...]:
    return (at_bucket(side_arm(HOLDOUT, 0, variant), bucket, share),)


@value
class Placed:
    """What is settled about a request."""

    classification: Classification
    scope: Scope
    sides: tuple[ArmId, ...] = ()
    """Sides it is on, each with the bucket of its unit (`cells.at_bucket`)."""
    told: str = ""
    """What its client is told of the experiment."""


@value
class Question:
    """What of a request is asked about."""

    tenant: Tenant
    request: ParsedRequest
    classification: Classification
    request_id: str
    headers: Headers
    session: SessionName | None = None
    """What names its session, where that is known already."""


@dataclass(frozen=True, slots=True)
class Rules:
    """What holds in this process now; replaced whole."""

    off: bool = False
    experiments: tuple[Experiment, ...] = ()
    left: frozenset[tuple[ExperimentName, int]] = frozenset()
    """Experiments, and their epochs, whose treatment this process has left by itself."""
    class_ids: Collection[ClassId] = ()
    missing: Counter[str] = field(default_factory=Counter)
    """Requests that named no unit, by experiment."""


def place(rules: Rules, asked: Question, *, baseline: ArmId, several: bool) -> Placed:
    """Settles what can be settled without a policy.

    Args:
        rules: What holds now.
        asked: The request.
        baseline: The route's.
        several: Whether the route has another arm.
    """
    tenant, classification = asked.tenant, asked.classification
    rights = tenant.rights
    if rules.off:
        return Placed(classification, Scope(rights, baseline, OFF))
    wanted = wish(tenant, asked.headers)
    if wanted.class_id is not None and wanted.class_id in rules.class_ids:
        classification = replace(
            classification,
            class_id=wanted.class_id,
            confidence=1.0,
            probabilities={wanted.class_id: 1.0},
            reason="its tenant says so",
        )
    if wanted.pool is not None:
        # Chosen by the client, so it says nothing about anything: it is in no comparison.
        return Placed(classification, Scope(rights, wanted.pool, WISHED))
    placed = Placed(classification, _own_scope(tenant))
    if not several or (not rules.experiments and tenant.holdout <= 0.0):
        return placed
    return _compared(rules, asked, placed, baseline)


def _compared(rules: Rules, asked: Question, placed: Placed, baseline: ArmId) -> Placed:
    """Whether it is held out, and in an experiment."""
    tenant = asked.tenant
    session = session_key(asked.request, asked.session)
    if session is not None:
        session = f"{tenant.id}\0{session}"
    sides: tuple[ArmId, ...] = ()
    if tenant.holdout > 0.0:
        variant, bucket = _holdout(rules, asked, session)
        sides = _holdout_sides(variant, bucket, tenant.holdout)
        if variant is Variant.CONTROL:
            rights = tenant.rights
            scope = Scope(rights, baseline, HELD_OUT, rights.policy, by_lot=True)
            return Placed(placed.classification, scope, sides)
        placed = Placed(placed.classification, placed.scope, sides)
    if not rules.experiments:
        return placed
    return _tried(rules, asked, _units(asked, session), placed, baseline)


def _tried(
    rules: Rules, asked: Question, units: Mapping[Unit, str], placed: Placed, baseline: ArmId
) -> Placed:
    tenant = asked.tenant
    asker = Asker(
        asked.request.model, tenant.id, tenant.group, placed.classification.class_id, units
    )
    found = assign(rules.experiments, asker)
    if found is None:
        return placed
    if isinstance(found, Unassigned):
        rules.missing[found.experiment] += 1
        return placed
    return _assigned(rules, found, placed, baseline)


def _assigned(rules: Rules, found: Assignment, placed: Placed, baseline: ArmId) -> Placed:
    experiment = next(e for e in rules.experiments if e.plan.name == found.experiment)
    epoch = experiment.standing.epoch
    plan, treated = experiment.plan, found.variant is Variant.TREATMENT
    if (found.experiment, epoch) in rules.left:
        # Left here and perhaps not yet elsewhere: everybody gets the control, and nobody counts.
        return replace(placed, scope=_scope(plan.control, placed.scope, baseline))
    scope = _scope(plan.treatment if treated else plan.control, placed.scope, baseline)
    side = side_arm(found.experiment, epoch, found.variant)
    if found.bucket is not None:
        side = at_bucket(side, found.bucket)
    told = f"{found.experiment}/{found.variant}"
    return replace(placed, scope=scope, sides=(*placed.sides, side), told=told)


def _scope(does: Treatment, own: Scope, baseline: ArmId) -> Scope:
    if does.default:
        return own
    if does.policy is not None:
        return replace(own, forced=None, why="", plan=plan_key(does.policy, dict(does.parameters)))
    return replace(own, forced=baseline if does.off else does.arm, why=TRIED, by_lot=True)


def _own_scope(tenant: Tenant) -> Scope:
    rights = tenant.rights
    if rights is ALL:
        return EVERYTHING
    why = PINNED if rights.pool is not None else ""
    return Scope(rights, rights.pool, why, rights.policy)


def _holdout(rules: Rules, asked: Question, session: str | None) -> tuple[Variant, int]:
    """Whether it is held out, and the bucket of what was drawn as a whole."""
    if session is None:
        rules.missing[HOLDOUT] += 1
    unit = asked.request_id if session is None else session
    at, bucket = point_and_bucket(_HOLDOUT_SALT, unit)
    return Variant.CONTROL if at < asked.tenant.holdout else Variant.TREATMENT, bucket


def _units(asked: Question, session: str | None) -> dict[Unit, str]:
    tenant, request = asked.tenant, asked.request
    units = {Unit.REQUEST: asked.request_id}
    if tenant.id != ANONYMOUS:
        units[Unit.TENANT] = tenant.id
    user = request.fields.get("user")
    if isinstance(user, str) and user:
        units[Unit.USER] = f"{tenant.id}\0{user}"
    if session is not None:
        units[Unit.SESSION] = session
    return units
