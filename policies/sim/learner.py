"""Lets a policy route a world: outcomes become sums, sums become knowledge, again and again.

It does what a proxy does with its store, with the same integers, in one process and in jumps.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Final, Protocol

import numpy as np

from policies.cost import log_cost, typical_tokens
from policies.knowledge import (
    BUCKETS,
    PREFILL_OFFSET,
    Belief,
    Drafting,
    Knowledge,
    Moment,
    Ratios,
    bucket_of,
)
from policies.proposal import draw, masked
from policies.sim.routing import Ask, Choice, Outcome, PoolLoad
from policies.sim.spec import WorldSpec
from policies.types import Arm, ArmId, ArmView, ClassId, FloatArray, Proposal, Status

BLOCK_S: Final = 120.0


class Prepared(Protocol):
    """Answers for one request."""

    def propose(self, moment: Moment) -> Proposal:
        """Probabilities."""


class ContextPolicy(Protocol):
    """Prepares itself for a route."""

    def prepare(self, known: Knowledge, rng: np.random.Generator) -> Prepared:
        """Make ready."""


class Learner:
    """Routes by a policy, which sees what came of it a refresh later."""

    def __init__(
        self,
        spec: WorldSpec,
        policy: ContextPolicy,
        seed: int,
        *,
        tau_priors: Mapping[ClassId, FloatArray] | None = None,
        step_priors: FloatArray | None = None,
        refresh_s: float = 1.0,
        half_life_s: float = 900.0,
    ) -> None:
        self._arms = tuple(
            Arm(ArmId(pool.name), pool.method, pool.k or None, baseline=pool.k == 0)
            for pool in spec.pools
        )
        self._policy = policy
        self._rng = np.random.default_rng((seed, 77))
        self._tau_priors, self._step_priors = tau_priors or {}, step_priors
        self._refresh_s, self._half_life_s = refresh_s, half_life_s
        size = len(self._arms)
        self._blocks: dict[ClassId, dict[int, FloatArray]] = defaultdict(dict)
        self._drafting: dict[ClassId, FloatArray] = defaultdict(lambda: np.zeros((6, size)))
        self._ended: dict[ClassId, FloatArray] = defaultdict(lambda: np.zeros((2, size)))
        self._output: dict[ClassId, FloatArray] = defaultdict(lambda: np.zeros(2))
        self._steps, self._prefill = np.zeros((2, 4, size, BUCKETS))
        self._block = 0
        self._plan: Prepared | None = None
        self._made_s = -np.inf
        self._news = True

    def choose(self, ask: Ask, loads: Sequence[PoolLoad]) -> Choice:
        """Draw by what the policy proposes."""
        if self._plan is None or (self._news and ask.at_s - self._made_s >= self._refresh_s):
            self._plan = self._policy.prepare(self.knowledge(ask.at_s), self._rng)
            self._made_s, self._news = ask.at_s, False
        moment = Moment(
            class_id=ask.class_id,
            part="",
            load=tuple(load.load if load.up else 0 for load in loads),
            prompt_tokens=ask.prompt_tokens,
            cached_tokens=tuple(load.cached_tokens for load in loads),
        )
        proposal = self._plan.propose(moment)
        up = np.array([load.up > 0 for load in loads])
        base = next(i for i, arm in enumerate(self._arms) if arm.baseline)
        p = masked(proposal.probabilities, up, base)
        index = draw(p, float(self._rng.random()))
        return Choice(index, float(p[index]))

    def learn(self, outcome: Outcome) -> None:
        """Add it to the sums."""
        self._news = True
        self._age(int(outcome.ended_s // BLOCK_S))
        trial, a, class_id = outcome.trial, outcome.pool, outcome.ask.class_id
        if trial.status is not Status.OK:
            self._ended[class_id][1, a] += 1.0
            return
        self._ended[class_id][0, a] += 1.0
        tokens = trial.tokens or 0
        self._output[class_id] += (1.0, tokens)
        cost = log_cost(trial, typical_tokens(class_id))
        if cost is not None:
            _, y = cost
            rows = self._blocks[class_id]
            row = rows.get(self._block)
            if row is None:
                row = rows[self._block] = np.zeros((3, len(self._arms)))
            row[:, a] += (1.0, y, y * y)
        steps = trial.spec.steps if trial.spec else tokens
        if not steps or tokens < 16:
            return
        self._drafting[class_id][:, a] += (
            1.0, tokens, steps, tokens * tokens, tokens * steps, steps * steps,
        )  # fmt: skip
        bucket = bucket_of(outcome.load)
        if trial.tpot_s and steps > 8:
            s = trial.tpot_s * (tokens - 1) / (steps - 1)
            self._steps[:, a, bucket] += (1.0, outcome.load, s, s * s)
        if trial.ttft_s:
            r = trial.ttft_s / (outcome.ask.prompt_tokens - outcome.cached_tokens + PREFILL_OFFSET)
            self._prefill[:, a, bucket] += (1.0, outcome.load, r, r * r)

    def _age(self, block: int) -> None:
        if block <= self._block:
            return
        keep = 2.0 ** (-(block - self._block) * BLOCK_S / self._half_life_s)
        for sums in (self._drafting, self._ended, self._output):
            for row in sums.values():
                row *= keep
        self._steps *= keep
        self._prefill *= keep
        self._block = block

    def knowledge(self, at_s: float) -> Knowledge:
        """All that was learned."""
        return Knowledge(
            arms=self._arms,
            beliefs={
                (class_id, ""): self._belief(class_id, at_s)
                for class_id in self._ended
            },
            steps=Ratios(*self._steps.copy()),
            prefill=Ratios(*self._prefill.copy()),
            tau_priors=self._tau_priors,
            step_priors=self._step_priors,
        )

    def _belief(self, class_id: ClassId, at_s: float) -> Belief:
        rows = self._blocks[class_id]
        size = len(self._arms)
        if rows:
            age = at_s - (np.array(list(rows)) + 1.0) * BLOCK_S
            weight = 2.0 ** (-np.maximum(age, 0.0) / self._half_life_s)
            sums = np.stack(list(rows.values())) * weight[:, None, None]
        else:
            sums = np.zeros((0, 3, size))
        served, failed = self._ended[class_id]
        view = ArmView(
            class_id, self._arms, sums[:, 0], sums[:, 1], sums[:, 2], served.copy(), failed.copy()
        )
        n, tokens = self._output[class_id]
        return Belief(
            view, Drafting(*self._drafting[class_id].copy()), float(tokens / n) if n else None
        )
