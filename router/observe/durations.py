"""Counts and durations by labels, made for the request path; knows nothing of what it counts.

prometheus_client's own take a lock for each number, and look for a bucket one by one. Ours are
filled and read by the loop's thread alone.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from itertools import accumulate

from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

Labels = tuple[str, ...]
"""Values of labels, in the order of their names."""


class Count:
    """How often something was."""

    __slots__ = ("n",)

    def __init__(self) -> None:
        self.n = 0


class Counts(Collector):
    """The counts of one metric.

    Args:
        name: Of the metric.
        text: What it shows.
        labels: Their names.
    """

    def __init__(self, name: str, text: str, labels: Sequence[str]) -> None:
        self._name = name
        self._text = text
        self._labels = labels
        self._counts: dict[Labels, Count] = {}

    def count(self, labels: Labels) -> Count:
        """The count of these labels, 0 at first; whoever counts often keeps it."""
        return self._counts.setdefault(labels, Count())

    def describe(self) -> Iterable[Metric]:
        """The family without its samples."""
        yield CounterMetricFamily(self._name, self._text, labels=self._labels)

    def collect(self) -> Iterable[Metric]:
        """The family as it stands."""
        family = CounterMetricFamily(self._name, self._text, labels=self._labels)
        for labels, count in self._counts.items():
            family.add_metric(labels, count.n)
        yield family


class DurationSeries:
    """Seconds, counted by bucket, of one set of labels.

    Args:
        bounds: Largest seconds of each bucket, increasing; one without end follows.
    """

    __slots__ = ("_bounds", "counts", "total_s")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self._bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total_s = 0.0

    def observe(self, seconds: float) -> None:
        """Counts one duration."""
        self.counts[bisect_left(self._bounds, seconds)] += 1
        self.total_s += seconds


class Durations(Collector):
    """The series of one metric.

    Args:
        name: Of the metric, its unit included.
        text: What it shows.
        labels: Their names.
        bounds: See `DurationSeries`.
    """

    def __init__(
        self, name: str, text: str, labels: Sequence[str], bounds: Sequence[float]
    ) -> None:
        self._name = name
        self._text = text
        self._labels = labels
        self._bounds = tuple(bounds)
        self._series: dict[Labels, DurationSeries] = {}

    def series(self, labels: Labels) -> DurationSeries:
        """The series of these labels; whoever counts often keeps it."""
        found = self._series.get(labels)
        if found is None:
            found = self._series[labels] = DurationSeries(self._bounds)
        return found

    def describe(self) -> Iterable[Metric]:
        """The family without its samples."""
        yield HistogramMetricFamily(self._name, self._text, labels=self._labels)

    def collect(self) -> Iterable[Metric]:
        """The family as it stands."""
        family = HistogramMetricFamily(self._name, self._text, labels=self._labels)
        names = [*(str(float(bound)) for bound in self._bounds), "+Inf"]
        for labels, series in self._series.items():
            buckets = list(zip(names, accumulate(series.counts), strict=True))
            family.add_metric(labels, buckets, series.total_s)
        yield family
