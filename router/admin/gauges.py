"""What is shown of a route, as gauges."""

from __future__ import annotations

from collections.abc import Iterator

from router.admin.state import RouteState
from router.observe.replicas import replica_gauges

Gauge = tuple[str, dict[str, str], float]
"""Name, labels, value; see `router.observe.catalog.GAUGES`."""


def route_gauges(state: RouteState) -> Iterator[Gauge]:
    """Servers, probabilities and estimates of one route."""
    model = state.facts.model
    for arm_id, replicas in state.replicas.items():
        for item in replicas:
            labels = {"model": model, "pool": arm_id, "replica": item.replica.replica_id}
            for name, value in replica_gauges(item):
                yield name, labels, value
    plan = state.plan
    yield "specroute_policy_failed_classes", {"model": model}, float(len(plan.spoiled))
    for class_id, known in state.snapshot.classes.items():
        for arm, p in zip(plan.arms, plan.proposal(class_id).probabilities, strict=True):
            labels = {"model": model, "pool": arm.arm_id, "class": class_id}
            cell = known.cells[arm.arm_id]
            yield "specroute_probability", labels, float(p)
            if cell.acceptance_length is not None:
                yield "specroute_tokens_per_step", labels, cell.acceptance_length
            if cell.acceptance_rate is not None:
                yield "specroute_acceptance_rate", labels, cell.acceptance_rate
            if cell.gain is not None:
                yield "specroute_gain_ratio", labels, cell.gain.value
