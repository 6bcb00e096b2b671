"""Totals that an engine has counted since it started, read from the text of its metrics.

Values only: fetching is `router.fleet.scrape`. Which engine it is the names tell, whatever the
configuration says; a page that is no text of Prometheus has none of them and tells nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from router.fleet.gauges import Samples, samples, whole


class Moves(StrEnum):
    """When an engine adds a request to its counters."""

    AT_EACH_STEP = "step"
    AT_THE_END = "end"


COUNTERS_MOVE = {
    "vllm": Moves.AT_EACH_STEP,
    "lmdeploy": Moves.AT_EACH_STEP,
    "sglang": Moves.AT_THE_END,
    "llamacpp": Moves.AT_THE_END,
    "tensorrt_llm": Moves.AT_THE_END,
}
"""By the adapter's name: in which slots the tokens of a request have to be claimed."""


@dataclass(frozen=True, slots=True)
class ReplicaCounters:
    """One server's totals since it started; None where it does not tell."""

    moves: Moves
    tokens: int
    """Generated."""
    prompt_tokens: int | None = None
    accepted: int | None = None
    """Drafted tokens that were accepted."""
    drafted: int | None = None
    drafts: int | None = None
    """Steps that had a draft."""
    per_position: tuple[int, ...] | None = None
    """Of the drafted tokens at each position, those accepted."""
    verify_steps: int | None = None
    """Steps after the first of each request, with a draft or without."""
    requests: int | None = None
    """Finished ones."""
    started: float | None = None
    """When the process started or the counters were made; another value means they began anew."""

    @property
    def steps(self) -> int | None:
        """All decode steps, the one that gave the first token included: tokens - accepted.

        >>> ReplicaCounters(Moves.AT_EACH_STEP, tokens=53, accepted=10).steps
        43
        """
        if self.accepted is not None:
            return self.tokens - self.accepted
        if self.verify_steps is None or self.requests is None:
            return None
        return self.verify_steps + self.requests


def read_counters(text: str) -> ReplicaCounters | None:
    """The counters of whichever known engine printed the page; None for any other page."""
    return next((found for read in _READERS if (found := read(text)) is not None), None)


def _total(found: Samples, name: str) -> int | None:
    """Over all engines and kinds of request behind an address."""
    lines = [line.value for line in found.get(name, ()) if line.value >= 0]
    return whole(lines) if lines else None


_DIGITS = 3
"""Of a position; no draft is that long."""


def _by_position(found: Samples, name: str, label: str) -> tuple[int, ...] | None:
    positions: dict[int, float] = {}
    for line in found.get(name, ()):
        position = line.labels.get(label, "")
        known = position.isascii() and position.isdecimal() and len(position) <= _DIGITS
        if known and line.value >= 0:
            positions[int(position)] = positions.get(int(position), 0.0) + line.value
    if not positions:
        return None
    return tuple(round(positions.get(index, 0.0)) for index in range(max(positions) + 1))


def _started(found: Samples, *names: str) -> float | None:
    lines = [line.value for name in names for line in found.get(name, ())]
    return max(lines) if lines else None


def _like_vllm(text: str, prefix: str, tokens: str, moves: Moves) -> ReplicaCounters | None:
    """Three engines share vLLM's names of what is drafted and accepted."""
    spec = f"{prefix}spec_decode_num_"
    totals = (
        prefix + tokens,
        f"{prefix}prompt_tokens_total",
        f"{spec}accepted_tokens_total",
        f"{spec}draft_tokens_total",
        f"{spec}drafts_total",
    )
    per_position = f"{spec}accepted_tokens_per_pos_total"
    made = (f"{prefix}generation_tokens_created", "process_start_time_seconds")
    found = samples(text, (*totals, per_position, *made))
    generated, prompt, accepted, drafted, drafts = (_total(found, name) for name in totals)
    if generated is None:
        return None
    return ReplicaCounters(
        moves,
        generated,
        prompt,
        accepted,
        drafted,
        drafts,
        per_position=_by_position(found, per_position, "position"),
        started=_started(found, *made),
    )


def _vllm(text: str) -> ReplicaCounters | None:
    """Of vLLM, one line for each of its data-parallel engines."""
    return _like_vllm(text, "vllm:", "generation_tokens_total", Moves.AT_EACH_STEP)


def _lmdeploy(text: str) -> ReplicaCounters | None:
    """Of LMDeploy."""
    return _like_vllm(text, "lmdeploy:", "generation_tokens_total", Moves.AT_EACH_STEP)


def _llamacpp(text: str) -> ReplicaCounters | None:
    """Of llama.cpp; what it accepted it tells by position once something was."""
    return _like_vllm(text, "llamacpp:", "tokens_predicted_total", Moves.AT_THE_END)


_SGLANG = (
    "sglang:generation_tokens_total",
    "sglang:prompt_tokens_total",
    "sglang:spec_verify_calls_total",
    "sglang:num_requests_total",
)


def _sglang(text: str) -> ReplicaCounters | None:
    """Of SGLang, which counts steps and neither drafted nor accepted tokens."""
    found = samples(text, _SGLANG)
    tokens, prompt, verified, requests = (_total(found, name) for name in _SGLANG)
    if tokens is None:
        return None
    return ReplicaCounters(
        Moves.AT_THE_END, tokens, prompt, verify_steps=verified, requests=requests
    )


_TRTLLM = (
    "trtllm_generation_tokens_total",
    "trtllm_prompt_tokens_total",
    "trtllm_spec_decode_drafted_tokens_total",
    "trtllm_spec_decode_accepted_tokens_total",
    "process_start_time_seconds",
)


def _tensorrt_llm(text: str) -> ReplicaCounters | None:
    """Of TensorRT-LLM: the series by position, which move with the tokens, at a request's end.

    Those without a position move at each iteration, and only where statistics of iterations are
    on: they cannot be set against the tokens of the same seconds.
    """
    found = samples(text, _TRTLLM)
    generated, prompt, drafted_name, accepted_name, started = _TRTLLM
    tokens = _total(found, generated)
    if tokens is None:
        return None
    drafted = _by_position(found, drafted_name, "token_position")
    accepted = _by_position(found, accepted_name, "token_position")
    if drafted is not None:  # series without any acceptance are not there
        accepted = accepted or ()
        accepted += (0,) * (len(drafted) - len(accepted))
    return ReplicaCounters(
        Moves.AT_THE_END,
        tokens,
        _total(found, prompt),
        accepted=None if accepted is None else sum(accepted),
        drafted=None if drafted is None else sum(drafted),
        drafts=None if drafted is None else drafted[0],
        per_position=accepted,
        started=_started(found, started),
    )


_READERS: tuple[Callable[[str], ReplicaCounters | None], ...] = (
    _vllm,
    _sglang,
    _llamacpp,
    _tensorrt_llm,
    _lmdeploy,
)
