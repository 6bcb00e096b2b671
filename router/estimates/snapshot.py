"""What is known at one moment: the one source of policies, dashboard, status and metrics.

Pure: sums in, values out.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from policies.estimators.cells import CellSums, add, arm_view
from policies.estimators.effects import ArmEffects, arm_effects
from policies.estimators.histogram import total
from policies.estimators.verdict import (
    Gain,
    TailRatio,
    Verdict,
    gain_of,
    tail_ratio,
    verdict,
)
from policies.estimators.window import exponential_weight
from policies.types import Arm, ArmId, ArmView, ClassId, FloatArray, Source, Status
from router.estimates.layout import BLOCK_S, Cells
from router.estimates.reader import Past

TAIL_QUANTILE = 0.95
_RECENT_BLOCKS = 2
"""Traffic shares are those of the last two to four minutes."""

_LATENCIES = ("ttft", "tpot", "e2e", "e2ew")


@dataclass(frozen=True, slots=True)
class Quantiles:
    """A latency over the window, in seconds."""

    n: int
    p50: float | None
    p95: float | None
    p99: float | None


@dataclass(frozen=True, slots=True)
class CellSummary:
    """One class on one arm over the window; None is what was not measured."""

    arm_id: ArmId
    ended: Mapping[Status, int]
    share: float | None
    """Of the class's requests in the last minutes."""
    tokens: int
    acceptance_length: float | None
    """Tokens per step, tau."""
    acceptance_rate: float | None
    """Probability that a drafted token is accepted, alpha."""
    acceptance_form: str | None
    """`histogram`: measured position by position; `equal_alpha`: solved from tau and k."""
    draft_acceptance_rate: float | None
    measured: int
    """Requests behind the acceptance figures."""
    sources: Mapping[Source, int]
    latency: Mapping[str, Quantiles]
    gain: Gain | None
    tail: TailRatio | None
    """p95 of TPOT against the baseline's."""
    verdict: Verdict | None
    """None for the baseline, which everything is compared with."""


