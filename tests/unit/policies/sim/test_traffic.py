"""Arrivals are those that the world asks for, and the same for one seed."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from policies.sim.spec import ClassTraffic, Event, TrafficSpec
from policies.sim.traffic import arrivals
from policies.types import ClassId

CHAT, CODE = ClassId("chat"), ClassId("code_gen")
CLASSES = {
    CHAT: ClassTraffic(3, (100, 0.5), (200, 0.5), more_turns=0.5, template_tokens=50),
    CODE: ClassTraffic(1, (300, 0.2), (150, 0.2), languages={"en": 3, "de": 1}, hot_ratio=0.25),
}


def spec(**changes: object) -> TrafficSpec:
    values = {"rate": 5.0, "requests": 2000, "classes": CLASSES} | changes
    return TrafficSpec(**values)  # type: ignore[arg-type]


def test_the_same_seed_brings_the_same_requests() -> None:
    """Whoever routes meets the same arrivals; another seed brings others."""
    assert arrivals(spec(), 1) == arrivals(spec(), 1)
    assert arrivals(spec(), 1) != arrivals(spec(), 2)


def test_requests_come_in_order_at_the_rate_that_was_asked_for() -> None:
    """Numbers follow time; 2,000 requests at 5/s last about 400 s."""
    known = arrivals(spec(burst_ratio=0.3), 3)
    times = [arrival.at_s for arrival in known]
    assert [arrival.index for arrival in known] == list(range(2000))
    assert times == sorted(times)
    assert times[-1] == pytest.approx(400, rel=0.15)


def test_days_have_a_night_and_a_noon() -> None:
    """A wave of amplitude 0.9 makes the middle half of a day far busier than the rest."""
    times = np.array(
        [arrival.at_s for arrival in arrivals(spec(swing=0.9, day_s=400, think_s=1.0), 4)]
    )
    noon = ((times % 400 > 100) & (times % 400 < 300)).mean()
    # 0.5 + 0.9 / pi = 0.79 of a whole day.
    assert noon == pytest.approx(0.79, abs=0.05)


def test_bursts_bring_requests_close_together() -> None:
    """The same rate, but half as many short gaps again at least."""
    even, bursty = (
        np.diff([arrival.at_s for arrival in arrivals(spec(burst_ratio=share, think_s=1.0), 5)])
        for share in (0.0, 0.5)
    )
    assert (bursty < 0.02).mean() > 1.5 * (even < 0.02).mean()


def test_classes_lengths_languages_and_temperatures_are_as_asked() -> None:
    """Shares within four standard errors; medians within 10 %."""
    known = arrivals(spec(), 6)
    first = [arrival for arrival in known if arrival.turn == 0]
    code = [arrival.request for arrival in known if arrival.request.class_id == CODE]
    assert np.mean([a.request.class_id == CHAT for a in first]) == pytest.approx(0.75, abs=0.05)
    assert np.median([request.prompt_tokens for request in code]) == pytest.approx(300, rel=0.1)
    assert np.median([request.output_tokens for request in code]) == pytest.approx(150, rel=0.1)
    assert np.mean([not request.greedy for request in code]) == pytest.approx(0.25, abs=0.1)
    languages = Counter(request.template.rpartition("@")[2] for request in code)
    assert languages["en"] / languages.total() == pytest.approx(0.75, abs=0.1)


def test_a_turn_holds_the_conversation_before_it() -> None:
    """Prompts of later turns begin with prompt and answer of the one before."""
    known = arrivals(spec(), 7)
    before = {(a.session, a.turn): a.request for a in known}
    later = [a for a in known if a.turn and (a.session, a.turn - 1) in before]
    assert len(later) > 300
    for arrival in later:
        previous = before[arrival.session, arrival.turn - 1]
        grown = previous.prompt_tokens + previous.output_tokens
        assert arrival.request.prompt_tokens > grown
        assert arrival.request.template == previous.template


def test_the_mix_may_change_and_classes_may_be_misread() -> None:
    """An event multiplies a weight; a misread class is any of them."""
    event = Event(1000, "mix", class_id=CODE, factor=20.0)
    known = arrivals(spec(misread_ratio=0.4), 8, [event])
    is_code = np.array([arrival.request.class_id == CODE for arrival in known])
    assert is_code[:900].mean() < 0.3
    assert is_code[1200:].mean() > 0.6
    misread = np.mean([a.told_class != a.request.class_id for a in known])
    assert misread == pytest.approx(0.2, abs=0.05)
