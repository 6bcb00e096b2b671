"""What came of a contest in one world, as a picture (SVG). It needs no library."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

import numpy as np

from policies.types import FloatArray
from router.simulate.contest import Scores
from router.simulate.tables import grouped

_COLOURS = (
    "#2563eb", "#dc2626", "#059669", "#d97706", "#7c3aed", "#0891b2", "#be185d", "#4d7c0f",
    "#57534e", "#f472b6", "#0f766e", "#1e3a8a",
)  # fmt: skip
_WIDTH, _PANEL, _LEFT, _PLOT = 900, 240, 150, 520


def picture(world: str, results: Sequence[Scores], pools: Sequence[str]) -> str:
    """Time lost against the oracle as requests pass, share of pools by class, and tails.

    Args:
        world: Whose.
        results: Of a contest; those of other worlds are left out.
        pools: Names of the world's pools, in its order.
    """
    rows = grouped(results)[world]
    parts = [_regret(rows), _shares(rows, pools), _tails(rows)]
    body, top = [], 40
    for text, height in parts:
        body.append(f'<g transform="translate(0,{top})">{text}</g>')
        top += height
    seeds = len(next(iter(rows.values())))
    title = _text(20, 24, f"{world}, {seeds} seed{'s' * (seeds > 1)}", size=16)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {top}" '
        f'font-family="sans-serif" role="img"><rect width="{_WIDTH}" height="{top}" fill="#fff"/>'
        f"{title}{''.join(body)}</svg>\n"
    )


def _regret(rows: dict[str, list[Scores]]) -> tuple[str, int]:
    lines = {
        name: np.mean([np.subtract(item.could, item.saved) for item in items], axis=0)
        for name, items in rows.items()
    }
    low = min(0.0, *(float(line.min()) for line in lines.values()))
    high = max(1e-9, *(float(line.max()) for line in lines.values()))
    out = [_text(20, 16, "Seconds lost to the oracle, added up over requests")]
    for value in (low, high):
        at = _y(value, low, high)
        out.append(f'<path d="M{_LEFT} {at:.1f}h{_PLOT}" stroke="#ddd"/>')
        out.append(_text(_LEFT - 8, at + 4, f"{value:,.0f}", anchor="end"))
    for number, (name, line) in enumerate(lines.items()):
        colour = _COLOURS[number % len(_COLOURS)]
        out.append(
            f'<path d="{_path(line, low, high)}" fill="none" stroke="{colour}" stroke-width="1.8"/>'
        )
        out.append(_text(_LEFT + _PLOT + 14, 40 + 18 * number, name, colour=colour))
    return "".join(out), _PANEL + 20


def _y(value: float, low: float, high: float) -> float:
    return 30.0 + (_PANEL - 40.0) * (high - value) / (high - low)


def _path(line: FloatArray, low: float, high: float) -> str:
    xs = np.linspace(_LEFT, _LEFT + _PLOT, len(line))
    points = [f"{x:.1f} {_y(float(y), low, high):.1f}" for x, y in zip(xs, line, strict=True)]
    return "M" + "L".join(points)


def _shares(rows: dict[str, list[Scores]], pools: Sequence[str]) -> tuple[str, int]:
    out = [_text(20, 16, "Share of the pools by class")]
    for number, pool in enumerate(pools):
        out.append(_text(_LEFT + 110 * number, 36, pool, colour=_COLOURS[number % len(_COLOURS)]))
    top = 48
    for name, items in rows.items():
        out.append(_text(20, top + 12, name, weight="bold"))
        top += 18
        for class_id in items[0].shares:
            shares = np.mean([item.shares[class_id] for item in items], axis=0)
            out.append(_text(_LEFT - 8, top + 10, class_id, anchor="end"))
            x = float(_LEFT)
            for number, share in enumerate(shares.tolist()):
                colour = _COLOURS[number % len(_COLOURS)]
                out.append(
                    f'<rect x="{x:.1f}" y="{top}" width="{_PLOT * share:.1f}" height="12" '
                    f'fill="{colour}"/>'
                )
                x += _PLOT * share
            top += 15
        top += 6
    return "".join(out), top + 20


def _tails(rows: dict[str, list[Scores]]) -> tuple[str, int]:
    out = [_text(20, 16, "99th percentiles over plain decoding's: TPOT, TTFT, whole time")]
    top = 28
    most = max(2.0, *(max(item.tails) for items in rows.values() for item in items))
    unit = _PLOT / most
    for name, items in rows.items():
        out.append(_text(_LEFT - 8, top + 20, name, anchor="end"))
        tails = np.mean([item.tails for item in items], axis=0).tolist()
        for number, tail in enumerate(tails):
            y = top + 9 * number
            out.append(
                f'<rect x="{_LEFT}" y="{y}" width="{unit * tail:.1f}" height="7" '
                f'fill="{_COLOURS[number]}"/>'
            )
            out.append(_text(_LEFT + unit * tail + 6, y + 7, f"{tail:.2f}", size=9))
        top += 34
    out.append(f'<path d="M{_LEFT + unit:.1f} 24V{top}" stroke="#111" stroke-dasharray="3 3"/>')
    return "".join(out), top + 20


def _text(
    x: float,
    y: float,
    text: str,
    *,
    size: int = 12,
    anchor: str = "start",
    colour: str = "#111",
    weight: str = "normal",
) -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" text-anchor="{anchor}" fill="{colour}" '
        f'font-weight="{weight}">{escape(text)}</text>'
    )
