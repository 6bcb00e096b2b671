"""What the store is told, and under which keys."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from hypothesis import given
from hypothesis import strategies as st

from router.estimates.layout import (
    HOUR_TTL_S,
    MADE_SLOTS,
    MONTH_TTL_S,
    SLOTS_PER_HOUR,
    RouteKeys,
)
from router.estimates.ledger import MAX_TENANTS, OTHER
from router.estimates.pending import MAX_SLOT_PARTS, Bounds, Pending
from router.types import POOLED, SegmentId, TenantId
from tests.support.builders import CHAT, FAST, PLAIN

KEYS = RouteKeys("p", "m")
HOUR = 500_000
NOW = HOUR * SLOTS_PER_HOUR + 20
WHOLE, PART = (FAST, CHAT, POOLED), (FAST, CHAT, SegmentId("a1"))


def told(pending: Pending, now: int = NOW) -> Mapping[str, Mapping[str, int]]:
    """What a store would hold."""
    held: dict[str, Counter[str]] = {}
    for addition in pending.additions(KEYS, now, 100):
        for key in addition.keys:
            for stem, fields in addition.increments.items():
                for name, value in fields.items():
                    held.setdefault(key, Counter())[stem + name] += value
    return held


def test_a_class_counts_in_its_slot_and_its_hour_and_a_part_in_the_slot_alone() -> None:
    """Each kept for its own time."""
    pending = Pending()
    pending.add(NOW, [(WHOLE, {"n": 2, "tokens": 9}), (PART, {"n": 2})])
    assert told(pending) == {
        KEYS.slot(NOW): {"fast|chat|n": 2, "fast|chat|tokens": 9, "fast|chat|a1|n": 2},
        KEYS.hour(HOUR): {"fast|chat|n": 2, "fast|chat|tokens": 9},
    }
    kept = [addition.keys for addition in pending.additions(KEYS, NOW, 100)]
    assert kept == [{KEYS.slot(NOW): 100, KEYS.hour(HOUR): HOUR_TTL_S}, {KEYS.slot(NOW): 100}]


def test_a_tenant_counts_in_its_month() -> None:
    """For more than a year."""
    pending = Pending()
    pending.add_ledger("2026-11", TenantId("t1"), {"n": 1, "tokens": 5})
    pending.add_ledger("2026-11", TenantId("t1"), {"n": 1})
    pending.add_ledger("2026-11", TenantId("t2"), {"n": 1})
    [addition] = pending.additions(KEYS, NOW, 100)
    assert addition.increments == {"t1|": {"n": 2, "tokens": 5}, "t2|": {"n": 1}}
    assert addition.keys == {KEYS.month("2026-11"): MONTH_TTL_S}


def test_made_tokens_count_in_the_slot_they_were_made_in() -> None:
    """Long past ones too, as long as that slot may grow."""
    pending = Pending()
    for arm, tokens in ((FAST, 3), (PLAIN, 4), (FAST, 5)):
        pending.add_made(NOW - MADE_SLOTS, (arm, CHAT), tokens)
    assert told(pending) == {KEYS.made(NOW - MADE_SLOTS): {"fast|chat": 8, "plain|chat": 4}}
    assert pending.fields == 2


def test_what_comes_late_goes_into_an_open_slot_and_into_its_own_hour() -> None:
    """Sealed slots are never read again; hours are."""
    pending = Pending()
    pending.add(NOW - 400, [(WHOLE, {"n": 1})])
    pending.add(NOW - 300, [(WHOLE, {"n": 2})])
    pending.add(NOW, [(WHOLE, {"n": 4})])
    assert told(pending) == {
        KEYS.slot(NOW - 1): {"fast|chat|n": 3},
        KEYS.slot(NOW): {"fast|chat|n": 4},
        KEYS.hour(HOUR - 2): {"fast|chat|n": 1},
        KEYS.hour(HOUR - 1): {"fast|chat|n": 2},
        KEYS.hour(HOUR): {"fast|chat|n": 4},
    }


def test_what_was_learned_by_a_clock_that_was_ahead_counts_now() -> None:
    """Nobody would read the future before it comes."""
    pending = Pending()
    pending.add(NOW + 1000, [(WHOLE, {"n": 1})])
    pending.add_made(NOW + 1000, (FAST, CHAT), 5)
    assert told(pending) == {
        KEYS.slot(NOW): {"fast|chat|n": 1},
        KEYS.hour(HOUR): {"fast|chat|n": 1},
        KEYS.made(NOW): {"fast|chat": 5},
    }


SLOTS = st.integers(NOW - 2000, NOW)
SUMS = st.dictionaries(st.sampled_from(["n", "tokens", "steps"]), st.integers(1, 9), min_size=1)


@given(st.lists(st.tuples(SLOTS, st.sampled_from([WHOLE, PART]), SUMS), max_size=30))
def test_folding_changes_nothing_that_the_store_is_told(
    added: list[tuple[int, tuple[str, str, str], dict[str, int]]],
) -> None:
    """And the room that is taken is that of the hours, whatever happened in how many slots."""
    pending, folded = Pending(), Pending()
    for slot, key, sums in added:
        pending.add(slot, [(key, sums)])  # type: ignore[list-item]
        folded.add(slot, [(key, sums)])  # type: ignore[list-item]
    assert folded.fold(NOW) == 0
    assert told(folded) == told(pending)
    assert len(folded.slots) <= 2000 // SLOTS_PER_HOUR + 2 + 2
    assert folded.fields == sum(len(sums) for of in folded.slots.values() for sums in of.values())


def test_parts_of_an_outage_take_the_room_of_one_slot() -> None:
    """Only whole classes are told by hour, so hours without a store cost those alone."""
    pending = Pending()
    for hour in range(1, 25):
        slot = NOW - hour * SLOTS_PER_HOUR
        pending.add(slot, [(WHOLE, {"n": 1}), (PART, {"n": 1, "tokens": 2})])
        pending.fold(slot + SLOTS_PER_HOUR)
    pending.fold(NOW)
    assert pending.fields == 24 + 2
    assert told(pending)[KEYS.slot(NOW - 1)] == {
        "fast|chat|n": 24, "fast|chat|a1|n": 24, "fast|chat|a1|tokens": 48,
    }  # fmt: skip


def test_tokens_made_too_long_ago_are_told_to_nobody_and_counted() -> None:
    """Their slot has been read."""
    pending = Pending()
    pending.add_made(NOW - MADE_SLOTS - 1, (FAST, CHAT), 7)
    pending.add_made(NOW - MADE_SLOTS, (FAST, CHAT), 5)
    assert pending.fold(NOW) == 7
    assert told(pending) == {KEYS.made(NOW - MADE_SLOTS): {"fast|chat": 5}}
    assert pending.fields == 1


def test_what_is_added_is_a_copy() -> None:
    """Whoever added it may add it elsewhere too."""
    sums = {"n": 1}
    pending = Pending()
    pending.add(NOW, [(WHOLE, sums), (PART, sums)])
    pending.add(NOW, [(WHOLE, sums)])
    assert sums == {"n": 1}
    assert pending.slots[NOW] == {WHOLE: {"n": 2}, PART: {"n": 1}}


def test_the_segments_of_a_slot_are_bounded() -> None:
    """Those beyond count in their class and its copy band; the next slot has room again."""
    bounds = Bounds()
    for slot in (NOW, NOW + 1):
        parts = [bounds.part(slot, SegmentId(f"s{n}+")) for n in range(MAX_SLOT_PARTS + 2)]
        assert parts[-3:] == [f"s{MAX_SLOT_PARTS - 1}+", "+", "+"]
        assert bounds.part(slot, SegmentId("x")) == POOLED
        assert bounds.part(slot, SegmentId("s0+")) == "s0+"


def test_the_tenants_of_a_month_are_bounded() -> None:
    """Whatever credentials clients make up."""
    bounds = Bounds()
    for month in ("2026-11", "2026-12"):
        told = [bounds.tenant(month, TenantId(f"t{n}")) for n in range(MAX_TENANTS + 2)]
        assert told[-3:] == [f"t{MAX_TENANTS - 1}", OTHER, OTHER]
        assert bounds.tenant(month, TenantId("t0")) == "t0"
