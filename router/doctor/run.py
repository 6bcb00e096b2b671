"""Examines everything behind a configuration, side by side, and makes a report of it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from router.clock import Clock
from router.config.models import Config
from router.doctor.acceptance import acceptance
from router.doctor.ask import Answer, Asker, question
from router.doctor.checks import (
    answer_findings,
    connection_findings,
    engine_findings,
    keep_alive_finding,
    load_findings,
    model_findings,
    refusal_findings,
)
from router.doctor.compare import Examined, compare
from router.doctor.findings import Finding, Level, PoolReport, ReplicaReport, Report, RouteReport
from router.doctor.reach import idle_close_s, reach
from router.doctor.store import store_findings
from router.engines.identity import EngineIdentity
from router.fleet.discovery import DiscoveryError, discovery_for
from router.fleet.fetch import Fetch
from router.fleet.identify import ask as ask_identity
from router.fleet.model import PoolFacts, Replica, RouteFacts, build_routes
from router.relay.upstream import Upstream
from router.relay.wire.pool import KEEP_S

_AT_A_TIME = 16
_CLOSED = frozenset((401, 403))
_WATCHED_S = KEEP_S + 4.0
"""How long an idle connection is watched."""


@dataclass(frozen=True, slots=True)
class Options:
    """How thoroughly to look."""

    requests: bool = True
    """Whether every server gets a small real request."""
    slow: bool = False
    """Whether idle connections are watched."""
    page_s: float = 3.0
    """Limit of each page."""
    answer_s: float = 60.0
    """Limit of a whole answer."""
    api_key: str | None = field(default=None, repr=False)
    """What clients send, for pools without a key."""


Progress = Callable[[str, int, int], None]
"""Told what has just been examined, how many servers that makes, and of how many."""


class Doctor:
    """Examines the servers and the store of one configuration.

    Args:
        config: What is declared.
        options: How thoroughly to look.
        clock: Time.
        fetch: Asks for pages.
        upstream: Sends requests, as the proxy does.
    """

    def __init__(
        self, config: Config, options: Options, clock: Clock, fetch: Fetch, upstream: Upstream
    ) -> None:
        self._config = config
        self._options = options
        self._clock = clock
        self._fetch = fetch
        self._asker = Asker(upstream, clock, limit_s=options.answer_s, api_key=options.api_key)
        self._places = asyncio.Semaphore(_AT_A_TIME)

    async def examine(self, progress: Progress = lambda *_: None) -> Report:
        """Looks at everything."""
        routes = list(build_routes(self._config).values())
        found = [await self._servers(route) for route in routes]
        total = sum(len(replicas) for pools in found for _, replicas, _ in pools)
        tally = _Tally(progress, total)
        store, reports = await asyncio.gather(
            store_findings(self._config.store),
            asyncio.gather(
                *(
                    self._route(route, pools, tally)
                    for route, pools in zip(routes, found, strict=True)
                )
            ),
        )
        return Report(self._config.store.shown_url, store, tuple(reports))

    async def _servers(self, route: RouteFacts) -> list[_Servers]:
        """The servers of each pool, found where they are not listed."""
        found: list[_Servers] = []
        for pool in route.pools.values():
            if pool.settings.discover is None:
                found.append((pool, pool.replicas, None))
                continue
            try:
                listed = await discovery_for(pool.settings).find()
            except DiscoveryError as error:
                remedy = "correct `discover` of the pool, or the source that it names"
                found.append((pool, (), Finding(Level.PROBLEM, "discovery", str(error), remedy)))
                continue
            servers = tuple(
                pool.replica(number, item.url, item.weight) for number, item in enumerate(listed)
            )
            none = None if servers else Finding(Level.PROBLEM, "discovery", "found no server")
            found.append((pool, servers, none))
        return found

    async def _route(
        self, route: RouteFacts, pools: Sequence[_Servers], tally: _Tally
    ) -> RouteReport:
        examined = await asyncio.gather(
            *(
                asyncio.gather(*(self._server(route, pool, replica, tally) for replica in replicas))
                for pool, replicas, _ in pools
            )
        )
        servers = [server for _, of in zip(pools, examined, strict=True) for server, _ in of]
        reports = [
            PoolReport(
                name=pool.settings.name,
                method=pool.arm.method,
                num_speculative_tokens=pool.arm.num_speculative_tokens,
                engine=pool.adapter.name,
                baseline=pool.arm.baseline,
                findings=(*((why,) if why else ()), *refusal_findings(pool)),
                replicas=tuple(report for _, report in of),
            )
            for (pool, _, why), of in zip(pools, examined, strict=True)
        ]
        return RouteReport(route.model, tuple(compare(route, servers)), tuple(reports))

    async def _server(
        self, route: RouteFacts, pool: PoolFacts, replica: Replica, tally: _Tally
    ) -> tuple[Examined, ReplicaReport]:
        async with self._places:
            done = await self._examined(route, pool, replica)
        tally.done(replica.replica_id)
        return done

    async def _examined(
        self, route: RouteFacts, pool: PoolFacts, replica: Replica
    ) -> tuple[Examined, ReplicaReport]:
        options = self._options
        way = await reach(replica.url, connect_s=replica.connect_s, clock=self._clock)
        findings = [way]
        identity, source = EngineIdentity(), None
        answer: Answer | None = None
        if way.level is Level.OK:
            if options.requests:
                # First, since llama.cpp tells its method only once it has served somebody.
                answer = await self._asker.ask(pool, replica, question(route.model))
            identity, pages = await ask_identity(
                self._fetch, replica, timeout_s=options.page_s, api_key=options.api_key
            )
            closed = any(page.status in _CLOSED for page in pages.values())
            findings += engine_findings(pool, identity, closed=closed)
            findings += model_findings(route.model, pool.adapter.name, identity)
            findings += () if answer is None else answer_findings(pool, answer)
            source, told = acceptance(pool, identity, answer)
            findings += () if told is None else (told,)
            findings += load_findings(pool, identity)
            findings += () if answer is None else connection_findings(answer)
            if options.slow:
                findings.append(await self._kept(pool, replica))
        return (
            Examined(pool, replica.replica_id, identity, answer),
            ReplicaReport(replica.replica_id, replica.url, identity, source, tuple(findings)),
        )

    async def _kept(self, pool: PoolFacts, replica: Replica) -> Finding:
        try:
            kept_s = await idle_close_s(
                replica.url,
                pool.adapter.health_path,
                clock=self._clock,
                most_s=_WATCHED_S,
                limit_s=self._options.page_s,
            )
        except (OSError, TimeoutError) as error:
            why = str(error) or type(error).__name__
            return Finding(Level.NOTE, "keep-alive", f"could not be watched: {why}")
        return keep_alive_finding(kept_s, f"watched for {_WATCHED_S:g} s")


_Servers = tuple[PoolFacts, tuple[Replica, ...], Finding | None]
"""A pool, its servers, and why there are none."""


class _Tally:
    """Counts what has been examined."""

    def __init__(self, progress: Progress, total: int) -> None:
        self._progress = progress
        self._total = total
        self._done = 0
        progress("", 0, total)

    def done(self, what: str) -> None:
        """One more."""
        self._done += 1
        self._progress(what, self._done, self._total)
