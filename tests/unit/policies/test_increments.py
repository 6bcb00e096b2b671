"""A trial becomes integers; what nobody reported has no field."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from policies.estimators.cells import CellSums
from policies.estimators.histogram import bucket
from policies.estimators.increments import STRUCTURE, effect_fields, increments
from policies.types import ArmId, ClassId, Source, SpecUsage, Status, Trial

SPEC = SpecUsage(43, 129, 10, (39, 1, 0, 3), 3)
TRIAL = Trial(
    ClassId("chat"), ArmId("a"), Status.OK, streamed=True, propensity=0.5,
    ttft_s=0.2, tpot_s=0.02, e2e_s=1.24, tokens=53, spec=SPEC,
)  # fmt: skip


def with_spec(**changes: object) -> dict[str, int]:
    """Increments of the trial with a changed record of speculation."""
    return increments(replace(TRIAL, spec=replace(SPEC, **changes)), 53)  # type: ignore[arg-type]


def test_the_worked_example_in_full() -> None:
    """Every field of a complete streamed answer, to the integer."""
    y = math.log(0.2 + 52 * 0.02)
    expected = {
        "n": 1, "status.ok": 1, "tokens": 53, "tokens.n": 1, "source.request": 1,
        "steps": 43, "steps.n": 1, "steps.tokens": 53,
        "steps.tt": 53 * 53, "steps.ts": 53 * 43, "steps.ss": 43 * 43, "accepted": 10, "accepted.n": 1,
        "drafted": 129, "drafted.n": 1, "drafted.accepted": 10,
        "hist.0": 39, "hist.1": 1, "hist.3": 3, "alpha.accepted": 10, "alpha.early": 40,
        f"ttft.{bucket(0.2)}": 1, f"tpot.{bucket(0.02)}": 1, f"e2e.{bucket(1.24)}": 1,
        "spent": 1_240_000, "spent.n": 1, "spent.tokens": 53,
        "y.s.n": 1, "y.s.s": round(y * 1e6), "y.s.q": round(y * y * 1e6),
        "m.s.n": 1, "m.s.s": round(y * 1e6), "m.s.q": round(y * y * 1e6),
    }  # fmt: skip
    assert expected == increments(TRIAL, 53)


@pytest.mark.parametrize("status", [Status.REJECTED, Status.FAILED, Status.ABORTED])
def test_what_did_not_end_well_is_only_counted(status: Status) -> None:
    """No latency, no tokens, no acceptance: a fast failure never looks fast."""
    assert {"n": 1, f"status.{status}": 1} == increments(replace(TRIAL, status=status), 53)


def test_missing_never_becomes_zero() -> None:
    """An engine that says nothing adds no field of speculation, tokens or latency."""
    bare = Trial(ClassId("chat"), ArmId("a"), Status.OK, streamed=False, propensity=1.0)
    assert increments(bare, 53) == {"n": 1, "status.ok": 1}
    silent = increments(replace(TRIAL, spec=SpecUsage(source=Source.STREAM)), 53)
    assert silent["source.stream"] == 1
    assert not any(name.startswith(("steps", "accepted", "drafted", "hist")) for name in silent)


def test_zero_that_was_reported_is_counted_as_reported() -> None:
    """Drafts of which nothing was accepted are knowledge."""
    sums = with_spec(accepted=0, accepted_per_step=(43,))
    assert tuple(
        sums[name] for name in ("accepted", "accepted.n", "drafted", "drafted.accepted")
    ) == (0, 1, 129, 0)
    assert (sums["alpha.accepted"], sums["alpha.early"]) == (0, 43)


def test_steps_follow_from_tokens_and_accepted() -> None:
    """Steps = tokens - accepted by definition, where the engine leaves them out."""
    sums = with_spec(steps=None)
    assert (sums["steps"], sums["steps.tokens"]) == (43, 53)
    assert "steps" not in with_spec(steps=None, accepted=None, accepted_per_step=None)


def test_drafts_of_varying_length_give_no_alpha() -> None:
    """A short draft accepted whole must not count as one that stopped early."""
    sums = with_spec(drafted=100)
    assert "alpha.early" not in sums
    assert sums["hist.0"] == 39
    assert "alpha.early" not in with_spec(num_speculative_tokens=None)


@pytest.mark.parametrize(
    "changes",
    [
        {"accepted": 130},
        {"steps": 54},
        {"accepted": -1},
        {"accepted_per_step": (39, -1)},
        {"drafted": 10**9},
        {"accepted": 118, "drafted": None},
        {"accepted_per_step": (1,) * 66},
        {"steps": 13},
        {"steps": None, "accepted": 40},
    ],
    ids=[
        "accepted>drafted",
        "steps>tokens",
        "negative",
        "negative bin",
        "absurd",
        "accepted>tokens",
        "long",
        "tokens>steps*(k+1)",
        "the same by accepted tokens",
    ],
)
def test_a_record_that_contradicts_itself_is_dropped_and_counted(
    changes: dict[str, object],
) -> None:
    """The gap shows as `bad`, not as an acceptance; latency still counts."""
    sums = with_spec(**changes)
    assert sums["bad"] == 1
    assert "y.s.n" in sums
    assert not any(
        name.startswith(("steps", "accepted", "drafted", "hist", "source")) for name in sums
    )


def test_no_step_is_longer_than_any_draft() -> None:
    """Where an engine does not tell its k, tau is held to what any engine can do."""
    unknown_k: dict[str, object] = {"num_speculative_tokens": None, "accepted_per_step": None}
    told = increments(
        replace(TRIAL, tokens=1000, spec=SpecUsage(steps=3, drafted=1000, accepted=997)), 53
    )
    assert told["bad"] == 1
    assert "bad" not in with_spec(steps=1, drafted=129, accepted=52, **unknown_k)


def test_a_nominal_drafted_count_makes_no_rate() -> None:
    """Steps, accepted tokens and the histogram are exact; what was drafted is not known."""
    exact = increments(TRIAL, 53)
    gone = {"drafted", "drafted.n", "drafted.accepted", "alpha.accepted", "alpha.early"}
    expected = {name: value for name, value in exact.items() if name not in gone}
    assert with_spec(exact_drafted=False) == expected
    assert with_spec(exact_drafted=False, drafted=3) == expected


def test_steps_counted_in_a_stream_stand_for_themselves() -> None:
    """Nothing is known of drafts then."""
    spec = SpecUsage(43, num_speculative_tokens=3, source=Source.STREAM)
    sums = increments(replace(TRIAL, spec=spec), 53)
    assert (sums["source.stream"], sums["stream"], sums["stream.tokens"]) == (1, 43, 53)
    assert not {"accepted", "drafted", "hist.0", "alpha.accepted"} & sums.keys()


def test_whole_answers_have_a_family_of_their_own() -> None:
    """e2e of whole answers never mixes with that of streams, and they show no TTFT or TPOT."""
    sums = increments(replace(TRIAL, streamed=False), 53)
    assert f"e2ew5.{bucket(1.24)}" in sums
    assert "y.w5.n" in sums
    assert not any(name.startswith(("ttft", "tpot", "e2e.")) for name in sums)


def test_whole_answers_of_unknown_length_stay_apart() -> None:
    """They are compared with no answer of known length."""
    sums = increments(replace(TRIAL, streamed=False, tokens=None, spec=None), 53)
    assert f"e2ewx.{bucket(1.24)}" in sums


def test_waits_are_counted_whatever_they_were() -> None:
    """A request that waited for nothing has waited 0 s, and one that told nothing has no field."""
    sums = increments(replace(TRIAL, queue_s=0.0, overhead_s=0.0004), 53)
    assert (sums["queue.0"], sums[f"over.{bucket(0.0004)}"]) == (1, 1)
    sums = increments(replace(TRIAL, queue_s=math.nan, overhead_s=-1.0), 53)
    assert not any(name.startswith(("queue", "over")) for name in sums)


def test_an_answer_that_was_held_up_is_counted_as_censored() -> None:
    """It ended well, and says nothing about time."""
    held = replace(TRIAL, held=True, ttft_s=None, tpot_s=None, e2e_s=None)
    sums = increments(held, 53)
    assert (sums["status.ok"], sums["held"], sums["steps"]) == (1, 1, 43)
    assert not any(name.startswith(("ttft", "tpot", "e2e", "y.")) for name in sums)


@pytest.mark.parametrize(
    ("valid", "truncated", "expected"),
    [
        (None, None, {}),
        (True, False, {"checked": 1, "drawn": 1, "finished": 1}),
        (
            False,
            False,
            {"checked": 1, "invalid": 1, "drawn": 1, "drawn.bad": 1, "finished": 1},
        ),
        (None, True, {"finished": 1, "truncated": 1}),
        (None, False, {"finished": 1}),
    ],
)
def test_structure_is_counted_with_the_number_of_those_that_could_be_judged(
    valid: bool | None,  # noqa: FBT001
    truncated: bool | None,  # noqa: FBT001
    expected: dict[str, int],
) -> None:
    """An answer of which nobody can tell is in neither number."""
    sums = increments(replace(TRIAL, valid=valid, truncated=truncated), 53)
    assert {name: sums[name] for name in STRUCTURE if name in sums} == expected


def test_an_answer_that_was_not_drawn_is_counted_and_not_compared() -> None:
    """Its tenant, say, sends everything to one pool."""
    sums = increments(replace(TRIAL, valid=False, truncated=False, by_chance=False), 53)
    found = {name: sums[name] for name in STRUCTURE if name in sums}
    assert found == {"checked": 1, "invalid": 1, "finished": 1}


def test_an_answer_that_somebody_sent_there_is_compared_with_no_other() -> None:
    """It has its durations, and no cost that arms would be judged by."""
    compared, sent = (increments(replace(TRIAL, compared=is_), 53) for is_ in (True, False))
    costs = {name for name in compared if name.startswith(("y.", "m."))}
    assert costs
    assert sent == {"sent": 1} | {k: v for k, v in compared.items() if k not in costs}


@pytest.mark.parametrize(
    ("status", "abandoned", "field"),
    [
        (Status.FAILED, False, "sent.failed"),
        (Status.ABORTED, True, "sent.abandoned"),
        (Status.ABORTED, False, None),
    ],
)
def test_how_those_end_is_put_down_to_no_arm(
    status: Status,
    abandoned: bool,  # noqa: FBT001
    field: str | None,
) -> None:
    """It is counted, and apart."""
    sent = replace(TRIAL, status=status, abandoned=abandoned, compared=False)
    found = {name for name in increments(sent, 53) if name.startswith("sent")}
    assert found == ({field} if field else set())


def test_costs_are_kept_by_where_the_policy_leaned_as_well() -> None:
    """So that a pool which is preferred at its better moments is compared at the same ones."""
    sums = increments(replace(TRIAL, lean="x1a2b2"), 53)
    assert [sums[f"m.sx1a2b2.{figure}"] for figure in "nsq"] == [
        sums[f"y.s.{figure}"] for figure in "nsq"
    ]
    assert effect_fields(sums).keys() >= {"m.sx1a2b2.n", "y.s.n"}
    assert set(CellSums.of(sums).moment_cost) == {"sx1a2b2"}


def test_steps_counted_in_a_stream_stay_apart() -> None:
    """So that mixing them with an engine's own records can be seen."""
    sums = with_spec(source=Source.STREAM, drafted=None, accepted=None, accepted_per_step=None)
    assert (sums["stream"], sums["stream.tokens"], sums["stream.ts"]) == (43, 53, 53 * 43)
    assert not any(name.startswith("steps") for name in sums)


