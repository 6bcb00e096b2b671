"""The line between two processes: answers find their questions, and nothing waits for ever."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from router.lifecycle import Lifecycle
from router.processes.channel import Channel, Handler, Message, NoAnswerError


class Pair:
    """Both sides, each running."""

    def __init__(self, one: Channel, other: Channel, lifecycle: Lifecycle) -> None:
        self.one = one
        self.other = other
        self.lifecycle = lifecycle
        self.news: list[Message] = []


@asynccontextmanager
async def pair(handler: Handler) -> AsyncIterator[Pair]:
    """Two connected sides; the other one answers."""
    lifecycle = Lifecycle()
    sockets = socket.socketpair()
    one, other = [await Channel.over(sock, lifecycle) for sock in sockets]
    made = Pair(one, other, lifecycle)

    async def refuse(question: str, _: Message) -> None:
        raise ValueError(question)

    lifecycle.once("one", lambda: one.run(refuse, made.news.append))
    lifecycle.once("other", lambda: other.run(handler, made.news.append))
    try:
        yield made
    finally:
        await one.close()
        await other.close()
        await lifecycle.stop()


async def test_answers_find_their_questions() -> None:
    """Several at once, answered in another order; what comes with a question arrives with it."""
    gates = {name: asyncio.Event() for name in "ab"}

    async def handler(question: str, message: Message) -> Any:
        await gates[question].wait()
        return [question, message["value"]]

    async with pair(handler) as both, asyncio.TaskGroup() as group:
        first = group.create_task(both.one.ask("a", 10, value=1))
        second = group.create_task(both.one.ask("b", 10, value=2))
        gates["b"].set()
        assert await second == ["b", 2]
        assert not first.done()
        gates["a"].set()
        assert await first == ["a", 1]


async def test_large_messages_and_news() -> None:
    """A megabyte passes whole; news need no answer."""
    text = "x" * 1_000_000

    async def handler(_: str, message: Message) -> Any:
        return message["text"]

    async with pair(handler) as both:
        both.one.send({"news": "hello"})
        assert await both.one.ask("echo", 10, text=text) == text
        assert both.news == [{"news": "hello"}]


async def test_one_that_does_not_answer() -> None:
    """It is given up in time, waited for less the next time, and trusted again once it speaks."""
    stuck, asked = asyncio.Event(), list[str]()

    async def handler(question: str, _: Message) -> Any:
        asked.append(question)
        await stuck.wait()
        return question

    async with pair(handler) as both:
        with pytest.raises(NoAnswerError, match=r"^no answer within 0\.01 s$"):
            await both.one.ask("first", 0.01)
        with pytest.raises(NoAnswerError, match=r"^no answer within 0\.25 s$"):
            await both.one.ask("second", 600)
        stuck.set()
        assert await both.one.ask("third", 600) == "third"
        assert asked == ["first", "second", "third"]


async def test_one_that_fails(caplog: pytest.LogCaptureFixture) -> None:
    """The asker is told, the failing side logs why and goes on."""

    async def handler(question: str, _: Message) -> Any:
        if question == "bad":
            raise LookupError
        return question

    async with pair(handler) as both:
        with pytest.raises(NoAnswerError, match="it failed; see its log"):
            await both.one.ask("bad", 10)
        assert await both.one.ask("good", 10) == "good"
    assert [record.__dict__["task"] for record in caplog.records] == ["answer"]


async def test_one_that_is_gone() -> None:
    """Who waits is told at once, and so is who asks later."""
    asked = asyncio.Event()

    async def handler(_: str, __: Message) -> Any:
        asked.set()
        await asyncio.Event().wait()

    async with asyncio.timeout(10), pair(handler) as both, asyncio.TaskGroup() as group:
        waiting = group.create_task(_reason(both.one))
        await asked.wait()
        await both.other.close()
        assert await waiting == "it is gone"
        assert await _reason(both.one) == "it is gone"


async def _reason(channel: Channel) -> str:
    with pytest.raises(NoAnswerError) as caught:
        await channel.ask("anything", 600)
    return str(caught.value)


async def test_too_many_questions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond a number they are refused, not queued."""
    monkeypatch.setattr("router.processes.channel.MAX_OPEN_QUESTIONS", 1)
    busy, go_on = asyncio.Event(), asyncio.Event()

    async def handler(question: str, _: Message) -> Any:
        busy.set()
        await go_on.wait()
        return question

    async with pair(handler) as both, asyncio.TaskGroup() as group:
        first = group.create_task(both.one.ask("first", 600))
        await busy.wait()
        with pytest.raises(NoAnswerError, match="too many questions"):
            await both.one.ask("second", 600)
        go_on.set()
        assert await first == "first"


@pytest.mark.parametrize(
    "data", [b"", b"\0\0", b"\xff\xff\xff\xff", b"\0\0\0\2{", b"\0\0\0\2{]", b"\0\0\0\2[]"]
)
async def test_garbage_is_the_end(data: bytes) -> None:
    """Half a message, one that is too long, and what is none end the conversation."""
    sockets = socket.socketpair()
    channel = await Channel.over(sockets[0], Lifecycle())
    with sockets[1] as other:
        other.sendall(data)
    assert await channel.receive() is None
    await channel.close()


async def test_message_that_is_too_large(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is not sent."""
    monkeypatch.setattr("router.processes.channel.MAX_MESSAGE_BYTES", 100)

    async def handler(_: str, __: Message) -> Any:
        return "x" * 200

    async with pair(handler) as both:
        with pytest.raises(NoAnswerError, match="too large"):
            both.one.send({"text": "x" * 200})
        with pytest.raises(NoAnswerError, match="too large"):
            await both.one.ask("anything", 600)
