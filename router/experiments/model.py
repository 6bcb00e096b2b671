"""What an experiment is: the plan people write, and where it stands. Values only."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum
from typing import NewType

from policies.types import ArmId, ClassId
from router.types import TenantId

ExperimentName = NewType("ExperimentName", str)


class Variant(StrEnum):
    """Which side of an experiment a request is on."""

    CONTROL = "control"
    TREATMENT = "treatment"


class Unit(StrEnum):
    """What is assigned as a whole."""

    TENANT = "tenant"
    USER = "user"
    """The `user` field of the request, within its tenant."""
    SESSION = "session"
    REQUEST = "request"


class Metric(StrEnum):
    """What is judged, as a log difference; `policies.estimators.times` says of which requests."""

    COST = "cost"
    """Time of the class's typical answer; see `policies.cost`."""
    TPOT = "tpot"
    """Time per token after the first, of streams."""
    TTFT = "ttft"
    """Time to the first token, of streams."""
    E2E = "e2e"
    """The whole time, among answers of like length."""


METRIC_WORDS = {
    Metric.COST: "time",
    Metric.TPOT: "time per token",
    Metric.TTFT: "time to the first token",
    Metric.E2E: "whole time",
}
"""What is saved, for people."""


@dataclass(frozen=True, slots=True)
class Treatment:
    """What a variant does; exactly one of its members is given.

    Attributes:
        arm: Everything eligible goes to this pool.
        policy: A policy of this name, with `parameters`, decides.
        off: Plain decoding.
        default: What the route does anyway.
        parameters: Of the policy.
    """

    arm: ArmId | None = None
    policy: str | None = None
    off: bool = False
    default: bool = False
    parameters: tuple[tuple[str, object], ...] = ()

    def __post_init__(self) -> None:
        given = (self.arm is not None, self.policy is not None, self.off, self.default)
        if sum(given) != 1:
            raise ValueError("a variant must name one of arm, policy, off and default")
        if self.parameters and self.policy is None:
            raise ValueError("parameters belong to a policy")


class GuardKind(StrEnum):
    """What a guard watches; each compares the treatment with the control."""

    TPOT_P95 = "tpot_p95_ratio"
    TPOT_P99 = "tpot_p99_ratio"
    TTFT_P95 = "ttft_p95_ratio"
    TTFT_P99 = "ttft_p99_ratio"
    COST = "cost_ratio"
    ERRORS = "error_rate"
    ABORTS = "abort_rate"
    """Requests whose client left before the end, that a hedge overtook, or that found the pool full
    and were served by another: of none of them is a duration known."""
    INVALID = "invalid_rate"
    """Answers that lack the structure that was demanded, of those that could be judged."""
    TRUNCATED = "truncated_rate"
    """Answers that had to have a structure and were cut at the limit of length."""


RATIOS = frozenset(
    (
        GuardKind.TPOT_P95,
        GuardKind.TPOT_P99,
        GuardKind.TTFT_P95,
        GuardKind.TTFT_P99,
        GuardKind.COST,
    )
)
"""These are ratios, and their limit is above 1; the others are differences of shares."""


@dataclass(frozen=True, slots=True)
class Guard:
    """A limit whose breach ends the experiment."""

    kind: GuardKind
    limit: float
    """Largest ratio, or largest excess of a share, that is still borne."""

    def __post_init__(self) -> None:
        if self.kind in RATIOS and not 1.0 <= self.limit < 100.0:  # noqa: PLR2004
            raise ValueError(f"{self.kind}: limit is a ratio of at least 1, not {self.limit:g}")
        if self.kind not in RATIOS and not 0.0 <= self.limit < 1.0:
            raise ValueError(f"{self.kind}: limit is a share within [0, 1), not {self.limit:g}")


DEFAULT_GUARDS = (
    Guard(GuardKind.COST, 1.05),
    Guard(GuardKind.TPOT_P95, 1.10),
    Guard(GuardKind.TTFT_P95, 1.25),
    Guard(GuardKind.ERRORS, 0.01),
    Guard(GuardKind.ABORTS, 0.02),
)
"""Judgements: a mean worse by a twentieth and tails worse by a tenth are noticed; TTFT is noisier;
one more error in a hundred requests is not borne for any speed. Nor are two more that have no end:
a duration that nobody waited for is in no mean and no tail, so these would look fast."""