@dataclass(frozen=True, slots=True)
class ClassSnapshot:
    """One class: what the policy sees of it, and what people see."""

    class_id: ClassId
    view: ArmView
    """Discounted by age."""
    cells: Mapping[ArmId, CellSummary]


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One route at one moment."""

    version: int
    built_wall: float
    arms: tuple[Arm, ...]
    classes: Mapping[ClassId, ClassSnapshot]


class SnapshotBuilder:
    """Builds snapshots of one route; remembers what cannot change between two of them."""

    def __init__(self, arms: tuple[Arm, ...], *, half_life_s: float, tail_limit: float) -> None:
        self._arms = arms
        self._half_life_s = half_life_s
        self._tail_limit = tail_limit
        self._parsed: dict[int, _Block] = {}
        self._past: dict[tuple[ArmId, ClassId], CellSums] = {}
        self._version = 0

    def build(self, past: Past, wall: float) -> Snapshot:
        """Turns sums into what is known."""
        *_, snapshot = self.steps(past, wall)
        if snapshot is None:
            raise AssertionError("the last step is the snapshot")
        return snapshot

    def steps(self, past: Past, wall: float) -> Iterator[Snapshot | None]:
        """The same in pieces, a class each, so that requests get their turn in between.

        Yields None after each piece and the snapshot at the end.
        """
        blocks = self._blocks(past)
        yield None
        growing = [block for index, block in blocks.items() if index not in past.complete]
        totals = _sum([self._past, *growing])
        recent = _sum(
            block for index, block in blocks.items() if index > past.newest_block - _RECENT_BLOCKS
        )
        weighted = [
            (exponential_weight(wall - (index + 1) * BLOCK_S, self._half_life_s), block)
            for index, block in sorted(blocks.items())
        ]
        classes: dict[ClassId, ClassSnapshot] = {}
        for class_id in sorted({class_id for _, class_id in totals}):
            classes[class_id] = self._class(class_id, weighted, totals, recent)
            yield None
        self._version += 1
        yield Snapshot(self._version, wall, self._arms, classes)

    def _blocks(self, past: Past) -> dict[int, _Block]:
        known = {index: self._parsed.get(index) for index in past.blocks}
        blocks = {
            index: parsed if parsed is not None else _parse(past.blocks[index])
            for index, parsed in known.items()
        }
        complete = {index: block for index, block in blocks.items() if index in past.complete}
        if complete.keys() != self._parsed.keys():
            self._parsed = complete
            self._past = _sum(complete.values())
        return blocks

    def _class(
        self,
        class_id: ClassId,
        weighted: list[tuple[float, _Block]],
        totals: _Block,
        recent: _Block,
    ) -> ClassSnapshot:
        rows = [
            (weight, {arm: cell for (arm, of), cell in block.items() if of == class_id})
            for weight, block in weighted
        ]
        view = arm_view(class_id, self._arms, rows)
        plain = arm_view(class_id, self._arms, [(1.0, cells) for _, cells in rows])
        judged = _Judged(arm_effects(plain), plain.n.sum(axis=0))
        requests = sum(recent.get((arm.arm_id, class_id), _NOTHING).n for arm in self._arms)
        baseline = totals.get((view.arms[view.baseline_index].arm_id, class_id), _NOTHING)
        cells = {}
        for index, arm in enumerate(self._arms):
            key = (arm.arm_id, class_id)
            share = recent.get(key, _NOTHING).n / requests if requests else None
            cell = totals.get(key, _NOTHING)
            comparison = None if arm.baseline else self._compare(index, cell, baseline, judged)
            cells[arm.arm_id] = _summary(arm, cell, share, comparison)
        return ClassSnapshot(class_id, view, cells)

    def _compare(
        self, index: int, cell: CellSums, baseline: CellSums, judged: _Judged
    ) -> _Comparison:
        gain = gain_of(judged.effects, index)
        tail = tail_ratio(cell.histogram("tpot"), baseline.histogram("tpot"), TAIL_QUANTILE)
        found = verdict(
            gain,
            n_arm=float(judged.n[index]),
            n_baseline=float(judged.n[judged.effects.baseline]),
            tails=(tail,),
            limit=self._tail_limit,
        )
        return _Comparison(gain, tail, found)


def _summary(
    arm: Arm, cell: CellSums, share: float | None, comparison: _Comparison | None
) -> CellSummary:
    rate, form = _acceptance_rate(arm, cell)
    return CellSummary(
        arm_id=arm.arm_id,
        ended={status: cell.count(status) for status in Status},
        share=share,
        tokens=cell.plain.get("tokens", 0),
        acceptance_length=cell.acceptance_length,
        acceptance_rate=rate,
        acceptance_form=form,
        draft_acceptance_rate=cell.draft_acceptance_rate,
        measured=cell.plain.get("steps.n", 0),
        sources={
            source: cell.plain[f"source.{source}"]
            for source in Source
            if f"source.{source}" in cell.plain
        },
        latency={name: _quantiles(cell, name) for name in _LATENCIES},
        gain=comparison.gain if comparison else None,
        tail=comparison.tail if comparison else None,
        verdict=comparison.verdict if comparison else None,
    )


_Block = Mapping[tuple[ArmId, ClassId], CellSums]
_NOTHING = CellSums()


@dataclass(frozen=True, slots=True)
class _Judged:
    """A class's effects against the concurrent baseline, and the observations behind them."""

    effects: ArmEffects
    n: FloatArray


@dataclass(frozen=True, slots=True)
class _Comparison:
    gain: Gain | None
    tail: TailRatio | None
    verdict: Verdict


def _parse(cells: Cells) -> _Block:
    return {key: CellSums.of(fields) for key, fields in cells.items()}


def _sum(blocks: Iterable[_Block]) -> dict[tuple[ArmId, ClassId], CellSums]:
    sums: dict[tuple[ArmId, ClassId], CellSums] = {}
    for block in blocks:
        for key, cell in block.items():
            sums[key] = add(sums[key], cell) if key in sums else cell
    return sums


def _acceptance_rate(arm: Arm, cell: CellSums) -> tuple[float | None, str | None]:
    rate = cell.acceptance_rate
    if rate is not None:
        return rate, "histogram"
    # Without a histogram alpha is solved from tau and k, which holds where every step drafts k
    # tokens: for look-up methods, whose steps often draft nothing, it would be a number without
    # a meaning.
    k = arm.num_speculative_tokens
    if k is None or arm.method in ("none", "ngram", "suffix"):
        return None, None
    rate = cell.equal_acceptance_rate(k)
    return rate, None if rate is None else "equal_alpha"


def _quantiles(cell: CellSums, name: str) -> Quantiles:
    p50, p95, p99 = (cell.quantile(name, q) for q in (0.5, 0.95, 0.99))
    return Quantiles(total(cell.histogram(name)), p50, p95, p99)
