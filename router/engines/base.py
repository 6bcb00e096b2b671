"""The seam to engines: pure functions from requests and answers to values.

An adapter maps names; it does no I/O and keeps nothing between requests.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from policies.types import SpecUsage
from policies.values import value
from router.engines.rule import StepRule
from router.fleet.gauges import ReplicaGauges
from router.types import ParsedRequest


@value
class Ask:
    """What is sent to the engine, and what has to be taken out of its reply again."""

    body: bytes
    strip_usage: bool = False
    """The usage event of the stream was asked for by us, not by the client."""
    strip_record: bytes | None = None
    """Name of the member with the record of speculation, where only we asked for it."""
    nulls_are_ours: bool = True
    """Where usage is taken out: the engine announces it by nulls in other events, which it writes
    for nobody else."""

    @property
    def strips(self) -> bool:
        """Whether anything has to be taken out."""
        return self.strip_usage or self.strip_record is not None


NOTHING_ASKED = Ask(b"")
"""Of whatever was forwarded as it came."""


@value
class Reading:
    """What an engine's answer told; None where it told nothing."""

    tokens: int | None = None
    prompt_tokens: int | None = None
    spec: SpecUsage | None = None
    unread: tuple[str, ...] = ()
    """Names of fields that were there and not understood."""
    cached_tokens: int | None = None
    """Tokens of the prompt that the engine had in its cache."""
    uncounted: str | None = None
    """Why the steps of a stream without a record are unknown."""


class EngineAdapter(Protocol):
    """One engine's dialect."""

    @property
    def name(self) -> str:
        """Name in the configuration."""

    @property
    def health_path(self) -> str:
        """Path that answers 200 when the engine can serve."""

    @property
    def metrics_path(self) -> str:
        """Path of its metrics, in Prometheus' text form."""

    @property
    def scrape_s(self) -> float:
        """Seconds between two readings of its metrics unless the configuration says; 0 for none."""

    @property
    def markers(self) -> tuple[bytes, ...]:
        """Byte strings that an event with figures contains; a cheap test before parsing."""

    @property
    def step_rule(self) -> StepRule | None:
        """How its steps show in its events; None where they never do."""

    def prepare(self, request: ParsedRequest) -> Ask:
        """Asks the engine for what it reports, on top of what the client asked."""

    def read(self, request: ParsedRequest, answer: Mapping[str, Any]) -> Reading:
        """Reads the figures of an answer.

        Args:
            request: What was asked.
            answer: The body of a whole answer, or the members of a stream's marked events, later
                ones over earlier ones.
        """

    def gauges(self, text: str) -> ReplicaGauges:
        """Reads the load of a server from the text of its metrics."""

    def refusal(self, request: ParsedRequest, *, speculative: bool) -> str | None:
        """Why this request must not go to such a pool of this engine; None when it may."""


LARGEST_COUNT = 2**53
"""Numbers of this size and above are no counts: not every reader of JSON holds them exactly, and
the sum of two of them may not fit into 64 bits."""


def count(value: object) -> int | None:
    """A count as engines print it: a non-negative integer, or None for anything else."""
    # Numbers of JSON are of no derived type, except that a truth value is one of `int`.
    return value if type(value) is int and 0 <= value < LARGEST_COUNT else None


def member(value: object, key: str) -> Any:
    """`value[key]` where value is an object that has it, else None."""
    return value.get(key) if isinstance(value, dict) else None


def choices_asked(request: ParsedRequest) -> int:
    """How many choices the client asked for; engines count several of them differently."""
    asked = count(request.fields.get("n")) or count(request.fields.get("n_cmpl"))
    best_of = count(request.fields.get("best_of"))
    prompt = request.fields.get("prompt")
    many = isinstance(prompt, list) and any(isinstance(item, (str, list)) for item in prompt)
    prompts = len(prompt) if many and isinstance(prompt, list) else 1
    return max(asked or 1, best_of or 1, prompts)


def tokens_told(answer: Mapping[str, Any]) -> tuple[int | None, int | None]:
    """Tokens of an answer and of its prompt, by `usage`, in whichever dialect that is written.

    >>> tokens_told({"usage": {"completion_tokens": 8, "prompt_tokens": 40}})
    (8, 40)
    >>> usage = {"output_tokens": 8, "input_tokens": 1, "cache_read_input_tokens": 39}
    >>> tokens_told({"usage": usage})
    (8, 40)
    """
    usage = answer.get("usage")
    if not isinstance(usage, dict):
        return None, None
    tokens = count(usage.get("completion_tokens"))
    if tokens is None:
        tokens = count(usage.get("output_tokens"))
    prompt_tokens = count(usage.get("prompt_tokens"))
    if prompt_tokens is None:
        prompt_tokens = count(usage.get("input_tokens"))
        if prompt_tokens is not None:
            # Only Anthropic's dialect has these, and it leaves them out of `input_tokens`.
            for key in ("cache_read_input_tokens", "cache_creation_input_tokens"):
                prompt_tokens += count(usage.get(key)) or 0
    return tokens, prompt_tokens


def cached_told(answer: Mapping[str, Any]) -> int | None:
    """Tokens of the prompt that were in the engine's cache, in whichever dialect.

    >>> cached_told({"usage": {"prompt_tokens_details": {"cached_tokens": 39}}})
    39
    >>> cached_told({"timings": {"cache_n": 0}})
    0
    """
    usage = answer.get("usage")
    for details in ("prompt_tokens_details", "input_tokens_details"):
        cached = count(member(member(usage, details), "cached_tokens"))
        if cached is not None:
            return cached
    cached = count(member(usage, "cache_read_input_tokens"))
    return count(member(answer.get("timings"), "cache_n")) if cached is None else cached


def wants_logprobs(request: ParsedRequest) -> bool:
    """Whether the client asked for log probabilities, in any of the dialects' spellings."""
    fields = request.fields
    if any(
        fields.get(key) not in (None, False)
        for key in ("logprobs", "top_logprobs", "n_probs", "prompt_logprobs")
    ):
        return True
    include = fields.get("include")
    return isinstance(include, list) and "message.output_text.logprobs" in include
