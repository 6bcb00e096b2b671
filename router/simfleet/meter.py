"""What an engine counts for its `/metrics`: at each step or at a request's end, as it does."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from dataclasses import dataclass, field

from policies.sim.machine import Step
from router.simfleet.answer import Answer, Choice, Piece
from router.simfleet.settings import EngineSettings, Kind

_GAUGE_STEPS = 40
"""Steps after which SGLang's gauges of the last interval are set anew."""

TTFT_BOUNDS = (
    *(0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75),
    *(1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0, 160.0, 640.0, 2560.0),
)
E2E_BOUNDS = (
    *(0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0),
    *(120.0, 240.0, 480.0, 960.0, 1920.0, 7680.0),
)


class Histogram:
    """Durations by bucket."""

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def add(self, value: float) -> None:
        """One more."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value


@dataclass(slots=True)
class Totals:
    """Since the engine's start."""

    drafts: int = 0
    drafted: int = 0
    accepted: int = 0
    per_position: list[int] = field(default_factory=list)
    generated: Counter[bool] = field(default_factory=Counter)
    """By whether the answer was streamed."""
    prompt: Counter[bool] = field(default_factory=Counter)
    requests: Counter[bool] = field(default_factory=Counter)
    cached: int = 0
    verified: int = 0
    """Steps of requests after their first, with a draft or without."""
    steps: int = 0
    busy: int = 0
    """Running requests, summed over steps."""
    ended: Counter[str] = field(default_factory=Counter)
    """By reason."""
    prompt_s: float = 0.0
    generation_s: float = 0.0
    longest: int = 0
    ttft: Histogram = field(default_factory=lambda: Histogram(TTFT_BOUNDS))
    e2e: Histogram = field(default_factory=lambda: Histogram(E2E_BOUNDS))
    accept_length: float = 0.0
    """SGLang's gauge of the last interval."""
    throughput: float = 0.0


class Meter:
    """Counts one engine's work."""

    def __init__(self, settings: EngineSettings) -> None:
        self._per_step = settings.kind is Kind.VLLM
        self._prompts_first = settings.kind is not Kind.SGLANG
        self._positions = settings.num_speculative_tokens or 0
        self._interval = [0, 0, 0]
        self._interval_s = 0.0
        self.totals = Totals()
        self.reset()

    def reset(self) -> None:
        """The engine was started anew."""
        # llama.cpp tells positions only once there was a draft.
        self.totals = Totals(per_position=[0] * self._positions if self._per_step else [])
        self._interval, self._interval_s = [0, 0, 0], 0.0

    def stepped(self, step: Step) -> None:
        """A step is over."""
        self.totals.steps += 1
        self.totals.busy += step.running
        decoding = [item for item in step.emissions if not item.first]
        if not decoding:
            return
        tokens = sum(item.tokens for item in decoding)
        values = zip(self._interval, (1, len(decoding), tokens), strict=True)
        self._interval = [before + more for before, more in values]
        self._interval_s += step.duration_s
        if self._interval[0] >= _GAUGE_STEPS:
            _, verified, made = self._interval
            self.totals.accept_length = made / verified
            self.totals.throughput = made / self._interval_s if self._interval_s else 0.0
            self._interval, self._interval_s = [0, 0, 0], 0.0

    def first(self, answer: Answer, choice: Choice) -> None:
        """A choice has its first token; how long that took stands in the answer's times.

        vLLM counts a prompt anew for each choice.
        """
        if choice.index and not self._per_step:
            return
        totals = self.totals
        totals.prompt_s += answer.timing.prompt_ms / 1000
        totals.ttft.add(answer.timing.first_ms / 1000)
        if self._prompts_first:
            self._prompt(answer)

    def _prompt(self, answer: Answer) -> None:
        self.totals.prompt[answer.asked.stream] += answer.prompt_tokens
        self.totals.cached += answer.cached_tokens

    def piece(self, answer: Answer, piece: Piece) -> None:
        """A step gave a request something."""
        if self._per_step:
            self.totals.generated[answer.asked.stream] += len(piece.ids)
            self._draft(piece.drafted, piece.accepted)

    def end(self, answer: Answer, choice: Choice) -> None:
        """A request, or one choice of it, ended by itself."""
        totals, streamed = self.totals, answer.asked.stream
        totals.ended[choice.finish or "stop"] += 1
        totals.requests[streamed] += 1
        totals.generation_s += answer.timing.generation_ms / 1000
        totals.longest = max(totals.longest, answer.prompt_tokens + choice.tokens)
        totals.e2e.add((answer.timing.first_ms + answer.timing.generation_ms) / 1000)
        if not self._prompts_first and choice.index == 0:
            self._prompt(answer)
        if self._per_step:
            return
        totals.generated[streamed] += choice.tokens
        totals.verified += len(choice.steps)
        for drafted, accepted in choice.all_steps:
            self._draft(drafted, accepted)

    def aborted(self) -> None:
        """A client left."""
        self.totals.ended["abort"] += 1

    def _draft(self, drafted: int, accepted: int) -> None:
        if not drafted:
            return
        totals = self.totals
        totals.drafts += 1
        totals.drafted += drafted
        totals.accepted += accepted
        if len(totals.per_position) < max(accepted, drafted):
            totals.per_position += [0] * (max(accepted, drafted) - len(totals.per_position))
        for position in range(accepted):
            totals.per_position[position] += 1
