"""vLLM's answers in Responses and Messages: no record of the speculation in either.

Streams are as recorded from 0.32; the whole answers are what their last events hold.
"""

from __future__ import annotations

from typing import Protocol

from router.simfleet.answer import Answer, Choice, Piece
from router.simfleet.wire.events import Object, dump, named


class Metrics(Protocol):
    """Who knows the times that Responses tell."""

    def metrics(self, answer: Answer, *, record: bool = True) -> Object | None:
        """What `metrics` holds, with or without the record of the speculation."""


class VllmMessages:
    """Anthropic's dialect."""

    def step(self, answer: Answer, choice: Choice, piece: Piece) -> list[bytes]:
        """See `Mouth`."""
        events = [] if answer.opened else self._opening(answer)
        answer.opened = True
        text = "".join(piece.texts)
        if text:
            delta = {"type": "text_delta", "text": text}
            item = {"type": "content_block_delta", "delta": delta, "index": 0}
            events.append(named("content_block_delta", item))
        if piece.finish:
            events += self._closing(answer, choice)
        return events

    def whole(self, answer: Answer) -> bytes:
        """See `Mouth`."""
        choice = answer.choices[0]
        made = self._message(answer)
        made["content"] = [{"type": "text", "text": choice.text}]
        made |= {"stop_reason": stop_reason(choice), "usage": self._usage(answer)}
        return dump(made)

    def _message(self, answer: Answer) -> Object:
        return {
            "id": answer.choices[0].response_id,
            "type": "message",
            "role": "assistant",
            "content": [],
            "model": answer.model,
            "stop_reason": None,
            "stop_sequence": None,
            "usage": {"input_tokens": answer.prompt_tokens, "output_tokens": 0},
        }

    def _usage(self, answer: Answer) -> Object:
        return {"input_tokens": answer.prompt_tokens, "output_tokens": answer.completion_tokens}

    def _opening(self, answer: Answer) -> list[bytes]:
        block = {"type": "text", "text": ""}
        start = {"type": "content_block_start", "content_block": block, "index": 0}
        message = {"type": "message_start", "message": self._message(answer)}
        return [named("message_start", message), named("content_block_start", start)]

    def _closing(self, answer: Answer, choice: Choice) -> list[bytes]:
        delta = {"stop_reason": stop_reason(choice), "stop_sequence": None}
        item = {"type": "message_delta", "delta": delta, "usage": self._usage(answer)}
        return [
            named("content_block_stop", {"type": "content_block_stop", "index": 0}),
            named("message_delta", item),
            named("message_stop", {"type": "message_stop"}),
        ]


def stop_reason(choice: Choice) -> str:
    """Anthropic's word for how it ended."""
    return "max_tokens" if choice.finish == "length" else "end_turn"


class VllmResponses:
    """OpenAI's newer dialect."""

    def __init__(self, times: Metrics) -> None:
        self._times = times

    def step(self, answer: Answer, choice: Choice, piece: Piece) -> list[bytes]:
        """See `Mouth`."""
        events: list[tuple[str, Object]] = [] if answer.opened else self._opening(answer)
        answer.opened = True
        text = "".join(piece.texts)
        if text:
            events.append(("response.output_text.delta", self._at(answer, delta=text)))
        if piece.finish:
            events += self._closing(answer, choice)
        start = choice.sequence
        choice.sequence += len(events)
        return [
            named(name, _sorted({**item, "sequence_number": start + at, "type": name}))
            for at, (name, item) in enumerate(events)
        ]

    def whole(self, answer: Answer) -> bytes:
        """See `Mouth`."""
        return dump(self._response(answer, ended=True))

    def _at(self, answer: Answer, **more: object) -> Object:
        place = {"content_index": 0, "item_id": answer.item_id, "output_index": 0}
        return place | {"logprobs": []} | more

    def _opening(self, answer: Answer) -> list[tuple[str, Object]]:
        response = self._response(answer, ended=False)
        item = self._item(answer, None)
        part = {"annotations": [], "text": "", "type": "output_text", "logprobs": []}
        added = self._at(answer, part=part)
        del added["logprobs"]
        return [
            ("response.created", {"response": response}),
            ("response.in_progress", {"response": response}),
            ("response.output_item.added", {"item": item, "output_index": 0}),
            ("response.content_part.added", added),
        ]

    def _closing(self, answer: Answer, choice: Choice) -> list[tuple[str, Object]]:
        part = self._part(choice)
        done = self._at(answer, part=part)
        del done["logprobs"]
        item = self._item(answer, choice)
        return [
            ("response.output_text.done", self._at(answer, text=choice.text)),
            ("response.content_part.done", done),
            ("response.output_item.done", {"item": item, "output_index": 0}),
            ("response.completed", {"response": self._response(answer, ended=True)}),
        ]

    def _part(self, choice: Choice) -> Object:
        return {"annotations": [], "text": choice.text, "type": "output_text", "logprobs": None}

    def _item(self, answer: Answer, choice: Choice | None) -> Object:
        return {
            "id": answer.item_id,
            "content": [self._part(choice)] if choice else [],
            "role": "assistant",
            "status": "completed" if choice else "in_progress",
            "type": "message",
            "phase": None,
        }

    def _response(self, answer: Answer, *, ended: bool) -> Object:
        asked, choice = answer.asked, answer.choices[0]
        cut = ended and choice.finish == "length"
        status = "incomplete" if cut else "completed" if ended else "in_progress"
        made: Object = {
            "id": choice.response_id,
            "created_at": answer.began,
            "incomplete_details": {"reason": "max_output_tokens"} if cut else None,
            "instructions": None,
            "metadata": None,
            "model": answer.model,
            "object": "response",
            "output": [self._item(answer, choice)] if ended else [],
            "parallel_tool_calls": True,
            "temperature": float(1.0 if asked.temperature is None else asked.temperature),
            "tool_choice": "none",
            "tools": [],
            "top_p": 1.0,
            "background": False,
            "max_output_tokens": asked.max_tokens,
            "max_tool_calls": None,
            "previous_response_id": None,
            "prompt": None,
            "reasoning": None,
            "service_tier": "auto",
            "status": status,
            "text": None,
            "top_logprobs": None,
            "truncation": "disabled",
            "usage": self._usage(answer) if ended else None,
            "user": None,
        }
        metrics = self._times.metrics(answer, record=False) if ended else None
        if metrics is not None:
            made["metrics"] = metrics
        return made | {
            "presence_penalty": 0.0,
            "frequency_penalty": 0.0,
            "kv_transfer_params": None,
            "ec_transfer_params": None,
            "input_messages": None,
            "output_messages": None,
        }

    def _usage(self, answer: Answer) -> Object:
        prompt, tokens = answer.prompt_tokens, answer.completion_tokens
        return {
            "input_tokens": prompt,
            "input_tokens_details": {
                "cached_tokens": 0,
                "cache_write_tokens": 0,
                "input_tokens_per_turn": [],
                "cached_tokens_per_turn": [],
            },
            "output_tokens": tokens,
            "output_tokens_details": {
                "reasoning_tokens": 0,
                "tool_output_tokens": 0,
                "output_tokens_per_turn": [],
                "tool_output_tokens_per_turn": [],
            },
            "total_tokens": prompt + tokens,
        }


def _sorted(item: Object) -> Object:
    """The members of an event come in the order of the alphabet."""
    return dict(sorted(item.items()))
