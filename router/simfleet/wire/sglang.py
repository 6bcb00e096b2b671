"""SGLang's answers in Chat and Completions, as recorded from 0.5.23, and the older names of keys.

One event for each step, the reason of the end in an event of its own. The record of the speculation
is told to who asks, since 0.5.19; its count of drafted tokens is nominal.
"""

from __future__ import annotations

from router.simfleet.answer import Answer, Choice, Door, Piece
from router.simfleet.settings import EngineSettings
from router.simfleet.wire.events import DONE, Object, dump, event

DETAILS_SINCE = (0, 5, 19)
META_SINCE = (0, 5, 15)
NEW_NAMES_SINCE = (0, 5, 12)
ONLY_NEW_NAMES_SINCE = (0, 5, 21)
_EOS = 2
_STOPPED = ("stop", "tool_calls")


class SglangMouth:
    """SGLang's way of telling an answer."""

    def __init__(self, settings: EngineSettings) -> None:
        self._settings = settings

    def step(self, answer: Answer, choice: Choice, piece: Piece) -> list[bytes]:
        """See `Mouth`."""
        if answer.asked.door is Door.GENERATE:
            return [event(self._native(answer, choice)), *([DONE] if answer.done else [])]
        chat = answer.asked.door is Door.CHAT
        deltas = self._chat(answer, choice, piece) if chat else self._completion(choice, piece)
        choices = [(choice, {**delta, "logprobs": None, "finish_reason": None}) for delta in deltas]
        if piece.finish and chat:
            answer.ended.append(choice)
            if answer.done:  # all reasons come together, after everything else
                end = {"delta": {"reasoning_content": None}, "logprobs": None}
                choices += [(item, {**end, "finish_reason": item.finish}) for item in answer.ended]
        elif piece.finish:
            choices[-1][1]["finish_reason"] = piece.finish
        events = []
        for item, told in choices:
            stopped = told["finish_reason"] in _STOPPED
            told["matched_stop"] = _EOS if stopped else None
            events.append(self._event(answer, choice, [{"index": item.index, **told}]))
        return events + self._end(answer, choice) if answer.done else events

    def whole(self, answer: Answer) -> bytes:
        """See `Mouth`."""
        if answer.asked.door is Door.GENERATE:
            return dump(self._native(answer, answer.choices[0]))
        made = self._head(answer, answer.choices[0])
        if answer.asked.door is Door.CHAT:
            made["object"] = "chat.completion"
        made["choices"] = [self._whole_choice(answer, choice) for choice in answer.choices]
        made["usage"] = self._usage(answer)
        versions = [{"version": "default", "start": 0, "end": answer.choices[0].tokens}]
        made["metadata"] = {"weight_version": "default", "weight_versions": versions}
        details = self._details(answer)
        return dump({**made, "sglext": details} if details else made)

    def _native(self, answer: Answer, choice: Choice) -> Object:
        """All of the answer so far; the record comes with its end."""
        meta = self._meta(answer, choice)
        return {"text": choice.text, "output_ids": choice.ids, "meta_info": meta}

    def _head(self, answer: Answer, choice: Choice) -> Object:
        chat = answer.asked.door is Door.CHAT
        return {
            "id": choice.response_id,
            "object": "chat.completion.chunk" if chat else "text_completion",
            "created": answer.began,
            "model": answer.model,
        }

    def _event(self, answer: Answer, choice: Choice, choices: list[Object]) -> bytes:
        made = {**self._head(answer, choice), "choices": choices}
        if answer.asked.continuous_usage:
            made["usage"] = self._usage(answer, choice.tokens)
        elif answer.asked.door is Door.COMPLETIONS:
            made["usage"] = None
        return event(made)

    def _chat(self, answer: Answer, choice: Choice, piece: Piece) -> list[Object]:
        deltas: list[Object] = []
        if not choice.opened:
            deltas.append({"role": "assistant", "content": ""})
        text = "".join(piece.texts)
        tool = answer.asked.tool
        if tool and not choice.opened:
            function = {"name": tool, "arguments": ""}
            call = {"id": choice.tool_id, "index": 0, "type": "function", "function": function}
            deltas.append({"tool_calls": [call]})
        if text and tool:
            call = {"index": 0, "function": {"arguments": text}}
            deltas.append({"tool_calls": [call]})
        elif text:
            deltas.append({"content": text})
        choice.opened = True
        return [{"delta": {"reasoning_content": None, **delta}} for delta in deltas]

    def _completion(self, choice: Choice, piece: Piece) -> list[Object]:
        del choice
        return [{"text": "".join(piece.texts)}]

    def _end(self, answer: Answer, choice: Choice) -> list[bytes]:
        events = []
        head = {**self._head(answer, choice), "choices": []}
        details = self._details(answer)
        if details:
            events.append(event({**head, "usage": None, "sglext": details}))
        if answer.asked.include_usage:
            usage = self._usage(answer)
            if answer.asked.door is Door.COMPLETIONS:
                usage = {key: value for key, value in usage.items() if value is not None}
            events.append(event({**head, "usage": usage}))
        return [*events, DONE]

    def _usage(self, answer: Answer, tokens: int | None = None) -> Object:
        made = answer.completion_tokens if tokens is None else tokens
        return {
            "prompt_tokens": answer.prompt_tokens,
            "total_tokens": answer.prompt_tokens + made,
            "completion_tokens": made,
            "prompt_tokens_details": None,
            "reasoning_tokens": 0,
            "completion_tokens_details": None,
        }

    def _whole_choice(self, answer: Answer, choice: Choice) -> Object:
        made: Object = {"index": choice.index}
        if answer.asked.door is Door.COMPLETIONS:
            made["text"] = choice.text
        else:
            made["message"] = self._message(answer, choice)
        stopped = choice.finish in _STOPPED
        made |= {"logprobs": None, "finish_reason": choice.finish}
        made["matched_stop"] = _EOS if stopped else None
        if answer.asked.meta_info and self._settings.release >= META_SINCE:
            made["meta_info"] = self._meta(answer, choice)
        return made

    def _message(self, answer: Answer, choice: Choice) -> Object:
        tool = answer.asked.tool
        message: Object = {"role": "assistant", "content": None if tool else choice.text}
        message["reasoning_content"] = None
        if tool:
            function = {"name": tool, "arguments": choice.text}
            call = {"id": choice.tool_id, "index": 0, "type": "function", "function": function}
            message["tool_calls"] = [call]
        return message

    def _details(self, answer: Answer) -> Object | None:
        """None where nobody asked, nothing speculates, or the engine is too old."""
        settings = self._settings
        if not answer.asked.spec_details or settings.release < DETAILS_SINCE:
            return None
        told = [self.figures(choice, capped=True) for choice in answer.choices]
        if not all(told):
            return None
        return {"spec_tokens_details": told[0] if len(told) == 1 else told}

    def figures(self, choice: Choice, *, capped: bool = False) -> Object:
        """The record of one choice, under the names of the version; empty without a step."""
        drafted = self._settings.num_speculative_tokens
        verified = len(choice.steps)
        if not self._settings.speculates or drafted is None or not verified:
            return {}
        correct, proposed = choice.accepted, verified * drafted
        histogram = [0] * (max((accepted for _, accepted in choice.steps), default=0) + 1)
        for _, accepted in choice.steps:
            histogram[accepted] += 1
        made: Object = {
            "spec_accept_rate": correct / proposed,
            "spec_accept_length": choice.tokens / verified,
        }
        if capped:
            made |= {"spec_cap_length": 0.0, "spec_block_accept_length": 0.0}
        release = self._settings.release
        if release >= NEW_NAMES_SINCE:
            made |= {"spec_num_correct_drafts": correct, "spec_num_proposed_drafts": proposed}
            made |= {"spec_verify_ct": verified, "spec_correct_drafts_histogram": histogram}
        if NEW_NAMES_SINCE <= release < ONLY_NEW_NAMES_SINCE:
            made |= {"spec_accepted_drafts": correct, "spec_proposed_drafts": proposed}
            made["spec_accept_histogram"] = histogram
        if release < NEW_NAMES_SINCE:
            made |= {"spec_accept_token_num": correct, "spec_draft_token_num": proposed}
            made["spec_verify_ct"] = verified
        if capped:
            made["spec_cap_lens_histogram"] = []
        return made

    def _meta(self, answer: Answer, choice: Choice) -> Object:
        timing, began = answer.timing, float(answer.began)
        stopped = choice.finish in _STOPPED
        length = {"type": "length", "length": choice.tokens} if choice.finish else None
        total_s = (timing.first_ms + timing.generation_ms) / 1000
        made = {
            "id": choice.response_id,
            "finish_reason": {"type": "stop", "matched": _EOS} if stopped else length,
            "prompt_tokens": answer.prompt_tokens,
            "weight_version": "default",
            "num_retractions": 0,
            "queue_time": timing.queue_ms / 1000,
            "reasoning_tokens": 0,
            "completion_tokens": choice.tokens,
            "cached_tokens": answer.cached_tokens,
            "cached_tokens_details": {"device": answer.cached_tokens, "host": 0},
            "dp_rank": None,
        }
        if not choice.finish:
            return made
        return made | {
            "e2e_latency": total_s,
            **self.figures(choice),
            "request_received_ts": began,
            "first_token_latency": timing.first_ms / 1000,
            "request_finished_ts": began + total_s,
            "decode_throughput": choice.tokens / total_s if total_s else 0.0,
        }
