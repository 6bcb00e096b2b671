"""`specroute simfleet`: runs the engines of a world, or sends its requests."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import signal
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer
import yaml
from rich import box
from rich.console import Console
from rich.table import Table

from policies.sim.spec import WorldSpec
from router.errors import ConfigError, StartError
from router.simfleet.faults import Fault, FaultError, read_faults
from router.simfleet.fleet import MODEL, FleetOptions, SimFleet, tau_of
from router.simfleet.service import FAULTS_PATH
from router.simfleet.settings import Kind, Record
from router.simfleet.traffic import Driver
from router.simulate.load import load_world, world_names

DEFAULT_WORLD = "llama8b-light"
_LOOPBACK = ("127.0.0.1", "localhost", "::1")
_ADDRESS = re.compile(r"https?://[^/\s]+")
_REPORT_S = 10.0
_PIPE_WIDTH = 130
"""Width of tables where standard output is no terminal that has one."""


@dataclass(frozen=True, slots=True)
class Rehearsal:
    """What was asked for, beyond the fleet itself."""

    write_config: Path | None
    faults: Path | None


def simfleet(
    *,
    world: Annotated[
        str, typer.Option(help="Name of a world, or a file; see --list.")
    ] = DEFAULT_WORLD,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[
        int,
        typer.Option(
            help="Port of the first engine, the others follow; 0 takes free ones.",
            min=0,
            max=65_535,
        ),
    ] = 9300,
    speed: Annotated[float, typer.Option(help="Simulated seconds in a second.", min=0.01)] = 1.0,
    seed: Annotated[int, typer.Option(help="Of everything that is drawn.", min=0)] = 0,
    model: Annotated[str, typer.Option(help="Name that the engines serve.")] = MODEL,
    engine: Annotated[
        Kind | None, typer.Option(help="What all of them speak, instead of what the world says.")
    ] = None,
    engine_version: Annotated[
        str, typer.Option(help="Version that they speak like; by default the newest one known.")
    ] = "",
    record: Annotated[
        Record, typer.Option(help="vLLM's --per-request-spec-decode-metrics.")
    ] = Record.SUMMARY,
    write_config: Annotated[
        Path | None, typer.Option(help="Write a configuration for `specroute serve -c` here.")
    ] = None,
    faults: Annotated[
        Path | None, typer.Option(help="File with a list of faults and their times.")
    ] = None,
    commands: Annotated[
        bool | None,
        typer.Option(help=f"Take faults over HTTP at {FAULTS_PATH}; by default on loopback only."),
    ] = None,
    traffic: Annotated[
        str | None, typer.Option(help="Send the world's requests to this URL instead.")
    ] = None,
    rate: Annotated[
        float | None, typer.Option(help="Requests per second; by default the world's.", min=0.001)
    ] = None,
    duration: Annotated[
        float | None, typer.Option(help="Seconds, then end; by default until Ctrl-C.", min=0.1)
    ] = None,
    list_: Annotated[bool, typer.Option("--list", help="Show the worlds there are.")] = False,
) -> None:
    """Run simulated engines of a world to rehearse on, each on a port of its own.

    They speak as vLLM, SGLang and llama.cpp do. No model runs: texts are filler words.
    """
    width = None if sys.stdout.isatty() else _PIPE_WIDTH
    out = Console(markup=False, emoji=False, highlight=False, soft_wrap=True, width=width)
    if list_:
        out.print(_worlds())
        return
    loaded = _load(world)
    try:
        if traffic is not None:
            if _ADDRESS.match(traffic) is None:
                raise ConfigError(f"--traffic: {traffic!r} is no URL like http://127.0.0.1:8080")
            driver = Driver(loaded, traffic, model=model, rate=rate, seed=seed)
            asyncio.run(_send(driver, duration, out))
            if driver.sent.sent and not driver.sent.answered:
                raise StartError(f"{traffic} answered nothing; is the proxy there?")
            return
        allowed = host in _LOOPBACK if commands is None else commands
        options = FleetOptions(
            host, port, speed, seed, model, allowed, engine, engine_version, record
        )
        rehearsal = Rehearsal(write_config, faults)
        asyncio.run(_serve(SimFleet(loaded, options), rehearsal, duration, out))
    except KeyboardInterrupt:
        out.print("ended")


def _load(name: str) -> WorldSpec:
    try:
        return load_world(name)
    except (ValueError, OSError) as error:
        raise ConfigError(str(error)) from error
    except yaml.YAMLError as error:
        raise ConfigError(f"{name}: not valid YAML: {' '.join(str(error).split())}") from error


def _worlds() -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for name in ("world", "pools", "servers", "what it is"):
        table.add_column(name)
    for name in world_names():
        world = load_world(name)
        pools = ", ".join(pool.name for pool in world.pools if pool.replicas)
        table.add_row(name, pools, str(world.replicas), world.about)
    return table


def read_orders(path: Path) -> list[tuple[str, int | None, Fault]]:
    """Faults from a file: as over HTTP, each with `pool` and `replica`; `*` is every pool.

    Raises:
        ConfigError: With what is wrong.
    """
    try:
        given = yaml.safe_load(path.read_text(encoding="utf-8"))
        items = given if isinstance(given, list) else [given]
        return [_order(item) for item in items]
    except (OSError, yaml.YAMLError, FaultError) as error:
        raise ConfigError(f"{path}: {error}") from error


def _order(item: Any) -> tuple[str, int | None, Fault]:
    if not isinstance(item, dict):
        raise FaultError(
            "a fault is a mapping with `kind`, and `pool` and `replica` if not for all"
        )
    rest = {key: value for key, value in item.items() if key not in ("pool", "replica")}
    [fault] = read_faults(rest)
    number = item.get("replica")
    return str(item.get("pool", "*")), None if number is None else int(number), fault


async def _serve(
    fleet: SimFleet, rehearsal: Rehearsal, duration: float | None, out: Console
) -> None:
    orders = read_orders(rehearsal.faults) if rehearsal.faults else []
    try:
        await fleet.start()
    except (OSError, OverflowError) as error:  # the latter of a port that is beyond all ports
        why = getattr(error, "strerror", None) or error
        raise StartError(f"cannot listen: {why}; choose ports with --port") from error
    try:
        try:
            fleet.command(orders)
        except ValueError as error:
            raise ConfigError(f"{rehearsal.faults}: {error}") from error
        out.print(table_of(fleet))
        out.print("Simulated: no model runs here, texts are filler words.")
        if rehearsal.write_config is not None:
            try:
                fleet.write_config(rehearsal.write_config)
            except OSError as error:
                raise StartError(
                    f"cannot write {rehearsal.write_config}: {error.strerror or error}"
                ) from error
            out.print(f"configuration written; next: specroute serve -c {rehearsal.write_config}")
            out.print(
                f"then:  specroute simfleet --world {fleet.world.name} --model "
                f"{fleet.options.model} --traffic http://127.0.0.1:8080"
            )
        if fleet.options.commands and fleet.engines:
            example = json.dumps({"kind": "slow", "value": 3, "for_s": 60})
            out.print(f"faults:  curl {fleet.engines[0].url}{FAULTS_PATH} -d '{example}'")
        await _until_told(duration)
    finally:
        await fleet.stop()


async def _until_told(duration: float | None) -> None:
    """Ctrl-C, SIGTERM, or the time is over."""
    told = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        with contextlib.suppress(NotImplementedError):
            loop.add_signal_handler(number, told.set)
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(told.wait(), duration)


def table_of(fleet: SimFleet) -> Table:
    """Servers, and the tokens per step that the world gives each class."""
    classes = sorted(fleet.world.traffic.classes)
    table = Table(title=f"world {fleet.world.name}", box=box.SIMPLE_HEAD, pad_edge=False)
    for name in ("server", "speaks", "method", "k", "url"):
        table.add_column(name, no_wrap=True)
    for name in classes:
        table.add_column(name, justify="right")
    for engine in fleet.engines:
        pool = engine.pool
        table.add_row(
            f"{pool.name}/{engine.number}",
            f"{engine.settings.kind} {engine.settings.version}",
            pool.method,
            str(pool.k or ""),
            engine.url,
            *(f"{tau_of(pool, name):.2f}" for name in classes),
        )
    table.caption = "right: tokens per step by class, before anything is learned"
    return table


async def _send(driver: Driver, duration: float | None, out: Console) -> None:
    sending = asyncio.ensure_future(driver.run(duration))
    try:
        while not sending.done():
            await asyncio.wait([sending], timeout=_REPORT_S)
            out.print(_told(driver))
    finally:
        sending.cancel()
    await sending


def _told(driver: Driver) -> str:
    sent = driver.sent
    failed = ", ".join(f"{count} × {name}" for name, count in sent.failed.most_common())
    return (
        f"{sent.sent} sent, {sent.answered} answered, {sent.failed.total()} failed"
        + (f" ({failed})" if failed else "")
        + f", at most {sent.late_s:.2f} s late"
    )
