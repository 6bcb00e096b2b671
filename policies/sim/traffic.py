"""What arrives in a world: times, classes, lengths, conversations. It serves nothing."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

import numpy as np

from policies.sim.machine import SimRequest
from policies.sim.spec import ClassTraffic, Event, TrafficSpec
from policies.types import ClassId, FloatArray
from policies.values import value

MOST_PROMPT_TOKENS: Final = 16_000
MOST_OUTPUT_TOKENS: Final = 4_000
_BURST_SPEED: Final = 20.0
"""How many times faster than on average the requests of a burst follow each other."""


@value
class Arrival:
    """One request of a world: all of the truth about it."""

    index: int
    """Its number, by time."""
    at_s: float
    request: SimRequest
    told_class: ClassId
    """What a router takes its class to be."""
    session: int
    turn: int
    shared_tokens: int
    """Tokens at the beginning of the prompt that all requests of its template share."""


def arrivals(spec: TrafficSpec, seed: int, events: Sequence[Event] = ()) -> tuple[Arrival, ...]:
    """Draw what arrives; the same for whoever routes it.

    Turns of a conversation come when they come, however fast the last one was answered: so
    policies can be compared request by request.
    """
    rng = np.random.default_rng((seed, 11))
    names = list(spec.classes)
    drafts: list[tuple[float, SimRequest, int, int, int]] = []
    times, counts = _starts(spec, rng)
    for session, (at_s, count) in enumerate(zip(times.tolist(), counts.tolist(), strict=True)):
        weights = _weights(spec, names, events, count)
        class_id = names[int(np.searchsorted(weights.cumsum(), rng.random() * weights.sum()))]
        drafts.extend(_conversation(spec, class_id, session, at_s, rng))
    drafts.sort(key=lambda draft: draft[0])
    return tuple(
        Arrival(
            index=index,
            at_s=at_s,
            request=_numbered(request, index),
            told_class=_told(spec, names, request.class_id, rng),
            session=session,
            turn=turn,
            shared_tokens=shared,
        )
        for index, (at_s, request, session, turn, shared) in enumerate(drafts[: spec.requests])
    )


def _starts(spec: TrafficSpec, rng: np.random.Generator) -> tuple[FloatArray, FloatArray]:
    """When conversations begin, and how many requests the world expects before each."""
    total = sum(item.weight for item in spec.classes.values())
    turns = sum(
        item.weight / total / (1.0 - min(item.more_turns, 0.9)) for item in spec.classes.values()
    )
    starts = int(spec.requests / turns * 1.3) + 20
    gaps = rng.exponential(turns, starts)
    if spec.burst_ratio > 0.0:
        size = max(spec.burst_requests, 1.0)
        begins = rng.random(starts) < spec.burst_ratio / size
        left = 0
        for index in range(starts):
            if begins[index]:
                left = int(rng.geometric(1.0 / size))
            elif left:
                left -= 1
                gaps[index] /= _BURST_SPEED
        gaps *= turns / gaps.mean()
    counts = gaps.cumsum()
    day_s = spec.day_s or spec.requests / spec.rate
    grid = np.linspace(0.0, 4.0 * spec.requests / spec.rate, 20_001)
    wave = 2.0 * math.pi / day_s
    # Arrivals expected until each time, of a rate that begins low: rate * (1 - swing * cos).
    expected = spec.rate * (grid - spec.swing * np.sin(wave * grid) / wave)
    return np.interp(counts, expected, grid), counts


def _weights(
    spec: TrafficSpec, names: Sequence[ClassId], events: Sequence[Event], count: float
) -> FloatArray:
    weights = np.array([spec.classes[name].weight for name in names])
    for event in events:
        if event.kind == "mix" and event.at_request <= count and event.class_id in names:
            weights[names.index(event.class_id)] *= event.factor
    return weights


def _conversation(
    spec: TrafficSpec, class_id: ClassId, session: int, at_s: float, rng: np.random.Generator
) -> list[tuple[float, SimRequest, int, int, int]]:
    of_class = spec.classes[class_id]
    template = _template(class_id, of_class, rng)
    greedy = bool(rng.random() >= of_class.hot_ratio)
    rows: list[tuple[float, SimRequest, int, int, int]] = []
    context, turn = of_class.template_tokens, 0
    while True:
        prompt = min(context + _length(of_class.prompt, rng), MOST_PROMPT_TOKENS)
        output = min(max(_length(of_class.output, rng), 2), MOST_OUTPUT_TOKENS)
        seed = int(rng.integers(2**62))
        request = SimRequest("", class_id, prompt, output, template, greedy, seed)
        rows.append((at_s, request, session, turn, of_class.template_tokens))
        if rng.random() >= min(of_class.more_turns, 0.9):
            return rows
        context, turn = prompt + output, turn + 1
        at_s += float(rng.exponential(spec.think_s))


def _template(class_id: ClassId, of_class: ClassTraffic, rng: np.random.Generator) -> str:
    ranks = 1.0 / np.arange(1, max(of_class.templates, 1) + 1)
    number = int(np.searchsorted(ranks.cumsum(), rng.random() * ranks.sum()))
    language = ""
    if of_class.languages:
        weights = np.array(list(of_class.languages.values())).cumsum()
        place = int(np.searchsorted(weights, rng.random() * weights[-1]))
        language = list(of_class.languages)[place]
    return f"{class_id}-{number}@{language}" if language else f"{class_id}-{number}"


def _length(median_and_sd: tuple[float, float], rng: np.random.Generator) -> int:
    median, sd = median_and_sd
    return max(int(median * math.exp(sd * rng.standard_normal())), 1)


def _numbered(request: SimRequest, index: int) -> SimRequest:
    return SimRequest(
        f"r{index}",
        request.class_id,
        request.prompt_tokens,
        request.output_tokens,
        request.template,
        request.greedy,
        request.seed,
    )


def _told(
    spec: TrafficSpec, names: Sequence[ClassId], class_id: ClassId, rng: np.random.Generator
) -> ClassId:
    if rng.random() >= spec.misread_ratio:
        return class_id
    return names[int(rng.integers(len(names)))]
