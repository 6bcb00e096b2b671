"""The contract of every policy as code, for authors outside too. It imports no test tool.

Each check takes a function that builds the policy for some arms, and raises AssertionError with
what was broken. `CHECKS` hold for every policy; `EXPLORING_CHECKS` for those that keep every arm
measured by themselves.

Example:
    >>> from policies.registry import build_policy
    >>> for check in (*CHECKS, *EXPLORING_CHECKS):
    ...     check(lambda arms: build_policy("thompson", {}, arms))
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from policies.types import Arm, ArmId, ArmView, ClassId, Prior

if TYPE_CHECKING:
    from policies.base import Policy
    from policies.types import FloatArray, Proposal

PolicyFor = Callable[[Sequence[Arm]], "Policy"]
Check = Callable[[PolicyFor], None]

_SUM_TOLERANCE = 1e-9
_LEAST_BASELINE = 1e-4
_REPEATS = 32
_PERMUTATION_TOLERANCE = 0.06
_METHODS = ("none", "ngram", "eagle3", "mtp", "draft_model", "dflash", "suffix", "medusa")
_CLASSES = tuple(map(ClassId, ("chat", "code_edit", "creative", "other", "no_such_class")))
_ABSURD = (float("nan"), float("inf"), -float("inf"), -1.0, 1e308, -1e308, 1e-308)
_FIELDS = ("n", "total", "total_sq", "served", "failed")


def example_arms(count: int) -> tuple[Arm, ...]:
    """Build arms of different methods; the first is the baseline.

    Example:
        >>> [arm.method for arm in example_arms(3)]
        ['none', 'ngram', 'eagle3']
    """
    return tuple(
        Arm(ArmId(f"arm-{index}"), method, baseline=index == 0)
        for index, method in enumerate(_METHODS[:count])
    )


def example_view(
    arms: tuple[Arm, ...],
    effects: Sequence[float],
    *,
    n: float = 40.0,
    failed: float = 0.0,
    class_id: ClassId = _CLASSES[0],
) -> ArmView:
    """Build a view in which each arm has exactly this effect on log cost, in two strata.

    Args:
        arms: The arms.
        effects: Effect of each arm on log cost.
        n: Observations of each arm in each stratum.
        failed: Failed requests of the last arm.
        class_id: The class.

    Example:
        >>> example_view(example_arms(2), [0.0, -0.5]).n
        array([[40., 40.],
               [40., 40.]])
    """
    level = np.array([[0.5], [-1.0]]) + np.array(effects)[None, :]
    counts = np.full(level.shape, n)
    broken = np.zeros(len(arms))
    broken[-1] = failed
    sums = (counts, counts * level, counts * (level**2 + 0.09))
    return ArmView(class_id, arms, *sums, counts.sum(axis=0), broken)


def sound_views(arms: tuple[Arm, ...]) -> Iterator[ArmView]:
    """Views that can occur: empty, undecided, decided, partly unobserved, with failures.

    Example:
        >>> len(list(sound_views(example_arms(2))))
        12
    """
    effects = np.linspace(0.0, -0.7, len(arms))
    for class_id in _CLASSES:
        yield ArmView.empty(class_id, arms)
    yield example_view(arms, np.zeros(len(arms)).tolist(), n=2.0)
    yield example_view(arms, effects.tolist())
    yield example_view(arms, (-effects).tolist(), n=5000.0)
    yield example_view(arms, effects.tolist(), failed=500.0)
    seen = example_view(arms, effects.tolist())
    blind = np.ones(len(arms))
    blind[seen.baseline_index] = 0.0
    yield replace(seen, n=seen.n * blind, total=seen.total * blind, total_sq=seen.total_sq * blind)
    prior = example_prior(arms, (-effects).tolist())
    yield replace(ArmView.empty(_CLASSES[0], arms), prior=prior)
    yield replace(seen, prior=prior)


def example_prior(arms: tuple[Arm, ...], mean: Sequence[float]) -> Prior:
    """Build a prior with this mean and sd 0.2, correlated as arms with one baseline are.

    Example:
        >>> example_prior(example_arms(2), [0.0, -0.5]).covariance
        array([[0.  , 0.  ],
               [0.  , 0.04]])
    """
    covariance = 0.02 * (np.eye(len(arms)) + 1.0)
    covariance[0] = covariance[:, 0] = 0.0
    return Prior(np.array(mean), covariance)


def degenerate_views(arms: tuple[Arm, ...]) -> Iterator[ArmView]:
    """Views with a number in them that cannot be true, in each field, for the first and last arm.

    Example:
        >>> len(list(degenerate_views(example_arms(2))))
        98
    """
    sound = example_view(arms, [0.0] * len(arms))
    for name in _FIELDS:
        for column in (0, -1):
            for absurd in _ABSURD:
                values: FloatArray = getattr(sound, name).copy()
                values[..., column] = absurd
                yield _replaced(sound, name, values)
    good = example_prior(arms, [0.0] * len(arms))
    for column in (0, -1):
        for absurd in _ABSURD:
            mean, covariance = good.mean.copy(), good.covariance.copy()
            mean[column], covariance[column, column] = absurd, absurd
            yield replace(sound, prior=replace(good, mean=mean))
            yield replace(sound, prior=replace(good, covariance=covariance))


def check_answers_a_pmf(make: PolicyFor) -> None:
    """Probabilities are a PMF over the view's arms and scores are finite, with 1 to 8 arms."""
    for count in (1, 2, 8):
        arms = example_arms(count)
        policy = make(arms)
        for view in sound_views(arms):
            _require_pmf(policy, view)


