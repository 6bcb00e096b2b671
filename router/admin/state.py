"""Everything an operator asks about, as JSON values; made from the snapshot the policies see."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from policies.cost import UNKNOWN_LENGTH
from policies.estimators.load import MOST
from policies.estimators.quantiles import Quantile
from policies.estimators.tau import Tau
from policies.types import Arm, ArmId, ClassId, Status
from router.account import Account
from router.admin.account import account_json
from router.admin.costs import costs_json
from router.admission.admission import AdmissionState
from router.engines.identity import EngineIdentity
from router.estimates.concerns import Concern, concerns
from router.estimates.events import Change, Event
from router.estimates.layout import COPYING, segment_of
from router.estimates.segments import PartSnapshot
from router.estimates.slot_clock import TOLERANCE_S
from router.estimates.snapshot import Snapshot
from router.estimates.summary import TAILS, Acceptance, CellSummary, Comparison, Quantiles
from router.fleet.identify import differences, mismatches
from router.fleet.model import PoolFacts, Replica, RouteFacts
from router.fleet.state import ReplicaState
from router.selection.plans import Plan
from router.sentinel.desk import quarantines_json
from router.sentinel.model import Book, CellName, Quarantine
from router.types import POOLED, SegmentId

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

_LOAD_BANDS = (
    *(
        f"{low}" if low == high else f"{low}-{high}"
        for low, high in zip((1, *(most + 1 for most in MOST[:-1])), MOST, strict=True)
    ),
    f"{MOST[-1] + 1}+",
)
"""Requests at a server, by the number of their band."""


_NOTHING_KNOWN = Book()


@dataclass(frozen=True, slots=True)
class StoreState:
    """How the store is doing."""

    url: str
    up: bool
    error: str | None
    """Why it is not up."""
    snapshot_age_s: float | None
    """Since what the store holds was last read; None if it never was."""
    dropped_increments: int
    """That found no room, and are lost."""
    refused_increments: int
    """That the store refused because of what it held, and are lost."""
    waiting_increments: int
    """That the store has not confirmed."""
    late_made_tokens: int
    """Tokens whose making was told too late to be attributed; they count everywhere else."""
    clock_skew_s: float | None
    """How far the store's clock is ahead of this host's; None if it never told."""

    @property
    def says_briefly(self) -> str:
        """The same without what clients need not know."""
        if self.up:
            return "answers"
        return "away: requests are served, and learned from in this process alone"

    @property
    def says(self) -> str:
        """How it does and what that means, in words."""
        said = [self.says_briefly]
        if not self.up:
            said += [str(self.error), f"{self.waiting_increments:,} sums wait to be added"]
        if self.clock_skew_s is not None and abs(self.clock_skew_s) > TOLERANCE_S:
            said.append(
                f"its clock differs from this host's by {self.clock_skew_s:+.1f} s, which is "
                "allowed for"
            )
        if self.dropped_increments:
            said.append(f"{self.dropped_increments:,} increments found no room and are lost")
        if self.refused_increments:
            said.append(
                f"{self.refused_increments:,} increments were refused, because something else is "
                "kept where they belong"
            )
        return "; ".join(said)


@dataclass(frozen=True, slots=True)
class RouteState:
    """One route at one moment."""

    facts: RouteFacts
    replicas: Mapping[ArmId, tuple[ReplicaState, ...]]
    snapshot: Snapshot
    plan: Plan
    discovery_errors: Mapping[ArmId, str] = field(default_factory=dict)
    """Why the servers of a pool could not be looked for, by arm."""
    identities: Mapping[Replica, EngineIdentity] = field(default_factory=dict)
    """What the servers are that have told."""
    quality: Book = _NOTHING_KNOWN
    """Cells whose answers are damaged."""
    account: Account | None = None
    """What was saved; None before anybody looked."""


def route_json(state: RouteState) -> dict[str, Any]:
    """One route; figures that were not measured are null."""
    snapshot, plan = state.snapshot, state.plan
    return {
        "model": state.facts.model,
        "baseline": state.facts.baseline,
        "policy": plan.policy,
        "snapshot": snapshot.version,
        "load_bands": list(_LOAD_BANDS),
        "pools": [_pool_json(state, arm) for arm in snapshot.arms],
        "classes": [_class_json(state, class_id) for class_id in snapshot.classes],
        "policy_failed_for": list(plan.spoiled),
        "concerns": [_concern_json(of) for of in concerns(snapshot)],
        "quarantines": quarantines_json(state.quality),
        "events": [
            *(_event_json(event) for event in snapshot.events),
            *(_quarantine_event(*item) for item in state.quality.quarantines.items()),
        ],
        **account_json(state.account),
    }


def store_json(store: StoreState) -> dict[str, Any]:
    """The store."""
    return {**_flat(store), "says": store.says}


def admission_json(state: AdmissionState) -> dict[str, Any]:
    """Places and those who wait for one, in this process."""
    shown = asdict(state)
    del shown["limits"]["by_tenant"]  # the configuration tells them
    return shown


def _flat(value: DataclassInstance) -> dict[str, Any]:
    """A value of plain figures. `asdict` would look into each of them, at four times the cost."""
    return {name: getattr(value, name) for name in value.__dataclass_fields__}


def _pool_json(state: RouteState, arm: Arm) -> dict[str, Any]:
    pool = state.facts.pools[arm.arm_id]
    return {
        "name": arm.arm_id,
        "method": arm.method,
        "num_speculative_tokens": arm.num_speculative_tokens,
        "engine": pool.adapter.name,
        "lossless": pool.lossless,
        "baseline": arm.baseline,
        "discovery_error": state.discovery_errors.get(arm.arm_id),
        **costs_json(state.snapshot.costs.get(arm.arm_id)),
        "mismatch": list(
            differences(
                {
                    item.replica: state.identities[item.replica]
                    for item in state.replicas[arm.arm_id]
                    if item.replica in state.identities
                }
            )
        ),
        "replicas": [
            {**_replica_json(item), **_identity_json(pool, state.identities.get(item.replica))}
            for item in state.replicas[arm.arm_id]
        ],
    }


def _identity_json(pool: PoolFacts, identity: EngineIdentity | None) -> dict[str, Any]:
    if identity is None:
        return {"detected": None, "mismatch": []}
    return {
        "detected": {
            "engine": identity.engine.value,
            "version": identity.version,
            "speculation": identity.speculation,
            "models": list(identity.models),
            "context_tokens": identity.context_tokens,
            "most_running": identity.most_running,
            "evidence": list(identity.evidence),
        },
        "mismatch": [mismatch.why for mismatch in mismatches(pool, identity)],
    }


def _replica_json(item: ReplicaState) -> dict[str, Any]:
    return {
        "id": item.replica.replica_id,
        "url": item.replica.url,
        "state": item.word,
        "up": item.up,
        "in_flight": item.in_flight,
        "breaker": item.breaker.value,
        "open_s": item.open_s,
        "cooling_s": item.cooling_s,
        "suspect": item.suspect,
        "draining": item.draining,
        "share": item.share,
        "line_s": item.line_s,
        "gauges": _flat(item.gauges),
    }


def _concern_json(of: Concern) -> dict[str, Any]:
    return {
        "class": of.class_id,
        "pool": of.arm.arm_id,
        "harm": of.harm.value,
        "gain": _flat(of.gain) if of.gain else None,
        "tail": {"name": of.tail[0], **_flat(of.tail[1])} if of.tail else None,
        "since": of.since,
        "measured_since": of.measured_since,
        "changes": [_change_json(change) for change in of.changes],
        "tokens_per_step": of.tokens_per_step,
        "num_speculative_tokens": of.arm.num_speculative_tokens,
        "share": of.share,
        "instead": {
            "pool": of.instead,
            "gain": _flat(of.instead_gain) if of.instead_gain else None,
        },
    }


def _event_json(event: Event) -> dict[str, Any]:
    difference = event.difference
    return {
        "time": event.wall,
        "kind": event.kind,
        "class": event.class_id,
        **_part_name(event.part),
        "pool": event.arm_id,
        "time_ratio": None
        if difference is None
        else {
            "value": math.exp(difference.value),
            "low": math.exp(difference.low),
            "high": math.exp(difference.high),
        },
        "level": event.level,
        "change": _change_json(event.change) if event.change else None,
        "why": None,
    }


def _quarantine_event(cell: CellName, held: Quarantine) -> dict[str, Any]:
    arm_id, class_id = cell
    return {
        "time": held.at if held.ended is None else held.ended,
        "kind": "quarantine" if held.lasts else "probation",
        "class": class_id,
        **_part_name(POOLED),
        "pool": arm_id,
        "time_ratio": None,
        "level": None,
        "change": None,
        "why": held.why,
    }


def _change_json(change: Change) -> dict[str, Any]:
    """Tokens per step, or time as a ratio to the baseline's."""
    before, after = change.before, change.after
    if change.figure == "cost":
        before, after = math.exp(before), math.exp(after)
    return {"figure": change.figure, "since": change.wall, "before": before, "after": after}


