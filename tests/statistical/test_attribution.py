"""Attribution on a simulated fleet whose servers tell nothing but counters (`bench.counted_fleet`).

Half an hour, five requests a second, ten classes; seeds are fixed and few, so tolerances are wide:
`python -m bench.verify_attribution` runs two hundred.
"""

from __future__ import annotations

import numpy as np
import pytest

from bench.counted_fleet import Fleet, long_run
from bench.verify_attribution import attributed
from policies.types import FloatArray
from router.engines.counters import Moves

SEEDS = 4


@pytest.fixture(scope="module")
def true() -> FloatArray:
    """Tokens per step of each class in the long run."""
    return long_run(3000)


@pytest.mark.parametrize(
    "fleet",
    [Fleet(), Fleet(moves=Moves.AT_THE_END), Fleet(foreign=0.2)],
    ids=["step", "end", "past"],
)
def test_tau_is_found_and_inside_its_interval(fleet: Fleet, true: FloatArray) -> None:
    """Forty cells, of which 38 should hold it; those of a seed hang together, so 33 are enough."""
    found = attributed(fleet, SEEDS, true)
    assert not np.isnan(found.value).any()
    assert float(np.median(found.error)) < 0.08
    assert int(found.inside(true).sum()) >= 33


def test_classes_always_in_proportion_stay_untold(true: FloatArray) -> None:
    """Their intervals are several times as wide as where their shares wander."""
    apart = attributed(Fleet(), 3, true).width[:, :2]
    together = attributed(Fleet(paired=True), 3, true).width[:, :2]
    assert float(np.median(together)) > 2.5 * float(np.median(apart))
