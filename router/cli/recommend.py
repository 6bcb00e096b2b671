"""`specroute recommend`: draft lengths, schedules and pools, from what a proxy measured."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import orjson
import typer

from router.cli.admin import fetch_state
from router.errors import ConfigError
from router.recommend.render import recommend, text


def recommend_command(
    url: Annotated[
        str,
        typer.Option("--url", help="Admin port of a running proxy.", envvar="SPECROUTE_ADMIN_URL"),
    ] = "http://127.0.0.1:8081",
    *,
    state: Annotated[
        Path | None,
        typer.Option(
            help="A kept answer of /api/state instead of a running proxy; - reads it from stdin."
        ),
    ] = None,
    json_: Annotated[bool, typer.Option("--json", help="JSON instead of text.")] = False,
) -> None:
    """Tell which draft lengths, schedules and pools the measurements speak for, as flags."""
    made = recommend(fetch_state(url) if state is None else read_state(state))
    sys.stdout.write(orjson.dumps(made).decode() + "\n" if json_ else text(made))


def read_state(path: Path) -> dict[str, Any]:
    """A kept answer of `/api/state`.

    Raises:
        ConfigError: The file cannot be read, or holds something else.
    """
    try:
        data = sys.stdin.buffer.read() if path == Path("-") else path.read_bytes()
        state = orjson.loads(data)
    except OSError as error:
        raise ConfigError(f"--state: {path} cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise ConfigError(f"--state: {path} is no JSON: {error}") from error
    if not isinstance(state, dict) or "routes" not in state:
        raise ConfigError(f"--state: {path} is no answer of /api/state: it has no routes")
    return state
