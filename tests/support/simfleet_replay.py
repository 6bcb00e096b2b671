"""A recorded exchange through a simulated engine: its ids, texts and times, our bytes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from router.simfleet.answer import Answer, Asked, Choice, Door, Piece, Timing
from router.simfleet.asking import asked_of
from router.simfleet.settings import EngineSettings, Kind, Record
from router.simfleet.wire.events import Mouth
from router.simfleet.wire.llamacpp import LlamaMouth
from router.simfleet.wire.sglang import SglangMouth
from router.simfleet.wire.vllm import VllmMouth
from tests.support.recordings import Recording

Object = dict[str, Any]

MOUTHS: dict[Kind, type[VllmMouth | SglangMouth | LlamaMouth]] = {
    Kind.VLLM: VllmMouth,
    Kind.SGLANG: SglangMouth,
    Kind.LLAMACPP: LlamaMouth,
}


def kind_of(recording: Recording) -> Kind:
    """By the name of the folder."""
    return Kind(recording.path.parts[-3].partition("-")[0])


def framed(chunks: list[bytes]) -> bytes:
    """HTTP/1.1's chunks, the last one included."""
    return b"".join(b"%x\r\n%b\r\n" % (len(chunk), chunk) for chunk in chunks) + b"0\r\n\r\n"


