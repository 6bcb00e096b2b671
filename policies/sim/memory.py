"""What a router of a world remembers: the integers that a proxy stores, summed as they come in."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from typing import Final

import numpy as np

from policies.cost import typical_tokens
from policies.estimators import increments, prefill, step_time
from policies.estimators.knowledge import (
    FIELDS,
    PREFILL_FIELDS,
    STEP_FIELDS,
    Expectations,
    Rows,
    band_costs,
    belief,
    changed_s,
    prefill_of,
    step_ratios,
)
from policies.estimators.load import BANDS, load_band
from policies.knowledge import Belief, Knowledge, parent
from policies.sim.routing import Outcome
from policies.types import Arm, ClassId, Counts, FloatArray, SpecUsage, Status, Trial

SLOT_S: Final = 10.0
"""Sums are kept by stretches of this length, as in a proxy."""

_STALE_S: Final = 60.0
"""What was made of sums that have not grown is made anew after so long, for they age."""

_Key = tuple[ClassId, str]


class _Series:
    """Sums of a class or part by slot."""

    def __init__(self, arms: int) -> None:
        self._slots = np.zeros(4, dtype=np.int64)
        self._sums = np.zeros((4, len(FIELDS), arms))
        self._rows = 0

    def add(self, slot: int, arm: int, values: FloatArray) -> None:
        """Add to a slot, which is the latest."""
        if not self._rows or self._slots[self._rows - 1] != slot:
            if self._rows == len(self._slots):
                self._slots = np.concatenate([self._slots, np.zeros_like(self._slots)])
                self._sums = np.concatenate([self._sums, np.zeros_like(self._sums)])
            self._slots[self._rows] = slot
            self._rows += 1
        self._sums[self._rows - 1, :, arm] += values

    def rows(self, at_s: float) -> Rows:
        """All of it, with ages."""
        ends = (self._slots[: self._rows] + 1) * SLOT_S
        return Rows(np.maximum(at_s - ends, 0.0), self._sums[: self._rows])


class Memory:
    """Sums of a route, and the knowledge they come to."""

    def __init__(
        self, arms: tuple[Arm, ...], half_life_s: float, expected: Expectations | None = None
    ) -> None:
        self._arms = arms
        self._half_life_s = half_life_s
        self._expected = expected or Expectations()
        self._base = next(index for index, arm in enumerate(arms) if arm.baseline)
        self._keep = 2.0 ** (-SLOT_S / half_life_s)
        self._slot = 0
        size = len(arms)
        self._series: dict[_Key, _Series] = {}
        self._beliefs: dict[_Key, Belief] = {}
        self._changed: dict[ClassId, FloatArray] = {}
        self._held: dict[ClassId, Mapping[int, str]] = {}
        self._made_s = -np.inf
        self._steps = np.zeros((len(STEP_FIELDS), size))
        self._first = np.zeros((BANDS, len(PREFILL_FIELDS), size))
        self._costs: dict[ClassId, FloatArray] = {}

    def learn(self, outcome: Outcome, part: str) -> None:
        """Add what came of a request."""
        self._age(int(outcome.ended_s // SLOT_S))
        arm, class_id = outcome.pool, outcome.trial.class_id
        trial = trial_of(outcome, self._arms[arm])
        sums = increments.increments(trial, typical_tokens(class_id))
        values = _values(sums, _CELL)
        key: _Key = (class_id, part)
        while True:
            series = self._series.get(key)
            if series is None:
                series = self._series[key] = _Series(len(self._arms))
            series.add(self._slot, arm, values)
            self._beliefs.pop(key, None)
            if not key[1]:
                break
            key = (class_id, parent(key[1]))
        if trial.status is not Status.OK or trial.load is None:
            return
        band = load_band(trial.load)
        costs = self._costs.setdefault(class_id, np.zeros((3, len(self._arms), BANDS)))
        costs[:, arm, band] += band_costs(sums)
        for name, number in step_time.increments(trial).items():
            place = _STEP.get(name)
            if place is not None:
                self._steps[place, arm] += number
        for name, number in prefill.increments(trial).items():
            place = _PREFILL.get(name)
            if place is not None:
                self._first[band, place, arm] += number

    def _age(self, slot: int) -> None:
        if slot > self._slot:
            keep = self._keep ** (slot - self._slot)
            self._steps *= keep
            self._first *= keep
            self._costs = {class_id: costs * keep for class_id, costs in self._costs.items()}
            self._slot = slot

    def knowledge(self, at_s: float) -> Knowledge:
        """All that was learned."""
        if at_s - self._made_s > _STALE_S:
            self._beliefs.clear()
            self._made_s = at_s
        weight = 2.0 ** (-max(at_s - (self._slot + 1) * SLOT_S, 0.0) / self._half_life_s)
        steps = step_ratios(self._steps * weight)
        first = prefill_of(self._first * weight, steps)
        return Knowledge(
            arms=self._arms,
            beliefs=_Beliefs(self, at_s),
            steps=steps,
            prefill=first.ratios,
            prompt_s=first.prompt_s,
            usual_s=first.usual_s,
            costs={class_id: costs * weight for class_id, costs in self._costs.items()},
            tau_priors=self._expected.tau,
            step_priors=self._expected.steps,
        )

    def keys(self) -> Collection[_Key]:
        """Classes and parts something is known of."""
        return self._series.keys()

    def belief(self, key: _Key, at_s: float) -> Belief:
        """What is known of a class or part."""
        found = self._beliefs.get(key)
        if found is not None:
            return found
        class_id, part = key
        rows = self._series[key].rows(at_s)
        held = self._held.get(class_id, {})
        if not part:
            self._changed[class_id] = changed_s(rows, self._base)
        found = self._beliefs[key] = belief(
            class_id,
            self._arms,
            rows,
            self._half_life_s,
            since_s=self._changed.get(class_id),
            before=None if part else held,
        )
        if not part:
            self._held[class_id] = found.held_back
        return found


class _Beliefs(Mapping[_Key, Belief]):
    """Beliefs of a moment, each made when it is first asked for: most parts never are."""

    def __init__(self, memory: Memory, at_s: float) -> None:
        self._memory, self._at_s = memory, at_s
        self._made: dict[_Key, Belief] = {}

    def __getitem__(self, key: _Key) -> Belief:
        found = self._made.get(key)
        if found is None:
            found = self._made[key] = self._memory.belief(key, self._at_s)
        return found

    def __contains__(self, key: object) -> bool:
        return key in self._memory.keys()  # noqa: SIM118 - it is no mapping

    def __iter__(self) -> Iterator[_Key]:
        return iter(self._memory.keys())

    def __len__(self) -> int:
        return len(self._memory.keys())


def trial_of(outcome: Outcome, arm: Arm) -> Trial:
    """The trial as a proxy records it: with its load, and steps of an arm that never drafts."""
    trial = outcome.trial
    spec = trial.spec
    if spec is None and arm.method == "none" and trial.tokens is not None:
        spec = SpecUsage(steps=trial.tokens, drafted=0, accepted=0)
    return replace(
        trial,
        spec=spec,
        load=outcome.load,
        prompt_tokens=outcome.ask.prompt_tokens,
        cached_tokens=outcome.cached_tokens,
    )


_CELL: Final = {name: place for place, name in enumerate(FIELDS)}
_STEP: Final = {name: place for place, name in enumerate(STEP_FIELDS)}
_PREFILL: Final = {name: place for place, name in enumerate(PREFILL_FIELDS)}


def _values(sums: Counts, places: Mapping[str, int]) -> FloatArray:
    values = np.zeros(len(places))
    for name, number in sums.items():
        place = places.get(name)
        if place is not None:
            values[place] = number
    return values
