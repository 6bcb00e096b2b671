"""A histogram of durations."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, Histogram, generate_latest

from router.observe.durations import Durations

BOUNDS = (0.1, 0.5, 2.5)
LABELS = ("model", "pool")


def exposed(*seen: tuple[str, float]) -> list[str]:
    """What is scraped after these durations of pools."""
    registry = CollectorRegistry()
    durations = Durations("d_seconds", "What.", LABELS, BOUNDS)
    registry.register(durations)
    for pool, seconds in seen:
        durations.series(("m", pool)).observe(seconds)
    return generate_latest(registry).decode().splitlines()


@given(st.lists(st.tuples(st.sampled_from("ab"), st.floats(0, 10) | st.sampled_from(BOUNDS))))
def test_it_exposes_what_prometheus_s_own_histogram_does(seen: list[tuple[str, float]]) -> None:
    """Line by line; when a series was made is left out."""
    registry = CollectorRegistry()
    histogram = Histogram("d_seconds", "What.", LABELS, buckets=BOUNDS, registry=registry)
    for pool, seconds in seen:
        histogram.labels("m", pool).observe(seconds)
    expected = [
        line for line in generate_latest(registry).decode().splitlines() if "_created" not in line
    ]
    assert exposed(*seen) == expected


def test_a_bound_belongs_to_the_bucket_below_it() -> None:
    """`le` is less or equal."""
    assert 'd_seconds_bucket{le="0.5",model="m",pool="a"} 1.0' in exposed(("a", 0.5))
    assert 'd_seconds_bucket{le="0.1",model="m",pool="a"} 0.0' in exposed(("a", 0.5))


def test_a_name_is_taken_once() -> None:
    """The registry knows the name before anything was counted."""
    registry = CollectorRegistry()
    registry.register(Durations("d_seconds", "What.", LABELS, BOUNDS))
    with pytest.raises(ValueError, match="Duplicated"):
        registry.register(Durations("d_seconds", "What.", LABELS, BOUNDS))
