"""Other uses of the same servers."""

from __future__ import annotations

from dataclasses import replace

import pytest

from policies.fleet_plan import plan
from policies.recommend import Acceptance, Bounds, Point, Pool
from policies.types import ArmId, ClassId

CHAT, EDIT = ClassId("chat"), ClassId("code_edit")
MIX = {CHAT: 600.0, EDIT: 400.0}


def near(value: float, share: float = 0.01) -> Bounds:
    """A value known to so much of it."""
    return Bounds(value, value * (1.0 - share), value * (1.0 + share))


def pool(
    name: str, slope: float = 0.0002, *, load: float = 4.0, share: float = 0.01, **taus: float
) -> Pool:
    """A pool of two servers with tokens per step by class; plain without."""
    k = 4 if taus else 0
    return Pool(
        ArmId(name),
        "eagle3" if k else "none",
        k,
        2,
        load,
        tuple(
            Point(float(at), near(0.008 * (1.2 if k else 1.0) + slope * at, share))
            for at in (1, 2, 4, 8, 16, 32, 64)
        ),
        {ClassId(name): Acceptance(500, near(tau, share), alpha=0.5) for name, tau in taus.items()},
        baseline=not k,
    )


PLAIN = pool("plain")


def test_each_class_goes_where_it_is_fastest() -> None:
    """And then the split pays against any single method."""
    pools = [PLAIN, pool("draft", chat=2.6, code_edit=1.3), pool("copy", chat=1.05, code_edit=3.5)]
    found = plan(pools, MIX)
    assert found.split is not None
    assert found.split.classes == {CHAT: "draft", EDIT: "copy"}
    assert found.single is not None
    assert all(change.gain.high < 0.0 for change in found.single.values())
    assert found.single.keys() == {"plain", "draft", "copy"}


def test_a_split_over_a_method_that_wins_everywhere_loses() -> None:
    """The same servers all on it are faster, for no class waits in a fuller pool."""
    pools = [
        replace(pool("plain", 0.001, load=8.0)),
        pool("draft", 0.001, load=8.0, chat=2.6, code_edit=2.8),
        pool("copy", 0.001, load=8.0, chat=1.1, code_edit=1.2),
    ]
    found = plan(pools, MIX)
    assert found.single is not None
    assert found.single[ArmId("draft")].shown
    assert found.single[ArmId("draft")].gain.low > 0.0
    assert not found.single[ArmId("copy")].shown
    assert found.moves[0].shown
    assert "to draft" in found.moves[0].what


def test_one_more_server_is_worth_most_where_the_load_is() -> None:
    """Not in a pool that serves nothing."""
    pools = [
        pool("plain", 0.001, load=8.0),
        pool("draft", 0.001, load=8.0, chat=2.6, code_edit=2.8),
        pool("copy", 0.001, load=8.0, chat=1.1, code_edit=1.2),
    ]
    found = plan(pools, MIX)
    assert found.additions[0].what == "one more server in draft"
    assert found.additions[0].shown
    assert len(found.additions) == 3


def test_the_baseline_keeps_a_server() -> None:
    """Without it nothing can be compared."""
    found = plan([PLAIN, pool("draft", chat=2.6, code_edit=2.8)], MIX)
    whats = [change.what for change in found.moves]
    assert "1 of plain to draft" in whats
    assert not any(what.startswith("retire plain") for what in whats)
    assert any(what.startswith("retire draft") for what in whats)


def test_what_is_not_known_is_not_shown() -> None:
    """Wide intervals show no gain either way."""
    pools = [pool("plain", share=0.5), pool("draft", share=0.5, chat=1.3, code_edit=1.3)]
    found = plan(pools, MIX)
    assert found.single is not None
    assert not any(change.shown for change in (*found.single.values(), *found.moves))


def test_a_pool_that_knows_too_few_classes_is_not_judged_alone() -> None:
    """It is said, and it can still serve those it knows."""
    found = plan([PLAIN, pool("draft", chat=2.6)], MIX)
    assert found.split is not None
    assert found.split.classes == {CHAT: "draft", EDIT: "plain"}
    assert found.single is not None
    assert ArmId("draft") not in found.single
    assert found.lacking == ("draft: too little of code_edit to know it alone",)


@pytest.mark.parametrize(
    "pools", [[], [PLAIN], [PLAIN, replace(pool("draft", chat=2.0), points=())]]
)
def test_fewer_than_two_known_pools_are_not_compared(pools: list[Pool]) -> None:
    """Not enough data."""
    found = plan(pools, MIX)
    assert found.split is None
    assert any("fewer than two" in why for why in found.lacking)


def test_loads_that_were_not_seen_are_told() -> None:
    """All requests on few servers may go beyond the curve."""
    pools = [pool("plain", load=80.0), pool("draft", load=80.0, chat=2.6, code_edit=2.8)]
    found = plan(pools, MIX)
    retire = next(change for change in found.moves if change.what.startswith("retire draft"))
    assert retire.outside
