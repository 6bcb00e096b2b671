"""The interface of a policy. It must not grow an `update`: what a policy knows is the view."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import numpy as np

    from policies.types import ArmView, Proposal


class Policy(Protocol):
    """Chooses a probability per arm from all that is known of a class.

    A policy may:

    * read the view, and nothing else about the world;
    * use `rng` for randomness, and no other source;
    * keep parameters that were fixed when it was built.

    A policy may not:

    * learn: there is no `update`. The view is the fold of everything that was stored, so a restart
      loses nothing, two processes agree, and last week can be replayed;
    * draw the arm: it answers with probabilities, the caller draws once with the PMF it logs, so
      propensities are exact;
    * decide eligibility, health or tenants' wishes: those are masks applied afterwards
      (`policies.proposal.masked`);
    * raise or answer NaN because numbers in the view are degenerate.

    `policies.checks` holds the contract as code.
    """

    @property
    def name(self) -> str:
        """Name under which the policy is registered and logged."""
        ...

    def propose(self, view: ArmView, rng: np.random.Generator) -> Proposal:
        """Answer a probability per arm of `view.arms`, in that order.

        Args:
            view: Sums of one class.
            rng: The only source of randomness; the same seed gives the same proposal.

        Returns:
            Probabilities (non-negative, sum 1 within 1e-9) and finite scores (lower is better).
        """
        ...
