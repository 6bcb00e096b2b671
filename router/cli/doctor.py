"""`specroute doctor`: asks every server behind a configuration, and tells what to put right."""

from __future__ import annotations

import asyncio
import sys
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Annotated

import orjson
import typer
from rich.console import Console
from rich.status import Status

from router.app import Application
from router.clock import SystemClock
from router.config.load import load_config, naming
from router.config.models import Config
from router.doctor.findings import Report
from router.doctor.render import render
from router.doctor.run import Doctor, Options, Progress
from router.fleet.fetch import AiohttpFetch
from router.relay.wire.upstream import WireUpstream

_PIPE_WIDTH = 110
_PROBLEM_EXIT = 1


def doctor(
    config: Annotated[
        Path, typer.Option("-c", "--config", help="Configuration file.", envvar="SPECROUTE_CONFIG")
    ],
    *,
    json_: Annotated[bool, typer.Option("--json", help="JSON instead of text.")] = False,
    requests: Annotated[
        bool,
        typer.Option(
            "--requests/--no-requests",
            help="Send every server one small chat request, as the proxy would.",
        ),
    ] = True,
    slow: Annotated[
        bool,
        typer.Option("--slow", help="Watch how long servers keep idle connections: 8 s more."),
    ] = False,
    timeout: Annotated[
        float, typer.Option(help="Limit of a whole answer, in seconds.", min=0.1, max=3600)
    ] = 60.0,
    api_key: Annotated[
        str | None,
        typer.Option(
            help="Key that clients send, for pools without one of their own.",
            envvar="SPECROUTE_DOCTOR_API_KEY",
        ),
    ] = None,
) -> None:
    """Ask every server what it is, and tell what to put right. Nothing is changed.

    For each server: can it be reached, which engine and version is it, is
    that what the configuration declares, does it serve the model, answer and
    count tokens, from where will acceptance be known, which flag tells more.

    For each route: do its pools serve the same model with the same limits, and
    give the same greedy answer. And the store.

    Lines are ok, note, warning or problem, each with what to do about it. Exit
    code: 0 without a problem, 1 with one, 2 when the configuration cannot be
    used. A running proxy is not needed, and none is disturbed.
    """
    loaded = load_config(config)
    with naming(config):
        Application(loaded)
    options = Options(requests=requests, slow=slow, answer_s=timeout, api_key=api_key)
    report = _examined(loaded, options)
    if json_:
        sys.stdout.write(orjson.dumps(report.as_json(), option=orjson.OPT_INDENT_2).decode() + "\n")
    else:
        out = Console(
            markup=False,
            emoji=False,
            highlight=False,
            width=None if sys.stdout.isatty() else _PIPE_WIDTH,
        )
        out.print(render(report))
    if not report.healthy:
        raise typer.Exit(_PROBLEM_EXIT)


def _examined(config: Config, options: Options) -> Report:
    err = Console(stderr=True, markup=False, emoji=False, highlight=False)
    status = err.status("looking for servers …") if err.is_terminal else None
    shown: AbstractContextManager[object] = nullcontext() if status is None else status
    with shown:
        return asyncio.run(_examine(config, options, _progress(status)))


def _progress(status: Status | None) -> Progress:
    def progress(what: str, done: int, total: int) -> None:
        if status is not None:
            status.update(f"servers examined: {done} of {total}  {what}")

    return progress


async def _examine(config: Config, options: Options, progress: Progress) -> Report:
    fetch, upstream = AiohttpFetch(), WireUpstream()
    try:
        return await Doctor(config, options, SystemClock(), fetch, upstream).examine(progress)
    finally:
        await upstream.close()
        await fetch.close()
