"""Reads what a proxy tells of a route (`/api/state`) as `policies.recommend` takes it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from policies.recommend import Acceptance, Bounds, Point, Pool
from policies.types import ArmId, ClassId

PLAIN: Final = "none"

MOST_DOUBT: Final = 0.3
"""A step time known to less than so much of itself is not known. Judgement."""


@dataclass(frozen=True, slots=True)
class Measured:
    """One route as it was measured.

    Attributes:
        model: Its name.
        pools: Its pools.
        engines: Engine by pool.
        mix: Tokens by class, over all pools.
        most_running: Requests that a server of a pool takes at most, where it told.
    """

    model: str
    pools: tuple[Pool, ...]
    engines: Mapping[ArmId, str]
    mix: Mapping[ClassId, float]
    most_running: Mapping[ArmId, int | None]

    @property
    def plain(self) -> Pool | None:
        """The pool that decodes plainly; None where there is none."""
        return next((pool for pool in self.pools if pool.method == PLAIN), None)


def measured(route: Mapping[str, Any]) -> Measured:
    """One route of the state."""
    mix: dict[ClassId, float] = {}
    for entry in route["classes"]:
        tokens = sum(cell["tokens"] or 0 for cell in entry["cells"])
        if tokens:
            mix[ClassId(entry["class"])] = float(tokens)
    pools = tuple(_pool(pool, route["classes"]) for pool in route["pools"])
    return Measured(
        str(route["model"]),
        pools,
        {ArmId(pool["name"]): str(pool["engine"]) for pool in route["pools"]},
        mix,
        {ArmId(pool["name"]): _most_running(pool) for pool in route["pools"]},
    )


def _pool(pool: Mapping[str, Any], classes: list[Mapping[str, Any]]) -> Pool:
    up = [replica for replica in pool["replicas"] if replica["up"] and not replica["draining"]]
    running = [replica["in_flight"] for replica in up]
    name = ArmId(pool["name"])
    plain = pool["method"] == PLAIN
    cells = {
        ClassId(entry["class"]): cell
        for entry in classes
        for cell in entry["cells"]
        if cell["pool"] == name
    }
    known = {class_id: _acceptance(cell) for class_id, cell in cells.items()}
    return Pool(
        pool=name,
        method=str(pool["method"]),
        k=0 if plain else int(pool["num_speculative_tokens"] or 0),
        replicas=len(up),
        load=max(sum(running) / len(running), 1.0) if running else 1.0,
        points=_points(pool["step_time"]),
        classes={class_id: of for class_id, of in known.items() if of is not None},
        baseline=bool(pool["baseline"]),
    )


def _points(step_time: Mapping[str, Any] | None) -> tuple[Point, ...]:
    """Those that were seen, with an interval that says something."""
    return tuple(
        Point(
            float(point["load"]),
            Bounds(float(point["mean_s"]), float(point["low_s"]), float(point["high_s"])),
        )
        for point in (step_time["points"] if step_time else ())
        if not point["extrapolated"]
        and point["low_s"] is not None
        and point["high_s"] is not None
        and max(point["high_s"] - point["mean_s"], point["mean_s"] - point["low_s"])
        <= MOST_DOUBT * point["mean_s"]
        and point["mean_s"] > 0.0
    )


def _acceptance(cell: Mapping[str, Any]) -> Acceptance | None:
    """Of a cell whose tokens per step are known with an interval; None of any other."""
    tau, interval = cell["tokens_per_step"], cell["tokens_per_step_interval"]
    if tau is None or interval is None or None in interval:
        return None
    rates = cell["acceptance_rate_by_position"]
    told = [rate for rate in rates if rate is not None]
    alpha = cell["acceptance_rate"]
    if alpha is None and cell["equal_acceptance_rate"] is not None:
        alpha = cell["equal_acceptance_rate"]["value"]
    return Acceptance(
        int(cell["acceptance_requests"] or 0),
        Bounds(float(tau), float(interval[0]), float(interval[1])),
        # Where no draft got so far nothing is known of the positions behind.
        tuple(float(rate) for rate in told),
        None if alpha is None else float(alpha),
    )


def _most_running(pool: Mapping[str, Any]) -> int | None:
    told = [
        replica["detected"]["most_running"]
        for replica in pool["replicas"]
        if replica.get("detected") and replica["detected"]["most_running"]
    ]
    return min(told) if told else None
