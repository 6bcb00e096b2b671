"""Asks every server what it is, and compares that with what the configuration says of it.

Asked when it comes up, when it has come back, and now and then. A server that does not tell is
unknown, which is nobody's fault.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal

from policies.types import Arm, ArmId
from router import __version__
from router.clock import Clock
from router.config.routes import KNOWN_METHODS
from router.engines.identity import (
    Engine,
    EngineIdentity,
    ToldPage,
    further_pages,
    identify,
)
from router.engines.pages import MOST_BYTES
from router.fleet.apart import Apart, Work
from router.fleet.fetch import Fetch, GoneError, LateError
from router.fleet.model import PoolFacts, Replica, RouteFacts
from router.fleet.rounds import Rounds, Target, credentials
from router.fleet.state import FleetState

USER_AGENT = f"specroute/{__version__} (identify)"
"""So that whoever reads an engine's log knows who asks for pages that are not there."""

_INTERVAL_S = 600.0
_AGAIN_S = 30.0
"""Until a server is asked again that answered nothing at all."""
_LOOK_S = 1.0
"""How often it is looked whether a server has come back."""
_TIMEOUT_S = 3.0
_MOST_STAGES = 6
_ANY = frozenset(("generic", "gateway"))
"""Declared where any engine may answer."""

_log = logging.getLogger("specroute.identify")


async def ask(
    fetch: Fetch, replica: Replica, *, timeout_s: float = _TIMEOUT_S, api_key: str | None = None
) -> tuple[EngineIdentity, dict[str, ToldPage]]:
    """Asks a server for the pages that tell what it is; returns what it is, and the pages.

    Args:
        fetch: The network.
        replica: The server.
        timeout_s: Limit of each page.
        api_key: Credential where the server has none of ours.
    """
    headers = {"User-Agent": USER_AGENT}
    if api_key is not None:
        headers["Authorization"] = f"Bearer {api_key}"
    headers |= credentials(replica)
    pages: dict[str, ToldPage] = {}

    async def one(path: str) -> None:
        try:
            page = await fetch.get(
                replica.url + path, headers=headers, timeout_s=timeout_s, most_bytes=MOST_BYTES
            )
        except (GoneError, LateError):
            pages[path] = ToldPage(0)
        else:
            pages[path] = ToldPage(page.status, page.body, page.headers.get("server", ""))

    for _ in range(_MOST_STAGES):
        wanted = further_pages(pages)
        if not wanted or (pages and all(page.status == 0 for page in pages.values())):
            break
        await asyncio.gather(*(one(path) for path in wanted))
    return identify(pages), pages


