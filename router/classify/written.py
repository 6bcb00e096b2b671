"""Composes labelled requests from phrasings written for training; draws nothing from elsewhere."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from importlib import resources
from typing import Any, Final

import yaml

from policies.types import ClassId
from router.classify.base import CHAT, CODE_EDIT, MATH, RAG_QA, STRUCTURED

SEED: Final = 20261129
ROUNDS: Final = 3
"""Times each phrasing is set, each with another neighbour."""

Body = dict[str, Any]
Written = tuple[ClassId, Body]


def compose(seed: int = SEED) -> list[Written]:
    """Set every phrasing in a few ways; the same seed gives the same requests."""
    source = resources.files("router.classify").joinpath("phrasings.yaml")
    return list(_Composer(yaml.safe_load(source.read_text(encoding="utf-8")), seed).compose())


class _Composer:
    def __init__(self, words: Any, seed: int) -> None:
        self._words = words
        self._random = random.Random(seed)  # noqa: S311 - reproducible, not secret

    def compose(self) -> Iterator[Written]:
        for _ in range(ROUNDS):
            yield from self._alone()
            yield from self._beside()
            yield from self._beside_code()
            yield from self._after()
            yield from self._called()
            yield from self._agents()

    def _pick(self, values: Sequence[Any]) -> Any:
        return self._random.choice(values)

    def _phrases(self, section: str) -> Iterator[tuple[ClassId, str, str]]:
        for name, languages in self._words[section].items():
            for language, phrases in languages.items():
                for phrase in phrases:
                    yield ClassId(name), language, phrase

    def _fill(self, phrase: str, language: str) -> str:
        return str(phrase.replace("{x}", self._pick(self._words["topics"][language])))

    def _passage(self, language: str) -> str:
        if self._random.random() < 0.15:  # noqa: PLR2004 - some requests mix languages
            language = self._pick(list(self._words["passages"]))
        passages = self._words["passages"][language]
        return "\n\n".join(self._pick(passages) for _ in range(self._pick((1, 1, 1, 2, 4))))

    def _alone(self) -> Iterator[Written]:
        for class_id, language, phrase in self._phrases("alone"):
            yield class_id, _said(self._fill(phrase, language))

    def _beside(self) -> Iterator[Written]:
        for class_id, language, phrase in self._phrases("beside"):
            asked = phrase.replace("{q}", self._pick(self._words["questions"][language]))
            passage = self._passage(language)
            if class_id == RAG_QA and self._random.random() < 0.25:  # noqa: PLR2004
                yield class_id, _said(asked, f"Documents:\n{passage}\n{passage}")
            else:
                yield class_id, self._set(asked, passage)

    def _beside_code(self) -> Iterator[Written]:
        for class_id, _, phrase in self._phrases("beside_code"):
            code = self._pick(self._words["sources"])
            if self._random.random() < 0.6:  # noqa: PLR2004 - most people fence code
                code = f"```\n{code}```"
            yield class_id, self._set(phrase, code)

    def _set(self, asked: str, material: str) -> Body:
        """Put an instruction before, after or around what it is about."""
        style = self._random.randrange(8)
        if style <= 1:
            return _said(f"{asked}:\n\n{material}")
        if style <= 3:  # noqa: PLR2004
            return _said(f"{material}\n\n{asked}")
        return (
            _said(f"{asked}: {material}"),
            _said(material, asked),
            _said(f'{asked}\n"""\n{material}\n"""'),
            _said(f"### Instruction:\n{asked}\n\n### Input:\n{material}\n\n### Response:"),
        )[style - 4]

    def _after(self) -> Iterator[Written]:
        for class_id, language, phrase in self._phrases("after"):
            passages = self._words["passages"]
            asked = self._fill(self._pick(self._words["alone"]["chat"][language]), language)
            if class_id == MATH:
                asked = self._pick(self._words["alone"]["math"][language])
                answer = "The total is 24, since 3 times 8 is 24."
            elif class_id == CODE_EDIT:
                answer = f"```\n{self._pick(self._words['sources'])}```"
            else:
                answer = self._pick(passages[language])
            yield class_id, _said(asked, answer=answer, then=phrase)

    def _called(self) -> Iterator[Written]:
        for language, phrases in self._words["called"].items():
            for phrase in phrases:
                yield STRUCTURED, _said(phrase) | self._tools("tools")
            chat = self._pick(self._words["alone"]["chat"][language])
            yield CHAT, _said(self._fill(chat, language)) | self._tools("tools")

    def _tools(self, section: str) -> Body:
        names = [name for group in self._words[section] for name in group]
        chosen = self._pick(self._words[section]) if self._random.random() < 0.5 else names  # noqa: PLR2004
        return {"tools": [{"type": "function", "function": {"name": name}} for name in chosen]}

    def _agents(self) -> Iterator[Written]:
        for task in self._words["tasks"]:
            body = _said(task, "You are a coding agent. Work in the user's repository.")
            tools = self._tools("coding_tools")
            name = tools["tools"][0]["function"]["name"]
            for _ in range(self._pick((0, 1, 3))):
                call = {"type": "function", "function": {"name": name, "arguments": "{}"}}
                result = self._pick(self._words["sources"])
                body["messages"] += [
                    {"role": "assistant", "content": None, "tool_calls": [call]},
                    {"role": "tool", "content": result},
                ]
            yield CODE_EDIT, body | tools


def _said(user: str, system: str = "", *, answer: str = "", then: str = "") -> Body:
    messages = [{"role": "system", "content": system}] if system else []
    messages.append({"role": "user", "content": user})
    if answer:
        messages.append({"role": "assistant", "content": answer})
        messages.append({"role": "user", "content": then})
    return {"messages": messages}
