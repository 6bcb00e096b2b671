"""Replay on logs of a policy that learns meanwhile (`bench.verify_replay`).

Seeds are fixed and few, so tolerances are wide: `python -m bench.verify_replay` runs two hundred.
"""

from __future__ import annotations

import pytest

from bench.verify_replay import POLICIES, inside, judged
from policies.offpolicy import Answer

RUNS = 8


@pytest.fixture(scope="module")
def found() -> dict[str, list[Answer]]:
    """Answers of a few logged runs."""
    return judged(RUNS)


def test_intervals_hold_what_policies_would_have_cost(found: dict[str, list[Answer]]) -> None:
    """Five policies in eight runs, of which 38 should hold it; those of a run hang together."""
    held = [one for name in POLICIES for one in inside(found[name], name, "dr")]
    assert len(held) == 5 * RUNS
    assert sum(held) >= 33


def test_the_gain_on_plain_decoding_is_held_too(found: dict[str, list[Answer]]) -> None:
    """Without the level of load, which both sides share."""
    held = [one for name in POLICIES for one in inside(found[name], name, "against_baseline")]
    assert sum(held) >= 35


def test_a_log_that_dropped_arms_is_refused() -> None:
    """For policies that want them back."""
    found = judged(2, floor=0.0)
    assert all(answer.refused for name in ("all plain", "all copy") for answer in found[name])
