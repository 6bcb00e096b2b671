"""From sums to what is known."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.cost import typical_tokens
from policies.estimators.cells import increments
from policies.estimators.increments import effect_fields
from policies.estimators.series import BlockSum
from policies.estimators.tau import Tau
from policies.estimators.verdict import Verdict
from policies.types import Arm, ArmId, ClassId, Source, SpecUsage, Status, Trial
from router.estimates.layout import BLOCK_S, Cells, merge_cells
from router.estimates.reader import Past
from router.estimates.snapshot import Snapshot, SnapshotBuilder
from router.estimates.summary import TAILS, CellSummary
from router.types import POOLED, SegmentId
from tests.support.builders import ARMS, CHAT, FAST, PLAIN

CODE = ClassId("code_gen")
NOW_BLOCK = 15_000_000
WALL = (NOW_BLOCK + 0.5) * BLOCK_S


def trial(
    arm: ArmId = FAST, status: Status = Status.OK, *, tpot_s: float = 0.02, class_id: ClassId = CHAT
) -> Trial:
    """A streamed request of 100 tokens."""
    spec = SpecUsage(steps=40, drafted=150, accepted=60) if arm == FAST else SpecUsage(100, 0, 0)
    return Trial(
        class_id=class_id,
        arm_id=arm,
        status=status,
        streamed=True,
        propensity=0.5,
        ttft_s=0.1,
        tpot_s=tpot_s,
        e2e_s=0.1 + 99 * tpot_s,
        tokens=100,
        spec=spec,
    )


def sums(*trials: Trial) -> Cells:
    """What these requests add to their block."""
    cells: Cells = {}
    for item in trials:
        added = increments(item, typical_tokens(item.class_id))
        merge_cells(cells, {(item.arm_id, item.class_id, POOLED): added})
    return cells


def past(blocks: Mapping[int, Cells], *, complete: frozenset[int] = frozenset()) -> Past:
    """Blocks counted back from now."""
    return Past({NOW_BLOCK - ago: cells for ago, cells in blocks.items()}, NOW_BLOCK, complete)


def builder(arms: tuple[Arm, ...] = ARMS, half_life_s: float = 900.0) -> SnapshotBuilder:
    """With the defaults of the configuration."""
    return SnapshotBuilder(arms, half_life_s=half_life_s, tail_limit=1.1)


def build(blocks: Mapping[int, Cells]) -> Snapshot:
    """A first snapshot."""
    return builder().build(past(blocks), WALL)


def cell(snapshot: Snapshot, arm: ArmId = FAST) -> CellSummary:
    """The chat cell of an arm."""
    return snapshot.classes[CHAT].cells[arm]


def test_nothing_known_is_no_class() -> None:
    """And a moment, and the arms."""
    made = build({})
    assert (made.version, made.built_wall, made.arms, made.classes) == (1, WALL, ARMS, {})


def test_a_cell_shows_its_sums() -> None:
    """Over all blocks of the window."""
    made = build({0: sums(trial(), trial(status=Status.FAILED)), 9: sums(trial(), trial(PLAIN))})
    shown = cell(made)
    assert dict(shown.ended) == {
        Status.OK: 2,
        Status.FAILED: 1,
        Status.REJECTED: 0,
        Status.ABORTED: 0,
    }
    assert (shown.tokens, shown.acceptance.requests, shown.sources) == (200, 2, {Source.REQUEST: 2})
    assert shown.acceptance_length == pytest.approx(2.5)
    assert shown.acceptance.draft_rate == pytest.approx(0.4)
    assert shown.latency["ttft"].n == 2
    assert shown.whole == {}
    tpot = shown.latency["tpot"].p50
    assert tpot is not None
    assert tpot.value == pytest.approx(0.02, rel=0.1)


def test_what_was_not_measured_is_none() -> None:
    """Never 0: an arm that nobody used has neither times nor acceptance nor a verdict of gain."""
    shown = cell(build({0: sums(trial(PLAIN))}))
    assert (shown.acceptance_length, shown.acceptance_rate, shown.acceptance.draft_rate) == (
        None,
        None,
        None,
    )
    assert {(q.n, q.p50, q.p95, q.p99) for q in shown.latency.values()} == {(0, None, None, None)}
    assert shown.comparison is not None
    assert shown.comparison.tails == dict.fromkeys(TAILS)
    assert (shown.gain, shown.verdict) == (None, Verdict.NOT_ENOUGH_DATA)


def test_the_baseline_is_what_everything_is_compared_with() -> None:
    """So it has no verdict itself."""
    many = [trial(arm, tpot_s=s) for arm, s in ((PLAIN, 0.04), (FAST, 0.02)) for _ in range(40)]
    made = build({ago: sums(*many) for ago in range(3)})
    assert (cell(made, PLAIN).gain, cell(made, PLAIN).verdict) == (None, None)
    gain = cell(made).gain
    assert gain is not None
    assert gain.value == pytest.approx(0.5, abs=0.05)
    assert cell(made).verdict is Verdict.GAIN


def test_only_requests_of_the_same_time_are_compared() -> None:
    """A pool that ran at night is not faster than one that ran at noon."""
    made = build(
        {0: sums(*[trial(PLAIN, tpot_s=0.04)] * 50), 5: sums(*[trial(FAST, tpot_s=0.02)] * 50)}
    )
    assert cell(made).verdict is Verdict.NOT_ENOUGH_DATA


def test_shares_are_those_of_the_last_minutes() -> None:
    """Of the class; None when it had no requests."""
    made = build(
        {
            0: sums(trial(), trial(), trial(PLAIN)),
            1: sums(trial(PLAIN)),
            2: sums(*[trial()] * 50, trial(class_id=CODE)),
        }
    )
    assert (cell(made).share, cell(made, PLAIN).share) == (0.5, 0.5)
    assert made.classes[CODE].cells[FAST].share is None


@pytest.mark.parametrize(
    ("method", "k", "form"),
    [
        ("draft_model", 4, "equal_alpha"),
        ("draft_model", None, None),
        ("ngram", 4, None),
        ("suffix", 4, None),
        ("none", 4, None),
    ],
)
def test_acceptance_is_solved_only_where_every_step_drafts(
    method: str, k: int | None, form: str | None
) -> None:
    """A look-up method whose steps often draft nothing would get a number without a meaning."""
    arms = (ARMS[0], Arm(FAST, method, k))
    shown = cell(builder(arms).build(past({0: sums(trial())}), WALL))
    assert (shown.acceptance.form, shown.acceptance_rate is None) == (form, form is None)


def test_acceptance_by_position_is_measured_where_the_engine_tells() -> None:
    """Worked example of the design: 39/1/0/3 with k 3 is 10 accepted of 50 tries."""
    spec = SpecUsage(43, 129, 10, (39, 1, 0, 3), num_speculative_tokens=3)
    item = Trial(CHAT, FAST, Status.OK, True, 0.5, tokens=53, spec=spec)  # noqa: FBT003
    shown = cell(build({0: sums(item)}))
    assert shown.acceptance_rate == pytest.approx(0.2)
    assert (shown.acceptance.form, round(shown.acceptance_length or 0, 2)) == ("histogram", 1.23)
    assert shown.acceptance.draft_rate == pytest.approx(10 / 129)


def test_the_policy_s_view_forgets_what_people_still_see() -> None:
    """A block one half-life old counts half."""
    made = builder(half_life_s=BLOCK_S).build(past({1: sums(trial()), 2: sums(trial())}), WALL)
    view = made.classes[CHAT].view
    assert view.n.sum() == pytest.approx(2**-0.5 + 2**-1.5)
    assert cell(made).ended[Status.OK] == 2


def test_arms_that_left_the_route_are_left_out() -> None:
    """Their sums stay in the store until they expire."""
    made = build({0: sums(trial(), trial(ArmId("gone")))})
    assert set(made.classes[CHAT].cells) == {PLAIN, FAST}
    assert made.classes[CHAT].view.arms == ARMS
    assert cell(made).share == 1.0


def test_garbage_in_the_store_costs_itself_only() -> None:
    """Fields nobody understands, negative counts."""
    cells = sums(trial())
    cells[FAST, CHAT, POOLED] |= {"nonsense": 7, "tokens": -5}
    shown = cell(build({0: cells}))
    assert (shown.ended[Status.OK], shown.tokens) == (1, None)


def test_a_snapshot_is_built_in_pieces() -> None:
    """One for each class at least, and the last piece is the snapshot."""
    *pieces, last = builder().steps(past({0: sums(trial(), trial(class_id=CODE))}), WALL)
    assert len(pieces) >= 2
    assert pieces == [None] * len(pieces)
    assert isinstance(last, Snapshot)
    assert list(last.classes) == [CHAT, CODE]


TRIALS = st.builds(
    trial,
    st.sampled_from([FAST, PLAIN]),
    st.sampled_from(Status),
    tpot_s=st.sampled_from([0.01, 0.02, 0.05]),
    class_id=st.sampled_from([CHAT, CODE]),
)


@given(st.lists(st.lists(TRIALS, max_size=4), min_size=1, max_size=8))
def test_remembering_complete_blocks_changes_nothing(minutes: list[list[Trial]]) -> None:
    """Snapshots in a row equal those that are built from nothing."""
    remembering = builder()
    for count in range(1, len(minutes) + 1):
        blocks = {NOW_BLOCK + at: sums(*items) for at, items in enumerate(minutes[:count])}
        newest = NOW_BLOCK + count - 1
        oldest = newest - 4  # the window moves on
        blocks = {at: cells for at, cells in blocks.items() if at >= oldest}
        seen = Past(blocks, newest, frozenset(at for at in blocks if at < newest))
        wall = (newest + 0.5) * BLOCK_S
        one, other = remembering.build(seen, wall), builder().build(seen, wall)
        assert one.version == count
        assert one.classes.keys() == other.classes.keys()
        for class_id, known in one.classes.items():
            assert known.cells == other.classes[class_id].cells
            np.testing.assert_array_equal(known.view.n, other.classes[class_id].view.n)


def test_counters_tell_tau_where_no_request_does() -> None:
    """With their interval, and said to be theirs."""
    silent = Trial(CHAT, FAST, Status.OK, True, 0.5, tokens=100)  # noqa: FBT003
    told = Counted()
    made = builder().build(past({0: sums(silent)}), WALL, {(FAST, CHAT): told})
    acceptance = cell(made).acceptance
    assert (acceptance.source, acceptance.tau) == (Source.COUNTERS, Tau(1.5, 1.25, 1.75))
    both = builder().build(past({0: sums(trial())}), WALL, {(FAST, CHAT): told})
    assert cell(both).acceptance.source is Source.REQUEST


@dataclass(frozen=True)
class Counted:
    """What counters told."""

    value: float = 1.5
    low: float = 1.25
    high: float = 1.75
    tokens: float = 100.0


def loaded(band: int, tpot_s: Mapping[ArmId, float], n: int = 40) -> Cells:
    """Requests in a load band, with a little noise."""
    cells: Cells = {}
    for arm, seconds in tpot_s.items():
        for i in range(n):
            item = trial(arm, tpot_s=seconds * (0.9, 1.0, 1.1)[i % 3])
            added = increments(item, typical_tokens(CHAT))
            merge_cells(cells, {(arm, CHAT, POOLED): added})
            merge_cells(cells, {(arm, CHAT, SegmentId(f"~{band}")): effect_fields(added)})
    return cells


def test_gain_is_shown_by_load() -> None:
    """Speculation that pays while servers are idle and costs when they are full."""
    idle, full = loaded(0, {PLAIN: 0.02, FAST: 0.01}), loaded(3, {PLAIN: 0.02, FAST: 0.03})
    made = build({0: idle, 1: full, 2: idle, 3: full})
    assert made.classes[CHAT].parts == {}
    compared = cell(made).comparison
    assert compared is not None
    assert set(compared.by_load) == {0, 3}
    quiet, busy = compared.by_load[0], compared.by_load[3]
    assert quiet is not None
    assert busy is not None
    assert quiet.low > 0.0 > busy.high
    assert compared.gain is not None
    assert busy.value < compared.gain.value < quiet.value


def test_load_bands_change_nothing_else() -> None:
    """They count the same requests again."""
    cells = loaded(2, {PLAIN: 0.02, FAST: 0.01})
    whole = {key: fields for key, fields in cells.items() if not key[2]}
    one, other = build({0: cells}), build({0: whole})
    assert one.classes[CHAT].view.n.tolist() == other.classes[CHAT].view.n.tolist()
    assert cell(one).gain == cell(other).gain


def test_the_interval_of_one_look_is_the_narrower() -> None:
    """Verdicts rest on the other."""
    many = [
        trial(arm, tpot_s=s * (0.8, 1.0, 1.2)[i % 3])
        for arm, s in ((PLAIN, 0.04), (FAST, 0.02))
        for i in range(40)
    ]
    compared = cell(build({ago: sums(*many) for ago in range(3)})).comparison
    assert compared is not None
    assert compared.gain is not None
    assert compared.gain_once is not None
    assert compared.gain.low < compared.gain_once.low < compared.gain.value
    assert compared.gain_once.value == compared.gain.value


@pytest.mark.parametrize(("slow", "expected"), [(0.2, Verdict.LOSS), (0.011, Verdict.GAIN)])
def test_a_broken_tail_is_a_loss(slow: float, expected: Verdict) -> None:
    """However much the mean gains: one answer in ten takes ten times as long."""
    many = [trial(PLAIN, tpot_s=0.02 + 0.0001 * (i % 9)) for i in range(200)]
    many += [trial(FAST, tpot_s=0.01 if i % 10 else slow) for i in range(200)]
    made = build({ago: sums(*many) for ago in range(2)})
    compared = cell(made).comparison
    assert compared is not None
    assert compared.gain is not None
    assert compared.gain.low > 0.0
    assert compared.verdict is expected


def parts(shares: Mapping[str, int]) -> Cells:
    """Answers of the fast arm: easy ones of 4 tokens a step, hard ones of 2; the plain one's."""
    cells: Cells = {}
    for part, steps in (("easy", 25), ("hard", 50)):
        for arm, n in ((FAST, shares[part]), (PLAIN, 30)):
            spec = SpecUsage(steps=steps if arm == FAST else 100)
            item = replace(trial(arm), spec=spec)
            added = {
                name: value * n for name, value in increments(item, typical_tokens(CHAT)).items()
            }
            merge_cells(cells, {(arm, CHAT, POOLED): added})
            merge_cells(cells, {(arm, CHAT, SegmentId(part)): effect_fields(added)})
    return cells


