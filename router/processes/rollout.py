"""One configuration for all workers: it serves nowhere before every one of them has built it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Protocol

from router.errors import ConfigError
from router.processes.channel import NoAnswerError
from router.processes.reload import Loaded

_PREPARE_S = 60.0
"""What a worker may take to build what serves another configuration."""
_COMMIT_S = 2.0

_log = logging.getLogger("specroute.supervisor")


class Member(Protocol):
    """A worker that takes part."""

    @property
    def number(self) -> int:
        """Which one."""

    @property
    def gone(self) -> bool:
        """Whether it has ended; another one takes its place, with what holds then."""

    async def ask(self, question: str, timeout_s: float, **more: Any) -> Any:
        """Asks it something.

        Raises:
            NoAnswerError: It did not answer.
        """

    def replace(self) -> None:
        """Ends it, so that another one takes its place."""


async def roll_out(
    members: Sequence[Member], loaded: Loaded, decided: Callable[[Loaded], None]
) -> None:
    """Has all workers serve by a configuration, or none.

    Args:
        members: All workers that serve.
        loaded: The configuration.
        decided: Called between: whatever starts from then on serves by it too.

    Raises:
        ConfigError: One of them cannot; all serve on as they did.
    """
    if not members:
        raise ConfigError("no worker is there to try it; ask again when one serves")
    refusals = await asyncio.gather(*(_prepare(member, loaded) for member in members))
    refused = next((why for why in refusals if why is not None), None)
    if refused is not None:
        await asyncio.gather(*(_abandon(member) for member in members))
        raise ConfigError(refused)
    decided(loaded)
    await asyncio.gather(*(_commit(member, loaded) for member in members))


async def _prepare(member: Member, loaded: Loaded) -> str | None:
    """Why a worker cannot take it; None if it can, or if another will start with it."""
    try:
        refusal = await member.ask("prepare", _PREPARE_S, text=loaded.text)
    except NoAnswerError as error:
        return None if member.gone else f"worker {member.number}: {error}"
    return refusal if refusal is None else str(refusal)


async def _abandon(member: Member) -> None:
    with suppress(NoAnswerError):
        await member.ask("abandon", _COMMIT_S)


async def _commit(member: Member, loaded: Loaded) -> None:
    try:
        refusal = await member.ask("commit", _COMMIT_S, hash=loaded.digest)
    except NoAnswerError as error:
        refusal = str(error)
    if refusal is not None and not member.gone:
        _log.error(
            "worker did not take the configuration; another takes its place",
            extra={"worker": member.number, "why": refusal},
        )
        member.replace()
