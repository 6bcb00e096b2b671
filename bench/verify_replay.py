"""Measures whether `specroute replay` is right about policies that were never run.

Usage: python -m bench.verify_replay [--runs 200]

The world: three classes of unlike length and noise, three arms of which another is best for each,
load that walks from block to block and adds to the cost of all arms, and skewed noise. The logging
policy learns while it logs: every two minutes it moves its shares towards what looks best so far,
and keeps a floor. Each run is written as a decision log, line by line as the proxy writes it, and
read back as `specroute replay` reads it. What is judged is the interval of the mean log cost of
five policies that were not run, against their expectation in the world.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import numpy as np
import orjson

from policies.cost import typical_tokens
from policies.offpolicy import Answer, Estimate
from policies.registry import build_policy
from policies.types import Arm, ArmId, ClassId, FloatArray, Status
from router.observe.decision_log import DecisionRecord, decision_record
from router.replay.lines import Log, read_log
from router.replay.replay import Settings, replay
from router.types import (
    Attempt,
    AttemptEnd,
    Classification,
    Decision,
    Endpoint,
    Outcome,
    ParsedRequest,
    ReplicaId,
    RequestContext,
)

ARMS: Final = (
    Arm(ArmId("plain"), "none", baseline=True),
    Arm(ArmId("fast"), "eagle3", 3),
    Arm(ArmId("copy"), "ngram", 5),
)
CLASSES: Final = ("chat", "code_edit", "math")
MIX: Final = np.array([0.5, 0.2, 0.3])
LEVEL: Final = np.array([0.6, 1.1, 1.6])
"""Mean log cost of plain decoding on an idle fleet."""
EFFECT: Final = np.array([[0.0, -0.35, 0.10], [0.0, -0.25, -0.70], [0.0, -0.45, 0.05]])
NOISE: Final = np.array([0.45, 0.35, 0.30])
LOAD_SD: Final = 0.10
BLOCKS: Final = 60
"""Of two minutes each."""
BLOCK_S: Final = 120.0
PER_BLOCK: Final = 40
FLOOR: Final = 0.05

START: Final = 1_800_000_000.0
STAYS: Final = 0.3
"""How much of a block's load is left in the next."""

POLICIES: Final[Mapping[str, tuple[str, dict[str, Any], FloatArray]]] = {
    "all plain": ("fixed", {"arm": "plain"}, np.tile([1.0, 0.0, 0.0], (3, 1))),
    "all fast": ("fixed", {"arm": "fast"}, np.tile([0.0, 1.0, 0.0], (3, 1))),
    "all copy": ("fixed", {"arm": "copy"}, np.tile([0.0, 0.0, 1.0], (3, 1))),
    "best of each class": (
        "rules",
        {"table": {"chat": ["fast"], "code_edit": ["copy"], "math": ["fast"]}},
        np.eye(3)[[1, 2, 1]],
    ),
    "half plain, half fast": (
        "fixed",
        {"weights": {"plain": 1.0, "fast": 1.0}},
        np.tile([0.5, 0.5, 0.0], (3, 1)),
    ),
}
"""Name and parameters, and the probabilities by class that they come to."""


def truth(policy: FloatArray) -> float:
    """Expected log cost of a policy: loads have mean 0, and so has the noise."""
    return float((MIX * (LEVEL + (policy * EFFECT).sum(axis=1))).sum())


def simulate(seed: int, floor: float = FLOOR) -> list[DecisionRecord]:
    """The decisions of one run, in their order."""
    rng = np.random.default_rng((seed, 42))
    n = BLOCKS * PER_BLOCK
    classes = rng.choice(3, size=n, p=MIX)
    load = _loads(rng)
    skew = (rng.gamma(4.0, 1.0, n) - 4.0) / 2.0
    arm, p, y = np.empty(n, np.int64), np.empty((n, 3)), np.empty(n)
    count, total = np.ones((3, 3)), np.zeros((3, 3))
    for block in range(BLOCKS):
        rows = slice(block * PER_BLOCK, (block + 1) * PER_BLOCK)
        c = classes[rows]
        p[rows] = _shares(total / count, floor)[c]
        u = rng.random(PER_BLOCK)
        arm[rows] = (u[:, None] > np.cumsum(p[rows], axis=1)[:, :2]).sum(axis=1)
        y[rows] = LEVEL[c] + EFFECT[c, arm[rows]] + load[block] + NOISE[c] * skew[rows]
        np.add.at(count, (c, arm[rows]), 1.0)
        np.add.at(total, (c, arm[rows]), y[rows])
    return [
        _record(row, CLASSES[classes[row]], int(arm[row]), p[row], float(np.exp(y[row])))
        for row in range(n)
    ]


def _loads(rng: np.random.Generator) -> FloatArray:
    """A stationary walk: its mean is 0 in the long run, and blocks next to each other are alike."""
    load = rng.normal(0.0, LOAD_SD, BLOCKS)
    for block in range(1, BLOCKS):
        load[block] = STAYS * load[block - 1] + np.sqrt(1.0 - STAYS**2) * load[block]
    return load


