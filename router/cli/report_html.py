"""`specroute report --html`: the report as one file with pictures, to send or to print.

It shows `/api/state`, asks for nothing when it is opened, and holds no script.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from html import escape
from typing import Any

from router.cli.report import UNKNOWN, saved_lines

_WIDE = 260
_HIGH = 22
_SHOWN = 1.0
"""Gains and losses beyond it are drawn at the edge."""

_STYLE = """
:root { color-scheme: light dark;
  --gain: #0b6b46; --loss: #b3261e; --soft: #5b6778; --line: #d8dee6; }
@media (prefers-color-scheme: dark) {
  :root { --gain: #5fd3a0; --loss: #ff9189; --soft: #9caabd; --line: #2f3b48; }
}
body { max-width: 64rem; margin: 2rem auto; padding: 0 1rem; font: 15px/1.5 system-ui, sans-serif; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th, td { padding: .3rem .6rem; text-align: start; border-bottom: 1px solid var(--line); }
thead th, .soft { color: var(--soft); font-weight: 500; }
.number { text-align: end; white-space: nowrap; }
svg { display: block; } line { stroke: var(--soft); stroke-width: 2; } circle { fill: var(--soft); }
.zero { stroke-width: 1; stroke-dasharray: 2 3; }
.gain line:not(.zero) { stroke: var(--gain); } .gain circle { fill: var(--gain); }
.loss line:not(.zero) { stroke: var(--loss); } .loss circle { fill: var(--loss); }
""".strip()

_HEAD = (
    '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
    '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
    '<meta http-equiv="Content-Security-Policy" '
    "content=\"default-src 'none'; style-src 'unsafe-inline'\">\n"
    f"<title>Does speculation pay?</title>\n<style>\n{_STYLE}\n</style>\n</head>\n<body>\n"
)


def html(state: dict[str, Any], made: dict[str, Any]) -> str:
    """The whole page.

    Args:
        state: As `/api/state` gives it.
        made: The report on it.
    """
    at = datetime.fromtimestamp(state["time"], UTC).strftime("%Y-%m-%d %H:%M UTC")
    parts = [
        _HEAD,
        "<h1>Does speculation pay, for whom, and how sure is that?</h1>\n",
        (
            f'<p class="soft">{at}, the last {state["window_s"] // 60} minutes. Gains are shares '
            "of the time of the baseline measured at the same time; intervals hold at all looks "
            "together. A dash is what was not measured.</p>\n"
        ),
    ]
    for route, found in zip(state["routes"], made["routes"], strict=True):
        parts += _route(route, found)
    return "".join([*parts, "</body>\n</html>\n"])


def _route(route: dict[str, Any], found: dict[str, Any]) -> Iterator[str]:
    yield f"<h2>{_name(route['model'])}</h2>\n"
    policy, baseline = _name(route["policy"]), _name(route["baseline"])
    yield f'<p class="soft">policy {policy}, baseline {baseline}</p>\n'
    yield f"<ul>{''.join(f'<li>{escape(line)}</li>' for line in saved_lines(found))}</ul>\n"
    if not route["classes"]:
        yield "<p>No request has been measured yet.</p>\n"
        return
    yield (
        "<table>\n<thead><tr><th>class</th><th>pool</th><th>time saved</th><th></th>"
        '<th>verdict</th><th class="number">tokens per step</th><th class="number">TPOT p50</th>'
        '<th class="number">answers</th></tr></thead>\n<tbody>\n'
    )
    for entry in route["classes"]:
        best = found["best"].get(entry["class"])
        for index, cell in enumerate(entry["cells"]):
            yield _row(entry["class"] if index == 0 else "", cell, best=cell["pool"] == best)
    yield "</tbody>\n</table>\n"
    yield from _pairs(found)


def _row(class_id: str, cell: dict[str, Any], *, best: bool) -> str:
    gain, verdict = cell["gain"], cell["verdict"] or "baseline"
    tau, tpot = cell["tokens_per_step"], cell["tpot_s"]["p50"]
    text = (
        "–" if gain is None else f"{gain['value']:+.0%} [{gain['low']:+.0%}, {gain['high']:+.0%}]"
    )
    return (
        f"<tr><th>{_name(class_id)}</th><td>{_name(cell['pool'])}{' (best)' if best else ''}</td>"
        f'<td>{_picture(gain, verdict)}</td><td class="number">{text}</td>'
        f"<td>{escape(verdict)}</td>"
        f'<td class="number">{"–" if tau is None else f"{tau:.2f}"}</td>'
        f'<td class="number">{"–" if tpot is None else f"{tpot * 1000:.1f} ms"}</td>'
        f'<td class="number">{cell["ok"]:,}</td></tr>\n'
    )


def _picture(gain: dict[str, float] | None, verdict: str) -> str:
    if gain is None:
        return ""
    low, value, high = (_at(gain[of]) for of in ("low", "value", "high"))
    middle = _HIGH // 2
    return (
        f'<svg class="{escape(verdict)}" width="{_WIDE}" height="{_HIGH}" role="img" '
        f'aria-label="{gain["value"]:+.0%}">'
        f'<line class="zero" x1="{_at(0.0)}" x2="{_at(0.0)}" y1="0" y2="{_HIGH}"/>'
        f'<line x1="{low}" x2="{high}" y1="{middle}" y2="{middle}"/>'
        f'<circle cx="{value}" cy="{middle}" r="4"/></svg>'
    )


def _at(gain: float) -> float:
    """Where a gain lies in the picture."""
    return round((min(max(gain, -_SHOWN), _SHOWN) + _SHOWN) / (2 * _SHOWN) * _WIDE, 1)


def _pairs(found: dict[str, Any]) -> Iterator[str]:
    """Which classes and parts are worth telling apart."""
    settled = [pair for pair in found["pairs"] if pair["verdict"] != UNKNOWN]
    if not settled and not found["splits"]:
        return
    yield "<h3>Which distinctions earn their keep</h3>\n<ul>\n"
    for pair in settled:
        one, other = (_name(of) for of in pair["classes"])
        yield f"<li>{one} and {other}: {escape(pair['verdict'])}</li>\n"
    for split in found["splits"]:
        by = escape(split["by"])
        yield f"<li>{_name(split['class'])} by {by}: {escape(split['verdict'])}</li>\n"
    yield "</ul>\n"


def _name(text: str) -> str:
    """A name from outside, as text and with a direction of its own."""
    return f'<bdi dir="auto">{escape(text)}</bdi>'
