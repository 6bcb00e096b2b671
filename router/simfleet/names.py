"""Ids that engines give, in the form that each gives them."""

from __future__ import annotations

import random

from router.simfleet.answer import Door
from router.simfleet.settings import Kind

_ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
_VLLM = {Door.COMPLETIONS: "cmpl-", Door.RESPONSES: "resp_"}


class Names:
    """Draws them by seed."""

    def __init__(self, kind: Kind, seed: int) -> None:
        self._kind = kind
        self._random = random.Random(seed)  # noqa: S311 - ids that nobody guesses at

    def answer(self, door: Door) -> str:
        """Of an answer."""
        match self._kind:
            case Kind.SGLANG:
                return self._hex(128)
            case Kind.LLAMACPP:
                return ("resp_" if door is Door.RESPONSES else "chatcmpl-") + self._letters()
            case Kind.VLLM:
                return _VLLM.get(door, "chatcmpl-") + self._hex(64)

    def item(self) -> str:
        """Of a message inside an answer."""
        return "msg_" + (self._hex(64) if self._kind is Kind.VLLM else self._letters())

    def tool(self) -> str:
        """Of a call of a tool."""
        match self._kind:
            case Kind.SGLANG:
                return "call_" + self._hex(96)
            case Kind.LLAMACPP:
                return self._letters()
            case Kind.VLLM:
                return "chatcmpl-tool-" + self._hex(64)

    def _hex(self, bits: int) -> str:
        return f"{self._random.getrandbits(bits):0{bits // 4}x}"

    def _letters(self) -> str:
        return "".join(self._random.choices(_ALPHABET, k=32))
