"""An experiment as a page that can be pasted into a decision record. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

from router.experiments.model import METRIC_WORDS, Metric

Shown = Mapping[str, Any]
"""What `ExperimentDesk.shown` gives."""


def markdown(shown: Shown) -> str:
    """The report in Markdown."""
    return "\n".join(_lines(shown)) + "\n"


def _lines(shown: Shown) -> Iterator[str]:
    plan, standing = shown["plan"], shown["standing"]
    look = shown.get("look") or {}
    yield f"# Experiment {plan['name']}: {standing['status'].replace('_', ' ')}"
    yield ""
    yield plan["hypothesis"] or "No hypothesis was written down."
    yield ""
    yield "| | |"
    yield "|---|---|"
    yield f"| model | {_cell(plan['model'])} |"
    yield f"| treatment | {_cell(variant_text(plan['treatment']))} |"
    yield f"| control | {_cell(variant_text(plan['control']))} |"
    who = ", ".join([*plan["tenants"], *(f"group {group}" for group in plan["groups"])])
    yield f"| whose requests | {_cell(who or 'everybody')} |"
    yield f"| classes | {_cell(', '.join(plan['classes']) or 'all')} |"
    yield f"| assigned as a whole | {plan['unit']} |"
    shares = " → ".join(f"{stage['share']:.0%}" for stage in plan["stages"])
    yield f"| stages | {shares}; now {shown['share']:.0%} |"
    yield f"| decided by | {metric_text(plan['primary'])} |"
    yield f"| why it stands there | {_cell(standing['why'])} |"
    yield ""
    for note in shown.get("notes", ()):
        yield f"**{note[0].upper()}{note[1:]}.**"
        yield ""
    yield from _figures(look)
    yield "## What moved it"
    yield ""
    yield "| when | who | what | why |"
    yield "|---|---|---|---|"
    for line in shown.get("audit", ()):
        who, why = _cell(line["who"]), _cell(line["why"])
        yield f"| {_when(line['at'])} | {who} | {line['what']} | {why} |"


def _figures(look: Mapping[str, Any]) -> Iterator[str]:
    evidence = look.get("evidence")
    yield "## What was measured"
    yield ""
    if evidence is None:
        yield "Nobody has looked yet."
        yield ""
        return
    yield f"Last look: {_when(look['at'])}. All intervals hold at any number of looks."
    yield ""
    primary = evidence.get("primary", Metric.COST)
    yield f"- gain, all classes together: {gain_text(evidence['gain'], primary)}"
    for class_id, gain in look["classes"].items():
        yield f"- gain, {class_id}: {gain_text(gain, primary)}"
    for metric, gain in look.get("metrics", {}).items():
        if metric != primary:
            yield f"- besides, by {metric}: {gain_text(gain, metric)}"
    yield (
        f"- requests in the present stage: control {evidence['control']}, "
        f"treatment {evidence['treatment']}"
    )
    for side, ended in look["ended"].items():
        told = ", ".join(f"{n} {status}" for status, n in ended.items()) or "none"
        yield f"- requests of {side} by how they ended: {told}"
    yield from _bad(look)
    if look["missing_units"]:
        yield f"- requests that named no unit, in one process: {look['missing_units']}"
    yield ""
    yield "| guard | limit | measured | surely at least | breached |"
    yield "|---|---|---|---|---|"
    for guard in evidence["guards"]:
        yield (
            f"| {guard['kind']} | {guard['limit']:g} | {_number(guard['value'])} | "
            f"{_number(guard['low'])} | {'yes' if guard['breached'] else 'no'} |"
        )
    yield ""


def _bad(look: Mapping[str, Any]) -> Iterator[str]:
    """What each side served that nobody should have been served."""
    for side, ended in look["ended"].items():
        bad = [f"{ended.get('failed', 0)} failed"]
        of = look.get("structure", {}).get(side, {})
        if of.get("checked"):
            bad.append(f"{of['invalid']} of {of['checked']} lacked the structure demanded")
        if of.get("finished"):
            bad.append(f"{of['truncated']} of {of['finished']} with a structure were cut")
        yield f"- bad answers of {side}, since the start: {', '.join(bad)}"


def variant_text(variant: Mapping[str, Any]) -> str:
    """What a variant does, in words.

    >>> variant_text({"arm": None, "policy": None, "off": True, "default": False})
    'speculation off'
    """
    if variant["arm"]:
        return f"pool {variant['arm']}"
    if variant["policy"]:
        parameters = ", ".join(f"{k} {v}" for k, v in variant.get("parameters", {}).items())
        return f"policy {variant['policy']}" + (f" ({parameters})" if parameters else "")
    return "speculation off" if variant["off"] else "what the route does anyway"


def metric_text(metric: str) -> str:
    """A primary metric in words.

    >>> metric_text("tpot")
    'tpot: time per token'
    """
    return f"{metric}: {METRIC_WORDS[Metric(metric)]}"


def gain_text(gain: Mapping[str, float] | None, metric: str = Metric.COST) -> str:
    """A gain with its interval.

    >>> gain_text({"value": 0.1, "low": 0.05, "high": 0.15}), gain_text(None)
    ('+10.0% of the time saved (+5.0% to +15.0%)', 'not enough data')
    """
    if gain is None:
        return "not enough data"
    interval = f"{gain['low']:+.1%} to {gain['high']:+.1%}"
    return f"{gain['value']:+.1%} of the {METRIC_WORDS[Metric(metric)]} saved ({interval})"


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.3g}"


def _when(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")
