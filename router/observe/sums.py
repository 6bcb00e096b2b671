"""Metrics of several processes added up, so that they look like one's.

Counters never go back: what an ended process had counted stays in the sum.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Literal

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

Samples = Sequence[Any]
"""Families as JSON values: name, kind, text, and samples of name, labels, value."""

GAUGE_SUMS: dict[str, Literal["sum", "least", "most", "mean"]] = {
    "specroute_in_flight_requests": "sum",
    "specroute_replica_up": "least",
    "specroute_replica_breaker": "most",
    "specroute_replica_cooling_seconds": "most",
    "specroute_replica_suspect": "most",
    "specroute_replica_draining": "most",
    "specroute_replica_share_ratio": "mean",
    "specroute_replica_line_seconds": "most",
    "specroute_replica_running_requests": "mean",
    "specroute_replica_waiting_requests": "mean",
    "specroute_replica_kv_usage_ratio": "mean",
    "specroute_admission_in_flight": "sum",
    "specroute_admission_waiting": "sum",
    "specroute_policy_failed_classes": "most",
    "specroute_probability": "mean",
    "specroute_tokens_per_step": "mean",
    "specroute_acceptance_rate": "mean",
    "specroute_gain_ratio": "mean",
    "specroute_buffered_bytes": "sum",
    "specroute_workers": "sum",
    "specroute_store_up": "least",
    "specroute_snapshot_age_seconds": "most",
    "specroute_store_dropped_increments": "sum",
    "specroute_store_refused_increments": "sum",
    "specroute_store_waiting_increments": "sum",
    "specroute_store_late_made_tokens": "sum",
    "specroute_store_clock_skew_seconds": "mean",
    "specroute_speculation_off": "least",
    "specroute_quarantined": "most",
    "specroute_experiment_share": "least",
    "specroute_experiment_missing_units": "sum",
    "specroute_background_errors": "sum",
    "specroute_decision_log_dropped_lines": "sum",
}
"""What a gauge of several processes is: they see the same servers, and plans that differ by their
own draws."""

_TAKEN: dict[str, Callable[[list[float]], float]] = {
    "sum": sum,
    "least": min,
    "most": max,
    "mean": lambda values: sum(values) / len(values),
}
_COUNTED = ("counter", "histogram")
_CREATED = "_created"


def samples_of(registry: Collector) -> list[Any]:
    """All families of a registry, as JSON values."""
    return [
        [
            family.name,
            family.type,
            family.documentation,
            [[sample.name, sample.labels, sample.value] for sample in family.samples],
        ]
        for family in registry.collect()
    ]


def counted(samples: Samples) -> list[Any]:
    """Only what adds up over time: of a process that has ended, the rest says nothing."""
    return [family for family in samples if family[1] in _COUNTED]


def summed(sources: Iterable[Samples]) -> list[Any]:
    """One family of each name, with one sample of each name and labels."""
    families: dict[str, tuple[str, str, dict[tuple[str, ...], tuple[Any, list[float]]]]] = {}
    for source in sources:
        for name, kind, text, samples in source:
            _, _, values = families.setdefault(name, (kind, text, {}))
            for sample, labels, value in samples:
                key = (sample, *(part for item in sorted(labels.items()) for part in item))
                values.setdefault(key, ((sample, labels), []))[1].append(value)
    return [
        [
            name,
            kind,
            text,
            [
                [sample, labels, _taken(name, sample, kind, found)]
                for (sample, labels), found in values.values()
            ],
        ]
        for name, (kind, text, values) in families.items()
    ]


def _taken(family: str, sample: str, kind: str, values: list[float]) -> float:
    if kind in _COUNTED:
        return min(values) if sample.endswith(_CREATED) else sum(values)
    return _TAKEN[GAUGE_SUMS.get(family, "sum")](values)


def exposition(samples: Samples) -> bytes:
    """The text that Prometheus scrapes."""
    registry = CollectorRegistry()
    registry.register(_Given(samples))
    return generate_latest(registry)


class _Given(Collector):
    def __init__(self, samples: Samples) -> None:
        self._samples = samples

    def collect(self) -> Iterator[Metric]:
        for name, kind, text, samples in self._samples:
            family = Metric(name, text, kind)
            for sample, labels, value in samples:
                family.add_sample(sample, labels, value)
            yield family

    def describe(self) -> Iterable[Metric]:
        return ()
