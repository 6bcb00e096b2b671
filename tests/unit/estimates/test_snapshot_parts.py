"""Segments and copy bands in snapshots."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.estimators.increments import effect_fields
from policies.types import ArmId, ArmView, ClassId
from router.estimates.layout import BLOCK_S, Cells, merge_cells
from router.estimates.reader import Past
from router.estimates.segments import MAX_PAIRS, MAX_SEGMENTS
from router.estimates.snapshot import Snapshot, SnapshotBuilder
from router.types import POOLED, SegmentId
from tests.support.builders import ARMS, CHAT, FAST, PLAIN

CODE = ClassId("code_gen")
A, B, COPYING = map(SegmentId, ("a", "b", "+"))
NOW_BLOCK = 15_000_000
WALL = (NOW_BLOCK + 0.5) * BLOCK_S
SPREAD = (-0.15, -0.05, 0.05, 0.15)


def requests(
    effect: float, *, part: str = "", n: int = 40, level: float = 0.0, class_id: ClassId = CHAT
) -> Cells:
    """So many requests on each arm, the fast one's cost on the log scale being `effect`."""
    cells: Cells = {}
    for arm, mean in ((PLAIN, level), (FAST, level + effect)):
        ys = [mean + SPREAD[i % 4] for i in range(n)]
        sums = {
            "n": n,
            "status.ok": n,
            "tokens": 9 * n,
            "y.s.n": n,
            "y.s.s": round(sum(ys) * 1e6),
            "y.s.q": round(sum(y * y for y in ys) * 1e6),
        }
        merge_cells(cells, {(arm, class_id, POOLED): sums})
        if part:
            merge_cells(cells, {(arm, class_id, SegmentId(part)): effect_fields(sums)})
    return cells


def together(*cells: Cells) -> Cells:
    """All of them in one block."""
    into: Cells = {}
    for of in cells:
        merge_cells(into, of)
    return into


def builder() -> SnapshotBuilder:
    """With the defaults of the configuration."""
    return SnapshotBuilder(ARMS, half_life_s=900.0, tail_limit=1.1)


def past(cells: Cells, blocks: int = 3) -> Past:
    """The same in each of the last blocks."""
    return Past({NOW_BLOCK - ago: cells for ago in range(blocks)}, NOW_BLOCK, frozenset())


def build(*cells: Cells, blocks: int = 3) -> Snapshot:
    """A first snapshot."""
    return builder().build(past(together(*cells), blocks), WALL)


def gain(snapshot: Snapshot, part: SegmentId = POOLED, arm: ArmId = FAST) -> float:
    """Gain of an arm as shown, in the class or a part."""
    known = snapshot.classes[CHAT]
    found = known.parts[part].gains[arm] if part else known.cells[arm].gain
    assert found is not None
    return found.value


def effect(view: ArmView) -> float:
    """Mean of the fast arm less the plain one's, whatever the strata."""
    mean = view.total.sum(axis=0) / view.n.sum(axis=0)
    return float(mean[1] - mean[0])


def test_without_segments_everything_is_the_class() -> None:
    """It has no parts, and its view no prior."""
    known = build(requests(-0.5)).classes[CHAT]
    assert (dict(known.parts), dict(known.bands), known.split) == ({}, {}, False)
    assert known.view.prior is None
    assert [(c, p) for c, p, _ in build(requests(-0.5)).views()] == [(CHAT, POOLED)]


def test_segments_with_data_have_views_of_their_own() -> None:
    """Disjoint, each with the others as its prior; what is in none is the rest."""
    made = build(requests(-0.5, part="a"), requests(0.4, part="b"), requests(0.0))
    known = made.classes[CHAT]
    assert set(known.parts) == {A, B}
    views = {part: view for _, part, view in made.views()}
    assert [effect(views[part]) for part in (POOLED, A, B)] == pytest.approx([0.0, -0.5, 0.4])
    for part, others in ((A, 0.2), (B, -0.25)):
        prior = views[part].prior
        assert prior is not None
        assert prior.mean[1] == pytest.approx(others, abs=0.08)
    assert gain(made, A) == pytest.approx(1 - np.exp(-0.5), abs=0.01)
    assert known.cells[FAST].tokens == 3 * 3 * 40 * 9


def test_a_segment_is_no_hidden_cause() -> None:
    """A slow segment on one arm and a fast one on the other is no gain of that arm."""
    slow, fast = requests(0.0, part="a", level=2.0), requests(0.0, part="b")
    for arm, cells in ((FAST, slow), (PLAIN, fast)):
        for key in [key for key in cells if key[0] == arm]:
            for name, value in cells[key].items():
                cells[key][name] = value // 10
    assert gain(build(slow, fast)) == pytest.approx(0.0, abs=0.01)


def test_a_segment_with_little_data_is_the_rest() -> None:
    """Its requests count there."""
    made = build(requests(-0.5), requests(0.4, part="a", n=3))
    assert set(made.classes[CHAT].parts) == set()
    assert made.classes[CHAT].view.n.sum() == pytest.approx(
        build(requests(-0.5, n=43)).classes[CHAT].view.n.sum()
    )


