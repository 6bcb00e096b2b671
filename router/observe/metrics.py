"""Every Prometheus metric, in one table. Gauges are read from state when they are scraped."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from policies.types import Status
from router.errors import Reason
from router.types import Decision, Outcome, RequestContext

_LATENCY_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300)
_TPOT_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.15, 0.25, 0.5, 1)
_OVERHEAD_BUCKETS = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.05, 0.25, 1)
_CELL = ("model", "pool", "class")

GaugeSource = Callable[[], Iterable[tuple[str, dict[str, str], float]]]
"""Gives (name, labels, value) for the gauges of `GAUGES`."""

GAUGES: dict[str, tuple[str, tuple[str, ...]]] = {
    "specroute_in_flight_requests": (
        "Requests now at a server, counted by this process.",
        ("model", "pool", "replica"),
    ),
    "specroute_replica_up": (
        "1 when a server answered its last probe.",
        ("model", "pool", "replica"),
    ),
    "specroute_probability": ("Probability with which the policy now picks a pool.", _CELL),
    "specroute_tokens_per_step": ("Tokens per decode step over the window.", _CELL),
    "specroute_acceptance_rate": ("Probability that a drafted token is accepted.", _CELL),
    "specroute_gain_ratio": (
        "Share of time saved against the concurrent baseline over the window.",
        _CELL,
    ),
    "specroute_workers": ("Processes that serve and answer.", ()),
    "specroute_store_up": ("1 when the store answered the last refresh.", ()),
    "specroute_snapshot_age_seconds": ("Age of what the policies know.", ()),
    "specroute_store_dropped_increments": ("Increments that found no room in memory.", ()),
    "specroute_store_refused_increments": (
        "Increments that the store refused because of what it held.",
        (),
    ),
    "specroute_background_errors": (
        "Rounds of background work that failed in a way nobody had foreseen.",
        (),
    ),
    "specroute_decision_log_dropped_lines": ("Decision lines that were not written.", ()),
}


class _Gauges(Collector):
    def __init__(self, source: GaugeSource) -> None:
        self._source = source

    def collect(self) -> Iterable[Metric]:
        families = {
            name: GaugeMetricFamily(name, text, labels=labels)
            for name, (text, labels) in GAUGES.items()
        }
        for name, labels, value in self._source():
            family = families[name]
            family.add_metric([labels[key] for key in GAUGES[name][1]], value)
        return families.values()

    def describe(self) -> Iterable[Metric]:
        return ()


class Metrics:
    """Counters and histograms of this process."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        registry = self.registry
        self.requests = Counter(
            "specroute_requests",
            "Requests decided, by the arm chosen and how they ended.",
            (*_CELL, "status"),
            registry=registry,
        )
        self.refused = Counter(
            "specroute_refused_requests",
            "Requests answered by an error of the proxy itself.",
            ("reason",),
            registry=registry,
        )
        self.fallbacks = Counter(
            "specroute_fallbacks",
            "Requests served by the baseline because the chosen pool did not answer.",
            ("model", "pool"),
            registry=registry,
        )
        self.excluded = Counter(
            "specroute_excluded_arms",
            "Arms left out of a decision, by reason.",
            ("model", "pool", "reason"),
            registry=registry,
        )
        self.unread = Counter(
            "specroute_unread_fields",
            "Fields of engines' answers that were missing or not understood.",
            ("model", "pool", "field"),
            registry=registry,
        )
        self.recorder_errors = Counter(
            "specroute_recorder_errors", "Outcomes that were not recorded.", registry=registry
        )
        self.config_reloads = Counter(
            "specroute_config_reloads",
            "Reloads of the configuration, by what came of them: applied, refused.",
            ("result",),
            registry=registry,
        )
        self.worker_restarts = Counter(
            "specroute_worker_restarts",
            "Workers that ended and were started again.",
            registry=registry,
        )
        self.ttft = _histogram("specroute_ttft", "Time to first token.", _LATENCY_BUCKETS, self)
        self.tpot = _histogram("specroute_tpot", "Time per output token.", _TPOT_BUCKETS, self)
        self.e2e = _histogram("specroute_e2e", "Whole request.", _LATENCY_BUCKETS, self)
        self.overhead = Histogram(
            "specroute_overhead_seconds",
            "Arrival until the request was handed to an upstream connection.",
            buckets=_OVERHEAD_BUCKETS,
            registry=registry,
        )

    def observe(self, ctx: RequestContext, decision: Decision, outcome: Outcome) -> None:
        """Takes the outcome of a request."""
        model, arm = ctx.request.model, str(decision.arm_id)
        cell = (model, arm, str(ctx.classification.class_id))
        self.requests.labels(*cell, outcome.status.value).inc()
        for excluded, reason in decision.excluded.items():
            self.excluded.labels(model, excluded, reason).inc()
        for field in outcome.unread:
            self.unread.labels(model, outcome.served_by or "", field).inc()
        if outcome.overhead_s is not None:
            self.overhead.observe(outcome.overhead_s)
        if outcome.served_by not in (None, decision.arm_id):
            self.fallbacks.labels(model, arm).inc()
        elif outcome.status is Status.OK and not outcome.held:
            self.e2e.labels(*cell).observe(outcome.e2e_s)
            if outcome.ttft_s is not None:
                self.ttft.labels(*cell).observe(outcome.ttft_s)
            if outcome.tpot_s is not None:
                self.tpot.labels(*cell).observe(outcome.tpot_s)

    def refuse(self, reason: Reason) -> None:
        """Counts an error reply of ours."""
        self.refused.labels(reason.value).inc()

    def count_reload(self, result: str) -> None:
        """Counts a reload of the configuration."""
        self.config_reloads.labels(result).inc()

    def add_gauges(self, source: GaugeSource) -> None:
        """Registers where gauges are read from."""
        self.registry.register(_Gauges(source))

    def exposition(self) -> bytes:
        """The text that Prometheus scrapes."""
        return generate_latest(self.registry)


def _histogram(name: str, text: str, buckets: tuple[float, ...], metrics: Metrics) -> Histogram:
    return Histogram(f"{name}_seconds", text, _CELL, buckets=buckets, registry=metrics.registry)
