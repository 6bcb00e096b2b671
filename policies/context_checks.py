"""The contract of policies of moments as code, for authors outside too. It imports no test tool.

Each check takes a function that builds the policy for some arms, and raises AssertionError with
what was broken; `policies.checks` has those of policies of views.

Example:
    >>> from policies.registry import build_context_policy
    >>> for check in CONTEXT_CHECKS:
    ...     check(lambda arms: build_context_policy("linear", {}, arms))
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields, replace
from typing import Final

import numpy as np

from policies.base import ContextPolicy
from policies.checks import example_arms, example_view
from policies.estimators.load import BANDS
from policies.knowledge import BUCKETS, Belief, Drafting, Knowledge, Moment, Ratios
from policies.types import Arm, ArmView, ClassId, FloatArray, Proposal

ContextPolicyFor = Callable[[Sequence[Arm]], ContextPolicy]
ContextCheck = Callable[[ContextPolicyFor], None]

_CLASS: Final = ClassId("chat")
_TOLERANCE: Final = 1e-9
_LEAST_BASELINE: Final = 1e-4
_REPEATS: Final = 24
_PERMUTATION_TOLERANCE: Final = 0.08
_ABSURD: Final = (float("nan"), float("inf"), -float("inf"), 0.0, -1.0, 1e308, 1e-308)
_ORDER: Final = (2, 0, 3, 1)


def example_knowledge(
    arms: tuple[Arm, ...], effects: Sequence[float], n: float = 40.0
) -> Knowledge:
    """Build knowledge in which arms differ by these effects on log cost, by their drafts alone.

    Example:
        >>> known = example_knowledge(example_arms(2), [0.0, -0.5])
        >>> known.beliefs[ClassId("chat"), ""].drafting.tokens.round()
        array([4000., 4000.])
    """
    size = len(arms)
    tau = np.exp(-np.array(effects))
    tau = np.maximum(tau / tau[0], 1.0)
    tokens, steps = np.full(size, 100.0), 100.0 / tau
    drafting = Drafting(
        *(n * row for row in (np.ones(size), tokens, steps, tokens**2, tokens * steps, steps**2))
    )
    view = example_view(arms, effects, n=n)
    belief = Belief(view, drafting, output_tokens=200.0)
    loads = np.arange(1.0, BUCKETS + 1.0)
    slower = 0.01 * (1.0 + 0.02 * loads) * (np.exp(np.array(effects)) * tau)[:, None]
    steps_of = _ratios(n, loads, slower)
    prefill = _ratios(n, loads, np.full((size, BUCKETS), 0.02))
    costs = np.zeros((3, size, BANDS))
    costs[0] = n
    costs[1] = n * np.array(effects)[:, None]
    costs[2] = n * (np.array(effects)[:, None] ** 2 + 0.09)
    return Knowledge(
        arms=arms,
        beliefs={(_CLASS, ""): belief, (_CLASS, "app"): belief},
        steps=steps_of,
        prefill=prefill,
        prompt_s=1e-4,
        usual_s=0.1,
        costs={_CLASS: costs},
        tau_priors={_CLASS: np.where(np.arange(size) > 0, 2.0, np.nan)},
        step_priors=np.full(size, 1.2),
    )


def _ratios(n: float, loads: FloatArray, values: FloatArray) -> Ratios:
    counts = np.full(values.shape, n)
    return Ratios(counts, counts * loads, counts * values, counts * values**2 * 1.04)


def example_moment(arms: Sequence[Arm], class_id: ClassId = _CLASS, *, part: str = "") -> Moment:
    """A request on a calm fleet.

    Example:
        >>> example_moment(example_arms(2)).load
        (2, 2)
    """
    size = len(arms)
    return Moment(class_id, part, (2,) * size, 200, (0,) * size)


def sound_knowledge(arms: tuple[Arm, ...]) -> Iterator[Knowledge]:
    """Knowledge that can occur: nothing, little, much, one arm held back.

    Example:
        >>> len(list(sound_knowledge(example_arms(3))))
        6
    """
    size = len(arms)
    known = example_knowledge(arms, np.linspace(0.0, -0.6, size).tolist())
    nothing = Ratios.none(size)
    yield Knowledge(arms=arms, beliefs={}, steps=nothing, prefill=nothing)
    yield replace(known, beliefs={}, costs={}, steps=nothing, prefill=nothing)
    view = ArmView.empty(_CLASS, arms)
    yield replace(known, beliefs={(_CLASS, ""): Belief(view, Drafting.none(size))})
    yield known
    yield example_knowledge(arms, np.linspace(0.0, 0.6, size).tolist(), n=4000.0)
    held = replace(known.beliefs[_CLASS, ""], held_back={size - 1: "failures"} if size > 1 else {})
    yield replace(known, beliefs={(_CLASS, ""): held})


def moments(arms: Sequence[Arm]) -> Iterator[Moment]:
    """Moments that can occur.

    Example:
        >>> len(list(moments(example_arms(2))))
        9
    """
    size = len(arms)
    calm = example_moment(arms)
    yield calm
    yield replace(calm, class_id=ClassId("no_such_class"))
    yield replace(calm, part="app")
    yield replace(calm, part="de/no-such-app")
    yield replace(calm, load=(400,) * size, prompt_tokens=120_000)
    yield replace(calm, cached_tokens=(0,) * (size - 1) + (200,), output_tokens=1)
    yield replace(calm, ahead_tokens=(900,) * size, waited_s=(2.5,) * size)
    yield replace(calm, load=(*(0,) * (size - 1), 5))
    yield replace(calm, load=(0,) * size)


def degenerate_knowledge(arms: tuple[Arm, ...]) -> Iterator[Knowledge]:
    """Knowledge with a number in it that cannot be true, for the first and the last arm."""
    known = example_knowledge(arms, [0.0] * len(arms))
    whole = known.beliefs[_CLASS, ""]
    for absurd in _ABSURD:
        for column in (0, -1):
            for name in ("steps", "prefill"):
                ratios: Ratios = getattr(known, name)
                for item in fields(Ratios):
                    values = getattr(ratios, item.name).copy()
                    values[column] = absurd
                    broken = {name: replace(ratios, **{item.name: values})}
                    yield replace(known, **broken)  # type: ignore[arg-type]
            for item in fields(Drafting):
                values = getattr(whole.drafting, item.name).copy()
                values[column] = absurd
                drafting = replace(whole.drafting, **{item.name: values})
                belief = replace(whole, drafting=drafting)
                yield replace(known, beliefs={(_CLASS, ""): belief, (_CLASS, "app"): belief})
            for item_name in ("n", "total", "total_sq", "served", "failed"):
                values = getattr(whole.view, item_name).copy()
                values[..., column] = absurd
                view = replace(whole.view, **{item_name: values})
                yield replace(known, beliefs={(_CLASS, ""): replace(whole, view=view)})
            costs = known.costs[_CLASS].copy()
            costs[:, column] = absurd
            tau, steps = known.tau_priors[_CLASS].copy(), np.full(len(arms), 1.2)
            tau[column] = steps[column] = absurd
            yield replace(known, costs={_CLASS: costs}, tau_priors={_CLASS: tau}, step_priors=steps)
        odd = replace(whole, output_tokens=absurd, settled=absurd)
        yield replace(known, beliefs={(_CLASS, ""): odd}, prompt_s=absurd, usual_s=absurd)


def check_answers_a_pmf_for_every_moment(make: ContextPolicyFor) -> None:
    """Probabilities are a PMF and scores are finite, whatever is known and asked; 1 to 8 arms."""
    for count in (1, 2, 8):
        arms = example_arms(count)
        for known in sound_knowledge(arms):
            plan = make(arms).prepare(known, np.random.default_rng(0))
            for moment in moments(arms):
                _require_pmf(plan.propose(moment), moment)


def check_survives_degenerate_knowledge(make: ContextPolicyFor) -> None:
    """No number that is known, however absurd, makes a policy raise or answer no PMF."""
    for count in (1, 3):
        arms = example_arms(count)
        policy = make(arms)
        for known in degenerate_knowledge(arms):
            plan = policy.prepare(known, np.random.default_rng(0))
            for moment in (example_moment(arms), example_moment(arms, part="app")):
                _require_pmf(plan.propose(moment), moment)
        plan = policy.prepare(example_knowledge(arms, [0.0] * count), np.random.default_rng(0))
        for absurd in _ABSURD:
            moment = replace(example_moment(arms), waited_s=(absurd,) * count)
            _require_pmf(plan.propose(moment), moment)


def check_same_moment_same_answer(make: ContextPolicyFor) -> None:
    """A plan draws nothing when it is asked, and plans of one seed answer alike in any order."""
    arms = example_arms(4)
    for known in sound_knowledge(arms):
        first = make(arms).prepare(known, np.random.default_rng(7))
        other = make(arms).prepare(known, np.random.default_rng(7))
        asked = list(moments(arms))
        answers = [first.propose(moment).probabilities for moment in asked]
        again = [first.propose(moment).probabilities for moment in asked]
        reverse = [other.propose(moment).probabilities for moment in reversed(asked)][::-1]
        for one, two, three in zip(answers, again, reverse, strict=True):
            same = np.array_equal(one, two) and np.array_equal(one, three)
            _require("the same moment got another answer", same)


def check_arms_without_a_server_get_nothing(make: ContextPolicyFor) -> None:
    """An arm whose load is 0 has probability 0, as long as another has a server."""
    arms = example_arms(4)
    for known in sound_knowledge(arms):
        plan = make(arms).prepare(known, np.random.default_rng(0))
        for gone in range(4):
            load = tuple(0 if a == gone else 3 for a in range(4))
            p = plan.propose(replace(example_moment(arms), load=load)).probabilities
            if p[np.arange(4) != gone].sum() > 0.0:
                _require("an arm without a server was chosen", p[gone] == 0.0)


def check_order_of_the_arms_is_irrelevant(make: ContextPolicyFor) -> None:
    """Reordering the arms reorders the probabilities, on average over seeds."""
    arms = example_arms(4)
    moved = tuple(arms[i] for i in _ORDER)
    effects = np.array([0.0, -0.1, -0.4, -0.3])
    known = example_knowledge(arms, effects.tolist(), n=6.0)
    there = _average(make(arms), known)[list(_ORDER)]
    here = _average(make(moved), _moved(known, moved))
    gap = float(np.abs(there - here).max())
    _require(f"the order of arms matters: {gap:.3f}", gap <= _PERMUTATION_TOLERANCE)


def check_the_baseline_is_kept_measured(make: ContextPolicyFor) -> None:
    """The baseline keeps some probability whatever is known, so gains stay causal."""
    arms = example_arms(4)
    for known in sound_knowledge(arms):
        plan = make(arms).prepare(known, np.random.default_rng(0))
        p = plan.propose(example_moment(arms)).probabilities[known.baseline]
        _require("the baseline is starved", p >= _LEAST_BASELINE)


CONTEXT_CHECKS: tuple[ContextCheck, ...] = (
    check_answers_a_pmf_for_every_moment,
    check_survives_degenerate_knowledge,
    check_same_moment_same_answer,
    check_arms_without_a_server_get_nothing,
    check_order_of_the_arms_is_irrelevant,
)
EXPLORING_CONTEXT_CHECKS: tuple[ContextCheck, ...] = (check_the_baseline_is_kept_measured,)


def _moved(known: Knowledge, arms: tuple[Arm, ...]) -> Knowledge:
    order = list(_ORDER)
    whole = known.beliefs[_CLASS, ""]
    view = replace(
        whole.view,
        arms=arms,
        **{
            name: getattr(whole.view, name)[..., order]
            for name in ("n", "total", "total_sq", "served", "failed")
        },
    )
    drafting = Drafting(*(getattr(whole.drafting, item.name)[order] for item in fields(Drafting)))
    steps, prefill = (
        Ratios(*(getattr(ratios, item.name)[order] for item in fields(Ratios)))
        for ratios in (known.steps, known.prefill)
    )
    belief = replace(whole, view=view, drafting=drafting)
    return replace(
        known,
        arms=arms,
        beliefs={(_CLASS, ""): belief},
        steps=steps,
        prefill=prefill,
        costs={_CLASS: known.costs[_CLASS][:, order]},
        tau_priors={_CLASS: known.tau_priors[_CLASS][order]},
    )


def _average(policy: ContextPolicy, known: Knowledge) -> FloatArray:
    asked = example_moment(known.arms)
    answers = [
        policy.prepare(known, np.random.default_rng(seed)).propose(asked).probabilities
        for seed in range(_REPEATS)
    ]
    average: FloatArray = np.mean(answers, axis=0)
    return average


def _require_pmf(proposal: Proposal, moment: Moment) -> None:
    p, scores, shape = proposal.probabilities, proposal.scores, (len(moment.load),)
    _require("wrong shape", p.shape == shape and scores.shape == shape)
    _require(f"a probability is not finite: {p}", bool(np.isfinite(p).all()))
    _require(f"a score is not finite: {scores}", bool(np.isfinite(scores).all()))
    _require(f"a probability is negative: {p}", float(p.min()) >= 0.0)
    _require(f"the probabilities do not sum to 1: {p}", abs(float(p.sum()) - 1.0) <= _TOLERANCE)


def _require(message: str, condition: bool) -> None:  # noqa: FBT001
    if not condition:
        raise AssertionError(message)
