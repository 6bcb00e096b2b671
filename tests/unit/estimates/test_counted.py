"""Readings of counters become sums by slot, and these estimates."""

from __future__ import annotations

import math
from collections.abc import Iterable

import pytest

from policies.types import Arm, ArmId, ClassId
from router.engines.counters import Moves, ReplicaCounters
from router.estimates.counted import KEPT_SLOTS, MOST_ASKED, Counted
from router.estimates.layout import SLOT_S

FAST, PLAIN = ArmId("fast"), ArmId("plain")
ARMS = (Arm(PLAIN, "none", baseline=True), Arm(FAST, "ngram", 3))
CHAT, CODE = ClassId("chat"), ClassId("code")
A, B = "http://a", "http://b"
START = 1000.0
FIRST = 100


def counters(
    tokens: float, *, started: float | None = None, per_position: tuple[int, ...] | None = None
) -> ReplicaCounters:
    """Of a server of which a third of the tokens were drafted, one by every second step."""
    return ReplicaCounters(
        Moves.AT_EACH_STEP,
        round(tokens),
        2 * round(tokens),
        round(tokens / 3),
        round(tokens / 2),
        round(tokens / 3),
        per_position=per_position,
        started=started,
    )


def run(
    book: Counted,
    seconds: Iterable[float],
    *,
    arm: ArmId = FAST,
    url: str = A,
    rate: float = 30.0,
    offset: float = 0.0,
) -> None:
    """Reads a server that makes `rate` tokens a second."""
    for second in seconds:
        book.take(arm, url, counters(offset + rate * second), START + second)


def every(step: float, until: float, begin: float = -2.0) -> list[float]:
    """Moments of reading."""
    return [begin + step * index for index in range(int((until - begin) / step) + 1)]


def tokens(book: Counted, seconds: float, arm: ArmId = FAST) -> dict[int, float]:
    """Tokens by slot, counted from the first."""
    slots = book.slots(arm, START + seconds)
    return {slot - FIRST: round(counts.tokens, 6) for slot, counts in slots.items()}


def test_readings_become_sums_by_slot() -> None:
    """Between two readings tokens are taken to come evenly; open slots are not told yet."""
    book = Counted(ARMS)
    run(book, every(4, 60, begin=-2))
    assert tokens(book, 60) == dict.fromkeys(range(5), 300.0)
    counts = book.slots(FAST, START + 60)[FIRST]
    assert (counts.steps, counts.drafts, counts.prompt_tokens) == (200.0, 100.0, 600.0)
    assert (counts.acceptance_length, counts.drafting_ratio) == (1.5, 0.5)
    assert tokens(book, 49) == dict.fromkeys(range(5), 300.0)  # what is told is not taken back
    assert book.moves(FAST) is Moves.AT_EACH_STEP
    assert book.moves(PLAIN) is None


def test_a_slot_that_began_before_the_first_reading_is_not_known() -> None:
    """Nobody knows what had been counted by then."""
    book = Counted(ARMS)
    run(book, every(2, 40, begin=3))
    assert tokens(book, 45) == dict.fromkeys((1, 2), 300.0)


def test_all_servers_of_an_arm_have_to_be_read() -> None:
    """Their sums are added; while one of them does not tell, there are none."""
    book = Counted(ARMS)
    for second in every(2, 80):
        run(book, [second])
        if 22 <= second <= 38:
            book.take(FAST, B, None, START + second)
        else:
            run(book, [second], url=B, rate=12.0, offset=7.0)
    assert tokens(book, 80) == dict.fromkeys((0, 1, 5, 6), 420.0)


def test_a_server_without_counters_leaves_nothing() -> None:
    """However well the others are read."""
    book = Counted(ARMS)
    for second in every(2, 60):
        run(book, [second])
        book.take(FAST, B, None, START + second)
    assert tokens(book, 60) == {}


@pytest.mark.parametrize("shows", ["back", "start"])
def test_a_restart_ends_the_slot(shows: str) -> None:
    """Whether a counter went back or the time of the start is another."""
    book = Counted(ARMS)
    for second in every(2, 60):
        restarted = second > 25
        made = 30.0 * second
        if shows == "back":
            made -= 700.0 * restarted
        book.take(FAST, A, counters(made, started=float(restarted)), START + second)
    assert tokens(book, 60) == dict.fromkeys((0, 1, 3, 4), 300.0)


