"""Which share of the steps each class had."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.estimators.attribution import MIN_TOKENS, CountedTau, Row, attribute, position_rates
from policies.types import ClassId

CHAT, CODE, PROSE = ClassId("chat"), ClassId("code"), ClassId("prose")
TAU = {CHAT: 2.0, CODE: 4.0, PROSE: 1.25}
K = 5


def rows(
    seed: int = 0,
    count: int = 60,
    *,
    tau: Mapping[ClassId, float] = TAU,
    noise: float = 0.0,
    foreign: float = 0.0,
) -> list[Row]:
    """Slots in which each class makes some tokens, and somebody else some of tau 3."""
    rng = np.random.default_rng(seed)
    found = []
    for slot in range(count):
        made = {name: float(rng.integers(200, 2000)) for name in tau}
        others = foreign * float(rng.integers(200, 2000))
        steps = sum(made[name] / tau[name] for name in tau) + others / 3.0
        steps *= 1.0 + noise * float(rng.normal())
        found.append(Row(slot, sum(made.values()) + others, steps, made))
    return found


def found(
    given_rows: Sequence[Row], classes: Sequence[ClassId] = tuple(TAU)
) -> Mapping[ClassId, CountedTau]:
    """What is told of them."""
    return attribute(given_rows, classes, K)


@pytest.mark.parametrize("foreign", [0.0, 1.0])
def test_without_noise_tau_is_exact(foreign: float) -> None:
    """Also with tokens that nobody claims."""
    told = found(rows(foreign=foreign))
    assert {name: round(told[name].value, 3) for name in told} == TAU
    assert all(told[name].low <= TAU[name] <= told[name].high for name in TAU)


def test_noise_widens_the_intervals() -> None:
    """The more of it, the wider."""
    widths = [
        sum(one.high - one.low for one in found(rows(noise=noise)).values())
        for noise in (0.01, 0.05, 0.2)
    ]
    assert widths == sorted(widths)


def test_classes_always_in_proportion_are_not_told_apart() -> None:
    """Their intervals are wide, and those of others are not."""
    twins = [
        Row(
            row.slot,
            row.tokens - row.made[CODE] + row.made[CHAT],
            row.steps - row.made[CODE] / 4.0 + row.made[CHAT] / 4.0,
            {**row.made, CODE: row.made[CHAT]},
        )
        for row in rows(noise=0.01)
    ]
    told = found(twins)
    widths = {name: (told[name].high - told[name].low) / told[name].value for name in told}
    assert widths[CHAT] > 1.0
    assert widths[CODE] > 1.0
    assert widths[PROSE] < 0.1
    assert told[CHAT].low <= 2.0 <= told[CHAT].high
    assert told[CODE].low <= 4.0 <= told[CODE].high


def test_a_class_with_hardly_any_tokens_is_not_told() -> None:
    """It is left out, not called 0, and harms no other."""
    few = [
        Row(row.slot, row.tokens + 1.0, row.steps + 1.0, {**row.made, ClassId("rare"): 1.0})
        for row in rows()
    ]
    assert MIN_TOKENS > 60.0
    told = found(few, (*TAU, ClassId("rare"), ClassId("never")))
    assert sorted(told) == sorted(TAU)


def test_too_few_rows_tell_nothing() -> None:
    """Nor do rows in which nothing ran, or whose counts cannot be."""
    assert found(rows(count=11)) == {}
    assert found(rows(count=12)) != {}
    idle = [Row(slot, 0.0, 0.0, {}) for slot in range(60)]
    impossible = [Row(slot, 10.0, 11.0, {CHAT: 10.0}) for slot in range(60)]
    assert found(idle) == found(impossible) == found([]) == {}


def test_more_made_than_counted() -> None:
    """A little widens the intervals by as much; much means that servers are not the same."""

    def claimed(share: float) -> list[Row]:
        return [Row(row.slot, row.tokens / share, row.steps / share, row.made) for row in rows()]

    assert found(claimed(1.2)) == {}
    told = found(claimed(1.05))
    assert all(one.high / one.low > 1.07 for one in told.values())
    assert all(told[name].low <= TAU[name] <= told[name].high for name in TAU)


def test_estimates_stay_within_what_is_possible() -> None:
    """Where the data lead outside, the interval still has a width."""
    beyond = rows(tau={CHAT: 9.0, CODE: 1.0, PROSE: 1.0}, noise=0.02)
    told = found(beyond)
    assert all(1.0 <= one.low <= one.value <= one.high <= K + 1 for one in told.values())
    assert told[CHAT].value == pytest.approx(K + 1)
    assert told[CHAT].low < K + 1


def test_old_rows_count_less() -> None:
    """Half a weight twice is one."""
    then = rows(1, tau={**TAU, CHAT: 3.0})
    now = [Row(row.slot + 60, row.tokens, row.steps, row.made) for row in rows(2)]

    def chat(weight: float) -> float:
        old = [Row(row.slot, row.tokens, row.steps, row.made, weight) for row in then]
        return found([*old, *now])[CHAT].value

    assert chat(1.0) > chat(0.25) > chat(0.01) > 2.0
    assert chat(0.0) == pytest.approx(2.0, abs=1e-3)


@given(st.permutations(range(3)), st.integers(0, 5))
def test_the_order_of_classes_does_not_matter(order: list[int], seed: int) -> None:
    """Nor does a class that nobody asks for, whose tokens are nobody's then."""
    data = rows(seed, noise=0.03)
    names = [list(TAU)[index] for index in order]
    told, again = found(data), found(data, names)
    for name in TAU:
        assert again[name].value == pytest.approx(told[name].value, rel=1e-4)
        assert again[name].high == pytest.approx(told[name].high, rel=1e-4)


@pytest.mark.parametrize(("k", "level"), [(0, 0.95), (3, 0.0), (3, 1.0)])
def test_arguments_out_of_range(k: int, level: float) -> None:
    """Are the caller's mistake."""
    with pytest.raises(ValueError, match="k must be at least 1"):
        attribute(rows(), [CHAT], k, level)


@pytest.mark.parametrize(
    ("drafts", "accepted", "expected"),
    [
        (10, (), ()),
        (10, (5, 0, 0), (0.5, 0.0, None)),
        (0, (0,), (None,)),
        (10, (11, 5), (None, 5 / 11)),
    ],
)
def test_position_rates(
    drafts: float, accepted: tuple[float, ...], expected: tuple[float | None, ...]
) -> None:
    """Unknown where no draft got, or where counts contradict each other."""
    assert position_rates(drafts, accepted) == expected
