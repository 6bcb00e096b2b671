"""A policy's proposals, computed once for each snapshot and swapped whole; requests only draw."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np

from policies.base import ContextPolicy, Policy, Prepared
from policies.knowledge import Knowledge, Moment
from policies.types import Arm, ArmId, ArmView, ClassId, Proposal
from router.estimates.layout import COPYING, segment_of
from router.selection.odds import Odds
from router.types import POOLED, SegmentId

VIEWS_PER_STEP = 4

_FLAWS = (ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError)
"""What code raises that meets numbers or names it did not expect; LinAlgError is a ValueError. A
policy may be somebody's own."""

MOST_ODDS = 4096
"""Kept of a plan; far more than the requests of one refresh are about."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What a route's policy proposes for every class, given one snapshot."""

    policy: str
    snapshot_version: int
    arms: tuple[Arm, ...]
    proposals: Mapping[ClassId, Proposal]
    spoiled: tuple[ClassId, ...] = ()
    """Classes for which the policy failed; they get the baseline."""
    parts: Mapping[tuple[ClassId, SegmentId], Proposal] = field(default_factory=dict)
    """What is proposed for parts of a class that are told apart."""
    prepared: Prepared | None = None
    """Answers for each request by itself; `proposals` is then what it says on an idle fleet."""
    _odds: dict[tuple[ClassId, SegmentId, tuple[ArmId, ...]], Odds] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )
    """Those that were asked for."""
    _of_moments: dict[tuple[int, tuple[ArmId, ...]], tuple[Proposal, Odds]] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )
    """Those of proposals that are given again and again, by the proposal's identity: it stands
    beside its odds, so that no other can have it meanwhile."""

    def odds(self, class_id: ClassId, part: SegmentId, excluded: Collection[ArmId]) -> Odds:
        """What a request is drawn by that belongs to a part of a class and must not use some arms.

        Raises:
            ValueError: No arm is left.
        """
        key = (class_id, part, tuple(excluded))
        found = self._odds.get(key)
        if found is None:
            if len(self._odds) >= MOST_ODDS:
                self._odds.clear()
            found = Odds.of(self.proposal(class_id, part), self.arms, excluded)
            self._odds[key] = found
        return found

    def odds_at(self, moment: Moment, excluded: Collection[ArmId]) -> Odds:
        """What a request is drawn by whose policy looks at the moment.

        A policy that fails for a moment costs its request the choice, not the answer.

        Raises:
            ValueError: No arm is left.
        """
        proposal = None if self.prepared is None else _proposed(self.prepared, moment)
        if proposal is None:
            return Odds.of(baseline_only(self.arms), self.arms, excluded)
        key = (id(proposal), tuple(excluded))
        known = self._of_moments.get(key)
        if known is not None:
            return known[1]
        usable = _checked(proposal, len(self.arms))
        odds = Odds.of(usable or baseline_only(self.arms), self.arms, excluded)
        if usable is not None and not usable.probabilities.flags.writeable:
            # What nobody can change is what the policy itself keeps and will give again.
            if len(self._of_moments) >= MOST_ODDS:
                self._of_moments.clear()
            self._of_moments[key] = (proposal, odds)
        return odds

    def proposal(self, class_id: ClassId, part: SegmentId = POOLED) -> Proposal:
        """The proposal for a part of a class (`router.estimates.layout.part_of`).

        A part that is not told apart gets its class's; a class nobody knows gets the baseline.
        """
        found = None
        if part:
            found = self.parts.get((class_id, part))
            if found is None and part.endswith(COPYING):
                # Where the class is split by copy band, the band stands before the segment.
                found = self.parts.get((class_id, SegmentId(COPYING)))
                if found is None:
                    found = self.parts.get((class_id, segment_of(part)))
        return found or self.proposals.get(class_id) or baseline_only(self.arms)


def baseline_only(arms: tuple[Arm, ...]) -> Proposal:
    """All traffic to plain decoding: what is always safe."""
    probabilities = np.array([1.0 if arm.baseline else 0.0 for arm in arms])
    return Proposal(probabilities, np.zeros(len(arms)))


def make_plan(
    policy: Policy,
    views: Mapping[ClassId, ArmView],
    arms: tuple[Arm, ...],
    *,
    version: int,
    rng: np.random.Generator,
) -> Plan:
    """Asks the policy about every class. A policy that fails for a class never fails a request."""
    asked = ((class_id, POOLED, view) for class_id, view in views.items())
    *_, plan = plan_steps(policy, asked, arms, version=version, rng=rng)
    if plan is None:
        raise AssertionError("the last step is the plan")
    return plan


