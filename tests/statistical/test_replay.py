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


@pytest.mark.parametrize("figure", ["dr", "against_baseline"])
@pytest.mark.parametrize("name", POLICIES)
def test_intervals_hold_what_policies_would_have_cost(
    found: dict[str, list[Answer]], name: str, figure: str
) -> None:
    """Eight runs, of which at most two miss: at 95 % more happen once in 170 times.

    Policies of a run are judged by the same requests, so runs are counted for each by itself.
    """
    held = inside(found[name], name, figure)
    assert len(held) == RUNS
    assert held.count(False) <= 2


def test_a_log_that_dropped_arms_is_refused() -> None:
    """For policies that want them back."""
    found = judged(2, floor=0.0)
    assert all(answer.refused for name in ("all plain", "all copy") for answer in found[name])
