"""The one receiver of outcomes."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path

import pytest

from policies.cost import typical_tokens
from policies.estimators.cells import increments
from policies.estimators.increments import effect_fields
from policies.types import ArmId, SpecUsage, Status, Trial
from router.estimates.history import History
from router.estimates.layout import month_of, slot_at
from router.estimates.writer import Writer
from router.experiments.placing import HELD_OUT, OFF, PINNED, TRIED, WISHED
from router.observe.decision_log import DecisionLog
from router.observe.metrics import Metrics
from router.observe.recorder import Recorder, trial_of
from router.selection.eligibility import LOSSY, NO_SERVER, NOT_ITS_POOL, QUARANTINED
from router.stores.memory import MemoryStore
from router.types import POOLED, Attempt, AttemptEnd, Outcome, ReplicaId, SegmentId, TenantId
from tests.support.builders import (
    CHAT,
    FAST,
    PLAIN,
    context,
    decision,
    outcome,
    pool,
    request,
    route_facts,
)
from tests.support.clock import ManualClock


def test_an_answer_of_the_chosen_arm_teaches_everything() -> None:
    """Times, tokens, acceptance, and how likely the draw was."""
    result = outcome()
    trial = trial_of(context(request(stream=True)), decision(FAST), result)
    assert trial == Trial(
        class_id=CHAT,
        arm_id=FAST,
        status=Status.OK,
        streamed=True,
        propensity=0.25,
        ttft_s=result.ttft_s,
        tpot_s=result.tpot_s,
        e2e_s=result.e2e_s,
        tokens=result.tokens,
        spec=result.spec,
        load=result.load,
        waiting=result.waiting,
        prompt_tokens=result.prompt_tokens,
        cached_tokens=result.cached_tokens,
        queue_s=0.0,
        overhead_s=result.overhead_s,
    )


def test_a_prefill_after_a_failed_try_teaches_nothing() -> None:
    """TTFT holds the failed try; the step time after it is as good as any."""
    failed = Attempt(FAST, ReplicaId("fast/1"), AttemptEnd.BUSY)
    result = outcome()
    result = outcome(attempts=(failed, *result.attempts))
    trial = trial_of(context(request(stream=True)), decision(FAST), result)
    assert (trial.prompt_tokens, trial.load) == (None, result.load)


@pytest.mark.parametrize(
    ("result", "expected"),
    [
        (outcome(Status.FAILED), Status.FAILED),
        (outcome(Status.FAILED, served_by=None), Status.FAILED),
        (outcome(Status.REJECTED), Status.REJECTED),
        (outcome(Status.ABORTED), Status.ABORTED),
        (outcome(Status.ABORTED, served_by=None), Status.ABORTED),
        (outcome(Status.OK, served_by=PLAIN), Status.FAILED),
        (outcome(Status.ABORTED, served_by=PLAIN), Status.FAILED),
        (outcome(Status.REJECTED, served_by=PLAIN), Status.FAILED),
    ],
)
def test_anything_else_teaches_only_how_it_ended(result: Outcome, expected: Status) -> None:
    """After a fallback it is the chosen arm that failed, and the other arm learns nothing."""
    assert trial_of(context(), decision(FAST), result) == Trial(
        class_id=CHAT,
        arm_id=FAST,
        status=expected,
        streamed=False,
        propensity=0.25,
        abandoned=expected is Status.ABORTED,
    )


def test_who_held_an_answer_up_did_not_wait_for_it() -> None:
    """It was cut off because its client read too slowly."""
    trial = trial_of(context(), decision(FAST), outcome(Status.ABORTED, held=True))
    assert (trial.status, trial.abandoned) == (Status.ABORTED, False)


@pytest.mark.parametrize(
    ("ends", "expected"),
    [
        ([AttemptEnd.OVERTAKEN], (Status.ABORTED, True)),
        ([AttemptEnd.BUSY, AttemptEnd.OVERTAKEN], (Status.ABORTED, True)),
        ([AttemptEnd.BUSY], (Status.ABORTED, False)),
        ([], (Status.ABORTED, False)),
        ([AttemptEnd.TIMEOUT, AttemptEnd.OVERTAKEN], (Status.FAILED, False)),
    ],
)
def test_who_was_turned_away_had_not_waited(
    ends: list[AttemptEnd], expected: tuple[Status, bool]
) -> None:
    """An arm that is full, or has no server, says so at once; one that is overtaken is slow."""
    tries = (
        *(Attempt(FAST, ReplicaId(f"fast/{i}"), end) for i, end in enumerate(ends)),
        Attempt(PLAIN, ReplicaId("plain/0"), AttemptEnd.ANSWERED),
    )
    trial = trial_of(context(), decision(FAST), outcome(served_by=PLAIN, attempts=tries))
    assert (trial.status, trial.abandoned) == expected
    assert increments(trial, 100).get("abandoned", 0) == expected[1]


async def test_an_outcome_reaches_sums_metrics_and_log(tmp_path: Path) -> None:
    """Each once."""
    clock = ManualClock()
    writer = Writer(MemoryStore(clock), clock, prefix="p", ttl_s=100)
    metrics, log = Metrics(), DecisionLog(tmp_path / "d.jsonl")
    ctx, made, result = context(), decision(), outcome()
    Recorder(writer, metrics, log, clock).record(ctx, made, result)
    await log.flush()
    sums = increments(trial_of(ctx, made, result), typical_tokens(CHAT))
    assert writer.unconfirmed("m") == {
        (FAST, CHAT, POOLED): sums,
        (FAST, CHAT, "~1"): effect_fields(sums),
    }
    assert b'specroute_requests_total{class="chat",model="m",pool="fast",status="ok"} 1.0' in (
        metrics.exposition()
    )
    assert (tmp_path / "d.jsonl").read_bytes().count(b"\n") == 1


def test_what_is_learned_counts_for_the_segment_too() -> None:
    """And for the copy band that the classifier expects."""
    clock = ManualClock()
    writer = Writer(MemoryStore(clock), clock, prefix="p", ttl_s=100)
    recorder = Recorder(writer, Metrics(), DecisionLog(None), clock)
    ctx = replace(context(), segment=SegmentId("a1"))
    recorder.record(ctx, decision(), outcome())
    copying = replace(ctx.classification, copy_ratio=0.9)
    recorder.record(replace(ctx, classification=copying), decision(), outcome())
    assert {key: fields["n"] for key, fields in writer.unconfirmed("m").items()} == {
        (FAST, CHAT, POOLED): 2,
        (FAST, CHAT, "a1"): 1,
        (FAST, CHAT, "a1+"): 1,
        (FAST, CHAT, "~1"): 2,
    }


async def test_a_tenant_s_month_counts_what_it_got() -> None:
    """By whoever served it; the baseline's requests apart."""
    clock = ManualClock()
    store = MemoryStore(clock)
    writer = Writer(store, clock, prefix="p", ttl_s=100)
    recorder = Recorder(writer, Metrics(), DecisionLog(None), clock, route=route_facts())
    ctx = replace(context(), tenant=TenantId("t1"))
    recorder.record(ctx, decision(FAST), outcome(tokens=10, served_by=FAST))
    recorder.record(ctx, decision(FAST), outcome(tokens=5, served_by=PLAIN))
    await writer.flush()
    history = History(store, writer.slots, prefix="p", model="m")
    [(tenant, counts)] = (await history.read_month(month_of(slot_at(clock.wall())))).items()
    assert tenant == "t1"
    assert (counts["n"], counts["tokens"], counts["baseline"]) == (2, 15, 1)


