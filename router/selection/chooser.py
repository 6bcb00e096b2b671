"""Plan, mask and a random number → Decision."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import NamedTuple

from policies.knowledge import Moment
from policies.types import ArmId, ClassId
from router.estimates.layout import part_of
from router.fleet.affinity import prefix_of
from router.fleet.model import RouteFacts
from router.fleet.state import FleetState
from router.selection.eligibility import excluded_arms
from router.selection.moments import moment_of
from router.selection.odds import Odds
from router.selection.plans import Plan
from router.selection.scope import EVERYTHING, Scope
from router.types import POOLED, Classification, Decision, ParsedRequest, SegmentId

BALANCER = "balancer"
"""Stands for a policy where none decides."""


class Chooser:
    """Draws an arm for each request of one route."""

    def __init__(
        self,
        route: RouteFacts,
        fleet: FleetState,
        plan: Plan,
        *,
        uniform: Callable[[], float],
        quarantined: Callable[[ClassId], Collection[ArmId]] = lambda _: (),
    ) -> None:
        """Draws from a plan that is replaced again and again.

        Args:
            route: Its route.
            fleet: The route's servers.
            plan: The first.
            uniform: Draws from [0, 1).
            quarantined: Arms that must not serve a class now.
        """
        self._quarantined = quarantined
        self._route = route
        self._fleet = fleet
        self._uniform = uniform
        self.plan = plan
        """The current plan; replaced whole whenever there is a new snapshot."""
        self.others: Mapping[str, Plan] = {}
        """Plans of other policies, for tenants and experiments, by `plan_key`."""

    def balanced(self) -> Decision:
        """For requests in which the arm makes no difference: plain decoding, while it answers."""
        arms = (self._route.baseline, *self._route.pools)
        arm_id = next((arm for arm in arms if self._fleet.available(arm)), self._route.baseline)
        return Decision(
            arm_id=arm_id,
            propensity=1.0,
            probabilities={arm_id: 1.0},
            excluded={},
            policy=BALANCER,
            snapshot_version=self.plan.snapshot_version,
            drawn=False,
        )

    def choose(
        self,
        request: ParsedRequest,
        classification: Classification,
        segment: SegmentId = POOLED,
        scope: Scope = EVERYTHING,
    ) -> Decision:
        """Masks the plan's probabilities, then draws from exactly what it records.

        What is forced is not drawn, unless the mask forbids it: then it is as if nothing were.
        """
        plan = self.plan if scope.plan is None else self.others.get(scope.plan, self.plan)
        barred = self._quarantined(classification.class_id)
        excluded = excluded_arms(self._route, self._fleet, request, scope.rights, barred)
        part = part_of(segment, classification.copy_ratio)
        if scope.forced is not None and self._may(scope.forced, excluded):
            settled = self._only(scope.forced, excluded, scope.why)
            if not scope.by_lot:
                return settled
            lean = ""
            if plan.prepared is not None:
                looked = self._look(plan, request, classification.class_id, part, excluded)
                lean = looked.odds.lean
            return replace(settled, lean=_of_kind(lean, scope))
        looked = self._look(plan, request, classification.class_id, part, excluded)
        odds, moment = looked.odds, looked.moment
        loads = None if moment is None else moment.load
        lean = _of_kind("" if moment is None else odds.lean, scope)
        if not scope.rights.explore:
            preferred = max(odds.arms, key=odds.probabilities.__getitem__)
            settled = self._only(preferred, excluded, plan.policy)
            return replace(settled, loads=loads, prefix=looked.prefix, moment=moment, lean=lean)
        arm_id = odds.at(self._uniform())
        return Decision(
            arm_id=arm_id,
            propensity=odds.probabilities[arm_id],
            probabilities=odds.probabilities,
            excluded=excluded,
            policy=plan.policy,
            snapshot_version=plan.snapshot_version,
            loads=loads,
            prefix=looked.prefix,
            moment=moment,
            lean=lean,
        )

    def _look(
        self,
        plan: Plan,
        request: ParsedRequest,
        class_id: ClassId,
        part: SegmentId,
        excluded: Mapping[ArmId, str],
    ) -> _Looked:
        """What a plan says of a request, and of which moment if it asks about that."""
        if plan.prepared is None:
            return _Looked(plan.odds(class_id, part, excluded))
        prefix = prefix_of(request)
        prospects = self._fleet.prospects(prefix)
        moment = moment_of(request, class_id, part, prospects)
        return _Looked(plan.odds_at(moment, excluded), moment, prefix)

    def _may(self, arm_id: ArmId, excluded: Mapping[ArmId, str]) -> bool:
        return arm_id in self._route.pools and arm_id not in excluded

    def _only(self, arm_id: ArmId, excluded: Mapping[ArmId, str], policy: str) -> Decision:
        probabilities = dict.fromkeys(self._route.pools, 0.0)
        probabilities[arm_id] = 1.0
        return Decision(
            arm_id=arm_id,
            propensity=1.0,
            probabilities=probabilities,
            excluded=excluded,
            policy=policy,
            snapshot_version=self.plan.snapshot_version,
            drawn=False,
        )


def _of_kind(lean: str, scope: Scope) -> str:
    """Marks whose other requests are not left to chance: they are compared among themselves."""
    if scope.rights.explore and scope.rights.pool is None:
        return lean
    return f"{lean or 'x'}s"


class _Looked(NamedTuple):
    """Odds, and where the policy looks at it the moment and the prompt's beginnings."""

    odds: Odds
    moment: Moment | None = None
    prefix: tuple[int, ...] | None = None
