"""What `specroute explain` says."""

from __future__ import annotations

import pytest

from policies.types import Source, SpecUsage, Status
from router.cli.explain import explanation
from router.observe.decision_log import decision_record
from tests.support.builders import FAST, PLAIN, context, decision, outcome


def test_who_was_drawn_and_who_was_out() -> None:
    """Every candidate with its probability, the reason against one, and the draw."""
    made = decision_record(
        context(),
        decision(FAST, excluded={PLAIN: "no_server_available"}),
        outcome(
            Status.OK,
            spec=SpecUsage(steps=43, drafted=129, accepted=10, source=Source.REQUEST),
        ),
        wall=1.0,
    ).as_json()
    text = explanation(made)
    assert text.startswith(f"request {made['request_id']}\n")
    assert "out: no server available" in text
    assert f"drawn, with probability {made['propensity']:.1%}" in text
    assert "43 steps, 129 drafted, 10 accepted, by request" in text


def test_what_was_not_measured_is_a_dash() -> None:
    """A failed request has no times; nothing makes zeros of them."""
    made = decision_record(
        context(),
        decision(FAST),
        outcome(Status.FAILED, served_by=None, ttft_s=None, tpot_s=None, spec=None, tokens=None),
        wall=1.0,
    ).as_json()
    text = explanation(made)
    assert "served by  nobody" in text
    assert "– to the first token, – a token" in text
    assert "speculation" not in text


@pytest.mark.parametrize(
    ("valid", "truncated", "said"),
    [
        (True, False, "as demanded"),
        (False, False, "not as demanded"),
        (None, True, "cut at the limit of length"),
    ],
)
def test_what_became_of_the_structure(
    valid: bool | None,  # noqa: FBT001
    truncated: bool | None,  # noqa: FBT001
    said: str,
) -> None:
    """Where one was demanded."""
    result = outcome(valid=valid, truncated=truncated)
    made = decision_record(context(), decision(FAST), result, wall=1.0).as_json()
    assert said in explanation(made)
    plain = decision_record(context(), decision(FAST), outcome(), wall=1.0).as_json()
    assert "structure" not in explanation(plain)


def test_what_was_settled_is_not_called_drawn() -> None:
    """An experiment's side, by name."""
    made = decision_record(context(), decision(FAST), outcome(Status.OK), wall=1.0).as_json() | {
        "policy": "experiment",
        "experiment": "try/treatment",
    }
    text = explanation(made)
    assert "settled before any draw: experiment" in text
    assert "try/treatment" in text
    assert "drawn, with" not in text