def plan_steps(
    policy: Policy,
    views: Iterable[tuple[ClassId, SegmentId, ArmView]],
    arms: tuple[Arm, ...],
    *,
    version: int,
    rng: np.random.Generator,
) -> Iterator[Plan | None]:
    """The same for parts of classes too, in pieces, so that requests get their turn in between.

    Args:
        policy: The route's policy.
        views: Classes (part `POOLED`) and parts of them.
        arms: The route's arms.
        version: Of the snapshot that the views are from.
        rng: Source of randomness.

    Yields:
        None after each piece, and the plan at the end.
    """
    proposals: dict[ClassId, Proposal] = {}
    parts: dict[tuple[ClassId, SegmentId], Proposal] = {}
    spoiled: dict[ClassId, None] = {}
    for count, (class_id, part, view) in enumerate(views, 1):
        proposal = _proposal(policy, view, rng)
        if proposal is None:
            spoiled[class_id] = None
            proposal = baseline_only(arms)
        if part:
            parts[class_id, part] = proposal
        else:
            proposals[class_id] = proposal
        if count % VIEWS_PER_STEP == 0:
            yield None
    yield Plan(policy.name, version, arms, proposals, tuple(spoiled), parts)


def context_plan_steps(
    policy: ContextPolicy,
    known: Knowledge,
    classes: Iterable[ClassId],
    *,
    version: int,
    rng: np.random.Generator,
) -> Iterator[Plan | None]:
    """A plan of a policy that answers for each request by itself, in pieces.

    Args:
        policy: The route's policy.
        known: All that is known of the route.
        classes: Those that are shown.
        version: Of the snapshot that the knowledge goes with.
        rng: Source of randomness.

    Yields:
        None after each piece, and the plan at the end.
    """
    arms = known.arms
    try:
        prepared = policy.prepare(known, rng)
    except _FLAWS:
        shown = dict.fromkeys(classes, baseline_only(arms))
        yield Plan(policy.name, version, arms, shown, tuple(shown))
        return
    yield None
    proposals: dict[ClassId, Proposal] = {}
    spoiled: list[ClassId] = []
    for class_id in classes:
        found = _asked(prepared, idle_moment(class_id, len(arms)), len(arms))
        if found is None:
            spoiled.append(class_id)
        proposals[class_id] = found or baseline_only(arms)
        yield None
    yield Plan(policy.name, version, arms, proposals, tuple(spoiled), prepared=prepared)


_IDLE_PROMPT = 500
"""Tokens of the prompt for which a plan's proposals are shown. Judgement: a usual one."""


def idle_moment(class_id: ClassId, arms: int) -> Moment:
    """A usual request on a fleet that has nothing else to do: for what is shown of a plan."""
    return Moment(class_id, "", (1,) * arms, _IDLE_PROMPT, (0,) * arms)


def _asked(prepared: Prepared, moment: Moment, arms: int) -> Proposal | None:
    """What is proposed for a moment; None where that fails or cannot be drawn from."""
    proposal = _proposed(prepared, moment)
    return None if proposal is None else _checked(proposal, arms)


def _proposed(prepared: Prepared, moment: Moment) -> Proposal | None:
    try:
        return prepared.propose(moment)
    except _FLAWS:
        return None


def _checked(proposal: Proposal, arms: int) -> Proposal | None:
    try:
        return proposal if _usable(proposal, arms) else None
    except _FLAWS:
        return None


def _proposal(policy: Policy, view: ArmView, rng: np.random.Generator) -> Proposal | None:
    """What the policy proposes; None where it fails or proposes what cannot be drawn from."""
    try:
        proposal = policy.propose(view, rng)
        return proposal if _usable(proposal, len(view.arms)) else None
    except _FLAWS:
        return None


def _usable(proposal: Proposal, arms: int) -> bool:
    p = proposal.probabilities
    if p.shape != (arms,):
        return False
    # In plain numbers: of a few of them each call of numpy takes longer than all of this.
    shares: list[float] = p.tolist()
    return (
        all([0.0 <= share < np.inf for share in shares])  # noqa: C419 - a list is quicker
        and abs(sum(shares) - 1.0) < 1e-6  # noqa: PLR2004 - rounding of a sum of a few terms
    )
