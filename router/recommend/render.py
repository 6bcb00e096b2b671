"""What is recommended, as JSON values and in words. It works nothing out but the calls."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from policies.fleet_plan import Change, Plan, plan
from policies.recommend import Bounds, advise
from router.recommend.flags import flags
from router.recommend.read import PLAIN, Measured, measured

NOT_ENOUGH = "not enough data"


VAGUE = 0.2
"""An interval of a share of time wider than this tells nothing. Judgement."""


def recommend(state: Mapping[str, Any]) -> dict[str, Any]:
    """Everything that is recommended for the routes of a proxy."""
    return {
        "time": state.get("time"),
        "window_s": state.get("window_s"),
        "routes": [_route(measured(route)) for route in state["routes"]],
    }


def _route(known: Measured) -> dict[str, Any]:
    advices = []
    for pool in known.pools:
        if pool.method == PLAIN:
            continue
        most = known.most_running[pool.pool]
        advice = advise(pool, known.plain, known.mix, most_running=most)
        engine = known.engines[pool.pool]
        advices.append(
            {
                **asdict(advice),
                "engine": engine,
                "method": pool.method,
                "flags": list(flags(engine, pool.method, advice)),
            }
        )
    fleet = plan(known.pools, known.mix)
    return {
        "model": known.model,
        "pools": advices,
        "fleet": {**asdict(fleet), "verdict": verdict(fleet)},
    }


def verdict(fleet: Plan) -> str:
    """Whether the split pays, in words."""
    if fleet.split is None or not fleet.single:
        return f"split or single: {NOT_ENOUGH}"
    name, best = max(fleet.single.items(), key=lambda item: item[1].gain.value)
    gain = best.gain
    if best.shown:
        return f"the split loses: the same servers all on {name} save {percent(gain)}"
    if gain.high < 0.0:
        lost = Bounds(-gain.value, -gain.high, -gain.low)
        return f"the split pays: the best single method, {name}, takes {percent(lost)} longer"
    if gain.high - gain.low > VAGUE:
        return f"split or single: {NOT_ENOUGH}: all servers on {name} would save {percent(gain)}"
    return (
        f"no difference shows between the split and all servers on {name}: it would save "
        f"{percent(gain)}"
    )


def percent(of: Bounds | Mapping[str, float]) -> str:
    """A share and its interval.

    Example:
        >>> percent(Bounds(0.104, 0.05, 0.15))
        '10.4 % [5.0, 15.0]'
    """
    value, low, high = (
        (of.value, of.low, of.high)
        if isinstance(of, Bounds)
        else (of["value"], of["low"], of["high"])
    )
    return f"{100 * value:.1f} % [{100 * low:.1f}, {100 * high:.1f}]"


def text(made: Mapping[str, Any]) -> str:
    """The same in words."""
    lines: list[str] = []
    for route in made["routes"]:
        lines += [f"# {route['model']}", ""]
        for pool in route["pools"]:
            lines += [*_pool_lines(pool), ""]
        lines += [*_fleet_lines(route["fleet"]), ""]
    return "\n".join(lines).rstrip() + "\n"


def _pool_lines(pool: Mapping[str, Any]) -> Iterator[str]:
    yield f"## {pool['pool']}: {pool['method']} on {pool['engine']}, drafts of {pool['k']}"
    if pool["lacking"]:
        yield from (f"{NOT_ENOUGH}: {why}" for why in pool["lacking"])
        return
    yield f"at {pool['load']:g} requests a server, all classes: {_best(pool, pool['overall'])}"
    for class_id, best in pool["classes"].items():
        yield f"  {class_id}: {_best(pool, best)}"
    yield "by requests in the batch:"
    for of in pool["schedule"]:
        yield f"  {of['low']}-{of['high']}: {_best(pool, of['best'])}"
    if pool["longer"]:
        k, gain = pool["longer"]
        yield f"extrapolated: drafts of {k} might save {percent(gain)}; none so long was seen"
    yield from [f"flag: {line}" for line in pool["flags"]] or ["no change of drafts shows a gain"]
    yield from (f"note: {note}" for note in pool["notes"])


def _best(pool: Mapping[str, Any], best: Mapping[str, Any]) -> str:
    plain = f"{percent(best['against_plain'])} against plain decoding"
    k, likeliest = best["k"], best["likeliest"]
    if k != pool["k"]:
        return f"k {k}, saves {percent(best['gain'])} against k {pool['k']}; {plain}"
    more = f"; k {likeliest} looks better, not beyond doubt" if likeliest != k else ""
    return f"keep k {k}; {plain}{more}"


def _fleet_lines(fleet: Mapping[str, Any]) -> Iterator[str]:
    yield "## fleet"
    split = fleet["split"]
    if split is not None:
        served: dict[str, list[str]] = {}
        for class_id, pool in split["classes"].items():
            served.setdefault(pool, []).append(class_id)
        yield "classes where they are fastest: " + "; ".join(
            f"{pool}: {', '.join(classes)}" for pool, classes in served.items()
        )
        yield fleet["verdict"]
        yield from _changes("all servers", list((fleet["single"] or {}).values()))
        yield from _changes("moves", fleet["moves"])
        yield from _changes("additions", fleet["additions"])
    yield from (f"{NOT_ENOUGH}: {why}" for why in fleet["lacking"])
    yield "note: as many requests are taken to be in the fleet; waits for a server are left out"


def _changes(title: str, changes: Sequence[Mapping[str, Any] | Change]) -> Iterator[str]:
    plain = [asdict(change) if isinstance(change, Change) else change for change in changes]
    worth = [change for change in plain if change["shown"]]
    if not worth:
        yield f"{title}: none shows a gain"
        return
    for change in worth[:3]:
        beyond = "; at loads that were not seen" if change["outside"] else ""
        yield f"{title}: {change['what']} saves {percent(change['gain'])}{beyond}"