@dataclass(frozen=True, slots=True)
class Stage:
    """A step of the ramp."""

    share: float
    """Of the units, in (0, 1]."""
    dwell_s: float = 3600.0
    """How long it lasts at least."""
    min_requests: int = 200
    """Requests that each side must have had in it."""

    def __post_init__(self) -> None:
        if not 0.0 < self.share <= 1.0:
            raise ValueError(f"share must be within (0, 1], not {self.share:g}")
        if not 0 <= self.dwell_s < math.inf or self.min_requests < 0:
            raise ValueError("dwell_s and min_requests must be finite and not negative")


DEFAULT_STAGES = tuple(Stage(share) for share in (0.01, 0.05, 0.25, 0.5))


@dataclass(frozen=True, slots=True)
class Plan:
    """What is tried, on whom, and when it ends. It never changes once it has begun.

    Attributes:
        name: What it is called.
        model: The route.
        hypothesis: Why, in a sentence for people.
        treatment: What is tried.
        control: What it is compared with.
        tenants: Whose requests; empty for everybody's.
        groups: Groups of tenants whose requests; with `tenants`, either will do.
        classes: Only requests of these classes; empty for all.
        unit: What is assigned as a whole.
        stages: The ramp; shares do not fall.
        primary: What decides.
        guards: What ends it.
        layer: Experiments of one layer never share a unit.
        layer_range: The part of the layer's units that are this experiment's.
        salt: Makes its assignment independent of others'.
    """

    name: ExperimentName
    model: str
    hypothesis: str
    treatment: Treatment
    control: Treatment = Treatment(default=True)
    tenants: tuple[TenantId, ...] = ()
    groups: tuple[str, ...] = ()
    classes: tuple[ClassId, ...] = ()
    unit: Unit = Unit.SESSION
    stages: tuple[Stage, ...] = DEFAULT_STAGES
    primary: Metric = Metric.COST
    guards: tuple[Guard, ...] = DEFAULT_GUARDS
    layer: str = ""
    layer_range: tuple[float, float] = (0.0, 1.0)
    salt: str = ""

    @property
    def clustered(self) -> bool:
        """Whether a unit brings many requests, which are alike."""
        return self.unit is not Unit.REQUEST

    def __post_init__(self) -> None:
        shares = [stage.share for stage in self.stages]
        if not shares:
            raise ValueError("stages: there must be one at least")
        if shares != sorted(shares):
            raise ValueError("stages: shares must not fall, or units would change sides")
        if self.treatment == self.control:
            raise ValueError("treatment and control are the same")
        low, high = self.layer_range
        if not 0.0 <= low < high <= 1.0:
            raise ValueError(f"layer_range must be within 0..1, not {low:g}..{high:g}")
        kinds = [guard.kind for guard in self.guards]
        if len(set(kinds)) != len(kinds):
            raise ValueError("guards: one of each kind")


class Status(StrEnum):
    """Where an experiment stands."""

    DRAFT = "draft"
    RUNNING = "running"
    PAUSED = "paused"
    """Nobody is treated; everybody keeps their side for when it goes on."""
    DONE = "done"
    """The last stage has had all it needs; its share stays treated until somebody stops it."""
    ROLLED_BACK = "rolled_back"


@dataclass(frozen=True, slots=True)
class Standing:
    """Where an experiment stands, and since when.

    Attributes:
        status: See `Status`.
        stage: Index of the stage it is in, or would go on with.
        since: Wall time at which this stage began; None before the start.
        why: What brought it here, in words.
        epoch: Stretches of time with one share so far. Only what is of one of them is compared.
        began: Wall time at which the first of them began.
    """

    status: Status = Status.DRAFT
    stage: int = 0
    since: float | None = None
    why: str = ""
    epoch: int = 0
    began: float | None = None


NO_CONTROL = (
    "no control left: nothing is compared and no guard reads anything; keep a stage below 1.0 or "
    "the holdout to go on measuring"
)
"""What is told where all are treated."""


@dataclass(frozen=True, slots=True)
class Experiment:
    """A plan and where it stands: one versioned document."""

    plan: Plan
    standing: Standing = Standing()

    @property
    def share(self) -> float:
        """Of its units that are treated now."""
        if self.standing.status in (Status.RUNNING, Status.DONE):
            return self.plan.stages[self.standing.stage].share
        return 0.0

    @property
    def compares(self) -> bool:
        """Whether the stage it stands in has a control: one of another time is none."""
        return self.plan.stages[self.standing.stage].share < 1.0

    @property
    def notes(self) -> tuple[str, ...]:
        """What whoever reads its figures has to know."""
        return (NO_CONTROL,) if self.share >= 1.0 else ()

    @property
    def assigns(self) -> bool:
        """Whether requests belong to it now: those of control are counted as long as it runs."""
        return self.standing.status in (Status.RUNNING, Status.DONE)
