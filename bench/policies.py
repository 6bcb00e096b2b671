"""Measures what a decision costs by policy, for eight arms: preparing, answering a request.

Usage: python -m bench.policies [--arms 8] [--repeats 2000]

Processor time of the thread. `prepare` happens once in a snapshot; `first` is the first request of
a class after it, `decide` one that is like one before, `with load` one that is like none: other
loads, prompts and cached prefixes. Budgets: 20 µs where a plan answers, 150 µs where load enters.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Final

import numpy as np

from policies.checks import example_arms
from policies.context_checks import example_knowledge, example_moment
from policies.knowledge import Moment
from policies.registry import POLICY_NAMES, build_context_policy
from policies.types import ClassId
from router.simulate.tables import table

_CHAT: Final = ClassId("chat")


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--arms", type=int, default=8)
    parser.add_argument("--repeats", type=int, default=2000)
    given = parser.parse_args(arguments)
    print(tables(given.arms, given.repeats))


def tables(arms: int = 8, repeats: int = 2000) -> str:
    """Medians, in microseconds."""
    rows = [
        (name, *(f"{value:.0f}" for value in _costs(name, arms, repeats))) for name in POLICY_NAMES
    ]
    return table(("policy", "prepare", "first", "decide", "with load"), rows)


def _costs(name: str, count: int, repeats: int) -> tuple[float, float, float, float]:
    arms = example_arms(count)
    parameters: dict[str, object] = {"arm": "arm-1"} if name == "fixed" else {}
    policy = build_context_policy(name, parameters, arms)
    known = example_knowledge(arms, np.linspace(0.0, -0.4, count).tolist())
    rng = np.random.default_rng(0)
    same = example_moment(arms, _CHAT)
    moments = [_moment(count, rng) for _ in range(repeats + 1)]
    prepare = _median(lambda: policy.prepare(known, rng), 50)
    plans = iter([policy.prepare(known, rng) for _ in range(51)])
    first = _median(lambda: next(plans).propose(same), 50)
    plan = policy.prepare(known, rng)
    plan.propose(same)
    decide = _median(lambda: plan.propose(same), repeats)
    turn = iter(moments)
    loaded = _median(lambda: plan.propose(next(turn)), repeats)
    return prepare, first, decide, loaded


def _moment(count: int, rng: np.random.Generator) -> Moment:
    return Moment(
        class_id=_CHAT,
        part="",
        load=tuple(int(load) for load in rng.integers(1, 64, count)),
        prompt_tokens=int(rng.integers(10, 4000)),
        cached_tokens=tuple(int(tokens) for tokens in rng.integers(0, 10, count)),
    )


def _median(work: Callable[[], object], repeats: int) -> float:
    work()
    took = []
    for _ in range(repeats):
        began = time.thread_time_ns()
        work()
        took.append(time.thread_time_ns() - began)
    return statistics.median(took) / 1e3


if __name__ == "__main__":
    main()
