"""One answer while it is being made: what was asked, what there is so far, how long it took."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum


class Door(StrEnum):
    """In which dialect a request came."""

    CHAT = "/v1/chat/completions"
    COMPLETIONS = "/v1/completions"
    RESPONSES = "/v1/responses"
    MESSAGES = "/v1/messages"
    GENERATE = "/generate"
    """SGLang's own."""


@dataclass(frozen=True, slots=True)
class Asked:
    """What of a request bears on the shape of its answer. No text of it."""

    door: Door
    model: str
    stream: bool = False
    n: int = 1
    max_tokens: int | None = None
    temperature: float | None = None
    include_usage: bool = False
    continuous_usage: bool = False
    token_ids: bool = False
    """vLLM's `return_token_ids`."""
    spec_details: bool = False
    """SGLang's `return_spec_tokens_details`."""
    meta_info: bool = False
    """SGLang's `return_meta_info`."""
    timings_per_token: bool = False
    """llama.cpp's."""
    grammar: bool = False
    """Whether the answer must follow a schema."""
    offers_tools: bool = False
    tool: str | None = None
    """Name of the tool that the answer calls."""


@dataclass(frozen=True, slots=True)
class Piece:
    """What one step gave one choice."""

    texts: tuple[str, ...]
    """One for each token; the last of an answer that ended by itself is empty."""
    ids: tuple[int, ...]
    drafted: int = 0
    accepted: int = 0
    finish: str | None = None
    """`stop`, `length` or `tool_calls`, with the last piece."""


@dataclass(slots=True)
class Choice:
    """One of the answers to a request."""

    index: int
    response_id: str
    """The same for all choices, but not from SGLang."""
    tool_id: str = ""
    texts: list[str] = field(default_factory=list)
    ids: list[int] = field(default_factory=list)
    steps: list[tuple[int, int]] = field(default_factory=list)
    """Drafted and accepted in each step after the first, which only reads the prompt."""
    first_accepted: int = 0
    first_drafted: int = 0
    finish: str | None = None
    opened: bool = False
    sequence: int = 0
    """Number of the next event, where events are numbered."""

    @property
    def tokens(self) -> int:
        """How many there are so far."""
        return len(self.ids)

    @property
    def text(self) -> str:
        """All so far."""
        return "".join(self.texts)

    @property
    def drafted(self) -> int:
        """Tokens drafted for it."""
        return self.first_drafted + sum(drafted for drafted, _ in self.steps)

    @property
    def accepted(self) -> int:
        """Drafted tokens that were accepted."""
        return self.first_accepted + sum(accepted for _, accepted in self.steps)

    def add(self, piece: Piece) -> None:
        """Takes in what a step gave."""
        if self.ids:
            self.steps.append((piece.drafted, piece.accepted))
        else:
            self.first_drafted, self.first_accepted = piece.drafted, piece.accepted
        self.texts.extend(piece.texts)
        self.ids.extend(piece.ids)
        self.finish = piece.finish

    def histogram(self, size: int) -> list[int]:
        """Steps that had a draft, by accepted tokens; of at least `size` entries."""
        drafts = [accepted for drafted, accepted in self.all_steps if drafted]
        counts = [0] * max(size, max(drafts, default=0) + 1)
        for accepted in drafts:
            counts[accepted] += 1
        return counts

    @property
    def all_steps(self) -> list[tuple[int, int]]:
        """Drafted and accepted in each step that could have a draft."""
        if self.first_drafted:
            return [(self.first_drafted, self.first_accepted), *self.steps]
        return self.steps


@dataclass(slots=True)
class Timing:
    """Durations in milliseconds, by the engine's clock."""

    queue_ms: float = 0.0
    """Until the first step that it took part in."""
    first_ms: float = 0.0
    """From the request to its first token."""
    prompt_ms: float = 0.0
    """Of the first step."""
    generation_ms: float = 0.0
    """From its first token to its last."""


@dataclass(slots=True)
class Answer:
    """Everything that is told about one request."""

    asked: Asked
    created: Callable[[], int]
    """The wall clock in whole seconds; llama.cpp tells it anew in each event."""
    prompt_tokens: int
    choices: list[Choice]
    began: int = 0
    """When the request came, by the wall clock."""
    model: str = ""
    """As told in the answer."""
    cached_tokens: int = 0
    prompt_ids: list[int] | None = None
    item_id: str = ""
    """Of the message inside the answer, where a dialect has one."""
    timing: Timing = field(default_factory=Timing)
    opened: bool = False
    ended: list[Choice] = field(default_factory=list)
    """In the order in which they ended, as far as a stream has to know."""

    @property
    def done(self) -> bool:
        """Whether every choice has ended."""
        return all(choice.finish for choice in self.choices)

    @property
    def completion_tokens(self) -> int:
        """Of all choices."""
        return sum(choice.tokens for choice in self.choices)
