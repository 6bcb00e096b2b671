"""The book of experiments as it is kept."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from policies.types import ArmId, ClassId
from router.experiments.bodies import PlanError, read_plan
from router.experiments.documents import (
    MOST_KEPT,
    Book,
    as_document,
    audit_entry,
    of_document,
)
from router.experiments.model import (
    Experiment,
    ExperimentName,
    Guard,
    GuardKind,
    Plan,
    Stage,
    Standing,
    Status,
    Treatment,
    Unit,
)
from router.experiments.rollout import Evidence, Looked, moved
from router.types import TenantId

FULL = Plan(
    ExperimentName("try"),
    "m",
    "it is faster",
    Treatment(policy="fixed", parameters=(("arm", "fast"),)),
    Treatment(off=True),
    tenants=(TenantId("acme"),),
    groups=("paying",),
    classes=(ClassId("chat"),),
    unit=Unit.USER,
    stages=(Stage(0.05, 60.0, 5), Stage(1.0, 0.0, 0)),
    guards=(Guard(GuardKind.ERRORS, 0.02),),
    layer="l",
    layer_range=(0.25, 0.5),
    salt="pepper",
)
GIVEN: dict[str, Any] = {"name": "try", "model": "m", "treatment": {"arm": "fast"}}


def test_a_book_reads_back() -> None:
    """All of it: plan, standing, kill switch."""
    experiment = Experiment(FULL, Standing(Status.RUNNING, 1, 12.5, "why", 3, 2.5))
    book = Book({FULL.name: experiment}, off=True)
    assert of_document(as_document(book)) == book


def test_what_cannot_be_understood_is_left_out() -> None:
    """A book spoiled in part keeps the rest."""
    experiment = Experiment(FULL, Standing(Status.RUNNING, 1, 12.5, "why", 3, 2.5))
    kept = orjson.loads(as_document(Book({FULL.name: experiment})))
    good = kept["experiments"][0]
    spoiled: list[Any] = [3, {}, {"plan": good["plan"]}]
    spoiled.append({**good, "standing": {**good["standing"], "stage": 2}})
    spoiled.append({**good, "standing": {**good["standing"], "status": "flying"}})
    data = orjson.dumps({"off": False, "experiments": [*spoiled, good]})
    assert of_document(data) == Book({FULL.name: experiment})


def test_experiments_that_are_over_are_forgotten_at_last() -> None:
    """The oldest first; those that go on never."""
    book = Book({FULL.name: Experiment(FULL, Standing(Status.RUNNING, 0, 1.0, "", 1))})
    for number in range(MOST_KEPT + 5):
        plan = Plan(ExperimentName(f"x{number}"), "m", "", Treatment(off=True))
        book = book.with_(Experiment(plan, Standing(Status.ROLLED_BACK)))
    assert len(book.experiments) == MOST_KEPT + 1
    assert "try" in book.experiments
    assert "x4" not in book.experiments


def test_a_line_of_the_audit_holds_the_statistics_that_were_seen() -> None:
    """And who, when, why, from where to where."""
    experiment = Experiment(FULL, Standing(Status.RUNNING, 0, 1.0, "", 1))
    evidence = Evidence(10, 20, (-0.2, -0.3, -0.1), ())
    _, [audit] = moved(experiment, Looked(9.0, evidence))
    line = orjson.loads(audit_entry(FULL.name, audit))
    assert (line["at"], line["who"], line["what"]) == (9.0, "guard", "rolled back")
    assert line["evidence"]["gain"] == {"value": -0.2, "low": -0.3, "high": -0.1}
    assert (line["before"]["status"], line["after"]["status"]) == ("running", "rolled_back")


def test_a_plan_has_defaults_and_a_salt_of_its_own() -> None:
    """So two experiments of one kind draw their units anew."""
    first, second = read_plan(GIVEN), read_plan(GIVEN)
    assert first.treatment == Treatment(arm=ArmId("fast"))
    assert first.control == Treatment(default=True)
    assert first.salt != second.salt
    assert len(first.salt) >= 16


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ({"tratment": {}}, "tratment: Extra inputs"),
        ({"name": "holdout"}, "permanent holdout"),
        ({"name": "a/b"}, "name:"),
        ({"name": "a" * 65}, "name:"),
        ({"treatment": {}}, "one of arm, policy, off and default"),
        ({"treatment": {"arm": "a", "off": True}}, "one of arm, policy, off and default"),
        ({"stages": []}, "stages"),
        ({"stages": [{"share": 0.5}, {"share": 0.1}]}, "must not fall"),
        ({"guards": [{"kind": "invalid_rate", "limit": 1.5}]}, "share within"),
        ({"guards": [{"kind": "cost_ratio", "limit": 0.5}]}, "at least 1"),
        ({"primary": "speed"}, "primary:"),
    ],
)
def test_a_plan_that_cannot_be_used_says_why(more: dict[str, Any], expected: str) -> None:
    """In words, with the member."""
    with pytest.raises(PlanError, match=expected):
        read_plan({**GIVEN, **more})


@pytest.mark.parametrize(
    "data", [b"", b"[]", b'{"off":true', b'{"off":true,"experiments":null}', b'{"off":"yes"}']
)
def test_a_kill_switch_that_cannot_be_read_is_thrown(data: bytes) -> None:
    """Plain decoding is what nothing can be wrong with."""
    assert of_document(data) == Book(off=True)


def test_a_plan_may_name_what_a_configuration_may() -> None:
    """Tenants and pools of the longest name that there is."""
    longest = "a" * 64
    given = {"name": longest, "model": "m", "treatment": {"arm": longest}, "tenants": [longest]}
    plan = read_plan(given)
    assert (plan.name, plan.treatment.arm, plan.tenants) == (longest, longest, (longest,))
