"""Which distinctions earn their keep."""

from __future__ import annotations

from typing import Any

import pytest

from router.cli.report import (
    KEEP,
    MERGE,
    SPLIT,
    UNKNOWN,
    WHOLE,
    Interval,
    best,
    markdown,
    report,
    saved_lines,
)

Bounds = tuple[float, float, float] | None
POOLS = ("plain", "fast", "copy")
TIGHT = 0.02


def around(value: float) -> Bounds:
    """A gain that is well known."""
    return value, value - TIGHT, value + TIGHT


def cells(fast: Bounds, copy: Bounds, tail: Bounds = (1.0, 0.95, 1.05)) -> list[dict[str, Any]]:
    """Cells of three pools with these gains (value, low, high)."""
    made = []
    for pool, gain in zip(POOLS, ((0.0, 0.0, 0.0), fast, copy), strict=True):
        names = ("value", "low", "high")
        made.append(
            {
                "pool": pool,
                "probability": 0.3,
                "gain": dict(zip(names, gain, strict=True)) if gain and pool != "plain" else None,
                "verdict": None if pool == "plain" else "gain",
                "tail_ratios": {
                    "tpot_p95": dict(zip(names, tail, strict=True)) if tail else None,
                    "tpot_p99": None,
                },
            }
        )
    return made


def entry(name: str, fast: Bounds, copy: Bounds, **more: Any) -> dict[str, Any]:
    """A class."""
    tail = more.pop("tail", (1.0, 0.95, 1.05))
    return {
        "class": name,
        "requests": 100,
        "cells": cells(fast, copy, tail),
        "segments": [],
        "bands": {},
        **more,
    }


def segment(name: str, fast: Bounds, copy: Bounds, measured: int = 50) -> dict[str, Any]:
    """A segment of a class."""
    return {"segment": name, "copying": False, "measured": measured, "cells": cells(fast, copy)}


def made(*classes: dict[str, Any]) -> dict[str, Any]:
    """The report on a route of these classes."""
    route = {"model": "m", "baseline": "plain", "classes": list(classes)}
    [only] = report({"time": 1.0, "window_s": 3600, "routes": [route]})["routes"]
    return dict(only)


def text(*classes: dict[str, Any]) -> str:
    """The same for people."""
    route = {"model": "m", "baseline": "plain", "classes": list(classes)}
    return markdown(report({"time": 1.0, "window_s": 3600, "routes": [route]}))


@pytest.mark.parametrize(
    ("fast", "copy", "expected"),
    [
        (around(0.4), around(0.1), "fast"),
        (around(-0.4), around(-0.1), "plain"),
        (around(0.4), around(0.42), "copy"),
        ((0.4, 0.1, 0.6), (0.3, 0.0, 0.5), None),
        (around(0.4), None, None),
        (None, None, None),
    ],
)
def test_the_best_pool_is_known_or_open(fast: Bounds, copy: Bounds, expected: str | None) -> None:
    """Pools within the margin are as good as each other."""
    gains = {
        pool: Interval(*gain) if gain else None
        for pool, gain in zip(POOLS, ((0.0, 0.0, 0.0), fast, copy), strict=True)
    }
    assert best(gains) == expected


def test_classes_with_the_same_best_pool_and_like_tails_could_be_merged() -> None:
    """Also where it is plain decoding."""
    one, other = (entry(name, around(0.4), around(0.1)) for name in ("chat", "math"))
    assert made(one, other)["pairs"] == [
        {"classes": ["chat", "math"], "verdict": MERGE, "pool": "fast"}
    ]
    slow = [entry(name, around(-0.4), around(-0.1), tail=None) for name in ("chat", "math")]
    assert made(*slow)["pairs"][0]["verdict"] == MERGE
    assert "chat and math: same best pool (fast)" in text(one, other)


@pytest.mark.parametrize(
    ("tail", "verdict"), [((1.5, 1.3, 1.8), KEEP), ((1.5, 1.0, 1.8), MERGE), (None, UNKNOWN)]
)
def test_tails_can_make_a_difference(tail: Bounds, verdict: str) -> None:
    """Or be unknown."""
    one = entry("chat", around(0.4), around(0.1))
    other = entry("math", around(0.4), around(0.1), tail=tail)
    assert made(one, other)["pairs"][0]["verdict"] == verdict


def test_tails_of_another_mix_tell_nothing() -> None:
    """They may be those of the applications that the pool was sent."""
    one = entry("chat", around(0.4), around(0.1))
    other = entry("math", around(0.4), around(0.1), tail=(1.5, 1.3, 1.8))
    for cell in other["cells"]:
        cell["tails_compared"] = False
    assert made(one, other)["pairs"][0]["verdict"] == UNKNOWN


