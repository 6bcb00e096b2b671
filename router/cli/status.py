"""`specroute status`: the state of a running proxy as tables in the terminal."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

from rich import box
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from router.cli.admin import fetch_state
from router.estimates.events import EVERY

_REFRESH_S = 1.0
_UNKNOWN = "–"
_NAME_WIDTH = 5
_SHOWN_EVENTS = 5
_SHOWN_AT_LEAST = -0.995
_WIDEST_SHOWN = 2.0
"""An interval wider than this says nothing."""
_VERDICT_STYLE = {
    "gain": "bold green",
    "loss": "bold red",
    "no difference": "cyan",
    "not enough data": "dim",
}
_SOURCE_MARK = {"stream": "s", "counters": "c"}


def watch(url: str, console: Console) -> None:
    """Shows the state again and again until Ctrl-C."""
    pause = threading.Event()
    try:
        with Live(render_state(fetch_state(url)), console=console, auto_refresh=False) as live:
            while not pause.wait(_REFRESH_S):
                live.update(render_state(fetch_state(url)), refresh=True)
    except KeyboardInterrupt:
        return


def render_state(state: dict[str, Any]) -> RenderableType:
    """Tables of everything that is known."""
    return Group(_head(state), *(_route(route) for route in state["routes"]))


def _head(state: dict[str, Any]) -> Text:
    store, workers = state["store"], state["workers"]
    text = Text(f"specroute {state['version']}  {state['data_url']}  ")
    text.append("ready" if state["ready"] else f"not ready: {state['not_ready']}")
    text.append(f"  store {store['url']} ")
    text.append("up" if store["up"] else f"away ({store['error']})", "" if store["up"] else "red")
    if len(workers) > 1:
        text.append(f"  workers {sum(worker['answers'] for worker in workers)}/{len(workers)}")
    if state["config"] is not None:
        text.append(f"  configuration {state['config']['hash']}")
    if state["admission"] is not None:
        text.append(f"\n{_admission(state['admission'], len(workers))}")
    for line in _notes(state):
        text.append(f"\n{line}", "red")
    return text


def _admission(admission: dict[str, Any], workers: int) -> str:
    """Places taken, and who waits for one."""
    limits = admission["limits"]
    places = limits["max_concurrent"] * workers
    line = f"requests {admission['in_flight']} of {places}, waiting {admission['waiting']}"
    full = [
        load["tenant"]
        for load in admission["busiest"]
        if load["in_flight"] >= limits["max_concurrent_per_tenant"]
    ]
    return line + (f"; at their limit: {', '.join(full)}" if full else "")


def _notes(state: dict[str, Any]) -> Iterator[str]:
    """What is out of the ordinary with workers and with the configuration's last reload."""
    if any(worker.get("speculation_off") for worker in state["workers"]):
        yield (
            "speculation is off: all requests decode plainly, until "
            "`specroute experiment stop --all --undo` or `speculation: true` in the configuration"
        )
    for worker in state["workers"]:
        if not worker["answers"]:
            yield f"worker {worker['number']} does not answer: {worker['not_ready']}"
    last = (state["config"] or {}).get("last_reload")
    if last is not None and last["result"] == "refused":
        at = datetime.fromtimestamp(last["time"], UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
        yield f"configuration {last['hash'] or ''} refused {at} ({last['trigger']}): {last['why']}"


def _route(route: dict[str, Any]) -> RenderableType:
    replicas = [replica for pool in route["pools"] for replica in pool["replicas"]]
    down = [replica["id"] for replica in replicas if replica["state"] == "down"]
    up = sum(replica["state"].startswith("up") for replica in replicas)
    title = f"{route['model']}  policy {route['policy']}  baseline {route['baseline']}"
    title += f"  servers up {up}/{len(replicas)}"
    if down:
        title += f"  down: {', '.join(down)}"
    for replica in replicas:
        if replica["state"] not in ("up", "down"):
            title += f"  {replica['id']}: {replica['state']}"
    for pool in route["pools"]:
        if pool["discovery_error"] is not None:
            title += f"  {pool['name']}: the last servers known, {pool['discovery_error']}"
    return Group(
        class_table(route, title),
        *(_concern(of) for of in route["concerns"]),
        *_engines(route),
        *(_event(event) for event in _latest(route)),
    )


def _engines(route: dict[str, Any]) -> Iterator[Text]:
    """What answers in each pool, and where that is not what the configuration says."""
    told = []
    for pool in route["pools"]:
        detected = [replica.get("detected") for replica in pool["replicas"]]
        known = dict.fromkeys(_engine(item) for item in detected if item is not None)
        if known:
            told.append(f"{pool['name']}: {', '.join(known)}")
    if told:
        yield Text("engines  " + " · ".join(told), "dim")
    for pool in route["pools"]:
        for why in pool.get("mismatch", ()):
            yield Text(f"{pool['name']}: {why}", "red")
        for replica in pool["replicas"]:
            for why in replica.get("mismatch", ()):
                yield Text(f"{replica['id']}: {why}", "red")


def _engine(detected: dict[str, Any]) -> str:
    version = detected["version"]
    return f"{detected['engine']} {version}" if version else str(detected["engine"])


def _latest(route: dict[str, Any]) -> list[dict[str, Any]]:
    return sorted(route["events"], key=lambda event: event["time"])[-_SHOWN_EVENTS:]


_HARMS = {
    "loss": "costs time in",
    "tail": "has a bad tail in",
    "failures": "fails more often than the baseline in",
    "gain_lost": "saves no more time in",
}


def _concern(of: dict[str, Any]) -> Text:
    """What hurts now, since when, and what would be better."""
    line = f"{of['pool']} {_HARMS[of['harm']]} {of['class']}"
    if of["tail"] is not None:
        what = of["tail"]["name"].replace("_", " ").upper()
        line += f" ({what} {of['tail']['value']:.2f} times the baseline's)"
    elif of["gain"] is not None:
        line += f" ({_gain(of['gain'])})"
    if of["since"] is not None:
        line += f" since it changed about {_time_of_day(of['since'])} UTC"
    elif of["measured_since"] is not None:
        line += f", without a change since {_time_of_day(of['measured_since'])} UTC at the latest"
    better = of["instead"]
    gain = f" ({_gain(better['gain'])})" if better["gain"] else ", the baseline"
    line += f"; {of['class']} is better off on {better['pool']}{gain}"
    return Text(line, "red" if of["harm"] in ("loss", "failures") else "yellow")


def _event(event: dict[str, Any]) -> Text:
    if event["change"] is not None:
        return _drift(event, event["change"])
    if event.get("why"):
        quarantined = event["kind"] == "quarantine"
        what = "gets no requests of" if quarantined else "serves again, on probation,"
        line = f"pool {event['pool']} {what} {event['class']}: {event['why']}"
        return Text(line, "red" if quarantined else "yellow")
    ratio = event["time_ratio"]
    figures = f"{ratio['value']:.2f} times ({ratio['low']:.2f} … {ratio['high']:.2f})"
    if event["kind"] == "class_splits":
        line = (
            f"{event['class']} is two kinds of work: where answers repeat the request, pool "
            f"{event['pool']} takes {figures} the time it takes elsewhere, against the baseline"
        )
    else:
        band = ", answers that repeat the request" if event["copying"] else ""
        line = (
            f"{event['class']}, segment {event['segment']}{band}: pool {event['pool']} takes "
            f"{figures} the time it takes in the rest of the class, against the baseline"
        )
    return Text(line, "yellow")


def _drift(event: dict[str, Any], change: dict[str, Any]) -> Text:
    what, form = "tokens per step", "{:.2f}"
    if change["figure"] == "cost":
        what, form = "time against the baseline", "{:.0%}"
    since = _time_of_day(change["since"])
    before, after = (form.format(change[name]) for name in ("before", "after"))
    where = "all classes" if event["class"] == EVERY else event["class"]
    line = f"{where}: {what} of pool {event['pool']} was {before} until {since} UTC"
    return Text(f"{line} and is {after} since", "yellow")


def _time_of_day(wall: float) -> str:
    return datetime.fromtimestamp(wall, UTC).strftime("%H:%M")


def class_table(route: dict[str, Any], title: str) -> Table:
    """One row for each class and pool of a route."""
    table = Table(
        title=title, title_justify="left", box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False
    )
    for name in ("class", "pool"):
        table.add_column(name, no_wrap=True, min_width=_NAME_WIDTH)
    for name in ("n", "share", "τ", "α", "TPOT", "p95", "TTFT", "gain, 95 % interval"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("verdict", no_wrap=True)
    for entry in route["classes"]:
        for index, cell in enumerate(entry["cells"]):
            table.add_row(
                entry["class"] if index == 0 else "",
                *_cell(cell, baseline=cell["pool"] == route["baseline"]),
                end_section=index == len(entry["cells"]) - 1,
            )
    table.caption = (
        "n: answers; if the cell changed, only those since the time shown (UTC) · share of the "
        "class's traffic in the last minutes · τ tokens per step, half its 95 % interval, s: "
        "counted in streams, c: from counters of servers · α acceptance · "
        "TPOT (time per output token), its p95, and TTFT (time to first token): medians in ms over "
        "all answers, within 2 %, at whatever load there was · gain: time saved, comparing only "
        "requests of the same time · – not measured, or not yet to within ±100 %"
    )
    table.caption_justify = "left"
    return table


def _cell(cell: dict[str, Any], *, baseline: bool) -> list[RenderableType]:
    verdict = "baseline" if baseline else cell["verdict"] or _UNKNOWN
    answers = str(cell["ok"]) + (f" +{cell['failed']} failed" if cell["failed"] else "")
    if cell["abandoned_more"]:
        answers += f", {cell['abandoned_share']:.0%} abandoned"
    if cell["since"] is not None:
        answers += f" since {_time_of_day(cell['since'])}"
    return [
        cell["pool"],
        answers,
        _figure(cell["share"], "{:.0%}"),
        _tau(cell),
        _figure(cell["acceptance_rate"], "{:.2f}"),
        _milliseconds(cell["tpot_s"]["p50"]),
        _milliseconds(cell["tpot_s"]["p95"]),
        _milliseconds(cell["ttft_s"]["p50"], "{:.0f}"),
        _gain(cell["gain"]),
        Text(verdict, _VERDICT_STYLE.get(verdict, "")),
    ]


def _tau(cell: dict[str, Any]) -> str:
    """Tokens per step, half the width of its interval, and a letter for a source but the best."""
    if cell["tokens_per_step"] is None:
        return _UNKNOWN
    interval, source = cell["tokens_per_step_interval"], cell["acceptance_source"]
    shown = f"{cell['tokens_per_step']:.2f}"
    if interval is not None:
        shown += f"±{(interval[1] - interval[0]) / 2:.2f}"
    return shown + _SOURCE_MARK.get(source, "")


def _figure(value: float | None, form: str) -> str:
    return _UNKNOWN if value is None else form.format(value)


def _milliseconds(seconds: float | None, form: str = "{:.1f}") -> str:
    return _UNKNOWN if seconds is None else form.format(seconds * 1000)


def _gain(gain: dict[str, float] | None) -> str:
    if gain is None or gain["high"] - gain["low"] > _WIDEST_SHOWN:
        return _UNKNOWN
    bounds = f"{_percent(gain['low'])} … {_percent(gain['high'])}"
    return f"{_percent(gain['value'])}  {bounds:>13}"


def _percent(ratio: float) -> str:
    return f"{ratio:+.0%}" if ratio > _SHOWN_AT_LEAST else "<-99%"
