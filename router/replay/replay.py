"""What another policy would have drawn by at each logged decision. No clock, no I/O.

It is told what the proxy would have told it: sums of the outcomes that had ended by then, through
the same snapshots, knowledge and plans. Those outcomes are the logging policy's, so a policy is
judged with the past that was logged, not with one that it would have made for itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from policies.base import ContextPolicy, Policy
from policies.cost import log_cost, typical_tokens
from policies.estimators.increments import effect_fields, increments
from policies.estimators.knowledge import Expectations
from policies.knowledge import Moment
from policies.offpolicy import Answer, Logged, evaluate
from policies.types import ArmId, ArmView, ClassId, FloatArray
from router.errors import ConfigError
from router.estimates.detector import find_shift
from router.estimates.extras import more_cells
from router.estimates.knowing import Knowing
from router.estimates.layout import BLOCK_S, Cells, keep_largest, merge_cells
from router.estimates.reader import Past
from router.estimates.snapshot import Snapshot, SnapshotBuilder
from router.experiments.placing import SETTLED
from router.replay.lines import Entry, Log
from router.selection.plans import Plan, context_plan_steps, plan_steps
from router.types import POOLED

BLIND: Final = frozenset(("fixed", "rules"))
"""Policies that look at no data: nothing has to be read back for them."""


@dataclass(frozen=True, slots=True)
class Settings:
    """How the past is weighed, as in the section `estimates` of the configuration.

    Attributes:
        refresh_s: Seconds of the log between two looks at its sums; a proxy looks every second.
    """

    window_s: float = 3600.0
    half_life_s: float = 900.0
    tail_limit: float = 1.10
    refresh_s: float = 10.0
    seed: int = 0


@dataclass(frozen=True, slots=True)
class Replayed:
    """A policy judged on a log.

    Attributes:
        overall: Over all classes.
        classes: Each by itself.
        shares: Share of requests the policy would give each arm.
        logged_shares: And the shares they had.
        settled: Requests of the log that were not left to chance; they are not judged.
    """

    overall: Answer
    classes: Mapping[ClassId, Answer]
    shares: Mapping[ArmId, float]
    logged_shares: Mapping[ArmId, float]
    settled: int = 0


def replay(
    log: Log,
    policy: Policy | ContextPolicy,
    settings: Settings,
    *,
    expected: Expectations | None = None,
    clip: float | None = None,
    progress: Callable[[int], None] | None = None,
) -> Replayed:
    """Judge a policy on a log.

    Raises:
        ConfigError: The policy looks at what the log does not hold.
    """
    judged = drawn(log)
    if not judged.entries:
        raise ConfigError(f"no policy drew any of the {len(log.entries)} decisions in the log")
    wanted = probabilities(log, policy, settings, expected=expected, progress=progress)
    logged = as_arrays(judged)
    baseline = next(index for index, arm in enumerate(log.arms) if arm.baseline)
    class_ids = np.array([entry.trial.class_id for entry in judged.entries])
    answers = {}
    for name in sorted(set(class_ids.tolist())):
        rows = class_ids == name
        answers[ClassId(name)] = evaluate(
            logged.of(rows), wanted[rows], baseline=baseline, clip=clip
        )
    names = [arm.arm_id for arm in log.arms]
    taken = np.bincount(logged.arm, minlength=len(names)) / len(logged.arm)
    return Replayed(
        evaluate(logged, wanted, baseline=baseline, clip=clip),
        answers,
        dict(zip(names, wanted.mean(axis=0).tolist(), strict=True)),
        dict(zip(names, taken.tolist(), strict=True)),
        len(log.entries) - len(judged.entries),
    )


def drawn(log: Log) -> Log:
    """The log without what was not left to chance: holdout, experiments, pins, `explore: false`.

    A hash decided there, or an operator: no probability says how it could have gone otherwise.
    What these requests showed is learned from as in the proxy.
    """
    kept = (entry for entry in log.entries if entry.drawn and entry.policy not in SETTLED)
    return replace(log, entries=tuple(kept))


def as_arrays(log: Log) -> Logged:
    """A log as `policies.offpolicy` takes it."""
    place = {arm.arm_id: index for index, arm in enumerate(log.arms)}
    n = len(log.entries)
    p, cost, group = np.zeros((n, len(place))), np.full(n, np.nan), np.zeros(n, np.int64)
    groups: dict[tuple[ClassId, str], int] = {}
    for row, entry in enumerate(log.entries):
        for arm_id, value in entry.probabilities.items():
            p[row, place[arm_id]] = value
        found = log_cost(entry.trial, typical_tokens(entry.trial.class_id))
        if found is not None:
            kind, cost[row] = found
            group[row] = groups.setdefault((entry.trial.class_id, kind), len(groups))
    return Logged(
        tuple(place),
        np.array([place[entry.arm_id] for entry in log.entries], dtype=np.int64),
        np.array([entry.propensity for entry in log.entries]),
        p,
        cost,
        group,
        np.array([int(entry.decided // BLOCK_S) for entry in log.entries], dtype=np.int64),
    )


def probabilities(
    log: Log,
    policy: Policy | ContextPolicy,
    settings: Settings,
    *,
    expected: Expectations | None = None,
    progress: Callable[[int], None] | None = None,
) -> FloatArray:
    """What the policy would have drawn by, shape (entries that were drawn, arms).

    Raises:
        ConfigError: The policy looks at what the log does not hold.
    """
    past = _Books(log, policy, settings, expected)
    judged = drawn(log)
    if isinstance(policy, ContextPolicy):
        _check_moments(judged, policy.name)
    place = {arm.arm_id: index for index, arm in enumerate(log.arms)}
    found = np.zeros((len(judged.entries), len(place)))
    for row, entry in enumerate(judged.entries):
        plan = past.plan(entry.decided)
        # Arms that came to the route later were not there to be chosen.
        excluded = [
            arm_id
            for arm_id in place
            if arm_id in entry.excluded or arm_id not in entry.probabilities
        ]
        if len(excluded) == len(place):
            excluded = [arm_id for arm_id in excluded if arm_id != entry.arm_id]
        if plan.prepared is None:
            odds = plan.odds(entry.trial.class_id, entry.part, excluded)
        else:
            assert entry.moment is not None, "checked above"
            odds = plan.odds_at(_aligned(entry, entry.moment, place), excluded)
        for arm_id, value in odds.probabilities.items():
            found[row, place[arm_id]] = value
        if progress is not None:
            progress(row)
    return found


def _check_moments(log: Log, name: str) -> None:
    lacking = sum(entry.moment is None for entry in log.entries)
    if lacking:
        who = ", ".join(sorted({entry.policy for entry in log.entries if entry.moment is None}))
        raise ConfigError(
            f"policy {name!r} looks at the load and the prompt of each request, and {lacking} of "
            f"{len(log.entries)} lines do not hold them: they were decided by {who}, which does "
            "not look at them. Policies that look at classes alone can be replayed"
        )


def _aligned(entry: Entry, moment: Moment, place: Mapping[ArmId, int]) -> Moment:
    """The moment in the order of the log's arms; an arm that was not there has load 0."""
    if list(entry.probabilities) == list(place):
        return moment

    def placed(values: Sequence[Any]) -> tuple[Any, ...]:
        """By arm of the log; what is not known stays unknown."""
        if not values:
            return ()
        found = [0] * len(place)
        for arm_id, value in zip(entry.probabilities, values, strict=True):
            found[place[arm_id]] = value
        return tuple(found)

    return replace(
        moment,
        load=placed(moment.load),
        cached_tokens=placed(moment.cached_tokens),
        ahead_tokens=placed(moment.ahead_tokens),
        waited_s=placed(moment.waited_s),
    )