def test_failures_of_the_class_count_for_a_segment() -> None:
    """As at most fifty requests; what it saw itself counts in full."""
    broken = {(FAST, CHAT, POOLED): {"n": 900, "status.failed": 900}}
    view = build(requests(-0.5, part="a"), requests(0.0), broken).classes[CHAT].parts[A].view
    assert view is not None
    assert 40 < view.failed[1] < 50
    assert view.failed[0] == 0


def test_a_segment_unlike_its_class_is_an_event() -> None:
    """Once, with the time it was found; gone when the segment is."""
    made = builder()
    cells = together(requests(-0.5, part="a"), requests(0.4))
    first = made.build(past(cells), WALL)
    [event] = first.events
    assert (event.wall, event.kind, event.class_id, event.part, event.arm_id) == (
        WALL,
        "segment_differs",
        CHAT,
        A,
        FAST,
    )
    assert event.difference is not None
    assert event.difference.value == pytest.approx(-0.9, abs=0.01)
    assert event.difference.high < -0.05
    assert made.build(past(cells), WALL + 1).events == (event,)
    assert made.build(past(requests(0.4)), WALL + 2).events == ()


def test_segments_like_their_class_are_no_event() -> None:
    """However much data there is."""
    made = build(*(requests(-0.5, part=name) for name in "abc"), blocks=20)
    assert made.events == ()
    assert set(made.classes[CHAT].parts) == {A, B, "c"}


def test_a_class_whose_copy_bands_differ_is_split() -> None:
    """Then the band is told apart, for a segment too; and it is an event."""
    made = build(
        requests(-0.9, part="+"), requests(0.2), requests(-0.9, part="a+"), requests(0.2, part="a")
    )
    known = made.classes[CHAT]
    assert known.split
    assert set(known.parts) == {COPYING, "a+", A}
    views = {part: view for _, part, view in made.views()}
    assert [effect(views[SegmentId(part)]) for part in ("", "+", "a", "a+")] == pytest.approx(
        [0.2, -0.9, 0.2, -0.9]
    )
    kinds = {(event.kind, event.part) for event in made.events}
    assert ("class_splits", POOLED) in kinds
    assert {name: of.n for name, of in known.bands.items()} == {"copying": 480, "free": 480}


def test_a_class_whose_copy_bands_do_not_differ_stays_whole() -> None:
    """They are measured, and added up again for the policy."""
    made = build(requests(-0.5, part="+"), requests(-0.5), requests(-0.5, part="a+"))
    known = made.classes[CHAT]
    assert not known.split
    assert set(known.parts) == {A}
    assert {name: of.n for name, of in known.bands.items()} == {"copying": 480, "free": 240}
    assert [of.view for of in known.bands.values()] == [None, None]


def test_a_split_ends_when_the_bands_are_alike() -> None:
    """Not before: what is merely open does not put them together again."""
    made = builder()
    split = together(requests(-0.9, part="+"), requests(0.2))
    assert made.build(past(split), WALL).classes[CHAT].split
    little = together(requests(-0.4, part="+", n=12), requests(-0.4, n=12))
    assert made.build(past(little), WALL).classes[CHAT].split
    alike = together(requests(-0.4, part="+", n=400), requests(-0.4, n=400))
    assert not made.build(past(alike, 10), WALL).classes[CHAT].split
    assert made.build(past(alike, 10), WALL).events == ()


def test_the_number_of_segments_and_pairs_is_bounded() -> None:
    """The largest are told apart."""
    one = build(*(requests(0.0, part=f"s{i:03}", n=10 + i) for i in range(MAX_SEGMENTS + 9)))
    assert set(one.classes[CHAT].parts) == {f"s{i:03}" for i in range(9, MAX_SEGMENTS + 9)}
    every = build(
        *(
            requests(0.0, part=f"s{i:03}", n=10, class_id=ClassId(f"c{c}"))
            for i in range(MAX_SEGMENTS)
            for c in range(3)
        )
    )
    assert sum(len(of.parts) for of in every.classes.values()) == MAX_PAIRS


@given(
    st.dictionaries(
        st.sampled_from(["", "+", "a", "a+", "b"]),
        st.tuples(st.integers(1, 60), st.floats(-1, 1)),
        min_size=1,
    )
)
def test_what_is_told_apart_adds_up_to_the_class(parts: Mapping[str, tuple[int, float]]) -> None:
    """Observations of all views together are the class's; nothing shown of it changes."""
    cells = [requests(of, part=part, n=n) for part, (n, of) in parts.items()]
    made = build(*cells)
    whole = build({key: fields for key, fields in together(*cells).items() if not key[2]})
    views = [view for _, _, view in made.views()]
    expected = whole.classes[CHAT].view
    assert sum(view.n.sum(axis=0) for view in views) == pytest.approx(expected.n.sum(axis=0))
    assert sum(view.total.sum(axis=0) for view in views) == pytest.approx(
        expected.total.sum(axis=0), abs=1e-6
    )
    for arm in (PLAIN, FAST):
        one, other = made.classes[CHAT].cells[arm], whole.classes[CHAT].cells[arm]
        assert (one.ended, one.tokens, one.share) == (other.ended, other.tokens, other.share)