def test_a_long_gap_is_not_bridged() -> None:
    """It would hide when the tokens were made."""
    book = Counted(ARMS)
    run(book, [*every(2, 18), *every(2, 60, begin=32)])
    assert tokens(book, 60) == {0: 300.0, 4: 300.0}
    seldom = Counted(ARMS)
    run(seldom, every(10, 60, begin=1))
    assert tokens(seldom, 61) == dict.fromkeys((1, 2, 3, 4), 300.0)


def test_a_server_that_is_not_there_counts_nothing() -> None:
    """The others are all there is, but for the slots in which it went and came."""
    book = Counted(ARMS)
    for second in every(2, 100):
        run(book, [second])
        if 24 <= second <= 66:
            book.gone(FAST, B, START + second)
        else:
            run(book, [second], url=B)
    assert tokens(book, 100) == {
        0: 600.0, 1: 600.0, 3: 300.0, 4: 300.0, 5: 300.0, 7: 600.0, 8: 600.0,
    }  # fmt: skip


def test_servers_come_and_go() -> None:
    """From the slot in which it is found to that in which it goes, each has a say."""
    book = Counted(ARMS)
    for second in every(2, 100):
        run(book, [second])
        there = 34 <= second <= 56
        if there:
            run(book, [second], url=B)
        book.keep({FAST: [A, B] if there else [A]}, START + second)
    assert tokens(book, 100) == {
        0: 300.0, 1: 300.0, 2: 300.0, 4: 600.0, 6: 300.0, 7: 300.0, 8: 300.0,
    }  # fmt: skip


def test_a_server_that_was_found_and_not_read_yet_has_a_say() -> None:
    """Requests may go there before its first reading."""
    book = Counted(ARMS)
    for second in every(2, 60):
        run(book, [second])
        book.keep({FAST: [A, B] if second > 19 else [A]}, START + second)
    assert tokens(book, 60) == {0: 300.0, 1: 300.0}


def test_a_clock_set_back_makes_no_slot_twice() -> None:
    """What was told stays; readings go on where the clock has caught up."""
    book = Counted(ARMS)
    run(book, every(2, 40))
    assert tokens(book, 40) == dict.fromkeys(range(3), 300.0)
    run(book, every(2, 80, begin=11), offset=5000.0)
    assert tokens(book, 80) == {
        0: 300.0,
        1: 300.0,
        2: 300.0,
        3: 300.0,
        4: 300.0,
        5: 300.0,
        6: 300.0,
    }


def test_a_time_that_was_far_ahead_is_forgotten() -> None:
    """Slots that have not been yet are dropped, and new ones come at once."""
    book = Counted(ARMS)
    run(book, every(2, 1060, begin=998))
    assert tokens(book, 1060) == dict.fromkeys(range(100, 105), 300.0)
    book.learn({FIRST + 101: {(FAST, CHAT): 3}})
    for second in every(2, 60):
        run(book, [second], offset=90_000.0)
        book.keep({FAST: [A]}, START + second)
    assert tokens(book, 60) == dict.fromkeys(range(5), 300.0)
    assert book.missing(FIRST + 200, START + 60) == [FIRST + slot for slot in range(5)]


def test_an_hour_is_kept() -> None:
    """And no more, whether anybody asks or not."""
    book = Counted(ARMS)
    for second in every(5, 4000):
        run(book, [second])
        book.keep({FAST: [A]}, START + second)
    slots = book.slots(FAST, START + 4000)
    assert (len(slots), max(slots) - FIRST) == (KEPT_SLOTS - 1, 398)


def test_what_is_unknown_stays_unknown() -> None:
    """Counters of an engine that does not speculate give tokens and no estimate."""
    book = Counted(ARMS)
    for second in every(2, 400):
        told = ReplicaCounters(Moves.AT_EACH_STEP, 30 * int(second))
        book.take(FAST, A, told, START + second)
    total = book.total(FAST, START + 400)
    assert total is not None
    assert (total.tokens, total.steps, total.acceptance_length) == (11700.0, None, None)
    assert (total.drafting_ratio, total.position_rates) == (None, ())
    book.learn({FIRST + slot: {(FAST, CHAT): 300} for slot in range(40)})
    assert book.estimates(START + 400) == {}
    assert book.total(PLAIN, START + 400) is None