def test_a_flaw_in_what_is_learned_is_counted_and_costs_that_request_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It is found long after the request was served."""
    clock = ManualClock()
    metrics = Metrics()
    writer = Writer(MemoryStore(clock), clock, prefix="p", ttl_s=100)
    recorder = Recorder(writer, metrics, DecisionLog(None), clock)
    with monkeypatch.context() as patched:
        patched.setattr("router.observe.recorder.ledger_counts", lambda *_: 1 / 0)
        recorder.record(context(), decision(), outcome())
        assert writer.unconfirmed("m") == {}
    recorder.record(context(), decision(), outcome())
    assert writer.unconfirmed("m")[FAST, CHAT, POOLED]["n"] == 1
    assert b"specroute_recorder_errors_total 1.0" in metrics.exposition()


def test_a_flaw_in_the_books_never_fails_a_request(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It is counted and logged, and the request is served."""
    clock = ManualClock()
    metrics = Metrics()
    writer = Writer(MemoryStore(clock), clock, prefix="p", ttl_s=100)
    recorder = Recorder(writer, metrics, DecisionLog(None), clock)
    monkeypatch.setattr(metrics, "observe", lambda *_: 1 / 0)
    with caplog.at_level(logging.ERROR, "specroute.recorder"):
        recorder.record(context(), decision(), outcome())
        assert b"specroute_recorder_errors_total 1.0" in metrics.exposition()
    assert [record.getMessage() for record in caplog.records] == ["outcome not recorded"]