def test_classes_with_other_best_pools_are_worth_telling_apart() -> None:
    """By what each would lose with the other's, at the bounds that favour nothing."""
    one, other = entry("chat", around(0.4), around(0.1)), entry("edit", around(0.0), around(0.5))
    [pair] = made(one, other)["pairs"]
    assert pair["verdict"] == KEEP
    assert pair["saves"]["chat"] == pytest.approx({"value": 0.3, "low": 0.26, "high": 0.34})
    assert pair["saves"]["edit"] == pytest.approx({"value": 0.5, "low": 0.46, "high": 0.54})
    assert "+30% (+26% … +34%)" in text(one, other)


def test_what_is_not_known_stays_so() -> None:
    """In words."""
    one, other = entry("chat", (0.4, -0.2, 0.7), None), entry("edit", around(0.0), around(0.5))
    assert made(one, other)["pairs"] == [{"classes": ["chat", "edit"], "verdict": UNKNOWN}]
    assert "1 of 1 pairs: not enough data" in text(one, other)
    assert "| chat | not enough data |" in text(one, other)


def test_a_class_whose_segments_have_other_best_pools_is_split_by_them() -> None:
    """And says what that saves of the class's time, weighted by the segments' shares."""
    parts = [segment("a1", around(0.4), around(0.0)), segment("b2", around(0.0), around(0.6), 30)]
    one = entry("chat", around(0.2), around(0.25), segments=parts)
    [split] = made(one)["splits"]
    assert (split["class"], split["by"], split["verdict"]) == ("chat", "segment", SPLIT)
    assert split["instead_of"] == "copy"
    assert split["saves"] == pytest.approx({"value": 0.2, "low": 0.18, "high": 0.22})
    assert "chat by segment: split pays; against copy for all, +20% (+18% … +22%)" in text(one)
    assert "a1: fast, 50 requests" in text(one)


def test_segments_with_the_same_best_pool_gain_nothing() -> None:
    """One whose best is open leaves it open."""
    alike = [segment(name, around(0.4), around(0.0)) for name in ("a1", "b2")]
    one = entry("chat", around(0.4), around(0.0), segments=alike)
    assert made(one)["splits"][0]["verdict"] == WHOLE
    one["segments"].append(segment("c3", None, None))
    assert made(one)["splits"][0]["verdict"] == UNKNOWN


def test_copy_bands_are_judged_like_segments() -> None:
    """The class's own best pool is what they are compared with."""
    bands = {
        "copying": {"measured": 40, "cells": cells(around(0.0), around(0.6))},
        "free": {"measured": 60, "cells": cells(around(0.3), around(0.0))},
    }
    one = entry("text_edit", around(0.25), around(0.05), bands=bands)
    [split] = made(one)["splits"]
    assert (split["by"], split["verdict"], split["instead_of"]) == ("copying", SPLIT, "fast")
    assert split["saves"]["value"] == pytest.approx(0.4 * 0.6)


def test_nothing_measured_is_said() -> None:
    """An empty route has a report too."""
    empty = {"model": "m", "best": {}, "pairs": [], "splits": []}
    assert made() == {**empty, "saved_today": None, "holdout": None}
    assert "No request has been measured yet." in text()
    assert "Saved today: not enough data." in text()


def test_what_was_saved_is_told_with_its_interval() -> None:
    """Seconds, share and tokens a second as the state has them, and what had no control."""
    today = {
        "seconds": {"value": 1234.4, "low": 1000.0, "high": 1500.0},
        "gain": {"value": 0.3, "low": 0.2, "high": 0.4},
        "tokens_per_s": {"value": 12.34, "low": 10.0, "high": 15.0},
        "answers": 4200,
        "not_compared": 17,
    }
    held = {
        "month": "2027-01",
        "held_out": 50,
        "others": 9000,
        "gain": {"value": 0.25, "low": 0.1, "high": 0.4},
    }
    lines = saved_lines({"saved_today": today, "holdout": held})
    assert lines[0] == (
        "Saved today: 1,234 s (1,000 … 1,500) of waiting for 4,200 answers, +30% (+20% … +40%) of "
        "what the baseline would have taken; +12.3 tokens/s (+10.0 … +15.0)."
    )
    assert lines[1:] == [
        "17 answers of today had no baseline to compare with.",
        "Against the holdout of 2027-01: +25% (+10% … +40%) of time, 50 held out and 9,000 not.",
    ]
