"""`make verify`: the long checks, one after the other; their tables go into one page.

Where a section's table is kept on another page, that page has it from the same command.

python -m bench.verify docs/verification.md            everything
python -m bench.verify docs/verification.md --only bytes,soak
"""

from __future__ import annotations

import argparse
import os
import platform
import re
import sys
import time
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

from bench import (
    verify_assignment,
    verify_attribution,
    verify_brake,
    verify_bytes,
    verify_choice,
    verify_closed_loop,
    verify_coverage,
    verify_engines,
    verify_experiments,
    verify_fuzz,
    verify_limits,
    verify_models,
    verify_policies,
    verify_replay,
    verify_sentinel,
    verify_soak,
    verify_statistics,
    verify_store,
    verify_sums,
)


@dataclass(frozen=True, slots=True)
class Section:
    """One check: what it shows, the command that prints it alone, and the work."""

    title: str
    command: str
    run: Callable[[], str]
    elsewhere: str | None = None
    """Page beside this one that keeps its table, where it is about the same."""


def _closed_loops() -> str:
    light = verify_closed_loop.tables(600, cases=[("llama8b-light", 0.25)])
    heavy = verify_closed_loop.tables(700, cases=[("llama8b-heavy", 0.1)])
    return f"{light}\n\n{heavy}"


SECTIONS: dict[str, Section] = {
    "bytes": Section(
        "Bytes: no event stream and no request body is changed but where it must be",
        "python -m bench.verify_bytes --cases 100000",
        lambda: verify_bytes.tables(100_000),
    ),
    "fuzz": Section(
        "Fuzz: whole proxies between a client and an engine that know every byte",
        "python -m bench.verify_fuzz --cases 100000",
        lambda: verify_fuzz.tables(100_000),
    ),
    "statistics": Section(
        "Statistics: intervals, verdicts and learning over many seeds",
        "python -m bench.verify_statistics --seeds 400",
        lambda: verify_statistics.tables(400),
    ),
    "experiments": Section(
        "Experiments: false stops, power, coverage, and how soon the brake holds",
        "python -m bench.verify_experiments --seeds 1000",
        lambda: verify_experiments.tables(1000),
    ),
    "sentinel": Section(
        "Sentinel: healthy pools that are quarantined, and how soon damaged ones are",
        "python -m bench.verify_sentinel --seeds 1000",
        lambda: verify_sentinel.tables(1000),
    ),
    "assignment": Section(
        "Assignment: who is on which side, over processes, restarts, retries and a ramp",
        "python -m bench.verify_assignment --sessions 300",
        lambda: verify_assignment.tables(sessions=300),
        "experiments.md",
    ),
    "brake": Section(
        "The brake: a real proxy before simulated engines that turn bad, store or no store",
        "python -m bench.verify_brake --rounds 1",
        lambda: verify_brake.tables(rounds=1),
        "experiments.md",
    ),
    "limits": Section(
        "Limits of tenants: four processes under overload, and whether Retry-After is true",
        "python -m bench.verify_limits --seconds 120",
        lambda: verify_limits.tables(seconds=120.0),
        "tenants.md",
    ),
    "attribution": Section(
        "Attribution: tokens per step by class, from counters of whole servers alone",
        "python -m bench.verify_attribution --seeds 200",
        lambda: verify_attribution.tables(200),
    ),
    "models": Section(
        "Models: intervals of step time and TTFT, and what the drift detector finds",
        "python -m bench.verify_models --seeds 500",
        lambda: verify_models.tables(500),
    ),
    "coverage": Section(
        "Coverage: tau, quantiles, tails and gain under changes of load and adaptive shares",
        "python -m bench.verify_coverage --seeds 500",
        lambda: verify_coverage.tables(500),
    ),
    "choice": Section(
        "Choice: what is shown as gain of pools that do not differ, as the policy picks the moment",
        "python -m bench.verify_choice --requests 3000 --seeds 4` and with "
        "`--requests 20000 --seeds 2",
        lambda: f"{verify_choice.tables(3000, 4)}\n\n{verify_choice.tables(20_000, 2)}",
    ),
    "policies": Section(
        "Policies: what they gain in the simulated worlds",
        # Parameters were chosen on lower seeds.
        "python -m bench.verify_policies --first 100 --seeds 20 --others 1",
        lambda: verify_policies.tables(20, 1, os.cpu_count() or 1, first=100),
        "policies.md",
    ),
    "closed-loop": Section(
        "Closed loop: the proxy before engines over HTTP against the same world as a model",
        "python -m bench.verify_closed_loop --requests 600 --cases llama8b-light@0.25` and with "
        "`--requests 700 --cases llama8b-heavy@0.1",
        _closed_loops,
        "policies.md",
    ),
    "replay": Section(
        "Replay: intervals for policies that were not run, from logs of one that was",
        "python -m bench.verify_replay --runs 1000",
        lambda: verify_replay.tables(1000),
    ),
    "soak": Section(
        "Soak: 500 streams at once, 30 % left in the middle, twenty minutes",
        "python -m bench.verify_soak --streams 500 --seconds 1200",
        lambda: verify_soak.tables(streams=500, seconds=1200.0),
    ),
    "store": Section(
        "Store: what clients notice when it is frozen or killed",
        "python -m bench.verify_store --rounds 5 --seconds 5",
        lambda: verify_store.tables(rounds=5, seconds=5.0),
    ),
    "sums": Section(
        "Sums: eight processes, a restart of the store, a killed process, an audit",
        "python -m bench.verify_sums --seconds 60",
        lambda: verify_sums.tables(seconds=60.0),
    ),
    "engines": Section(
        "Real engines: what each pool gains by class, and what the proxy made of it",
        "python -m bench.verify_engines --per-class 8 --rounds 2 --seconds 300",
        lambda: verify_engines.tables(per_class=8, rounds=2, seconds=300.0),
    ),
}

