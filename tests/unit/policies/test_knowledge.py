"""Knowledge from stored cells is what a world's memory makes of the same outcomes."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import fields, replace

import numpy as np
import pytest

from policies.checks import example_arms
from policies.cost import typical_tokens
from policies.estimators import increments, prefill, step_time
from policies.estimators.increments import effect_fields
from policies.estimators.knowledge import ALL_FIELDS, COMMON, FIELDS, Cell, Stretch, knowledge
from policies.estimators.load import load_part
from policies.knowledge import Belief, Drafting, Knowledge, Ratios, parent
from policies.sim.learner import arms_of, part_of
from policies.sim.memory import SLOT_S, Memory, trial_of
from policies.sim.references import RandomPool
from policies.sim.routing import Outcome
from policies.sim.world import run
from policies.types import Arm, ArmId, ClassId, FloatArray, Status, Trial
from router.simulate.load import load_world

HALF_LIFE_S = 300.0


@pytest.fixture(scope="module")
def outcomes() -> tuple[tuple[Arm, ...], Sequence[Outcome]]:
    """Some hundred requests, in two languages, with a server that fails."""
    world = load_world("spark-languages")
    world = replace(world, traffic=replace(world.traffic, requests=500, rate=1.0))
    return arms_of(world), run(world, RandomPool(3), 3).outcomes


def stored(arms: Sequence[Arm], ended: Iterable[Outcome], now_s: float) -> list[Stretch]:
    """Cells as a proxy stores them: by slot, for class, part, load band and arm."""
    slots: dict[int, dict[Cell, Counter[str]]] = defaultdict(lambda: defaultdict(Counter))
    for outcome in ended:
        trial = trial_of(outcome, arms[outcome.pool])
        sums = increments.increments(trial, typical_tokens(trial.class_id))
        cells = slots[int(outcome.ended_s // SLOT_S)]
        arm, class_id, part = trial.arm_id, trial.class_id, part_of(outcome.ask)
        cells[arm, class_id, ""].update(sums)
        while part:
            cells[arm, class_id, part].update(sums)
            part = parent(part)
        if trial.status is Status.OK and trial.load is not None:
            band = load_part(trial.load)
            cells[arm, class_id, band].update(effect_fields(sums))
            cells[arm, COMMON, band].update(step_time.increments(trial))
            cells[arm, COMMON, band].update(prefill.increments(trial))
    return [Stretch(max(now_s - (slot + 1) * SLOT_S, 0.0), cells) for slot, cells in slots.items()]


def assert_close(one: FloatArray, two: FloatArray) -> None:
    """Arrays, to rounding."""
    np.testing.assert_allclose(one, two, rtol=1e-6, atol=1e-9)


def assert_same(one: Knowledge, two: Knowledge) -> None:
    """Every array alike, to rounding."""
    for name in ("steps", "prefill"):
        for item in fields(Ratios):
            assert_close(*(getattr(getattr(each, name), item.name) for each in (one, two)))
    assert one.usual_s == pytest.approx(two.usual_s)
    assert one.prompt_s == pytest.approx(two.prompt_s)
    assert set(one.costs) == set(two.costs)
    for class_id, costs in one.costs.items():
        np.testing.assert_allclose(costs, two.costs[class_id], rtol=1e-6, atol=1e-6)
    assert set(one.beliefs) == set(two.beliefs)
    for key, belief in one.beliefs.items():
        assert_alike(belief, two.beliefs[key])


def assert_alike(one: Belief, two: Belief) -> None:
    """Two beliefs, to rounding."""
    for name in ("n", "total", "total_sq", "served", "failed"):
        assert_close(getattr(one.view, name), getattr(two.view, name))
    for item in fields(Drafting):
        assert_close(getattr(one.drafting, item.name), getattr(two.drafting, item.name))
    assert one.output_tokens == pytest.approx(two.output_tokens)
    assert dict(one.held_back) == dict(two.held_back)
    assert one.settled == pytest.approx(two.settled)


def test_a_memory_and_a_store_come_to_the_same(
    outcomes: tuple[tuple[Arm, ...], Sequence[Outcome]],
) -> None:
    """Sums that grew as arrays and integer cells read back give one knowledge."""
    arms, ended = outcomes
    now_s = ended[-1].ended_s + 5.0
    memory = Memory(arms, HALF_LIFE_S)
    for outcome in ended:
        memory.learn(outcome, part_of(outcome.ask))
    one = memory.knowledge(now_s)
    assert_same(one, knowledge(arms, stored(arms, ended, now_s), HALF_LIFE_S))
    assert {part for _, part in one.beliefs} >= {"", "greedy", "greedy/en", "greedy/de"}


def test_knowledge_does_not_depend_on_the_order_of_the_cells(
    outcomes: tuple[tuple[Arm, ...], Sequence[Outcome]],
) -> None:
    """Stretches may come in any order; those of other arms are left out."""
    arms, ended = outcomes
    stretches = stored(arms, ended[:200], 400.0)
    foreign = Stretch(0.0, {(ArmId("gone"), ClassId("chat"), ""): {"status.ok": 5}})
    shuffled = [foreign, *reversed(stretches)]
    one, two = knowledge(arms, stretches, 300.0), knowledge(arms, shuffled, 300.0)
    assert_same(one, two)


def test_what_a_request_stores_is_what_is_read() -> None:
    """Every field that is read is one that requests add to."""
    known = step_time.FIELDS | prefill.FIELDS
    assert {name for name in ALL_FIELDS if name.startswith(("st.", "pf."))} <= known
    assert len(set(FIELDS)) == len(FIELDS)


def test_cells_of_parts_may_lack_squares() -> None:
    """A proxy keeps of a part what bears on effects: drafting is then known by its totals."""
    arms = example_arms(2)
    cell = {"n": 4, "status.ok": 4, "steps": 100, "steps.tokens": 250}
    stretch = Stretch(5.0, {(arms[1].arm_id, ClassId("chat"), "app"): cell})
    found = knowledge(arms, [stretch], 1e9).beliefs[ClassId("chat"), "app"].drafting
    np.testing.assert_allclose([found.n[1], found.tokens[1], found.steps[1]], [4, 250, 100])


def test_after_a_collapse_what_was_before_hardly_counts() -> None:
    """The cell that changed forgets; the same arm's other class does not."""
    arms = example_arms(2)
    good = {"status.ok": 3, "steps.n": 3, "steps": 60, "steps.tokens": 300,
            "steps.tt": 30_000, "steps.ts": 6000, "steps.ss": 1200}  # fmt: skip
    bad = good | {"steps": 240, "steps.ts": 24_000, "steps.ss": 19_200}
    fast = arms[1].arm_id
    stretches = [
        Stretch(
            10.0 * (30 - slot),
            {
                (fast, ClassId("chat"), ""): good if slot < 26 else bad,
                (fast, ClassId("math"), ""): good,
            },
        )
        for slot in range(30)
    ]
    found = knowledge(arms, stretches, 1e9)
    chat, math = (found.beliefs[ClassId(name), ""] for name in ("chat", "math"))
    assert chat.drafting.tokens[1] / chat.drafting.steps[1] < 1.6
    assert math.drafting.tokens[1] / math.drafting.steps[1] == pytest.approx(5.0)
    assert (chat.settled, math.settled) == (12.0, None)


