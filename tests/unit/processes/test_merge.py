"""Several workers as one."""

from __future__ import annotations

from typing import Any

from router.processes.merge import merged, silent_worker


def state(number: int, *replicas: dict[str, Any], age: float | None = 1.0, **more: Any) -> Any:
    """What a worker shows."""
    return {
        "ready": True,
        "not_ready": None,
        "store": {
            "snapshot_age_s": age,
            "dropped_increments": 1,
            "refused_increments": 2,
            "waiting_increments": 3,
            "late_made_tokens": 0,
        },
        "admission": {
            "in_flight": 1,
            "waiting": number,
            "tenants": 1,
            "limits": {"max_concurrent": 5},
            "busiest": [{"tenant": "t", "in_flight": 1, "waiting": number}],
        },
        "workers": [{"number": number}],
        "routes": [{"model": "m", "from": number, "pools": [{"replicas": list(replicas)}]}],
        **more,
    }


def replica(name: str, in_flight: int, *, up: bool = True) -> dict[str, Any]:
    """A server as a worker sees it, whose first stream in line has waited a second for each."""
    return {"id": name, "in_flight": in_flight, "line_s": float(in_flight), "up": up}


def test_load_is_added_up_and_health_must_be_agreed_on() -> None:
    """A server is up only where all say so; one that some do not know counts where it is known."""
    made = merged(
        [
            state(0, replica("a", 1), replica("b", 2)),
            state(1, replica("a", 3), replica("b", 4, up=False), replica("c", 9)),
        ]
    )
    assert made["routes"][0]["pools"][0]["replicas"] == [
        {**replica("a", 4), "line_s": 3.0},
        {**replica("b", 6, up=False), "line_s": 4.0},
    ]
    assert made["workers"] == [{"number": 0}, {"number": 1}]
    assert made["store"]["dropped_increments"] == 2
    assert made["store"]["refused_increments"] == 4
    assert made["admission"] == {
        "in_flight": 2,
        "waiting": 1,
        "tenants": 1,
        "limits": {"max_concurrent": 5},
        "busiest": [{"tenant": "t", "in_flight": 2, "waiting": 1}],
    }


def test_estimates_are_the_newest() -> None:
    """Of the worker that read the store last; one that never did comes last."""
    states = [state(0, age=None), state(1, age=3.0), state(2, age=0.5)]
    assert merged(states)["routes"][0]["from"] == 2
    assert merged(states[:1])["routes"][0]["from"] == 0
    assert states[2] == state(2, age=0.5)


def test_ready_if_anyone_is() -> None:
    """A request may reach any of them; why none is ready is told by one."""
    away: dict[str, Any] = {"ready": False, "not_ready": "draining"}
    made = merged([state(0, **away), state(1)])
    assert (made["ready"], made["not_ready"]) == (True, None)
    made = merged([state(0, **away), state(1, **away)])
    assert (made["ready"], made["not_ready"]) == (False, "draining")


def test_silent_worker() -> None:
    """It is named, and nothing is made up about it."""
    made = silent_worker(3, 77, "it is gone")
    assert (made["number"], made["pid"], made["answers"]) == (3, 77, False)
    assert (made["not_ready"], made["requests"]) == ("it is gone", None)
