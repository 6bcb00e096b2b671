"""Every Prometheus metric, in one table. Gauges are read from state when they are scraped."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from prometheus_client import CollectorRegistry, Counter, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from policies.types import ClassId, Status
from router.admission.queue import Cause
from router.errors import Reason
from router.observe.durations import Durations, Labels
from router.types import Decision, Outcome, RequestContext

_LATENCY_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300)
_TPOT_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.15, 0.25, 0.5, 1)
_OVERHEAD_BUCKETS = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.05, 0.25, 1)
_LAG_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5)
_QUEUE_BUCKETS = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
_CELL = ("model", "pool", "class")
_REPLICA = ("model", "pool", "replica")

GaugeSource = Callable[[], Iterable[tuple[str, dict[str, str], float]]]
"""Gives (name, labels, value) for the gauges of `GAUGES`."""

GAUGES: dict[str, tuple[str, tuple[str, ...]]] = {
    "specroute_admission_in_flight": ("Requests being served by this process.", ()),
    "specroute_admission_waiting": ("Requests waiting for a place in this process.", ()),
    "specroute_in_flight_requests": (
        "Requests now at a server, counted by this process.",
        _REPLICA,
    ),
    "specroute_replica_up": ("1 when a server answers probes and connections.", _REPLICA),
    "specroute_replica_breaker": (
        "Breaker of a server: 0 closed, 1 half open, 2 open.",
        _REPLICA,
    ),
    "specroute_replica_cooling_seconds": (
        "Until a server that said it was busy may get requests again.",
        _REPLICA,
    ),
    "specroute_replica_suspect": ("1 when a server stopped working on what it has.", _REPLICA),
    "specroute_replica_draining": ("1 when an operator took a server out.", _REPLICA),
    "specroute_replica_share_ratio": ("How far the slow start of a server is.", _REPLICA),
    "specroute_replica_running_requests": (
        "Requests that an engine works on, by its own account.",
        _REPLICA,
    ),
    "specroute_replica_waiting_requests": (
        "Requests that wait at an engine, by its own account.",
        _REPLICA,
    ),
    "specroute_replica_kv_usage_ratio": (
        "Share of an engine's key-value cache that is in use, by its own account.",
        _REPLICA,
    ),
    "specroute_probability": ("Probability with which the policy now picks a pool.", _CELL),
    "specroute_policy_failed_classes": (
        "Classes that get the baseline because the policy failed for them.",
        ("model",),
    ),
    "specroute_tokens_per_step": ("Tokens per decode step over the window.", _CELL),
    "specroute_acceptance_rate": ("Probability that a drafted token is accepted.", _CELL),
    "specroute_gain_ratio": (
        "Share of time saved against the concurrent baseline over the window.",
        _CELL,
    ),
    "specroute_buffered_bytes": ("Bytes of request bodies held in memory.", ()),
    "specroute_workers": ("Processes that serve and answer.", ()),
    "specroute_store_up": ("1 when the store answered the last refresh.", ()),
    "specroute_snapshot_age_seconds": ("Age of what the policies know.", ()),
    "specroute_store_dropped_increments": ("Increments that found no room in memory.", ()),
    "specroute_store_refused_increments": (
        "Increments that the store refused because of what it held.",
        (),
    ),
    "specroute_store_waiting_increments": ("Increments that the store has not confirmed.", ()),
    "specroute_store_late_made_tokens": (
        "Tokens whose making was told too late to be attributed to their class.",
        (),
    ),
    "specroute_store_clock_skew_seconds": (
        "How far the store's clock is ahead of this host's.",
        (),
    ),
    "specroute_speculation_off": (
        "1 while the kill switch is thrown: all requests decode plainly.",
        (),
    ),
    "specroute_experiment_share": (
        "Share of an experiment's units that is treated; 0 where this process left the treatment.",
        ("experiment",),
    ),
    "specroute_experiment_missing_units": (
        "Requests that named no unit of the kind that is assigned.",
        ("experiment",),
    ),
    "specroute_background_errors": (
        "Rounds of background work that failed in a way nobody had foreseen.",
        (),
    ),
    "specroute_decision_log_dropped_lines": ("Decision lines that were not written.", ()),
}


class _CellSeries:
    """The series of one model, pool and class, looked up once."""

    __slots__ = ("e2e", "ended", "tpot", "ttft")

    def __init__(self, metrics: Metrics, cell: Labels) -> None:
        self.ended = {status: metrics.requests.labels(*cell, status.value) for status in Status}
        self.ttft = metrics.ttft.series(cell)
        self.tpot = metrics.tpot.series(cell)
        self.e2e = metrics.e2e.series(cell)


class _PutOff(Collector):
    """Has done what is put off until somebody looks; counts nothing itself."""

    def __init__(self) -> None:
        self.work: set[Callable[[], object]] = set()

    def collect(self) -> Iterable[Metric]:
        for work in tuple(self.work):
            work()
        return ()

    def describe(self) -> Iterable[Metric]:
        return ()


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
        self._put_off = _PutOff()
        registry.register(self._put_off)  # the first, so that all others tell what it did
        self.requests = Counter(
            "specroute_requests",
            "Requests decided, by the arm chosen and how they ended.",
            (*_CELL, "status"),
            registry=registry,
        )
        self.balanced = Counter(
            "specroute_balanced_requests",
            "Requests that generate no text, by endpoint and how they ended.",
            ("model", "endpoint", "status"),
            registry=registry,
        )
        self.refused = Counter(
            "specroute_refused_requests",
            "Requests answered by an error of the proxy itself.",
            ("reason",),
            registry=registry,
        )
        self.admission_refused = Counter(
            "specroute_admission_refused",
            "Requests that were given no place, by why they could not wait for one any longer.",
            ("reason",),
            registry=registry,
        )
        self.admission_left = Counter(
            "specroute_admission_left",
            "Requests whose client left while they waited for a place.",
            registry=registry,
        )
        self.queue = self._durations(
            "queue",
            "Wait for a place, of requests that had to wait, however that ended.",
            _QUEUE_BUCKETS,
            labels=(),
        ).series(())
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
        self.ttft = self._durations("ttft", "Time to first token.", _LATENCY_BUCKETS)
        self.tpot = self._durations("tpot", "Time per output token.", _TPOT_BUCKETS)
        self.e2e = self._durations("e2e", "Whole request.", _LATENCY_BUCKETS)
        self.overhead = self._durations(
            "overhead",
            "Arrival until the request was handed to an upstream connection, less waits.",
            _OVERHEAD_BUCKETS,
            labels=(),
        )
        self._overhead = self.overhead.series(())
        self.loop_lag = self._durations(
            "loop_lag",
            "How late the loop ran what was due: nobody is served meanwhile.",
            _LAG_BUCKETS,
            labels=(),
        ).series(())
        self._cells: dict[Labels, _CellSeries] = {}

    def _durations(
        self, name: str, text: str, bounds: tuple[float, ...], labels: tuple[str, ...] = _CELL
    ) -> Durations:
        durations = Durations(f"specroute_{name}_seconds", text, labels, bounds)
        self.registry.register(durations)
        return durations

    def put_off(self, work: Callable[[], object]) -> None:
        """Has work done before anybody reads what is counted; given twice it is done once."""
        self._put_off.work.add(work)

    def observe(self, model: str, class_id: ClassId, decision: Decision, outcome: Outcome) -> None:
        """Takes the outcome of a request."""
        arm = decision.arm_id
        cell = (model, arm, class_id)
        series = self._cells.get(cell)
        if series is None:
            series = self._cells[cell] = _CellSeries(self, cell)
        series.ended[outcome.status].inc()
        for excluded, reason in decision.excluded.items():
            self.excluded.labels(model, excluded, reason).inc()
        for field in outcome.unread:
            self.unread.labels(model, outcome.served_by or "", field).inc()
        if outcome.overhead_s is not None:
            self._overhead.observe(outcome.overhead_s)
        if outcome.served_by not in (None, arm):
            self.fallbacks.labels(model, arm).inc()
        elif outcome.status is Status.OK and not outcome.held:
            series.e2e.observe(outcome.e2e_s)
            if outcome.ttft_s is not None:
                series.ttft.observe(outcome.ttft_s)
            if outcome.tpot_s is not None:
                series.tpot.observe(outcome.tpot_s)

    def observe_balanced(self, ctx: RequestContext, outcome: Outcome) -> None:
        """Takes the outcome of a request that generates no text."""
        endpoint = ctx.request.endpoint.value
        self.balanced.labels(ctx.request.model, endpoint, outcome.status.value).inc()

    def refuse(self, reason: Reason) -> None:
        """Counts an error reply of ours."""
        self.refused.labels(reason.value).inc()

    def count_reload(self, result: str) -> None:
        """Counts a reload of the configuration."""
        self.config_reloads.labels(result).inc()

    def queued(self, waited_s: float, refused: Cause | None, *, left: bool) -> None:
        """Takes the end of a wait for a place."""
        self.queue.observe(waited_s)
        if left:
            self.admission_left.inc()
        if refused is not None:
            self.turned_away(refused)

    def turned_away(self, cause: Cause) -> None:
        """Counts a request that was given no place."""
        self.admission_refused.labels(cause.value).inc()

    def add_gauges(self, source: GaugeSource) -> None:
        """Registers where gauges are read from."""
        self.registry.register(_Gauges(source))

    def exposition(self) -> bytes:
        """The text that Prometheus scrapes."""
        return generate_latest(self.registry)
