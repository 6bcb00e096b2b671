"""Metrics of several processes look like one's."""

from __future__ import annotations

from collections.abc import Mapping

from prometheus_client.parser import text_string_to_metric_families

from router.errors import Reason
from router.observe.catalog import GAUGES
from router.observe.metrics import Metrics
from router.observe.sums import GAUGE_SUMS, counted, exposition, samples_of, summed
from tests.support.builders import CHAT, FAST, decision, outcome

CELL = {"model": "m", "pool": "p", "class": "c"}


def process(answers: int = 0, gauges: Mapping[str, float] | None = None) -> Metrics:
    """What a process has counted."""
    metrics = Metrics()
    for _ in range(answers):
        metrics.observe("m", CHAT, decision(FAST), outcome())
    metrics.refuse(Reason.DRAINING)
    metrics.add_gauges(
        lambda: [
            (name, CELL if GAUGES[name][1] else {}, value) for name, value in (gauges or {}).items()
        ]
    )
    return metrics


def values(text: bytes) -> dict[tuple[str, ...], float]:
    """All samples by name and label values."""
    return {
        (sample.name, *sorted(sample.labels.values())): sample.value
        for family in text_string_to_metric_families(text.decode())
        for sample in family.samples
    }


def test_one_process_stays_as_it_is() -> None:
    """Its own text and the sum of it alone say the same."""
    metrics = process(3, {"specroute_store_up": 1})
    assert exposition(samples_of(metrics.registry)) == metrics.exposition()
    assert exposition(summed([samples_of(metrics.registry)])) == metrics.exposition()


def test_counters_and_histograms_are_added() -> None:
    """By labels; buckets too; the age of a counter is that of the oldest."""
    one, other = process(2), process(3)
    made = values(exposition(summed(samples_of(of.registry) for of in (one, other))))
    first, second = values(one.exposition()), values(other.exposition())
    assert made.keys() == first.keys() | second.keys()
    for key, value in made.items():
        both = [of[key] for of in (first, second) if key in of]
        assert value == (min(both) if key[0].endswith("_created") else sum(both))
    assert made["specroute_requests_total", "chat", "fast", "m", "ok"] == 5
    assert made["specroute_ttft_seconds_bucket", "+Inf", "chat", "fast", "m"] == 5


def test_gauges_are_what_they_mean() -> None:
    """Stores are up where all say so, ages are the worst, plans differ by their draws."""
    gauges = (
        "specroute_store_up",
        "specroute_snapshot_age_seconds",
        "specroute_probability",
        "specroute_workers",
    )
    one = process(0, dict(zip(gauges, (1.0, 5.0, 0.25, 1.0), strict=True)))
    other = process(0, dict(zip(gauges, (0.0, 2.0, 0.75, 1.0), strict=True)))
    made = values(exposition(summed(samples_of(of.registry) for of in (one, other))))
    assert made["specroute_store_up",] == 0
    assert made["specroute_snapshot_age_seconds",] == 5
    assert made["specroute_probability", "c", "m", "p"] == 0.5
    assert made["specroute_workers",] == 2


def test_what_an_ended_process_counted_stays() -> None:
    """Without its gauges: nothing goes back, and nothing is shown that is over."""
    ended, live = process(4, {"specroute_workers": 1}), process(1, {"specroute_workers": 1})
    past = counted(samples_of(ended.registry))
    made = values(exposition(summed([past, samples_of(live.registry)])))
    assert made["specroute_requests_total", "chat", "fast", "m", "ok"] == 5
    assert made["specroute_workers",] == 1


def test_every_gauge_says_how_it_adds_up() -> None:
    """A new one has to decide."""
    assert GAUGE_SUMS.keys() == GAUGES.keys()
