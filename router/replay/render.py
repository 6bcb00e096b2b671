"""What a replay found, as JSON values and as a table for people. It works nothing out."""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import Any

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table

from policies.offpolicy import Answer, Estimate
from router.replay.lines import Log
from router.replay.replay import Replayed

OVERALL = "all classes"


def replay_json(log: Log, policy: str, found: Replayed) -> dict[str, Any]:
    """All of it; log costs are of the class's typical answer, in log seconds."""
    return {
        "model": log.model,
        "policy": policy,
        "logged_by": logged_by(log),
        "requests": len(log.entries),
        "settled_before": found.settled,
        "unreadable_lines": log.unreadable,
        "from": log.entries[0].decided,
        "to": log.entries[-1].ended,
        "shares": dict(found.shares),
        "logged_shares": dict(found.logged_shares),
        "overall": answer_json(found.overall),
        "classes": {name: answer_json(answer) for name, answer in found.classes.items()},
    }


def answer_json(answer: Answer) -> dict[str, Any]:
    """One answer; what was refused is null."""
    return {
        **asdict(answer),
        "refused": list(answer.refused),
        "notes": list(answer.notes),
        "time_saved_against_logged": _saved(answer.against_logged),
        "time_saved_against_baseline": _saved(answer.against_baseline),
    }


def logged_by(log: Log) -> list[str]:
    """Policies that decided what was logged."""
    return sorted({entry.policy for entry in log.entries})


def render(log: Log, policy: str, found: Replayed) -> RenderableType:
    """A table by class, the shares, and what was refused or is to be borne in mind."""
    table = Table(box=box.SIMPLE_HEAD)
    table.add_column("class", no_wrap=True)
    for name in ("requests", "ESS"):
        table.add_column(name, justify="right")
    for name in ("log cost, DR", "SNIPS", "IPS", "saved on logged", "saved on plain"):
        table.add_column(name, justify="right", no_wrap=True)
    rows = {OVERALL: found.overall} | {str(name): of for name, of in found.classes.items()}
    for name, answer in rows.items():
        table.add_row(
            name,
            f"{answer.n:,}",
            f"{answer.ess:,.0f}" if answer.ess else "-",
            *(_cost(of) for of in (answer.dr, answer.snips, answer.ips)),
            *(_share(of) for of in (answer.against_logged, answer.against_baseline)),
        )
    shares = ", ".join(
        f"{arm} {share:.0%} (logged {found.logged_shares[arm]:.0%})"
        for arm, share in found.shares.items()
    )
    lines = [
        f"{log.model}: {policy} on {len(log.entries):,} decisions of {', '.join(logged_by(log))}",
        f"it would give {shares}",
    ]
    if found.settled:
        lines.append(
            f"{found.settled:,} of them were settled before any policy was asked (holdout, "
            "experiments, pins): they are learned from, and not judged"
        )
    if log.unreadable:
        lines.append(f"{log.unreadable:,} lines could not be read")
    told = [f"{name}: refused: {why}" for name, of in rows.items() for why in of.refused]
    told += [f"{name}: {note}" for name, of in rows.items() for note in of.notes]
    return Group(*lines, table, *told)


def _saved(found: Estimate | None) -> dict[str, float] | None:
    """A difference of log costs as a share of time saved."""
    if found is None:
        return None
    return {
        "value": -math.expm1(found.value),
        "low": -math.expm1(found.high),
        "high": -math.expm1(found.low),
    }


def _cost(found: Estimate | None) -> str:
    if found is None:
        return "refused"
    return f"{found.value:.3f} ± {found.high - found.value:.3f}"


def _share(found: Estimate | None) -> str:
    saved = _saved(found)
    if saved is None:
        return "-"
    return f"{saved['value']:+.1%} [{100 * saved['low']:+.1f}, {100 * saved['high']:+.1f}]"
