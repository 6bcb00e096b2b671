"""What requests add to the sides of experiments."""

from __future__ import annotations

from policies.estimators.increments import costs_by_kind, with_effects
from policies.types import ArmId, ClassId, Status, Trial
from router.experiments.cells import (
    HOLDOUT,
    add_holdout,
    at_bucket,
    by_bucket,
    side_arm,
    side_cells,
    tried_in,
    tried_sums,
)
from router.experiments.evidence import SHARES
from router.experiments.model import ExperimentName, Variant
from router.types import POOLED

CHAT = ClassId("chat")
HELD = side_arm(HOLDOUT, 0, Variant.TREATMENT)
TRY = side_arm(ExperimentName("try"), 2, Variant.CONTROL)
TRIAL = Trial(
    CHAT, ArmId("a"), Status.OK, streamed=True, propensity=1.0,
    ttft_s=0.3, tpot_s=0.02, e2e_s=2.3, tokens=101,
)  # fmt: skip


def test_a_side_of_an_experiment_holds_times_that_no_other_cell_holds() -> None:
    """Neither the arm's own cell nor the holdout's, which all requests add to."""
    sums, _ = with_effects(TRIAL, 300)
    of_sides = tried_sums((HELD, TRY), TRIAL, sums)
    cells = dict(side_cells((HELD, TRY), CHAT, of_sides, costs_by_kind(sums)))
    times = {
        side: {name for name in cells[side, CHAT, POOLED] if name.startswith("t.")}
        for side in (HELD, TRY)
    }
    assert times[HELD] == set()
    assert {name.split(".")[1] for name in times[TRY]} == {"tpot", "ttft", "e6"}
    assert not any(name.startswith("t.") for name in sums)


def test_who_is_in_no_experiment_pays_for_none() -> None:
    """The very same sums."""
    sums, _ = with_effects(TRIAL, 300)
    assert tried_in((HELD,)) == ()
    assert tried_sums((HELD,), TRIAL, sums) is sums


def test_the_holdout_counts_the_log_cost_of_streams() -> None:
    """On the side that the request is on."""
    sums = costs_by_kind(with_effects(TRIAL, 300)[0])
    counts: dict[str, int] = {}
    add_holdout(counts, (TRY,), sums)
    assert counts == {}
    add_holdout(counts, (HELD,), sums)
    assert counts == {f"rest.{name}": sums[name] for name in ("y.s.n", "y.s.s", "y.s.q")}


def test_a_bucket_takes_what_noise_is_reckoned_from() -> None:
    """In the cell of the side; no tail and no histogram is kept twice."""
    sums, _ = with_effects(TRIAL, 300)
    sides = (at_bucket(HELD, 31, 0.005), at_bucket(TRY, 4))
    of_sides = tried_sums(sides, TRIAL, sums)
    cells = dict(side_cells(sides, CHAT, of_sides, costs_by_kind(sums)))
    whole, parts = by_bucket(cells[TRY, CHAT, POOLED])
    assert whole == of_sides
    assert {name: of[4] for name, of in parts.items()} == {
        name: n
        for name, n in of_sides.items()
        if name == "n" or (name[:2] in ("y.", "t.") and name[-1] in "ns")
    }
    assert all(of.sum() == of[4] for of in parts.values())
    whole, parts = by_bucket(cells[HELD, CHAT, POOLED])
    assert whole == {"n": 1, **costs_by_kind(sums)}
    assert set(parts) == {"n", "y.s.n", "y.s.s"}


def test_the_holdout_is_told_apart_by_share_and_bucket() -> None:
    """Whose share was another is compared with its own."""
    sums = costs_by_kind(with_effects(TRIAL, 300)[0])
    counts: dict[str, int] = {}
    add_holdout(counts, (at_bucket(HELD, 3, 0.005),), sums)
    stems = {name.rpartition("y.s.")[0] for name in counts}
    assert stems == {"rest=5000.", "rest=5000.u03."}
    assert len(counts) == 5


def test_guards_of_shares_find_their_sums_in_buckets() -> None:
    """All of them: else a design effect would be unknown for ever."""
    names = {name for pair in SHARES.values() for name in pair}
    sums = dict.fromkeys(names, 1)
    side = at_bucket(TRY, 0)
    _, parts = by_bucket(dict(side_cells((side,), CHAT, sums, {}))[TRY, CHAT, POOLED])
    assert set(parts) == names
