"""Whether a plan fits the configuration."""

from __future__ import annotations

from typing import Any

import pytest

from router.experiments.bodies import PlanError, read_plan
from router.experiments.checks import check_plan
from tests.support.builders import config

CONFIG = config(tenants={"known": [{"id": "acme", "group": "paying"}, {"id": "beta"}]})
GIVEN: dict[str, Any] = {"name": "try", "model": "m", "treatment": {"arm": "fast"}}


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"tenants": ["acme"], "groups": ["paying"], "classes": ["chat"]},
        {"treatment": {"off": True}},
        {"treatment": {"policy": "fixed", "parameters": {"arm": "fast"}}},
        {"treatment": {"default": True}, "control": {"off": True}},
    ],
)
def test_what_fits(more: dict[str, Any]) -> None:
    """All that is there may be named."""
    check_plan(read_plan({**GIVEN, **more}), CONFIG)


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ({"model": "n"}, "model: 'n' is not configured"),
        ({"treatment": {"arm": "fasst"}}, "treatment.arm: .*did you mean 'fast'"),
        ({"control": {"arm": "x"}}, "control.arm: .*There are: fast, plain"),
        ({"treatment": {"policy": "x"}}, "treatment.policy: "),
        ({"treatment": {"policy": "fixed", "parameters": {"arm": "x"}}}, "treatment.policy: "),
        ({"tenants": ["x"]}, "tenants: .*acme, beta"),
        ({"groups": ["x"]}, "groups: .*paying"),
        ({"classes": ["x"]}, "classes: "),
    ],
)
def test_what_does_not_fit_is_named(more: dict[str, Any], expected: str) -> None:
    """With what there is."""
    with pytest.raises(PlanError, match=expected):
        check_plan(read_plan({**GIVEN, **more}), CONFIG)