def check_survives_degenerate_numbers(make: PolicyFor) -> None:
    """No number in a view, however absurd, makes a policy raise or answer anything but a PMF."""
    for count in (1, 4):
        arms = example_arms(count)
        policy = make(arms)
        for view in degenerate_views(arms):
            _require_pmf(policy, view)


def check_same_seed_same_answer(make: PolicyFor) -> None:
    """The generator is the only source of randomness, and nothing is remembered between calls."""
    arms = example_arms(4)
    policy, other = make(arms), make(arms)
    for view in sound_views(arms):
        first = _propose(policy, view, seed=7)
        for again in (_propose(policy, view, seed=7), _propose(other, view, seed=7)):
            same = np.array_equal(first.probabilities, again.probabilities)
            _require(same, policy, "the same seed gave another answer", view)


def check_leaves_the_view_alone(make: PolicyFor) -> None:
    """The view is shared between policies; a policy never writes into it."""
    arms = example_arms(4)
    policy = make(arms)
    for view in sound_views(arms):
        for name in _FIELDS:
            getattr(view, name).flags.writeable = False
        if view.prior is not None:
            view.prior.mean.flags.writeable = view.prior.covariance.flags.writeable = False
        _propose(policy, view)


def check_order_of_arms_is_irrelevant(make: PolicyFor) -> None:
    """Reordering the arms reorders the probabilities, on average over seeds."""
    arms = example_arms(4)
    order = np.array([2, 0, 3, 1])
    for view in sound_views(arms):
        columns = {name: getattr(view, name)[..., order] for name in _FIELDS}
        prior = view.prior
        if prior is not None:
            prior = Prior(prior.mean[order], prior.covariance[np.ix_(order, order)])
        moved = replace(view, arms=tuple(arms[i] for i in order), prior=prior, **columns)
        policy = make(arms)
        expected = _average(policy, view)[order]
        gap = float(np.abs(_average(make(moved.arms), moved) - expected).max())
        _require(gap <= _PERMUTATION_TOLERANCE, policy, "the order of arms matters", view)


def check_baseline_is_not_starved(make: PolicyFor) -> None:
    """The baseline keeps some probability whatever the data say, so gains stay causal."""
    arms = example_arms(4)
    policy = make(arms)
    for view in sound_views(arms):
        p = _propose(policy, view).probabilities[view.baseline_index]
        _require(p >= _LEAST_BASELINE, policy, "the baseline is starved", view)


CHECKS: tuple[Check, ...] = (
    check_answers_a_pmf,
    check_survives_degenerate_numbers,
    check_same_seed_same_answer,
    check_leaves_the_view_alone,
    check_order_of_arms_is_irrelevant,
)
EXPLORING_CHECKS: tuple[Check, ...] = (check_baseline_is_not_starved,)


def _propose(policy: Policy, view: ArmView, seed: int = 0) -> Proposal:
    return policy.propose(view, np.random.default_rng(seed))


def _average(policy: Policy, view: ArmView) -> FloatArray:
    answers = [_propose(policy, view, seed).probabilities for seed in range(_REPEATS)]
    average: FloatArray = np.mean(answers, axis=0)
    return average


def _require_pmf(policy: Policy, view: ArmView) -> None:
    proposal = _propose(policy, view)
    p, scores, shape = proposal.probabilities, proposal.scores, (len(view.arms),)
    _require(p.shape == shape and scores.shape == shape, policy, "wrong shape", view)
    _require(bool(np.isfinite(p).all()), policy, "a probability is not finite", view)
    _require(bool(np.isfinite(scores).all()), policy, "a score is not finite", view)
    _require(float(p.min()) >= 0.0, policy, "a probability is negative", view)
    gap = abs(float(p.sum()) - 1.0)
    _require(gap <= _SUM_TOLERANCE, policy, "the probabilities do not sum to 1", view)


def _require(condition: bool, policy: Policy, message: str, view: ArmView) -> None:  # noqa: FBT001
    if not condition:
        raise AssertionError(f"{policy.name}: {message}; view: {view}")


def _replaced(view: ArmView, name: str, values: FloatArray) -> ArmView:
    fields: dict[str, FloatArray] = {name: values}
    return replace(view, **fields)  # type: ignore[arg-type]
