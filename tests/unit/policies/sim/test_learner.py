"""A learner draws by what its policy proposes, and learns what a proxy would."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from policies.knowledge import Knowledge, Moment
from policies.registry import POLICY_NAMES, build_context_policy
from policies.sim.learner import Learner, arms_of
from policies.sim.world import run
from policies.types import Proposal
from router.simulate.load import load_world

WORLD = load_world("rtx5090")
SHORT = replace(WORLD, traffic=replace(WORLD.traffic, requests=150))


class Told:
    """A policy that always says the same and keeps what it was shown."""

    name = "told"

    def __init__(self, probabilities: Sequence[float]) -> None:
        self.probabilities = np.array(probabilities)
        self.served: list[float] = []
        self.moments: list[Moment] = []

    def prepare(self, known: Knowledge, rng: np.random.Generator) -> Told:
        """Keep how much is known."""
        whole = [belief for (_, part), belief in known.beliefs.items() if not part]
        self.served.append(sum(float(belief.view.served.sum()) for belief in whole))
        return self

    def propose(self, moment: Moment) -> Proposal:
        """Keep the moment."""
        self.moments.append(moment)
        return Proposal(self.probabilities, np.zeros(3))


def test_it_draws_what_is_proposed_and_tells_its_probability() -> None:
    """Shares are those proposed, and each choice carries the probability that it was drawn with."""
    got = run(SHORT, Learner(SHORT, Told([0.2, 0.8, 0.0]), 0), 0)
    shares = np.bincount(got.pool.astype(int), minlength=3) / len(got.pool)
    assert shares[2] == 0.0
    assert abs(shares[1] - 0.8) < 0.1
    assert set(got.probability.tolist()) == {0.2, 0.8}


def test_what_it_knows_grows_with_what_ended() -> None:
    """The first look knows nothing, the last nearly all, and looks are a second apart."""
    policy = Told([0.4, 0.3, 0.3])
    run(SHORT, Learner(SHORT, policy, 0), 0)
    assert policy.served[0] == 0.0
    assert policy.served[-1] > 100.0
    assert len(policy.served) < 60


def test_a_holdout_goes_to_the_baseline_and_is_counted() -> None:
    """Held-out requests are known by number and were not the policy's to choose."""
    learner = Learner(SHORT, Told([0.0, 1.0, 0.0]), 0, holdout=0.2)
    got = run(SHORT, learner, 0)
    assert 15 <= len(learner.held_out) <= 45
    assert set(np.flatnonzero(got.pool == 0).tolist()) == learner.held_out


@pytest.mark.parametrize("name", POLICY_NAMES)
def test_every_policy_runs_in_a_world(name: str) -> None:
    """Policies of views and of moments alike; the same seed gives the same run."""
    parameters: dict[str, object] = {"arm": "mtp"} if name == "fixed" else {}
    policy = build_context_policy(name, parameters, arms_of(SHORT))
    one, two = (run(SHORT, Learner(SHORT, policy, 5), 5) for _ in range(2))
    assert np.array_equal(one.e2e_s, two.e2e_s)
    assert np.isfinite(one.e2e_s).all()
