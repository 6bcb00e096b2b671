"""A small simulated fleet whose servers tell nothing but counters.

Requests arrive at random, in a mix of ten classes that wanders. Each replica does one step after
the other for all requests it has, and a step takes longer the more there are. What a request emits
in a step depends on its own acceptance: classes spread by request, and in some a request either
repeats its prompt, from some step on, or does not. Counters are read every two seconds with jitter.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from policies.types import ArmId, ClassId, FloatArray
from router.engines.counters import Moves, ReplicaCounters
from router.estimates.counted import Made
from router.estimates.layout import SLOT_S

IntArray = NDArray[np.int64]

ARM: Final = ArmId("arm")
K: Final = 5
START: Final = 1_000_000.0
"""Wall time at which it begins; a border of slots."""

_COPIED: Final = 0.93
"""Acceptance of what is repeated."""
_LENGTH_SD: Final = 0.8
_STEP_S: Final = 0.018
_STEP_S_PER_REQUEST: Final = 0.0006
_READ_S: Final = 2.0
_JITTER_S: Final = 0.4
_GRID_S: Final = 0.5


@dataclass(frozen=True, slots=True)
class Kind:
    """A class: acceptance, its spread by request (of the logit), share that copies, and length."""

    alpha: float
    spread: float
    copies: float
    tokens: float


KINDS: Final = {
    ClassId("edit"): Kind(0.35, 0.4, 0.6, 400.0),
    ClassId("refactor"): Kind(0.5, 0.5, 0.3, 500.0),
    ClassId("code"): Kind(0.7, 0.4, 0.0, 250.0),
    ClassId("json"): Kind(0.8, 0.4, 0.0, 120.0),
    ClassId("extract"): Kind(0.3, 0.4, 0.7, 90.0),
    ClassId("translate"): Kind(0.45, 0.4, 0.0, 150.0),
    ClassId("chat"): Kind(0.55, 0.5, 0.0, 180.0),
    ClassId("reason"): Kind(0.6, 0.4, 0.0, 450.0),
    ClassId("summary"): Kind(0.25, 0.4, 0.3, 160.0),
    ClassId("story"): Kind(0.4, 0.4, 0.0, 300.0),
}
NAMES: Final = tuple(KINDS)


@dataclass(frozen=True, slots=True)
class Fleet:
    """What is simulated.

    Attributes:
        moves: When counters move.
        foreign: Share of the requests that come past the proxy, in a mix of their own.
        paired: Each request of the first class brings one of the second, a quarter longer, and
            there are no others of it: their tokens are always in proportion.
        requests_per_s: Those through the proxy.
        seconds: How long they come.
        replicas: Servers.
        mix_sd: Of the log of a class's share around its mean.
        mix_s: Time in which the mix forgets where it was.
    """

    moves: Moves = Moves.AT_EACH_STEP
    foreign: float = 0.0
    paired: bool = False
    requests_per_s: float = 5.0
    seconds: float = 1800.0
    replicas: int = 2
    mix_sd: float = 0.8
    mix_s: float = 300.0


@dataclass(frozen=True, slots=True)
class Seen:
    """What the proxy sees of it.

    Attributes:
        readings: Replica, wall time and counters, in the order of time for each replica.
        made: Tokens by slot, arm and class, as finished requests tell.
        tau: Tokens per step of each class in just this traffic; NaN for a class without any.
    """

    readings: tuple[tuple[int, float, ReplicaCounters], ...]
    made: Made
    tau: FloatArray


@dataclass(frozen=True, slots=True)
class _Requests:
    """Arrays with one entry a request; `step_of` and `emitted` with one a step after the first."""

    arrived: FloatArray
    kind: IntArray
    own: NDArray[np.bool_]
    tokens: IntArray
    steps: IntArray
    step_of: IntArray
    nth: IntArray
    emitted: IntArray


def simulate(fleet: Fleet, seed: int) -> Seen:
    """Run a fleet once."""
    rng = np.random.default_rng(seed)
    requests = _requests(fleet, rng)
    replica = rng.integers(0, fleet.replicas, len(requests.tokens))
    first = requests.arrived + 0.1 + rng.exponential(0.05, len(requests.tokens))
    last, stepped = _times(requests, replica, first, fleet)
    readings = []
    for server in range(fleet.replicas):
        count = int((fleet.seconds + 60.0) / _READ_S)
        read = np.cumsum(_READ_S + rng.uniform(-_JITTER_S, _JITTER_S, count))
        told = _counters(fleet, requests, replica == server, (first, last, stepped), read)
        readings += [
            (server, START + when, counters)
            for when, counters in zip(read.tolist(), told, strict=True)
        ]
    begin = last if fleet.moves is Moves.AT_THE_END else first
    own = requests.own
    tokens, steps = (
        np.bincount(requests.kind[own], figure[own], len(NAMES))
        for figure in (requests.tokens, requests.steps)
    )
    with np.errstate(invalid="ignore"):
        tau = tokens / steps
    return Seen(tuple(readings), _made(requests, begin, last, fleet.seconds), tau)


def long_run(requests: int = 10_000, seed: int = 1) -> FloatArray:
    """Tokens per step of each class over very many requests."""
    rng = np.random.default_rng(seed)
    found = []
    for kind in range(len(NAMES)):
        drawn = _drawn(np.zeros(requests), np.full(requests, kind), rng)
        found.append(drawn.tokens.sum() / drawn.steps.sum())
    return np.array(found)


def _requests(fleet: Fleet, rng: np.random.Generator) -> _Requests:
    own = _arrivals(fleet, rng)
    rate = fleet.requests_per_s * fleet.foreign / (1.0 - fleet.foreign)
    others = _arrivals(replace(fleet, requests_per_s=rate, paired=False), rng)
    arrived = np.concatenate([own[0], others[0]])
    kind = np.concatenate([own[1], others[1]])
    drawn = _drawn(arrived, kind, rng, paired=fleet.paired)
    return replace(drawn, own=np.arange(len(kind)) < len(own[1]))


def _arrivals(fleet: Fleet, rng: np.random.Generator) -> tuple[FloatArray, IntArray]:
    """Times and classes; a twin comes at the same time as its first."""
    count = int(rng.poisson(fleet.requests_per_s * fleet.seconds))
    arrived = np.sort(rng.uniform(0.0, fleet.seconds, count))
    slots, classes = int(fleet.seconds / SLOT_S) + 1, len(NAMES)
    kept = np.exp(-SLOT_S / fleet.mix_s)
    shares = np.empty((slots, classes))
    shares[0] = rng.normal(0.0, fleet.mix_sd, classes)
    moved = rng.normal(0.0, fleet.mix_sd * np.sqrt(1.0 - kept**2), (slots, classes))
    for slot in range(1, slots):
        shares[slot] = kept * shares[slot - 1] + moved[slot]
    until = np.cumsum(np.exp(shares), axis=1)
    until /= until[:, -1:]
    drawn = rng.random(count)[:, None]
    kind = (drawn > until[(arrived // SLOT_S).astype(np.int64), :-1]).sum(axis=1)
    if fleet.paired:
        arrived, kind = arrived[kind != 1], kind[kind != 1]
        twins = arrived[kind == 0]
        arrived = np.concatenate([arrived, twins])
        kind = np.concatenate([kind, np.ones(len(twins), dtype=np.int64)])
    return arrived, kind.astype(np.int64)


def _drawn(
    arrived: FloatArray, kind: IntArray, rng: np.random.Generator, *, paired: bool = False
) -> _Requests:
    """Draws lengths and, step by step, what is accepted."""
    kinds = tuple(KINDS.values())
    alpha, spread, copies, mean = (
        np.array([getattr(one, name) for one in kinds])[kind]
        for name in ("alpha", "spread", "copies", "tokens")
    )
    count = len(kind)
    logit = np.log(alpha / (1.0 - alpha)) + spread * rng.normal(size=count)
    lengths = rng.lognormal(np.log(mean) - _LENGTH_SD**2 / 2.0, _LENGTH_SD)
    tokens = np.clip(lengths, 4.0, 2000.0).astype(np.int64)
    if paired:
        tokens[kind == 1] = tokens[kind == 0] * 5 // 4
    copying = np.where(rng.random(count) < copies, rng.uniform(0.0, 0.2, count), 9.0) * tokens
    most = tokens - 1  # the first token is made by a step of its own
    start = np.concatenate([[0], np.cumsum(most)])
    step_of = np.repeat(np.arange(count), most)
    nth = np.arange(start[-1]) - start[step_of]
    each = np.where(nth >= copying[step_of], _COPIED, (1.0 / (1.0 + np.exp(-logit)))[step_of])
    accepted = np.minimum(np.log(rng.random(len(each))) / np.log(each), K).astype(np.int64)
    total = np.concatenate([[0], np.cumsum(accepted + 1)])
    before = total[:-1] - total[start[step_of]]
    needed = before < most[step_of]
    step_of, nth, before = step_of[needed], nth[needed], before[needed]
    emitted = np.minimum(accepted[needed] + 1, most[step_of] - before)
    steps = np.bincount(step_of, minlength=count) + 1
    return _Requests(arrived, kind, np.ones(count, np.bool_), tokens, steps, step_of, nth, emitted)


def _times(
    requests: _Requests, replica: IntArray, first: FloatArray, fleet: Fleet
) -> tuple[FloatArray, FloatArray]:
    """When each request ends, and when each step is; steps are slower the more requests run."""
    grid = np.arange(0.0, fleet.seconds + 200.0, _GRID_S)
    last = first + requests.steps * (_STEP_S + 10 * _STEP_S_PER_REQUEST)
    stepped = np.empty(len(requests.step_of))
    for server in range(fleet.replicas):
        mine = replica == server
        its = mine[requests.step_of]
        clock = np.zeros(len(grid))
        for _ in range(4):  # how long steps take and how many run settle each other
            begun, ended = (
                np.histogram(times[mine], [*grid, np.inf])[0] for times in (first, last)
            )
            each = _STEP_S + _STEP_S_PER_REQUEST * np.maximum(np.cumsum(begun - ended), 0)
            clock = np.concatenate([[0.0], np.cumsum(_GRID_S / each)[:-1]])
            at = np.interp(first[mine], grid, clock)
            last[mine] = np.interp(at + requests.steps[mine] - 1, clock, grid)
        at = np.interp(first, grid, clock)[requests.step_of[its]]
        stepped[its] = np.interp(at + requests.nth[its] + 1, clock, grid)
    return last, stepped


def _counters(
    fleet: Fleet,
    requests: _Requests,
    mine: NDArray[np.bool_],
    times: tuple[FloatArray, FloatArray, FloatArray],
    read: FloatArray,
) -> list[ReplicaCounters]:
    """What one server tells at each reading."""
    first, last, stepped = times

    def counted(when: FloatArray, what: IntArray) -> IntArray:
        place = np.searchsorted(read, when)
        return np.cumsum(np.bincount(place, what, len(read) + 1))[:-1].astype(np.int64)

    if fleet.moves is Moves.AT_THE_END:
        ended = last[mine]
        tokens, after = requests.tokens[mine], requests.steps[mine] - 1
        columns = (counted(ended, tokens), counted(ended, after), counted(ended, tokens * 0 + 1))
        return [
            ReplicaCounters(fleet.moves, made, verify_steps=verified, requests=finished)
            for made, verified, finished in zip(*(c.tolist() for c in columns), strict=True)
        ]
    its = mine[requests.step_of]
    begun = counted(first[mine], np.ones(mine.sum(), dtype=np.int64))
    made = begun + counted(stepped[its], requests.emitted[its])
    drafts = counted(stepped[its], np.ones(its.sum(), dtype=np.int64))
    accepted = made - begun - drafts
    return [
        ReplicaCounters(fleet.moves, *figures[:1], accepted=figures[1], drafts=figures[2])
        for figures in zip(made.tolist(), accepted.tolist(), drafts.tolist(), strict=True)
    ]


def _made(requests: _Requests, first: FloatArray, last: FloatArray, seconds: float) -> Made:
    """Whole tokens by slot, as if each request's had come evenly from its first to its last."""
    slots = int(seconds / SLOT_S)
    own = requests.own
    tokens, kind = requests.tokens[own], requests.kind[own]
    first, last = first[own], last[own]
    begin, end = (first // SLOT_S).astype(np.int64), (last // SLOT_S).astype(np.int64)
    sums = np.zeros((slots, len(NAMES)), dtype=np.int64)
    told = np.zeros(len(tokens), dtype=np.int64)
    for ahead in range(int((end - begin).max()) + 1):
        slot = begin + ahead
        there = slot <= end
        with np.errstate(divide="ignore", invalid="ignore"):
            share = ((slot + 1.0) * SLOT_S - first) / (last - first)
        until = np.where(slot < end, np.floor(tokens * np.where(slot < end, share, 1.0)), tokens)
        mine = there & (slot < slots)
        np.add.at(sums, (slot[mine], kind[mine]), (until - told)[mine].astype(np.int64))
        told = np.where(there, until, told).astype(np.int64)
    start = int(START // SLOT_S)
    return {
        start + slot: {(ARM, name): int(n) for name, n in zip(NAMES, row, strict=True) if n}
        for slot, row in enumerate(sums)
    }
