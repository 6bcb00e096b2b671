"""Measures the proxy beside its peers, all in the same rounds, and holds the ratios to the targets.

    python -m bench.overhead ../shared/bench_overhead --rounds 5

The load generators, the peers and their installation are the benchmark's own (see its README);
this adds the product to them, runs it and reads what it wrote.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
PEERS = ("nginx", "vllm-router", "production-stack", "litellm")
Sample = Mapping[str, Any]
Found = Mapping[tuple[str, str], Mapping[int, Sample]]
"""By scenario and proxy: a sample for each round."""


def cpu_per_unit(sample: Sample, _: Sample | None) -> float:
    """Seconds of the proxy's processor time for a request or a chunk."""
    return float(sample["cpu"] / sample["units"])


def rate(sample: Sample, _: Sample | None) -> float:
    """Chunks a second."""
    return float(sample["chunks_per_s"])


def added(group: str, key: str) -> Callable[[Sample, Sample | None], float]:
    """Microseconds beyond those without a proxy in the same round."""

    def measure(sample: Sample, direct: Sample | None) -> float:
        if direct is None:
            raise ValueError("no sample without a proxy")
        return float(sample[group][key] - direct[group][key])

    return measure


def peak(sample: Sample, _: Sample | None) -> float:
    """Bytes of memory at most."""
    return float(sample["rss_peak"])


@dataclass(frozen=True, slots=True)
class Target:
    """What the product's figure may be, against a peer's of the same round."""

    scenario: str
    what: str
    measure: Callable[[Sample, Sample | None], float]
    peer: str
    limit: float
    at_least: bool = False


TARGETS = (
    Target("stream-step-64", "CPU a chunk", cpu_per_unit, "vllm-router", 1.1),
    Target("stream-step-64", "CPU a chunk", cpu_per_unit, "production-stack", 1 / 4),
    Target("stream-step-64", "CPU a chunk", cpu_per_unit, "litellm", 1 / 60),
    Target("stream-bulk-64", "chunks/s", rate, "vllm-router", 1.0, at_least=True),
    Target("plain-2k-c32", "CPU a request", cpu_per_unit, "vllm-router", 3.0),
    Target("plain-2k-c32", "CPU a request", cpu_per_unit, "production-stack", 1 / 5),
    Target("plain-2k-c32", "CPU a request", cpu_per_unit, "litellm", 1 / 75),
    Target("plain-64k-c32", "CPU a request", cpu_per_unit, "vllm-router", 1.5),
    Target("plain-1m-c8", "CPU a request", cpu_per_unit, "vllm-router", 1.5),
    Target("stream-paced-500", "added TTFT p50", added("ttft_us", "p50"), "vllm-router", 1.0),
    Target("stream-paced-500", "added TTFT p99", added("ttft_us", "p99"), "vllm-router", 1.0),
    Target("stream-paced-500", "added delay p50", added("delay_us", "p50"), "vllm-router", 1.0),
    Target("stream-paced-500", "added delay p99", added("delay_us", "p99"), "vllm-router", 1.0),
    Target("stream-paced-500", "peak memory", peak, "vllm-router", 1.25),
)


def main() -> None:
    """Runs what is asked for and prints the table of targets."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("benchmark", type=Path, help="folder of the overhead benchmark")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--out", type=Path, default=Path("overhead.jsonl"))
    parser.add_argument("--peers", default=",".join(PEERS))
    parser.add_argument("--tries", type=int, default=5, help="most samples for one that counts")
    parser.add_argument("--read", action="store_true", help="only read what --out holds")
    options = parser.parse_args()
    if not options.read:
        run(options)
    found = read(options.out)
    for line in table(found):
        print(line)


def run(options: argparse.Namespace) -> None:
    """Runs the benchmark over the peers and the product."""
    folder = options.benchmark
    if not (folder / "bench.py").is_file():
        raise SystemExit(
            f"{folder}: no overhead benchmark there (no bench.py), and it is not part of this "
            "repository; name the folder that holds it"
        )
    scenarios = dict.fromkeys(target.scenario for target in TARGETS)
    command = [
        *(sys.executable, str(folder / "bench.py"), "run"),
        *("--peers", str(folder / "peers.toml"), "--peers", str(HERE / "peers.toml")),
        *("--proxies", f"{options.peers},specroute"),
        *("--scenarios", ",".join(scenarios)),
        *("--rounds", str(options.rounds), "--tries", str(options.tries)),
        *("--out", str(options.out)),
    ]
    options.out.unlink(missing_ok=True)
    subprocess.run(command, check=True, env=os.environ)


def read(path: Path) -> Found:
    """What was measured."""
    found: dict[tuple[str, str], dict[int, Sample]] = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        sample = json.loads(line)
        found.setdefault((sample["scenario"], sample["proxy"]), {})[sample["round"]] = sample
    return found


def table(found: Found) -> list[str]:
    """Targets, and the median over rounds of each ratio; a peer that did not run is named."""
    lines = [
        "| scenario | figure | against | target | median | least to most | |",
        "|---|---|---|---:|---:|---:|---|",
    ]
    for target in TARGETS:
        sign = "≥" if target.at_least else "≤"
        limit = f"{sign} {target.limit:.3g}"
        start = f"| `{target.scenario}` | {target.what} | {target.peer} | {limit} |"
        ratios = _ratios(found, target)
        if not ratios:
            lines.append(f"{start} – | – | did not run |")
            continue
        median = statistics.median(ratios)
        met = median >= target.limit if target.at_least else median <= target.limit
        spread = f"{min(ratios):.3g} to {max(ratios):.3g}"
        lines.append(f"{start} {median:.3g} | {spread} | {'met' if met else 'missed'} |")
    errors = sum(
        sample["errors"] + sample.get("unfinished", 0)
        for (_, proxy), rounds in found.items()
        if proxy == "specroute"
        for sample in rounds.values()
    )
    lines.append(f"\nErrors and wrong bytes of the product: {errors}.")
    return lines


def _ratios(found: Found, target: Target) -> list[float]:
    own = found.get((target.scenario, "specroute"), {})
    peer = found.get((target.scenario, target.peer), {})
    direct = found.get((target.scenario, "direct"), {})
    ratios = []
    for number in own.keys() & peer.keys():
        base = target.measure(peer[number], direct.get(number))
        if base > 0:
            ratios.append(target.measure(own[number], direct.get(number)) / base)
    return ratios


if __name__ == "__main__":
    main()