def test_a_nominal_number_of_drafts_is_no_rate() -> None:
    """It contradicts nothing, and says nothing of whether every draft was full."""
    sums = with_spec(exact_drafted=False, drafted=5)
    assert not any(name.startswith(("drafted", "bad", "alpha")) for name in sums)
    assert (sums["accepted"], sums["hist.0"]) == (10, 39)


def test_tpot_of_short_streams_is_noise() -> None:
    """Under 16 tokens TTFT is kept, TPOT is not."""
    sums = increments(replace(TRIAL, tokens=15, spec=None), 53)
    assert f"ttft.{bucket(0.2)}" in sums
    assert not any(name.startswith("tpot") for name in sums)


@pytest.mark.parametrize("seconds", [math.nan, math.inf, -1.0, 0.0])
def test_durations_that_cannot_be_true_are_left_out(seconds: float) -> None:
    """One bad figure costs that figure, not the request."""
    sums = increments(replace(TRIAL, ttft_s=seconds), 53)
    assert not any(name.startswith("ttft") for name in sums)
    assert f"e2e.{bucket(1.24)}" in sums


def test_the_fields_of_effects_are_those_an_arm_view_reads() -> None:
    """A segment's cell is small: whatever the view needs, steps, time, and nothing else."""
    sums = increments(TRIAL, 53)
    small = effect_fields(sums)
    steps = {"steps", "steps.tokens"}
    costs = {f"{family}.s.{figure}" for family in "ym" for figure in "nsq"}
    time = {"spent", "spent.n", "spent.tokens"}
    assert set(small) == {"n", "status.ok"} | costs | steps | time
    assert small.items() <= sums.items()
