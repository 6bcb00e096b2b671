"""This process's part of what tenants may have over all processes of a store."""

from __future__ import annotations

from router.admission.admission import Admission
from router.admission.queue import Limits
from router.clock import Clock
from router.config.models import Config
from router.stores.base import CounterStore
from router.tenants.board import PromiseBoard
from router.tenants.presence import Presence, places_of
from router.tenants.quotas import Quotas
from router.types import TenantId


class SharedLimits:
    """Keeps limits of places and of tokens as large as this process's part of them.

    Args:
        prefix: First part of every key.
        admission: Gives places.
        quotas: Gives tokens.
        clock: Time.
        processes: That share, until the store has told.
        rank: Which of them this one is, until then.
    """

    def __init__(
        self,
        prefix: str,
        admission: Admission,
        quotas: Quotas,
        clock: Clock,
        *,
        processes: int,
        rank: int,
    ) -> None:
        self._admission = admission
        self._quotas = quotas
        self._clock = clock
        self._presence = Presence(prefix, processes=processes, rank=rank)
        self._board = PromiseBoard(prefix)

    def apply(self, config: Config) -> None:
        """Gives as much as a configuration says, shared as is known."""
        processes, rank = self._presence.processes, self._presence.rank
        self._admission.change(limits_of(config, processes, rank))
        tokens = {
            TenantId(tenant.id): tenant.tokens_per_minute
            for tenant in config.tenants.known
            if tenant.tokens_per_minute is not None
        }
        self._quotas.change(tokens, processes)

    async def refresh(self, store: CounterStore, wall: float, config: Config) -> None:
        """Looks how many processes share, and tells who may come back when.

        Args:
            store: Where processes meet.
            wall: Seconds since the epoch, by the store's clock.
            config: What is applied anew where their number has changed.

        Raises:
            StoreError: The store did not answer; what was known holds.
        """
        if await self._presence.refresh(store, wall):
            self.apply(config)
        told = (self._quotas.told, self._admission.told)
        ahead_s = wall - self._clock.monotonic()
        given = [(due + ahead_s, name) for by in told for due, name in by.given()]
        await self._board.tell(store, given)
        found = await self._board.others(store, wall)
        others = {name: [due - ahead_s for due in dues] for name, dues in found.items()}
        for by in told:
            by.learn(others)


def limited(config: Config) -> bool:
    """Whether any tenant has a limit that processes share."""
    known = config.tenants.known
    return any(tenant.max_concurrent or tenant.tokens_per_minute for tenant in known)


def limits_of(config: Config, processes: int = 1, rank: int = 0) -> Limits:
    """Places that one process gives.

    Args:
        config: What is given over all.
        processes: That share places of tenants.
        rank: Which of them this one is.
    """
    admission = config.admission
    return Limits(
        max_concurrent=admission.max_concurrent,
        max_concurrent_per_tenant=admission.max_concurrent_per_tenant,
        max_waiting=admission.max_waiting,
        max_wait_s=admission.max_wait_s,
        by_tenant={
            TenantId(tenant.id): places_of(tenant.max_concurrent, processes, rank)
            for tenant in config.tenants.known
            if tenant.max_concurrent is not None
        },
    )
