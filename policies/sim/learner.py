"""Lets a policy route a world: outcomes become sums, sums become knowledge, again and again.

It does what a proxy does with its store, with the same integers, in one process.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from policies.base import ContextPolicy, Prepared
from policies.estimators.knowledge import Expectations
from policies.knowledge import Moment
from policies.proposal import draw, masked
from policies.sim.acceptance import language_of
from policies.sim.memory import Memory
from policies.sim.routing import Ask, Choice, Outcome, PoolLoad
from policies.sim.spec import WorldSpec
from policies.types import Arm, ArmId

REFRESH_S: Final = 1.0
"""Least time between two looks at the sums, as in a proxy."""

HALF_LIFE_S: Final = 3600.0
"""Age at which an observation counts half. Long, since abrupt changes are found and what was before
them forgotten at once; with a quarter of it an arm that loses is tried again and again where
requests are rare (docs/policies.md)."""

GREEDY: Final = "greedy"
"""Requests at temperature 0, of whose drafts more is accepted; a proxy tells them apart as well."""

_NEWS: Final = (500, 16)
"""With so many answers behind, so many more are waited for before all is prepared anew: a saving of
the simulation in worlds where requests are rare."""


class Learner:
    """Routes by a policy, which sees what came of it a refresh later."""

    def __init__(
        self,
        spec: WorldSpec,
        policy: ContextPolicy,
        seed: int,
        *,
        expected: Expectations | None = None,
        half_life_s: float = HALF_LIFE_S,
        holdout: float = 0.0,
        arms: tuple[Arm, ...] | None = None,
    ) -> None:
        """Args: `arms` are those of the world, unless its pools are called something else."""
        self.held_out: set[int] = set()
        """Numbers of the requests that went to the baseline whatever the policy would have said."""
        self._arms = arms_of(spec) if arms is None else arms
        self._base = next(index for index, arm in enumerate(self._arms) if arm.baseline)
        self._policy = policy
        self._rng = np.random.default_rng((seed, 77))
        self._memory = Memory(self._arms, half_life_s, expected)
        self._plan: Prepared | None = None
        self._made_s = -np.inf
        self._learned = self._news = 0
        self._holdout = holdout
        self._coins = np.random.default_rng((seed, 78))

    def choose(self, ask: Ask, loads: Sequence[PoolLoad]) -> Choice:
        """Draw by what the policy proposes."""
        if loads[self._base].up and float(self._coins.random()) < self._holdout:
            self.held_out.add(ask.index)
            return Choice(self._base)
        proposal = self._prepared(ask.at_s).propose(moment_of(ask, loads))
        up = np.array([load.up > 0 for load in loads])
        p = masked(proposal.probabilities, up, self._base)
        index = draw(p, float(self._rng.random()))
        return Choice(index, float(p[index]))

    def _prepared(self, at_s: float) -> Prepared:
        enough = self._news >= (_NEWS[1] if self._learned >= _NEWS[0] else 1)
        if self._plan is None or (enough and at_s - self._made_s >= REFRESH_S):
            self._plan = self._policy.prepare(self._memory.knowledge(at_s), self._rng)
            self._made_s, self._news = at_s, 0
        return self._plan

    def learn(self, outcome: Outcome) -> None:
        """Add it to the sums."""
        self._memory.learn(outcome, part_of(outcome.ask))
        self._learned += 1
        self._news += 1


def arms_of(spec: WorldSpec) -> tuple[Arm, ...]:
    """The arms of a world; the pool that decodes plainly is the baseline."""
    return tuple(
        Arm(ArmId(pool.name), pool.method, pool.k or None, baseline=pool.k == 0)
        for pool in spec.pools
    )


def part_of(ask: Ask) -> str:
    """The application within its language, within how the answer is sampled.

    That is the finest thing a proxy tells apart.

    Example:
        >>> from policies.types import ClassId
        >>> ask = Ask(0, 0.0, ClassId("chat"), 10, "chat-3@fr", True, 0, 0, None)
        >>> part_of(ask)
        'greedy/fr/chat-3'
    """
    language = language_of(ask.template)
    application = ask.template.partition("@")[0]
    levels = (GREEDY if ask.greedy else "", language, application)
    return "/".join(level for level in levels if level)


def moment_of(ask: Ask, loads: Sequence[PoolLoad]) -> Moment:
    """What is known when a request comes."""
    return Moment(
        class_id=ask.class_id,
        part=part_of(ask),
        load=tuple(load.load if load.up else 0 for load in loads),
        prompt_tokens=ask.prompt_tokens,
        cached_tokens=tuple(load.cached_tokens for load in loads),
        ahead_tokens=tuple(load.ahead_tokens for load in loads),
        waited_s=tuple(load.waited_s for load in loads),
    )
