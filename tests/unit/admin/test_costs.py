"""Models as JSON."""

from __future__ import annotations

import json

from policies.estimators import prefill, step_time
from policies.estimators.cells import add_counts
from policies.estimators.load import load_band
from policies.types import Counts, SpecUsage, Status, Trial
from router.admin.costs import costs_json
from router.estimates.costs import ArmCosts
from tests.support.builders import CHAT, FAST


def blocks(loads: tuple[int, ...], count: int = 8) -> list[tuple[float, dict[int, Counts]]]:
    """Stretches of time, each with requests at these loads."""
    made = []
    for number in range(count):
        bands: dict[int, Counts] = {}
        for load in loads:
            trial = Trial(
                CHAT,
                FAST,
                Status.OK,
                streamed=True,
                propensity=0.5,
                ttft_s=0.2 + 0.001 * number,
                tpot_s=0.01 * (1 + 0.01 * load + 0.001 * number),
                tokens=101,
                spec=SpecUsage(51, 150, 50),
                load=load,
                prompt_tokens=200 + 40 * load,
            )
            band = load_band(load)
            both = step_time.increments(trial) | prefill.increments(trial)
            bands[band] = add_counts(bands.get(band, {}), both)
        made.append((1.0, bands))
    return made


def test_what_was_not_measured_is_null() -> None:
    """Never 0."""
    for costs in (None, ArmCosts()):
        assert costs_json(costs) == {"step_time": None, "prefill": None}


def test_a_curve_ends_one_point_beyond_what_was_seen() -> None:
    """And that point says that it was not."""
    made = blocks((1, 2, 3, 7))
    costs = ArmCosts(step_time.StepTime.fit(made), prefill.PrefillModel.of(made))
    shown = json.loads(json.dumps(costs_json(costs)))
    points = shown["step_time"]["points"]
    assert [point["load"] for point in points] == [1, 2, 4, 8]
    assert points[-1]["extrapolated"]
    assert not points[0]["extrapolated"]
    assert points[0]["low_s"] <= points[0]["mean_s"] <= points[0]["high_s"]
    assert shown["prefill"]["tells_cached"] is False
    assert shown["prefill"]["per_cached_token_s"] is None
    assert shown["prefill"]["per_token_s"]["value"] >= 0.0
