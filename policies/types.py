"""Values that estimates and policies exchange; no behaviour beyond small derivations."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, NewType

import numpy as np
from numpy.typing import NDArray

from policies.values import value

ArmId = NewType("ArmId", str)
ClassId = NewType("ClassId", str)

FloatArray = NDArray[np.float64]


class Source(StrEnum):
    """How the acceptance of a request was learned, best first."""

    REQUEST = "request"
    """The engine's own record of this request."""
    STREAM = "stream"
    """Steps counted in the event stream."""
    COUNTERS = "counters"
    """Deltas of the replica's counters, attributed to classes."""


class Status(StrEnum):
    """How a request ended."""

    OK = "ok"
    """The engine finished the answer."""
    REJECTED = "rejected"
    """The engine refused what the client asked (most of 4xx): not the arm's fault."""
    FAILED = "failed"
    """No answer, a 5xx, a 4xx for which the pool is to blame, or a stream that broke: counts
    against the arm."""
    ABORTED = "aborted"
    """The client left: censored, neither fast nor failed."""


OK: Final = Status.OK
"""For the way of each request: looking a member up takes longer than comparing with it."""


@value
class SpecUsage:
    """What an engine told about the speculation of one request; unknown is None, never 0."""

    steps: int | None = None
    """Decode steps, with a draft or without: tokens - accepted."""
    drafted: int | None = None
    accepted: int | None = None
    accepted_per_step: tuple[int, ...] | None = None
    """Histogram over the steps that had a draft: index j holds the steps that accepted j."""
    num_speculative_tokens: int | None = None
    source: Source = Source.REQUEST
    exact_drafted: bool = True
    """Whether `drafted` was counted; else it is steps times a configured length, of which no rate
    is made."""


@value
class Trial:
    """One finished request as the estimates see it. Durations in seconds."""

    class_id: ClassId
    arm_id: ArmId
    status: Status
    streamed: bool
    propensity: float
    """Probability with which the arm was drawn."""
    ttft_s: float | None = None
    tpot_s: float | None = None
    e2e_s: float | None = None
    tokens: int | None = None
    """Completion tokens by the engine's count."""
    spec: SpecUsage | None = None
    load: int | None = None
    """Requests at its server when it came, itself included."""
    waiting: int | None = None
    """Of these, how many the engine said it had not begun."""
    prompt_tokens: int | None = None
    """None also where another server was tried first: TTFT is then no time of one prefill."""
    cached_tokens: int | None = None
    """Of `prompt_tokens`, those that were in the engine's prefix cache."""
    queue_s: float | None = None
    """Wait for a place, before the arm was drawn; in no other duration."""
    overhead_s: float | None = None
    """What the router added."""
    held: bool = False
    """The client held its answer up: censored, so it brings no durations."""
    valid: bool | None = None
    """Whether it has the structure that was demanded; None where none was, or nobody can tell."""
    truncated: bool | None = None
    """Whether such an answer was cut at the limit of length."""
    by_chance: bool = True
    """Whether it might have gone to any arm: nobody chose one, and nothing about it forbade one."""
    compared: bool = True
    """Whether it might have gone to another arm than it did: else its time says nothing of arms."""
    lean: str = ""
    """Where a policy leaned that looks at the moment (`policies.proposal.lean_of`); else empty."""
    abandoned: bool = False
    """It was aborted while somebody waited for it: its client left, or another server overtook it.
    Whoever was turned away by a full arm did not wait."""


@dataclass(frozen=True, slots=True)
class Arm:
    """One pool of a route, as a policy sees it."""

    arm_id: ArmId
    method: str
    num_speculative_tokens: int | None = None
    baseline: bool = False


@dataclass(frozen=True, slots=True)
class Prior:
    """What is expected of the arms' effects on log cost before a view's own data: normal.

    Attributes:
        mean: Shape (arms,), 0 for the baseline.
        covariance: Shape (arms, arms), 0 in the baseline's row and column.
    """

    mean: FloatArray
    covariance: FloatArray


@dataclass(frozen=True, slots=True)
class ArmView:
    """All that is known of one class, or of a part of it: sums by stratum and arm.

    Columns follow `arms`.

    A stratum is a set of requests that can fairly be compared with each other: the same stretch
    of time and the same way of being measured. Only differences inside a stratum say anything
    about arms, so every estimate is against a concurrent control.

    Attributes:
        class_id: The class.
        arms: The route's arms; exactly one is the baseline.
        n: Observations (discounted or not), shape (strata, arms).
        total: Sum of log cost y over them, shape (strata, arms).
        total_sq: Sum of y squared, shape (strata, arms).
        served: Finished requests, shape (arms,).
        failed: Failed requests, shape (arms,).
        prior: What requests outside the view say about it (a segment's class, say); None is
            nothing, and a policy has its own prior then. A policy may ignore it.
    """

    class_id: ClassId
    arms: tuple[Arm, ...]
    n: FloatArray
    total: FloatArray
    total_sq: FloatArray
    served: FloatArray
    failed: FloatArray
    prior: Prior | None = None

    @property
    def baseline_index(self) -> int:
        """Position of the baseline in `arms`."""
        return next(index for index, arm in enumerate(self.arms) if arm.baseline)

    @classmethod
    def empty(cls, class_id: ClassId, arms: tuple[Arm, ...]) -> ArmView:
        """Nothing is known yet."""
        none = np.zeros((0, len(arms)))
        return cls(class_id, arms, none, none, none, np.zeros(len(arms)), np.zeros(len(arms)))


@dataclass(frozen=True, slots=True)
class Proposal:
    """A policy's answer: a probability per arm, and the scores behind it.

    Attributes:
        probabilities: Shape (arms,), non-negative, sums to 1.
        scores: Shape (arms,), the policy's expectation of the arm; lower is better. What it means
            is the policy's own; shown to people, never used again.
    """

    probabilities: FloatArray
    scores: FloatArray


Counts = Mapping[str, int]
"""Integer sums by field name; the form in which everything learned is stored and merged."""
