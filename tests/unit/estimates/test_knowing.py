"""What policies that know the whole route are told: the same as from all sums at once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from policies.cost import typical_tokens
from policies.estimators.cells import add_counts, increments
from policies.estimators.increments import effect_fields
from policies.estimators.knowledge import Expectations, Stretch, knowledge
from policies.guard import TAIL
from policies.knowledge import Knowledge
from policies.types import Arm, ArmId, ClassId, SpecUsage, Status, Trial
from router.estimates.extras import more_cells
from router.estimates.knowing import PARTS_A_LOOK, Knowing, policy_part
from router.estimates.layout import BLOCK_S, Cells
from router.estimates.reader import Past
from router.types import POOLED, SegmentId
from tests.support.applications import APART, HEAVY, LIGHT, NOTHING, block
from tests.support.builders import CHAT, FAST, PLAIN
from tests.support.pieces import result

ARMS = (Arm(PLAIN, "none", baseline=True), Arm(FAST, "eagle3", 3))
NOW = 1_000
WALL = (NOW + 0.5) * BLOCK_S
MATH = ClassId("math")


def trial(seed: int) -> Trial:
    """One of many different requests."""
    rng = np.random.default_rng(seed)
    arm = ArmId(str(rng.choice([PLAIN, FAST])))
    steps = int(rng.integers(40, 200))
    tokens = steps if arm == PLAIN else steps * 2
    return Trial(
        ClassId(str(rng.choice([CHAT, MATH]))),
        arm,
        Status.OK if rng.random() < 0.9 else Status.FAILED,
        streamed=True,
        propensity=0.5,
        ttft_s=float(rng.uniform(0.1, 0.4)),
        tpot_s=float(rng.uniform(0.01, 0.02)),
        e2e_s=3.0,
        tokens=tokens,
        spec=SpecUsage(steps, steps * 3, tokens - steps) if arm == FAST else None,
        load=int(rng.integers(1, 60)),
        prompt_tokens=int(rng.integers(50, 900)),
    )


def cells(seeds: range, *parts: str) -> Cells:
    """A block of requests, some of them in parts."""
    made: Cells = {}
    for seed in seeds:
        one = trial(seed)
        sums = increments(one, typical_tokens(one.class_id))
        keys: list[Any] = [((one.arm_id, one.class_id, POOLED), sums)]
        if parts:
            name = SegmentId(parts[seed % len(parts)])
            keys.append(((one.arm_id, one.class_id, name), sums))
        for key, added in (*keys, *more_cells(one, effect_fields(sums), {PLAIN})):
            made[key] = add_counts(made.get(key, {}), added)
    return made


def past(*blocks: Cells, complete: bool = True) -> Past:
    """Blocks up to now; the newest one grows."""
    numbered = {NOW - len(blocks) + 1 + at: block for at, block in enumerate(blocks)}
    done = frozenset(number for number in numbered if number < NOW) if complete else frozenset()
    return Past(numbered, NOW, done)


def looked(
    knowing: Knowing, of: Past, parts: Mapping[ClassId, tuple[SegmentId, ...]] | None = None
) -> Knowledge:
    """All pieces of a look."""
    return result(knowing.look(of, parts or {}, WALL))


def same(one: Knowledge, other: Knowledge) -> None:
    """Equal in all figures."""
    assert one.arms == other.arms
    assert one.beliefs.keys() == other.beliefs.keys()
    for key, belief in one.beliefs.items():
        for name in ("n", "tokens", "steps", "tt", "ts", "ss"):
            np.testing.assert_allclose(
                getattr(belief.drafting, name), getattr(other.beliefs[key].drafting, name)
            )
        np.testing.assert_allclose(belief.view.total, other.beliefs[key].view.total)
        np.testing.assert_allclose(belief.view.failed, other.beliefs[key].view.failed)
        assert belief.held_back == other.beliefs[key].held_back
    for name in ("n", "load", "total", "total_sq"):
        np.testing.assert_allclose(getattr(one.steps, name), getattr(other.steps, name))
        np.testing.assert_allclose(getattr(one.prefill, name), getattr(other.prefill, name))
    assert one.usual_s == pytest.approx(other.usual_s)
    for class_id, costs in one.costs.items():
        np.testing.assert_allclose(costs, other.costs[class_id])


def at_once(of: Past) -> Knowledge:
    """From all cells in one go."""
    stretches = [
        Stretch(
            WALL - (number + 1) * BLOCK_S,
            {(a, c, str(p)): sums for (a, c, p), sums in block.items()},
        )
        for number, block in of.blocks.items()
    ]
    return knowledge(ARMS, stretches, 900.0)


def test_it_is_the_same_as_from_all_sums_at_once() -> None:
    """Also when most of it was laid out before."""
    of = past(cells(range(60)), cells(range(60, 110)), cells(range(110, 150)))
    knowing = Knowing(ARMS, Expectations(), 900.0)
    same(looked(knowing, of), at_once(of))
    same(looked(knowing, of), at_once(of))


def test_a_block_that_grew_is_read_again() -> None:
    """Only those that are complete are kept."""
    knowing = Knowing(ARMS, Expectations(), 900.0)
    looked(knowing, past(cells(range(60)), cells(range(60, 70))))
    grown = past(cells(range(60)), cells(range(60, 120)))
    same(looked(knowing, grown), at_once(grown))


def test_only_parts_that_are_told_apart_are_known() -> None:
    """Under the names that show what they are parts of, and these with them."""
    of = past(cells(range(80), "a1", "a1+", "+", "a2"))
    known = looked(Knowing(ARMS, Expectations(), 900.0), of, {CHAT: (SegmentId("a1+"),)})
    assert {part for _, part in known.beliefs} == {"", "+", "+/a1"}
    assert policy_part(SegmentId("+")) == "+"


def test_parts_take_turns() -> None:
    """All are known at once when they are new; then so many are brought up to date at a look."""
    names = tuple(f"s{number:02}" for number in range(40))
    parts = {CHAT: tuple(map(SegmentId, names)), MATH: ()}
    knowing = Knowing(ARMS, Expectations(), 900.0)
    first = looked(knowing, past(cells(range(800), *names)), parts)
    assert {part for class_id, part in first.beliefs if class_id == CHAT} == {"", *names}
    second = looked(knowing, past(cells(range(900), *names)), parts)
    fresh = [
        key for key, belief in second.beliefs.items() if key[1] and belief is not first.beliefs[key]
    ]
    assert len(fresh) == PARTS_A_LOOK


def test_nothing_is_known_of_an_empty_past() -> None:
    """And nothing fails."""
    known = looked(Knowing(ARMS, Expectations(), 900.0), Past({}, NOW, frozenset()))
    assert known.beliefs == {}
    assert not known.steps.n.any()


def test_a_part_counts_for_what_it_is_a_part_of() -> None:
    """What is known of greedy requests is that of all applications' greedy ones."""
    knowing = Knowing(ARMS, Expectations(), 3600.0)
    names = ("greedy-a1", "greedy-b2")
    told = {CHAT: tuple(SegmentId(name) for name in names)}
    known = looked(knowing, past(cells(range(300), *names)), told)
    one, other, both = (
        known.beliefs[CHAT, name].view.served.sum() for name in ("greedy/a1", "greedy/b2", "greedy")
    )
    assert one > 0.0
    assert other > 0.0
    assert both == pytest.approx(one + other)


def held_back(shares: Mapping[SegmentId, float], gain: Mapping[SegmentId, float]) -> dict[int, str]:
    """Arms that the guard takes out of a class of two applications."""
    rng = np.random.default_rng(0)
    blocks = [block(rng, gain, shares) for _ in range(10)]
    knowing = Knowing(ARMS, Expectations(), 900.0)
    known = looked(knowing, past(*blocks), {CHAT: (HEAVY, LIGHT)})
    return dict(known.beliefs[CHAT, ""].held_back)


def test_a_tail_of_other_applications_holds_no_arm_back() -> None:
    """One that answers the slow application has its tail; one that slows both down is held back."""
    assert held_back(APART, NOTHING) == {}
    assert held_back({HEAVY: 0.5, LIGHT: 0.5}, {HEAVY: -1.0, LIGHT: 0.5}) == {1: TAIL}
