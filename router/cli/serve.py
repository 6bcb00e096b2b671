"""`specroute serve`: one process, or several that share the port."""

from __future__ import annotations

import os
import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from router.cli.terminal import out
from router.observe.log import configure_logging
from router.processes.reload import ConfigFile, Loaded
from router.processes.single import serve
from router.processes.started import Started
from router.processes.supervisor import supervise
from router.processes.worker import work


class LogLevel(StrEnum):
    """The least important lines that are logged."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


def serve_command(
    config: Annotated[
        Path, typer.Option("-c", "--config", help="Configuration file.", envvar="SPECROUTE_CONFIG")
    ],
    workers: Annotated[
        int | None,
        typer.Option(
            help="Processes that share the port; instead of listen.workers.", min=1, max=64
        ),
    ] = None,
    log_level: Annotated[
        LogLevel, typer.Option(help="Log lines are JSON on standard error.")
    ] = LogLevel.INFO,
) -> None:
    """Run the proxy until SIGTERM or Ctrl-C; running answers are finished first.

    SIGHUP reads the configuration again.
    """
    configure_logging(log_level)
    file = ConfigFile(config, workers)
    _run(file, file.parse(file.read()), log_level)


def _run(file: ConfigFile, loaded: Loaded, log_level: LogLevel) -> None:
    import uvloop  # noqa: PLC0415 - only needed here, and not there on every platform

    if loaded.config.listen.workers == 1:
        uvloop.run(serve(file, loaded, _announce))
    else:
        uvloop.run(supervise(file, loaded, _announce, log_level=log_level))


def _announce(started: Started) -> None:
    more = f"   workers: {started.workers}" if started.workers > 1 else ""
    out.print(f"clients  {started.data_url}/v1   models: {', '.join(started.models)}{more}")
    admin = started.admin_url
    out.print(f"status   {admin}/   or: specroute status --watch --url {admin}")
    sys.stdout.flush()


def worker_command(channel: int, log_level: LogLevel = LogLevel.INFO) -> None:
    """One of several workers; started by `serve`, never by hand."""
    import uvloop  # noqa: PLC0415 - only needed here, and not there on every platform

    configure_logging(log_level, pid=os.getpid())  # to tell the lines of several apart
    uvloop.run(work(channel))
