"""Counts what `catalog` lists. Gauges are read from state when they are scraped."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from prometheus_client import CollectorRegistry, Counter, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from policies.types import OK, ArmId, ClassId, Status
from router.admission.queue import Cause
from router.errors import Reason
from router.observe.catalog import COUNTERS, GAUGES, HISTOGRAMS
from router.observe.durations import Counts, Durations, Labels
from router.types import Decision, Outcome, RequestContext

GaugeSource = Callable[[], Iterable[tuple[str, dict[str, str], float]]]
"""Gives (name, labels, value) for the gauges of `catalog.GAUGES`."""


class _CellSeries:
    """The series of one model, pool and class, looked up once."""

    __slots__ = ("e2e", "ended", "tpot", "ttft")

    def __init__(self, metrics: Metrics, cell: Labels) -> None:
        self.ended = {status: metrics.requests.count((*cell, status.value)) for status in Status}
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


def structure_found(outcome: Outcome) -> str | None:
    """What is told of an answer's structure; None where it had to have none."""
    if outcome.truncated:
        return "truncated"
    if outcome.valid is not None:
        return "valid" if outcome.valid else "invalid"
    return None if outcome.truncated is None else "unknown"


class Metrics:
    """Counters and histograms of this process."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._put_off = _PutOff()
        self.registry.register(self._put_off)  # the first, so that all others tell what it did
        self.requests = self._counts("specroute_requests")
        self.balanced = self._counter("specroute_balanced_requests")
        self.refused = self._counter("specroute_refused_requests")
        self.admission_refused = self._counter("specroute_admission_refused")
        self.admission_left = self._counter("specroute_admission_left")
        self.queue = self._durations("specroute_queue_seconds").series(())
        self.structured = self._counter("specroute_structured_answers")
        self.repeats = self._counter("specroute_repeats")
        self.fallbacks = self._counter("specroute_fallbacks")
        self.excluded = self._counter("specroute_excluded_arms")
        self.unread = self._counter("specroute_unread_fields")
        self.recorder_errors = self._counter("specroute_recorder_errors")
        self.config_reloads = self._counter("specroute_config_reloads")
        self.worker_restarts = self._counter("specroute_worker_restarts")
        self.ttft = self._durations("specroute_ttft_seconds")
        self.tpot = self._durations("specroute_tpot_seconds")
        self.e2e = self._durations("specroute_e2e_seconds")
        self.overhead = self._durations("specroute_overhead_seconds")
        self._overhead = self.overhead.series(())
        self.loop_lag = self._durations("specroute_loop_lag_seconds").series(())
        self._cells: dict[Labels, _CellSeries] = {}

    def _counter(self, name: str) -> Counter:
        text, labels = COUNTERS[name]
        return Counter(name, text, labels, registry=self.registry)

    def _counts(self, name: str) -> Counts:
        counts = Counts(name, *COUNTERS[name])
        self.registry.register(counts)
        return counts

    def _durations(self, name: str) -> Durations:
        text, labels, bounds = HISTOGRAMS[name]
        durations = Durations(name, text, labels, bounds)
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
        series.ended[outcome.status].n += 1
        if decision.excluded or outcome.unread:
            self._observe_oddities(model, decision, outcome)
        if outcome.overhead_s is not None:
            self._overhead.observe(outcome.overhead_s)
        if outcome.served_by not in (None, arm):
            self.fallbacks.labels(model, arm).inc()
            return
        found = structure_found(outcome)
        if found is not None:
            self.structured.labels(*cell, found).inc()
        if outcome.status is OK and not outcome.held:
            series.e2e.observe(outcome.e2e_s)
            if outcome.ttft_s is not None:
                series.ttft.observe(outcome.ttft_s)
            if outcome.tpot_s is not None:
                series.tpot.observe(outcome.tpot_s)

    def _observe_oddities(self, model: str, decision: Decision, outcome: Outcome) -> None:
        for excluded, reason in decision.excluded.items():
            self.excluded.labels(model, excluded, reason).inc()
        for field in outcome.unread:
            self.unread.labels(model, outcome.served_by or "", field).inc()

    def observe_balanced(self, ctx: RequestContext, outcome: Outcome) -> None:
        """Takes the outcome of a request that generates no text."""
        endpoint = ctx.request.endpoint.value
        self.balanced.labels(ctx.request.model, endpoint, outcome.status.value).inc()

    def repeated(self, model: str, arm_id: ArmId, result: str) -> None:
        """Takes what became of an answer that was drawn to be compared."""
        self.repeats.labels(model, arm_id, result).inc()

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