@pytest.mark.parametrize(
    ("asked", "found"), [("de/app-1", "de/app-1"), ("de/app-9", "de"), ("fr/app", ""), ("", "")]
)
def test_the_finest_part_that_is_known_answers(asked: str, found: str) -> None:
    """A part nobody knows is its language, and one of an unknown language its class."""
    arms = example_arms(2)
    cells = {
        (arms[0].arm_id, ClassId("chat"), part): {"status.ok": 1} for part in ("", "de", "de/app-1")
    }
    known = knowledge(arms, [Stretch(0.0, cells)], 300.0)
    name, belief = known.belief(ClassId("chat"), asked)
    assert name == found
    assert belief is not None


def test_what_a_first_token_waits_is_told_apart_from_its_prompt() -> None:
    """An arm of slow first steps is not taken for one that is slow with long prompts."""
    arms, token_s = example_arms(2), 1e-4
    rng = np.random.default_rng(0)
    cells: dict[Cell, Counter[str]] = defaultdict(Counter)
    for prompt in rng.integers(50, 3000, 400).tolist():
        arm, first_s = ((arms[0], 0.02), (arms[1], 0.06))[int(rng.integers(2))]
        trial = Trial(
            class_id=ClassId("chat"), arm_id=arm.arm_id, status=Status.OK, streamed=True, propensity=0.5,
            ttft_s=first_s + token_s * prompt, load=2, prompt_tokens=prompt,
        )  # fmt: skip
        cells[arm.arm_id, COMMON, load_part(2)].update(prefill.increments(trial))
    found = knowledge(arms, [Stretch(0.0, cells)], HALF_LIFE_S)
    waits = found.prefill.total.sum(axis=1) / found.prefill.n.sum(axis=1)
    assert found.prompt_s == pytest.approx(token_s, rel=0.01)
    assert waits == pytest.approx([0.02, 0.06], rel=0.03)
    assert found.usual_s is not None
    assert 0.1 < found.usual_s < 0.3


