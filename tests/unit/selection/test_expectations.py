"""Published figures as priors of a route's arms."""

from __future__ import annotations

import numpy as np
import pytest

from policies.priors import ANY_CLASS, MethodPrior
from policies.types import Arm, ArmId, ClassId
from router.selection.expectations import expectations
from router.serving import published_priors
from tests.support.builders import CHAT, FAST, PLAIN

ARMS = (
    Arm(PLAIN, "none", baseline=True),
    Arm(FAST, "eagle3", 3),
    Arm(ArmId("own"), "my_method", 4),
)
PRIORS = {"eagle3": MethodPrior(3, {CHAT: 2.3, ANY_CLASS: 2.0}, step=1.25), "none": MethodPrior(0)}


def test_by_class_and_method() -> None:
    """A method nobody published of is unknown, not 1."""
    found = expectations(ARMS, (CHAT, ClassId("math")), PRIORS)
    assert found.tau[CHAT][:2].tolist() == pytest.approx([1.0, 2.3])
    assert found.tau[ClassId("math")][1] == pytest.approx(2.0)
    assert np.isnan(found.tau[CHAT][2])
    assert found.steps is not None
    assert found.steps[:2].tolist() == pytest.approx([1.0, 1.25])
    assert np.isnan(found.steps[2])


def test_what_ships_covers_the_methods_people_use() -> None:
    """Each with tokens per step of 1 at least."""
    for name in ("ngram", "draft_model", "eagle3", "mtp", "dflash"):
        assert published_priors()[name].tau_at(CHAT) >= 1.0
