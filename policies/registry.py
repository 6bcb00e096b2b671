"""Names of policies and how each is built. It reads no file and loads no package by itself."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, TypeVar

from policies.base import ContextPolicy, Policy
from policies.budgets import NetGainParameters
from policies.epsilon_greedy import EpsilonGreedyParameters, build_epsilon_greedy
from policies.exp3 import Exp3Parameters, build_exp3
from policies.fixed import FixedParameters, build_fixed
from policies.linear import LinearParameters, build_linear
from policies.net_gain import build_net_gain
from policies.of_views import OfViews
from policies.parameters import decode, suggestion
from policies.rules import RulesParameters, build_rules
from policies.thompson import ThompsonParameters, build_thompson
from policies.types import Arm, ClassId
from policies.ucb import UcbParameters, build_ucb

P = TypeVar("P")
Factory = Callable[[P, Sequence[Arm], Collection[ClassId] | None], Policy]
ContextFactory = Callable[[P, Sequence[Arm], Collection[ClassId] | None], ContextPolicy]


class Stability(StrEnum):
    """How much an operator may rely on a policy's name, parameters and behaviour."""

    STABLE = "stable"
    BETA = "beta"
    EXPERIMENTAL = "experimental"


@dataclass(frozen=True, slots=True)
class Entry:
    """One registered policy.

    Attributes:
        factory: Takes the decoded parameters, the arms and the classes (None: any).
        parameters: Dataclass of the parameters, fields declared with `policies.parameters`.
        stability: What users may rely on.
        explores: Whether the policy itself keeps every arm, the baseline too, measured. Where it
            is False, only a holdout outside the policy yields a comparison.
    """

    factory: Factory[Any]
    parameters: type[Any]
    stability: Stability
    explores: bool


REGISTRY: Mapping[str, Entry] = {
    "fixed": Entry(build_fixed, FixedParameters, Stability.STABLE, explores=False),
    "rules": Entry(build_rules, RulesParameters, Stability.STABLE, explores=False),
    "epsilon_greedy": Entry(
        build_epsilon_greedy, EpsilonGreedyParameters, Stability.BETA, explores=True
    ),
    "exp3": Entry(build_exp3, Exp3Parameters, Stability.BETA, explores=True),
    "ucb": Entry(build_ucb, UcbParameters, Stability.BETA, explores=True),
    "thompson": Entry(build_thompson, ThompsonParameters, Stability.BETA, explores=True),
}
"""The built-in policies by name."""


@dataclass(frozen=True, slots=True)
class ContextEntry:
    """One registered policy of moments; attributes as in `Entry`."""

    factory: ContextFactory[Any]
    parameters: type[Any]
    stability: Stability
    explores: bool


CONTEXT_REGISTRY: Mapping[str, ContextEntry] = {
    "linear": ContextEntry(build_linear, LinearParameters, Stability.BETA, explores=True),
    "net_gain": ContextEntry(build_net_gain, NetGainParameters, Stability.BETA, explores=True),
}
"""Policies that are prepared for a route and asked about a moment, by name."""

POLICY_NAMES = (*REGISTRY, *CONTEXT_REGISTRY)
"""All names that `build_context_policy` knows."""


def build_context_policy(
    name: str,
    parameters: Mapping[str, object],
    arms: Sequence[Arm],
    classes: Collection[ClassId] | None = None,
) -> ContextPolicy:
    """Build any policy as one of moments; those of views answer by class, whatever the moment.

    Raises:
        ValueError: As `build_policy` does.

    Example:
        >>> from policies.types import ArmId
        >>> arms = [Arm(ArmId("plain"), "none", baseline=True), Arm(ArmId("fast"), "mtp")]
        >>> [build_context_policy(name, {}, arms).name for name in ("net_gain", "ucb")]
        ['net_gain', 'ucb']
    """
    entry = CONTEXT_REGISTRY.get(name)
    if entry is None:
        if name not in REGISTRY:
            raise ValueError(f"there is no policy {name!r}; {suggestion(name, POLICY_NAMES)}")
        return OfViews(build_policy(name, parameters, arms, classes))
    if sum(arm.baseline for arm in arms) != 1:
        raise ValueError(f"policy {name!r}: exactly one arm must be the baseline")
    return entry.factory(decode(entry.parameters, parameters, name), arms, classes)


def build_any_policy(
    name: str,
    parameters: Mapping[str, object],
    arms: Sequence[Arm],
    classes: Collection[ClassId] | None = None,
) -> Policy | ContextPolicy:
    """Build a policy of whichever kind has the name.

    Raises:
        ValueError: As `build_policy` does.

    Example:
        >>> from policies.types import ArmId
        >>> arms = [Arm(ArmId("plain"), "none", baseline=True), Arm(ArmId("fast"), "mtp")]
        >>> [type(build_any_policy(name, {}, arms)).__name__ for name in ("net_gain", "ucb")]
        ['NetGainPolicy', 'UcbPolicy']
    """
    build = build_policy if name in REGISTRY else build_context_policy
    return build(name, parameters, arms, classes)


def build_policy(
    name: str,
    parameters: Mapping[str, object],
    arms: Sequence[Arm],
    classes: Collection[ClassId] | None = None,
    *,
    registry: Mapping[str, Entry] = REGISTRY,
) -> Policy:
    """Build a policy by name; everything given is checked, nothing unknown passes.

    Args:
        name: A name in the registry.
        parameters: Plain values by name; a missing one takes its default.
        arms: The route's arms, exactly one of them the baseline.
        classes: The classes that exist; None accepts any class name.
        registry: Where names are looked up; pass a larger one to add policies from outside.

    Raises:
        ValueError: With the name at fault, what is allowed, and what was probably meant.

    Example:
        >>> from policies.types import ArmId
        >>> arms = [Arm(ArmId("plain"), "none", baseline=True), Arm(ArmId("fast"), "mtp")]
        >>> build_policy("thompson", {"floor": 0.01}, arms).name
        'thompson'
        >>> build_policy("tompson", {}, arms)
        Traceback (most recent call last):
        ...
        ValueError: there is no policy 'tompson'; allowed: epsilon_greedy, exp3, fixed, rules, \
thompson, ucb; did you mean 'thompson'?
    """
    entry = registry.get(name)
    if entry is None:
        raise ValueError(f"there is no policy {name!r}; {suggestion(name, registry)}")
    if sum(arm.baseline for arm in arms) != 1:
        raise ValueError(f"policy {name!r}: exactly one arm must be the baseline")
    return entry.factory(decode(entry.parameters, parameters, name), arms, classes)
