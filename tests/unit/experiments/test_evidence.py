"""What a look sees of both sides' sums."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from policies.estimators.cells import CellSums, LogCostSums
from policies.estimators.increments import increments
from policies.estimators.times import log_times
from policies.types import ArmId, ClassId, Status, Trial
from router.estimates.layout import Cells, merge_cells
from router.experiments.cells import side_arm
from router.experiments.evidence import (
    GUARD_ALPHA,
    evidence_of,
    gains_by_class,
    gains_by_metric,
    guard_level,
    log_cost_sd,
)
from router.experiments.model import (
    DEFAULT_GUARDS,
    NO_CONTROL,
    Experiment,
    ExperimentName,
    Guard,
    GuardKind,
    Metric,
    Plan,
    Stage,
    Standing,
    Treatment,
    Unit,
    Variant,
)
from router.experiments.model import (
    Status as Stands,
)
from router.experiments.rollout import harm
from router.experiments.seen import SIDES, Seen, seen
from router.types import POOLED

TRY = ExperimentName("try")
CHAT, MATH = ClassId("chat"), ClassId("math")


def trial(
    *guards: Guard,
    epoch: int = 1,
    share: float = 0.5,
    unit: Unit = Unit.REQUEST,
    primary: Metric = Metric.COST,
) -> Experiment:
    """An experiment that runs, with these guards."""
    plan = Plan(
        TRY,
        "m",
        "",
        Treatment(off=True),
        guards=guards,
        stages=(Stage(share),),
        unit=unit,
        primary=primary,
    )
    return Experiment(plan, Standing(Stands.RUNNING, 0, 0.0, "", epoch))


def cells(
    variant: Variant,
    n: int,
    *,
    seed: int = 1,
    epoch: int = 1,
    tpot_s: float = 0.02,
    failed: int = 0,
    aborted: int = 0,
    invalid: int = 0,
    truncated: int = 0,
    judged: int = 0,
    class_id: ClassId = CHAT,
    name: ExperimentName = TRY,
) -> Cells:
    """Sums of one side."""
    rng = np.random.default_rng(seed)
    made: Cells = {}
    for number in range(n):
        status = Status.FAILED if number < failed else Status.OK
        one = Trial(
            class_id,
            ArmId("plain"),
            Status.ABORTED if number < aborted else status,
            streamed=True,
            propensity=1.0,
            ttft_s=0.1,
            tpot_s=tpot_s * math.exp(rng.normal(0.0, 0.2)),
            e2e_s=2.0,
            tokens=101,
            valid=None if number >= judged or number < truncated else number >= invalid,
            truncated=None if number >= judged else number < truncated,
        )
        key = (side_arm(name, epoch, variant), class_id, POOLED)
        merge_cells(made, {key: increments(one, 300)})
    return made


def both(*parts: Cells) -> Cells:
    """All together."""
    made: Cells = {}
    for part in parts:
        merge_cells(made, part)
    return made


def test_a_treatment_that_is_faster_gains() -> None:
    """By what it saves; a class that has no data of both sides says nothing."""
    hours = [
        (1, both(cells(Variant.CONTROL, 200), cells(Variant.TREATMENT, 200, seed=2, tpot_s=0.01))),
        (2, cells(Variant.CONTROL, 50, class_id=MATH)),
    ]
    known = seen(trial(), hours)
    found = evidence_of(trial(), known)
    assert found.gain is not None
    value, low, high = found.gain
    assert low < 1 - (0.1 + 299 * 0.01) / (0.1 + 299 * 0.02) < high
    assert value == pytest.approx(0.49, abs=0.03)
    assert (found.control, found.treatment, found.ratio_alarm) == (250, 200, False)
    gains = gains_by_class(known)
    assert gains[CHAT] is not None
    assert gains[MATH] is None


def test_hours_and_epochs_are_not_mixed() -> None:
    """A busy hour in which few were treated, and a quiet one with many, is no gain."""
    hours = [
        (
            1,
            both(
                cells(Variant.CONTROL, 190, tpot_s=0.06),
                cells(Variant.TREATMENT, 10, seed=2, tpot_s=0.06),
            ),
        ),
        (
            1,
            both(
                cells(Variant.CONTROL, 100, epoch=2, seed=3),
                cells(Variant.TREATMENT, 100, epoch=2, seed=4),
            ),
        ),
    ]
    found = evidence_of(trial(epoch=2), seen(trial(epoch=2), hours))
    assert found.gain is not None
    assert abs(found.gain[0]) < 0.1
    assert (found.control, found.treatment) == (100, 100)


def test_others_sums_are_not_its_own() -> None:
    """Neither another experiment's nor an arm's."""
    other = cells(Variant.TREATMENT, 5, name=ExperimentName("other"))
    plain: Cells = {(ArmId("plain"), CHAT, POOLED): {"n": 7}}
    found = evidence_of(trial(), seen(trial(), [(1, both(other, plain))]))
    assert (found.control, found.treatment, found.gain) == (0, 0, None)


@pytest.mark.parametrize(
    ("guard", "bad", "more"),
    [
        (Guard(GuardKind.ERRORS, 0.01), {"failed": 60}, {}),
        (Guard(GuardKind.ABORTS, 0.02), {"aborted": 60}, {}),
        (Guard(GuardKind.INVALID, 0.01), {"invalid": 40}, {"judged": 100}),
        (Guard(GuardKind.TRUNCATED, 0.01), {"truncated": 40}, {"judged": 100}),
        (Guard(GuardKind.COST, 1.05), {"tpot_s": 0.03}, {}),
        (Guard(GuardKind.TPOT_P95, 1.1), {"tpot_s": 0.04}, {"n": 1200}),
        (Guard(GuardKind.TTFT_P95, 1.25), {}, {"n": 1200}),
    ],
)
def test_guards_are_breached_by_what_they_watch(
    guard: Guard, bad: dict[str, Any], more: dict[str, int]
) -> None:
    """And by nothing where both sides are alike."""
    n, judged = more.get("n", 300), more.get("judged", 0)
    control = cells(Variant.CONTROL, n, judged=judged)
    good = both(control, cells(Variant.TREATMENT, n, seed=2, judged=judged))
    [reading] = evidence_of(trial(guard), seen(trial(guard), [(1, good)])).guards
    assert not reading.breached
    assert reading.value is not None
    if bad:
        worse = both(control, cells(Variant.TREATMENT, n, seed=2, judged=judged, **bad))
        evidence = evidence_of(trial(guard), seen(trial(guard), [(1, worse)]))
        assert evidence.guards[0].breached
        assert str(guard.kind) in (harm(evidence) or "")


def test_what_nobody_judged_breaches_nothing() -> None:
    """No structure was demanded: there is no figure, not one of 0."""
    guard = Guard(GuardKind.INVALID, 0.0)
    sums = both(cells(Variant.CONTROL, 300), cells(Variant.TREATMENT, 300, seed=2))
    [reading] = evidence_of(trial(guard), seen(trial(guard), [(1, sums)])).guards
    assert (reading.value, reading.low, reading.breached) == (None, None, False)


GUARDS = tuple(
    Guard(kind, limit)
    for kind, limit in (
        (GuardKind.COST, 1.05),
        (GuardKind.TPOT_P95, 1.1),
        (GuardKind.TTFT_P95, 1.25),
        (GuardKind.ERRORS, 0.01),
        (GuardKind.ABORTS, 0.02),
    )
)


def test_where_all_are_treated_nothing_is_compared() -> None:
    """The control of another hour is none: what that hour did to both sides is no harm."""
    experiment = trial(*GUARDS, epoch=2, share=1.0)
    night = both(cells(Variant.CONTROL, 1200), cells(Variant.TREATMENT, 1200, tpot_s=0.017, seed=2))
    morning = cells(Variant.TREATMENT, 1200, epoch=2, tpot_s=0.04, failed=60, seed=3)
    found = evidence_of(experiment, seen(experiment, [(1, night), (2, morning)]))
    assert {(of.value, of.low, of.high) for of in found.guards} == {(None, None, None)}
    assert not found.compared
    assert harm(found) is None
    assert found.gain is not None  # that of the night
    assert experiment.notes == (NO_CONTROL,)


def test_a_stage_whose_control_has_no_request_yet_has_no_reading() -> None:
    """Requests of the stage before are of another time."""
    experiment = trial(*GUARDS[1:], epoch=2)
    before = both(cells(Variant.CONTROL, 1200), cells(Variant.TREATMENT, 1200, seed=2))
    now = cells(Variant.TREATMENT, 1200, epoch=2, tpot_s=0.04, failed=60, seed=3)
    found = evidence_of(experiment, seen(experiment, [(1, before), (2, now)]))
    assert {(of.low, of.breached) for of in found.guards} == {(None, False)}
    assert experiment.notes == ()


def test_guards_keep_their_figures_once_it_was_left() -> None:
    """A report shows why."""
    experiment = trial(GUARDS[3])
    sums = both(cells(Variant.CONTROL, 300), cells(Variant.TREATMENT, 300, failed=60))
    left = replace(experiment, standing=replace(experiment.standing, status=Stands.ROLLED_BACK))
    assert evidence_of(left, seen(left, [(1, sums)])).guards[0].breached


@pytest.mark.parametrize("epochs", [3, 500])
def test_guards_err_no_more_the_more_epochs_there_are(epochs: int) -> None:
    """Pauses and orders begin new ones, in each of which each guard is read anew."""
    plan = replace(trial(*GUARDS).plan, stages=(Stage(0.1), Stage(0.5)))
    spent = sum(1.0 - guard_level(plan, epoch) for epoch in range(1, epochs + 1))
    assert 0.5 * GUARD_ALPHA < spent * len(GUARDS) <= GUARD_ALPHA


def ended(n: int, aborted: int, failed: int = 0) -> CellSums:
    """One side's sums: so many left before the end."""
    ok = n - aborted - failed
    return CellSums(
        {"n": n, "status.ok": ok, "status.aborted": aborted, "status.failed": failed},
        log_cost={"s": LogCostSums(ok, 0, round(ok * 0.09e6))},
    )


