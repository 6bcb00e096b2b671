"""All engines of a world at once, each on a port of its own, and a configuration for them."""

from __future__ import annotations

import typing
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from policies.sim.engine import SimEngine
from policies.sim.spec import ANY_CLASS, PoolSpec, WorldSpec
from policies.types import ClassId
from router.config.base import EngineName
from router.simfleet.faults import Fault, FaultKind
from router.simfleet.pace import Pace, RealPace
from router.simfleet.prompts import CLASS_HEADER, Prompts
from router.simfleet.service import EngineService
from router.simfleet.settings import EngineSettings, Kind, Record

MODEL = "simulated"
_KINDS = {"llama.cpp": Kind.LLAMACPP, **{kind.value: kind for kind in Kind}}


@dataclass(frozen=True, slots=True)
class FleetOptions:
    """How a world is run.

    Attributes:
        host: Address to listen on.
        port: Port of the first engine, the others follow; 0 takes free ones.
        speed: Simulated seconds in a second.
        seed: Of all draws.
        model: Name that the engines serve.
        commands: Whether faults can be commanded over HTTP.
        kind: What all of them speak; None for what the world says.
        version: That they tell and speak like; "" for the newest one known.
        record: What vLLM tells of each request.
    """

    host: str = "127.0.0.1"
    port: int = 0
    speed: float = 1.0
    seed: int = 0
    model: str = MODEL
    commands: bool = True
    kind: Kind | None = None
    version: str = ""
    record: Record = Record.SUMMARY


@dataclass(frozen=True, slots=True)
class RunningEngine:
    """One server that listens."""

    pool: PoolSpec
    number: int
    """Of its pool, from 0."""
    settings: EngineSettings
    url: str
    service: EngineService


class EngineDrafter:
    """Changes how a machine drafts, and back."""

    def __init__(self, engine: SimEngine) -> None:
        self._engine = engine
        self._first = engine.spec

    def drift(self, class_id: ClassId | None, factor: float) -> None:
        """See `service.Drafter`."""
        self._engine.become(self._engine.spec.scaled(class_id or ANY_CLASS, factor))

    def disable(self) -> None:
        """See `service.Drafter`."""
        spec = self._engine.spec
        free = replace(spec.cost, draft_s=0.0, draft_per_token_s=0.0, draft_ratio=0.0)
        self._engine.become(replace(spec, k=0, cost=free))

    def restore(self) -> None:
        """See `service.Drafter`."""
        self._engine.become(self._first)


def kind_of(engine: str) -> Kind:
    """Whose wire format a world's engine speaks.

    Raises:
        ValueError: Nobody's that is known here.
    """
    try:
        return _KINDS[engine]
    except KeyError as error:
        raise ValueError(
            f"no wire format of {engine!r}; there are {', '.join(sorted(_KINDS))}"
        ) from error


