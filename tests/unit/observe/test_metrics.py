"""What Prometheus is told."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from prometheus_client.parser import text_string_to_metric_families

from policies.types import Status
from router.admission.queue import Cause
from router.errors import Reason
from router.observe.catalog import GAUGES
from router.observe.metrics import Metrics
from router.types import Outcome
from tests.support.builders import CHAT, FAST, PLAIN, decision, outcome

LABELS = ("model", "pool", "class", "replica", "status", "reason", "field")


@pytest.fixture
def metrics() -> Metrics:
    """Metrics of one process."""
    return Metrics()


def samples(metrics: Metrics) -> dict[tuple[str, tuple[str, ...]], float]:
    """Samples that are not zero, by name and label values; creation times and buckets left out."""
    return {
        (
            sample.name,
            tuple(sample.labels[key] for key in LABELS if key in sample.labels),
        ): sample.value
        for family in text_string_to_metric_families(metrics.exposition().decode())
        for sample in family.samples
        if sample.value and not sample.name.endswith(("_created", "_bucket"))
    }


def observed(
    metrics: Metrics, result: Outcome, **more: str
) -> dict[tuple[str, tuple[str, ...]], float]:
    """Samples after one request."""
    excluded = {PLAIN: more["excluded"]} if more else None
    metrics.observe("m", CHAT, decision(FAST, excluded=excluded), result)
    return samples(metrics)


CELL = ("m", "fast", "chat")


def test_a_request_that_went_well_is_counted_and_timed(metrics: Metrics) -> None:
    """By model, pool and class."""
    assert observed(metrics, outcome()) == {
        ("specroute_requests_total", (*CELL, "ok")): 1,
        ("specroute_ttft_seconds_count", CELL): 1,
        ("specroute_ttft_seconds_sum", CELL): 0.25,
        ("specroute_tpot_seconds_count", CELL): 1,
        ("specroute_tpot_seconds_sum", CELL): 0.05,
        ("specroute_e2e_seconds_count", CELL): 1,
        ("specroute_e2e_seconds_sum", CELL): 1.25,
        ("specroute_overhead_seconds_count", ()): 1,
        ("specroute_overhead_seconds_sum", ()): 0.0005,
    }


@pytest.mark.parametrize("status", [Status.FAILED, Status.REJECTED, Status.ABORTED])
def test_a_request_that_did_not_go_well_is_counted_only(metrics: Metrics, status: Status) -> None:
    """A fast failure never looks fast."""
    result = outcome(status, overhead_s=None, ttft_s=None)
    assert observed(metrics, result) == {("specroute_requests_total", (*CELL, status.value)): 1}


def test_the_series_of_a_cell_begin_at_zero_together(metrics: Metrics) -> None:
    """So that the first failure after a hundred successes shows as an increase."""
    observed(metrics, outcome(Status.ABORTED))
    text = metrics.exposition().decode()
    labels = 'class="chat",model="m",pool="fast"'
    assert f'specroute_requests_total{{{labels},status="failed"}} 0.0' in text
    assert f"specroute_ttft_seconds_count{{{labels}}} 0.0" in text


def test_a_fallback_is_counted_and_times_nobody(metrics: Metrics) -> None:
    """The chosen pool did not serve, and the serving pool was not chosen."""
    result = outcome(served_by=PLAIN, overhead_s=None)
    assert observed(metrics, result) == {
        ("specroute_requests_total", (*CELL, "ok")): 1,
        ("specroute_fallbacks_total", ("m", "fast")): 1,
    }


@pytest.mark.parametrize(
    ("valid", "truncated", "found"),
    [
        (True, False, "valid"),
        (False, False, "invalid"),
        (None, True, "truncated"),
        (None, False, "unknown"),
    ],
)
def test_structure_is_counted_by_what_was_found(
    metrics: Metrics,
    valid: bool | None,  # noqa: FBT001
    truncated: bool | None,  # noqa: FBT001
    found: str,
) -> None:
    """Of the arm that answered; of answers that need none, nothing."""
    observed(metrics, outcome())
    observed(metrics, outcome(valid=valid, truncated=truncated))
    observed(metrics, outcome(valid=valid, truncated=truncated, served_by=PLAIN))
    text = metrics.exposition().decode()
    [line] = [
        line for line in text.splitlines() if line.startswith("specroute_structured_answers_total")
    ]
    labels = f'class="chat",model="m",pool="fast",result="{found}"'
    assert line == f"specroute_structured_answers_total{{{labels}}} 1.0"


def test_whole_answers_have_no_times_of_tokens(metrics: Metrics) -> None:
    """Unknown is not observed as 0."""
    found = observed(metrics, outcome(ttft_s=None, tpot_s=None, overhead_s=None))
    assert sorted(name for name, _ in found) == [
        "specroute_e2e_seconds_count",
        "specroute_e2e_seconds_sum",
        "specroute_requests_total",
    ]


def test_excluded_arms_and_unread_fields_are_counted(metrics: Metrics) -> None:
    """So an engine that renames a field shows as a gap."""
    found = observed(metrics, outcome(Status.REJECTED, unread=("timings",)), excluded="lossy")
    assert found["specroute_excluded_arms_total", ("m", "plain", "lossy")] == 1
    assert found["specroute_unread_fields_total", ("m", "fast", "timings")] == 1


def test_refusals_are_counted_by_reason(metrics: Metrics) -> None:
    """Each is one error reply of ours."""
    metrics.refuse(Reason.UNKNOWN_MODEL)
    assert samples(metrics) == {("specroute_refused_requests_total", ("unknown_model",)): 1}


def test_waits_for_a_place_are_timed_and_counted_by_their_end(metrics: Metrics) -> None:
    """Who was let in, who left, who was sent away after a wait, and who without one."""
    metrics.queued(0.5, None, left=False)
    metrics.queued(1.0, None, left=True)
    metrics.queued(2.0, Cause.DEADLINE, left=False)
    metrics.turned_away(Cause.QUEUE_FULL)
    assert samples(metrics) == {
        ("specroute_queue_seconds_count", ()): 3,
        ("specroute_queue_seconds_sum", ()): 3.5,
        ("specroute_admission_left_total", ()): 1,
        ("specroute_admission_refused_total", ("deadline",)): 1,
        ("specroute_admission_refused_total", ("queue_full",)): 1,
    }


def test_gauges_are_read_when_they_are_scraped(metrics: Metrics) -> None:
    """From state, in whatever order it gives the labels."""
    up = 1.0

    def source() -> Iterator[tuple[str, dict[str, str], float]]:
        yield "specroute_store_up", {}, up
        yield "specroute_replica_up", {"replica": "fast/0", "pool": "fast", "model": "m"}, up

    metrics.add_gauges(source)
    assert samples(metrics)["specroute_replica_up", ("m", "fast", "fast/0")] == 1
    up = 0.0
    assert samples(metrics) == {}


def test_two_processes_share_nothing() -> None:
    """Each has a registry of its own, so tests and reloads do not collide."""
    first, second = Metrics(), Metrics()
    first.refuse(Reason.DRAINING)
    assert samples(second) == {}


def test_every_metric_is_ours_in_base_units_and_explained(metrics: Metrics) -> None:
    """One prefix, and a help text for each."""
    metrics.add_gauges(lambda: ())
    families = list(text_string_to_metric_families(metrics.exposition().decode()))
    assert {family.name for family in families} >= set(GAUGES)
    assert all(family.name.startswith("specroute_") for family in families)
    assert all(family.documentation.endswith(".") for family in families)
    assert not [family.name for family in families if family.name.endswith(("_ms", "_percent"))]


def test_what_is_put_off_is_done_before_anybody_reads() -> None:
    """Once a reading, however often it was given; what it counts is in what is read."""
    metrics = Metrics()
    done = []

    def work() -> None:
        done.append(1)
        metrics.observe("m", CHAT, decision(FAST), outcome())

    for _ in range(3):
        metrics.put_off(work)
    assert b'class="chat",model="m",pool="fast",status="ok"} 1.0' in metrics.exposition()
    assert len(done) == 1