def watched(seed: int, shares: tuple[float, float]) -> bool:
    """Whether a treatment would be left within a day of hourly looks."""
    rng = np.random.default_rng(seed)
    experiment = trial(*DEFAULT_GUARDS)
    pairs: dict[tuple[int, int], dict[ArmId, CellSums]] = {}
    for hour in range(24):
        n = rng.multinomial(400, [0.5, 0.5])
        pairs[hour, 1] = {
            side.arm_id: ended(int(of), int(rng.binomial(of, share)))
            for side, of, share in zip(SIDES, n, shares, strict=True)
        }
        if harm(evidence_of(experiment, Seen.of({CHAT: pairs}, 1))) is not None:
            return True
    return False


def test_a_treatment_whose_clients_leave_is_left() -> None:
    """What it takes to serve those who stayed is no gain."""
    assert all(watched(seed, (0.0, 0.25)) for seed in range(5))


@pytest.mark.parametrize("share", [0.01, 0.1, 0.3])
def test_clients_who_leave_both_sides_alike_are_no_harm(share: float) -> None:
    """At any look of a day."""
    assert not any(watched(seed, (share, share)) for seed in range(40))


def test_a_split_that_was_not_planned_is_alarmed_about() -> None:
    """By request; sessions bring as many requests as they like."""
    sums = both(cells(Variant.CONTROL, 600), cells(Variant.TREATMENT, 400))
    for unit, expected in ((Unit.REQUEST, True), (Unit.SESSION, False)):
        experiment = trial(unit=unit)
        assert evidence_of(experiment, seen(experiment, [(1, sums)])).ratio_alarm is expected