def _shares(mean: FloatArray, floor: float) -> FloatArray:
    """By class: what looks better gets more, and every arm its floor."""
    keen = 4.0 if floor else 60.0
    better = np.exp(-keen * (mean - mean.min(axis=1, keepdims=True)))
    mixed: FloatArray = floor + (1.0 - 3 * floor) * better / better.sum(axis=1, keepdims=True)
    return mixed


def _record(row: int, class_id: str, arm: int, p: FloatArray, cost_s: float) -> DecisionRecord:
    """A line whose log cost is that of the world."""
    name = ClassId(class_id)
    ended = START + row * BLOCK_S / PER_BLOCK + cost_s
    arm_id = ARMS[arm].arm_id
    probabilities = {one.arm_id: value for one, value in zip(ARMS, p.tolist(), strict=True)}
    ctx = RequestContext(
        request_id=str(row),
        request=ParsedRequest(Endpoint.CHAT, b"", {}, "m", stream=True),
        classification=Classification(name, 0.9, {}, ""),
        arrival_s=0.0,
        path_qs="",
        headers=(),
    )
    outcome = Outcome(
        Status.OK,
        200,
        arm_id,
        (Attempt(arm_id, ReplicaId(f"{arm_id}/0"), AttemptEnd.ANSWERED),),
        e2e_s=cost_s,
        ttft_s=0.1 * cost_s,
        tpot_s=0.9 * cost_s / (typical_tokens(name) - 1),
        tokens=typical_tokens(name),
        load=4,
    )
    decision = Decision(arm_id, probabilities[arm_id], probabilities, {}, "adaptive", 1)
    return decision_record(ctx, decision, outcome, wall=ended, arms=ARMS)


def logged(seed: int, folder: Path, floor: float = FLOOR) -> Log:
    """One run, written and read back."""
    path = folder / "decisions.jsonl"
    lines = (record.as_json() for record in simulate(seed, floor))
    path.write_bytes(
        b"".join(orjson.dumps(line, option=orjson.OPT_APPEND_NEWLINE) for line in lines)
    )
    return read_log([path])


def judged(runs: int, floor: float = FLOOR) -> dict[str, list[Answer]]:
    """What the logs say of each policy, over all classes."""
    found: dict[str, list[Answer]] = {name: [] for name in POLICIES}
    with TemporaryDirectory() as folder:
        for seed in range(runs):
            log = logged(seed, Path(folder), floor)
            for name, (policy, parameters, _) in POLICIES.items():
                made = build_policy(policy, parameters, log.arms)
                found[name].append(replay(log, made, Settings()).overall)
    return found


def inside(answers: Sequence[Answer], name: str, figure: str) -> list[bool]:
    """Whether each interval holds the truth, of the answers that were given."""
    true = truth(POLICIES[name][2])
    if figure == "against_baseline":
        true -= truth(POLICIES["all plain"][2])
    found: list[Estimate | None] = [getattr(answer, figure) for answer in answers]
    return [of.low <= true <= of.high for of in found if of is not None]


def tables(runs: int) -> str:
    """All tables."""
    found = judged(runs)
    lines = [
        f"{runs} logged runs of {BLOCKS * PER_BLOCK:,} requests, policies that were not run.",
        "Shares of 95 % intervals of the mean log cost that hold its expectation, mean half-width",
        "and bias of the doubly robust estimate.",
        "",
        "| policy | effective | DR | half-width | bias | SNIPS | IPS | against plain |",
        "|---|---|---|---|---|---|---|---|",
    ]
    every: list[bool] = []
    for name, answers in found.items():
        given = [answer.dr for answer in answers if answer.dr is not None]
        every += inside(answers, name, "dr")
        true = truth(POLICIES[name][2])
        ess = np.mean([answer.ess for answer in answers])
        half = np.mean([of.high - of.value for of in given])
        bias = np.mean([of.value - true for of in given])
        shares = {
            figure: _percent(inside(answers, name, figure))
            for figure in ("dr", "snips", "ips", "against_baseline")
        }
        plain = "" if name == "all plain" else shares["against_baseline"]
        lines.append(
            f"| {name} | {ess:,.0f} | {shares['dr']} | {half:.3f} | {bias:+.4f} | "
            f"{shares['snips']} | {shares['ips']} | {plain} |"
        )
    lines += [
        "",
        f"Doubly robust, all {len(every):,} together: {_percent(every)}.",
        "",
        *_refusals(max(runs // 10, 1)),
    ]
    return "\n".join(lines)


def _refusals(runs: int) -> list[str]:
    """The same, logged by a policy that drops arms for good: what is refused."""
    found = judged(runs, floor=0.0)
    lines = [
        f"{runs} runs logged by a policy without a floor, which drops arms for good:",
        "",
        "| policy | refused | wrong among those answered | first reason |",
        "|---|---|---|---|",
    ]
    for name, answers in found.items():
        refused = [answer for answer in answers if answer.refused]
        wrong = inside(answers, name, "dr").count(False)
        why = refused[0].refused[0] if refused else ""
        lines.append(f"| {name} | {len(refused)} of {runs} | {wrong} | {why} |")
    return lines


def _percent(held: Sequence[bool]) -> str:
    return f"{100 * sum(held) / len(held):.1f} %" if held else "-"


def main() -> None:
    """Prints the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=200)
    print(tables(parser.parse_args().runs))


if __name__ == "__main__":
    main()
