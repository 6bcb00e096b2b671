"""States of several workers as one, for whoever shows them."""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping, Sequence
from typing import Any

State = dict[str, Any]

_SUMMED = ("dropped_increments", "refused_increments", "waiting_increments", "late_made_tokens")


def merged(states: Sequence[State]) -> State:
    """The state of them all; there must be one.

    Estimates are those of the worker that read the store last, since all read the same. Requests
    in flight are added up. A server is up if every worker thinks so: `workers` tells who does not.
    """
    newest = min(states, key=_age)
    made = copy.deepcopy(newest)
    ready = next((state for state in states if state["ready"]), None)
    made["ready"], made["not_ready"] = ready is not None, None if ready else newest["not_ready"]
    for name in _SUMMED:
        made["store"][name] = sum(state["store"][name] for state in states)
    made["admission"] = _admission([state["admission"] for state in states])
    made["workers"] = [worker for state in states for worker in state["workers"]]
    others = [_replicas(state) for state in states]
    for key, replica in _replicas(made).items():
        seen = [of[key] for of in others if key in of]
        replica["in_flight"] = sum(item["in_flight"] for item in seen)
        replica["line_s"] = max(item["line_s"] for item in seen)
        replica["up"] = all(item["up"] for item in seen)
    return made


def silent_worker(number: int, pid: int | None, why: str) -> State:
    """What is shown of a worker that does not answer."""
    return {
        "number": number,
        "pid": pid,
        "answers": False,
        "ready": False,
        "not_ready": why,
        "uptime_s": None,
        "speculation_off": None,
        "requests": None,
        "in_flight": None,
        "on_earlier_configurations": None,
        "restarts": 0,
        "hash": None,
        "down": [],
    }


def _admission(states: Sequence[State]) -> State:
    """Limits hold in each worker; a tenant may have something in several."""
    loads: dict[str, State] = {}
    for state in states:
        for load in state["busiest"]:
            known = loads.setdefault(load["tenant"], {**load, "in_flight": 0, "waiting": 0})
            known["in_flight"] += load["in_flight"]
            known["waiting"] += load["waiting"]
    shown = max(len(state["busiest"]) for state in states)
    busiest = sorted(loads.values(), key=lambda load: -load["in_flight"] - load["waiting"])
    return {
        "in_flight": sum(state["in_flight"] for state in states),
        "waiting": sum(state["waiting"] for state in states),
        "tenants": max(len(loads), *(state["tenants"] for state in states)),
        "limits": states[0]["limits"],
        "busiest": busiest[:shown],
    }


def _age(state: State) -> float:
    age = state["store"]["snapshot_age_s"]
    return math.inf if age is None else float(age)


def _replicas(state: Mapping[str, Any]) -> dict[tuple[str, str], State]:
    return {
        (route["model"], replica["id"]): replica
        for route in state["routes"]
        for pool in route["pools"]
        for replica in pool["replicas"]
    }
