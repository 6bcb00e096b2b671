"""Applications told apart by what they send along each time."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.classify.segments import (
    CACHED,
    CANDIDATES,
    HALF_LIFE_S,
    LEAST,
    Fingerprints,
    Segments,
    SegmentTable,
    masked,
)
from router.types import GREEDY, POOLED, Headers, ParsedRequest, SegmentId
from tests.support.builders import request
from tests.support.clock import ManualClock
from tests.support.held import held_by

KEY = b"k" * 32
ADA = "You are Ada, the assistant of the payments team."
AGENT: Headers = (("User-Agent", "OpenAI/Python 2.8"),)


def asked(
    system: str | None = ADA, *tools: str, headers: Headers = AGENT, turn: str = "hello"
) -> ParsedRequest:
    """A request of an application."""
    messages: list[dict[str, Any]] = [{"role": "user", "content": turn}]
    if system is not None:
        messages.insert(0, {"role": "system", "content": system})
    named = [{"type": "function", "function": {"name": name}} for name in tools]
    return replace(request(messages=messages, tools=named), headers=headers)


@pytest.mark.parametrize(
    "pair",
    [
        ("Today is Monday, 1 December 2025. Help.", "Today is Sunday, 30 November 2026. Help."),
        ("Current date: 2025-12-01T10:22:01Z\nHelp.", "current date:  2026-1-2T1:22:01+03:00 help."),
        ("Heute ist Montag, der 3. März 2025. Hilf.", "Heute ist Freitag, der 13. Juni 2025. Hilf."),
        ("It is 9:05 pm. User bob@x.com, see https://a.b/c?d=1 . Be kind", "It is 11:30 am. User al.ice+1@y.uk, see http://z . Be kind"),
        ("Session 3f2a9c1e-0000-4abc-8def-aaaaaaaaaaaa open", "Session aaaaaaaa-bbbb-4ccc-8ddd-eeeeeeeeeeee open"),
        ("今天是2025年12月1日星期一，你是助手", "今天是2026年1月31日星期三，你是助手"),
        ("امروز دوشنبه ۱۰ آذر ۱۴۰۴ است. کمک کن", "امروز جمعه ۱ دی ۱۴۰۵ است. کمک کن"),
        ("Сегодня вторник, 2 декабря 2025 года. Помогай", "Сегодня среда, 13 мая 2026 года. Помогай"),
        ("ﬁle Ａ", "FILE a"),
        (ADA + " x" * 400, ADA + " x" * 400 + " and then something else"),
    ],
)  # fmt: skip
def test_what_changes_from_request_to_request_is_masked(pair: tuple[str, str]) -> None:
    """Dates, times, numbers, addresses, ids, case, width, space, and whatever stands far down."""
    assert masked(pair[0]) == masked(pair[1])
    assert masked(pair[0]).strip("# ")


def test_different_applications_stay_different() -> None:
    """By system prompt, by tools, by client."""
    prints = Fingerprints(KEY)
    found = [
        prints.of(each)
        for each in (
            asked(),
            asked("You are Bob, the assistant of the travel team."),
            asked(ADA, "search"),
            asked(ADA, "search", "book"),
            asked(None, "search"),
            asked(headers=(("User-Agent", "curl/8"),)),
        )
    ]
    assert len(set(found)) == len(found)
    assert all(len(each) == 10 and int(each, 16) >= 0 for each in found)


def test_what_the_user_says_and_the_order_of_tools_do_not_matter() -> None:
    """Nor do numbers in the names of tools that are made on the fly."""
    prints = Fingerprints(KEY)
    first = prints.of(asked(ADA, "get_a", "get_b7"))
    assert prints.of(asked(ADA, "get_b8", "get_a", turn="bye")) == first


@pytest.mark.parametrize("system", [None, "", " \n "])
def test_without_system_prompt_and_tools_there_is_no_application(system: str | None) -> None:
    """All such requests are pooled."""
    assert Fingerprints(KEY).of(asked(system)) == POOLED


def test_the_hash_depends_on_the_key_and_on_nothing_else() -> None:
    """Processes with one key agree; without a key all is pooled, and with another all differs."""
    first, second, unknown = Fingerprints(KEY), Fingerprints(KEY), Fingerprints()
    assert first.of(asked()) == second.of(asked())
    assert (unknown.ready, unknown.of(asked())) == (False, POOLED)
    unknown.use(b"another")
    assert unknown.ready
    assert unknown.of(asked()) not in (POOLED, first.of(asked()))
    unknown.use(KEY)
    assert unknown.of(asked()) == first.of(asked())


def test_no_text_is_kept() -> None:
    """What is remembered holds hashes only, and is bounded."""
    prints = Fingerprints(KEY)
    for number in range(CACHED + 50):
        prints.of(asked(f"{number} CANARY"))
    assert len(prints._cache) == CACHED
    assert "CANARY" not in repr(held_by(prints))


@given(st.text(max_size=900), st.lists(st.text(max_size=70), max_size=5))
def test_any_text_has_a_fingerprint(system: str, tools: list[str]) -> None:
    """Twice the same, surrogates and all; masking what is masked changes nothing more."""
    each = asked("x")
    fields = {
        "messages": [{"role": "system", "content": system + "\ud800"}],
        "tools": [{"name": name} for name in tools],
    }
    each = replace(each, fields=fields)
    assert Fingerprints(KEY).of(each) == Fingerprints(KEY).of(each) != POOLED


@pytest.mark.parametrize(
    "text", ["a1 @:" * 10**6, "a" * 10**6, ":/" * 10**6, "\ufdfa" * 10**6, "#- " * 10**6]
)
def test_work_is_bounded(text: str) -> None:
    """Only a head is ever looked at."""
    assert len(masked(text)) <= 400


# --- The table --------------------------------------------------------------------------------


def seen(table: SegmentTable, name: str, times: int = 1) -> SegmentId:
    """The answer to the last of several requests of an application."""
    answer = POOLED
    for _ in range(times):
        answer = table.seen(SegmentId(name))
    return answer


def test_an_application_counts_from_its_twentieth_recent_request_on() -> None:
    """Before that it is pooled."""
    table = SegmentTable(ManualClock(), 4)
    assert seen(table, "a", int(LEAST) - 1) == POOLED
    assert seen(table, "a") == "a"
    assert table.recent() == {"a": LEAST}


def test_requests_without_an_application_never_count() -> None:
    """There is nothing to tell apart."""
    table = SegmentTable(ManualClock(), 4)
    assert seen(table, POOLED, 100) == POOLED
    assert table.recent() == {}


def test_with_no_places_all_is_pooled() -> None:
    """The operator has switched it off."""
    table = SegmentTable(ManualClock(), 0)
    assert seen(table, "a", 100) == POOLED
    assert len(table._candidates) == 0


def test_what_is_long_past_counts_no_more() -> None:
    """An application that fell silent starts anew, and its place is free."""
    clock = ManualClock()
    table = SegmentTable(clock, 4)
    seen(table, "a", 40)
    clock.advance(HALF_LIFE_S)
    assert seen(table, "a") == "a"
    assert table.recent() == {"a": pytest.approx(21.0)}
    clock.advance(4 * HALF_LIFE_S)
    assert seen(table, "a") == POOLED
    assert table.recent() == {}
    assert seen(table, "a", 30) == "a"


def test_counts_survive_any_length_of_time() -> None:
    """Weights that grow with time are brought back before they overflow."""
    clock = ManualClock()
    table = SegmentTable(clock, 4)
    for _ in range(200):
        clock.advance(30 * HALF_LIFE_S)
        assert seen(table, "a", 25) == "a"
    assert table.recent() == {"a": pytest.approx(25.0)}


def test_a_busier_application_takes_the_place_of_the_idlest() -> None:
    """By half as much again, so that two of a size do not take turns."""
    table = SegmentTable(ManualClock(), 2)
    seen(table, "a", 100)
    seen(table, "b", 40)
    assert seen(table, "c", 59) == POOLED
    assert seen(table, "c") == "c"
    assert set(table.recent()) == {"a", "c"}
    assert seen(table, "b") == POOLED


@given(
    st.lists(st.integers(0, 3), min_size=1, max_size=60),
    st.integers(1, 400),
    st.floats(0.0, 2.0),
)
def test_one_time_applications_cannot_evict_and_cannot_fill_memory(
    order: list[int], flood: int, pause: float
) -> None:
    """However many new system prompts are sent between the requests of those that are known."""
    clock = ManualClock()
    table = SegmentTable(clock, 4)
    for name in "abcd":
        seen(table, name, 40)
    number = 0
    for known in order:
        for _ in range(flood):
            number += 1
            assert seen(table, f"new {number}") == POOLED
        clock.advance(pause)
        assert seen(table, "abcd"[known]) == "abcd"[known]
    assert set(table.recent()) == set("abcd")
    assert len(table._candidates) <= CANDIDATES


def test_a_new_application_gets_in_during_a_flood() -> None:
    """As long as it is seen once among so many others."""
    table = SegmentTable(ManualClock(), 4)
    for turn in range(25):
        for number in range(CANDIDATES - 1):
            seen(table, f"{turn} {number}")
        seen(table, "a")
    assert set(table.recent()) == {"a"}


def test_the_segment_of_a_request() -> None:
    """Its fingerprint, once it is busy enough; each route counts for itself."""
    clock, prints = ManualClock(), Fingerprints(KEY)
    first, second = (Segments(prints, SegmentTable(clock, 4)) for _ in range(2))
    answers = [first.segment(asked()) for _ in range(20)]
    assert answers == [POOLED] * 19 + [prints.of(asked())]
    assert second.segment(asked()) == POOLED
    assert (first.recent(), second.recent()) == ({answers[-1]: 20.0}, {})


@pytest.mark.parametrize(("temperature", "greedy"), [(0, True), (0.0, True), (0.7, False)])
def test_temperature_nought_is_told_apart(temperature: float, greedy: bool) -> None:  # noqa: FBT001
    """Greedy requests of an application have a segment of their own, and those of nobody too."""
    fingerprints = Fingerprints(KEY)
    known = fingerprints.of(asked())
    bare, told = (
        replace(one, fields={**one.fields, "temperature": temperature})
        for one in (asked(None), asked())
    )
    assert fingerprints.of(bare) == (GREEDY if greedy else POOLED)
    assert fingerprints.of(told) == (f"{GREEDY}-{known}" if greedy else known)