def test_an_answer_that_its_client_held_up_teaches_no_duration() -> None:
    """A slow reader knows the pool from the reply's headers, and could make it look slow."""
    held = trial_of(context(request(stream=True)), decision(FAST), outcome(held=True))
    known = trial_of(context(request(stream=True)), decision(FAST), outcome())
    assert held == replace(known, ttft_s=None, tpot_s=None, e2e_s=None, held=True)


@pytest.mark.parametrize(
    ("policy", "excluded", "by_chance"),
    [
        ("thompson", {}, True),
        (HELD_OUT, {}, True),
        ("thompson", {PLAIN: NO_SERVER}, True),
        ("thompson", {PLAIN: LOSSY}, True),
        ("thompson", {PLAIN: QUARANTINED}, True),
        ("thompson", {PLAIN: NOT_ITS_POOL}, False),
        ("thompson", {PLAIN: "min_p_refused_under_speculation"}, False),
        (PINNED, {}, False),
        (WISHED, {}, False),
        (TRIED, {}, False),
    ],
)
def test_structure_is_compared_where_chance_alone_chose_the_pool(
    policy: str,
    excluded: dict[ArmId, str],
    by_chance: bool,  # noqa: FBT001
) -> None:
    """Requests that only some pools may serve are of a kind of their own."""
    made = replace(decision(FAST, excluded=excluded), policy=policy)
    trial = trial_of(context(), made, outcome(valid=True, truncated=False))
    assert trial.by_chance is by_chance


@pytest.mark.parametrize(
    ("policy", "excluded", "compared"),
    [
        ("net_gain", {}, True),
        (HELD_OUT, {}, True),
        (TRIED, {}, True),
        ("net_gain", {PLAIN: NO_SERVER}, True),
        ("net_gain", {PLAIN: NOT_ITS_POOL}, False),
        (PINNED, {}, False),
        (WISHED, {}, False),
        (OFF, {}, False),
    ],
)
def test_costs_are_compared_of_requests_that_might_have_gone_elsewhere(
    policy: str,
    excluded: dict[ArmId, str],
    compared: bool,  # noqa: FBT001
) -> None:
    """What is sent to one pool by a wish, or because no other serves it, is of a kind of its own."""
    made = replace(decision(FAST, excluded=excluded), policy=policy)
    assert trial_of(context(), made, outcome()).compared is compared


def test_the_wait_for_a_place_counts_for_no_arm() -> None:
    """It came before the draw."""
    ctx = context(request(stream=True))
    at_once = trial_of(ctx, decision(FAST), outcome(ttft_s=0.25, e2e_s=1.25))
    waited = outcome(ttft_s=0.25 + 4.0, e2e_s=1.25 + 4.0)
    learned = trial_of(replace(ctx, queue_s=4.0), decision(FAST), waited)
    assert learned == replace(at_once, queue_s=4.0)


async def claimed(*answers: tuple[int, SpecUsage | None]) -> int:
    """Tokens that are claimed of the counters after so many answers of 30 tokens, kind by kind."""
    clock = ManualClock()
    store = MemoryStore(clock)
    writer = Writer(store, clock, prefix="p", ttl_s=10_000)
    route = route_facts(pool("plain", engine="vllm"), pool("fast", method="mtp", engine="vllm"))
    recorder = Recorder(writer, Metrics(), DecisionLog(None), clock, route=route)
    for count, spec in answers:
        for _ in range(count):
            recorder.record(context(), decision(), outcome(tokens=30, spec=spec))
    await writer.flush()
    begun = slot_at(clock.wall())
    clock.advance(600.0)
    history = History(store, writer.slots, prefix="p", model="m")
    made = await history.read_made(range(begun - 2, begun + 1))
    return sum(sum(of.values()) for of in made.values())


async def test_tokens_are_claimed_for_counters_only_where_answers_do_not_speak() -> None:
    """After a hundred answers with records nobody asks the counters; one without begins anew."""
    told = SpecUsage(15, 40, 15)
    assert await claimed((150, None)) == 4500
    assert await claimed((150, told)) == 3000
    assert await claimed((150, told), (1, None), (1, told)) == 3060
