"""`specroute report`: which distinctions between requests earn their keep. It reads `/api/state`.

Gains are shares of the baseline's time, and their intervals hold at all looks together. Where two
of them are compared the bounds are taken as if they erred in opposite ways, so what is called known
is known; what is not is "not enough data".
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations
from typing import Any

UNKNOWN = "not enough data"
MERGE = "could be merged"
KEEP = "worth telling apart"
SPLIT = "split pays"
WHOLE = "split gains nothing"

MARGIN = 0.05
"""Gains closer than this make no difference that a user would notice."""

_ABOUT_GAINS = (
    "Gains are shares of the baseline's time, with intervals that hold at all looks together."
)


@dataclass(frozen=True, slots=True)
class Interval:
    """A share of time saved, and its bounds."""

    value: float
    low: float
    high: float

    def less(self, other: Interval) -> Interval:
        """The difference, with bounds that hold whatever the two have in common."""
        return Interval(self.value - other.value, self.low - other.high, self.high - other.low)

    def as_json(self) -> dict[str, float]:
        """Bounds and value."""
        return {"value": self.value, "low": self.low, "high": self.high}


_Gains = dict[str, Interval | None]


def report(state: dict[str, Any]) -> dict[str, Any]:
    """What distinctions are worth, for every route."""
    return {
        "time": state["time"],
        "window_s": state["window_s"],
        "routes": [_route(route) for route in state["routes"]],
    }


def _route(route: dict[str, Any]) -> dict[str, Any]:
    classes = {entry["class"]: entry for entry in route["classes"]}
    gains = {name: _gains(entry, route["baseline"]) for name, entry in classes.items()}
    return {
        "model": route["model"],
        "saved_today": route.get("saved_today"),
        "holdout": route.get("holdout"),
        "best": {name: best(of) for name, of in gains.items()},
        "pairs": [
            {"classes": [one, other], **_pair(classes, gains, one, other)}
            for one, other in combinations(classes, 2)
        ],
        "splits": [
            {"class": name, "by": by, **_split(parts, gains[name], entry["requests"])}
            for name, entry in classes.items()
            for by, parts in (
                ("segment", _segments(entry, route["baseline"])),
                ("copying", _bands(entry, route["baseline"])),
            )
            if parts
        ],
    }


def best(gains: _Gains) -> str | None:
    """The pool that no other beats by more than the margin; None while that is open.

    Example:
        >>> best({"plain": Interval(0, 0, 0), "fast": Interval(0.4, 0.3, 0.5)})
        'fast'
        >>> best({"plain": Interval(0, 0, 0), "fast": Interval(0.4, -0.1, 0.7)}) is None
        True
    """
    known = {pool: gain for pool, gain in gains.items() if gain is not None}
    if len(known) < len(gains) or not known:
        return None
    first = max(known, key=lambda pool: known[pool].value)
    rivals = [gain.high for pool, gain in known.items() if pool != first]
    return first if all(high <= known[first].low + MARGIN for high in rivals) else None


def _gains(entry: dict[str, Any], baseline: str) -> _Gains:
    return {
        cell["pool"]: Interval(0.0, 0.0, 0.0)
        if cell["pool"] == baseline
        else Interval(**cell["gain"])
        if cell["gain"]
        else None
        for cell in entry["cells"]
    }


def _segments(entry: dict[str, Any], baseline: str) -> dict[str, tuple[int, _Gains]]:
    return {
        part["segment"] + ("+" if part["copying"] else ""): (
            part["measured"],
            _gains(part, baseline),
        )
        for part in entry["segments"]
        if part["segment"]
    }


def _bands(entry: dict[str, Any], baseline: str) -> dict[str, tuple[int, _Gains]]:
    return {name: (of["measured"], _gains(of, baseline)) for name, of in entry["bands"].items()}


def _pair(
    classes: dict[str, dict[str, Any]], gains: dict[str, _Gains], one: str, other: str
) -> dict[str, Any]:
    pools = {name: best(gains[name]) for name in (one, other)}
    first, second = pools[one], pools[other]
    if first is None or second is None:
        return {"verdict": UNKNOWN}
    if first == second:
        alike = _alike(*(_tails(classes[name], first) for name in (one, other)))
        verdict = UNKNOWN if alike is None else MERGE if alike else KEEP
        return {"verdict": verdict, "pool": first}
    costs = {}
    for name, mine, theirs in ((one, first, second), (other, second, first)):
        own, foreign = gains[name][mine], gains[name][theirs]
        if own is not None and foreign is not None:
            costs[name] = own.less(foreign).as_json()
    return {"verdict": KEEP, "saves": costs}


_Tails = dict[str, dict[str, float | None] | None]


def _tails(entry: dict[str, Any], pool: str) -> _Tails:
    cell = next(cell for cell in entry["cells"] if cell["pool"] == pool)
    if cell["verdict"] is None:  # the baseline: its tails are what tails are compared with
        return {name: {"low": 1.0, "high": 1.0} for name in cell["tail_ratios"]}
    ratios: _Tails = cell["tail_ratios"]
    return ratios if cell.get("tails_compared", True) else dict.fromkeys(ratios)


def _alike(one: _Tails, other: _Tails) -> bool | None:
    """Whether tails do not differ as far as they are known; None where none is."""
    known = [alike for name in one if (alike := _overlap(one[name], other[name])) is not None]
    return all(known) if known else None


def _overlap(
    one: dict[str, float | None] | None, other: dict[str, float | None] | None
) -> bool | None:
    if one is None or other is None:
        return None
    low, high = (one["low"], other["low"]), (one["high"], other["high"])
    if low[0] is None or low[1] is None or high[0] is None or high[1] is None:
        return None
    return low[0] <= high[1] and low[1] <= high[0]


def _split(parts: dict[str, tuple[int, _Gains]], whole: _Gains, requests: int) -> dict[str, Any]:
    """What is gained by giving each part its own best pool instead of the one best for all."""
    chosen = {name: best(gains) for name, (_, gains) in parts.items()}
    known = {name: pool for name, pool in chosen.items() if pool is not None}
    described = [
        {"part": name, "measured": n, "best": chosen[name]} for name, (n, _) in parts.items()
    ]
    if len(set(known.values())) < 2:  # noqa: PLR2004 - two are different
        verdict = WHOLE if len(known) == len(parts) > 1 else UNKNOWN
        return {"verdict": verdict, "parts": described}
    common = _one_for_all(parts, known, whole)
    saved = [
        (parts[name][0] / max(requests, 1), mine.less(theirs))
        for name, pool in known.items()
        if pool != common
        and (mine := parts[name][1][pool]) is not None
        and (theirs := parts[name][1][common]) is not None
    ]
    gain = Interval(
        sum(share * more.value for share, more in saved),
        sum(share * more.low for share, more in saved),
        sum(share * more.high for share, more in saved),
    )
    return {
        "verdict": SPLIT if gain.low > 0.0 else UNKNOWN,
        "parts": described,
        "instead_of": common,
        "saves": gain.as_json(),
    }


def _one_for_all(parts: dict[str, tuple[int, _Gains]], known: dict[str, str], whole: _Gains) -> str:
    """The pool that would be chosen if the parts were one."""
    settled = best(whole)
    if settled is not None:
        return settled

    def saved(pool: str) -> float:
        gains = ((n, of[pool]) for n, of in (parts[name] for name in known))
        return sum(n * gain.value for n, gain in gains if gain is not None)

    return max(sorted(whole), key=saved)


def markdown(made: dict[str, Any]) -> str:
    """The report for people."""
    lines = ["# Which distinctions earn their keep", ""]
    minutes = made["window_s"] // 60
    lines += [f"Over the last {minutes} minutes. {_ABOUT_GAINS}", ""]
    for route in made["routes"]:
        lines += [f"## {route['model']}", ""]
        lines += [*(f"- {line}" for line in saved_lines(route)), ""]
        lines += [*_classes_markdown(route), *_pairs_markdown(route)]
        lines += _splits_markdown(route)
    return "\n".join(lines).rstrip() + "\n"


def _classes_markdown(route: dict[str, Any]) -> list[str]:
    if not route["best"]:
        return ["No request has been measured yet.", ""]
    rows = [f"| {name} | {pool or UNKNOWN} |" for name, pool in route["best"].items()]
    return ["| class | best pool |", "|---|---|", *rows, ""]


def _pairs_markdown(route: dict[str, Any]) -> list[str]:
    settled = [pair for pair in route["pairs"] if pair["verdict"] != UNKNOWN]
    lines = ["### Between classes", ""] if route["pairs"] else []
    for pair in settled:
        one, other = pair["classes"]
        if pair["verdict"] == MERGE:
            lines.append(
                f"- {one} and {other}: same best pool ({pair['pool']}), no difference in tails; "
                "telling them apart costs nothing, and they could be merged."
            )
        elif "saves" in pair:
            saved = "; ".join(f"{name} {_percents(of)}" for name, of in pair["saves"].items())
            lines.append(f"- {one} and {other}: {KEEP}; the other's pool would lose {saved}.")
        else:
            lines.append(
                f"- {one} and {other}: same best pool ({pair['pool']}), other tails: {KEEP}."
            )
    open_ = len(route["pairs"]) - len(settled)
    if open_:
        lines.append(f"- {open_} of {len(route['pairs'])} pairs: {UNKNOWN}.")
    return [*lines, ""] if lines else []


def _splits_markdown(route: dict[str, Any]) -> list[str]:
    if not route["splits"]:
        return []
    lines = ["### Inside classes", ""]
    for split in route["splits"]:
        line = f"- {split['class']} by {split['by']}: {split['verdict']}"
        if "saves" in split:
            line += f"; against {split['instead_of']} for all, {_percents(split['saves'])} of time"
        lines.append(line + ".")
        if "saves" in split:
            lines += [
                f"  - {part['part']}: {part['best'] or UNKNOWN}, {part['measured']} requests"
                for part in split["parts"]
            ]
    return [*lines, ""]


def saved_lines(route: dict[str, Any]) -> list[str]:
    """What was saved, in words; what was not measured is said to be."""
    today, held = route["saved_today"], route["holdout"]
    lines = [f"Saved today: {UNKNOWN}."]
    if today is not None and today["seconds"] is not None:
        seconds, speed = today["seconds"], today["tokens_per_s"]
        value, low, high = (f"{seconds[of]:,.0f}" for of in ("value", "low", "high"))
        lines[0] = (
            f"Saved today: {value} s ({low} … {high}) of waiting for {today['answers']:,} answers, "
            f"{_percents(today['gain'])} of what the baseline would have taken"
        )
        if speed is not None:
            value, low, high = (f"{speed[of]:+.1f}" for of in ("value", "low", "high"))
            lines[0] += f"; {value} tokens/s ({low} … {high})"
        lines[0] += "."
        if today["not_compared"]:
            lines.append(
                f"{today['not_compared']:,} answers of today had no baseline to compare with."
            )
    gain = None if held is None else held["gain"]
    lines.append(
        f"Against the holdout: {UNKNOWN}."
        if held is None or gain is None
        else f"Against the holdout of {held['month']}: {_percents(gain)} of time, "
        f"{held['held_out']:,} held out and {held['others']:,} not."
    )
    return lines


def _percents(of: dict[str, float]) -> str:
    return f"{of['value']:+.0%} ({of['low']:+.0%} … {of['high']:+.0%})"