def test_tau_is_shown_of_the_answers_and_of_the_class() -> None:
    """A policy that gives the arm nine easy requests for each hard one does not show in the second.

    Of the class's tokens, 30 + 90 and 30 + 10 requests of 100 each, three quarters are easy.
    """
    made = build({ago: parts({"easy": 90, "hard": 10}) for ago in range(8)})
    acceptance = cell(made).acceptance
    assert acceptance.tau is not None
    assert acceptance.tau_of_class is not None
    assert acceptance.tau.value == pytest.approx(100 / (0.9 * 25 + 0.1 * 50))
    assert acceptance.tau_of_class.value == pytest.approx(100 / (0.75 * 25 + 0.25 * 50))


def test_series_are_there_for_a_detector() -> None:
    """By arm and block; a detector's find is an event and shortens what the policy sees."""

    @dataclass(frozen=True)
    class Found:
        block: int
        before: float = 0.5
        after: float = 1.0

    def newest(series: Sequence[BlockSum]) -> Found:
        return Found(series[-1].block)

    blocks = {ago: sums(*[trial(), trial(PLAIN)] * 5) for ago in range(3)}
    known = build(blocks).classes[CHAT]
    assert [one.block for one in known.series[FAST].steps] == [
        NOW_BLOCK - 2,
        NOW_BLOCK - 1,
        NOW_BLOCK,
    ]
    assert [one.n for one in known.series[FAST].cost] == pytest.approx([5.0] * 3)
    assert known.series[PLAIN].cost == ()
    watched = SnapshotBuilder(ARMS, half_life_s=900.0, tail_limit=1.1, detect=newest)
    made = watched.build(past(blocks, complete=frozenset({NOW_BLOCK - 2, NOW_BLOCK - 1})), WALL)
    assert {event.kind for event in made.events} == {"drift"}
    assert made.classes[CHAT].view.n[:, 1].tolist() == pytest.approx([5 * 2 ** (-60 / 900), 5.0])
    assert (cell(made).ended[Status.OK], cell(made).since) == (10, (NOW_BLOCK - 1) * BLOCK_S)


def test_a_pool_that_mostly_fails_has_no_gain() -> None:
    """Its few answers are twice as fast: that is the gain of those, and not the verdict."""
    well = [trial(FAST, tpot_s=0.01), *[trial(FAST, Status.FAILED)] * 9]
    blocks = {ago: sums(*well * 5, *[trial(PLAIN)] * 50) for ago in range(5)}
    compared = cell(build(blocks)).comparison
    assert compared is not None
    assert compared.gain is not None
    assert compared.gain.low > 0.0
    assert compared.verdict is Verdict.LOSS
