"""An engine's error, kept in case no other server does better."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from router.errors import Reason
from router.fleet.model import PoolFacts
from router.relay.upstream import UpstreamError, UpstreamResponse
from router.types import AttemptEnd, Headers

_MOST_ERROR_BYTES = 256 * 1024
_ERROR_BODY_S = 10.0


@dataclass(frozen=True, slots=True)
class Spare:
    """One error, whole."""

    pool: PoolFacts
    status: int
    reason: str
    headers: Headers
    body: bytes


async def whole_error(response: UpstreamResponse) -> bytes:
    """An error's body.

    Raises:
        UpstreamError: It broke off, or is far too long for one.
    """
    parts: list[bytes] = []
    size = 0

    def receive(piece: bytes) -> None:
        nonlocal size
        size += len(piece)
        if size > _MOST_ERROR_BYTES:
            raise UpstreamError(
                AttemptEnd.SERVER_ERROR, Reason.UPSTREAM_PROTOCOL, "an error without end"
            )
        parts.append(piece)

    try:
        async with asyncio.timeout(_ERROR_BODY_S):
            await response.copy_to(receive)
    except TimeoutError as error:
        raise UpstreamError(
            AttemptEnd.SERVER_ERROR, Reason.UPSTREAM_TIMEOUT, "an error that did not end"
        ) from error
    return b"".join(parts)