def test_positions_are_those_of_all_servers() -> None:
    """A server that has drafted nothing yet tells none; lengths may differ."""
    book = Counted(ARMS)
    for second in every(2, 60):
        drafts = 10 * int(second)
        at = (6 * int(second), 3 * int(second)) if second > 5 else None
        book.take(FAST, A, counters(3 * drafts, per_position=at), START + second)
        book.take(FAST, B, counters(3 * drafts, per_position=(int(second),)), START + second)
    total = book.total(FAST, START + 60)
    assert total is not None
    assert total.position_rates == pytest.approx((0.35, 3.0 / 7.0))


def test_made_tokens_are_asked_for_once_they_are_settled() -> None:
    """Only for slots in which something was counted, the oldest first, a bounded number."""
    book = Counted(ARMS)
    run(book, every(5, 900))
    assert book.missing(FIRST + 5, START + 900) == [FIRST + slot for slot in range(6)]
    asked = book.missing(FIRST + 99, START + 900)
    assert (len(asked), asked[0]) == (MOST_ASKED, FIRST)
    book.learn({slot: {} for slot in asked})
    assert book.missing(FIRST + 99, START + 900)[0] == FIRST + MOST_ASKED
    assert book.missing(FIRST - 1, START + 900) == []


def world(book: Counted, slots: int = 60, *, arms: tuple[ArmId, ...] = (FAST,)) -> None:
    """Two classes with tau 1.5 and 3 whose shares change from slot to slot."""
    made = accepted = 0
    shown = {}
    for slot in range(slots + 2):
        chat, code = 300 + 60 * (slot % 4), 300 + 90 * (slot * slot % 7)
        shown[FIRST + slot] = {
            (arm, name): tokens_made
            for arm in arms
            for name, tokens_made in ((CHAT, chat), (CODE, code))
        } | {(ArmId("gone"), CODE): 5}
        for part in range(5):
            now = START + SLOT_S * slot + 2.0 * part
            share = part / 5
            told = ReplicaCounters(
                Moves.AT_EACH_STEP,
                made + round((chat + code) * share),
                accepted=accepted + round((chat / 3 + 2 * code / 3) * share),
            )
            for arm in arms:
                book.take(arm, A, told, now)
        made += chat + code
        accepted += round(chat / 3 + 2 * code / 3)
    book.learn(shown)


def test_counts_and_made_tokens_become_estimates() -> None:
    """Of the arm that drafts and its classes alone."""
    book = Counted(ARMS)
    world(book)
    told = book.estimates(START + 620)
    assert {key: round(tau.value, 2) for key, tau in told.items()} == {
        (FAST, CHAT): 1.5,
        (FAST, CODE): 3.0,
    }
    assert book.estimates(START + 620)[FAST, CHAT] is told[FAST, CHAT]  # not fitted anew


def test_a_call_fits_one_arm_anew() -> None:
    """The others keep what was found, or wait for the next call; then it is their turn."""
    other = ArmId("other")
    book = Counted([*ARMS, Arm(other, "mtp", 3)])
    world(book, arms=(FAST, other))
    first = book.estimates(START + 620)
    assert first.keys() == {(FAST, CHAT), (FAST, CODE)}
    second = book.estimates(START + 620)
    assert second.keys() == first.keys() | {(other, CHAT), (other, CODE)}
    assert book.estimates(START + 620)[FAST, CHAT] is first[FAST, CHAT]


def test_an_arm_that_does_not_draft_has_no_estimate() -> None:
    """Its tau is 1 by definition."""
    book = Counted(ARMS)
    world(book, arms=(PLAIN,))
    assert len(book.slots(PLAIN, START + 620)) > 50
    assert book.estimates(START + 620) == {}


def test_old_slots_count_less() -> None:
    """By the half-life, counted from the newest."""
    book = Counted(ARMS, half_life_s=100.0)
    world(book, 60)
    weighted = book.estimates(START + 620)[FAST, CHAT].tokens
    endless = Counted(ARMS, half_life_s=math.inf)
    world(endless, 60)
    assert weighted < endless.estimates(START + 620)[FAST, CHAT].tokens / 3
