"""Figures of an engine's load, read from the text that Prometheus would scrape.

Values only: fetching is `router.fleet.scrape`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice

_SAMPLE = re.compile(
    r"""^(?P<name>[A-Za-z_:][A-Za-z0-9_:]*)
        (?:\{(?P<labels>(?:[^"}]|"(?:[^"\\]|\\.)*")*)\})?
        [ \t]+(?P<value>[^ \t]+)""",
    re.VERBOSE,
)
_LABEL = re.compile(r'(?<![A-Za-z0-9_])([A-Za-z_][A-Za-z0-9_]*)\s*=\s*"((?:[^"\\]|\\.)*)"')

_LARGEST = 2.0**53
"""Figures of this size and above are no counts: floats do not hold them exactly, nor does JSON
everywhere."""

_LONGEST_LINE = 16 * 1024
_MOST_LINES = 8192
"""Of one metric; a page with more of them is no engine's, and would hold everybody up."""


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
    found: Samples = {}
    for name in names:
        # Most lines belong to histograms, and none of them is looked at.
        lines = list(islice(_lines(text, name), _MOST_LINES + 1))
        if len(lines) > _MOST_LINES:
            continue
        for line in lines:
            match = _SAMPLE.match(line)
            if match is None or match["name"] != name:
                continue
            try:
                value = float(match["value"])
            except ValueError:
                continue
            if abs(value) < _LARGEST:
                labels = dict(_LABEL.findall(match["labels"] or ""))
                found.setdefault(name, []).append(Sample(labels, value))
    return found


def _lines(text: str, name: str) -> Iterator[str]:
    """Lines that begin with a name, without cutting a long page up; very long ones are left out."""
    mark = f"\n{name}"
    start = 0 if text.startswith(name) else text.find(mark) + 1 or -1
    while start >= 0:
        end = text.find("\n", start)
        line = text[start:] if end < 0 else text[start:end]
        if len(line) <= _LONGEST_LINE:
            yield line
        start = -1 if end < 0 else text.find(mark, end) + 1 or -1


def whole(values: Iterable[float]) -> int | None:
    """The sum of counts as an integer; None where it is too large for one.

    >>> whole([1.0, 2.0]), whole([2.0**52, 2.0**52])
    (3, None)
    """
    added = sum(values)
    return round(added) if added < _LARGEST else None


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
                return whole(line.value for line in lines)
            largest: dict[str, float] = {}
            for line in lines:
                engine = line.labels.get(by, "")
                largest[engine] = max(line.value, largest.get(engine, 0.0))
            return whole(largest.values())
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
