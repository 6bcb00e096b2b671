"""Figures of an engine's load, read from the text that Prometheus would scrape.

Values only: fetching is `router.fleet.scrape`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass

_SAMPLE = re.compile(
    r"""^(?P<name>[A-Za-z_:][A-Za-z0-9_:]*)
        (?:\{(?P<labels>(?:[^"}]|"(?:[^"\\]|\\.)*")*)\})?
        [ \t]+(?P<value>[^ \t]+)""",
    re.VERBOSE,
)
_LABEL = re.compile(r'([A-Za-z_][A-Za-z0-9_]*)\s*=\s*"((?:[^"\\]|\\.)*)"')


@dataclass(frozen=True, slots=True)
class ReplicaGauges:
    """One server's own view of its load; None where it does not tell."""

    running: int | None = None
    """Requests being worked on."""
    waiting: int | None = None
    """Requests that have come and are not."""
    kv_usage: float | None = None
    """Share of the cache for keys and values that is in use, in [0, 1]."""

    @property
    def known(self) -> bool:
        """Whether anything is told."""
        return (self.running, self.waiting, self.kv_usage) != (None, None, None)


UNKNOWN = ReplicaGauges()


@dataclass(frozen=True, slots=True)
class Sample:
    """One line: labels and value."""

    labels: dict[str, str]
    value: float


Samples = dict[str, list[Sample]]


def samples(text: str, names: Iterable[str]) -> Samples:
    r"""The samples of some metrics, by name; lines that cannot be read are left out.

    >>> samples('# HELP a b\na{engine="0"} 2.0\na{engine="1"} NaN\nb 1\n', ("a",))
    {'a': [Sample(labels={'engine': '0'}, value=2.0)]}
    """
    wanted = tuple(names)
    found: Samples = {}
    for line in text.splitlines():
        # Most lines belong to histograms: they are dropped before the costly look.
        if not line.startswith(wanted):
            continue
        match = _SAMPLE.match(line)
        if match is None or match["name"] not in wanted:
            continue
        try:
            value = float(match["value"])
        except ValueError:
            continue
        if math.isfinite(value):
            labels = dict(_LABEL.findall(match["labels"] or ""))
            found.setdefault(match["name"], []).append(Sample(labels, value))
    return found


def total(found: Samples, *names: str, by: str | None = None) -> int | None:
    """Requests over all engines behind an address: the first of the names that is there.

    Args:
        found: What was read.
        names: The metric's names, the newest first.
        by: Label that tells engines apart. Of lines that share its value, such as the ranks of one
            engine, the largest counts; without it all lines are added.
    """
    for name in names:
        lines = [line for line in found.get(name, ()) if line.value >= 0]
        if lines:
            if by is None:
                return round(sum(line.value for line in lines))
            largest: dict[str, float] = {}
            for line in lines:
                engine = line.labels.get(by, "")
                largest[engine] = max(line.value, largest.get(engine, 0.0))
            return round(sum(largest.values()))
    return None


def mean_ratio(found: Samples, *names: str) -> float | None:
    """A share in [0, 1], averaged over all lines of the first of the names that is there."""
    for name in names:
        values = [line.value for line in found.get(name, ()) if 0 <= line.value <= 1]
        if values:
            return sum(values) / len(values)
    return None


_VLLM = (
    "vllm:num_requests_running",
    "vllm:num_requests_waiting",
    "vllm:kv_cache_usage_perc",
    "vllm:gpu_cache_usage_perc",
)
_SGLANG = ("sglang:num_running_reqs", "sglang:num_queue_reqs", "sglang:token_usage")
_LLAMACPP = (
    "llamacpp:requests_processing",
    "llamacpp:requests_deferred",
    "llamacpp:kv_cache_usage_ratio",
)


def vllm_gauges(text: str) -> ReplicaGauges:
    """Of vLLM, whose lines are those of its data-parallel engines."""
    found = samples(text, _VLLM)
    running, waiting, kv_usage, kv_usage_before = _VLLM
    return ReplicaGauges(
        total(found, running), total(found, waiting), mean_ratio(found, kv_usage, kv_usage_before)
    )


def sglang_gauges(text: str) -> ReplicaGauges:
    """Of SGLang, where the ranks of one data-parallel engine may each tell the same."""
    found = samples(text, _SGLANG)
    running, waiting, kv_usage = _SGLANG
    return ReplicaGauges(
        total(found, running, by="dp_rank"),
        total(found, waiting, by="dp_rank"),
        mean_ratio(found, kv_usage),
    )


def llamacpp_gauges(text: str) -> ReplicaGauges:
    """Of llama.cpp; the use of its cache is told by older builds only."""
    found = samples(text, _LLAMACPP)
    running, waiting, kv_usage = _LLAMACPP
    return ReplicaGauges(total(found, running), total(found, waiting), mean_ratio(found, kv_usage))


def any_gauges(text: str) -> ReplicaGauges:
    """Of whichever of the engines above prints them; unknown for any other."""
    for read in (vllm_gauges, sglang_gauges, llamacpp_gauges):
        gauges = read(text)
        if gauges.known:
            return gauges
    return UNKNOWN