class SimFleet:
    """The servers of a world."""

    def __init__(
        self,
        world: WorldSpec,
        options: FleetOptions | None = None,
        pace: Callable[[], Pace] | None = None,
    ) -> None:
        """`pace` makes the clock of each engine; the machine's by default."""
        self.world = world
        self.options = options or FleetOptions()
        self._pace = pace or partial(RealPace, self.options.speed)
        self.engines: list[RunningEngine] = []
        self._arrived = 0
        self._events = sorted(world.events, key=lambda event: event.at_request)

    async def start(self) -> None:
        """Begins to listen on every port.

        Raises:
            OSError: A port is taken; what had begun is ended.
        """
        try:
            for pool in self.world.pools:
                for number in range(pool.replicas):
                    self.engines.append(await self._engine(pool, number))
        except BaseException:
            await self.stop()
            raise

    async def stop(self) -> None:
        """Ends everything."""
        for engine in self.engines:
            await engine.service.stop()
        self.engines.clear()

    async def _engine(self, pool: PoolSpec, number: int) -> RunningEngine:
        options, at = self.options, len(self.engines)
        machine = SimEngine(pool.spec, np.random.default_rng((options.seed, at)))
        settings = self._settings(pool)
        service = EngineService(
            settings,
            machine,
            prompts=self._prompts(settings, at),
            pace=self._pace(),
            drafter=EngineDrafter(machine),
            commands=options.commands,
            seed=options.seed * 1000 + at,
            on_request=self._arrive,
        )
        wanted = options.port + at if options.port else 0
        port = await service.start(options.host, wanted)
        host = "127.0.0.1" if options.host in ("0.0.0.0", "") else options.host  # noqa: S104
        return RunningEngine(pool, number, settings, f"http://{host}:{port}", service)

    def _settings(self, pool: PoolSpec) -> EngineSettings:
        return EngineSettings(
            kind=self._kind(pool),
            model=self.options.model,
            version=self.options.version,
            record=self.options.record,
            method=pool.method if pool.k else "none",
            num_speculative_tokens=pool.k or None,
            slots=pool.spec.slots,
            context=min(pool.spec.kv_tokens, 32_768),
        )

    def _kind(self, pool: PoolSpec) -> Kind:
        return self.options.kind or kind_of(pool.engine)

    def _prompts(self, settings: EngineSettings, at: int) -> Prompts:
        classes = self.world.traffic.classes
        lengths = {class_id: traffic.output for class_id, traffic in classes.items()}
        return Prompts(
            seed=self.options.seed * 1000 + at, lengths=lengths, context=settings.context
        )

    def _arrive(self) -> None:
        """Counts requests over all servers: what changes in a world does so at one of them."""
        self._arrived += 1
        while self._events and self._events[0].at_request <= self._arrived:
            event = self._events.pop(0)
            if event.kind == "drift":
                class_id = None if event.class_id == ANY_CLASS else event.class_id
                fault = Fault(FaultKind.DRIFT, event.factor, class_id=class_id)
                self.command([(event.pool, None, fault)])
            elif event.kind == "fail":
                fault = Fault(FaultKind.RESTART, event.seconds / self.options.speed)
                self.command([(event.pool, event.replica, fault)])

    def command(self, orders: Sequence[tuple[str, int | None, Fault]]) -> None:
        """Puts faults in force; for a pool and one of its servers, or for all of them.

        Raises:
            ValueError: There is no such pool.
        """
        for pool, number, fault in orders:
            met = [
                engine
                for engine in self.engines
                if pool in ("*", engine.pool.name) and number in (None, engine.number)
            ]
            if not met:
                raise ValueError(f"no server {pool}/{'*' if number is None else number}")
            for engine in met:
                engine.service.command([fault])

    def config(self, *, port: int = 8080, admin_port: int = 8081) -> dict[str, Any]:
        """A configuration of a proxy before these engines."""
        classes = sorted(self.world.traffic.classes)
        rules = [
            {"class": name, "when": {"header": {CLASS_HEADER: f"^{name}$"}}} for name in classes
        ]
        return {
            "listen": {"port": port},
            "admin": {"port": admin_port},
            "store": {"url": "memory:"},
            "classify": {"rules": rules},
            "routes": [self.route()],
        }

    def route(self, policy: dict[str, Any] | None = None) -> dict[str, Any]:
        """The route over the pools of the world."""
        return {
            "model": self.options.model,
            "baseline": self.world.plain.name,
            "policy": policy or {"name": "net_gain"},
            "pools": [self._pool(pool) for pool in self.world.pools if pool.replicas],
        }

    def _pool(self, pool: PoolSpec) -> dict[str, Any]:
        kind = self._kind(pool).value
        told: dict[str, Any] = {
            "name": pool.name,
            "method": pool.method,
            "engine": kind if kind in typing.get_args(EngineName) else "generic",
        }
        if pool.k:
            told["num_speculative_tokens"] = pool.k
        replicas = [engine.url for engine in self.engines if engine.pool is pool]
        return told | {"replicas": [{"url": url} for url in replicas]}

    def write_config(self, path: Path, **ports: int) -> None:
        """Writes the configuration as a file for `specroute serve -c`."""
        head = (
            f"# Written by `specroute simfleet` for the world {self.world.name!r}; every key is\n"
            "# explained in config/specroute.yaml.\n"
        )
        text = head + yaml.safe_dump(self.config(**ports), sort_keys=False)
        # Whole or not at all: somebody may wait for it.
        half = path.with_name(f"{path.name}.part")
        half.write_text(text, encoding="utf-8")
        half.replace(path)


def tau_of(pool: PoolSpec, class_id: ClassId) -> float:
    """Tokens per step that a world's pool has for a class; 1 where nothing is drafted for it."""
    cell = pool.spec.cell(class_id)
    return 1.0 if cell is None else cell.tau
