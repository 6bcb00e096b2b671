"""From sums to evidence, and from evidence to quarantines."""

from __future__ import annotations

from dataclasses import replace

import pytest

from policies.types import ArmId, ClassId
from router.estimates.layout import COMMON, Cells
from router.sentinel.evidence import (
    ALPHA,
    TESTS,
    Watched,
    finding,
    folded,
    grown,
    judged,
    parts_of,
    quarantined,
    strata_of,
)
from router.sentinel.model import LONGEST_S, PERIOD_S, Book, Evidence, Quarantine
from router.types import POOLED, SegmentId
from tests.support.builders import CHAT, FAST, PLAIN

CELL = (FAST, CHAT)
SEGMENT = SegmentId("seg")
WALL = 10 * PERIOD_S + 5.0
WATCHED = Watched(PLAIN, cells=10, quarantine_s=100.0)
DAY_AFTER = WALL + 101.0


def sums(checked: int, invalid: int = 0, **more: int) -> dict[str, int]:
    """Structured answers of a cell."""
    return {"n": checked, "drawn": checked, "drawn.bad": invalid, **more}


def block(mine: dict[str, int], others: dict[str, int]) -> Cells:
    """A stretch of time with one class and no parts."""
    return {(*CELL, POOLED): mine, (PLAIN, CHAT, POOLED): others}


DAMAGED = block(sums(100, 10), sums(100))
HEALTHY = block(sums(100, 3), sums(100, 3))


def after(*blocks: Cells, book: Book | None = None) -> Book:
    """What is known after some stretches of time."""
    numbered = dict(enumerate(blocks))
    return folded(book or Book(), numbered, numbered, PLAIN, WALL)


def test_parts_are_compared_with_themselves() -> None:
    """And what is in no part with what is in none; bands of load count again and are left out."""
    cells: Cells = {
        **block(sums(30, 5), sums(40, 4)),
        (*CELL, SEGMENT): sums(10, 5),
        (PLAIN, CHAT, SEGMENT): sums(8, 4),
        (*CELL, SegmentId("~1")): sums(30, 5),
    }
    strata = [
        (s.tried, s.damaged, s.control, s.control_damaged)
        for s in strata_of(cells, parts_of(cells), CELL, PLAIN)
    ]
    assert strata == [(10, 5, 8, 4), (20, 0, 32, 0)]


def test_an_application_that_is_always_invalid_blames_nobody() -> None:
    """Even where the policy sends it to one pool only, as long as it is told apart."""
    cells: Cells = {
        **block(sums(90, 60), sums(90, 20)),
        (*CELL, SEGMENT): sums(60, 60),
        (PLAIN, CHAT, SEGMENT): sums(20, 20),
    }
    assert after(*[cells] * 20).evidence[CELL].log_ratios == Evidence().log_ratios


def test_only_complete_stretches_count_and_each_once() -> None:
    """So that every process finds the same."""
    blocks = {4: DAMAGED, 5: DAMAGED, 6: DAMAGED}
    book = folded(Book(), blocks, (4, 5), PLAIN, WALL)
    assert (book.folded, book.evidence[CELL].counts["drawn"]) == (5, 200)
    again = folded(book, blocks, (4, 5, 6), PLAIN, WALL)
    assert (again.folded, again.evidence[CELL].counts["drawn.bad"]) == (6, 30)
    assert folded(again, blocks, (4, 5, 6), PLAIN, WALL) == again


def test_what_is_no_pool_is_not_judged() -> None:
    """Sides of experiments, what is an arm's alone, and the baseline."""
    cells: Cells = {
        **DAMAGED,
        (ArmId("@try/1/treatment"), CHAT, POOLED): sums(9, 9),
        (FAST, COMMON, POOLED): {"n": 1},
    }
    assert set(after(cells).evidence) == {CELL}


def test_a_new_week_begins_with_new_evidence_and_old_quarantines() -> None:
    """Long health must not hide damage that begins."""
    held = {CELL: Quarantine(WALL, None, "why")}
    book = replace(after(DAMAGED), quarantines=held)
    later = folded(book, {}, (), PLAIN, WALL + PERIOD_S)
    assert (later.evidence, later.quarantines) == ({}, held)