@dataclass
class Replay:
    """What a recording gives to a simulated engine."""

    recording: Recording

    def __post_init__(self) -> None:
        self.kind = kind_of(self.recording)
        self.objects = [item for item in self.recording.objects if item]
        self.asked = self._asked()
        self.settings = self._settings()
        self.mouth: Mouth = MOUTHS[self.kind](self.settings)

    def rendered(self) -> bytes:
        """The body as the simulated engine writes it, framing included."""
        answer = self._answer()
        if self.recording.streamed:
            return framed(self._stream(answer))
        for index, item in enumerate(self._choices()):
            self._fill(answer.choices[index], item)
        self._steps(answer)
        return self.mouth.whole(answer)

    def _asked(self) -> Asked:
        body = self.recording._request["body"]
        asked = asked_of(Door(self.recording._request["path"]), body, self.kind)
        # Whether a call comes is up to the model: a real one may write text instead.
        calls = self._first("tool_calls")
        named = [item for item in self._calls() if "id" in item]
        return replace(asked, tool=named[0]["function"]["name"] if calls and named else None)

    def _calls(self) -> list[Object]:
        bodies = [item.get("delta") or item.get("message") or {} for item in self._choices()]
        return [call for body in bodies for call in body.get("tool_calls") or []]

    def _settings(self) -> EngineSettings:
        k = self._first("num_spec_tokens")
        if self.kind is Kind.SGLANG and self._first("spec_verify_ct"):
            k = self._first("spec_num_proposed_drafts") // self._first("spec_verify_ct")
        detailed = self._first("per_step_accepted") is not None
        recorded = self._first("speculative_decoding") is not None
        version = self.recording.path.parts[-3].partition("-")[2]
        return EngineSettings(
            kind=self.kind,
            model="smollm2-135m-instruct",
            version=version,
            method="some" if k else "none",
            num_speculative_tokens=k,
            record=Record.DETAILED if detailed else Record.SUMMARY if recorded else Record.NONE,
            timing=self._first("time_to_first_token_ms") is not None,
            fingerprint=self._first("system_fingerprint") or "",
        )

    def _first(self, name: str, items: list[Any] | None = None) -> Any:
        """The last value under a name, however deep, that is not null."""
        found = None
        stack: list[Any] = list(self.objects if items is None else items)
        while stack:
            item = stack.pop(0)
            if isinstance(item, dict):
                value = item.get(name)
                found = value if value is not None else found
                stack.extend(item.values())
            elif isinstance(item, list):
                stack.extend(item)
        return found

    def _answer(self) -> Answer:
        usage = self._first("usage") or {}
        timings = self._first("timings") or {}
        prompt = usage.get("prompt_tokens", usage.get("input_tokens"))
        cached = timings.get("cache_n", 0)
        start = next((i["message"]["usage"] for i in self.objects if "message" in i), usage)
        if "cache_read_input_tokens" in start:
            cached = start["cache_read_input_tokens"]
            prompt = start["input_tokens"] + cached
        elif isinstance(usage.get("input_tokens_details"), dict):
            cached = usage["input_tokens_details"]["cached_tokens"]
        if prompt is None:
            prompt = timings.get("prompt_n", 0) + cached
        count = len({item["index"] for item in self._choices()}) or 1
        ids: dict[int, str] = {}
        for o in self.objects:
            for item in o.get("choices", []):
                ids.setdefault(item["index"], o["id"])
        one = self._first("response") or self._first("message") or {}
        base = one.get("id") or self._first("id", [o for o in self.objects if "id" in o])
        if self.objects and "choices" in self.objects[0]:
            base = self.objects[0]["id"]
        return Answer(
            asked=replace(self.asked, n=count),
            created=self._created().__next__,
            prompt_tokens=prompt,
            choices=[
                Choice(index, ids.get(index, base), self._tool_id()) for index in range(count)
            ],
            began=self._first("created") or self._first("created_at") or 0,
            model=self._first("model"),
            cached_tokens=cached,
            prompt_ids=self._first("prompt_token_ids"),
            item_id=self._item_id(),
            timing=Timing(
                queue_ms=self._first("queue_time_ms") or 0.0,
                first_ms=self._first("time_to_first_token_ms") or 0.0,
                prompt_ms=timings.get("prompt_ms", 0.0),
                generation_ms=self._first("generation_time_ms") or timings.get("predicted_ms", 0),
            ),
        )

    def _item_id(self) -> str:
        found = re.search(rb'"(msg_[^"]+)"', self.recording.body)
        return found.group(1).decode() if found else ""

    def _tool_id(self) -> str:
        return next((str(call["id"]) for call in self._calls() if "id" in call), "")

    def _created(self) -> Iterator[int]:
        for item in self.objects:
            if "created" in item:
                yield item["created"]
            elif "response" in item and "created_at" in item["response"]:
                yield item["response"]["created_at"]
            elif "created_at" in item:
                yield item["created_at"]

    def _choices(self) -> list[Object]:
        return [item for o in self.objects for item in o.get("choices", [])] or [{"index": 0}]

    def _fill(self, choice: Choice, item: Object) -> None:
        """All of a choice that came whole."""
        body = self.objects[0]
        message = item.get("message") or {}
        text = item.get("text", message.get("content"))
        if message.get("tool_calls"):
            text = message["tool_calls"][0]["function"]["arguments"]
        if text is None:
            [part] = body["content"] if "content" in body else body["output"][0]["content"]
            text = part["text"]
        tokens = self._shares()[choice.index]
        ids = item.get("token_ids") or [0] * tokens
        finish = item.get("finish_reason") or "stop"
        choice.add(Piece((text, *[""] * (len(ids) - 1)), tuple(ids), finish=finish))

    def _shares(self) -> list[int]:
        """Tokens of each choice of an answer that came whole."""
        count, total = len(self._choices()), self._tokens()
        if self.kind is Kind.LLAMACPP or count == 1:
            return [total] + [1] * (count - 1)
        versions = self._first("weight_versions")
        one = versions[0]["end"] if versions else total // count
        return [one, total - one]

    def _tokens(self) -> int:
        usage: Object = {}
        for item in self.objects:
            usage |= item.get("usage") or item.get("message", {}).get("usage") or {}
            usage |= item.get("response", {}).get("usage") or {}
        timings = self._first("timings") or {}
        told = usage.get("completion_tokens", usage.get("output_tokens"))
        details = self._first("spec_tokens_details")
        if told is None and details:  # nobody asked for usage
            told = round(details["spec_accept_length"] * details["spec_verify_ct"])
        return int(told if told is not None else timings.get("predicted_n", 0))

    def _steps(self, answer: Answer) -> None:
        """Gives the choices the steps that the record tells."""
        details = self._first("spec_tokens_details")
        told = self._first("speculative_decoding")
        for choice in answer.choices:
            if told:
                accepted = told.get("per_step_accepted") or [
                    j for j, n in enumerate(told["acceptance_histogram"]) for _ in range(n)
                ]
                drafted = told.get("per_step_drafted") or _spread(
                    told["num_draft_tokens"], len(accepted)
                )
                choice.steps = list(zip(drafted, accepted, strict=True))
            elif details:
                one = details[choice.index] if isinstance(details, list) else details
                histogram = one["spec_correct_drafts_histogram"]
                steps = [(0, j) for j, n in enumerate(histogram) for _ in range(n)]
                choice.steps = steps
                if isinstance(details, list):  # usage tells only the sum
                    choice.ids = [0] * round(one["spec_accept_length"] * one["spec_verify_ct"])
            elif self.kind is Kind.LLAMACPP and choice.index == 0:
                choice.steps = _drafts(self._first("timings") or {})

    def _stream(self, answer: Answer) -> list[bytes]:
        pieces = list(self._pieces())
        total, sent = self._tokens(), 0
        chunks: list[bytes] = []
        for at, (index, given, item) in enumerate(pieces):
            choice, piece = answer.choices[index], given
            last = at == len(pieces) - 1
            if self.kind is Kind.LLAMACPP and piece.finish and len(answer.choices) > 1:
                chunks += self._one_of_several(answer, choice, piece)
                continue
            if last and total > sent + len(piece.ids):
                more = total - sent - len(piece.ids)
                piece = replace(
                    piece, texts=(*piece.texts, *[""] * more), ids=(*piece.ids, *[0] * more)
                )
            sent += len(piece.ids)
            choice.add(piece)
            if last:
                self._steps(answer)
            if self.asked.timings_per_token and "timings" in item:
                answer.timing.generation_ms = item["timings"]["predicted_ms"]
                choice.steps = _drafts(item["timings"])
            chunks += self.mouth.step(answer, choice, piece)
        return chunks

    def _one_of_several(self, answer: Answer, choice: Choice, piece: Piece) -> list[bytes]:
        """llama.cpp tells usage and timings for each choice when it ends."""
        told = [item for item in self.objects if "timings" in item]
        item = told[sum(1 for other in answer.choices if other.finish)]
        more = item["usage"]["completion_tokens"] - choice.tokens
        choice.add(replace(piece, texts=("",) * more, ids=(0,) * more))
        choice.steps = _drafts(item["timings"])
        answer.cached_tokens = item["timings"]["cache_n"]
        answer.timing.prompt_ms = item["timings"]["prompt_ms"]
        answer.timing.generation_ms = item["timings"]["predicted_ms"]
        return self.mouth.step(answer, choice, piece)

    def _pieces(self) -> Iterator[tuple[int, Piece, Object]]:
        """The steps of the engine, as far as its events tell them."""
        seen: dict[int, int] = {}
        for item in self.objects:
            for index, text, ids, finish in _texts(item):
                bare = not text and not ids and finish is not None
                tokens = len(ids) if ids else self._count(item, seen.get(index, 0))
                tokens = 0 if bare and not self.asked.continuous_usage else tokens
                seen[index] = seen.get(index, 0) + tokens
                texts = (text, *[""] * (tokens - 1))
                yield index, Piece(texts, tuple(ids or [0] * tokens), finish=finish), item

    def _count(self, item: Object, before: int) -> int:
        usage = item.get("usage") if self.asked.continuous_usage else None
        return usage["completion_tokens"] - before if usage else 1


