"""vLLM's answers in Chat and Completions, as recorded from 0.32.

One event for each step. The record of the speculation stands in `metrics`, in streams in the usage
event only. For more than one choice there is none.
"""

from __future__ import annotations

from router.simfleet.answer import Answer, Choice, Door, Piece
from router.simfleet.settings import EngineSettings, Record
from router.simfleet.wire.events import DONE, Object, dump, event
from router.simfleet.wire.vllm_newer import VllmMessages, VllmResponses

METRICS_SINCE = (0, 26)
RECORD_SINCE = (0, 29)


class VllmMouth:
    """vLLM's way of telling an answer, whichever dialect it was asked in."""

    def __init__(self, settings: EngineSettings) -> None:
        self._settings = settings
        self._messages = VllmMessages()
        self._responses = VllmResponses(self)

    def step(self, answer: Answer, choice: Choice, piece: Piece) -> list[bytes]:
        """See `Mouth`."""
        door = answer.asked.door
        if door is Door.MESSAGES:
            return self._messages.step(answer, choice, piece)
        if door is Door.RESPONSES:
            return self._responses.step(answer, choice, piece)
        events = self._openai(door, answer, choice, piece)
        answer.opened = True
        return events + self._end(answer) if answer.done else events

    def _openai(self, door: Door, answer: Answer, choice: Choice, piece: Piece) -> list[bytes]:
        if door is Door.COMPLETIONS:
            return [self._completion(answer, choice, piece)]
        roles = [] if answer.opened else self._roles(answer)
        return [*roles, self._deltas(answer, choice, piece)]

    def whole(self, answer: Answer) -> bytes:
        """See `Mouth`."""
        match answer.asked.door:
            case Door.MESSAGES:
                return self._messages.whole(answer)
            case Door.RESPONSES:
                return self._responses.whole(answer)
            case Door.COMPLETIONS:
                return dump(self._whole_completion(answer))
            case _:
                return dump(self._whole_chat(answer))

    def _head(self, answer: Answer) -> Object:
        chat = answer.asked.door is Door.CHAT
        return {
            "id": answer.choices[0].response_id,
            "object": "chat.completion.chunk" if chat else "text_completion",
            "created": answer.began,
            "model": answer.model,
        }

    def _running(self, answer: Answer, choice: Choice | None) -> Object:
        """Usage in every event, where it was asked for."""
        if not answer.asked.continuous_usage:
            return {}
        tokens = choice.tokens if choice else 0
        return {
            "usage": {
                "prompt_tokens": answer.prompt_tokens,
                "total_tokens": answer.prompt_tokens + tokens,
                "completion_tokens": tokens,
                "completion_tokens_details": None,
            }
        }

    def _roles(self, answer: Answer) -> list[bytes]:
        """Every choice is opened with the first token of any."""
        ids = answer.prompt_ids if answer.asked.token_ids else None
        return [
            event(
                {
                    **self._head(answer),
                    "choices": [
                        {
                            "index": choice.index,
                            "delta": {"role": "assistant", "content": ""},
                            "logprobs": None,
                            "finish_reason": None,
                        }
                    ],
                    **self._running(answer, None),
                    "prompt_token_ids": ids,
                    "prompt_text": None,
                }
            )
            for choice in answer.choices
        ]

    def _deltas(self, answer: Answer, choice: Choice, piece: Piece) -> bytes:
        """A call of a tool is opened with its name; without text the end is an empty event."""
        text = "".join(piece.texts)
        tool = answer.asked.tool
        delta: Object = {"content": text}
        if tool:
            calls: list[Object] = []
            if not choice.opened:
                call = {"id": choice.tool_id, "type": "function", "index": 0}
                calls.append(call | {"function": {"name": tool}})
            if text:
                calls.append({"index": 0, "function": {"arguments": text}})
            delta = {"content": None, "tool_calls": calls} if calls else {}
        elif not text and piece.finish and answer.asked.offers_tools:
            delta = {}
        choice.opened = True
        return self._delta(answer, choice, delta, piece)

    def _delta(self, answer: Answer, choice: Choice, delta: Object, piece: Piece) -> bytes:
        item: Object = {"index": choice.index, "delta": delta, "logprobs": None}
        item["finish_reason"] = piece.finish
        if piece.finish:
            item["stop_reason"] = None
        item["token_ids"] = list(piece.ids) if answer.asked.token_ids else None
        made = {**self._head(answer), "choices": [item], **self._running(answer, choice)}
        return event(self._closed(answer, made, piece.finish))

    def _completion(self, answer: Answer, choice: Choice, piece: Piece) -> bytes:
        ids = answer.asked.token_ids
        first = choice.tokens == len(piece.ids)
        item = {
            "index": choice.index,
            "text": "".join(piece.texts),
            "logprobs": None,
            "finish_reason": piece.finish,
            "stop_reason": None,
            "prompt_token_ids": answer.prompt_ids if ids and first else None,
            "token_ids": list(piece.ids) if ids else None,
        }
        made = {**self._head(answer), "choices": [item], **self._running(answer, choice)}
        return event(self._closed(answer, made, piece.finish))

    def _closed(self, answer: Answer, made: Object, finish: str | None) -> Object:
        """Without a usage event the fingerprint is told with the reason of the end."""
        if finish and not answer.asked.include_usage:
            made["system_fingerprint"] = self._settings.fingerprint
        return made

    def _end(self, answer: Answer) -> list[bytes]:
        if not answer.asked.include_usage:
            return [DONE]
        made = {
            **self._head(answer),
            "choices": [],
            "usage": self._usage(answer),
            "system_fingerprint": self._settings.fingerprint,
        }
        metrics = self.metrics(answer)
        if metrics is not None:
            made["metrics"] = _without_none(metrics)
        return [event(made), DONE]

    def _usage(self, answer: Answer) -> Object:
        return {
            "prompt_tokens": answer.prompt_tokens,
            "total_tokens": answer.prompt_tokens + answer.completion_tokens,
            "completion_tokens": answer.completion_tokens,
        }

    def _whole_chat(self, answer: Answer) -> Object:
        made = self._head(answer) | {"object": "chat.completion"}
        made["choices"] = [
            {
                "index": choice.index,
                "message": self._message(answer, choice),
                "logprobs": None,
                "finish_reason": choice.finish,
                "stop_reason": None,
                "token_ids": choice.ids if answer.asked.token_ids else None,
                "routed_experts": None,
            }
            for choice in answer.choices
        ]
        return made | self._tail(answer, {"prompt_logprobs": None, **self._prompt(answer)})

    def _prompt(self, answer: Answer) -> Object:
        ids = answer.prompt_ids if answer.asked.token_ids else None
        return {"prompt_token_ids": ids, "prompt_text": None}

    def _message(self, answer: Answer, choice: Choice) -> Object:
        message: Object = {
            "role": "assistant",
            "content": "" if answer.asked.tool else choice.text,
            "refusal": None,
            "annotations": None,
            "audio": None,
            "function_call": None,
        }
        if answer.asked.tool:
            function = {"name": answer.asked.tool, "arguments": choice.text}
            call = {"id": choice.tool_id, "type": "function", "function": function}
            message["tool_calls"] = [call]
        return message | {"reasoning": None}

    def _whole_completion(self, answer: Answer) -> Object:
        ids = answer.asked.token_ids
        made = self._head(answer)
        made["choices"] = [
            {
                "index": choice.index,
                "text": choice.text,
                "logprobs": None,
                "finish_reason": choice.finish,
                "stop_reason": None,
                "token_ids": choice.ids if ids else None,
                "prompt_logprobs": None,
                "prompt_token_ids": answer.prompt_ids if ids else None,
                "routed_experts": None,
            }
            for choice in answer.choices
        ]
        return made | self._tail(answer, {})

    def _tail(self, answer: Answer, prompt: Object) -> Object:
        details = {"prompt_tokens_details": None, "completion_tokens_details": None}
        made = {
            "service_tier": None,
            "system_fingerprint": self._settings.fingerprint,
            "usage": self._usage(answer) | details,
            **prompt,
            "kv_transfer_params": None,
            "ec_transfer_params": None,
        }
        if self._settings.release >= METRICS_SINCE:
            made["metrics"] = self.metrics(answer)
        return made

    def metrics(self, answer: Answer, *, record: bool = True) -> Object | None:
        """What `metrics` holds; None for more than one choice, or where no flag asked for it."""
        settings = self._settings
        recorded = (
            settings.record is not Record.NONE
            and settings.speculates
            and settings.release >= RECORD_SINCE
        )
        timed = settings.timing and settings.release >= METRICS_SINCE
        if len(answer.choices) > 1 or not (recorded or timed):
            return None
        made = _times(answer) if timed else dict.fromkeys(_TIMES)
        made["speculative_decoding"] = (
            self._record(answer.choices[0]) if recorded and record else None
        )
        return made

    def _record(self, choice: Choice) -> Object:
        drafts = [(drafted, accepted) for drafted, accepted in choice.all_steps if drafted]
        drafted, accepted = choice.drafted, choice.accepted
        k = self._settings.num_speculative_tokens or 0
        detailed = self._settings.record is Record.DETAILED and drafts
        return {
            "mean_acceptance_length": 1 + accepted / len(drafts) if drafts else 1.0,
            "draft_acceptance_rate": accepted / drafted if drafted else 0.0,
            "acceptance_histogram": choice.histogram(k + 1),
            "num_spec_steps": len(drafts),
            "num_accepted_draft_tokens": accepted,
            "num_draft_tokens": drafted,
            "num_spec_tokens": k,
            "per_step_accepted": [item[1] for item in drafts] if detailed else None,
            "per_step_drafted": [item[0] for item in drafts] if detailed else None,
        }


_TIMES = (
    "time_to_first_token_ms",
    "generation_time_ms",
    "queue_time_ms",
    "mean_itl_ms",
    "tokens_per_second",
)


def _times(answer: Answer) -> Object:
    timing, tokens = answer.timing, answer.completion_tokens
    total_ms = timing.first_ms + timing.generation_ms
    # Divided and multiplied in vLLM's order, so that the last digit is the same.
    mean = timing.generation_ms / 1000 / (tokens - 1) * 1000 if tokens > 1 else None
    speed = tokens / total_ms * 1e3 if total_ms else None
    told = (timing.first_ms, timing.generation_ms, timing.queue_ms, mean, speed)
    return dict(zip(_TIMES, told, strict=True))


def _without_none(item: Object) -> Object:
    """Streams leave out what is null."""
    return {
        key: _without_none(value) if isinstance(value, dict) else value
        for key, value in item.items()
        if value is not None
    }