class Identifier:
    """Knows what the servers of one route are."""

    def __init__(
        self,
        route: RouteFacts,
        fleet: FleetState,
        clock: Clock,
        fetch: Fetch,
        *,
        uniform: Callable[[], float] = random.random,
    ) -> None:
        self._route = route
        self._fleet = fleet
        self._clock = clock
        self._fetch = fetch
        self._rounds = Rounds(route, fleet, lambda _: _INTERVAL_S, uniform)
        self._looked = -_LOOK_S
        self._down: frozenset[Replica] = frozenset()
        self._told: dict[Replica, tuple[str, ...]] = {}
        """What has been said of each in the log."""
        self._told_of_pools: dict[ArmId, tuple[str, ...]] = {}
        self._heard: set[ArmId] = set()
        """Pools of which a server has answered since they were last compared."""
        self.identities: Mapping[Replica, EngineIdentity] = {}
        """Of those that have answered, swapped whole."""
        self.apart = Apart[Replica]()

    async def round(self) -> None:
        """Asks all servers once, side by side."""
        await self.apart.finish(self._work(self._rounds.everyone(self._clock.monotonic())))

    async def due(self) -> None:
        """Begins to ask the servers whose time has come, and those that have come back."""
        now = self._clock.monotonic()
        if now - self._looked < _LOOK_S:
            return
        self._looked = now
        down = frozenset(
            state.replica
            for states in self._fleet.view().values()
            for state in states
            if not state.up
        )
        for replica in self._down - down:
            self._rounds.put_off(replica, now)
        self._down = down
        self._forget()
        targets = self._rounds.due(now, self.apart.busy)
        for target in targets:
            if target.replica in down:
                self._rounds.put_off(target.replica, now + _AGAIN_S)
        await self.apart.begin(
            self._work([target for target in targets if target.replica not in down])
        )
        for arm_id in tuple(self._heard):
            # Not while some are being asked: they would differ once for each.
            if self.apart.busy.isdisjoint(self._fleet.replicas(arm_id)):
                self._heard.discard(arm_id)
                self._tell_of_pool(arm_id, self._route.pools[arm_id])

    def _forget(self) -> None:
        """Servers that have gone."""
        known = self._fleet.known()
        self.apart.keep(known)
        if not self.identities.keys() <= known:
            self.identities = {key: of for key, of in self.identities.items() if key in known}
        self._told = {key: value for key, value in self._told.items() if key in known}

    def _work(self, targets: Sequence[Target]) -> dict[Replica, Work]:
        return {target.replica: partial(self._ask, target) for target in targets}

    async def _ask(self, target: Target) -> None:
        identity, pages = await ask(self._fetch, target.replica)
        if not any(page.status for page in pages.values()):
            # It was there once, so what it was is more than nothing; gone servers are dropped.
            self._rounds.put_off(target.replica, self._clock.monotonic() + _AGAIN_S)
            return
        self.identities = {**self.identities, target.replica: identity}
        self._heard.add(target.pool.arm.arm_id)
        self._tell(target)

    def _tell(self, target: Target) -> None:
        replica = target.replica
        identity = self.identities.get(replica)
        if identity is None:
            return
        wrong = tuple(mismatch.why for mismatch in mismatches(target.pool, identity))
        if wrong != self._told.get(replica, ()):
            self._told[replica] = wrong
            for why in wrong:
                _log.warning(
                    "server is not what the configuration says",
                    extra={"replica": replica.replica_id, "url": replica.url, "why": why},
                )

    def _tell_of_pool(self, arm_id: ArmId, pool: PoolFacts) -> None:
        replicas = self._fleet.replicas(arm_id)
        wrong = differences(
            {
                replica: self.identities[replica]
                for replica in replicas
                if replica in self.identities
            }
        )
        if wrong != self._told_of_pools.get(arm_id, ()):
            self._told_of_pools[arm_id] = wrong
            for why in wrong:
                _log.warning(
                    "servers of a pool differ", extra={"pool": pool.settings.name, "why": why}
                )


@dataclass(frozen=True, slots=True)
class Mismatch:
    """One way in which a server is not what its pool declares."""

    what: Literal["engine", "speculation", "method", "draft_length"]
    why: str


def mismatches(pool: PoolFacts, identity: EngineIdentity) -> tuple[Mismatch, ...]:
    """How a server differs from what its pool declares; what is unknown does not differ."""
    return (*_engine(pool, identity), *_speculation(pool.arm, identity))


def _engine(pool: PoolFacts, identity: EngineIdentity) -> Iterator[Mismatch]:
    declared = pool.adapter.name
    if identity.engine is not Engine.UNKNOWN and declared not in {*_ANY, identity.engine.value}:
        yield Mismatch("engine", f"engine {declared} is declared, but it is {identity.label}")


def _speculation(arm: Arm, identity: EngineIdentity) -> Iterator[Mismatch]:
    declared = arm.method
    if identity.speculates is None:
        return
    if identity.speculates != (declared != "none"):
        does = f"speculates ({identity.speculation})" if identity.speculates else "drafts nothing"
        yield Mismatch("speculation", f"method {declared} is declared, but it {does}")
        return
    if identity.methods and declared in KNOWN_METHODS and declared not in identity.methods:
        yield Mismatch("method", f"method {declared} is declared, but its own is {identity.method}")
    k, declared_k = identity.num_speculative_tokens, arm.num_speculative_tokens
    if k is not None and declared_k is not None and k != declared_k:
        yield Mismatch(
            "draft_length",
            f"num_speculative_tokens {declared_k} is declared, but it drafts up to {k} a step",
        )


def differences(identities: Mapping[Replica, EngineIdentity]) -> tuple[str, ...]:
    """How the servers of one pool differ from each other, in words."""
    labels: dict[str, list[str]] = {}
    for replica, identity in identities.items():
        if identity.engine is not Engine.UNKNOWN:
            labels.setdefault(identity.label, []).append(replica.replica_id)
    named = {label for label in labels if " " in label}
    engines = {label.split(" ")[0] for label in labels}
    if max(len(named), len(engines)) <= 1:
        return ()
    shown = "; ".join(f"{', '.join(ids)}: {label}" for label, ids in labels.items())
    return (f"servers run different engines or versions ({shown})",)
