"""What is known of a route, as arrays, and what is known of a moment. Values only.

Sums are discounted by the age of their slots before they come here; whoever fills a `Knowledge`
uses the same stored integers, whether that is a proxy or a simulated world.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from policies.types import Arm, ArmView, ClassId, FloatArray
from policies.values import value

BUCKETS: Final = 11
"""Stretches of load (`policies.estimators.step_time.KNOTS`), at most; each may lie anywhere."""


@dataclass(frozen=True, slots=True)
class Ratios:
    """Sums of a quantity that is judged by load: requests, their loads, the quantity, its square.

    Attributes:
        n: Requests, shape (arms, buckets).
        load: Sum of their loads.
        total: Sum of the quantity.
        total_sq: Sum of its squares.
    """

    n: FloatArray
    load: FloatArray
    total: FloatArray
    total_sq: FloatArray

    @classmethod
    def none(cls, arms: int) -> Ratios:
        """Nothing is known yet."""
        return cls(*np.zeros((4, arms, BUCKETS)))


@dataclass(frozen=True, slots=True)
class Drafting:
    """Sums over requests that reported tokens and steps, for one class; each of shape (arms,)."""

    n: FloatArray
    tokens: FloatArray
    steps: FloatArray
    tt: FloatArray
    """Tokens squared."""
    ts: FloatArray
    """Tokens times steps."""
    ss: FloatArray
    """Steps squared."""

    @classmethod
    def none(cls, arms: int) -> Drafting:
        """Nothing is known yet."""
        return cls(*np.zeros((6, arms)))


@dataclass(frozen=True, slots=True)
class Belief:
    """One class, or a part of it.

    Attributes:
        view: Log costs by stratum, and how requests ended.
        drafting: Tokens and steps.
        output_tokens: Mean tokens of an answer; None where nobody told.
        held_back: Arms that have been found to do harm, with the reason.
    """

    view: ArmView
    drafting: Drafting
    output_tokens: float | None = None
    held_back: Mapping[int, str] = field(default_factory=dict)
    settled: float | None = None
    """Requests since drafting last changed on any of the arms; None: as many as the view holds."""


@dataclass(frozen=True, slots=True)
class Knowledge:
    """All that is known of a route.

    Attributes:
        arms: Its arms, exactly one the baseline.
        beliefs: By class and part; the part "" is the whole class, or the rest of it. A part's
            name may have levels, `de/app-3`: what is known of `de` is where it starts from.
        steps: Time of a decode step in seconds, by arm and load.
        prefill: Seconds before the first token besides those of the request's own prompt, by arm
            and load.
        prompt_s: Seconds that a token of a prompt takes; None where that cannot be told.
        usual_s: TTFT that a second of waiting belongs to on average, short prompts counting most:
            mean square over mean by arm and load, of which it is the median over requests. None
            where unknown.
        costs: Number, sum and sum of squares of log costs by class and load band, shape
            (3, arms, bands).
        tau_priors: Expected tokens per step of a class, shape (arms,); NaN where unknown.
        step_priors: Expected step time over the baseline's, shape (arms,); NaN where unknown.
    """

    arms: tuple[Arm, ...]
    beliefs: Mapping[tuple[ClassId, str], Belief]
    steps: Ratios
    prefill: Ratios
    prompt_s: float | None = None
    usual_s: float | None = None
    costs: Mapping[ClassId, FloatArray] = field(default_factory=dict)
    tau_priors: Mapping[ClassId, FloatArray] = field(default_factory=dict)
    step_priors: FloatArray | None = None

    @property
    def baseline(self) -> int:
        """Index of the baseline."""
        return next(index for index, arm in enumerate(self.arms) if arm.baseline)

    def belief(self, class_id: ClassId, part: str) -> tuple[str, Belief | None]:
        """The finest part something is known of, at or above the one asked for."""
        while part and (class_id, part) not in self.beliefs:
            part = parent(part)
        return part, self.beliefs.get((class_id, part))


def parent(part: str) -> str:
    """What a part is a part of; "" is the whole class.

    Example:
        >>> parent("de/app-3"), parent("app-3")
        ('de', '')
    """
    return part.rpartition("/")[0]


@value
class Moment:
    """What is known when an arm is chosen for a request.

    Tuples follow the arms of the `Knowledge`.
    """

    class_id: ClassId
    part: str
    load: tuple[int, ...]
    """Requests at the server that would take it, this one included; 0 where there is none."""
    prompt_tokens: int
    cached_tokens: tuple[int, ...]
    """Of the prompt, in the prefix cache of that server."""
    output_tokens: int | None = None
    """Most tokens that the client wants; None for no limit."""
    ahead_tokens: tuple[int, ...] = ()
    """Of prompts that are at that server and have no answer yet; empty where that is not known."""
    waited_s: tuple[float, ...] = ()
    """How long the first of these has waited whom nobody has overtaken; empty where not known."""