_HEAD = """# What was verified

`make verify` runs everything and writes the tables here. Each section names the command that prints
it alone, as it was run last. Times depend on the machine; ratios are measured side by side.
"""


def page(existing: str, results: dict[str, str]) -> str:
    """The page with new results in place of old ones; other sections stay as they are."""
    parts = dict(re.findall(r"<!-- ([\w-]+) -->\n(.*?)(?=<!-- [\w-]+ -->|\Z)", existing, re.DOTALL))
    parts |= results
    body = "".join(f"<!-- {name} -->\n{parts[name]}" for name in SECTIONS if name in parts)
    return "\n".join([_HEAD, *_missing(parts.keys()), body])


def _missing(there: Collection[str]) -> Iterator[str]:
    """Which sections have no table here, and where else one is kept."""
    missing = {name: section for name, section in SECTIONS.items() if name not in there}
    if missing:
        yield "Of what `make verify` runs, these tables stand elsewhere:\n"
    for name, section in missing.items():
        place = section.elsewhere
        where = f"[{place}]({place})" if place else "nowhere yet; the command prints it"
        yield f"- {name}: {where} (`{section.command}`)"
    if missing:
        yield ""


def _run(section: Section) -> str:
    began = time.monotonic()
    text = section.run()
    took = time.monotonic() - began
    where = f"{os.cpu_count()} cores, Python {platform.python_version()}"
    return (
        f"## {section.title}\n\n`{section.command}` ({took:.0f} s, {where})\n\n{text.strip()}\n\n"
    )


def main() -> None:
    """Runs the sections and writes the page after each, so that a stop loses one at most."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("page", type=Path)
    parser.add_argument("--only", default=",".join(SECTIONS), help="comma-separated sections")
    arguments = parser.parse_args()
    for name in arguments.only.split(","):
        if name not in SECTIONS:
            parser.error(f"no section {name!r}; there are: {', '.join(SECTIONS)}")
    for name in arguments.only.split(","):
        print(f"--- {name}: {SECTIONS[name].title}", file=sys.stderr)
        result = _run(SECTIONS[name])
        existing = arguments.page.read_text("utf-8") if arguments.page.exists() else ""
        arguments.page.write_text(page(existing, {name: result}), "utf-8")
        print(result)


if __name__ == "__main__":
    main()
