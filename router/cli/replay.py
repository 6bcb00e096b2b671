"""`specroute replay`: what another policy would have done to the requests of a decision log."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import orjson
import typer
from rich.console import Console
from rich.progress import Progress

from policies.registry import build_any_policy
from router.errors import ConfigError
from router.replay.lines import read_log
from router.replay.render import render, replay_json
from router.replay.replay import Settings, replay
from router.selection.expectations import expectations
from router.simulate.load import load_priors

_WIDTH = 130
_out = Console(
    markup=False, emoji=False, highlight=False, width=None if sys.stdout.isatty() else _WIDTH
)
_err = Console(stderr=True, markup=False, emoji=False, highlight=False)


def replay_command(
    log: Annotated[
        list[Path], typer.Argument(help="Decision logs (decision_log.path), rotated ones too; .gz.")
    ],
    policy: Annotated[str, typer.Option(help="Policy to judge.")],
    parameters: Annotated[
        list[str] | None,
        typer.Option(help="Its parameters, name=value; a value may be JSON. Repeat for several."),
    ] = None,
    *,
    model: Annotated[str | None, typer.Option(help="The route, where there are several.")] = None,
    baseline: Annotated[
        str | None, typer.Option(help="Pool that decodes plainly, where the log does not tell.")
    ] = None,
    clip: Annotated[
        float | None, typer.Option(help="Largest weight of a request; none are cut by default.")
    ] = None,
    refresh: Annotated[
        float, typer.Option(help="Seconds of the log between two looks at its sums.", min=1)
    ] = 10.0,
    half_life: Annotated[
        float, typer.Option(help="estimates.half_life_s of the proxy.", min=1)
    ] = 900.0,
    json_: Annotated[bool, typer.Option("--json", help="JSON instead of a table.")] = False,
) -> None:
    """Estimate what another policy would have cost on recorded decisions, or say why not."""
    if clip is not None and not clip >= 1.0:
        raise ConfigError(f"--clip must be at least 1, not {clip:g}")
    read = read_log(log, model=model, baseline=baseline)
    classes = sorted({entry.trial.class_id for entry in read.entries})
    try:
        made = build_any_policy(policy, parsed(parameters or ()), read.arms)
    except ValueError as error:
        raise ConfigError(f"--policy: {error}") from None
    expected = expectations(read.arms, classes, load_priors())
    settings = Settings(half_life_s=half_life, refresh_s=refresh)
    with Progress(console=_err, transient=True, disable=not sys.stderr.isatty()) as bar:
        task = bar.add_task("decisions", total=len(read.entries))
        found = replay(
            read,
            made,
            settings,
            expected=expected,
            clip=clip,
            progress=lambda row: bar.update(task, completed=row + 1),
        )
    if json_:
        sys.stdout.write(orjson.dumps(replay_json(read, policy, found)).decode() + "\n")
        return
    _out.print(render(read, policy, found))


def parsed(given: Sequence[str]) -> dict[str, object]:
    """Parameters as `name=value`; a value that is JSON is taken as such, any other as text.

    Raises:
        ConfigError: One of them has no `=`.

    Example:
        >>> parsed(["arm=plain", "floor=0.02", 'weights={"a": 1}'])
        {'arm': 'plain', 'floor': 0.02, 'weights': {'a': 1}}
    """
    found: dict[str, object] = {}
    for one in given:
        name, separator, value = one.partition("=")
        if not separator or not name:
            raise ConfigError(f"--parameters: {one!r} must be name=value")
        try:
            found[name] = orjson.loads(value)
        except ValueError:
            found[name] = value
    return found
