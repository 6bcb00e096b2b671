"""`specroute check`: what is wrong with a configuration, before anything is started."""

from __future__ import annotations

import difflib
from pathlib import Path
from typing import Annotated

import typer

from router.app import Application
from router.cli.terminal import out
from router.config.load import load_config
from router.config.routes import KNOWN_METHODS, Pool
from router.config.servers import Timeouts


def check(
    file: Annotated[Path, typer.Argument(help="Configuration file.")],
) -> None:
    """Tell what is wrong with a configuration file; nothing is started."""
    config = load_config(file)
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
    out.print(f"{file}: ok")


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