def _drafts(timings: Object) -> list[tuple[int, int]]:
    """All that was drafted, as if in one step."""
    drafted = timings.get("draft_n", 0)
    return [(drafted, timings["draft_n_accepted"])] if drafted else []


def _spread(total: int, count: int) -> list[int]:
    """A sum in as many parts."""
    return (
        [total // count + (1 if at < total % count else 0) for at in range(count)] if count else []
    )


def _texts(item: Object) -> Iterator[tuple[int, str, list[int] | None, str | None]]:
    kind = item.get("type")
    if kind == "content_block_delta":
        yield 0, item["delta"]["text"], None, None
    elif kind == "response.output_text.delta":
        yield 0, item["delta"], None, None
    elif kind == "message_delta":
        reason = {"end_turn": "stop", "max_tokens": "length"}[item["delta"]["stop_reason"]]
        yield 0, "", None, reason
    elif kind == "response.completed":
        yield 0, "", None, "stop"
    for choice in item.get("choices", []):
        delta = choice.get("delta", {})
        if delta.get("role"):
            continue
        text = choice.get("text", delta.get("content")) or ""
        calls = delta.get("tool_calls") or []
        if calls:
            text = "".join(call["function"].get("arguments", "") for call in calls)
        yield choice["index"], text, choice.get("token_ids"), choice["finish_reason"]
