"""Log cost compares like with like."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.cost import KINDS, LOG_COST_RANGE, TYPICAL_TOKENS, log_cost, typical_tokens
from policies.types import ArmId, ClassId, Status, Trial

STREAM = Trial(
    ClassId("chat"), ArmId("a"), Status.OK, streamed=True, propensity=1.0,
    ttft_s=0.2, tpot_s=0.01, e2e_s=1.2, tokens=101,
)  # fmt: skip
WHOLE = replace(STREAM, streamed=False, ttft_s=None, tpot_s=None)


def test_a_stream_costs_its_time_at_the_typical_length() -> None:
    """Y is the log of TTFT + (n_c - 1) TPOT, whatever the answer's own length."""
    expected = ("s", math.log(0.2 + 299 * 0.01))
    assert expected == log_cost(STREAM, 300)
    assert expected == log_cost(replace(STREAM, tokens=5000), 300)


@pytest.mark.parametrize(
    ("tokens", "kind"),
    [(1, "w0"), (3, "w1"), (16, "w4"), (101, "w6"), (128, "w7"), (9_999_999, "w20")],
)
def test_a_whole_answer_costs_time_per_token_among_answers_of_like_length(
    tokens: int, kind: str
) -> None:
    """The band is floor(log2(tokens)), capped."""
    assert (kind, math.log(1e4 / tokens)) == log_cost(replace(WHOLE, tokens=tokens, e2e_s=1e4), 300)


@pytest.mark.parametrize(
    "trial",
    [replace(STREAM, tokens=15), replace(STREAM, tpot_s=None), replace(STREAM, ttft_s=math.nan)],
    ids=["short", "no tpot", "nan ttft"],
)
def test_a_stream_without_usable_parts_counts_as_whole(trial: Trial) -> None:
    """Short streams and streams without both figures are compared by e2e per token."""
    cost = log_cost(trial, 300)
    assert cost is not None
    assert cost[0].startswith("w")


@pytest.mark.parametrize("status", [Status.REJECTED, Status.FAILED, Status.ABORTED])
def test_only_answers_that_ended_well_have_a_cost(status: Status) -> None:
    """A fast failure never looks fast, and an abort is censored."""
    assert log_cost(replace(STREAM, status=status), 300) is None


@pytest.mark.parametrize("tokens", [None, 0, -3, 10**9])
def test_no_cost_without_a_token_count_that_can_be_true(tokens: int | None) -> None:
    """Missing, zero, negative and absurd counts are all unknown."""
    assert log_cost(replace(STREAM, tokens=tokens), 300) is None


@pytest.mark.parametrize("e2e", [None, 0.0, -1.0, math.nan, math.inf])
def test_no_cost_without_a_duration_that_can_be_true(e2e: float | None) -> None:
    """A whole answer needs its e2e."""
    assert log_cost(replace(WHOLE, e2e_s=e2e), 300) is None


ODD = st.none() | st.floats(allow_nan=True, allow_infinity=True)


@given(
    st.builds(
        replace,
        st.just(STREAM),
        ttft_s=ODD,
        tpot_s=ODD,
        e2e_s=ODD,
        tokens=st.none() | st.integers(-10, 10**12),
        streamed=st.booleans(),
    ),
    st.integers(1, 10**6),
)
def test_a_cost_is_finite_and_within_its_range(trial: Trial, n_c: int) -> None:
    """Whatever an engine claims, y is within the clip or absent, and its stratum is a known one."""
    cost = log_cost(trial, n_c)
    assert cost is None or LOG_COST_RANGE[0] <= cost[1] <= LOG_COST_RANGE[1]
    assert cost is None or cost[0] in KINDS


def test_unknown_classes_take_the_length_of_other() -> None:
    """A class the operator added has a typical length too."""
    assert TYPICAL_TOKENS[ClassId("other")] == typical_tokens(ClassId("legal"))
