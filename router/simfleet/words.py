"""What simulated engines write: words of a class or a language, drawn by seed. Never the prompt."""

from __future__ import annotations

import hashlib

from policies.types import ClassId

_PROSE = (
    "the river was wide and slow before it met morning sea light over stones where boats went "
    "home with salt wind rope lamp bread quiet water under old bridge then rain came again"
)
_CODE = (
    "def return for item in rows if value is None else result = [] append(key) import class self "
    "with open(path) as handle: while not done total += count raise try except yield lambda"
)
_DATA = (
    '"id" : "name" , "total" 12 "status" "open" "items" [ ] { } true false null "date" "amount" '
    '3.5 "city" "unit" "list" "next" "page" 40 "code"'
)
_REASON = (
    "so let x be given then we have two cases first suppose that holds thus sum equals product "
    "because each term divides hence step follows therefore answer is not zero check again"
)
_LANGUAGES = {
    "de": "der Fluss war breit und still bevor er am Morgen das Meer traf wo Boote mit Brot kamen",
    "fr": "la rivière était large et lente avant que le matin ne touche la mer où vont les bateaux",
    "es": "el río era ancho y lento antes de que la mañana llegara al mar donde van los barcos",
    "zh": "河 水 很 宽 也 很 慢 早上 到 海 边 船 回 家 灯 光 旧 桥 下 雨 又 来",
    "ja": "川 は 広く て ゆっくり 朝 に 海 へ 船 が 帰る 家 の 灯 古い 橋 の 下 雨",
}
_BY_CLASS = {
    "code": _CODE,
    "code_edit": _CODE,
    "structured": _DATA,
    "tool_call": _DATA,
    "reasoning": _REASON,
    "math": _REASON,
}

_FIRST_ID = 1000
EOS_ID = 2


class Words:
    """Vocabularies, and what stands at each place of an answer."""

    def __init__(self) -> None:
        named = {**_BY_CLASS, **{f"@{key}": text for key, text in _LANGUAGES.items()}}
        self._lists = {name: tuple(text.split()) for name, text in named.items()}
        self._prose = tuple(_PROSE.split())

    def piece(self, class_id: ClassId, language: str, seed: int, place: int) -> tuple[str, int]:
        """The token at a place of an answer, and its id.

        Example:
            >>> Words().piece(ClassId("code"), "", 1, 0) == Words().piece(ClassId("code"), "", 1, 0)
            True
        """
        words = self._lists.get(f"@{language}") if language else None
        words = words or self._lists.get(class_id, self._prose)
        # Knuth's multiplicative hash: cheap, and neighbours differ.
        drawn = ((seed * 7919 + place + 1) * 2_654_435_761 & 0xFFFF_FFFF) >> 16
        word = words[drawn % len(words)]
        return (word if place == 0 else f" {word}"), _FIRST_ID + drawn % len(words)


def arguments(words: Words, name: str, seed: int, count: int) -> list[str]:
    """The tokens of a call's arguments: an object with one text, ended by an empty token.

    Example:
        >>> "".join(arguments(Words(), "city", 1, 5))[:10]
        '{"city": "'
    """
    inner = [words.piece(ClassId(""), "", seed, at)[0] for at in range(max(count - 4, 0))]
    pieces = ["{", f'"{name}": "', *inner, '"}', ""]
    if count < len(pieces):
        pieces = [*pieces[: max(count - 1, 0)], ""][:count]
    return pieces


def digest(text: bytes) -> str:
    """Stands for a text where only its being the same matters."""
    return hashlib.blake2b(text, digest_size=8).hexdigest()
