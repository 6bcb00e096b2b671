"""What is published of methods, as weak priors. It says nothing about the operator's own pools."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from policies.sim.curves import equal_alpha, tau_of
from policies.types import ClassId

ANY_CLASS = ClassId("*")


@dataclass(frozen=True, slots=True)
class MethodPrior:
    """What to expect of a method before anything was measured.

    Attributes:
        k: Draft length that `tau` and `step` are given for.
        tau: Tokens per step by class; `*` for the rest.
        tau_sd: Sd of log (tau - 1) from one model, drafter and server to another.
        step: A step over a plain one, one request at a time.
        step_per_token: What a drafted token more or less adds to that.
        step_sd: Sd of its logarithm.
        source: Where the numbers are from.
    """

    k: int
    tau: Mapping[ClassId, float] = field(default_factory=dict)
    tau_sd: float = 0.5
    step: float = 1.0
    step_per_token: float = 0.0
    step_sd: float = 0.3
    source: str = ""

    def tau_at(self, class_id: ClassId, k: int | None = None) -> float:
        """Tokens per step of a class, drafting k; 1 for a method that drafts nothing.

        Example:
            >>> prior = MethodPrior(3, {ANY_CLASS: 2.4})
            >>> round(prior.tau_at(ClassId("chat")), 2), round(prior.tau_at(ClassId("chat"), 5), 2)
            (2.4, 2.72)
        """
        tau = self.tau.get(class_id, self.tau.get(ANY_CLASS, 1.0))
        if k is None or k == self.k or tau <= 1.0:
            return tau
        return tau_of(equal_alpha(min(tau, 0.99 * (self.k + 1)), self.k), k)

    def step_at(self, k: int | None = None) -> float:
        """A step over a plain one, drafting k.

        Example:
            >>> MethodPrior(3, step=1.3, step_per_token=0.1).step_at(5)
            1.5
        """
        extra = 0 if k is None else k - self.k
        return max(self.step + self.step_per_token * extra, 1.0)