def test_what_is_usual_is_not_what_a_few_met_at_a_full_server() -> None:
    """Else the price of such waits would be gone just when they are at stake."""
    arms = example_arms(2)

    def usual_s(crowded: int) -> float:
        cells: dict[Cell, Counter[str]] = defaultdict(Counter)
        for load, first_s, times in ((2, 0.1, 1000), (40, 8.0, crowded)):
            trial = Trial(
                class_id=ClassId("chat"), arm_id=arms[0].arm_id, status=Status.OK, streamed=True,
                propensity=0.5, ttft_s=first_s, load=load, prompt_tokens=200,
            )  # fmt: skip
            for _ in range(times):
                cells[arms[0].arm_id, COMMON, load_part(load)].update(prefill.increments(trial))
        found = knowledge(arms, [Stretch(0.0, cells)], HALF_LIFE_S).usual_s
        assert found is not None
        return found

    assert usual_s(0) == pytest.approx(0.1, rel=0.01)
    assert usual_s(60) == usual_s(0)
    assert usual_s(3000) > 1.0


def ending(fast: dict[str, int], plain: dict[str, int], *, slots: int = 24) -> Belief:
    """What is known where requests ended so in each slot."""
    arms = example_arms(2)
    chat = ClassId("chat")
    cells: dict[Cell, dict[str, int]] = {
        (arms[0].arm_id, chat, ""): plain,
        (arms[1].arm_id, chat, ""): fast,
    }
    stretches = [Stretch(10.0 * slot, cells) for slot in range(slots)]
    return knowledge(arms, stretches, 3600.0, before={chat: ()}).beliefs[chat, ""]


def test_answers_that_are_abandoned_count_as_failed_only_beyond_the_baseline_s() -> None:
    """An arm that stalls costs what repeating costs, and one that mostly does is out."""
    left = {"status.ok": 15, "status.aborted": 5, "abandoned": 5}
    alike = ending(left, left)
    assert (alike.view.failed.tolist(), dict(alike.held_back)) == ([0.0, 0.0], {})
    stalls = ending(left, {"status.ok": 20})
    assert 0.12 < stalls.view.failed[1] / (stalls.view.failed + stalls.view.served)[1] < 0.25
    assert dict(stalls.held_back) == {}
    worse = ending({"status.ok": 5, "status.aborted": 15, "abandoned": 15}, {"status.ok": 20})
    assert dict(worse.held_back) == {1: "failures"}
    turned_away = ending({"status.ok": 5, "status.aborted": 15}, {"status.ok": 20})
    assert (turned_away.view.failed.tolist(), dict(turned_away.held_back)) == ([0.0, 0.0], {})


def test_failures_are_those_of_the_same_time() -> None:
    """The arm has the traffic while a tenth fails on both, the baseline had it before."""
    arms, chat = example_arms(2), ClassId("chat")
    stretches = []
    for slot in range(240):
        mine, others, failing = (95, 5, 0.2) if slot < 120 else (10, 90, 0.0)
        cells = {
            (arm.arm_id, chat, ""): {
                "status.ok": round(n * (1 - failing)), "status.failed": round(n * failing),
            }
            for arm, n in zip(arms, (others, mine), strict=True)
        }  # fmt: skip
        stretches.append(Stretch(10.0 * slot, cells))
    view = knowledge(arms, stretches, 1e9).beliefs[chat, ""].view
    plain, fast = view.failed / (view.failed + view.served)
    assert plain == pytest.approx(1 / 95)
    assert fast == pytest.approx(plain, abs=0.005)