class _Books:
    """Sums of the log up to a moment, and the plan that they come to."""

    def __init__(
        self,
        log: Log,
        policy: Policy | ContextPolicy,
        settings: Settings,
        expected: Expectations | None,
    ) -> None:
        self._arms, self._policy, self._settings = log.arms, policy, settings
        self._ended: Sequence[Entry] = sorted(log.entries, key=lambda entry: entry.ended)
        self._classes = sorted({entry.trial.class_id for entry in log.entries})
        self._plain = frozenset(arm.arm_id for arm in log.arms if arm.method == "none")
        self._next = 0
        self._blocks: dict[int, Cells] = {}
        self._builder = SnapshotBuilder(
            log.arms,
            half_life_s=settings.half_life_s,
            tail_limit=settings.tail_limit,
            detect=find_shift,
        )
        self._knowing = Knowing(log.arms, expected or Expectations(), settings.half_life_s)
        self._rng = np.random.default_rng(settings.seed)
        self._plan: Plan | None = None
        self._made = 0.0

    def plan(self, at: float) -> Plan:
        """The plan of a moment; moments come in their order."""
        if self._plan is None or (
            self._policy.name not in BLIND and at - self._made >= self._settings.refresh_s
        ):
            self._learn(at)
            self._plan, self._made = self._planned(at), at
        return self._plan

    def _learn(self, at: float) -> None:
        changed = set()
        while self._next < len(self._ended) and self._ended[self._next].ended <= at:
            entry = self._ended[self._next]
            self._next += 1
            block = int(entry.ended // BLOCK_S)
            merge_cells(self._blocks.setdefault(block, {}), _cells(entry, self._plain))
            changed.add(block)
        for block in changed:
            keep_largest(self._blocks[block])
        oldest = (at - self._settings.window_s) // BLOCK_S
        for block in [block for block in self._blocks if block < oldest]:
            del self._blocks[block]

    def _planned(self, at: float) -> Plan:
        newest = int(at // BLOCK_S)
        complete = frozenset(block for block in self._blocks if block < newest)
        past = Past(self._blocks, newest, complete)
        snapshot = self._builder.build(past, at)
        return _last(self._steps(snapshot, past, at))

    def _steps(self, snapshot: Snapshot, past: Past, at: float) -> Iterator[Plan | None]:
        unseen = [class_id for class_id in self._classes if class_id not in snapshot.classes]
        version = snapshot.version
        if isinstance(self._policy, ContextPolicy):
            parts = {class_id: of.parts for class_id, of in snapshot.classes.items()}
            known = yield from self._knowing.look(past, parts, at)
            classes = (*snapshot.classes, *unseen)
            yield from context_plan_steps(
                self._policy, known, classes, version=version, rng=self._rng
            )
            return
        empty = [(name, POOLED, ArmView.empty(name, self._arms)) for name in unseen]
        views = [*empty, *snapshot.views()]
        yield from plan_steps(self._policy, views, self._arms, version=version, rng=self._rng)


def _last(steps: Iterator[Plan | None]) -> Plan:
    *_, plan = steps
    if plan is None:
        raise AssertionError("the last step is the plan")
    return plan


def _cells(entry: Entry, plain: frozenset[ArmId]) -> Cells:
    """What a request added to the sums."""
    trial = entry.trial
    sums = increments(trial, typical_tokens(trial.class_id))
    effects = effect_fields(sums)
    cells: Cells = {(trial.arm_id, trial.class_id, POOLED): sums}
    if entry.part:
        cells[trial.arm_id, trial.class_id, entry.part] = effects
    for key, more in more_cells(trial, effects, plain):
        merge_cells(cells, {key: dict(more)})
    return cells
