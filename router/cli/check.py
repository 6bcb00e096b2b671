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
        methods = {pool.name: pool.method for pool in route.pools}
        if methods[route.baseline] != "none":
            out.print(
                f"  note: the baseline speculates ({methods[route.baseline]}), so gains are those "
                "over it, not over plain decoding"
            )
    out.print(f"{file}: ok")


def _servers(pool: Pool) -> list[str]:
    found = pool.discover
    if found is None:
        return [replica.url for replica in pool.replicas]
    if found.dns is not None:
        return [f"those of {found.dns.name} in DNS ({found.dns.type})"]
    return [f"those listed in {found.file}"]