def _part_name(part: SegmentId) -> dict[str, Any]:
    return {"segment": segment_of(part), "copying": part.endswith(COPYING)}


def _class_json(state: RouteState, class_id: ClassId) -> dict[str, Any]:
    known = state.snapshot.classes[class_id]
    cells = known.cells
    proposal = state.plan.proposal(class_id)
    return {
        "class": class_id,
        "requests": sum(sum(cell.ended.values()) for cell in cells.values()),
        "cells": [
            _cell_json(cells[arm.arm_id], float(p))
            for arm, p in zip(state.snapshot.arms, proposal.probabilities, strict=True)
        ],
        "split_by_copying": known.split,
        "segments": [
            {
                **_part_name(part),
                **_part_json(of, state.plan.proposal(class_id, part).probabilities.tolist()),
            }
            for part, of in known.parts.items()
        ],
        "bands": {band: _part_json(of, None) for band, of in known.bands.items()},
    }


def _part_json(part: PartSnapshot, probabilities: list[float] | None) -> dict[str, Any]:
    """A part of a class: its own gains, whatever the rest of the class says."""
    return {
        "measured": part.n,
        "cells": [
            {
                "pool": arm_id,
                "probability": None if probabilities is None else probabilities[index],
                "gain": _flat(gain) if gain else None,
            }
            for index, (arm_id, gain) in enumerate(part.gains.items())
        ],
    }


