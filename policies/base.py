"""The interface of a policy. It must not grow an `update`: what a policy knows is the view."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, runtime_checkable

if TYPE_CHECKING:
    import numpy as np

    from policies.knowledge import Knowledge, Moment
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


class Prepared(Protocol):
    """Answers for one request; what `ContextPolicy.prepare` returns.

    It touches no generator: all randomness was drawn when it was prepared, so the same moment gets
    the same answer, in tens of microseconds.
    """

    def propose(self, moment: Moment) -> Proposal:
        """Answer a probability per arm, in the order of the arms that it was prepared for.

        Args:
            moment: The request. An arm whose load is 0 has no server and gets probability 0, unless
                none has one.

        Returns:
            Probabilities (non-negative, sum 1 within 1e-9) and finite scores (lower is better).
        """
        ...


@runtime_checkable
class ContextPolicy(Protocol):
    """Chooses by what is known of the whole route, and of the moment.

    What a `Policy` may and may not do holds for it too; see docs/decisions/0010.
    """

    @property
    def name(self) -> str:
        """Name under which the policy is registered and logged."""
        ...

    def prepare(self, known: Knowledge, rng: np.random.Generator) -> Prepared:
        """Make ready for the requests until the next snapshot.

        Args:
            known: All that is known of the route. A policy never writes into it.
            rng: The only source of randomness; the same seed gives the same answers.
        """
        ...
