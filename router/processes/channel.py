"""The line between a supervisor and one of its workers: questions with answers, and news.

A pair of connected sockets that no other process has; each message is its length and JSON. When
one side is gone, however it went, the other reads the end.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Awaitable, Callable
from typing import Any

import orjson

from router.lifecycle import Lifecycle

MAX_MESSAGE_BYTES = 64 * 1024 * 1024
MAX_OPEN_QUESTIONS = 32
"""Questions of the other side that are being answered at a time."""
_SILENT_S = 0.25
"""What a side that let the last question pass may take for the next, until something comes from it:
one that is stuck holds up only once whoever asks again and again."""
_MAX_UNSENT_BYTES = 4 * 1024 * 1024
"""Beyond it the other side does not read, and is asked nothing more."""
_LAST_WORDS_S = 2.0
_LENGTH_BYTES = 4

Message = dict[str, Any]
Handler = Callable[[str, Message], Awaitable[Any]]
"""Answers a question, given its name and what came with it."""


class NoAnswerError(Exception):
    """The other side did not answer in time, cannot answer, or is gone."""


class Channel:
    """One side of the line."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, lifecycle: Lifecycle
    ) -> None:
        self._reader = reader
        self._writer = writer
        self._lifecycle = lifecycle
        self._number = 0
        self._asked: dict[int, asyncio.Future[Any]] = {}
        self._answering = 0
        self._closed = False
        self._silent = False

    @classmethod
    async def over(cls, sock: socket.socket, lifecycle: Lifecycle) -> Channel:
        """Opens this side over one of the two sockets."""
        reader, writer = await asyncio.open_connection(sock=sock)
        return cls(reader, writer, lifecycle)

    def send(self, message: Message) -> None:
        """Sends news; nothing comes back.

        Raises:
            NoAnswerError: The other side cannot take it.
        """
        if self._writer.transport.get_write_buffer_size() > _MAX_UNSENT_BYTES:
            raise NoAnswerError("it takes nothing")
        data = orjson.dumps(message)
        if len(data) > MAX_MESSAGE_BYTES:
            raise NoAnswerError("the message is too large")
        if not self._writer.is_closing():
            self._writer.write(len(data).to_bytes(_LENGTH_BYTES, "big") + data)

    async def receive(self) -> Message | None:
        """The next message; None once the other side is gone."""
        try:
            size = int.from_bytes(await self._reader.readexactly(_LENGTH_BYTES), "big")
            if size > MAX_MESSAGE_BYTES:
                return None
            message = orjson.loads(await self._reader.readexactly(size))
        except (asyncio.IncompleteReadError, ConnectionError, orjson.JSONDecodeError):
            return None
        return message if isinstance(message, dict) else None

    async def ask(self, question: str, timeout_s: float, **more: Any) -> Any:
        """Asks the other side something.

        Raises:
            NoAnswerError: There was no answer.
        """
        if self._closed:
            raise NoAnswerError("it is gone")
        if self._silent:
            timeout_s = min(timeout_s, _SILENT_S)
        self._number += 1
        number, answer = self._number, asyncio.get_running_loop().create_future()
        self._asked[number] = answer
        try:
            self.send({"number": number, "question": question, **more})
            async with asyncio.timeout(timeout_s):
                return await answer
        except TimeoutError as error:
            self._silent = True
            raise NoAnswerError(f"no answer within {timeout_s:g} s") from error
        finally:
            del self._asked[number]

    async def run(self, handler: Handler, news: Callable[[Message], None]) -> None:
        """Takes what comes until the other side is gone.

        Args:
            handler: Answers questions.
            news: Takes messages that are no question.
        """
        try:
            while (message := await self.receive()) is not None:
                self._take(message, handler, news)
        finally:
            self._closed = True
            for answer in self._asked.values():
                if not answer.done():
                    answer.set_exception(NoAnswerError("it is gone"))

    def _take(self, message: Message, handler: Handler, news: Callable[[Message], None]) -> None:
        self._silent = False
        number = message.get("number")
        if number is None:
            news(message)
        elif "question" in message:
            if self._answering >= MAX_OPEN_QUESTIONS:
                self._reply(number, {"number": number, "error": "too many questions"})
                return
            self._answering += 1
            self._lifecycle.once("answer", lambda: self._answer(number, message, handler))
        else:
            answer = self._asked.get(number)
            if answer is None or answer.done():
                return  # too late
            if "error" in message:
                answer.set_exception(NoAnswerError(message["error"]))
            else:
                answer.set_result(message.get("answer"))

    async def _answer(self, number: int, message: Message, handler: Handler) -> None:
        reply: Message = {"number": number, "error": "it failed; see its log"}
        try:
            answer = await handler(message["question"], message)
            reply = {"number": number, "answer": answer}
        finally:
            self._answering -= 1
            self._reply(number, reply)

    def _reply(self, number: int, reply: Message) -> None:
        try:
            self.send(reply)
        except NoAnswerError as error:
            with contextlib.suppress(NoAnswerError):  # then the asker finds out by waiting
                self.send({"number": number, "error": str(error)})

    async def close(self) -> None:
        """Sends what is left, and closes this side."""
        self._writer.close()
        try:
            async with asyncio.timeout(_LAST_WORDS_S):
                await self._writer.wait_closed()
        except (TimeoutError, OSError):
            self._writer.transport.abort()