def _cell_json(cell: CellSummary, probability: float) -> dict[str, Any]:
    return {
        "pool": cell.arm_id,
        "probability": probability,
        "share": cell.share,
        **{status.value: cell.ended[status] for status in Status},
        "abandoned_share": cell.abandoned,
        "held": cell.held,
        "since": cell.since,
        "tokens": cell.tokens,
        **_acceptance_json(cell.acceptance),
        "acceptance_sources": {source.value: n for source, n in cell.sources.items()},
        "ttft_s": _quantiles_json(cell.latency["ttft"]),
        "tpot_s": _quantiles_json(cell.latency["tpot"]),
        "e2e_s": _quantiles_json(cell.latency["e2e"]),
        "e2e_whole_s": {
            "n": sum(of.n for of in cell.whole.values()),
            "by_tokens": {_tokens(band): _quantiles_json(of) for band, of in cell.whole.items()},
        },
        "queue_s": _quantiles_json(cell.latency["queue"]),
        "overhead_s": _quantiles_json(cell.latency["over"]),
        "structure": _flat(cell.structure),
        "repeats": dict(cell.repeats),
        **_comparison_json(cell.comparison),
    }


def _acceptance_json(acceptance: Acceptance) -> dict[str, Any]:
    """Tau with its source, and alpha in its forms."""
    return {
        "tokens_per_step": acceptance.tau.value if acceptance.tau else None,
        "tokens_per_step_interval": _interval_json(acceptance.tau),
        "tokens_per_step_of_class": _flat(acceptance.tau_of_class)
        if acceptance.tau_of_class
        else None,
        "tokens_per_step_by_source": {
            source.value: _flat(tau) for source, tau in acceptance.taus.items()
        },
        "acceptance_source": acceptance.source.value if acceptance.source else None,
        "acceptance_requests": acceptance.requests,
        "acceptance_tokens": acceptance.tokens,
        "acceptance_rate": acceptance.rate,
        "acceptance_form": acceptance.form,
        "acceptance_rate_by_position": list(acceptance.position_rates),
        "equal_acceptance_rate": _flat(acceptance.equal_alpha) if acceptance.equal_alpha else None,
        "draft_acceptance_rate": acceptance.draft_rate,
    }


def _comparison_json(compared: Comparison | None) -> dict[str, Any]:
    """An arm against the baseline; all null for the baseline."""
    if compared is None:
        return {
            "gain": None,
            "gain_one_look": None,
            "gain_by_load": {},
            "tail_ratios": dict.fromkeys(TAILS),
            "tails_compared": None,
            "verdict": None,
            "abandoned_more": None,
        }
    return {
        "gain": _flat(compared.gain) if compared.gain else None,
        "gain_one_look": _flat(compared.gain_once) if compared.gain_once else None,
        "gain_by_load": {
            str(band): _flat(gain) if gain else None for band, gain in compared.by_load.items()
        },
        "tail_ratios": {
            name: _flat(tail) if tail else None for name, tail in compared.tails.items()
        },
        "tails_compared": compared.alike,
        "verdict": compared.verdict.value,
        "abandoned_more": compared.abandoned_more,
    }


def _quantiles_json(quantiles: Quantiles) -> dict[str, Any]:
    shown = {"p50": quantiles.p50, "p95": quantiles.p95, "p99": quantiles.p99}
    return {
        "n": quantiles.n,
        **{name: of.value if of else None for name, of in shown.items()},
        "intervals": {name: _interval_json(of) for name, of in shown.items()},
    }


def _interval_json(of: Quantile | Tau | None) -> list[float | None] | None:
    return None if of is None or (of.low is None and of.high is None) else [of.low, of.high]


def _tokens(band: str) -> str:
    """Lengths that a band holds."""
    return "unknown" if band == UNKNOWN_LENGTH else f"{2 ** int(band)}-{2 ** (int(band) + 1) - 1}"
