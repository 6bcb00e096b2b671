"""Keeps what a process has learned and the store in step; the store may come and go."""

from __future__ import annotations

import asyncio
import logging
import secrets

from router.admin.state import StoreState
from router.breath import breathe
from router.classify.segments import KEY_BYTES, Fingerprints
from router.errors import StoreError
from router.serving import Generation, Ground, ServedRoute

_log = logging.getLogger("specroute")


class Learning:
    """The way of sums into the store, and of snapshots and plans out of it."""

    def __init__(self, ground: Ground) -> None:
        self._ground = ground
        # Neither is made for two at a time, and the last flush may meet a running one.
        self._flushing, self._refreshing = asyncio.Lock(), asyncio.Lock()
        self._errors: dict[str, str] = {}
        """By what was being done: reading and adding can fail apart."""
        self._last_read: float | None = None

    async def flush(self) -> None:
        """Adds what was learned to the store."""
        async with self._flushing:
            try:
                await self._ground.writer.flush()
            except StoreError as error:
                self.failed("add", error)
            else:
                self.answered("add")

    async def refresh(self, generation: Generation) -> None:
        """Reads the store, and gives every route a new snapshot and a new plan."""
        writer = self._ground.writer
        async with self._refreshing:
            if not writer.slots.compared:
                await writer.compare_clocks()  # before anything is read for the wrong slots
            await self._read_documents()  # first: they may say that nobody is to be treated
            for route in generation.routes.values():
                await self._refresh(generation, route)
                await self._judge(generation, route)
            if "read" not in self._errors:
                await writer.compare_clocks()
            await self._learn_segment_key(generation.fingerprints)

    async def _refresh(self, generation: Generation, route: ServedRoute) -> None:
        clock = self._ground.clock
        try:
            past = await route.reader.refresh()
            await self._claim(route)
        except StoreError as error:
            self.failed("read", error)
            past = route.reader.past()
        else:
            self._last_read = clock.monotonic()
            self.answered("read")
        wall = self._ground.writer.slots.wall()
        counted = route.servers.counted.estimates(wall)
        for snapshot in route.builder.steps(past, wall, counted):
            if snapshot is not None:
                route.snapshot = snapshot
            await breathe()
        for plan in generation.plan_steps(route, route.policy, past, wall):
            if plan is not None:
                route.parts.chooser.plan = plan
            await breathe()
        others = {}
        for key, policy in generation.other_policies(route):
            for plan in generation.plan_steps(route, policy, past, wall):
                if plan is not None:
                    others[key] = plan
                await breathe()
        route.parts.chooser.others = others

    async def _judge(self, generation: Generation, route: ServedRoute) -> None:
        """Looks whether answers of a pool are damaged, and keeps it out where they are."""
        quality, watched = self._ground.quality, generation.watched(route)
        if watched is None:
            quality.release(route.config.model)
            return
        try:
            await quality.look(route.config.model, watched, route.reader.past())
        except StoreError as error:
            self.failed("read quarantines", error)
        else:
            self.answered("read quarantines")

    async def _claim(self, route: ServedRoute) -> None:
        """Tells who attributes the engines' counters which classes made how many tokens."""
        counted, history = route.servers.counted, route.reader.history
        slots = counted.missing(history.settled_made, self._ground.writer.slots.wall())
        if slots:
            counted.learn(await history.read_made(slots))

    async def _learn_segment_key(self, fingerprints: Fingerprints) -> None:
        """Reads the key that all processes hash applications with; makes it if it is missing."""
        if fingerprints.ready or "read" in self._errors:
            return
        key = f"{self._ground.prefix}:v1:segment-key"
        try:
            kept = await self._ground.store.get_or_create(key, secrets.token_bytes(KEY_BYTES))
        except StoreError as error:
            self.failed("keep the key of segments", error)
        else:
            fingerprints.use(kept)
            self.answered("keep the key of segments")

    async def _read_documents(self) -> None:
        """Reads what operators have changed: keys of tenants, experiments."""
        ground = self._ground
        try:
            await ground.keys.refresh(ground.store, ground.prefix)
            await ground.trials.refresh()
        except StoreError as error:
            self.failed("read keys and experiments", error)
        else:
            self.answered("read keys and experiments")

    def failed(self, doing: str, error: StoreError) -> None:
        """Notes that the store did not do something; said once until it answers again."""
        if not self._errors:
            _log.warning("store lost; serving and learning go on", extra={"error": str(error)})
        self._errors[doing] = str(error)

    def answered(self, doing: str) -> None:
        """Notes that the store did something again."""
        if self._errors.pop(doing, None) is not None and not self._errors:
            _log.info("store answers")

    def store_state(self, url: str) -> StoreState:
        """How the store is doing.

        Args:
            url: As it may be shown.
        """
        unread = "not read yet" if self._last_read is None else None
        error = next(iter(self._errors.values()), unread)
        last, writer = self._last_read, self._ground.writer
        return StoreState(
            url=url,
            up=error is None,
            error=error,
            snapshot_age_s=None if last is None else self._ground.clock.monotonic() - last,
            dropped_increments=writer.dropped,
            refused_increments=writer.refused,
            waiting_increments=writer.waiting,
            late_made_tokens=writer.late_made_tokens,
            clock_skew_s=writer.slots.skew_s,
        )
