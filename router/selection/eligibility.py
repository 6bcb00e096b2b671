"""The mask that comes before any policy: arms a request must not use, each with its reason."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from policies.types import ArmId
from router.fleet.model import PoolFacts, RouteFacts
from router.fleet.state import FleetState
from router.tenants.model import ALL, Rights
from router.types import ParsedRequest

LOSSY = "lossy_without_consent"
NO_SERVER = "no_server_available"
NOT_ITS_POOL = "pool_not_for_tenant"
NOT_ITS_METHOD = "method_not_for_tenant"
QUARANTINED = "quarantined"
LOSSLESS_TENANT = "lossy_for_lossless_tenant"


def excluded_arms(
    route: RouteFacts,
    fleet: FleetState,
    request: ParsedRequest,
    rights: Rights = ALL,
    quarantined: Collection[ArmId] = (),
) -> Mapping[ArmId, str]:
    """Arms that must not serve this request, with the reason.

    Args:
        route: Its route.
        fleet: The route's servers.
        request: It.
        rights: Of its tenant.
        quarantined: Arms whose answers to its class are damaged.

    No property of a request or of its tenant ever excludes the baseline: plain decoding serves
    everything. Only when none of its servers answers, and another arm's do, does it stand aside.
    """
    reasons: dict[ArmId, str] = {}
    for arm_id, pool in route.pools.items():
        reason = None
        if arm_id != route.baseline:
            reason = _refusal(route, pool, request, rights)
            if reason is None and arm_id in quarantined:
                reason = QUARANTINED
        if reason is None and not fleet.available(arm_id):
            reason = NO_SERVER
        if reason is not None:
            reasons[arm_id] = reason
    if len(reasons) == len(route.pools):
        reasons.pop(route.baseline, None)
    return reasons


def _refusal(
    route: RouteFacts, pool: PoolFacts, request: ParsedRequest, rights: Rights
) -> str | None:
    if rights.pools is not None and pool.arm.arm_id not in rights.pools:
        return NOT_ITS_POOL
    if rights.methods is not None and pool.speculative and pool.arm.method not in rights.methods:
        return NOT_ITS_METHOD
    if rights.lossless_only and not pool.lossless:
        return LOSSLESS_TENANT
    if not pool.lossless and not route.allow_lossy:
        return LOSSY
    return pool.adapter.refusal(request, speculative=pool.speculative)