def test_the_noise_is_that_inside_strata() -> None:
    """Not that between hours."""
    hours = [
        (number, both(cells(Variant.CONTROL, 300, tpot_s=0.02 * number, seed=number)))
        for number in (1, 2, 3)
    ]
    sd = log_cost_sd(seen(trial(), hours).view())
    assert sd == pytest.approx(0.2, abs=0.02)


def timed(variant: Variant, *, ttft: float, tpot: float, streamed: bool = True) -> Cells:
    """Sums of one side whose TTFT and TPOT are so many times the usual; lengths differ much."""
    rng = np.random.default_rng(5 if variant is Variant.CONTROL else 6)
    made: Cells = {}
    for _ in range(400):
        tokens = int(rng.integers(20, 500))
        ttft_s = 0.4 * ttft * math.exp(rng.normal(0.0, 0.2))
        tpot_s = 0.02 * tpot * math.exp(rng.normal(0.0, 0.2))
        one = Trial(
            CHAT,
            ArmId("plain"),
            Status.OK,
            streamed=streamed,
            propensity=1.0,
            ttft_s=ttft_s if streamed else None,
            tpot_s=tpot_s if streamed else None,
            e2e_s=ttft_s + (tokens - 1) * tpot_s,
            tokens=tokens,
        )
        sums = increments(one, 300)
        key = (side_arm(TRY, 1, variant), CHAT, POOLED)
        merge_cells(made, {key: {**sums, **log_times(one, sums)}})
    return made


@pytest.mark.parametrize(
    ("metric", "gain"),
    [(Metric.TTFT, -1.0), (Metric.TPOT, 0.5), (Metric.E2E, 0.35), (Metric.COST, 0.44)],
)
def test_each_metric_has_an_effect_of_its_own(metric: Metric, gain: float) -> None:
    """A treatment whose first token comes late and whose others come fast; whatever the length."""
    sums = both(
        timed(Variant.CONTROL, ttft=1.0, tpot=1.0), timed(Variant.TREATMENT, ttft=2.0, tpot=0.5)
    )
    experiment = trial(primary=metric)
    known = seen(experiment, [(1, sums)])
    found = evidence_of(experiment, known)
    assert found.gain is not None
    value, low, high = found.gain
    assert value == pytest.approx(gain, abs=0.08)
    assert low < value < high
    assert found.primary is metric
    assert gains_by_class(known, metric)[CHAT] == gains_by_metric(known)[metric]
    assert (harm(evidence_of(experiment, known)) is not None) is (gain < 0)


def test_whole_answers_have_an_e2e_and_no_single_times() -> None:
    """What was not measured has no effect."""
    sums = both(
        timed(Variant.CONTROL, ttft=1.0, tpot=1.0, streamed=False),
        timed(Variant.TREATMENT, ttft=0.5, tpot=0.5, streamed=False),
    )
    found = gains_by_metric(seen(trial(), [(1, sums)]))
    assert found[Metric.TPOT] is found[Metric.TTFT] is None
    whole = found[Metric.E2E]
    assert whole is not None
    assert whole.value == pytest.approx(0.5, abs=0.05)
