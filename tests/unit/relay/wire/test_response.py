"""What the relay may do with an answer, in any order."""

from __future__ import annotations

import asyncio

import pytest

from router.errors import Reason
from router.relay.upstream import Receive, UpstreamError
from router.relay.wire.framing import Head
from router.relay.wire.response import EARLY_LIMIT, WireResponse
from router.types import AttemptEnd

WHY = UpstreamError(AttemptEnd.TIMEOUT, Reason.UPSTREAM_TIMEOUT, "why")


class Carrier:
    """A connection that keeps what it is told."""

    def __init__(self) -> None:
        self.told: list[object] = []
        self.receive: Receive | None = None
        self.response = WireResponse(Head(200, "OK", (("A", "b"),)), self, 0.5)

    def deliver_to(self, receive: Receive) -> None:
        """Keeps it."""
        self.receive = receive

    def new_end(self) -> asyncio.Future[None]:
        """One of the loop that runs."""
        return asyncio.get_running_loop().create_future()

    def pause(self) -> None:
        """Keeps it."""
        self.told.append("pause")

    def resume(self) -> None:
        """Keeps it."""
        self.told.append("resume")

    def fail(self, error: Exception) -> None:
        """Lets go of the answer, as a connection does."""
        self.told.append(error)
        self.response.finish(error)


async def copied(response: WireResponse) -> tuple[bytes, Exception | None]:
    """The body, and how it ended."""
    pieces: list[bytes] = []
    try:
        await response.copy_to(pieces.append)
    except UpstreamError as error:
        return b"".join(pieces), error
    return b"".join(pieces), None


async def test_the_head() -> None:
    """As the connection gave it."""
    response = Carrier().response
    assert (response.status, response.reason, response.headers) == (200, "OK", (("A", "b"),))
    assert response.waited_s == 0.5


async def test_what_came_early_comes_first() -> None:
    """In one piece, whether the answer is complete by then or not."""
    carrier = Carrier()
    carrier.response.keep(b"ab")
    carrier.response.keep(b"c")
    carrier.response.finish(None)
    assert await copied(carrier.response) == (b"abc", None)
    carrier = Carrier()
    carrier.response.keep(b"ab")
    copying = asyncio.ensure_future(copied(carrier.response))
    await asyncio.sleep(0)
    assert carrier.receive is not None
    carrier.receive(b"c")
    carrier.response.finish(None)
    assert await copying == (b"abc", None)


async def test_a_break_comes_after_what_came_early() -> None:
    """Nothing that was read is lost."""
    carrier = Carrier()
    carrier.response.keep(b"ab")
    carrier.response.finish(WHY)
    assert await copied(carrier.response) == (b"ab", WHY)


async def test_both_reasons_to_pause() -> None:
    """The server waits while either holds: the caller's wish, or a full store of early pieces."""
    carrier = Carrier()
    response = carrier.response
    response.pause()
    response.keep(bytes(EARLY_LIMIT))
    response.keep(b"x")
    response.resume()
    assert carrier.told == ["pause"] * 3
    response.pause()
    copying = asyncio.ensure_future(copied(response))
    await asyncio.sleep(0)
    assert carrier.told == ["pause"] * 5
    response.resume()
    assert carrier.told[5:] == ["resume"]
    response.finish(None)
    assert (await copying)[1] is None
    response.pause()
    response.resume()
    assert len(carrier.told) == 6


@pytest.mark.parametrize("complete", [True, False])
async def test_abort_before_the_copying(*, complete: bool) -> None:
    """The next `copy_to` raises it and hands nothing over, though all may have come."""
    carrier = Carrier()
    carrier.response.keep(b"ab")
    if complete:
        carrier.response.finish(None)
    carrier.response.abort(WHY)
    assert carrier.told == ([] if complete else [WHY])
    assert await copied(carrier.response) == (b"", WHY)


async def test_abort_while_early_pieces_are_handed_over() -> None:
    """It is raised at once."""
    carrier = Carrier()
    carrier.response.keep(b"ab")
    with pytest.raises(UpstreamError) as caught:
        await carrier.response.copy_to(lambda _: carrier.response.abort(WHY))
    assert (caught.value is WHY, carrier.told) == (True, [WHY])


async def test_the_end_is_the_end() -> None:
    """Afterwards nothing is told to a connection that may carry another answer by now."""
    carrier = Carrier()
    carrier.response.finish(None)
    assert await copied(carrier.response) == (b"", None)
    carrier.response.abort(WHY)
    carrier.response.close()
    carrier.response.close()
    carrier.response.pause()
    carrier.response.resume()
    assert carrier.told == []


@pytest.mark.parametrize("when", ["early", "late"])
async def test_leaving_cuts(when: str) -> None:
    """A receiver that raises, or a caller that is cancelled, leaves no connection behind."""
    carrier = Carrier()
    if when == "early":
        carrier.response.keep(b"ab")

        def receive(_: bytes) -> None:
            raise KeyError("mine")

        with pytest.raises(KeyError, match="mine"):
            await carrier.response.copy_to(receive)
    else:
        copying = asyncio.ensure_future(carrier.response.copy_to(lambda _: None))
        await asyncio.sleep(0)
        copying.cancel()
        with pytest.raises(asyncio.CancelledError):
            await copying
    assert isinstance(carrier.told[-1], UpstreamError)
