"""The table policy follows its rows."""

from __future__ import annotations

import numpy as np
import pytest

from policies.cost import TYPICAL_TOKENS
from policies.rules import DEFAULT_TABLE, RulesParameters, RulesPolicy, build_rules
from policies.types import Arm, ArmId, ArmView, ClassId

RNG = np.random.default_rng(0)
ARMS = (
    Arm(ArmId("plain"), "none", baseline=True),
    Arm(ArmId("look-up"), "ngram"),
    Arm(ArmId("eagle"), "eagle3"),
    Arm(ArmId("mtp-2"), "mtp", 2),
    Arm(ArmId("mtp-4"), "mtp", 4),
    Arm(ArmId("block"), "dflash"),
)


def chosen(policy: RulesPolicy, class_id: str, arms: tuple[Arm, ...] = ARMS) -> dict[str, float]:
    """Probabilities above 0 by arm."""
    p = policy.propose(ArmView.empty(ClassId(class_id), arms), RNG).probabilities
    return {arm.arm_id: float(share) for arm, share in zip(arms, p, strict=True) if share > 0}


@pytest.mark.parametrize(
    ("class_id", "arm_id"),
    [
        ("code_edit", "look-up"),
        ("text_edit", "look-up"),
        ("summarize", "look-up"),
        ("rag_qa", "look-up"),
        ("structured", "block"),
        ("code_gen", "block"),
        ("math", "block"),
        ("chat", "eagle"),
        ("translate", "eagle"),
        ("creative", "plain"),
        ("other", "eagle"),
        ("no_such_class", "eagle"),
    ],
)
def test_default_table(class_id: str, arm_id: str) -> None:
    """The first preference of the class gets everything; an unknown class follows `other`."""
    assert {arm_id: 1.0} == chosen(RulesPolicy(), class_id)


def test_every_class_has_a_row() -> None:
    """No built-in class is forgotten."""
    assert set(TYPICAL_TOKENS) == set(DEFAULT_TABLE)


def test_arms_of_one_method_share_the_mass() -> None:
    """A method that is two arms means both, so the order of arms cannot matter."""
    policy = build_rules(RulesParameters({"chat": ["mtp"]}), ARMS)
    assert chosen(policy, "chat") == {"mtp-2": 0.5, "mtp-4": 0.5}


def test_a_preference_may_name_an_arm() -> None:
    """A row given replaces the default row, and only that row."""
    policy = build_rules(RulesParameters({"chat": ["mtp-4", "none"]}), ARMS)
    assert chosen(policy, "chat") == {"mtp-4": 1.0}
    assert chosen(policy, "code_edit") == {"look-up": 1.0}


def test_the_next_preference_steps_in() -> None:
    """A preference the route does not have is passed over."""
    assert chosen(RulesPolicy(), "math", (ARMS[0], ARMS[3])) == {"mtp-2": 1.0}


def test_no_preference_present_means_the_baseline() -> None:
    """A route without any of the row's methods stays on its baseline."""
    arms = (Arm(ArmId("m"), "medusa", baseline=True), Arm(ArmId("s"), "suffix"))
    assert chosen(RulesPolicy(), "chat", arms) == {"m": 1.0}


def test_floor_keeps_every_arm_measured() -> None:
    """With a floor each arm gets at least it."""
    policy = build_rules(RulesParameters(floor=0.02), ARMS)
    shares = chosen(policy, "chat")
    assert len(ARMS) == len(shares)
    assert min(shares.values()) >= 0.02


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        (RulesParameters({"chatt": ["mtp"]}), "table has no class 'chatt'.*did you mean 'chat'"),
        (
            RulesParameters({"chat": ["eagel3"]}),
            r"table\.chat names 'eagel3'.*did you mean 'eagle3'",
        ),
        (RulesParameters(floor=0.5), r"floor must be within 0\.\.0\.1667"),
    ],
    ids=["class", "preference", "floor"],
)
def test_mistakes_are_found_when_the_policy_is_built(
    parameters: RulesParameters, message: str
) -> None:
    """Classes, preferences and the floor are checked against what exists."""
    with pytest.raises(ValueError, match=message):
        build_rules(parameters, ARMS, [ClassId("chat"), ClassId("legal")])


def test_classes_of_the_configuration_may_have_rows() -> None:
    """A class the operator added is a class."""
    policy = build_rules(RulesParameters({"legal": ["none"]}), ARMS, [ClassId("legal")])
    assert chosen(policy, "legal") == {"plain": 1.0}
