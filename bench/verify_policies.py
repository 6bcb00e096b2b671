"""Shows what policies gain in the simulated worlds, against what the best of them promises.

Usage: python -m bench.verify_policies [--seeds 20] [--first 100] [--others 1] [--folder DIR]

Of `net_gain` with and without published priors, and of least-loaded balancing, each world is run
with every seed; of the other policies with the first few. Results are kept in a folder: a run that
was stopped goes on where it was, and nothing is run again whose world, priors and policies are as
they were. Most parameters were chosen on seeds 0 to 7 (docs/policies.md), so those from 100 on are
judged. Requests held out for the baseline are counted apart.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import numpy as np

from policies.registry import POLICY_NAMES
from policies.sim.compare import LEAST_GAIN
from router.cli.simulate import follow
from router.simulate.contest import LEAST_LOADED, Contest, Job, Scores
from router.simulate.load import load_world, world_names
from router.simulate.tables import (
    NOTHING,
    Grouped,
    by_world,
    grouped,
    mean,
    percent,
    ratio,
    share_of,
    table,
)

NET_GAIN: Final = "net_gain"
UNTOLD: Final = "net_gain-"
MAIN: Final = (NET_GAIN, UNTOLD, LEAST_LOADED)
OTHERS: Final = tuple(name for name in POLICY_NAMES if name != NET_GAIN)
HOLDOUT: Final = 0.01
FOLDER: Final = Path(tempfile.gettempdir()) / "specroute-contest"

HEAVY: Final = frozenset(("llama8b-heavy", "llama8b-day", "llama70b-heavy", "spark-heavy"))
"""Worlds with heavy or changing load; those of the rest where the oracle gains are light ones."""

_CELL, _ALL = 150, 400

_HEAD: Final = (
    "Gain: mean time saved of the same arrivals with all servers decoding plainly. Share: of what "
    "the better of two oracles saves that know classes, loads and all parameters, given where that "
    f"is 5 % and more. {percent(HOLDOUT)} of the requests are held out and counted apart. Means "
    "over seeds."
)


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--first", type=int, default=100, help="first seed")
    parser.add_argument("--others", type=int, default=1, help="seeds of the other policies")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--folder", type=Path, default=FOLDER, help="where results are kept")
    parser.add_argument("--worlds", default=",".join(world_names()))
    parser.add_argument("--as-is", action="store_true", help="run nothing, show what is there")
    given = parser.parse_args(arguments)
    jobs = jobs_of(given.seeds, given.others, given.worlds.split(","), given.first)
    contest = Contest(jobs, given.folder)
    print(lay_out(contest.done if given.as_is else follow(contest, given.jobs)))


def tables(seeds: int, others: int, jobs: int, first: int) -> str:
    """Run what is not there yet and lay it out."""
    return lay_out(follow(Contest(jobs_of(seeds, others, world_names(), first), FOLDER), jobs))


def jobs_of(seeds: int, others: int, worlds: Sequence[str], first: int = 0) -> list[Job]:
    """The default with every seed, and the other policies with the first few."""
    return [
        Job(name, first + at, (*MAIN, *(OTHERS if at < others else ())), holdout=HOLDOUT)
        for at in range(max(seeds, others))
        for name in worlds
    ]


def lay_out(results: Sequence[Scores]) -> str:
    """All tables."""
    groups = grouped(results)
    few = min((len(row.get(name, ())) for row in groups.values() for name in OTHERS), default=0)
    seeds = sorted({item.seed for item in results})[:few]
    same = [item for item in results if item.seed in seeds]
    parts = [
        _HEAD,
        "### What is gained\n\n" + gains(groups),
        "### Tails: 99th percentiles over plain decoding's, the oracle's in brackets\n\n"
        + tails(groups),
        "### Targets\n\n" + targets(groups, same),
        "### Drift: requests until 50 have a share above 0.8 again\n\n" + drifts(groups),
    ]
    if few:
        parts.append(
            f"### Gain of every policy, over the same {few} seeds\n\n"
            + by_world(same, lambda items: percent(mean(item.gain for item in items)))
        )
        parts.append("### Shares\n\n" + by_world(same, lambda items: ratio(share_of(items))))
    return "\n\n".join(parts)


def gains(groups: Grouped) -> str:
    """The first table: shares of the default, with and without priors."""
    header = (
        "world", "SHA-256", "seeds", "oracle gains", "gain", "± se", "share", "after 500",
        "without priors", "after 500", "least loaded", "held out", "its cost",
    )  # fmt: skip
    rows = []
    for world, row in groups.items():
        told, untold, least = (row.get(name, []) for name in MAIN)
        if not told:
            continue
        gain = [item.gain for item in told]
        error = float(np.std(gain, ddof=1)) / len(gain) ** 0.5 if len(gain) > 1 else None
        rows.append(
            (
                world,
                told[0].digest[:12],
                str(len(told)),
                percent(mean(item.most for item in told)),
                percent(mean(gain)),
                percent(error),
                ratio(share_of(told)),
                ratio(share_of(told, warm=True)),
                ratio(share_of(untold)) if untold else NOTHING,
                ratio(share_of(untold, warm=True)) if untold else NOTHING,
                percent(mean(item.gain for item in least)) if least else NOTHING,
                f"{mean(item.held_out for item in told):.0f}",
                percent(mean(item.held_cost for item in told)),
            )
        )
    return table(header, rows)


def tails(groups: Grouped) -> str:
    """Tails of the default and of the oracle."""
    rows = []
    for world, row in groups.items():
        told = row.get(NET_GAIN, [])
        if told:
            ours = np.mean([item.tails for item in told], axis=0)
            oracle = np.mean([item.oracle_tails for item in told], axis=0)
            cells = [f"{a:.2f} ({b:.2f})" for a, b in zip(ours, oracle, strict=True)]
            rows.append((world, *cells))
    return table(("world", "TPOT", "TTFT", "whole time"), rows)


def targets(groups: Grouped, same: Sequence[Scores]) -> str:
    """What was promised, and whether it holds."""
    rows: list[tuple[str, str, str]] = []

    def add(what: str, ok: bool, detail: str) -> None:  # noqa: FBT001
        if detail:
            rows.append((what, "yes" if ok else "**no**", detail))

    told = {world: row[NET_GAIN] for world, row in groups.items() if row.get(NET_GAIN)}
    untold = {world: row[UNTOLD] for world, row in groups.items() if row.get(UNTOLD)}
    least = {world: row[LEAST_LOADED] for world, row in groups.items() if row.get(LEAST_LOADED)}
    light = {w: i for w, i in told.items() if w not in HEAVY and share_of(i) is not None}
    heavy = {w: i for w, i in told.items() if w in HEAVY and share_of(i) is not None}
    add(
        "light: share ≥ 0.95 after 500",
        *_least({w: share_of(i, warm=True) for w, i in light.items()}, 0.95),
    )
    add(
        "light: share ≥ 0.90 over the whole run",
        *_least({w: share_of(i) for w, i in light.items()}, 0.90),
    )
    add(
        "light, without priors: share ≥ 0.80",
        *_least({w: share_of(i) for w, i in untold.items() if w in light}, 0.80),
    )
    add("heavy: share ≥ 0.90", *_least({w: share_of(i) for w, i in heavy.items()}, 0.90))
    add(
        "everywhere: better than least loaded",
        *_least(
            {
                w: mean(s.gain for s in i) - mean(s.gain for s in least[w])
                for w, i in told.items()
                if w in least
            },
            0.0,
        ),
    )
    add(
        "heavy: not below plain decoding",
        *_least({w: mean(s.gain for s in i) for w, i in told.items() if w in HEAVY}, 0.0),
    )
    if "wrong-priors" in told:
        add(
            "wrong priors: share ≥ 0.85 after 500",
            *_least({"wrong-priors": share_of(told["wrong-priors"], warm=True)}, 0.85),
        )
    if "dominated" in told:
        late = [s.late for s in told["dominated"] if s.late is not None]
        add(
            "dominated: after 2,000 within 1 % of the best arm",
            *_most({"dominated": mean(late) if late else None}, 1.01),
        )
    if "nothing-helps" in told:
        items = told["nothing-helps"]
        add(
            "nothing helps: within 1 % of plain",
            *_least({"nothing-helps": mean(s.gain for s in items)}, -0.01),
        )
        add(
            "nothing helps: p99 of the whole time within 3 %",
            *_most({"nothing-helps": mean(s.tails[2] for s in items)}, 1.03),
        )
    for place, name in enumerate(("TPOT", "TTFT")):
        add(
            f"p99 {name} ≤ 1.05 of plain's",
            *_most({w: mean(s.tails[place] for s in i) for w, i in told.items()}, 1.05),
        )
    rows += _against(same)
    return table(("target", "met", "worst first"), rows)


def _least(values: dict[str, float | None], bound: float) -> tuple[bool, str]:
    known = sorted((value, name) for name, value in values.items() if value is not None)
    good = bool(known) and known[0][0] >= bound
    return good, "; ".join(f"{name} {value:.3f}" for value, name in known[:4])


def _most(values: dict[str, float | None], bound: float) -> tuple[bool, str]:
    known = sorted(
        ((value, name) for name, value in values.items() if value is not None), reverse=True
    )
    good = bool(known) and known[0][0] <= bound
    return good, "; ".join(f"{name} {value:.3f}" for value, name in known[:4])


def _against(same: Sequence[Scores]) -> list[tuple[str, str, str]]:
    """Against every other policy, over the seeds that all of them have run."""
    groups = grouped(same)
    if not groups or not all(set(OTHERS) <= set(row) for row in groups.values()):
        return []
    times = {
        world: {name: 1.0 - mean(item.gain for item in items) for name, items in row.items()}
        for world, row in groups.items()
    }
    means = {name: mean(row[name] for row in times.values()) for name in (NET_GAIN, *OTHERS)}
    best = min(OTHERS, key=lambda name: means[name])
    worse = {
        f"{world}, {name}": row[NET_GAIN] / row[name]
        for world, row in times.items()
        for name in OTHERS
    }
    good, detail = _most(dict(worse), 1.02)
    return [
        (
            "least mean time over worlds of all policies",
            "yes" if means[NET_GAIN] < means[best] else "**no**",
            f"{means[NET_GAIN]:.3f}; next {best} {means[best]:.3f}",
        ),
        ("in no world slower than any policy by > 2 %", "yes" if good else "**no**", detail),
    ]


def drifts(groups: Grouped) -> str:
    """How soon the default is back after each drift: median and worst over seeds."""
    rows = []
    for world, row in groups.items():
        told = row.get(NET_GAIN, [])
        if not told or not told[0].back:
            continue
        events = [event for event in load_world(world).events if event.kind == "drift"]
        for number, event in enumerate(events):
            back = [item.back[number] for item in told]
            known = sorted(value for value in back if value is not None)
            rows.append(
                (
                    world,
                    f"{event.pool} {event.class_id} × {event.factor:g} at {event.at_request}",
                    str(_ALL if event.class_id == "*" else _CELL),
                    str(known[len(known) // 2]) if known else NOTHING,
                    str(known[-1]) if known else NOTHING,
                    str(len(back) - len(known)),
                )
            )
    return table(("world", "drift", "at most", "median", "worst", "never back"), rows)


assert LEAST_GAIN > 0.0


if __name__ == "__main__":
    main()