def test_a_damaged_cell_is_quarantined_for_its_time() -> None:
    """With the reason in figures; after that it is on probation, and has shown nothing yet."""
    book, changes = judged(after(*[DAMAGED] * 4), WATCHED, WALL, 4)
    assert [(c.cell, c.what) for c in changes] == [(CELL, "quarantined")]
    assert changes[0].why == ("structure: 40 of 400 answers invalid, the baseline's 0 of 400")
    assert quarantined(book) == {CHAT: frozenset({FAST})}
    same, changes = judged(book, WATCHED, WALL + 99.0, 5)
    assert (same, changes) == (book, [])
    free, changes = judged(book, WATCHED, DAY_AFTER, 9)
    assert [c.what for c in changes] == ["probation"]
    assert (quarantined(free), free.evidence, free.since) == ({}, {}, {CELL: 9})


def test_a_relapse_doubles_the_time_and_health_ends_the_probation() -> None:
    """Up to a month; who has been good for as long begins at one again."""
    held = Quarantine(0.0, 100.0, "why", times=1, ended=WALL)
    relapsed, _ = judged(
        replace(after(*[DAMAGED] * 4), quarantines={CELL: held}), WATCHED, WALL + 50.0, 4
    )
    found = relapsed.quarantines[CELL]
    assert (found.times, found.until) == (2, WALL + 50.0 + 200.0)
    healthy, _ = judged(Book(quarantines={CELL: held}), WATCHED, WALL + 100.0, 4)
    assert healthy.quarantines == {}
    often = Quarantine(0.0, LONGEST_S, "why", times=40, ended=WALL)
    again, _ = judged(
        replace(after(*[DAMAGED] * 4), quarantines={CELL: often}), WATCHED, WALL + 1.0, 4
    )
    assert again.quarantines[CELL].until == WALL + 1.0 + LONGEST_S


def test_one_that_is_lifted_only_by_hand_stays() -> None:
    """However long it takes."""
    forever = replace(WATCHED, quarantine_s=None)
    book, _ = judged(after(*[DAMAGED] * 4), forever, WALL, 4)
    assert book.quarantines[CELL].until is None
    assert judged(book, forever, WALL + 1e9, 4) == (book, [])


def test_a_cell_that_began_anew_does_not_count_what_was_before() -> None:
    """Stretches up to its beginning are left out, also those that come in late."""
    book = after(DAMAGED, DAMAGED, DAMAGED, HEALTHY, book=Book().begun_anew(CELL, 2))
    assert book.evidence[CELL].counts["drawn.bad"] == 3
    assert book.since == {}


def test_a_healthy_cell_is_not_quarantined() -> None:
    """Both fail alike."""
    assert judged(after(*[HEALTHY] * 60), WATCHED, WALL, 60)[1] == []


@pytest.mark.parametrize(
    ("counts", "begins"),
    [
        ({"repeat.n": 500, "repeat.worse": 20}, "repeats: 20 of 500 answers invalid or cut"),
        ({"repeat.n": 500, "repeat.odd": 25}, "repeats: 25 of 500 answers differ"),
        ({"repeat.n": 500, "repeat.worse": 20, "repeat.better": 18}, None),
        ({"repeat.n": 500, "repeat.odd": 25, "repeat.control": 20}, None),
        ({"repeat.n": 50_000, "repeat.odd": 60}, None),
        ({}, None),
    ],
)
def test_repeats_are_judged_by_their_pairs(counts: dict[str, int], begins: str | None) -> None:
    """Against the baseline's own changes, and differences only beyond a rate that is borne."""
    why = finding(Evidence(counts=counts), WATCHED.threshold)
    assert (why or "").startswith(begins or "")
    assert (why is None) is (begins is None)


def test_the_error_is_shared_by_all_cells_and_tests() -> None:
    """The more there are, the more it takes."""
    assert WATCHED.threshold == TESTS * 10 / ALPHA
    assert Watched(PLAIN, 0, None).threshold == TESTS / ALPHA


def test_repeats_are_taken_from_the_whole_of_a_class() -> None:
    """They have no parts."""
    cells = block({"repeat.n": 2, "repeat.odd": 1}, {})
    assert grown(Evidence(), cells, {}, CELL, PLAIN).counts == {"repeat.n": 2, "repeat.odd": 1}
    other: Cells = {(FAST, ClassId("code"), POOLED): {"n": 5}}
    assert after(other).evidence == {}
