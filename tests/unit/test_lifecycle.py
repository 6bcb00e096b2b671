"""Background work: it goes on whatever happens to a round, and it ends when told to."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from router.lifecycle import Lifecycle


async def test_work_goes_on_after_an_error(caplog: pytest.LogCaptureFixture) -> None:
    """A round that fails is counted and logged with its name, and the next one comes."""
    lifecycle, rounds, third = Lifecycle(), list[int](), asyncio.Event()

    async def work() -> None:
        rounds.append(len(rounds))
        if len(rounds) == 3:
            third.set()
        if len(rounds) < 3:
            raise LookupError

    lifecycle.every(0, "some work", work)
    async with asyncio.timeout(10):
        await third.wait()
    await lifecycle.stop()
    assert lifecycle.errors == 2
    assert [record.__dict__["task"] for record in caplog.records] == ["some work"] * 2


async def test_first_round_comes_after_the_interval() -> None:
    """Who starts work has done its first round already; nothing is done twice."""
    lifecycle, rounds = Lifecycle(), list[int]()

    async def work() -> None:
        rounds.append(1)

    lifecycle.every(3600, "some work", work)
    for _ in range(5):
        await asyncio.sleep(0)
    await lifecycle.stop()
    assert rounds == []


async def test_stop_ends_a_running_round() -> None:
    """Work that hangs is cancelled, and its clean-up is waited for; stopping twice is harmless."""
    lifecycle, begun, cleaned = Lifecycle(), asyncio.Event(), asyncio.Event()

    async def work() -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            cleaned.set()

    lifecycle.every(0, "some work", work)
    async with asyncio.timeout(10):
        await begun.wait()
        await lifecycle.stop()
        await lifecycle.stop()
    assert cleaned.is_set()
    assert lifecycle.errors == 0


@pytest.mark.parametrize("swallowed", [1, 3])
async def test_lost_cancellation_does_not_keep_the_process_alive(
    monkeypatch: pytest.MonkeyPatch, swallowed: int
) -> None:
    """Work that swallows its cancellation, as libraries do in a race, is ended all the same."""
    monkeypatch.setattr("router.lifecycle._CANCEL_AGAIN_S", 0.01)
    lifecycle, begun, rounds = Lifecycle(), asyncio.Event(), list[int]()

    async def work() -> None:
        rounds.append(1)
        begun.set()
        for _ in range(swallowed):
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.Event().wait()

    lifecycle.every(0, "some work", work)
    async with asyncio.timeout(10):
        await begun.wait()
        await lifecycle.stop()
    assert rounds == [1]


async def test_work_that_is_done_once(caplog: pytest.LogCaptureFixture) -> None:
    """It runs beside everything else; a failure is counted; a stop ends it and starts nothing new."""
    lifecycle, begun, cleaned = Lifecycle(), asyncio.Event(), asyncio.Event()

    async def fails() -> None:
        raise LookupError

    async def hangs() -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            cleaned.set()
            lifecycle.once("too late", fails)

    lifecycle.once("fails", fails)
    lifecycle.once("hangs", hangs)
    async with asyncio.timeout(10):
        await begun.wait()
        await lifecycle.stop()
    assert cleaned.is_set()
    assert lifecycle.errors == 1
    assert [record.__dict__["task"] for record in caplog.records] == ["fails"]
