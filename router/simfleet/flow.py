"""One request from its submission to its last byte."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from policies.sim.machine import Emission, SimRequest, Step
from router.simfleet.answer import Answer, Choice, Piece
from router.simfleet.driver import Driver
from router.simfleet.faults import Fault
from router.simfleet.http import Reply
from router.simfleet.meter import Meter
from router.simfleet.prompts import Prompt
from router.simfleet.settings import Kind
from router.simfleet.wire.events import Mouth
from router.simfleet.words import EOS_ID, Words, arguments

_CALL_ID = 900
_DAMAGE = " otherwise"
_GARBAGE = b"\x00\xff\xfe7f\r\n}{garbage\r\n"


@dataclass(frozen=True, slots=True)
class Trouble:
    """What is to happen to a request on the way."""

    cut: Fault | None = None
    garbage: Fault | None = None
    damaged_tools: bool = False
    damaged_text: bool = False


class Flow:
    """Turns what the machine gives into what the client gets."""

    def __init__(
        self,
        answer: Answer,
        prompt: Prompt,
        reply: Reply,
        *,
        mouth: Mouth,
        meter: Meter,
        words: Words,
        now: Callable[[], float],
        kind: Kind,
        trouble: Trouble,
        tool_argument: str,
    ) -> None:
        self.answer = answer
        self._prompt = prompt
        self._reply = reply
        self._mouth = mouth
        self._meter = meter
        self._words = words
        self._now = now
        self._kind = kind
        self._trouble = trouble
        self._began = now()
        self._started = False
        self._first: dict[int, float] = {}
        self._events = 0
        self._call: list[str] | None = None
        if answer.asked.tool:
            self._call = arguments(words, tool_argument, prompt.seed, prompt.output_tokens)

    def submit(self, driver: Driver, request_id: str) -> None:
        """Puts every choice into the machine.

        Raises:
            ValueError: The machine could never run it.
        """
        names = [f"{request_id}.{choice.index}" for choice in self.answer.choices]
        prompt = self._prompt

        def leave() -> None:
            for name in names:
                driver.cancel(name)
            self._meter.aborted()

        self._reply.on_gone = leave
        for name, choice in zip(names, self.answer.choices, strict=True):
            request = SimRequest(
                name,
                prompt.class_id,
                prompt.prompt_tokens,
                prompt.output_tokens,
                template=prompt.template,
                greedy=prompt.greedy,
                seed=prompt.seed + choice.index,
                cached_tokens=prompt.cached_tokens,
            )
            driver.submit(request, self._taker(choice))
        if self.answer.asked.stream and self._kind is Kind.VLLM:
            self._reply.start()  # before there is a token; the others wait for it
            self._started = True

    @property
    def ended(self) -> bool:
        """Whether there is nobody to tell anything more."""
        return self._reply.ended

    def _taker(self, choice: Choice) -> Callable[[Emission, Step], None]:
        def take(emission: Emission, step: Step) -> None:
            self._take(choice, emission, step)

        return take

    def _take(self, choice: Choice, emission: Emission, step: Step) -> None:
        if self._reply.ended:
            return
        now, answer = self._now(), self.answer
        timing = answer.timing
        if not self._first:
            timing.first_ms = (now - self._began) * 1000
            timing.prompt_ms = min(step.duration_s * 1000, timing.first_ms)
            timing.queue_ms = timing.first_ms - timing.prompt_ms
        if choice.index not in self._first:
            self._meter.first(answer, choice)
        first = self._first.setdefault(choice.index, now)
        timing.generation_ms = (now - first) * 1000
        piece = self._piece(choice, emission)
        choice.add(piece)
        self._meter.piece(answer, piece)
        if piece.finish:
            self._meter.end(answer, choice)
        if answer.asked.stream:
            self._tell(choice, piece)
        elif answer.done:
            self._reply.whole(200, self._mouth.whole(answer))

    def _piece(self, choice: Choice, emission: Emission) -> Piece:
        start = choice.tokens
        made = [self._token(choice, start + at) for at in range(emission.tokens)]
        finish = None
        if emission.finished:
            by_itself = self._prompt.ends_by_itself
            finish = ("tool_calls" if self._call else "stop") if by_itself else "length"
            if by_itself:
                made[-1] = ("", EOS_ID)
        texts, ids = tuple(text for text, _ in made), tuple(number for _, number in made)
        return Piece(texts, ids, emission.drafted, emission.accepted, finish)

    def _token(self, choice: Choice, place: int) -> tuple[str, int]:
        if self._call is not None:
            text = self._call[place] if place < len(self._call) else ""
            if self._trouble.damaged_tools and text == '"}':
                text = ","
            return text, _CALL_ID
        seed = self._prompt.seed + choice.index
        if self._trouble.damaged_text and place == self._prompt.output_tokens // 2:
            return _DAMAGE, _CALL_ID
        return self._words.piece(self._prompt.class_id, self._prompt.language, seed, place)

    def _tell(self, choice: Choice, piece: Piece) -> None:
        if not self._started:
            self._reply.start()
            self._started = True
        parts = self._mouth.step(self.answer, choice, piece)
        self._events += len(parts)
        trouble = self._trouble
        if trouble.garbage and self._events > trouble.garbage.value:
            self._reply.raw(_GARBAGE)
            self._leave()
            return
        if trouble.cut and self._events > trouble.cut.value:
            self._leave()
            return
        self._reply.chunks(parts)
        if self.answer.done:
            self._reply.end()

    def _leave(self) -> None:
        left = self._reply.on_gone
        self._reply.cut()
        if left:
            left()

    def die(self, parts: list[bytes] | None) -> None:
        """The engine has gone: a stream ends with `parts`, anything else breaks off."""
        if self._reply.ended:
            return
        if parts and self._started:
            self._reply.chunks(parts)
            self._reply.end()
        else:
            self._reply.cut()
