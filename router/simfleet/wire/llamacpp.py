"""llama.cpp's answers, as recorded from b10434 and b11434.

One event for each token, also where one step gave several: those come in one burst. The first two
events share an HTTP chunk, and so do the last two. Of several choices it counts one.
"""

from __future__ import annotations

from router.simfleet.answer import Answer, Choice, Door, Piece
from router.simfleet.settings import EngineSettings
from router.simfleet.wire.events import DONE, Object, dump, event, named
from router.simfleet.wire.vllm_newer import stop_reason


class LlamaMouth:
    """llama.cpp's way of telling an answer."""

    def __init__(self, settings: EngineSettings) -> None:
        self._settings = settings

    def step(self, answer: Answer, choice: Choice, piece: Piece) -> list[bytes]:
        """See `Mouth`."""
        door = answer.asked.door
        texts = [text for text in piece.texts if text]
        if answer.asked.tool:
            texts = [choice.text] if piece.finish else []  # a call comes in one piece
        events = [self._text(answer, choice, text, piece, at) for at, text in enumerate(texts, 1)]
        if not choice.opened and (events or piece.finish):
            choice.opened = True
            opening = self._opening(answer, choice)
            apart = answer.asked.grammar or not opening
            events = [opening, *events] if apart else [opening + b"".join(events[:1]), *events[1:]]
            events = [chunk for chunk in events if chunk]
        if not piece.finish:
            return events
        end = self._end(answer, choice)
        done = answer.done and door in (Door.CHAT, Door.COMPLETIONS)
        return [*events, end, *([DONE] if done else [])]

    def whole(self, answer: Answer) -> bytes:
        """See `Mouth`."""
        match answer.asked.door:
            case Door.CHAT:
                return dump(self._whole_chat(answer))
            case Door.COMPLETIONS:
                choices = [self._choice(choice, choice.text) for choice in answer.choices]
                return dump(self._completion(answer, choices))
            case Door.MESSAGES:
                made = self._message(answer)
                made["content"] = [{"type": "text", "text": answer.choices[0].text}]
                made["stop_reason"] = stop_reason(answer.choices[0])
                made["usage"] |= {"output_tokens": _counted(answer).tokens}
                return dump(made)
            case _:
                return dump(self._whole_response(answer))

    def _head(self, answer: Answer, choices: list[Object]) -> Object:
        return {
            "choices": choices,
            "created": answer.created(),
            "id": answer.choices[0].response_id,
            "model": answer.model,
            "system_fingerprint": self._settings.fingerprint,
            "object": "chat.completion.chunk",
        }

    def _opening(self, answer: Answer, choice: Choice) -> bytes:
        match answer.asked.door:
            case Door.CHAT:
                delta = {"role": "assistant", "content": None}
                item = {"finish_reason": None, "index": choice.index, "delta": delta}
                return event(self._head(answer, [item]))
            case Door.COMPLETIONS:
                return b""
            case Door.MESSAGES:
                start = {"type": "message_start", "message": self._message(answer)}
                block = {"type": "text", "text": ""}
                content = {"type": "content_block_start", "index": 0, "content_block": block}
                return named("message_start", start) + named("content_block_start", content)
            case _:
                return self._response_opening(answer)

    def _text(self, answer: Answer, choice: Choice, text: str, piece: Piece, at: int) -> bytes:
        match answer.asked.door:
            case Door.CHAT:
                delta: Object = {"content": text}
                if answer.asked.tool:
                    function = {"name": answer.asked.tool, "arguments": text}
                    call = {"index": 0, "id": choice.tool_id, "type": "function"}
                    delta = {"tool_calls": [call | {"function": function}]}
                item: Object = {"finish_reason": None, "index": choice.index, "delta": delta}
                made = self._head(answer, [item])
                if answer.asked.timings_per_token:
                    made["timings"] = self._timings(
                        answer, choice, choice.tokens - len(piece.texts) + at
                    )
                return event(made)
            case Door.COMPLETIONS:
                return event(
                    self._completion(answer, [self._choice(choice, text, None)], end=False)
                )
            case Door.MESSAGES:
                delta = {"type": "text_delta", "text": text}
                told = {"type": "content_block_delta", "index": 0, "delta": delta}
                return named("content_block_delta", told)
            case _:
                name = "response.output_text.delta"
                return named(name, {"type": name, "item_id": answer.item_id, "delta": text})

    def _end(self, answer: Answer, choice: Choice) -> bytes:
        match answer.asked.door:
            case Door.CHAT:
                return self._chat_end(answer, choice)
            case Door.COMPLETIONS:
                return event(self._completion(answer, [self._choice(choice, "")]))
            case Door.MESSAGES:
                delta = {"stop_reason": stop_reason(choice), "stop_sequence": None}
                usage = {"output_tokens": choice.tokens}
                item = {"type": "message_delta", "delta": delta, "usage": usage}
                return (
                    named("content_block_stop", {"type": "content_block_stop", "index": 0})
                    + named("message_delta", item)
                    + named("message_stop", {"type": "message_stop"})
                )
            case _:
                return self._response_end(answer, choice)

    def _chat_end(self, answer: Answer, choice: Choice) -> bytes:
        item: Object = {"finish_reason": choice.finish, "index": choice.index, "delta": {}}
        made = self._head(answer, [item])
        told = {"usage": self._usage(answer, choice), "timings": self._timings(answer, choice)}
        if not answer.asked.include_usage:
            return event(made | {"timings": told["timings"]})
        return event(made) + event(self._head(answer, []) | told)

    def _choice(self, choice: Choice, text: str, finish: str | None = "") -> Object:
        reason = choice.finish if finish == "" else finish
        made = {"text": text, "index": choice.index, "logprobs": None}
        return made | {"finish_reason": reason}

    def _completion(self, answer: Answer, choices: list[Object], *, end: bool = True) -> Object:
        made: Object = {
            "choices": choices,
            "created": answer.created(),
            "model": answer.model,
            "system_fingerprint": self._settings.fingerprint,
            "object": "text_completion",
        }
        if end:
            made["usage"] = self._usage(answer)
        made["id"] = answer.choices[0].response_id
        if end:
            made["timings"] = self._timings(answer, _counted(answer))
        return made

    def _usage(self, answer: Answer, choice: Choice | None = None) -> Object:
        tokens = (choice or _counted(answer)).tokens
        return {
            "completion_tokens": tokens,
            "prompt_tokens": answer.prompt_tokens,
            "total_tokens": answer.prompt_tokens + tokens,
            "prompt_tokens_details": {"cached_tokens": answer.cached_tokens},
        }

    def _timings(self, answer: Answer, choice: Choice, tokens: int | None = None) -> Object:
        """Of the answer so far; nothing about drafts when there were none."""
        n = choice.tokens if tokens is None else tokens
        prompt_n = answer.prompt_tokens - answer.cached_tokens
        prompt_ms = round(answer.timing.prompt_ms, 3)
        predicted_ms = round(answer.timing.generation_ms, 3) or 0.001
        made = {
            "cache_n": answer.cached_tokens,
            "prompt_n": prompt_n,
            "prompt_ms": prompt_ms,
            "prompt_per_token_ms": prompt_ms / prompt_n if prompt_n else 0.0,
            "prompt_per_second": 1e3 / prompt_ms * prompt_n if prompt_ms else 0.0,
            "predicted_n": n,
            "predicted_ms": predicted_ms,
            # The first token is made with the prompt.
            "predicted_per_token_ms": predicted_ms / (n - 1) if n > 1 else 0.0,
            "predicted_per_second": 1e3 / predicted_ms * (n - 1) if n > 1 else 0.0,
        }
        if choice.drafted:
            made |= {"draft_n": choice.drafted, "draft_n_accepted": choice.accepted}
        return made

    def _whole_chat(self, answer: Answer) -> Object:
        choices = [
            {
                "finish_reason": choice.finish,
                "index": choice.index,
                "message": self._whole_message(answer, choice),
            }
            for choice in answer.choices
        ]
        return {
            "choices": choices,
            "created": answer.created(),
            "model": answer.model,
            "system_fingerprint": self._settings.fingerprint,
            "object": "chat.completion",
            "usage": self._usage(answer),
            "id": answer.choices[0].response_id,
            "timings": self._timings(answer, _counted(answer)),
        }

    def _whole_message(self, answer: Answer, choice: Choice) -> Object:
        if not answer.asked.tool:
            return {"role": "assistant", "content": choice.text}
        function = {"name": answer.asked.tool, "arguments": choice.text}
        call = {"type": "function", "function": function, "id": choice.tool_id}
        return {"role": "assistant", "content": "", "tool_calls": [call]}

    def _message(self, answer: Answer) -> Object:
        usage = {
            "cache_read_input_tokens": answer.cached_tokens,
            "input_tokens": answer.prompt_tokens - answer.cached_tokens,
            "output_tokens": 0,
        }
        return {
            "id": answer.choices[0].response_id,
            "type": "message",
            "role": "assistant",
            "content": [],
            "model": answer.model,
            "stop_reason": None,
            "stop_sequence": None,
            "usage": usage,
        }

    def _response_opening(self, answer: Answer) -> bytes:
        response = {"id": answer.choices[0].response_id, "object": "response"}
        response["status"] = "in_progress"
        item = {"content": [], "id": answer.item_id, "role": "assistant"}
        item |= {"status": "in_progress", "type": "message"}
        part = {"type": "output_text", "text": ""}
        events: list[tuple[str, Object]] = [
            ("response.created", {"response": response}),
            ("response.in_progress", {"response": response}),
            ("response.output_item.added", {"item": item}),
            ("response.content_part.added", {"item_id": answer.item_id, "part": part}),
        ]
        return b"".join(named(name, {"type": name, **item}) for name, item in events)

    def _response_end(self, answer: Answer, choice: Choice) -> bytes:
        text, item_id = choice.text, answer.item_id
        part = {"type": "output_text", "annotations": [], "logprobs": [], "text": text}
        item = {"type": "message", "status": "completed", "id": item_id, "content": [part]}
        item["role"] = "assistant"
        response = {
            "id": choice.response_id,
            "object": "response",
            "created_at": answer.created(),
            "status": "completed",
            "model": answer.model,
            "output": [item],
            "usage": self._response_usage(answer),
        }
        events: list[tuple[str, Object]] = [
            ("response.output_text.done", {"item_id": item_id, "text": text}),
            ("response.content_part.done", {"item_id": item_id, "part": part}),
            ("response.output_item.done", {"item": item}),
            (
                "response.completed",
                {"response": response, "timings": self._timings(answer, choice)},
            ),
        ]
        return b"".join(named(name, {"type": name, **item}) for name, item in events)

    def _response_usage(self, answer: Answer) -> Object:
        tokens = _counted(answer).tokens
        return {
            "input_tokens": answer.prompt_tokens,
            "output_tokens": tokens,
            "total_tokens": answer.prompt_tokens + tokens,
            "input_tokens_details": {"cached_tokens": answer.cached_tokens},
        }

    def _whole_response(self, answer: Answer) -> Object:
        part = {"type": "output_text", "annotations": [], "logprobs": []}
        part["text"] = answer.choices[0].text
        item = {"content": [part], "id": answer.item_id, "role": "assistant"}
        item |= {"status": "completed", "type": "message"}
        now = answer.created()
        return {
            "completed_at": now,
            "created_at": now,
            "id": answer.choices[0].response_id,
            "model": answer.model,
            "object": "response",
            "output": [item],
            "status": "completed",
            "usage": self._response_usage(answer),
        }


def _counted(answer: Answer) -> Choice:
    """The one choice that usage and timings are of."""
    return answer.choices[0]
