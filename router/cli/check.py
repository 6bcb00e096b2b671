"""`specroute check`: what is wrong with a configuration, before anything is started."""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from router.app import Application
from router.cli.terminal import out
from router.config.load import load_config, naming
from router.config.models import Config
from router.config.routes import KNOWN_METHODS, Pool
from router.config.servers import Timeouts
from router.errors import ConfigError


def check(
    context: typer.Context,
    file: Annotated[Path | None, typer.Argument(help="Configuration file.")] = None,
    config: Annotated[
        Path | None,
        typer.Option(
            "-c",
            "--config",
            help="The same, as other commands have it.",
            envvar="SPECROUTE_CONFIG",
        ),
    ] = None,
) -> None:
    """Tell what is wrong with a configuration file; nothing is started."""
    source = context.get_parameter_source("config")
    typed = source is not None and source.name == "COMMANDLINE"
    if file is not None and typed:
        raise ConfigError("name one file: specroute check FILE, or specroute check -c FILE")
    chosen = file or config
    if chosen is None:
        raise ConfigError("no file is named; write specroute check FILE")
    _told(chosen, load_config(chosen))


def _told(file: Path, config: Config) -> None:
    with naming(file):
        Application(config)
    for route in config.routes:
        out.print(f"{route.model}: policy {route.policy.name}, baseline {route.baseline}")
        for pool in route.pools:
            servers = ", ".join(_servers(pool))
            out.print(f"  {pool.name}: {pool.method} on {pool.engine}, {servers}")
            close = difflib.get_close_matches(pool.method, KNOWN_METHODS, n=1, cutoff=0.8)
            if close and pool.method not in KNOWN_METHODS:
                out.print(f"  note: no known method is called {pool.method}; is it {close[0]}?")
            for note in _notes_on(pool.timeouts):
                out.print(f"  note: {note}")
        methods = {pool.name: pool.method for pool in route.pools}
        if methods[route.baseline] != "none":
            out.print(
                f"  note: the baseline speculates ({methods[route.baseline]}), so gains are those "
                "over it, not over plain decoding"
            )
    for note in tenant_notes(config):
        out.print(f"  note: {note}")
    out.print(f"{file}: ok")


def tenant_notes(config: Config) -> Iterator[str]:
    """Names in tenants' rights that no route has: they take away more than was meant."""
    pools = sorted({pool.name for route in config.routes for pool in route.pools})
    methods = sorted({pool.method for route in config.routes for pool in route.pools})
    for index, tenant in enumerate(config.tenants.known):
        path = f"tenants.known[{index}]"
        pinned = () if tenant.pool is None else (tenant.pool,)
        for key, kind, names, known in (
            ("pools", "pool", tenant.pools, pools),
            ("methods", "method", tenant.methods, methods),
            ("pool", "pool", pinned, pools),
        ):
            for name in names:
                if name not in known:
                    yield f"{path}.{key}: no route has the {kind} {name}; {_meant(name, known)}"


def _meant(name: str, known: list[str]) -> str:
    close = difflib.get_close_matches(name, known, n=1)
    return f"is it {close[0]}?" if close else f"there are: {', '.join(known)}"


def _notes_on(limits: Timeouts) -> list[str]:
    """Where one limit leaves nothing to another one that was set."""
    header_s, first_s, total_s = limits.header_s, limits.first_content_s, limits.total_s
    notes = []
    if total_s is not None:
        for name in ("header_s", "first_content_s", "idle_s"):
            value = getattr(limits, name)
            if name in limits.model_fields_set and value is not None and value >= total_s:
                notes.append(f"{name} ({value:g} s) can never matter: total_s is {total_s:g} s")
        if total_s > header_s:
            notes.append(
                f"total_s ({total_s:g} s) matters for streams only: whole answers end at header_s, "
                f"which is {header_s:g} s"
            )
    if first_s is not None and first_s > header_s:
        notes.append(
            f"first_content_s ({first_s:g} s) matters only where the head of a stream comes before "
            f"its content: for the head there is header_s, which is {header_s:g} s"
        )
    return notes


def _servers(pool: Pool) -> list[str]:
    found = pool.discover
    if found is None:
        return [replica.url for replica in pool.replicas]
    if found.dns is not None:
        return [f"those of {found.dns.name} in DNS ({found.dns.type})"]
    return [f"those listed in {found.file}"]
