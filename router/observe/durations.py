"""A histogram of durations by labels, made for the request path; knows nothing of what it counts.

prometheus_client's own takes a lock for the sum and one for the bucket, which it looks for one by
one. Ours is filled and read by the loop's thread alone.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from itertools import accumulate

from prometheus_client.core import HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

Labels = tuple[str, ...]
"""Values of labels, in the order of their names."""


class Durations(Collector):
    """Seconds, counted by bucket.

    Args:
        name: Of the metric, its unit included.
        text: What it shows.
        labels: Their names.
        bounds: Largest seconds of each bucket, increasing; one without end follows.
    """

    def __init__(
        self, name: str, text: str, labels: Sequence[str], bounds: Sequence[float]
    ) -> None:
        self._name = name
        self._text = text
        self._labels = labels
        self._bounds = tuple(bounds)
        self._counts: dict[Labels, list[int]] = {}
        self._sums: dict[Labels, float] = {}

    def observe(self, labels: Labels, seconds: float) -> None:
        """Counts one duration."""
        counts = self._counts.get(labels)
        if counts is None:
            counts = self._counts[labels] = [0] * (len(self._bounds) + 1)
            self._sums[labels] = 0.0
        counts[bisect_left(self._bounds, seconds)] += 1
        self._sums[labels] += seconds

    def describe(self) -> Iterable[Metric]:
        """The family without its samples."""
        yield HistogramMetricFamily(self._name, self._text, labels=self._labels)

    def collect(self) -> Iterable[Metric]:
        """The family as it stands."""
        family = HistogramMetricFamily(self._name, self._text, labels=self._labels)
        names = [*(str(float(bound)) for bound in self._bounds), "+Inf"]
        for labels, counts in self._counts.items():
            buckets = list(zip(names, accumulate(counts), strict=True))
            family.add_metric(labels, buckets, self._sums[labels])
        yield family
